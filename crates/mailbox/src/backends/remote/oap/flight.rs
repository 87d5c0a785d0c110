//! What is in flight on one connection: requests that are not written, not answered, or answered in
//! part. Invariant: whoever asked learns what is known, once: the answer, that the request never
//! went out, or that it is in doubt.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use mailbox_wire::oap::{APP_PROTO, Answers, Flags, Frame, HEADER_LEN, Header, MAX_PAYLOAD, Piece};
use mailbox_wire::proto::{Asked, write_request};
use tokio::sync::{mpsc, oneshot};

use super::super::calls::ANSWER;
use super::super::door::Failed;
use super::super::places::Place;
use super::answered::Answered;
use crate::error::{Error, ErrorKind};

/// Who is told.
pub(super) enum To {
    /// Whoever waits for the answer.
    One(oneshot::Sender<Result<Answered, Failed>>),
    /// A stream: each piece as it comes.
    Stream(mpsc::Sender<Streaming>),
    /// Nobody waits any more.
    Nobody,
}

/// A piece of a stream.
pub(super) enum Streaming {
    Begin,
    Part(Bytes),
    /// The last one; also what comes instead of a beginning.
    End(Answered),
}

/// A request that is not answered.
struct Slot {
    to: To,
    /// All of it went out.
    is_written: bool,
    /// What has come of an answer in parts; nothing if it is too much.
    parts: Option<BytesMut>,
    /// Its place. One that cancels another has the same, until both are answered: so there are
    /// never more of those either.
    place: Option<Place>,
}

/// Something for a stream.
pub(super) type Passed = (mpsc::Sender<Streaming>, Streaming);

/// What is in flight.
#[derive(Default)]
pub(super) struct Flight {
    last_id: u64,
    answers: Answers,
    slots: HashMap<u64, Slot>,
    /// What goes out next.
    out: Vec<u8>,
    /// Where in it requests end.
    ends: Vec<(usize, u64)>,
    /// How much room it takes, in the unit of whoever counts that.
    room: usize,
    /// Largest payload of a frame.
    most: usize,
    /// The hello is being answered: whoever is there speaks OAP/1.
    is_greeted: bool,
    /// Why there is no connection any more.
    over: Option<Error>,
    /// The service has said that it takes nothing more.
    has_been_left: bool,
}

/// The first request of a connection.
const HELLO: u64 = 1;

impl Flight {
    pub(super) fn new() -> Self {
        Self { most: MAX_PAYLOAD, ..Self::default() }
    }

