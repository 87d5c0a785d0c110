//! Reading the body of a request. Invariant: never more than the bound, and never slower than the
//! service is willing to wait.

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http_body_util::BodyExt;
use mailbox::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout_at};

/// Slowest that a body may come, in bytes per second, once the first wait is over.
const SLOWEST: u64 = 64 * 1024;

/// Reads all of a body.
pub(crate) async fn read(
    head: &Parts,
    body: Body,
    most: usize,
    patience: Duration,
) -> Result<Bytes> {
    if head.headers.get(CONTENT_ENCODING).is_some_and(|value| value != "identity") {
        let message = "bodies are taken as they are: no content encoding";
        return Err(Error::new(ErrorKind::InvalidParameter, message));
    }
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let announced: Option<u64> = announced.and_then(|value| value.parse().ok());
    if announced.is_some_and(|len| len > most as u64) {
        return Err(too_large(most));
    }
    let started = Instant::now();
    let mut body = pin!(body);
    let (mut first, mut rest) = (None::<Bytes>, BytesMut::new());
    let mut len = 0_usize;
    loop {
        let earned = Duration::from_millis(len as u64 * 1000 / SLOWEST);
        let frame = timeout_at(started + patience + earned, body.frame()).await;
        let frame = match frame {
            Err(_) => return Err(Error::new(ErrorKind::Connection, "the body comes too slowly")),
            Ok(None) => break,
            Ok(Some(Err(_))) => {
                return Err(Error::new(ErrorKind::Connection, "the body breaks off"));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        len += data.len();
        if len > most {
            return Err(too_large(most));
        }
        // Most bodies come in one piece, which then need not be copied.
        match &first {
            None if rest.is_empty() => first = Some(data),
            None => rest.extend_from_slice(&data),
            Some(_) => {
                let first = first.take().unwrap_or_default();
                rest.reserve(announced.map_or(0, |len| len as usize).min(most));
                rest.extend_from_slice(&first);
                rest.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| rest.freeze()))
}

fn too_large(most: usize) -> Error {
    let message = format!("the body is larger than {most} bytes");
    Error::new(ErrorKind::TooLarge, message).with_field("payload")
}
