//! Taking a queue apart and putting it together again: how a journal forgets the past without
//! losing the present. Invariant: the live and every ordering group are in order of entering,
//! the dead in order of their stamps, the line in order of (due, stamp). All four can
//! be worked out from the messages alone, so it does not matter in which order those come back.

use std::sync::Arc;

use crate::dedup::{Fingerprint, Idempotency};
use crate::entry::{Entry, Trouble};
use crate::event::Event;
use crate::groups::Joined;
use crate::ids::{Id, Key};
use crate::keepsake::{Keepsake, Standing};
use crate::list::{Links, List};
use crate::queue::{Freed, NO_STAMP, Queue};
use crate::slab::NONE;
use crate::time::Time;

/// What became of a stored event.
#[derive(Debug)]
#[must_use = "an event that does not fit means that the journal is damaged"]
pub enum Replayed<P> {
    /// It is part of the queue now.
    Applied(Freed<P>),
    /// Its message is not there: what was written of it before is forgotten, and either it is gone
    /// or it comes back later as it stands then.
    Unknown,
    /// It contradicts what the queue knows.
    Misfit,
}

impl<P> Queue<P> {
    /// The number that the next place in the line gets. Stored with every event, so that a replay
    /// that starts in the middle gives the same numbers.
    #[must_use]
    pub const fn next_stamp(&self) -> u64 {
        self.next_stamp
    }