    /// The service takes frames whose payload is this large.
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most.clamp(1, MAX_PAYLOAD);
    }

    /// How long a request is with the headers of its frames.
    pub(super) fn framed_len(&self, payload: usize) -> usize {
        payload.saturating_add(payload.div_ceil(self.most).max(1).saturating_mul(HEADER_LEN))
    }

    /// Puts a request in line. It takes so much room until it is taken to be written.
    pub(super) fn put(
        &mut self,
        payload: &[u8],
        room: usize,
        to: To,
        place: Option<Place>,
    ) -> Result<u64, Failed> {
        let id = self.begin(to, place)?;
        self.room += room;
        let mut rest = payload;
        while let Some((part, behind)) = rest.split_at_checked(self.most)
            && !behind.is_empty()
        {
            self.frame(Flags::EVENT, id, part);
            rest = behind;
        }
        self.frame(Flags::REQ, id, rest);
        self.ends.push((self.out.len(), id));
        Ok(id)
    }

    /// Puts the first frame in line.
    pub(super) fn put_hello(&mut self, hello: Frame, to: To) -> Result<u64, Failed> {
        let id = self.begin(to, None)?;
        let mut bytes = BytesMut::new();
        Frame { corr_id: id, ..hello }.encode(&mut bytes).map_err(|error| {
            let message = "the capability is too long";
            Failed::void(Error::new(ErrorKind::InvalidParameter, message).with_source(error))
        })?;
        self.out.extend_from_slice(&bytes);
        self.ends.push((self.out.len(), id));
        Ok(id)
    }

    /// Nobody waits for this any more: asks the service to answer it at once.
    pub(super) fn cancel(&mut self, id: u64) {
        let Some(place) = self.slots.get(&id).map(|slot| slot.place.clone()) else { return };
        let payload = write_request(Asked::Cancel(id));
        // If the connection is over, nothing has to be asked.
        let _ = self.put(&payload, 0, To::Nobody, place);
    }

    /// Nobody waits for this any more, nor is the service told. It is in flight all the same.
    /// Whether it was.
    pub(super) fn forget(&mut self, id: u64) -> bool {
        self.slots.get_mut(&id).map(|slot| (slot.to, slot.parts) = (To::Nobody, None)).is_some()
    }

    fn begin(&mut self, to: To, place: Option<Place>) -> Result<u64, Failed> {
        if let Some(failed) = self.over() {
            return Err(failed);
        }
        let id = self.last_id + 1;
        if !self.answers.asked(id) {
            let message = "too many requests are in flight on a connection";
            return Err(Failed::void(Error::new(ErrorKind::Internal, message)));
        }
        self.last_id = id;
        self.slots.insert(id, Slot { to, is_written: false, parts: None, place });
        Ok(id)
    }

    /// Adds a frame that is known to be small enough.
    fn frame(&mut self, flags: Flags, id: u64, payload: &[u8]) {
        let header = Header::new(flags, APP_PROTO, id).sized(0, payload.len());
        let header = header.expect("no part is larger than a frame");
        self.out.extend_from_slice(&header.to_bytes());
        self.out.extend_from_slice(payload);
    }

    /// Takes everything that is to go out, for what went out last. How much room is free again.
    pub(super) fn take_out(&mut self, bytes: &mut Vec<u8>, ends: &mut Vec<(usize, u64)>) -> usize {
        std::mem::swap(&mut self.out, bytes);
        std::mem::swap(&mut self.ends, ends);
        std::mem::take(&mut self.room)
    }

    /// These went out.
    pub(super) fn written(&mut self, ids: impl Iterator<Item = u64>) {
        for id in ids {
            // If it is answered already, it is not there any more.
            if let Some(slot) = self.slots.get_mut(&id) {
                slot.is_written = true;
            }
        }
    }

    /// Takes a frame of the service. What is for a stream is passed on by the caller, who can wait.
    pub(super) fn take(&mut self, frame: Frame) -> Result<Option<Passed>, Error> {
        let not_spoken = |error| {
            let message = "what answers there does not speak OAP/1 as it should";
            Error::new(ErrorKind::Internal, message).with_source(error)
        };
        let header = frame.header().map_err(|error| {
            Error::new(ErrorKind::Internal, "a frame is too large").with_source(error)
        })?;
        if frame.flags.contains(Flags::COMP) {
            // Only for those who compress.
            let message = "what answers there compresses what nobody asked it to";
            return Err(Error::new(ErrorKind::Internal, message));
        }
        let piece = self.answers.take(&header).map_err(not_spoken)?;
        let (code, id) = (frame.code, frame.corr_id);
        let answered = Answered { code, payload: frame.payload };
        self.is_greeted |= id == HELLO;
        match piece {
            // Whose request it was is not known: so it says nothing about any of them.
            Piece::Closing => Err(match answered.problem() {
                Some(Ok(problem)) => {
                    let failed = Failed::refused(problem);
                    let message = "the service has ended the connection";
                    match failed.is_void() {
                        // It has answered everything that it has looked at.
                        true => {
                            self.has_been_left = true;
                            failed.error
                        }
                        false => {
                            Error::new(ErrorKind::Connection, message).with_source(failed.error)
                        }
                    }
                }
                _ => Error::new(ErrorKind::Connection, "the service found fault with a request"),
            }),
            Piece::Begin => Ok(self.slots.get_mut(&id).and_then(Slot::begin)),
            Piece::Part => Ok(self.slots.get_mut(&id).and_then(|slot| slot.part(answered.payload))),
            Piece::Whole => Ok(self.slots.remove(&id).and_then(|slot| slot.end(Ok(answered)))),
            Piece::End => Ok(self.slots.remove(&id).and_then(|slot| slot.joined(answered))),
        }
    }

    /// The connection is over: everybody who waits learns it.
    pub(super) fn end(&mut self, error: Error) {
        // One answer that makes no sense says nothing about the requests of others, but that they
        // have no connection any more.
        let error = if self.is_greeted && error.kind() == ErrorKind::Internal {
            let message = "the service says something that makes no sense: the connection is over";
            Error::new(ErrorKind::Connection, message).with_source(error)
        } else {
            error
        };
        self.over.get_or_insert_with(|| error.clone());
        for (_, slot) in self.slots.drain() {
            let error = error.clone();
            // A stream sees that nobody sends to it any more.
            if let To::One(waiting) = slot.to {
                let has_begun = slot.parts.is_some();
                let is_looked_at = slot.is_written && (has_begun || !self.has_been_left);
                let failed = if is_looked_at { Failed::in_doubt(error) } else { unsent(error) };
                let _ = waiting.send(Err(failed));
            }
        }
        (self.out, self.ends) = (Vec::new(), Vec::new());
    }

    /// The same where nobody could say any more what went out: whatever is not in line may have.
    pub(super) fn cut(&mut self, error: Error) {
        for slot in self.slots.values_mut() {
            slot.is_written = true;
        }
        for (_, id) in &self.ends {
            if let Some(slot) = self.slots.get_mut(id) {
                slot.is_written = false;
            }
        }
        self.end(error);
    }

    /// What is known of a request for which there is no connection any more.
    pub(super) fn over(&self) -> Option<Failed> {
        self.over.clone().map(unsent)
    }

    /// The place of a request that is not answered.
    pub(super) fn place(&self, id: u64) -> Option<Place> {
        self.slots.get(&id).and_then(|slot| slot.place.clone())
    }
}

