//! What the name of a message file says. Invariant: a message file is written once; everything that
//! changes about a message afterwards is in its name, so that one rename changes it as a whole.
//!
//! A name is `BASE[~MARK]*.json`. The base is what its sender called it and never changes; marks
//! are a letter and a value, in one order and one form, so that every state has one name:
//!
//! | mark | is there | says |
//! |---|---|---|
//! | `~nCOUNT` | after a first delivery | deliveries so far |
//! | `~dDUE.STAMP` | after a delay, a nack, an expired claim or a redrive | its place in line |
//! | `~rTIME` | after a redrive | since when it is in line |
//! | `~eNOTE` | after an error | which note in `notes/` has the text |
//! | `~cCLAIM` | while somebody has it | 128 random bits: the delivery |
//! | `~uDEADLINE.STAMP` | with `c` | its place in line when that is over |
//! | `~tTIMEOUT` | with `c` | the visibility timeout it was taken with |
//! | `~hHOLD` | with `c`, where retention bounds it | until when it can be extended at most |
//! | `~oPID` | with `c` | the process that has it |
//! | `~xREASON` | in `dead-letter/` | why it died |
//! | `~aORDER` | with `x` | when, and before and after which others |
//! | `~fTIME` | in `done/` | when it was acknowledged |
//!
//! Times are nanoseconds of inbox time.

use std::fmt;
use std::time::Duration;

use mailbox_core::{DeadReason, Time};

use crate::backends::directory::digits::{self, Digits};
use crate::backends::directory::inbox::died;
use crate::backends::directory::notes;
use crate::id::MessageId;

/// Longest base: with every mark a name has 255 bytes at most, which is what file systems allow.
pub(crate) const BASE_LEN_MAX: usize = 96;
/// What every message file ends with.
pub(crate) const SUFFIX: &str = ".json";
/// Digits of a ULID, and of a claim.
const ULID_LEN: usize = 26;
/// Digits and dashes of a UUID.
const UUID_LEN: usize = 36;

/// The year 2116, in nanoseconds.
pub(crate) const ABSURD: u64 = 1 << 62;

/// A place in line: when a message becomes receivable, and who was first among equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Turn {
    pub(crate) due: Time,
    pub(crate) stamp: u64,
}

/// One delivery of a message. Unguessable, so that nobody settles what somebody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Claim(pub(crate) u128);

/// A delivery that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) claim: Claim,
    /// When it is over, and the message's place in line then.
    pub(crate) until: Turn,
    pub(crate) timeout: Duration,
    pub(crate) hold_until: Option<Time>,
    pub(crate) owner: u32,
}

/// How a message ended as a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) reason: DeadReason,
    pub(crate) order: u64,
}

/// The name of a message file, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileName {
    base: Box<str>,
    pub(crate) count: u32,
    pub(crate) turn: Option<Turn>,
    pub(crate) entered: Option<Time>,
    pub(crate) note: Option<u64>,
    pub(crate) held: Option<Held>,
    pub(crate) fate: Option<Fate>,
    pub(crate) finished: Option<Time>,
}

/// What a name in one of the folders is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sort {
    /// A message.
    Message(FileName),
    /// Nothing of ours: hidden, or not called `.json`. Left where it is.
    Foreign,
    /// Called like a message, with characters or marks that no message has.
    Odd,
}

impl FileName {
    /// A message nobody has touched yet; `None` if nothing can be called that.
    pub(crate) fn new(base: &str) -> Option<Self> {
        if !is_base(base) {
            return None;
        }
        Some(Self {
            base: base.into(),
            count: 0,
            turn: None,
            entered: None,
            note: None,
            held: None,
            fate: None,
            finished: None,
        })
    }

    /// What its sender called it.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The message's identity: the ULID or UUID that its name ends with, else all of it.
    pub(crate) fn id(&self) -> MessageId {
        let tail = ulid_tail(&self.base).or_else(|| uuid_tail(&self.base));
        MessageId::from_text(tail.unwrap_or(&self.base))
    }

    /// Whether this library has named it.
    pub(crate) fn is_ours(&self) -> bool {
        ulid_tail(&self.base).is_some()
    }

    /// When it was first sent, as far as its name says.
    pub(crate) fn sent(&self) -> Option<Time> {
        base_time(&self.base)
    }

    /// Since when it is in line.
    pub(crate) fn since(&self) -> Option<Time> {
        self.entered.or_else(|| self.sent())
    }

