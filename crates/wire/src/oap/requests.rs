//! Which frames of a client may follow which, as a service sees them. Invariant: at most so many
//! requests are in flight, and no two of them have the same `corr_id`.

use super::malformed::{Fault, Malformed};
use super::{APP_HELLO, Flags, Header, MAX_INFLIGHT};

/// What a frame from a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A client introduces itself. It is answered at once and does not count.
    Hello {
        /// The session begins; there may be a capability.
        is_first: bool,
        /// No request follows.
        is_last: bool,
    },
    /// A part of a request that is not complete.
    Part {
        /// The request has a place: its parts are to be kept. Otherwise it will be
        /// [`Step::TooMany`] in the end, and its parts are to be dropped.
        is_kept: bool,
    },
    /// A request, or its last part. It is in flight until [`Requests::done`].
    Request {
        /// The session begins; there may be a capability.
        is_first: bool,
        /// No request follows.
        is_last: bool,
    },
    /// A request for which there is no place. It is not in flight; it is to be refused unless it
    /// only cancels another.
    TooMany {
        /// The session begins; there may be a capability.
        is_first: bool,
        /// No request follows.
        is_last: bool,
    },
}

/// The requests of one connection, as the service sees them.
#[derive(Debug, Default)]
pub struct Requests {
    has_started: bool,
    has_ended: bool,
    /// Few enough to look through them. The one in parts is among them if it has a place.
    in_flight: Vec<u64>,
    parts: Option<Parts>,
}

/// A request that is not complete.
#[derive(Debug, Clone, Copy)]
struct Parts {
    corr_id: u64,
    app: u16,
    has_place: bool,
}

impl Requests {
    /// What the next frame is.
    ///
    /// # Errors
    /// It must not come here: answer that, and close the connection.
    pub fn take(&mut self, header: &Header) -> Result<Step, Malformed> {
        let step = self.check(header).and_then(|()| {
            if header.flags.contains(Flags::EVENT) {
                self.take_part(header)
            } else {
                self.take_request(header)
            }
        });
        step.map_err(|fault| Malformed::new(fault, self.named(header.corr_id)))
    }

    /// Under which `corr_id` to say that a frame with this one makes no sense: not under one that
    /// a request has that will be answered.
    #[must_use]
    pub fn named(&self, corr_id: u64) -> u64 {
        let is_answered = self.in_flight.contains(&corr_id) && !self.is_in_parts(corr_id);
        if is_answered { 0 } else { corr_id }
    }

    /// The request with this `corr_id` is answered. One that is not complete stays in flight.
    pub fn done(&mut self, corr_id: u64) {
        if !self.is_in_parts(corr_id) {
            self.in_flight.retain(|other| *other != corr_id);
        }
    }

    /// Requests that are not answered; one that is in parts is among them.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether the last request has come.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What holds for every frame from a client.
    fn check(&self, header: &Header) -> Result<(), Fault> {
        let has = |flag| header.flags.contains(flag);
        if self.has_ended {
            return Err(Fault::AfterEnd);
        }
        if has(Flags::RESP) {
            return Err(Fault::AnswerFromClient);
        }
        if has(Flags::REQ) == has(Flags::EVENT) {
            return Err(Fault::Kind);
        }
        if self.in_flight.contains(&header.corr_id) && !self.is_in_parts(header.corr_id) {
            return Err(Fault::CorrIdInUse);
        }
        Ok(())
    }

    fn is_in_parts(&self, corr_id: u64) -> bool {
        self.parts.is_some_and(|parts| parts.corr_id == corr_id)
    }

    fn take_part(&mut self, header: &Header) -> Result<Step, Fault> {
        let has = |flag| header.flags.contains(flag);
        if has(Flags::START) || has(Flags::END) || header.app == APP_HELLO {
            return Err(Fault::PartFlags);
        }
        let parts = match self.parts {
            Some(parts) if parts.corr_id != header.corr_id => return Err(Fault::SecondInParts),
            Some(parts) if parts.app != header.app => return Err(Fault::PartApp),
            Some(parts) => parts,
            None => {
                let has_place = self.find_place(header.corr_id);
                Parts { corr_id: header.corr_id, app: header.app, has_place }
            }
        };
        self.parts = Some(parts);
        Ok(Step::Part { is_kept: parts.has_place })
    }

