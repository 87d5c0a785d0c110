//! Frames that are in order, in any order. What [`Requests`] and [`Answers`] say is compared with
//! what follows from the rules for all that has happened so far, looked through from the start each
//! time.

use mailbox_wire::oap::{
    Answers, CHUNK, Flags, Header, MAX_FRAME, MAX_INFLIGHT, Piece, Requests, Step,
};

/// Most that happens in one input.
const MOST: usize = 200;

/// Checks all that. `allow` is told how much may be allocated at once, and in all.
pub(crate) fn check(input: &[u8], allow: fn(usize, usize)) {
    allow(MAX_FRAME, usize::MAX);
    let Some((side, input)) = input.split_first() else { return };
    let happenings = happenings(input);
    if side % 2 == 0 { check_requests(&happenings) } else { check_answers(&happenings) }
}

/// What happens: a frame comes, or something else with this `corr_id`.
#[derive(Clone, Copy)]
enum Happening {
    Frame(Header),
    Other(u64),
}

fn happenings(mut input: &[u8]) -> Vec<Happening> {
    let mut all = Vec::new();
    while let [kind, flags, what, corr_id, rest @ ..] = input {
        // Several in a row, so that few bytes are many requests.
        let count = if kind & 0x80 == 0 { 1 } else { u64::from(kind & 0x7F) };
        for next in 0..count {
            let corr_id = u64::from(*corr_id).wrapping_add(next);
            all.push(if kind & 0x80 == 0 && kind & 1 == 1 {
                Happening::Other(corr_id)
            } else {
                let flags = Flags::from_bits((*flags).into());
                let app = [0, 0x0201, 0x0202, 7][usize::from(what & 3)];
                let code = [0, 200, 400, 503, 199, 399][usize::from(what >> 2 & 7).min(5)];
                let len = [0, 1, CHUNK, CHUNK + 1][usize::from(what >> 5 & 3)];
                let header = Header { code, ..Header::new(flags, app, corr_id) };
                Happening::Frame(header.sized(0, len).expect("it is no larger than a frame"))
            });
        }
        input = rest;
        if all.len() > MOST {
            break;
        }
    }
    all.truncate(MOST);
    all
}

const REQ: Flags = Flags::REQ;
const RESP: Flags = Flags::RESP;
const EVENT: Flags = Flags::EVENT;
const START: Flags = Flags::START;
const END: Flags = Flags::END;

/// What a service has seen and done.
enum Seen {
    /// A frame that was accepted, and whether the request had a place.
    Frame(Header, bool),
    Done(u64),
}

fn check_requests(happenings: &[Happening]) {
    let mut requests = Requests::default();
    let mut past: Vec<Seen> = Vec::new();
    for happening in happenings {
        let header = match happening {
            Happening::Frame(header) => header,
            Happening::Other(corr_id) => {
                requests.done(*corr_id);
                past.push(Seen::Done(*corr_id));
                continue;
            }
        };
        let may = may_ask(&past, header);
        match requests.take(header) {
            Ok(step) => {
                assert_eq!(Some(step), may, "{header:?} was accepted");
                let has_place = matches!(step, Step::Request { .. } | Step::Part { is_kept: true });
                past.push(Seen::Frame(*header, has_place));
            }
            Err(malformed) => {
                assert_eq!(may, None, "{header:?} was refused: {malformed}");
                // Not under the id of a request that will be answered, whatever is wrong.
                let is_taken = will_be_answered(&past, header.corr_id);
                let corr_id = if is_taken { 0 } else { header.corr_id };
                assert_eq!((malformed.code(), malformed.corr_id()), (400, corr_id));
                assert!(malformed.closes());
            }
        }
        assert!(requests.in_flight() <= MAX_INFLIGHT);
        let now = now(&past);
        assert_eq!(requests.in_flight(), now.open.len());
        assert_eq!(requests.has_ended(), now.has_ended);
    }
}

/// What all that comes to.
#[derive(Default)]
struct Now {
    has_started: bool,
    has_ended: bool,
    /// Requests with a place that are not answered.
    open: Vec<u64>,
    /// The first of the parts that wait for their request, and whether it has a place.
    parts: Option<(Header, bool)>,
}

fn now(past: &[Seen]) -> Now {
    let mut now = Now::default();
    for seen in past {
        match seen {
            Seen::Frame(header, has_place) => {
                now.has_started |= header.flags.contains(START);
                now.has_ended |= header.flags.contains(END);
                let is_own = now.parts.is_some_and(|(first, _)| first.corr_id == header.corr_id);
                if *has_place && !is_own {
                    now.open.push(header.corr_id);
                }
                if header.flags.contains(EVENT) {
                    now.parts = now.parts.or(Some((*header, *has_place)));
                } else if is_own {
                    now.parts = None;
                }
            }
            Seen::Done(corr_id) => {
                let is_own = now.parts.is_some_and(|(first, _)| first.corr_id == *corr_id);
                now.open.retain(|other| other != corr_id || is_own);
            }
        }
    }
    now
}

