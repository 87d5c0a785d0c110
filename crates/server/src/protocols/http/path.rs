//! Parts of a path, and queries, refused in the shape of every other refusal.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Path, Query};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use mailbox::{Error, ErrorKind};
use serde::de::DeserializeOwned;

use super::answer;
use super::exchange::CorrId;

/// The one variable part of a path.
#[derive(Debug)]
pub(crate) struct Segment(pub(crate) String);

/// A query whose names are all known.
#[derive(Debug)]
pub(crate) struct Asked<T>(pub(crate) T);

/// A path or a query that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable(&'static str, CorrId);

impl IntoResponse for Unreadable {
    fn into_response(self) -> Response {
        let message = format!("the {} cannot be read", self.0);
        let error = Error::new(ErrorKind::InvalidParameter, message).with_field(self.0);
        answer::failure(&error.into(), &self.1.0)
    }
}

impl From<Infallible> for Unreadable {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

fn unreadable(what: &'static str, parts: &Parts) -> Unreadable {
    let corr_id = parts.extensions.get::<CorrId>().cloned();
    Unreadable(what, corr_id.unwrap_or_else(|| CorrId::of(&parts.headers)))
}

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Unreadable;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Unreadable> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Self(text)).map_err(|_| unreadable("path", parts))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Unreadable;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Unreadable> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(asked)| Self(asked)).map_err(|_| unreadable("query", parts))
    }
}
