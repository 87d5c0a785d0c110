//! Reading the body of a request. Invariant: never more than the bound, and never slower than the
//! service is willing to wait.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http_body_util::BodyExt;
use mailbox::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout_at};

use crate::admission::{Budget, Room, full};

/// Slowest that a body may come, in bytes per second, once the first wait is over.
const SLOWEST: u64 = 64 * 1024;

/// How much of a body is taken, and for how long.
#[derive(Debug)]
pub(crate) struct Bounds<'a> {
    pub(crate) most: usize,
    pub(crate) patience: Duration,
    pub(crate) budget: &'a Budget,
    /// Whose share of it is used.
    pub(crate) token_id: &'a Arc<str>,
}

/// Reads all of a body; it takes its room as it comes, not as it is announced.
pub(crate) async fn read(head: &Parts, body: Body, bounds: Bounds<'_>) -> Result<(Bytes, Room)> {
    let Bounds { most, patience, budget, token_id } = bounds;
    if head.headers.get(CONTENT_ENCODING).is_some_and(|value| value != "identity") {
        let message = "bodies are taken as they are: no content encoding";
        return Err(Error::new(ErrorKind::InvalidParameter, message));
    }
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let announced: Option<u64> = announced.and_then(|value| value.parse().ok());
    if announced.is_some_and(|len| len > most as u64) {
        return Err(too_large(most));
    }
    let mut started = None;
    let mut body = pin!(body);
    let (mut first, mut rest) = (None::<Bytes>, BytesMut::new());
    let (mut len, mut room) = (0_usize, Room::default());
    loop {
        // Most is there already: a timer would cost more than to look.
        let frame = match body.frame().now_or_never() {
            Some(frame) => frame,
            None => {
                let started = *started.get_or_insert_with(Instant::now);
                let earned = Duration::from_millis(len as u64 * 1000 / SLOWEST);
                let waited = timeout_at(started + patience + earned, body.frame()).await;
                waited
                    .map_err(|_| Error::new(ErrorKind::Connection, "the body comes too slowly"))?
            }
        };
        let frame = match frame {
            None => break,
            Some(Err(_)) => return Err(Error::new(ErrorKind::Connection, "the body breaks off")),
            Some(Ok(frame)) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        len += data.len();
        if len > most {
            return Err(too_large(most));
        }
        if !room.grow(budget, token_id, len as u64) {
            return Err(full("too many bodies are coming in"));
        }
        // Most bodies come in one piece, which then need not be copied.
        match &first {
            None if rest.is_empty() => first = Some(data),
            None => rest.extend_from_slice(&data),
            Some(_) => {
                let first = first.take().unwrap_or_default();
                // Never much more than has come: what is announced may never come.
                rest.extend_from_slice(&first);
                rest.extend_from_slice(&data);
            }
        }
    }
    Ok((first.unwrap_or_else(|| rest.freeze()), room))
}

fn too_large(most: usize) -> Error {
    let message = format!("the body is larger than {most} bytes");
    Error::new(ErrorKind::TooLarge, message).with_field("payload")
}
