//! From records back to queues. Invariant: what a record says about a message that is not there is
//! passed over, because its past was forgotten with an old segment; what contradicts what is there
//! is damage.

use std::collections::BTreeMap;

use mailbox_core::{Idempotency, Policy, Queue, Replayed, Time};

use crate::backends::journal::format::event::{Remembered, decode_event, decode_kept};
use crate::backends::journal::format::fact::{Anchor, Head, Opened, Room, Trimmed};
use crate::backends::journal::format::letter::LetterParts;
use crate::backends::journal::format::record::{Kind, Record};
use crate::backends::journal::format::{Flaw, Place};
use crate::backends::journal::planted::{Bug, Planted};

/// What the records read so far add up to.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) rooms: BTreeMap<u32, Replica>,
    pub(crate) first_segment: u32,
    pub(crate) epoch: u32,
    pub(crate) next_mailbox: u32,
    /// The highest number of a mailbox that anything was written about.
    pub(crate) highest_mailbox: u32,
    pub(crate) anchor: Option<Anchor>,
    /// The last writer synced every batch.
    pub(crate) synced: bool,
    /// The last record is that of a clean stop.
    pub(crate) closed: bool,
    seed: u64,
    planted: Planted,
}

/// A mailbox that is being put together.
#[derive(Debug)]
pub(crate) struct Replica {
    /// Not known before its own record has come, which may be after others about it.
    pub(crate) name: Option<String>,
    pub(crate) queue: Queue<Place>,
    /// The segment that says what it is called and which rules it has.
    pub(crate) stated_in: u32,
}

/// What whoever keeps the books of the segments has to know about a record.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Noted {
    /// An idempotency key was written here, which is remembered until then.
    pub(crate) key_until: Option<Time>,
}

impl Replay {
    pub(crate) const fn new(seed: u64, planted: Planted) -> Self {
        Self {
            rooms: BTreeMap::new(),
            first_segment: 0,
            epoch: 0,
            next_mailbox: 0,
            highest_mailbox: 0,
            anchor: None,
            synced: true,
            closed: false,
            seed,
            planted,
        }
    }

    /// Takes in the next record.
    pub(crate) fn apply(&mut self, place: Place, record: &Record<'_>) -> Result<Noted, Flaw> {
        self.closed = record.kind == Kind::Closed;
        self.highest_mailbox = self.highest_mailbox.max(record.mailbox);
        match record.kind {
            Kind::Head => self.begin_segment(&Head::decode(record.fact)?),
            Kind::Opened | Kind::Closed => self.open(&Opened::decode(record.fact)?),
            Kind::Sealed => {}
            Kind::Trimmed => {
                let trimmed = Trimmed::decode(record.fact)?;
                self.first_segment = self.first_segment.max(trimmed.first_segment);
            }
            Kind::Room => {
                let Room { name, standing } = Room::decode(record.fact)?;
                let replica = self.replica(record.mailbox);
                replica.name = Some(name);
                replica.stated_in = place.segment;
                replica.queue.assume(standing);
            }
            Kind::Removed => {
                self.rooms.remove(&record.mailbox);
            }
            Kind::Kept => return self.keep(place, record),
            Kind::Remembered => return self.remember(record),
            _ => return self.happen(place, record),
        }
        Ok(Noted::default())
    }

    fn begin_segment(&mut self, head: &Head) {
        self.first_segment = self.first_segment.max(head.first_segment);
        self.open(&head.opened);
    }

    pub(crate) fn open(&mut self, opened: &Opened) {
        self.epoch = self.epoch.max(opened.epoch);
        self.next_mailbox = self.next_mailbox.max(opened.next_mailbox);
        self.anchor = Some(opened.anchor);
        self.synced = opened.synced;
    }

    fn happen(&mut self, place: Place, record: &Record<'_>) -> Result<Noted, Flaw> {
        let letter = match record.kind {
            Kind::Sent => Some(LetterParts::parse(record.letter)?),
            _ => None,
        };
        let (stamp, mut event) = decode_event(record.kind, record.fact, letter.as_ref(), place)?;
        let mut noted = Noted::default();
        if let mailbox_core::Event::Sent { idempotency, .. } = &mut event {
            noted.key_until = idempotency.as_ref().map(|idempotency| idempotency.expires);
            if self.planted.has(Bug::KeysForgotten) {
                *idempotency = None;
            }
        }
        match self.replica(record.mailbox).queue.replay(stamp, event) {
            Replayed::Applied(_) | Replayed::Unknown => Ok(noted),
            Replayed::Misfit => Err(Flaw::Order),
        }
    }

    fn keep(&mut self, place: Place, record: &Record<'_>) -> Result<Noted, Flaw> {
        let letter = LetterParts::parse(record.letter)?;
        let (keepsake, key_until) = decode_kept(record.fact, &letter, place)?;
        let id = keepsake.id;
        let queue = &mut self.replica(record.mailbox).queue;
        queue.restore(keepsake).map_err(|_| Flaw::Order)?;
        if let (Some(expires), Some(key)) = (key_until, letter.key) {
            let fingerprint = mailbox_core::Fingerprint(*letter.hash);
            queue.remember(Idempotency { key: key.into(), fingerprint, expires }, id);
        }
        Ok(Noted { key_until })
    }

    fn remember(&mut self, record: &Record<'_>) -> Result<Noted, Flaw> {
        let Remembered { id, key, fingerprint, expires } = Remembered::decode(record.fact)?;
        let queue = &mut self.replica(record.mailbox).queue;
        queue.remember(Idempotency { key, fingerprint, expires }, id);
        Ok(Noted { key_until: Some(expires) })
    }

    pub(crate) fn replica(&mut self, mailbox: u32) -> &mut Replica {
        let seed = self.seed;
        self.rooms.entry(mailbox).or_insert_with(|| Replica {
            name: None,
            queue: Queue::new(Policy::default(), seed),
            stated_in: 0,
        })
    }
}
