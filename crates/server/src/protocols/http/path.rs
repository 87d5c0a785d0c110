//! Parts of a path, and queries. One that cannot be read is refused after whoever asks has been: so
//! it is kept, and looked at inside the call.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Path, Query};
use http::request::Parts;
use mailbox::{Error, ErrorKind};
use serde::de::DeserializeOwned;

use crate::failure::Answer;

/// The one variable part of a path.
#[derive(Debug)]
pub(crate) struct Segment(pub(crate) Answer<String>);

/// A query whose names are all known.
#[derive(Debug)]
pub(crate) struct Asked<T>(pub(crate) Answer<T>);

fn read<T, E>(what: &'static str, read: Result<T, E>) -> Answer<T> {
    Ok(read.map_err(|_| {
        let message = format!("the {what} cannot be read");
        Error::new(ErrorKind::InvalidParameter, message).with_field(what)
    })?)
}

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        Ok(Self(read("path", path.map(|Path(text)| text))))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        Ok(Self(read("query", query.map(|Query(asked)| asked))))
    }
}