    /// What it knows besides its messages.
    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing {
            policy: self.policy.clone(),
            next_seq: self.next_seq,
            next_stamp: self.next_stamp,
            next_lease: self.next_lease,
            latest: self.latest,
            totals: self.totals,
        }
    }

    /// Takes over what was known. Numbers that are never reused and time do not go back.
    pub fn assume(&mut self, standing: Standing) {
        self.policy = standing.policy;
        self.next_seq = self.next_seq.max(standing.next_seq);
        self.next_stamp = standing.next_stamp.max(NO_STAMP + 1);
        self.next_lease = self.next_lease.max(standing.next_lease);
        self.latest = self.latest.max(standing.latest);
        self.totals = standing.totals;
    }

    /// A message as it stands.
    #[must_use]
    pub fn keepsake(&self, key: Key) -> Option<Keepsake<&P>> {
        self.entry(key).map(|entry| self.keep(key.slot, entry))
    }

    /// Every message as it stands: the live, then the dead, each in order.
    pub fn keepsakes(&self) -> impl Iterator<Item = Keepsake<&P>> {
        let all = self.live.iter(&self.slab).chain(self.dead.iter(&self.slab));
        all.map(|(slot, entry)| self.keep(slot, entry))
    }

    fn keep<'a>(&self, slot: u32, entry: &'a Entry<P>) -> Keepsake<&'a P> {
        let trouble = entry.trouble.as_deref();
        let group = self.groups.key(entry.group).map(Arc::clone);
        Keepsake {
            key: Key { seq: entry.seq, slot },
            id: entry.id,
            payload: entry.payload(),
            due: entry.due,
            stamp: entry.stamp,
            turn: entry.turn,
            entered: entry.entered,
            order: entry.order,
            hold_until: entry.hold_until,
            lease: entry.lease,
            attempts: entry.attempts,
            group: group.or_else(|| trouble.and_then(|trouble| trouble.group.clone())),
            last_error: trouble.and_then(|trouble| trouble.last_error.clone()),
            death: trouble.and_then(|trouble| trouble.death),
        }
    }

    /// Puts a message back. If it is there already, only what stands for its payload changes, and
    /// the old one comes back. Call [`Queue::put_in_order`] after the last one.
    ///
    /// # Errors
    /// The payload, if somebody else is in its slot.
    pub fn restore(&mut self, keepsake: Keepsake<P>) -> Result<Option<P>, P> {
        let key = keepsake.key;
        match self.slab.get(key.slot) {
            Some(entry) if entry.seq == key.seq => Ok(self.relocate(key, keepsake.payload)),
            Some(_) => Err(keepsake.payload),
            None if key.slot == NONE || key.seq == u64::MAX => Err(keepsake.payload),
            None => {
                self.bring_back(keepsake);
                Ok(None)
            }
        }
    }

    /// Gives a message something else to stand for its payload; the old one comes back. `None` if
    /// there is no such message.
    pub fn relocate(&mut self, key: Key, payload: P) -> Option<P> {
        let entry = self.slab.get_mut(key.slot).filter(|entry| entry.seq == key.seq)?;
        entry.payload.replace(payload)
    }

    fn bring_back(&mut self, keepsake: Keepsake<P>) {
        let Keepsake { key, group, last_error, death, .. } = keepsake;
        self.next_seq = self.next_seq.max(key.seq + 1);
        if let Some(lease) = keepsake.lease {
            self.next_lease = self.next_lease.max(lease.next());
        }
        let dead_group = death.and_then(|_| group.clone());
        let has_trouble = last_error.is_some() || death.is_some();
        let trouble = Trouble { last_error, death, group: dead_group };
        let entry = Entry {
            payload: Some(keepsake.payload),
            id: keepsake.id,
            seq: key.seq,
            due: keepsake.due,
            stamp: keepsake.stamp,
            turn: keepsake.turn,
            entered: keepsake.entered,
            order: keepsake.order,
            hold_until: keepsake.hold_until,
            lease: keepsake.lease,
            links: Links::NONE,
            attempts: keepsake.attempts,
            group: NONE,
            behind: NONE,
            held: false,
            trouble: has_trouble.then(|| Box::new(trouble)),
        };
        self.slab.fill(key.slot, entry);
        if death.is_some() {
            return self.dead.push_back(&mut self.slab, key.slot);
        }
        self.live.push_back(&mut self.slab, key.slot);
        match group {
            None => self.place_at(key.slot, keepsake.stamp),
            Some(group) => self.bring_into_group(key.slot, keepsake.stamp, &group),
        }
    }

    fn bring_into_group(&mut self, slot: u32, stamp: u64, key: &str) {
        let (group, joined) = self.groups.insert(&mut self.slab, key, slot);
        let entry = self.entry_mut(slot);
        entry.group = group;
        // It had no place because others were before it. As long as they are not back it needs one;
        // the number of its entering is nobody's stamp.
        let stamp = if stamp == NO_STAMP { entry.order } else { stamp };
        match joined {
            Joined::Behind => {}
            Joined::Head => self.place_at(slot, stamp),
            Joined::Before(former) => {
                let entry = self.entry_mut(former);
                let (held, leased) = (entry.held, entry.lease.is_some());
                let former_stamp = std::mem::replace(&mut entry.stamp, NO_STAMP);
                entry.held = false;
                self.unplace(held, leased, former_stamp);
                self.place_at(slot, stamp);
                self.tidy();
            }
        }
    }

    /// Applies a stored event whose message may have been forgotten. `stamp` is what
    /// [`Queue::next_stamp`] gave when it happened.
    pub fn replay(&mut self, stamp: u64, event: Event<P>) -> Replayed<P> {
        self.next_stamp = stamp.max(NO_STAMP + 1);
        let is_sent = matches!(event, Event::Sent { .. });
        if !is_sent && event.key().is_some_and(|key| self.entry(key).is_none()) {
            self.latest = self.latest.max(event.at());
            self.pass_over(&event);
            return Replayed::Unknown;
        }
        if !self.fits(&event) {
            return Replayed::Misfit;
        }
        Replayed::Applied(self.apply(event))
    }

    /// What an event leaves behind besides what it does to its message.
    fn pass_over(&mut self, event: &Event<P>) {
        if let Some(receipt) = event.receipt() {
            self.next_lease = self.next_lease.max(receipt.lease.next());
        }
        let totals = &mut self.totals;
        match event {
            Event::Delivered { .. } => totals.delivered += 1,
            Event::Acknowledged { .. } => totals.acknowledged += 1,
            Event::DeadLettered { .. } => totals.dead_lettered += 1,
            Event::Redriven { .. } => totals.redriven += 1,
            Event::Discarded { by_retention, .. } => {
                totals.retention_dropped += u64::from(*by_retention);
            }
            _ => {}
        }
    }

    /// Puts the live and the dead in order after messages have come back in any.
    pub fn put_in_order(&mut self) {
        let live = std::mem::replace(&mut self.live, List::new());
        self.live = live.sorted_by_key(&mut self.slab, |entry| entry.order);
        let dead = std::mem::replace(&mut self.dead, List::new());
        self.dead = dead.sorted_by_key(&mut self.slab, |entry| entry.stamp);
    }

    /// Remembers an idempotency key whose message may be gone.
    pub fn remember(&mut self, idempotency: Idempotency, id: Id) {
        if self.remembered(&idempotency.key, id)
            != Some((idempotency.fingerprint, idempotency.expires))
        {
            self.dedup.record(self.latest, idempotency, id);
        }
    }

    /// What is remembered of the message `id` under an idempotency key: fingerprint and expiry.
    #[must_use]
    pub fn remembered(&self, key: &str, id: Id) -> Option<(Fingerprint, Time)> {
        let known = self.dedup.get(key).filter(|known| known.id == id)?;
        Some((known.fingerprint, known.expires))
    }

    /// Every idempotency key that is remembered at `now`, in order of expiry.
    pub fn keys(&self, now: Time) -> impl Iterator<Item = (Idempotency, Id)> {
        self.dedup.in_order(self.not_before(now))
    }
}
