//! Answers with payloads in them: a body that gives deliveries back unless it reaches the socket,
//! and the room it takes when it has.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body::{Frame, SizeHint};
use mailbox_wire::payload::wiped;

use super::answer;
use crate::calls::HandOver;
use crate::listen::Peer;

/// Bytes, and the deliveries that are in them.
struct Parcel {
    json: Option<Bytes>,
    hand_over: Option<HandOver>,
    peer: Arc<Peer>,
}

impl http_body::Body for Parcel {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(json) = self.json.take() else { return Poll::Ready(None) };
        // From here on they are the connection's: it knows when they are written.
        if let Some(hand_over) = self.hand_over.take() {
            self.peer.on_its_way(hand_over);
        }
        Poll::Ready(Some(Ok(Frame::data(json))))
    }

    fn is_end_stream(&self) -> bool {
        self.json.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.json.as_ref().map_or(0, |json| json.len() as u64))
    }
}

/// The answer with what was received, or with messages that are looked at.
pub(crate) fn response(json: Vec<u8>, hand_over: HandOver, peer: &Arc<Peer>) -> Response {
    let (peer, hand_over) = (Arc::clone(peer), Some(hand_over));
    let json = Some(wiped(json));
    let mut response = Response::new(Body::new(Parcel { json, hand_over, peer }));
    response.headers_mut().insert(CONTENT_TYPE, answer::JSON);
    response
}
