//! Bodies on their way out, and the deliveries that are in them. Invariant: a delivery is the
//! connection's when the last of its bytes is, and the client's when that has left; what does not
//! get so far is given back, however far it got, and so is the room it takes. Where a connection
//! has several answers at a time, it is known of each what of it waits to be taken.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use bytes::{Buf, Bytes};
use http::header::CONTENT_TYPE;
use http_body::{Frame, SizeHint};
use mailbox_wire::payload::wiped;
use parking_lot::Mutex;

use super::answer;
use crate::admission::Guest;
use crate::calls::HandOver;
use crate::listen::{AnswerId, AtWork, Ending, Peer};

/// Deliveries that are in what a body gives next. Goes with a response, as an extension.
#[derive(Debug, Clone, Default)]
pub(crate) struct InBody(Arc<Mutex<Vec<HandOver>>>);

impl InBody {
    pub(crate) fn add(&self, hand_over: HandOver) {
        self.0.lock().push(hand_over);
    }

    fn take(&self) -> Vec<HandOver> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// The answer with what was received, or with messages that are looked at.
pub(crate) fn response(json: Vec<u8>, hand_over: HandOver) -> Response {
    let in_body = InBody::default();
    in_body.add(hand_over);
    let mut response = Response::new(Body::from(wiped(json)));
    response.headers_mut().insert(CONTENT_TYPE, answer::JSON);
    response.extensions_mut().insert(in_body);
    response
}

/// Goes with a response that goes on, as an extension: of several answers of a connection it makes
/// nothing before all that was made is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paced;

/// A body that knows what is in it. Deliveries are first: they go back before a stream ends.
#[derive(Debug)]
pub(crate) struct Outgoing {
    in_body: Option<InBody>,
    peer: Arc<Peer>,
    /// The place of one who has no capability.
    guest: Option<Arc<Guest>>,
    shared: Option<Shared>,
    body: Body,
}

/// What is known of an answer where a connection has several.
#[derive(Debug)]
struct Shared {
    answer: AnswerId,
    is_paced: bool,
    /// Ends the task that makes it, and with that it alone, as long as more of it may come.
    ending: Option<Ending>,
    /// The connection is not idle as long as more of it may come.
    _at_work: AtWork,
}

impl Outgoing {
    /// The body of a response, with the deliveries that its extension has.
    pub(crate) fn of(response: Response, peer: &Arc<Peer>) -> http::Response<Self> {
        Self::with(response, peer, None)
    }

    /// The same for one of several answers of a connection.
    pub(crate) fn shared(
        mut response: Response,
        peer: &Arc<Peer>,
        at_work: AtWork,
        ending: Option<Ending>,
    ) -> http::Response<Self> {
        let is_paced = response.extensions_mut().remove::<Paced>().is_some();
        let (answer, ending) = (peer.new_answer(), ending.filter(|_| is_paced));
        let shared = Shared { answer, is_paced, ending, _at_work: at_work };
        Self::with(response, peer, Some(shared))
    }

    fn with(response: Response, peer: &Arc<Peer>, shared: Option<Shared>) -> http::Response<Self> {
        let (mut head, body) = response.into_parts();
        let (in_body, guest) = (head.extensions.remove(), head.extensions.remove());
        let peer = Arc::clone(peer);
        http::Response::from_parts(head, Self { in_body, peer, guest, shared, body })
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // Others may have it too; but nothing more goes out.
        drop(self.in_body.as_ref().map(InBody::take));
    }
}

impl http_body::Body for Outgoing {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        if let Some(Shared { answer, is_paced: true, .. }) = &self.shared {
            ready!(self.peer.untaken.poll_taken(*answer, context));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map(|frame| {
            frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| self.piece(bytes))))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Outgoing {
    fn piece(&self, bytes: Bytes) -> Piece {
        let given = self.in_body.as_ref().map(InBody::take).unwrap_or_default();
        let answer = self.shared.as_ref().map(|shared| shared.answer);
        if let Some(shared) = self.shared.as_ref().filter(|_| !bytes.is_empty()) {
            self.peer.untaken.add(shared.answer, bytes.len(), shared.ending.as_ref());
        }
        let (peer, _guest) = (Arc::clone(&self.peer), self.guest.clone());
        let mut piece = Piece { bytes, given, peer, answer, _guest };
        piece.advance(0);
        piece
    }
}

/// A piece of a body. Whoever writes it says how much of it is written.
#[derive(Debug)]
pub(crate) struct Piece {
    bytes: Bytes,
    given: Vec<HandOver>,
    peer: Arc<Peer>,
    /// Where a connection has several.
    answer: Option<AnswerId>,
    /// As long as something of it is here.
    _guest: Option<Arc<Guest>>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(answer) = self.answer.filter(|_| count > 0) {
            self.peer.untaken.taken(answer, count);
        }
        if self.bytes.is_empty() {
            // From here on they are the connection's: it knows when they have left.
            self.given.drain(..).for_each(|hand_over| self.peer.on_its_way(hand_over));
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.filter(|_| !self.bytes.is_empty()) {
            self.peer.untaken.dropped(answer, self.bytes.len());
        }
    }
}
