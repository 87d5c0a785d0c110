//! A mailbox's side of the log: turns its events into records, and its slips back into letters.
//! Invariant: a message is handed out only when its own record is on the disk, and only as what was
//! sent: checksum and hash are looked at every time it is read.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use mailbox_core::{Event, Fingerprint, Freed};

use crate::backend::Letter;
use crate::backends::journal::format::event::encode_event;
use crate::backends::journal::format::letter::{
    EncodedLetter, LetterParts, decode_letter, encode_letter, encoded_len,
};
use crate::backends::journal::format::record::{Kind, RECORD_HEADER, read};
use crate::backends::journal::format::{Flaw, Place};
use crate::backends::journal::planted::Bug;
use crate::backends::journal::shard::log::{Commit, Entry};
use crate::backends::journal::shard::segment::Segment;
use crate::backends::journal::shard::{Denied, Shard, Use};
use crate::durability::{Durability, Settling};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::home::keep::{Fetched, Keep};
use crate::timestamp::Timestamp;

/// What a record takes besides a letter, at most: for limits.
pub(crate) const RECORD_OVERHEAD: usize = 1024;
/// Marks the error that says that space is being made, which never leaves this backend.
const NOT_YET: &str = "space in the journal";

thread_local! {
    /// Facts are put together here: short, and one after the other.
    static FACT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the letters of one mailbox in the log of its shard.
pub(crate) struct JournalKeep {
    pub(crate) shard: Arc<Shard>,
    number: u32,
    settle: Settling,
    /// The segment that says what the mailbox is called; 0 if none does, or nobody knows which.
    stated_in: AtomicU32,
}

impl JournalKeep {
    pub(crate) fn new(shard: &Arc<Shard>, number: u32, settle: Settling, stated_in: u32) -> Self {
        Self { shard: Arc::clone(shard), number, settle, stated_in: AtomicU32::new(stated_in) }
    }

    pub(crate) fn stated_in(&self) -> u32 {
        self.stated_in.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stated_in(&self, segment: u32) {
        self.stated_in.store(segment, Ordering::Relaxed);
    }

    fn purpose(&self, event: &Event<Place>) -> Use {
        match (event, self.settle) {
            (Event::Sent { .. }, _) => Use::Send,
            (Event::Delivered { .. } | Event::Returned { .. }, _) => Use::Ride,
            (
                Event::Acknowledged { .. } | Event::Nacked { .. } | Event::Extended { .. },
                Settling::Lazy,
            ) => Use::Ride,
            _ => Use::Settle,
        }
    }
}

/// Whether an error only says that space is being made.
pub(crate) fn is_not_yet(error: &Error) -> bool {
    error.field() == Some(NOT_YET)
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Error(error) => error,
            Denied::NotYet => Self::new(ErrorKind::Saturated, "space is being made")
                .with_field(NOT_YET)
                .with_retry(Retry::Now),
        }
    }
}

impl Keep for JournalKeep {
    type Body = Bytes;
    type Slip = Place;
    type Parcel = Arc<EncodedLetter>;
    type Pinned = (Option<Arc<Segment>>, Place);
    type Written = Option<Arc<Commit>>;

    const AT_ONCE: bool = false;

    fn durability(&self) -> Durability {
        self.shard.durability
    }

    fn pack(&self, letter: Letter<Bytes>, hash: Option<&Fingerprint>) -> Result<Self::Parcel> {
        let most = self.shard.workshop.segment_len as usize / 2 - RECORD_OVERHEAD;
        let len = encoded_len(&letter);
        if len > most {
            return Err(Error::too_large("message with its attributes", len, most));
        }
        let hash = hash.map_or_else(|| *blake3::hash(&letter.payload).as_bytes(), |hash| hash.0);
        Ok(Arc::new(encode_letter(&letter, &hash)))
    }

    fn slip(&self, _: &Self::Parcel) -> Place {
        Place { segment: 0, offset: 0, len: 0 }
    }

    fn note(
        &self,
        stamp: u64,
        event: &mut Event<Place>,
        parcel: Option<&Self::Parcel>,
    ) -> Result<Self::Written> {
        if self.shard.workshop.planted.has(Bug::AckNotWritten)
            && matches!(event, Event::Acknowledged { .. })
        {
            return Ok(None);
        }
        let purpose = self.purpose(event);
        let (place, commit) = FACT.with_borrow_mut(|fact| {
            fact.clear();
            let kind = encode_event(stamp, event, fact);
            let entry = Entry { mailbox: self.number, kind, fact, letter: parcel };
            self.shard.append(entry, purpose)
        })?;
        if let Event::Sent { payload, idempotency, .. } = event {
            *payload = place;
            self.shard.note_key(place, idempotency.as_ref().map(|it| it.expires));
        }
        let waits = purpose != Use::Ride;
        Ok(waits.then_some(commit))
    }

    fn so_far(&self) -> Self::Written {
        self.shard.so_far()
    }

    fn not_before(&self, slip: &Place) -> Option<Self::Written> {
        if self.shard.workshop.planted.has(Bug::DeliverBeforeSync) {
            return None;
        }
        self.shard.not_before(*slip).map(Some)
    }

    async fn wait(written: Self::Written) -> Result<()> {
        match written {
            Some(commit) => commit.wait().await,
            None => Ok(()),
        }
    }

    fn pin(&self, slip: &Place) -> Self::Pinned {
        (self.shard.segment(slip.segment), *slip)
    }

    fn fetch(&self, (segment, place): Self::Pinned) -> Result<Fetched<Bytes>> {
        let Some(segment) = segment else {
            return Ok(blank(place, &"its segment is missing"));
        };
        let bytes = segment.read(place).map_err(|error| {
            let message = format!("cannot read {} at {}", segment.path.display(), place.offset);
            Error::new(ErrorKind::Connection, message).with_source(error)
        })?;
        match open_letter(bytes.into(), segment.salt, self.number) {
            Ok(letter) => Ok(Fetched { letter: Arc::new(letter), damage: None }),
            Err(flaw) => Ok(blank(place, &flaw)),
        }
    }

    fn release(&self, freed: Freed<Place>) {
        match freed {
            Freed::Nothing => {}
            Freed::One(place) => self.shard.release([place]),
            Freed::Many(places) => self.shard.release(places),
        }
    }
}

impl fmt::Debug for JournalKeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalKeep").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The letter in a record, if all of it is what was written and its payload what was sent.
fn open_letter(bytes: Bytes, salt: u32, mailbox: u32) -> std::result::Result<Letter<Bytes>, Flaw> {
    let record = read(&bytes, salt)?;
    if record.mailbox != mailbox || !matches!(record.kind, Kind::Sent | Kind::Kept) {
        return Err(Flaw::Order);
    }
    if !LetterParts::parse(record.letter)?.verify() {
        return Err(Flaw::Field("payload: its hash is another"));
    }
    let start = RECORD_HEADER + record.fact.len();
    let letter = start..start + record.letter.len();
    decode_letter(bytes.slice(letter))
}

/// What stands for a letter that cannot be read.
fn blank(place: Place, why: &dyn fmt::Display) -> Fetched<Bytes> {
    let letter = Letter {
        payload: Bytes::new(),
        attributes: std::collections::BTreeMap::new(),
        reply_to: None,
        idempotency_key: None,
        group: None,
        enqueued_at: Timestamp::from_unix_millis(0),
    };
    let Place { segment, offset, .. } = place;
    let damage = format!("unreadable in segment {segment:08x} at offset {offset}: {why}");
    Fetched { letter: Arc::new(letter), damage: Some(damage) }
}
