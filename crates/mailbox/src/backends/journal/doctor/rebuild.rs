//! From records back to mailboxes, as far as there are records. Invariant: as long as nothing is
//! lost this is what opening the journal does, to the bit; from the first loss on, everything that
//! can be read counts and nothing is refused.

use std::collections::{BTreeMap, BTreeSet};

use mailbox_core::{DeadReason, Event, Idempotency, Keepsake, Key, Policy, Queue, Time};

use crate::backends::journal::doctor::loose::{Loose, die};
use crate::backends::journal::format::event::{Remembered, decode_event, decode_kept};
use crate::backends::journal::format::fact::{Anchor, Head, Opened, Room, Trimmed};
use crate::backends::journal::format::index::{IndexReader, Item};
use crate::backends::journal::format::letter::{EncodedLetter, LetterParts};
use crate::backends::journal::format::record::{Kind, Record};
use crate::backends::journal::format::{Flaw, Place};
use crate::home::clock::Mark;
use crate::id::ulid;

/// What the records of a log add up to.
#[derive(Debug)]
pub(super) struct Rebuild {
    pub(super) wards: BTreeMap<u32, Ward>,
    pub(super) first_segment: u32,
    pub(super) epoch: u32,
    pub(super) next_mailbox: u32,
    pub(super) anchor: Option<Anchor>,
    pub(super) synced: bool,
    pub(super) closed: bool,
    /// Something was lost on the way.
    pub(super) lossy: bool,
    /// Where letters are that cannot be read.
    pub(super) unreadable: BTreeSet<Place>,
    /// What stands for a letter that cannot be read while its record is looked at.
    blank: EncodedLetter,
}

/// A mailbox that is being put together.
#[derive(Debug)]
pub(super) struct Ward {
    pub(super) name: Option<String>,
    state: State,
    /// Messages that are known only by what happened to them, by slot.
    ghosts: BTreeMap<u32, Ghost>,
}

#[derive(Debug)]
enum State {
    /// Nothing was lost so far.
    Exact(Box<Queue<Place>>),
    Loose(Box<Loose>),
}

/// A message whose beginning has not been seen: it was moved, and comes later; or it is lost.
#[derive(Debug)]
struct Ghost {
    key: Key,
    at: Time,
    attempts: u32,
    dead: bool,
    last_error: Option<Box<str>>,
}

impl Rebuild {
    /// `blank` is an empty letter with an idempotency key.
    pub(super) const fn new(blank: EncodedLetter) -> Self {
        Self {
            wards: BTreeMap::new(),
            first_segment: 0,
            epoch: 0,
            next_mailbox: 0,
            anchor: None,
            synced: true,
            closed: false,
            lossy: false,
            unreadable: BTreeSet::new(),
            blank,
        }
    }

    /// Records are lost here.
    pub(super) fn lose(&mut self) {
        self.lossy = true;
        self.wards.values_mut().for_each(|ward| {
            ward.loosen().lose();
        });
    }

    /// Takes in the next record, whose letter may be no good.
    ///
    /// An error says that the record contradicts those before it, or itself.
    pub(super) fn apply(
        &mut self,
        place: Place,
        record: &Record<'_>,
        letter_is_good: bool,
    ) -> Result<(), Flaw> {
        self.closed = record.kind == Kind::Closed;
        match record.kind {
            Kind::Head => {
                let head = Head::decode(record.fact)?;
                self.first_segment = self.first_segment.max(head.first_segment);
                self.open(&head.opened);
            }
            Kind::Opened | Kind::Closed => self.open(&Opened::decode(record.fact)?),
            Kind::Sealed => {}
            Kind::Trimmed => {
                let trimmed = Trimmed::decode(record.fact)?;
                self.first_segment = self.first_segment.max(trimmed.first_segment);
            }
            Kind::Room => {
                let Room { name, standing } = Room::decode(record.fact)?;
                let ward = self.ward(record.mailbox);
                ward.name = Some(name);
                match &mut ward.state {
                    State::Exact(queue) => queue.assume(standing),
                    State::Loose(loose) => loose.assume(standing),
                }
            }
            Kind::Removed => {
                self.wards.remove(&record.mailbox);
            }
            Kind::Remembered => {
                let Remembered { id, key, fingerprint, expires } = Remembered::decode(record.fact)?;
                let idempotency = Idempotency { key, fingerprint, expires };
                match &mut self.ward(record.mailbox).state {
                    State::Exact(queue) => queue.remember(idempotency, id),
                    State::Loose(loose) => loose.remember(idempotency, id),
                }
            }
            Kind::Kept => return self.keep(place, record, letter_is_good),
            _ => return self.happen(place, record, letter_is_good),
        }
        Ok(())
    }