    /// Its place in line, unless somebody has it. Whoever has no mark was receivable as soon as it
    /// was there; `seen` is when that was noticed, for names without a time, or with a future one.
    pub(crate) fn turn_at(&self, seen: Time) -> Turn {
        self.turn.unwrap_or_else(|| {
            let stamp = self.id().as_ulid().map_or(0, stamp_of);
            Turn { due: self.sent().map_or(seen, |sent| sent.min(seen)), stamp }
        })
    }

    /// What tells it from others that were sent in the same moment.
    pub(crate) fn stamp(&self) -> u64 {
        match (self.entered, self.turn) {
            // Redriven ones came in the order of their redrives.
            (Some(_), Some(turn)) => turn.stamp,
            _ => self.id().as_ulid().map_or(0, stamp_of),
        }
    }

    /// The latest moment that it speaks of as past, if we have named it.
    pub(crate) fn past(&self) -> Option<Time> {
        if !self.is_ours() {
            return None;
        }
        let taken = self.held.map(|held| {
            let (until, timeout) = (held.until.due.as_nanos(), held.timeout.as_nanos());
            Time::from_nanos(until.saturating_sub(u64::try_from(timeout).unwrap_or(u64::MAX)))
        });
        let died = self.fate.map(|fate| died(fate.order));
        let all = [self.sent(), self.entered, taken, self.finished, died];
        // No clock has ever shown such a time: whoever wrote it has made it up.
        all.into_iter().flatten().filter(|time| time.as_nanos() < ABSURD).max()
    }

    /// The same message without delivery, death or end.
    pub(crate) fn at_rest(&self) -> Self {
        Self { held: None, fate: None, finished: None, ..self.clone() }
    }

    /// Reads a name.
    pub(crate) fn sort(name: &str) -> Sort {
        let Some(stem) = name.strip_suffix(SUFFIX).filter(|_| !name.starts_with('.')) else {
            return Sort::Foreign;
        };
        match Self::parse(stem) {
            // One state has one name: another spelling of it could be there beside it.
            Some(read) if read.to_string() == name => Sort::Message(read),
            _ => Sort::Odd,
        }
    }

    fn parse(stem: &str) -> Option<Self> {
        let mut parts = stem.split('~');
        let mut read = Self::new(parts.next()?)?;
        let mut held = Marks::default();
        let mut reason = None;
        for mark in parts {
            let letter = mark.chars().next()?;
            let value = &mark[letter.len_utf8()..];
            let time = || digits::parse(value).map(Time::from_nanos);
            match letter {
                'n' => read.count = digits::decimal(value).filter(|count| *count > 0)?,
                'd' => read.turn = Some(Turn::parse(value)?),
                'r' => read.entered = Some(time()?),
                'e' => {
                    read.note = Some(digits::parse(value).filter(|note| *note < 1 << notes::BITS)?)
                }
                'c' => held.claim = Some(Claim::parse(value)?),
                'u' => held.until = Some(Turn::parse(value)?),
                't' => held.timeout = Some(Duration::from_nanos(digits::parse(value)?)),
                'h' => held.hold_until = Some(time()?),
                'o' => held.owner = Some(u32::try_from(digits::parse(value)?).ok()?),
                'x' => reason = Some(reason_of(value)?),
                'a' => {
                    read.fate = Some(Fate { reason: reason?, order: digits::parse(value)? });
                }
                'f' => read.finished = Some(time()?),
                _ => return None,
            }
        }
        read.held = held.into_held()?;
        Some(read)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)?;
        if self.count > 0 {
            write!(f, "~n{}", self.count)?;
        }
        if let Some(turn) = self.turn {
            write!(f, "~d{turn}")?;
        }
        if let Some(entered) = self.entered {
            write!(f, "~r{}", nanos(entered))?;
        }
        if let Some(note) = self.note {
            write!(f, "~e{}", Digits(note))?;
        }
        if let Some(Held { claim, until, timeout, hold_until, owner }) = self.held {
            let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
            write!(f, "~c{claim}~u{until}~t{}", Digits(timeout))?;
            if let Some(hold_until) = hold_until {
                write!(f, "~h{}", nanos(hold_until))?;
            }
            write!(f, "~o{}", Digits(u64::from(owner)))?;
        }
        if let Some(Fate { reason, order }) = self.fate {
            write!(f, "~x{}~a{}", reason.as_str(), Digits(order))?;
        }
        if let Some(finished) = self.finished {
            write!(f, "~f{}", nanos(finished))?;
        }
        f.write_str(SUFFIX)
    }
}

const fn nanos(time: Time) -> Digits {
    Digits(time.as_nanos())
}

