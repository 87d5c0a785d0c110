//! What is heard on a connection, as far as it is.

use bytes::BytesMut;
use mailbox_wire::call::Reply;
use mailbox_wire::json::Envelope;
use mailbox_wire::oap::{Flags, Frame, HEADER_LEN, Header};
use mailbox_wire::proto::{Streamed, read_streamed};

use super::plan::Inside;
use crate::rig::{Line, proto_reply};

/// Hears, and remembers.
#[derive(Default)]
pub(super) struct Ear {
    frames: Vec<Frame>,
    /// A frame that is not complete.
    begun: BytesMut,
    /// So many bytes.
    pub(super) bytes: usize,
}

impl Ear {
    /// How many frames were heard.
    pub(super) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Hears one frame, or the rest of the one that has begun; false at the end.
    pub(super) async fn frame(&mut self, line: &mut Line) -> bool {
        let mut begun = std::mem::take(&mut self.begun);
        self.bytes -= begun.len();
        begun.extend_from_slice(&line.hear(HEADER_LEN.saturating_sub(begun.len())).await);
        let Some(frame) = line.rest_of_frame(&begun).await else { return false };
        self.bytes += frame.header().unwrap().len as usize;
        self.frames.push(frame);
        true
    }

    /// Begins to hear one.
    pub(super) async fn some(&mut self, line: &mut Line, inside: Inside) {
        let head = match inside {
            Inside::Start => return,
            Inside::Header(count) => count,
            _ => HEADER_LEN,
        };
        self.begun.extend_from_slice(&line.hear(head).await);
        assert_eq!(self.begun.len(), head, "only the client cuts");
        if !matches!(inside, Inside::Header(_)) {
            let header = Header::read(&self.begun).unwrap().unwrap();
            let offset = inside.offset(0, header.len as usize).max(HEADER_LEN);
            self.begun.extend_from_slice(&line.hear(offset - HEADER_LEN).await);
            assert_eq!(self.begun.len(), offset, "only the client cuts");
        }
        self.bytes += self.begun.len();
    }

    /// The answer to this request, put together if it came in parts; none if not all of it came.
    pub(super) fn answer(&self, corr_id: u64) -> Option<Frame> {
        let own: Vec<&Frame> = self.frames.iter().filter(|it| it.corr_id == corr_id).collect();
        let first = own.first()?;
        if !first.flags.contains(Flags::START) {
            assert_eq!(own.len(), 1, "one answer");
            return Some((*first).clone());
        }
        let last = own.last().filter(|frame| frame.flags.contains(Flags::END))?;
        let parts = own[1..own.len() - 1].iter().flat_map(|part| part.payload.iter().copied());
        let payload = parts.collect::<Vec<u8>>().into();
        Some(Frame { code: last.code, payload, ..(*first).clone() })
    }

    /// The messages of this receive, if its answer was heard.
    pub(super) fn received(&self, corr_id: u64) -> Option<Vec<Envelope>> {
        match proto_reply(&self.answer(corr_id)?) {
            Ok(Reply::Received(received)) => Some(received.messages),
            other => panic!("{other:?}"),
        }
    }

    /// The messages of this stream that were heard.
    pub(super) fn streamed(&self, corr_id: u64) -> Vec<Envelope> {
        let is_part = |it: &&Frame| it.corr_id == corr_id && it.flags.contains(Flags::EVENT);
        let mut buffer = BytesMut::new();
        let parts = self.frames.iter().filter(is_part);
        parts.for_each(|part| buffer.extend_from_slice(&part.payload));
        let mut messages = Vec::new();
        while let Some(next) = read_streamed(&mut buffer, 1 << 22).unwrap() {
            if let Streamed::Envelope(envelope) = next {
                messages.push(*envelope);
            }
        }
        messages
    }
}
