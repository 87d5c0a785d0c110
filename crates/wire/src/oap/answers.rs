//! Which frames of a service may follow which, as a client sees them. Invariant: what is taken is
//! the answer, or a part of the answer, to something that was asked and is not answered.

use super::malformed::{Fault, Malformed};
use super::{CHUNK, Flags, Header, MAX_INFLIGHT};

/// What a frame from a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// A whole answer.
    Whole,
    /// An answer in parts begins.
    Begin,
    /// The next part of an answer.
    Part,
    /// There are no further parts; a code of 400 or more says why.
    End,
    /// The service could not tell whose request was wrong. It closes the connection; the payload
    /// says why.
    Closing,
}

/// Most requests that a client waits for: cancels and a hello do not count for the service, but are
/// answered too.
const MAX_ASKED: usize = 2 * MAX_INFLIGHT + 1;

/// The answers of one connection, as the client sees them.
#[derive(Debug, Default)]
pub struct Answers {
    /// What was asked, and whether its answer has begun.
    asked: Vec<(u64, bool)>,
}

impl Answers {
    /// A request goes out. Whether it may: not with the `corr_id` of another one that is not
    /// answered, nor with 0, which is for what belongs to no request; and not too many at once.
    #[must_use]
    pub fn asked(&mut self, corr_id: u64) -> bool {
        let is_open = |(other, _): &(u64, bool)| *other == corr_id;
        let may = corr_id != 0 && self.asked.len() < MAX_ASKED && !self.asked.iter().any(is_open);
        if may {
            self.asked.push((corr_id, false));
        }
        may
    }

    /// What the next frame is.
    ///
    /// # Errors
    /// It must not come here: the connection is of no use any more.
    pub fn take(&mut self, header: &Header) -> Result<Piece, Malformed> {
        self.piece(header).map_err(|fault| Malformed::new(fault, header.corr_id))
    }

    /// Requests that are not answered.
    #[must_use]
    pub fn open(&self) -> usize {
        self.asked.len()
    }

    fn piece(&mut self, header: &Header) -> Result<Piece, Fault> {
        let piece = kind(header)?;
        let corr_id = header.corr_id;
        let Some(at) = self.asked.iter().position(|(asked, _)| *asked == corr_id) else {
            let is_closing = piece == Piece::Whole && corr_id == 0 && header.code >= 400;
            return if is_closing { Ok(Piece::Closing) } else { Err(Fault::NotAsked) };
        };
        let has_begun = self.asked[at].1;
        match piece {
            Piece::Begin if has_begun => return Err(Fault::SecondStart),
            Piece::Whole if has_begun => return Err(Fault::NotEnded),
            Piece::Part | Piece::End if !has_begun => return Err(Fault::NotBegun),
            Piece::Begin => self.asked[at].1 = true,
            Piece::Whole | Piece::End => {
                self.asked.swap_remove(at);
            }
            Piece::Part | Piece::Closing => {}
        }
        Ok(piece)
    }
}

