//! What goes out on a connection: answers, whole or in parts, one behind the other. Invariants:
//! what is out is wiped, and not kept until all is; deliveries are the client's as soon as the
//! bytes they are in have left, and go back if they do not.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use mailbox_wire::oap::{Begun, Flags, Header, HelloAnswer, MAX_PAYLOAD, spread};
use tokio::io::AsyncWrite;

use crate::calls::{HandOver, Stream};
use crate::failure::Failure;

/// A buffer that has become larger than this is not kept.
const KEPT: usize = 256 * 1024;
/// The same while nothing is asked.
const IDLE: usize = 8 * 1024;

/// Whom an answer is for: the header of what was asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct To(pub(super) Header);

impl To {
    /// Nobody in particular.
    pub(super) fn nobody() -> Self {
        Self(Header::default())
    }

    pub(super) const fn corr_id(&self) -> u64 {
        self.0.corr_id
    }
}

/// So much that is out is kept in the buffer, because to move the rest costs something too.
const SLACK: usize = 64 * 1024;
/// So much may be in the hands of TLS when it says that it was written.
const IN_TLS: u64 = 128 * 1024;

/// What waits for bytes to leave, or not to.
enum Handed {
    /// Deliveries that are in them.
    Deliveries(HandOver),
    /// The stream that they end. What it has in front of them was not delivered before it left, so
    /// it is not for the stream to give that back.
    Stream(Box<Stream>),
}

/// Bytes that are to be written.
#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// So many of them are out.
    out: usize,
    /// So many were written in all, since the connection began.
    written: u64,
    /// Something was written, and may not have left.
    is_unflushed: bool,
    /// What has to do with bytes, by where those end.
    handed: VecDeque<(u64, Handed)>,
    /// Answers that were put in since somebody asked, and parts of them.
    answers: u64,
    parts: u64,
}

