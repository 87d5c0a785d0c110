//! A mailbox put together from whatever records there are. Invariant: every record that can be read
//! counts, also where those before it are lost: what it implies about them is taken as having
//! happened. So nothing that was acknowledged comes back, and whoever sits in a slot that was given
//! to somebody else is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mailbox_core::{
    DeadReason, Event, Fingerprint, Id, Idempotency, Keepsake, Key, LeaseId, Policy, Queue,
    Standing, Time, Totals,
};

use crate::backends::journal::format::Place;

/// The stamp of a message that gets its place in the line from the order of entering.
const NO_STAMP: u64 = 0;

/// A mailbox, and everything that is known to be in it.
#[derive(Debug)]
pub(super) struct Loose {
    pub(super) standing: Standing,
    /// By slot.
    pub(super) messages: BTreeMap<u32, Keepsake<Place>>,
    pub(super) keys: BTreeMap<Box<str>, (Fingerprint, Time, Id)>,
    /// Live messages of ordering groups: slots by group and order of entering.
    groups: BTreeMap<(Arc<str>, u64), u32>,
    /// Slots of messages that nothing was heard of since records were lost: they may have died.
    doubtful: BTreeSet<u32>,
}

impl Loose {
    pub(super) fn new() -> Self {
        let standing = Standing {
            policy: Policy::default(),
            next_seq: 0,
            next_stamp: NO_STAMP + 1,
            next_lease: LeaseId::first_of(0),
            latest: Time::ZERO,
            totals: Totals::default(),
        };
        Self {
            standing,
            messages: BTreeMap::new(),
            keys: BTreeMap::new(),
            groups: BTreeMap::new(),
            doubtful: BTreeSet::new(),
        }
    }

    /// What a queue holds.
    pub(super) fn of(queue: &Queue<Place>) -> Self {
        let mut loose = Self { standing: queue.standing(), ..Self::new() };
        for kept in queue.keepsakes() {
            let place = *kept.payload;
            loose.put(kept.with_payload(place));
        }
        for (idempotency, id) in queue.keys(loose.standing.latest) {
            loose.remember(idempotency, id);
        }
        loose
    }

    /// Takes over what is said about the mailbox as a whole.
    pub(super) fn assume(&mut self, standing: Standing) {
        let before = std::mem::replace(&mut self.standing, standing);
        let now = &mut self.standing;
        now.next_seq = now.next_seq.max(before.next_seq);
        now.next_lease = now.next_lease.max(before.next_lease);
        now.latest = now.latest.max(before.latest);
    }

    /// A message as it stands; whoever had its slot is gone.
    pub(super) fn put(&mut self, kept: Keepsake<Place>) {
        self.remove(kept.key.slot);
        self.standing.next_seq = self.standing.next_seq.max(kept.key.seq.saturating_add(1));
        if let (Some(group), None) = (&kept.group, kept.death) {
            self.groups.insert((Arc::clone(group), kept.order), kept.key.slot);
        }
        self.messages.insert(kept.key.slot, kept);
    }

    /// Records are lost here: what became of those that live is not known until they are heard of.
    pub(super) fn lose(&mut self) {
        let live = self.messages.iter().filter(|(_, kept)| kept.death.is_none());
        self.doubtful = live.map(|(slot, _)| *slot).collect();
    }

    /// A message has left the line, but nobody knows how: if it may have died, it is kept as a dead
    /// letter for somebody to look at.
    fn leave(&mut self, slot: u32) {
        let is_doubtful = self.doubtful.contains(&slot);
        let Some(mut kept) = self.remove(slot).filter(|_| is_doubtful) else { return };
        let (stamp, at) = (self.free_stamp(), self.standing.latest);
        let why = "what became of it is lost: it was purged, acknowledged, or died";
        die(&mut kept, stamp, at, DeadReason::Rejected, Some(why.into()));
        self.put(kept);
    }

    pub(super) fn remember(&mut self, idempotency: Idempotency, id: Id) {
        let Idempotency { key, fingerprint, expires } = idempotency;
        self.keys.insert(key, (fingerprint, expires, id));
    }

    fn remove(&mut self, slot: u32) -> Option<Keepsake<Place>> {
        let kept = self.messages.remove(&slot)?;
        self.doubtful.remove(&slot);
        if let Some(group) = &kept.group {
            self.groups.remove(&(Arc::clone(group), kept.order));
        }
        Some(kept)
    }

    pub(super) fn get(&self, key: Key) -> Option<&Keepsake<Place>> {
        self.messages.get(&key.slot).filter(|kept| kept.key == key)
    }

    /// Takes a message out of its slot. Only the first of an ordering group is ever touched, so
    /// that those before it are gone.
    fn take(&mut self, key: Key) -> Option<Keepsake<Place>> {
        self.get(key)?;
        let kept = self.remove(key.slot)?;
        if let (Some(group), None) = (&kept.group, kept.death) {
            let before = (Arc::clone(group), 0)..(Arc::clone(group), kept.order);
            let gone: Vec<u32> = self.groups.range(before).map(|(_, slot)| *slot).collect();
            for slot in gone {
                self.leave(slot);
            }
        }
        Some(kept)
    }