/// The marks of a delivery, which are there together or not at all.
#[derive(Debug, Default)]
struct Marks {
    claim: Option<Claim>,
    until: Option<Turn>,
    timeout: Option<Duration>,
    hold_until: Option<Time>,
    owner: Option<u32>,
}

impl Marks {
    /// The delivery, if there is one; `None` if something of it is missing.
    fn into_held(self) -> Option<Option<Held>> {
        match (self.claim, self.until, self.timeout, self.owner) {
            (Some(claim), Some(until), Some(timeout), Some(owner)) => {
                Some(Some(Held { claim, until, timeout, hold_until: self.hold_until, owner }))
            }
            (None, None, None, None) if self.hold_until.is_none() => Some(None),
            _ => None,
        }
    }
}

impl Turn {
    fn parse(text: &str) -> Option<Self> {
        let (due, stamp) = text.split_once('.')?;
        let stamp = digits::parse(stamp).filter(|stamp| *stamp <= STAMP_MASK)?;
        Some(Self { due: Time::from_nanos(digits::parse(due)?), stamp })
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", nanos(self.due), Digits(self.stamp))
    }
}

impl Claim {
    /// Reads a claim.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // The same digits as a ULID, and as many.
        MessageId::from_text(text).as_ulid().map(Self)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&MessageId::from(mailbox_core::Id(self.0)), f)
    }
}

fn reason_of(word: &str) -> Option<DeadReason> {
    DeadReason::ALL.into_iter().find(|reason| reason.as_str() == word)
}

/// Whether a message can be called that: what a shell takes as it is, and no option of a command.
fn is_base(base: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@+=,-".contains(&byte);
    (1..=BASE_LEN_MAX).contains(&base.len())
        && base.bytes().all(is_plain)
        && !base.starts_with(['.', '-'])
}

/// The ULID at the end of a base.
fn ulid_tail(base: &str) -> Option<&str> {
    let (rest, tail) = base.split_at_checked(base.len().checked_sub(ULID_LEN)?)?;
    let is_ulid = MessageId::from_text(tail).as_ulid().is_some();
    (is_ulid && (rest.is_empty() || rest.ends_with('-'))).then_some(tail)
}

/// The UUID at the end of a base.
fn uuid_tail(base: &str) -> Option<&str> {
    let (rest, tail) = base.split_at_checked(base.len().checked_sub(UUID_LEN)?)?;
    let is_uuid = tail.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    (is_uuid && (rest.is_empty() || rest.ends_with('-'))).then_some(tail)
}

/// The earliest time that a base can begin with: 2001-09-09, when seconds got their tenth digit.
const EARLIEST: u64 = 1_000_000_000_000_000_000;

