//! What comes in answer to a call, and whether it is an answer at all. What reads it puts into the
//! same words what the other side says and what goes wrong here; but only what was said says
//! anything about what was done.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tonic::metadata::MetadataMap;

const STATUS: &str = "grpc-status";
const DETAILS: &str = "grpc-status-details-bin";

/// Whether the other side has said why a call gave no answer: of one call.
#[derive(Clone, Default)]
pub(super) struct Said(Arc<AtomicBool>);

impl Said {
    /// Whether it has.
    pub(super) fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Looks at what came, and takes out of it what cannot be read.
    fn note(&self, headers: &mut HeaderMap) {
        if headers.get(STATUS).is_some_and(|status| status.as_bytes() != b"0") {
            self.0.store(true, Ordering::Relaxed);
        }
        if headers.contains_key(DETAILS) && !can_be_read(headers) {
            headers.remove(DETAILS);
        }
    }

    /// Looks at an answer while it is read.
    pub(super) fn listen(self, response: Response<Incoming>) -> Response<Heard> {
        let (mut head, body) = response.into_parts();
        // Somebody in between who knows nothing of gRPC says it like that.
        if head.status != StatusCode::OK {
            self.0.store(true, Ordering::Relaxed);
        }
        self.note(&mut head.headers);
        Response::from_parts(head, Heard { body, said: self })
    }
}

/// Whether the details are written as they should: what reads them takes that for granted.
fn can_be_read(headers: &HeaderMap) -> bool {
    let details = headers.get_all(DETAILS).iter().cloned();
    let details = details.map(|value| (http::HeaderName::from_static(DETAILS), value)).collect();
    let details = MetadataMap::from_headers(details);
    details.get_bin(DETAILS).is_some_and(|value| value.to_bytes().is_ok())
}

/// An answer.
pub(super) struct Heard {
    body: Incoming,
    said: Said,
}

impl Body for Heard {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            self.said.note(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