/// Whether a request that has come whole is not answered yet.
fn will_be_answered(past: &[Seen], corr_id: u64) -> bool {
    let Now { open, parts, .. } = now(past);
    open.contains(&corr_id) && parts.is_none_or(|(first, _)| first.corr_id != corr_id)
}

/// What a frame is after all that, or nothing if it must not come.
fn may_ask(past: &[Seen], header: &Header) -> Option<Step> {
    let has = |flag| header.flags.contains(flag);
    let Now { has_started, has_ended, open, parts } = now(past);
    let own = parts.filter(|(first, _)| first.corr_id == header.corr_id);
    let is_free = open.len() < MAX_INFLIGHT;
    let (is_first, is_last) = (has(START), has(END));

    let is_kind = !has(RESP) && has(REQ) != has(EVENT);
    let is_own = own.is_some() || !open.contains(&header.corr_id);
    let fits = own.is_none_or(|(first, _)| first.app == header.app);
    if has_ended || !is_kind || !is_own || !fits {
        return None;
    }
    if has(EVENT) {
        let may = !is_first && !is_last && header.app != 0 && own.is_some() == parts.is_some();
        let is_kept = own.map_or(is_free, |(_, has_place)| has_place);
        return may.then_some(Step::Part { is_kept });
    }
    let is_second = is_first && has_started;
    let ends_nothing = is_last && !is_first && !has_started;
    let leaves_parts = is_last && own.is_none() && parts.is_some();
    if is_second || ends_nothing || leaves_parts {
        return None;
    }
    Some(if header.app == 0 {
        Step::Hello { is_first, is_last }
    } else if own.map_or(is_free, |(_, has_place)| has_place) {
        Step::Request { is_first, is_last }
    } else {
        Step::TooMany { is_first, is_last }
    })
}

/// What a client has asked and got.
enum Got {
    Asked(u64),
    Piece(u64, Piece),
}

fn check_answers(happenings: &[Happening]) {
    let mut answers = Answers::default();
    let mut past: Vec<Got> = Vec::new();
    for happening in happenings {
        match happening {
            Happening::Other(corr_id) => {
                let open = open_count(&past);
                let may = *corr_id != 0 && answer_of(&past, *corr_id).is_none();
                let is_asked = answers.asked(*corr_id);
                assert!(!is_asked || may, "{corr_id} was asked a second time");
                assert!(is_asked || !may || open > 2 * MAX_INFLIGHT, "{corr_id} may be asked");
                if is_asked {
                    past.push(Got::Asked(*corr_id));
                }
            }
            Happening::Frame(header) => {
                let may = may_come(&past, header);
                let taken = answers.take(header);
                let piece = taken.map_err(|it| assert_eq!(it.corr_id(), header.corr_id)).ok();
                assert_eq!(piece, may, "{header:?}");
                past.extend(piece.map(|piece| Got::Piece(header.corr_id, piece)));
            }
        }
        assert_eq!(answers.open(), open_count(&past));
    }
}

/// Whether something with this `corr_id` is not answered, and then whether its answer has begun.
fn answer_of(past: &[Got], corr_id: u64) -> Option<bool> {
    let about = past.iter().rev().find(|got| match got {
        Got::Asked(other) | Got::Piece(other, _) => *other == corr_id,
    });
    match about? {
        Got::Asked(_) => Some(false),
        Got::Piece(_, Piece::Begin | Piece::Part) => Some(true),
        Got::Piece(_, Piece::Whole | Piece::End | Piece::Closing) => None,
    }
}

fn open_count(past: &[Got]) -> usize {
    let asked = past.iter().filter(|got| matches!(got, Got::Asked(_))).count();
    let is_end = |got: &&Got| matches!(got, Got::Piece(_, Piece::Whole | Piece::End));
    asked - past.iter().filter(is_end).count()
}

/// What a frame is after all that, or nothing if it must not come.
fn may_come(past: &[Got], header: &Header) -> Option<Piece> {
    let kinds = REQ | RESP | EVENT | START | END;
    let kind = header.flags.without(Flags::ALL.without(kinds));
    let answer = answer_of(past, header.corr_id);
    let is_success = header.code == 200;
    let is_result = is_success || header.code >= 400;
    if kind == RESP && is_result && answer == Some(false) {
        Some(Piece::Whole)
    } else if kind == RESP | START && is_success && answer == Some(false) {
        Some(Piece::Begin)
    } else if kind == EVENT && header.code == 0 && answer == Some(true) {
        (header.payload_len() <= CHUNK).then_some(Piece::Part)
    } else if kind == RESP | END && is_result && answer == Some(true) {
        Some(Piece::End)
    } else if kind == RESP && header.code >= 400 && header.corr_id == 0 && answer.is_none() {
        Some(Piece::Closing)
    } else {
        None
    }
}