/// The time that a base begins with: seconds, perhaps with a fraction, as we and `date +%s` write
/// it, or milli-, micro- or nanoseconds, as others do. Told apart by their size: seconds have
/// eleven digits until the year 5138.
fn base_time(base: &str) -> Option<Time> {
    let end = base.find('-').unwrap_or(base.len());
    let (whole, fraction) = base[..end].split_once('.').unwrap_or((&base[..end], ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let number: u64 = whole.parse().ok()?;
    let unit = match whole.len() {
        ..=11 => 1_000_000_000,
        12..=14 => 1_000_000,
        15..=17 => 1_000,
        _ => 1,
    };
    let below: u64 = format!("{fraction:0<9}").parse().ok()?;
    if below > 0 && unit != 1_000_000_000 {
        return None;
    }
    let nanos = number.checked_mul(unit)?.checked_add(below)?;
    // A smaller number was no time when it was written: it counts something, or is a date.
    (nanos >= EARLIEST).then_some(Time::from_nanos(nanos))
}

/// Bits of a ULID that tell who was first within a millisecond, and those that are random.
const STAMP_BITS: u32 = 44;
const RANDOM_BITS: u32 = 36;

/// What every stamp is below.
pub(crate) const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

/// The ULID of a message of ours.
pub(crate) const fn compose_ulid(unix_millis: u64, stamp: u64, random: u64) -> u128 {
    let millis = (unix_millis & ((1 << 48) - 1)) as u128;
    let random = (random & ((1 << RANDOM_BITS) - 1)) as u128;
    millis << 80 | ((stamp & STAMP_MASK) as u128) << RANDOM_BITS | random
}

/// The stamp in a ULID.
const fn stamp_of(ulid: u128) -> u64 {
    (ulid >> RANDOM_BITS) as u64 & STAMP_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str) -> FileName {
        match FileName::sort(name) {
            Sort::Message(read) => read,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn full() -> FileName {
        let mut name = FileName::new(&"b".repeat(BASE_LEN_MAX)).unwrap();
        name.count = u32::MAX;
        name.turn = Some(Turn { due: Time::MAX, stamp: STAMP_MASK });
        name.entered = Some(Time::MAX);
        name.note = Some((1 << notes::BITS) - 1);
        name.held = Some(Held {
            claim: Claim(u128::MAX),
            until: Turn { due: Time::MAX, stamp: STAMP_MASK },
            timeout: mailbox_core::limits::VISIBILITY_TIMEOUT,
            hold_until: Some(Time::MAX),
            owner: u32::MAX,
        });
        name
    }

    #[test]
    fn every_name_reads_back_and_fits_into_a_file_system() {
        let mut dead = full().at_rest();
        dead.fate = Some(Fate { reason: DeadReason::MaxAttempts, order: u64::MAX });
        let mut done = full().at_rest();
        done.finished = Some(Time::MAX);
        for name in [full(), dead, done, full().at_rest(), FileName::new("x").unwrap()] {
            let text = name.to_string();
            assert!(text.len() <= 255, "{}: {text}", text.len());
            assert_eq!(message(&text), name);
        }
    }

    #[test]
    fn names_that_no_message_has_are_told_apart() {
        for foreign in [".hidden.json", "readme.txt", "x.json.tmp", "x.JSON", ""] {
            assert_eq!(FileName::sort(foreign), Sort::Foreign, "{foreign}");
        }
        let long = format!("{}.json", "b".repeat(BASE_LEN_MAX + 1));
        for odd in [
            ".json",
            "-rf.json",
            "a b.json",
            "a\nb.json",
            "über.json",
            "a/b.json",
            "x~.json",
            "x~q1.json",
            "x~n0.json",
            "x~n01.json",
            "x~n1~n2.json",
            "x~r1~n1.json",
            "x~c1.json",
            "x~d1.json",
            "x~xwhim~a1.json",
            "x~a1.json",
            "x~u1~t1~o1.json",
            "x~nü.json",
            &long,
        ] {
            let expected = if odd == ".json" { Sort::Foreign } else { Sort::Odd };
            assert_eq!(FileName::sort(odd), expected, "{odd}");
        }
    }

    #[test]
    fn the_id_is_what_the_name_ends_with() {
        let uuid = "550e8400-e29b-41d4-a716-446655440000";
        let ulid = "01JGFJK2X0QJ8XCA000000MW47";
        for (name, id) in [
            (format!("1765135800-agent-1-{uuid}.json"), uuid),
            (format!("1765135800.5-agent-{ulid}~n2.json"), ulid),
            (format!("{ulid}.json"), ulid),
            ("1765135800-agent-hello.json".to_owned(), "1765135800-agent-hello"),
            (format!("x{uuid}.json"), &format!("x{uuid}")),
        ] {
            assert_eq!(message(&name).id(), MessageId::from_text(id), "{name}");
        }
    }

    #[test]
    fn the_time_in_a_name_is_read_in_every_unit_that_shells_write() {
        let seconds = |name: &str| message(name).sent().map(Time::as_nanos);
        assert_eq!(seconds("1765135800-a.json"), Some(1_765_135_800_000_000_000));
        assert_eq!(seconds("1765135800.25-a.json"), Some(1_765_135_800_250_000_000));
        assert_eq!(seconds("1765135800123-a.json"), Some(1_765_135_800_123_000_000));
        assert_eq!(seconds("1765135800123456789-a.json"), Some(1_765_135_800_123_456_789));
        for without in [
            "a-1.json",
            "1.json",
            "42-a.json",
            "20251207-a.json",
            "202512071930-a.json",
            "99999999999999999999-a.json",
            "1765135800.0000000001-a.json",
        ] {
            assert_eq!(seconds(without), None, "{without}");
        }
    }

    #[test]
    fn who_has_no_mark_is_in_line_since_it_was_sent_or_seen() {
        let seen = Time::from_nanos(1_765_135_800_000_000_000);
        assert_eq!(message("1765135799-a.json").turn_at(seen).due.as_nanos() % 1_000, 0);
        assert_eq!(message("1765135900-a.json").turn_at(seen).due, seen);
        assert_eq!(message("hello.json").turn_at(seen).due, seen);
        let id = MessageId::from(mailbox_core::Id(compose_ulid(7, 99, u64::MAX)));
        assert_eq!(message(&format!("1-a-{id}.json")).turn_at(seen).stamp, 99);
    }
}