/// What is known of a request that did not go out.
fn unsent(error: Error) -> Failed {
    let message = "the connection to the service broke before the request went out";
    match error.kind() {
        ErrorKind::Connection => {
            Failed::void(Error::new(ErrorKind::Connection, message).with_source(error))
        }
        _ => Failed::void(error),
    }
}

impl Slot {
    fn begin(&mut self) -> Option<Passed> {
        match &self.to {
            To::One(_) => self.parts = Some(BytesMut::new()),
            To::Stream(stream) => return Some((stream.clone(), Streaming::Begin)),
            To::Nobody => {}
        }
        None
    }

    fn part(&mut self, payload: Bytes) -> Option<Passed> {
        if let To::Stream(stream) = &self.to {
            return Some((stream.clone(), Streaming::Part(payload)));
        }
        match &mut self.parts {
            Some(parts) if parts.len() + payload.len() <= ANSWER => {
                parts.extend_from_slice(&payload);
            }
            parts => *parts = None,
        }
        None
    }

    /// The end of an answer in parts.
    fn joined(mut self, answered: Answered) -> Option<Passed> {
        if answered.problem().is_some() || matches!(self.to, To::Stream(_)) {
            return self.end(Ok(answered));
        }
        let whole = self.parts.take().map(BytesMut::freeze).ok_or_else(|| {
            let message = format!("the answer is larger than {ANSWER} bytes: ask for fewer");
            // Which messages were in it is not known then: their deadline brings them back.
            Failed::unusable(Error::new(ErrorKind::TooLarge, message))
        });
        self.end(whole.map(|payload| Answered { code: answered.code, payload }))
    }

    fn end(self, answered: Result<Answered, Failed>) -> Option<Passed> {
        // First: whoever has the answer may ask again before this is over.
        drop(self.place);
        match self.to {
            // Whoever is gone needs no answer.
            To::One(waiting) => drop(waiting.send(answered)),
            To::Stream(stream) => {
                return answered.ok().map(|answered| (stream, Streaming::End(answered)));
            }
            To::Nobody => {}
        }
        None
    }
}
