//! Bodies to payloads and back.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};

/// How bodies of type `T` become payloads. A mailbox has one; both ends must use the same.
pub trait Codec<T>: fmt::Debug + Send + Sync + 'static {
    /// The payload for a body.
    ///
    /// # Errors
    /// [`ErrorKind::Serialization`].
    fn encode(&self, body: &T) -> Result<Bytes>;

    /// The body in a payload.
    ///
    /// # Errors
    /// [`ErrorKind::Serialization`].
    fn decode(&self, payload: &Bytes) -> Result<T>;
}

/// JSON, by serde: what a mailbox uses unless told otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn encode(&self, body: &T) -> Result<Bytes> {
        serde_json::to_vec(body).map(Bytes::from).map_err(|error| {
            Error::new(ErrorKind::Serialization, "the body cannot be written as JSON")
                .with_source(error)
        })
    }

    fn decode(&self, payload: &Bytes) -> Result<T> {
        serde_json::from_slice(payload).map_err(|error| {
            // The error itself is left out: its text quotes values, and bodies do not go into logs.
            let wanted = std::any::type_name::<T>();
            let (what, line, column) = (error.classify(), error.line(), error.column());
            let place = format!("{what:?} error, line {line}, column {column}");
            let message = format!("the payload is not JSON for {wanted} ({place})");
            Error::new(ErrorKind::Serialization, message)
        })
    }
}

/// Bytes as they are: for bodies that are `Bytes` or `Vec<u8>`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Raw;

impl Codec<Bytes> for Raw {
    fn encode(&self, body: &Bytes) -> Result<Bytes> {
        Ok(body.clone())
    }

    fn decode(&self, payload: &Bytes) -> Result<Bytes> {
        Ok(payload.clone())
    }
}

impl Codec<Vec<u8>> for Raw {
    fn encode(&self, body: &Vec<u8>) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(body))
    }

    fn decode(&self, payload: &Bytes) -> Result<Vec<u8>> {
        Ok(payload.to_vec())
    }
}