    fn open(&mut self, opened: &Opened) {
        self.epoch = self.epoch.max(opened.epoch);
        self.next_mailbox = self.next_mailbox.max(opened.next_mailbox);
        (self.anchor, self.synced) = (Some(opened.anchor), opened.synced);
    }

    fn keep(&mut self, place: Place, record: &Record<'_>, is_good: bool) -> Result<(), Flaw> {
        let blank = if is_good { Vec::new() } else { self.blank.bytes.clone() };
        let letter = LetterParts::parse(if is_good { record.letter } else { &blank })?;
        let (mut kept, key_until) = decode_kept(record.fact, &letter, place)?;
        if !is_good {
            // Where it was before it was moved it may still be readable.
            match self.place_of(record.mailbox, kept.key) {
                Some(before) => kept.payload = before,
                None => {
                    self.unreadable.insert(place);
                }
            }
        }
        let key = key_until.zip(letter.key).filter(|_| is_good);
        let (id, slot) = (kept.id, kept.key.slot);
        let ward = self.ward(record.mailbox);
        ward.ghosts.remove(&slot);
        let outcome = match &mut ward.state {
            State::Exact(queue) => queue.restore(kept.clone()).map(|_| ()).map_err(|_| Flaw::Order),
            State::Loose(loose) => {
                loose.put(kept.clone());
                Ok(())
            }
        };
        if outcome.is_err() {
            ward.loosen().put(kept);
        }
        if let Some((expires, key)) = key {
            let fingerprint = mailbox_core::Fingerprint(*letter.hash);
            let idempotency = Idempotency { key: key.into(), fingerprint, expires };
            match &mut ward.state {
                State::Exact(queue) => queue.remember(idempotency, id),
                State::Loose(loose) => loose.remember(idempotency, id),
            }
        }
        outcome
    }

    /// Where the letter of a message is, if it can be read.
    fn place_of(&self, mailbox: u32, key: Key) -> Option<Place> {
        let place = match &self.wards.get(&mailbox)?.state {
            State::Exact(queue) => *queue.get(Time::ZERO, key)?.payload,
            State::Loose(loose) => loose.get(key)?.payload,
        };
        (!self.unreadable.contains(&place)).then_some(place)
    }

    fn happen(&mut self, place: Place, record: &Record<'_>, is_good: bool) -> Result<(), Flaw> {
        let blank = if is_good { Vec::new() } else { self.blank.bytes.clone() };
        let letter = match record.kind {
            Kind::Sent if is_good => Some(LetterParts::parse(record.letter)?),
            Kind::Sent => Some(LetterParts::parse(&blank)?),
            _ => None,
        };
        let (stamp, mut event) = decode_event(record.kind, record.fact, letter.as_ref(), place)?;
        if let Event::Sent { idempotency, .. } = &mut event
            && !is_good
        {
            *idempotency = None;
            self.unreadable.insert(place);
        }
        let ward = self.ward(record.mailbox);
        ward.note_ghost(&event);
        match &mut ward.state {
            State::Loose(loose) => loose.happen(stamp, event),
            State::Exact(queue) => {
                let is_sent = matches!(event, Event::Sent { .. });
                let is_known = |key| is_sent || queue.get(Time::ZERO, key).is_some();
                if event.key().is_none_or(is_known) && !queue.fits(&event) {
                    ward.loosen().happen(stamp, event);
                    return Err(Flaw::Order);
                }
                let _ = queue.replay(stamp, event);
            }
        }
        Ok(())
    }

    fn ward(&mut self, mailbox: u32) -> &mut Ward {
        let lossy = self.lossy;
        self.wards.entry(mailbox).or_insert_with(|| Ward::new(lossy))
    }

    /// Takes everything from the index of a clean stop instead, which knows what was lost.
    /// False if it cannot be read.
    pub(super) fn take_index(&mut self, bytes: &[u8], last_lsn: u64) -> bool {
        let Ok((mut reader, head)) = IndexReader::new(bytes) else { return false };
        if !self.closed || head.last_lsn != last_lsn {
            return false;
        }
        let mut wards: BTreeMap<u32, Ward> = BTreeMap::new();
        let mut mailbox = 0;
        loop {
            let ward = wards.entry(mailbox);
            match reader.next() {
                Ok(None) => break,
                Ok(Some(Item::Room { number, name, standing, .. })) => {
                    let mut ward = Ward::new(true);
                    ward.name = Some(name);
                    ward.loosen().assume(standing);
                    wards.insert(number, ward);
                    mailbox = number;
                }
                Ok(Some(Item::Message(kept))) => {
                    ward.or_insert_with(|| Ward::new(true)).loosen().put(kept);
                }
                Ok(Some(Item::Key(Remembered { id, key, fingerprint, expires }))) => {
                    let idempotency = Idempotency { key, fingerprint, expires };
                    let loose = ward.or_insert_with(|| Ward::new(true)).loosen();
                    loose.remember(idempotency, id);
                }
                Err(_) => return false,
            }
        }
        self.first_segment = self.first_segment.max(head.first_segment);
        self.wards = wards;
        true
    }