impl Output {
    /// How much is to be written.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.out
    }

    /// How many answers and parts of answers were put in since this was asked last.
    pub(super) fn counted(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.answers), std::mem::take(&mut self.parts))
    }

    /// An answer that says what was asked for; in parts if it is too large for one frame. How large
    /// it is before it is compressed.
    pub(super) fn reply(&mut self, to: To, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        self.whole(to, 200, write)
    }

    /// An answer that says why not.
    pub(super) fn failure(&mut self, to: To, failure: &Failure, corr_id: &str) {
        let (code, problem) = said(failure, corr_id);
        self.whole(to, code, |out| out.extend_from_slice(&problem));
    }

    pub(super) fn hello(&mut self, to: To, is_tls: bool) {
        let answer = HelloAnswer::new(if is_tls { "tcp+tls" } else { "tcp" });
        let json = serde_json::to_vec(&answer).expect("text and numbers can be written");
        self.whole(to, 200, |out| out.extend_from_slice(&json));
    }

    fn whole(&mut self, to: To, code: u16, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        self.answers += 1;
        let mut begun = Begun::new(&mut self.bytes, to.0.answer(Flags::RESP, code));
        write(begun.buffer());
        let len = begun.payload().len();
        if to.0.flags.contains(Flags::COMP) && begun.payload().len() <= MAX_PAYLOAD {
            begun.compress();
        }
        if begun.payload().len() <= MAX_PAYLOAD {
            // It was just measured.
            let _ = begun.finish();
            return len;
        }
        // Its end is an answer as well.
        self.answers += 1;
        self.parts += begun.finish_in_parts() as u64;
        len
    }

    /// An answer in parts begins.
    pub(super) fn begin(&mut self, to: To) {
        self.frame(to.0.answer(Flags::RESP | Flags::START, 200), &[]);
    }

    /// More of an answer, in as many parts as it takes. How large it is.
    pub(super) fn part(&mut self, to: To, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let len = self.bytes.len() - start;
        self.parts += spread(&mut self.bytes, start, to.0.answer(Flags::EVENT, 0)) as u64;
        len
    }

    /// No more of it comes; because of a failure, or because that is all.
    pub(super) fn end(&mut self, to: To, why: Option<(&Failure, &str)>) {
        let (code, problem) =
            why.map_or((200, Vec::new()), |(failure, corr_id)| said(failure, corr_id));
        self.frame(to.0.answer(Flags::RESP | Flags::END, code), &problem);
    }

    fn frame(&mut self, header: Header, payload: &[u8]) {
        self.answers += 1;
        let mut begun = Begun::new(&mut self.bytes, header);
        begun.buffer().extend_from_slice(payload);
        // Nothing at all is never too large, and a problem neither.
        let _ = begun.finish();
    }

    /// What was put in last has these deliveries in it.
    pub(super) fn hand_over(&mut self, hand_over: HandOver) {
        self.hand(Handed::Deliveries(hand_over));
    }

    /// What was put in last is the end of this stream. What its client has not settled is given
    /// back when that has left, or does not leave any more.
    pub(super) fn ended(&mut self, stream: Box<Stream>) {
        self.hand(Handed::Stream(stream));
    }

    fn hand(&mut self, handed: Handed) {
        self.handed.push_back((self.written + self.len() as u64, handed));
    }

    /// Nothing more gets out: what has not is given back.
    pub(super) fn gone(&mut self) {
        // From the front: deliveries before the stream that they are of.
        self.handed.clear();
    }

    /// Whether all of it has left.
    pub(super) fn is_out(&self) -> bool {
        self.len() == 0 && !self.is_unflushed
    }

    /// Writes until nothing is left, and has left.
    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        is_tls: bool,
    ) -> Poll<io::Result<()>> {
        while self.out < self.bytes.len() {
            let rest = &self.bytes[self.out..];
            match Pin::new(&mut *stream).poll_write(context, rest)? {
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(count) => {
                    self.is_unflushed = true;
                    self.out += count;
                    self.written += count as u64;
                }
                Poll::Pending => {
                    // To flush here would look as if all had been taken.
                    self.arrived(if is_tls { IN_TLS } else { 0 });
                    self.forget_some();
                    return Poll::Pending;
                }
            }
        }
        self.clear();
        if self.is_unflushed {
            ready!(Pin::new(&mut *stream).poll_flush(context))?;
            self.is_unflushed = false;
            self.arrived(0);
        }
        Poll::Ready(Ok(()))
    }

    /// All that was written has left, but for so many bytes.
    fn arrived(&mut self, but: u64) {
        let left = self.written.saturating_sub(but);
        while self.handed.front().is_some_and(|(end, _)| *end <= left) {
            match self.handed.pop_front() {
                Some((_, Handed::Deliveries(hand_over))) => hand_over.done(),
                Some((_, Handed::Stream(stream))) => drop(stream),
                None => {}
            }
        }
    }

    /// Makes room: the client may never take all at once.
    fn forget_some(&mut self) {
        // No more is moved than is out, or a large answer would be moved over and over.
        let rest = self.len();
        if self.out >= SLACK.max(rest) {
            self.bytes.copy_within(self.out.., 0);
            // What is cut off would stay in the buffer, unseen.
            self.bytes[rest..].fill(0);
            self.bytes.truncate(rest);
            self.out = 0;
            if self.bytes.capacity() > KEPT.max(2 * rest) {
                self.bytes.shrink_to(rest);
            }
        }
    }

    fn clear(&mut self) {
        self.bytes.fill(0);
        std::hint::black_box(&mut self.bytes);
        self.bytes.clear();
        self.out = 0;
        if self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        }
    }

    /// Gives back what is not needed while nothing is to be written.
    pub(super) fn rest(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > IDLE {
            self.bytes = Vec::new();
        }
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.clear();
    }
}

fn said(failure: &Failure, corr_id: &str) -> (u16, Vec<u8>) {
    let json = serde_json::to_vec(&failure.problem(corr_id));
    (failure.error.kind().status().http, json.unwrap_or_default())
}