/// What a frame is by itself.
fn kind(header: &Header) -> Result<Piece, Fault> {
    let &Header { flags, code, .. } = header;
    let has = |flag| flags.contains(flag);
    if has(Flags::REQ) {
        return Err(Fault::RequestFromServer);
    }
    if has(Flags::RESP) == has(Flags::EVENT) {
        return Err(Fault::Kind);
    }
    let piece = match (has(Flags::EVENT), has(Flags::START), has(Flags::END)) {
        (true, false, false) => Piece::Part,
        (false, true, false) => Piece::Begin,
        (false, false, true) => Piece::End,
        (false, false, false) => Piece::Whole,
        (true, ..) | (_, true, true) => return Err(Fault::PartFlags),
    };
    let means_something = match piece {
        Piece::Part => code == 0,
        Piece::Begin => code == 200,
        Piece::Whole | Piece::End | Piece::Closing => code == 200 || code >= 400,
    };
    if !means_something {
        return Err(Fault::Code(code));
    }
    if piece == Piece::Part && header.payload_len() > CHUNK {
        return Err(Fault::PartTooLarge(header.payload_len()));
    }
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oap::APP_JSON;

    const RESP: Flags = Flags::RESP;
    const EVENT: Flags = Flags::EVENT;
    const START: Flags = Flags::START;
    const END: Flags = Flags::END;

    fn take(them: &mut Answers, flags: Flags, code: u16, id: u64) -> Result<Piece, Fault> {
        let header = Header { code, ..Header::new(flags, APP_JSON, id) };
        them.take(&header).map_err(|malformed| {
            assert_eq!(malformed.corr_id(), id);
            malformed.fault
        })
    }

    fn asking(corr_ids: impl IntoIterator<Item = u64>) -> Answers {
        let mut answers = Answers::default();
        assert!(corr_ids.into_iter().all(|corr_id| answers.asked(corr_id)));
        answers
    }

    #[test]
    fn a_whole_answer_comes_once() {
        let them = &mut asking([1, 2]);
        assert_eq!(take(them, RESP, 200, 1), Ok(Piece::Whole));
        assert_eq!(take(them, RESP, 200, 1), Err(Fault::NotAsked));
        assert_eq!(take(them, RESP, 404, 2), Ok(Piece::Whole));
        assert_eq!(them.open(), 0);
        assert!(them.asked(1), "it is free again");
    }

    #[test]
    fn answers_in_parts_come_between_each_other() {
        let them = &mut asking([1, 2, 3]);
        for corr_id in [1, 2] {
            assert_eq!(take(them, EVENT, 0, corr_id), Err(Fault::NotBegun));
            assert_eq!(take(them, RESP | END, 200, corr_id), Err(Fault::NotBegun));
            assert_eq!(take(them, RESP | START, 200, corr_id), Ok(Piece::Begin));
            assert_eq!(take(them, RESP | START, 200, corr_id), Err(Fault::SecondStart));
            assert_eq!(take(them, RESP, 200, corr_id), Err(Fault::NotEnded));
        }
        assert_eq!(take(them, EVENT, 0, 1), Ok(Piece::Part));
        assert_eq!(take(them, RESP, 200, 3), Ok(Piece::Whole));
        assert_eq!(take(them, EVENT, 0, 2), Ok(Piece::Part));
        assert_eq!(take(them, RESP | END, 200, 1), Ok(Piece::End));
        assert_eq!(take(them, EVENT, 0, 1), Err(Fault::NotAsked));
        assert_eq!(take(them, EVENT | Flags::COMP, 0, 2), Ok(Piece::Part));
        assert_eq!(take(them, RESP | END, 503, 2), Ok(Piece::End));
        assert_eq!(them.open(), 0);
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let them = &mut asking([1]);
        assert_eq!(take(them, RESP, 200, 2), Err(Fault::NotAsked));
        assert_eq!(take(them, Flags::REQ, 0, 1), Err(Fault::RequestFromServer));
        assert_eq!(take(them, RESP | EVENT, 200, 1), Err(Fault::Kind));
        assert_eq!(take(them, Flags::COMP, 200, 1), Err(Fault::Kind));
        for flags in [RESP | START | END, EVENT | START, EVENT | END] {
            assert_eq!(take(them, flags, 200, 1), Err(Fault::PartFlags));
        }
        for code in [0, 100, 199, 201, 399] {
            assert_eq!(take(them, RESP, code, 1), Err(Fault::Code(code)));
        }
        assert_eq!(take(them, RESP | START, 500, 1), Err(Fault::Code(500)));
        assert_eq!(take(them, RESP | START, 200, 1), Ok(Piece::Begin));
        assert_eq!(take(them, EVENT, 200, 1), Err(Fault::Code(200)));
        for (len, is_part) in [(CHUNK, true), (CHUNK + 1, false)] {
            let part = Header::new(EVENT, APP_JSON, 1).sized(0, len).unwrap();
            assert_eq!(them.take(&part).is_ok(), is_part);
        }
    }

    #[test]
    fn what_belongs_to_no_request_is_the_end() {
        let them = &mut asking([1]);
        assert_eq!(take(them, RESP, 400, 0), Ok(Piece::Closing));
        assert_eq!(take(them, RESP, 200, 0), Err(Fault::NotAsked));
        assert_eq!(take(them, RESP | END, 400, 0), Err(Fault::NotAsked));
    }

    #[test]
    fn a_request_goes_out_once_and_not_too_many_do() {
        let mut them = asking([1]);
        assert!(!them.asked(1) && !them.asked(0));
        assert!((2..=MAX_ASKED as u64).all(|corr_id| them.asked(corr_id)));
        assert!(!them.asked(1000));
        assert_eq!(take(&mut them, RESP, 200, 5), Ok(Piece::Whole));
        assert!(them.asked(1000));
    }
}