    /// The queue time it is by now.
    pub(super) fn now(&self, mark: Mark) -> Time {
        let by_anchor = self.anchor.map_or(Time::ZERO, |anchor| {
            let same_boot = anchor.boot == mark.boot && mark.boot != [0; 16];
            let passed = if same_boot { mark.at.saturating_sub(anchor.at) } else { 0 };
            anchor.time.after(std::time::Duration::from_nanos(passed))
        });
        let latest = |ward: &Ward| match &ward.state {
            State::Exact(queue) => queue.standing().latest,
            State::Loose(loose) => loose.standing.latest,
        };
        self.wards.values().map(latest).fold(by_anchor, Time::max)
    }
}

impl Ward {
    fn new(lossy: bool) -> Self {
        let state = if lossy {
            State::Loose(Box::new(Loose::new()))
        } else {
            State::Exact(Box::new(Queue::new(Policy::default(), 0)))
        };
        Self { name: None, state, ghosts: BTreeMap::new() }
    }

    /// From now on nothing is refused.
    pub(super) fn loosen(&mut self) -> &mut Loose {
        if let State::Exact(queue) = &self.state {
            self.state = State::Loose(Box::new(Loose::of(queue)));
        }
        match &mut self.state {
            State::Loose(loose) => loose,
            State::Exact(_) => unreachable!("it was made loose just now"),
        }
    }

    /// How many messages are known only by what happened to them.
    pub(super) fn ghosts(&self) -> u64 {
        self.ghosts.len() as u64
    }

    /// Messages that are known only by what happened to them, as dead letters.
    pub(super) fn take_ghosts(&mut self, number: u32, now: Time, wall_ms: i64, why: &str) {
        let ghosts = std::mem::take(&mut self.ghosts);
        let loose = self.loosen();
        for (slot, ghost) in ghosts {
            // Whoever came into its slot later proves that it is gone.
            if loose.messages.get(&slot).is_some_and(|later| later.key.seq > ghost.key.seq) {
                continue;
            }
            let stamp = loose.free_stamp();
            loose.standing.next_stamp = stamp + 1;
            loose.standing.totals.dead_lettered += 1;
            let salt = u64::from_le_bytes(crate::home::random());
            let last = ghost.last_error.map(|last| format!("; the last error was: {last}"));
            let error = format!("{why}{}", last.unwrap_or_default());
            let mut kept = Keepsake {
                key: ghost.key,
                id: ulid::compose(wall_ms, number, ghost.key, salt),
                payload: NOWHERE,
                due: now,
                stamp,
                turn: (now, 0),
                entered: ghost.at,
                order: stamp,
                hold_until: Time::MAX,
                lease: None,
                attempts: ghost.attempts,
                group: None,
                last_error: None,
                death: None,
            };
            die(&mut kept, stamp, now, DeadReason::Integrity, Some(error.into()));
            loose.put(kept);
        }
    }

    /// Keeps in mind what happened to a message that is not there.
    fn note_ghost(&mut self, event: &Event<Place>) {
        let Some(key) = event.key() else {
            if matches!(event, Event::Purged { .. }) {
                self.ghosts.retain(|_, ghost| ghost.dead);
            }
            return;
        };
        let is_over = matches!(
            event,
            Event::Sent { .. } | Event::Acknowledged { .. } | Event::Discarded { .. }
        );
        let is_there = match &self.state {
            State::Exact(queue) => queue.get(Time::ZERO, key).is_some(),
            State::Loose(loose) => loose.get(key).is_some(),
        };
        if is_over || is_there {
            self.ghosts.remove(&key.slot);
            return;
        }
        let fresh = || Ghost { key, at: event.at(), attempts: 0, dead: false, last_error: None };
        let ghost = self.ghosts.entry(key.slot).or_insert_with(fresh);
        if ghost.key != key {
            *ghost = fresh();
        }
        match event {
            Event::Delivered { .. } => ghost.attempts = ghost.attempts.saturating_add(1),
            Event::Returned { .. } => ghost.attempts = ghost.attempts.saturating_sub(1),
            Event::Nacked { error, .. } => ghost.last_error.clone_from(error),
            Event::DeadLettered { error, .. } => {
                ghost.dead = true;
                ghost.last_error.clone_from(error);
            }
            Event::Redriven { .. } => (ghost.dead, ghost.attempts) = (false, 0),
            _ => {}
        }
    }
}

/// Where the letter of a message is that is known only by what happened to it.
pub(super) const NOWHERE: Place = Place { segment: 0, offset: 0, len: 0 };