    /// Something happened to the mailbox, or to a message. Nothing if that is not there.
    pub(super) fn happen(&mut self, stamp: u64, event: Event<Place>) {
        let standing = &mut self.standing;
        standing.next_stamp = stamp.max(NO_STAMP + 1);
        standing.latest = standing.latest.max(event.at());
        if let Some(receipt) = event.receipt() {
            let next = LeaseId::from_bits(receipt.lease.to_bits().saturating_add(1));
            standing.next_lease = standing.next_lease.max(next.unwrap_or(receipt.lease));
        }
        match event {
            Event::Sent { key, id, at, due, group, idempotency, payload } => {
                self.standing.totals.sent += 1;
                if let Some(idempotency) = idempotency {
                    self.remember(*idempotency, id);
                }
                self.put(sent(stamp, key, id, at, due, group.map(Arc::from), payload));
            }
            Event::Purged { .. } => {
                let before = self.messages.len();
                let live = self.messages.iter().filter(|(_, kept)| kept.death.is_none());
                let live: Vec<u32> = live.map(|(slot, _)| *slot).collect();
                live.into_iter().for_each(|slot| self.leave(slot));
                self.standing.totals.purged += (before - self.messages.len()) as u64;
            }
            Event::Configured { policy, .. } => self.standing.policy = *policy,
            Event::Opened { .. } => {}
            other => self.change(stamp, other),
        }
    }

    /// Something happened to a message that was there before.
    fn change(&mut self, stamp: u64, event: Event<Place>) {
        let Some(mut kept) = event.key().and_then(|key| self.take(key)) else { return };
        let totals = &mut self.standing.totals;
        match event {
            Event::Delivered { lease, due, hold_until, .. } => {
                if kept.death.take().is_some() {
                    kept.attempts = 0;
                }
                kept.turn = (kept.due, kept.stamp);
                kept.attempts = kept.attempts.saturating_add(1);
                (kept.lease, kept.due, kept.hold_until) = (Some(lease), due, hold_until);
                kept.stamp = stamp;
                totals.delivered += 1;
                totals.redelivered += u64::from(kept.attempts > 1);
            }
            Event::Acknowledged { .. } => {
                totals.acknowledged += 1;
                return;
            }
            Event::Discarded { by_retention, .. } => {
                totals.retention_dropped += u64::from(by_retention);
                return;
            }
            Event::Nacked { due, error, .. } => {
                // It was delivered, whether or not that can be read.
                kept.attempts = kept.attempts.max(1);
                (kept.lease, kept.due, kept.stamp, kept.death) = (None, due, stamp, None);
                kept.last_error = error.or(kept.last_error);
            }
            Event::Extended { due, .. } => {
                kept.attempts = kept.attempts.max(1);
                (kept.due, kept.stamp, kept.death) = (due, stamp, None);
            }
            Event::Returned { .. } if kept.lease.is_some() => {
                kept.attempts = kept.attempts.saturating_sub(1);
                (kept.lease, kept.due, kept.stamp) = (None, kept.turn.0, kept.turn.1);
            }
            Event::DeadLettered { at, reason, error, .. } => {
                totals.dead_lettered += 1;
                die(&mut kept, stamp, at, reason, error);
            }
            Event::Redriven { at, .. } => {
                totals.redriven += 1;
                (kept.death, kept.last_error, kept.lease) = (None, None, None);
                (kept.attempts, kept.entered, kept.due) = (0, at, at);
                (kept.order, kept.stamp) = (stamp, if kept.group.is_some() { 0 } else { stamp });
            }
            _ => {}
        }
        self.put(kept);
    }

    /// The first number that no message has, for a place in the line or in the order of dying.
    pub(super) fn free_stamp(&self) -> u64 {
        let used = |kept: &Keepsake<Place>| kept.stamp.max(kept.order).max(kept.turn.1);
        let most = self.messages.values().map(used).max().unwrap_or(NO_STAMP);
        self.standing.next_stamp.max(most.saturating_add(1))
    }

    /// How many are delayed, invisible, and dead.
    pub(super) fn count(&self, now: Time) -> (u64, u64, u64) {
        let (mut delayed, mut invisible, mut dead) = (0, 0, 0);
        for kept in self.messages.values() {
            let is_first = || match &kept.group {
                None => true,
                Some(group) => {
                    let before = (Arc::clone(group), 0)..(Arc::clone(group), kept.order);
                    self.groups.range(before).next().is_none()
                }
            };
            if kept.death.is_some() {
                dead += 1;
            } else if kept.due > now && is_first() {
                if kept.lease.is_some() { invisible += 1 } else { delayed += 1 }
            }
        }
        (delayed, invisible, dead)
    }
}

/// A message as it is when it was just sent.
fn sent(
    stamp: u64,
    key: Key,
    id: Id,
    at: Time,
    due: Time,
    group: Option<Arc<str>>,
    payload: Place,
) -> Keepsake<Place> {
    Keepsake {
        key,
        id,
        payload,
        due,
        // One that is behind others of its group has no place of its own yet.
        stamp: if group.is_some() { NO_STAMP } else { stamp },
        turn: (due, NO_STAMP),
        entered: at,
        order: stamp,
        hold_until: Time::MAX,
        lease: None,
        attempts: 0,
        group,
        last_error: None,
        death: None,
    }
}

/// Makes a message a dead letter.
pub(super) fn die<P>(
    kept: &mut Keepsake<P>,
    stamp: u64,
    at: Time,
    reason: DeadReason,
    error: Option<Box<str>>,
) {
    (kept.lease, kept.stamp, kept.death) = (None, stamp, Some((reason, at)));
    if error.is_some() {
        kept.last_error = error;
    }
}
