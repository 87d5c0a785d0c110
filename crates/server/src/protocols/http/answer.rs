//! Answers: JSON, with the correlation id, and the same shape for everything that went wrong.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use mailbox::{Error, ErrorKind};
use serde::Serialize;

use crate::failure::Failure;

pub(crate) const X_CORR_ID: HeaderName = HeaderName::from_static("x-corr-id");
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
/// What kind of failure an answer tells of, for those who count them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind(pub(crate) ErrorKind);

/// The answer to a call that worked.
pub(crate) fn success(answer: &impl Serialize) -> Response {
    match serde_json::to_vec(answer) {
        Ok(json) => with_body(StatusCode::OK, json.into()),
        // Everything that is answered can be written as JSON.
        Err(_) => failure(&unwritable(), ""),
    }
}

fn unwritable() -> Failure {
    Failure::new(ErrorKind::Internal, "the answer cannot be written")
}

/// The answer to a call that did not.
pub(crate) fn failure(failure: &Failure, corr_id: &str) -> Response {
    let problem = failure.problem(corr_id);
    let status = status_of(&failure.error);
    let json = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = with_body(status, json.into());
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, BEARER);
    }
    response.extensions_mut().insert(Kind(failure.error.kind()));
    if let Some(millis) = problem.retry_after_ms
        && matches!(status.as_u16(), 429 | 503)
    {
        let seconds = HeaderValue::from(millis.div_ceil(1000).max(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

fn status_of(error: &Error) -> StatusCode {
    StatusCode::from_u16(error.kind().status().http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

pub(crate) fn with_body(status: StatusCode, json: Bytes) -> Response {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
