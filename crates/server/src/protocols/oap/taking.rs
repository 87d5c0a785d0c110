//! What a client says on a connection: frames are taken as they come, and become work.

use std::sync::Arc;
use std::task::Context;

use bytes::{Bytes, BytesMut};
use mailbox::ErrorKind;
use mailbox_wire::call::Asked;
use mailbox_wire::oap::{
    APP_HELLO, Fault, Flags, Frame, Header, MAX_INFLATED, Malformed, Step, inflate, inflates_to,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Cancel, Connection, Parts};
use super::input::Next as Incoming;
use super::output::To;
use super::question::{Tongue, hello};
use super::session::{Known, Session};
use super::work::One;
use crate::admission::{Room, full};
use crate::failure::{Answer, Failure};
use crate::service::Service;

/// Why something was refused that is compressed too well.
const RATIO_CAP: &str = "ratio_cap";
/// The op of what could not be read.
const UNKNOWN: &str = "unknown";
/// Requests of a connection that take no more than this together need no room.
const SMALL: usize = 64 * 1024;
/// So many bytes cost as much of a turn as a small frame.
pub(super) const COSTS_A_TURN: usize = 4096;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Takes what has come; whether that was something.
    pub(super) fn take_frames(&mut self, context: &mut Context<'_>) -> bool {
        let mut has_moved = false;
        self.session.forget();
        while !self.is_closing && self.output.len() < self.high() && self.turn > 0 {
            match self.input.next(self.session.is_known()) {
                Ok(Incoming::Frame(frame, room)) => {
                    self.has_heard = true;
                    self.take(frame, room, context);
                }
                Ok(Incoming::Large(header, capability)) => self.make_room(&header, capability),
                Ok(Incoming::More) => {
                    if self.is_at_end {
                        self.nothing_more();
                    }
                    break;
                }
                Err(malformed) => {
                    self.service.metrics.frames().malformed.inc();
                    self.refuse(malformed, &Header::default());
                }
            }
            self.turn = self.turn.saturating_sub(1);
            has_moved = true;
        }
        // Whatever may come next, nobody waits for it.
        self.end_run(context);
        has_moved
    }

    /// Says what is wrong with a frame; if nothing behind it can be trusted, that was all.
    fn refuse(&mut self, malformed: Malformed, frame: &Header) {
        let kind = match malformed.code() {
            413 => ErrorKind::TooLarge,
            _ => ErrorKind::InvalidParameter,
        };
        let failure = Failure::new(kind, malformed.to_string());
        let corr_id = self.requests.named(malformed.corr_id());
        self.service.metrics.refused(kind);
        let to = To(Header { corr_id, ..*frame });
        self.output.failure(to, &failure, &self.session.corr_id(corr_id));
        if malformed.closes() {
            self.close();
        }
    }

    pub(super) fn fail(&mut self, to: To, op: &'static str, failure: &Failure) {
        match failure.reason {
            Some(RATIO_CAP) => self.service.metrics.ratio_capped(),
            _ => self.service.metrics.failed(op, failure.error.kind()),
        }
        self.output.failure(to, failure, &self.session.corr_id(to.corr_id()));
    }

    /// A large frame is coming: is there room for it?
    fn make_room(&mut self, header: &Header, capability: Vec<u8>) {
        let started = Bytes::from(capability);
        let mut new = Session::new();
        let taken = (|| {
            if header.app == APP_HELLO && !header.flags.contains(Flags::START) {
                let kind = ErrorKind::InvalidParameter;
                return Err(Failure::new(kind, "a hello is not that large"));
            }
            let session = match header.flags.contains(Flags::START) {
                true => {
                    new.start(started.clone());
                    &mut new
                }
                false => &mut self.session,
            };
            let known = session.know(&self.service, &self.peer, header)?;
            self.service.check_size(header.len as usize)?;
            room_for(&self.service, known, header.len as usize)
        })();
        // Whoever is known is about to be heard, or answered.
        self.has_heard |= new.is_known() || self.session.is_known();
        match taken {
            Ok(room) => self.input.keep(room),
            Err(failure) => {
                self.input.skip(header);
                self.count(header);
                if header.flags.contains(Flags::START) {
                    self.session.start(started);
                }
                // Its place among the others counts all the same.
                match self.requests.take(header) {
                    Ok(Step::Part { .. }) => {
                        let parts = self.parts_of(header.corr_id);
                        parts.note(header.len as usize);
                        return refuse_parts(parts, failure);
                    }
                    Ok(Step::Request { .. }) => self.requests.done(header.corr_id),
                    Ok(_) => {}
                    Err(malformed) => return self.refuse(malformed, header),
                }
                // What came of it before goes with it.
                self.parts.take_if(|parts| parts.corr_id == header.corr_id);
                self.fail(To(*header), UNKNOWN, &failure);
            }
        }
    }

    /// Counts a frame whose header made sense.
    fn count(&self, header: &Header) {
        let frames = self.service.metrics.frames();
        let counter = match header.app {
            APP_HELLO => &frames.hello,
            _ if header.flags.contains(Flags::EVENT) => &frames.event,
            _ => &frames.request,
        };
        counter.inc();
    }

    fn take(&mut self, frame: Frame, room: Room, context: &mut Context<'_>) {
        let Ok(header) = frame.header() else { return };
        self.count(&header);
        let step = match self.requests.take(&header) {
            Ok(step) => step,
            Err(malformed) => return self.refuse(malformed, &header),
        };
        self.turn = self.turn.saturating_sub(frame.payload.len() / COSTS_A_TURN);
        let is_first = match step {
            Step::Hello { is_first, .. }
            | Step::Request { is_first, .. }
            | Step::TooMany { is_first, .. } => is_first,
            Step::Part { .. } => false,
        };
        if is_first {
            self.session.start(frame.cap.clone());
        }
        let to = To(header);
        match step {
            Step::Hello { .. } => {
                // What a stranger has compressed is not looked into.
                match hello(&frame.payload) {
                    Ok(()) => self.output.hello(to, self.is_tls),
                    Err(error) => self.fail(to, UNKNOWN, &error.into()),
                }
            }
            Step::Part { is_kept } => {
                let parts = self.parts_of(header.corr_id);
                parts.note(frame.payload.len());
                if is_kept {
                    self.take_part(to, &frame);
                } else {
                    refuse_parts(parts, too_many());
                }
            }
            Step::Request { .. } => self.take_request(to, frame, room, false, context),
            Step::TooMany { .. } => self.take_request(to, frame, room, true, context),
        }
    }

    fn take_part(&mut self, to: To, frame: &Frame) {
        let corr_id = to.corr_id();
        if self.parts_of(corr_id).refused.is_some() {
            return;
        }
        let known = self.session.know(&self.service, &self.peer, &to.0).cloned();
        let kept = known.and_then(|known| {
            let payload = self.plain(frame, &known)?.0;
            self.add_part(corr_id, &known, &payload)
        });
        if let Err(failure) = kept {
            refuse_parts(self.parts_of(corr_id), failure);
        }
    }

    /// Adds to what has come of a request.
    fn add_part(&mut self, corr_id: u64, known: &Known, payload: &[u8]) -> Answer<()> {
        let service = Arc::clone(&self.service);
        let parts = self.parts_of(corr_id);
        let len = parts.bytes.len() + payload.len();
        service.check_size(len)?;
        let budget = &service.admission.incoming;
        if !parts.room.grow(budget, known.token_id(), len as u64) {
            return Err(full("too many requests are coming in").into());
        }
        parts.bytes.extend_from_slice(payload);
        Ok(())
    }

    fn take_request(
        &mut self,
        to: To,
        frame: Frame,
        room: Room,
        is_too_many: bool,
        context: &mut Context<'_>,
    ) {
        let (one, question) = match self.asked(to, &frame, room) {
            Ok(asked) => asked,
            Err(failure) => {
                self.requests.done(to.corr_id());
                return self.fail(to, UNKNOWN, &failure);
            }
        };
        drop(frame);
        match question {
            Asked::Cancel(corr_id) => {
                self.small -= one.own;
                // What came before it is done before it.
                self.end_run(context);
                // Others have a use for its place while it waits.
                if !is_too_many {
                    self.requests.done(to.corr_id());
                }
                let cancel = Cancel { corr_id, to, tongue: one.tongue };
                self.cancel(cancel, context);
            }
            Asked::Call(request) if is_too_many => {
                self.small -= one.own;
                self.fail(to, request.op().as_str(), &too_many());
            }
            Asked::Call(request) => {
                let one = One { op: request.op().as_str(), ..one };
                self.begin(one, request, context);
            }
        }
    }

    /// The payload of a frame, and the room it takes if it had to be inflated. That counts as much
    /// for the turn whatever comes of it: others wait just as long.
    fn plain(&mut self, frame: &Frame, known: &Known) -> Answer<(Bytes, Room)> {
        if !frame.flags.contains(Flags::COMP) {
            return Ok((frame.payload.clone(), Room::default()));
        }
        let most = inflates_to(&frame.payload, MAX_INFLATED);
        let mut room = room_for(&self.service, known, most)?;
        self.turn = self.turn.saturating_sub(most / COSTS_A_TURN);
        let payload = inflate(&frame.payload, MAX_INFLATED).map_err(|malformed| {
            let kind = match malformed.code() {
                413 => ErrorKind::TooLarge,
                _ => ErrorKind::InvalidParameter,
            };
            let reason = matches!(malformed.fault, Fault::Ratio(_)).then_some(RATIO_CAP);
            // Nobody who means well does that: it counts as a settlement that failed.
            known.missed();
            Failure { reason, ..Failure::new(kind, malformed.to_string()) }
        })?;
        room.shrink(payload.len() as u64);
        Ok((payload, room))
    }

    /// The request that comes in parts; a new one, if it is not this.
    fn parts_of(&mut self, corr_id: u64) -> &mut Parts {
        if self.parts.as_ref().is_some_and(|parts| parts.corr_id != corr_id) {
            self.parts = None;
        }
        self.parts.get_or_insert_with(|| Parts::new(corr_id))
    }

    /// What is asked. Who asks is known then.
    fn asked(&mut self, to: To, frame: &Frame, room: Room) -> Answer<(One, Asked)> {
        let corr_id = to.corr_id();
        let mut parts = self.parts.take_if(|parts| parts.corr_id == corr_id);
        if let Some(failure) = parts.as_mut().and_then(|parts| parts.refused.take()) {
            return Err(failure);
        }
        let known = self.session.know(&self.service, &self.peer, &to.0)?;
        let by_whom = parts.is_some().then(|| known.clone());
        let tongue = Tongue::of(to.0.app)?;
        let mut room = room;
        let mut payload = frame.payload.clone();
        let mut own = 0;
        if room.bytes() == 0 && self.small + payload.len() <= SMALL {
            own = payload.len();
        } else if room.bytes() == 0 {
            // It was kept before it was known whose it is.
            room = room_for(&self.service, known, payload.len())?;
        }
        if frame.flags.contains(Flags::COMP) {
            let known = known.clone();
            (payload, room) = self.plain(frame, &known)?;
        }
        if let Some((parts, known)) = parts.zip(by_whom) {
            self.parts = Some(parts);
            let added = self.add_part(corr_id, &known, &payload);
            let parts = self.parts.take();
            added?;
            if let Some(parts) = parts {
                (payload, room) = (parts.bytes.freeze(), parts.room);
            }
        }
        let len = payload.len();
        self.service.check_size(len)?;
        let question = tongue.read(payload, self.service.settings().max_messages)?;
        self.small += own;
        Ok((One { to, tongue, op: UNKNOWN, room, own, len }, question))
    }
}

fn room_for(service: &Service, known: &Known, bytes: usize) -> Answer<Room> {
    let mut room = Room::default();
    if !room.grow(&service.admission.incoming, known.token_id(), bytes as u64) {
        return Err(full("too many requests are coming in").into());
    }
    Ok(room)
}

/// Nothing of it is kept, and it is refused when all of it has come: others may come between.
fn refuse_parts(parts: &mut Parts, failure: Failure) {
    (parts.bytes, parts.room) = (BytesMut::new(), Room::default());
    parts.refused.get_or_insert(failure);
}

fn too_many() -> Failure {
    full("too many requests of this connection are in flight").into()
}