    fn take_request(&mut self, header: &Header) -> Result<Step, Fault> {
        let is_first = header.flags.contains(Flags::START);
        let is_last = header.flags.contains(Flags::END);
        if is_first && self.has_started {
            return Err(Fault::SecondStart);
        }
        if is_last && !(is_first || self.has_started) {
            return Err(Fault::EndWithoutStart);
        }
        let parts = self.parts.filter(|parts| parts.corr_id == header.corr_id);
        if parts.is_some_and(|parts| parts.app != header.app) {
            return Err(Fault::PartApp);
        }
        if is_last && parts.is_none() && self.parts.is_some() {
            return Err(Fault::EndWithinParts);
        }
        self.has_started |= is_first;
        self.has_ended = is_last;
        if header.app == APP_HELLO {
            return Ok(Step::Hello { is_first, is_last });
        }
        let has_place = match parts {
            Some(parts) => parts.has_place,
            None => self.find_place(header.corr_id),
        };
        if parts.is_some() {
            self.parts = None;
        }
        Ok(if has_place {
            Step::Request { is_first, is_last }
        } else {
            Step::TooMany { is_first, is_last }
        })
    }

    fn find_place(&mut self, corr_id: u64) -> bool {
        let is_free = self.in_flight.len() < MAX_INFLIGHT;
        if is_free {
            self.in_flight.push(corr_id);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oap::{APP_JSON, APP_PROTO};

    const REQ: Flags = Flags::REQ;
    const START: Flags = Flags::START;
    const END: Flags = Flags::END;
    const EVENT: Flags = Flags::EVENT;

    fn take(requests: &mut Requests, flags: Flags, corr_id: u64) -> Result<Step, Fault> {
        take_app(requests, flags, APP_JSON, corr_id)
    }

    fn take_app(them: &mut Requests, flags: Flags, app: u16, id: u64) -> Result<Step, Fault> {
        let taken = them.take(&Header::new(flags, app, id));
        taken.map_err(|malformed| {
            let id = if malformed.fault == Fault::CorrIdInUse { 0 } else { id };
            assert_eq!((malformed.code(), malformed.corr_id()), (400, id));
            assert!(malformed.closes());
            malformed.fault
        })
    }

    const fn request(is_first: bool, is_last: bool) -> Result<Step, Fault> {
        Ok(Step::Request { is_first, is_last })
    }

    const PART: Result<Step, Fault> = Ok(Step::Part { is_kept: true });

    #[test]
    fn a_session_begins_once_and_ends_once() {
        let mut requests = Requests::default();
        let them = &mut requests;
        assert_eq!(take(them, REQ, 1), request(false, false));
        assert_eq!(take(them, REQ | END, 2), Err(Fault::EndWithoutStart));
        let hello = Ok(Step::Hello { is_first: true, is_last: false });
        assert_eq!(take_app(them, REQ | START, APP_HELLO, 2), hello);
        assert_eq!(take(them, REQ | START, 3), Err(Fault::SecondStart));
        assert_eq!(take(them, REQ | END, 3), request(false, true));
        assert!(them.has_ended());
        for flags in [REQ, REQ | START, REQ | END, EVENT, Flags::RESP] {
            assert_eq!(take(them, flags, 9), Err(Fault::AfterEnd));
        }
        assert_eq!(take(&mut Requests::default(), REQ | START | END, 1), request(true, true));
    }

    #[test]
    fn a_client_can_only_ask() {
        let them = &mut Requests::default();
        for flags in [Flags::RESP, Flags::RESP | REQ, Flags::RESP | EVENT] {
            assert_eq!(take(them, flags, 1), Err(Fault::AnswerFromClient));
        }
        for flags in [Flags::default(), REQ | EVENT, START, Flags::COMP] {
            assert_eq!(take(them, flags, 1), Err(Fault::Kind));
        }
        let beside = REQ | Flags::ACK_REQ | Flags::APP_E2E | Flags::COMP;
        assert_eq!(take(them, beside, 1), request(false, false));
    }

    #[test]
    fn a_corr_id_is_free_again_once_it_is_answered() {
        let them = &mut Requests::default();
        assert_eq!(take(them, REQ, 7), request(false, false));
        assert_eq!(take(them, REQ, 7), Err(Fault::CorrIdInUse));
        assert_eq!(take(them, EVENT, 7), Err(Fault::CorrIdInUse));
        assert_eq!(take_app(them, REQ, APP_HELLO, 7), Err(Fault::CorrIdInUse));
        assert_eq!((them.named(7), them.named(8)), (0, 8), "7 will be answered");
        for flags in [Flags::RESP, Flags::COMP] {
            assert_eq!(them.take(&Header::new(flags, APP_JSON, 7)).unwrap_err().corr_id(), 0);
        }
        them.done(7);
        assert_eq!(take(them, EVENT, 7), PART);
        them.done(7);
        assert_eq!(them.in_flight(), 1, "it is not complete");
        assert_eq!(take(them, REQ, 7), request(false, false));
        them.done(7);
        assert_eq!(them.in_flight(), 0);
    }

    #[test]
    fn one_request_at_a_time_comes_in_parts() {
        let them = &mut Requests::default();
        assert_eq!(take(them, EVENT, 1), PART);
        assert_eq!(take(them, REQ, 2), request(false, false), "others may come between");
        assert_eq!(take(them, EVENT, 3), Err(Fault::SecondInParts));
        assert_eq!(take_app(them, EVENT, APP_PROTO, 1), Err(Fault::PartApp));
        assert_eq!(take_app(them, REQ, APP_PROTO, 1), Err(Fault::PartApp));
        assert_eq!(take_app(them, REQ, APP_HELLO, 1), Err(Fault::PartApp));
        for flags in [EVENT | START, EVENT | END] {
            assert_eq!(take(them, flags, 1), Err(Fault::PartFlags));
        }
        assert_eq!(take_app(them, EVENT, APP_HELLO, 1), Err(Fault::PartFlags));
        assert_eq!(take(them, REQ | START | END, 4), Err(Fault::EndWithinParts));
        assert_eq!(take(them, EVENT, 1), PART);
        assert_eq!(them.in_flight(), 2);
        assert_eq!(take(them, REQ | START | END, 1), request(true, true));
        assert_eq!(them.in_flight(), 2);
    }

    #[test]
    fn too_many_are_refused_without_being_remembered() {
        let them = &mut Requests::default();
        for corr_id in 0..MAX_INFLIGHT as u64 {
            assert_eq!(take(them, REQ, corr_id), request(false, false));
        }
        let too_many = |is_first| Ok(Step::TooMany { is_first, is_last: false });
        assert_eq!(take(them, REQ, 1000), too_many(false));
        assert_eq!(take(them, REQ | START, 1000), too_many(true));
        let hello = Ok(Step::Hello { is_first: false, is_last: false });
        assert_eq!(take_app(them, REQ, APP_HELLO, 1000), hello);
        // One that comes in parts has a place when it begins, or none.
        assert_eq!(take(them, EVENT, 1000), Ok(Step::Part { is_kept: false }));
        them.done(5);
        assert_eq!(take(them, EVENT, 1000), Ok(Step::Part { is_kept: false }));
        assert_eq!(take(them, REQ, 1000), too_many(false));
        assert_eq!(them.in_flight(), MAX_INFLIGHT - 1);
        assert_eq!(take(them, EVENT, 1000), PART);
        assert_eq!(take(them, REQ, 1001), too_many(false), "parts count");
        assert_eq!(take(them, REQ, 1000), request(false, false));
        assert_eq!(them.in_flight(), MAX_INFLIGHT);
    }
}
