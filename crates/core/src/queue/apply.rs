//! Answers: what happened. Total on every event that a `decide_*` of the same state gave; an event
//! that does not fit is a programmer's error (or a damaged journal, see [`Queue::fits`]).

use std::sync::Arc;

use crate::entry::{Entry, Trouble};
use crate::event::{DeadReason, Event};
use crate::ids::{Key, LeaseId};
use crate::line::Place;
use crate::list::Links;
use crate::queue::Queue;
use crate::slab::NONE;
use crate::time::Time;

/// Payloads that left the queue with an event: drop them after the lock is released.
#[derive(Debug)]
#[must_use = "payloads are best dropped outside the lock"]
pub enum Freed<P> {
    /// None did.
    Nothing,
    /// One did: acknowledged, or a dead letter deleted.
    One(P),
    /// All these were purged.
    Many(Vec<P>),
}

impl<P> Queue<P> {
    /// Makes `event` part of the queue's history.
    ///
    /// # Panics
    /// If the event does not fit this state; see [`Queue::fits`].
    pub fn apply(&mut self, event: Event<P>) -> Freed<P> {
        // Cheap beside what a stale event would do to whoever has the slot now.
        assert!(self.fits(&event), "an event does not fit: {:?} at {:?}", event.key(), event.at());
        self.latest = self.latest.max(event.at());
        let freed = self.apply_inner(event);
        let slab = &self.slab;
        self.line.tidy(|place| slab.get(place.slot).is_some_and(|entry| entry.is_at(place)));
        freed
    }

    /// Whether `event` can be applied to this state. Homes that decide and apply under one lock
    /// need not ask; a replay of stored events should.
    #[must_use]
    pub fn fits(&self, event: &Event<P>) -> bool {
        let first = |key: Key| {
            self.entry(key).filter(|entry| {
                entry.death().is_none() && self.groups.is_head(entry.group, key.slot)
            })
        };
        match event {
            Event::Sent { key, .. } => {
                key.slot < NONE && key.seq < u64::MAX && self.slab.get(key.slot).is_none()
            }
            // Its time has come, and this is not a delivery that it already had.
            Event::Delivered { key, lease, at, .. } => {
                first(*key).is_some_and(|entry| entry.due <= *at && entry.lease < Some(*lease))
            }
            Event::Acknowledged { key, .. }
            | Event::Nacked { key, .. }
            | Event::Extended { key, .. }
            | Event::Returned { key, .. } => first(*key).is_some_and(|entry| entry.lease.is_some()),
            Event::DeadLettered { key, .. } => first(*key).is_some(),
            Event::Redriven { key, .. } | Event::Discarded { key, .. } => {
                self.entry(*key).is_some_and(|entry| entry.death().is_some())
            }
            Event::Opened { epoch, .. } => *epoch <= LeaseId::MAX_EPOCH,
            Event::Purged { .. } | Event::Configured { .. } => true,
        }
    }

    fn apply_inner(&mut self, event: Event<P>) -> Freed<P> {
        match event {
            Event::Sent { key, id, at, due, group, idempotency, payload } => {
                if let Some(idempotency) = idempotency {
                    self.dedup.record(at, idempotency, id);
                }
                self.next_seq = self.next_seq.max(key.seq + 1);
                self.totals.sent += 1;
                let entry = Entry {
                    payload,
                    id,
                    seq: key.seq,
                    due,
                    stamp: 0,
                    turn: (due, 0),
                    entered: at,
                    hold_until: Time::MAX,
                    lease: None,
                    links: Links::NONE,
                    attempts: 0,
                    group: NONE,
                    behind: NONE,
                    held: false,
                    trouble: None,
                };
                self.slab.fill(key.slot, entry);
                self.enter(key.slot, group.as_deref());
            }
            Event::Delivered { key, lease, due, hold_until, .. } => {
                self.deliver(key.slot, lease, due, hold_until);
            }
            Event::Acknowledged { key, .. } => {
                self.totals.acknowledged += 1;
                self.exit(key.slot);
                return self.drop_slot(key.slot);
            }
            Event::Nacked { key, due, error, .. } => {
                self.note_error(key.slot, error);
                self.move_to(key.slot, due, None);
            }
            Event::Extended { key, due, .. } => {
                let lease = self.entry_mut(key.slot).lease;
                self.move_to(key.slot, due, lease);
            }
            Event::Returned { key, .. } => self.undo(key.slot),
            Event::DeadLettered { key, at, reason, error } => {
                self.note_error(key.slot, error);
                self.bury(key.slot, reason, at);
            }
            Event::Redriven { key, at } => self.revive(key.slot, at),
            Event::Discarded { key, by_retention, .. } => {
                self.totals.retention_dropped += u64::from(by_retention);
                self.dead.unlink(&mut self.slab, key.slot);
                return self.drop_slot(key.slot);
            }
            Event::Purged { .. } => return self.purge(),
            Event::Configured { policy, .. } => self.policy = *policy,
            Event::Opened { epoch, .. } => {
                self.next_lease = self.next_lease.max(LeaseId::first_of(epoch));
            }
        }
        Freed::Nothing
    }

    fn entry_mut(&mut self, slot: u32) -> &mut Entry<P> {
        self.slab.get_mut(slot).expect("the event fits: its slot is full")
    }

    /// A message that is not in line comes in at the end.
    fn enter(&mut self, slot: u32, group: Option<&str>) {
        self.live.push_back(&mut self.slab, slot);
        if let Some(key) = group {
            let (group, head) = self.groups.join(&mut self.slab, key, slot);
            self.entry_mut(slot).group = group;
            if !head {
                return;
            }
        }
        self.place(slot);
    }

    /// A message leaves the line and its group; its successor there moves up.
    fn exit(&mut self, slot: u32) {
        self.unplace(slot);
        self.live.unlink(&mut self.slab, slot);
        let group = std::mem::replace(&mut self.entry_mut(slot).group, NONE);
        if group == NONE {
            return;
        }
        if let Some(next) = self.groups.leave(&mut self.slab, group, slot) {
            let latest = self.latest;
            let entry = self.entry_mut(next);
            entry.due = entry.due.max(latest);
            self.place(next);
        }
    }

    /// Gives a message a place in the line for its `due`, behind those with the same.
    fn place(&mut self, slot: u32) {
        let stamp = self.new_stamp();
        self.place_at(slot, stamp);
    }

    fn new_stamp(&mut self) -> u64 {
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        stamp
    }

    fn place_at(&mut self, slot: u32, stamp: u64) {
        let now = self.latest;
        let entry = self.slab.get_mut(slot).expect("the event fits: its slot is full");
        entry.stamp = stamp;
        let place = Place { due: entry.due, stamp, slot };
        entry.held = self.line.add(place, now, entry.lease.is_some());
        match (entry.held, entry.lease) {
            (true, Some(_)) => self.leased += 1,
            (true, None) => self.held_back += 1,
            (false, _) => {}
        }
    }

    /// Makes the place of a message stale. A new stamp must follow, or the slot be emptied.
    fn unplace(&mut self, slot: u32) {
        let entry = self.slab.get(slot).expect("the event fits: its slot is full");
        match (entry.held, entry.lease) {
            (true, Some(_)) => self.leased -= 1,
            (true, None) => self.held_back -= 1,
            (false, _) => {}
        }
        self.line.forget_one();
    }

    fn move_to(&mut self, slot: u32, due: Time, lease: Option<LeaseId>) {
        self.unplace(slot);
        let entry = self.entry_mut(slot);
        entry.due = due;
        entry.lease = lease;
        self.place(slot);
    }

    fn deliver(&mut self, slot: u32, lease: LeaseId, due: Time, hold_until: Time) {
        self.next_lease = self.next_lease.max(lease.next());
        // The stamp can be used again if its place leaves the line now, as the first one does. A
        // journal that was put together anew may hand out another; that one goes behind its equals.
        let first = self.line.first(self.latest).is_some_and(|place| place.slot == slot);
        let stamp = if first { self.entry_mut(slot).stamp } else { self.new_stamp() };
        let entry = self.entry_mut(slot);
        entry.turn = (entry.due, stamp);
        let timed_out = entry.lease.is_some();
        entry.attempts = entry.attempts.saturating_add(1);
        entry.hold_until = hold_until;
        let again = entry.attempts > 1;
        self.totals.delivered += 1;
        self.totals.redelivered += u64::from(again);
        self.totals.timed_out += u64::from(timed_out);
        self.move_to(slot, due, Some(lease));
    }

    /// The delivery did not happen: the message is where it was in line.
    fn undo(&mut self, slot: u32) {
        self.unplace(slot);
        let entry = self.entry_mut(slot);
        entry.attempts -= 1;
        entry.lease = None;
        let (due, stamp) = entry.turn;
        entry.due = due;
        self.place_at(slot, stamp);
    }

    fn note_error(&mut self, slot: u32, error: Option<Box<str>>) {
        if error.is_some() {
            self.entry_mut(slot).trouble.get_or_insert_default().last_error = error;
        }
    }

    fn bury(&mut self, slot: u32, reason: DeadReason, at: Time) {
        let group = self.entry_mut(slot).group;
        let group = self.groups.key(group).map(Arc::clone);
        self.exit(slot);
        let stamp = self.new_stamp();
        let entry = self.entry_mut(slot);
        entry.stamp = stamp;
        // A consumer may give one of these reasons too, but not because its time was over.
        let by_itself = matches!(reason, DeadReason::MaxAttempts | DeadReason::Expired);
        let timed_out = entry.lease.take().is_some() && by_itself && entry.due <= at;
        entry.held = false;
        let trouble: &mut Trouble = entry.trouble.get_or_insert_default();
        trouble.death = Some((reason, at));
        trouble.group = group;
        self.totals.timed_out += u64::from(timed_out);
        self.totals.dead_lettered += 1;
        self.dead.push_back(&mut self.slab, slot);
    }

    fn revive(&mut self, slot: u32, at: Time) {
        self.totals.redriven += 1;
        self.dead.unlink(&mut self.slab, slot);
        let entry = self.entry_mut(slot);
        let trouble = entry.trouble.take();
        entry.attempts = 0;
        entry.entered = at;
        entry.due = at;
        self.enter(slot, trouble.and_then(|trouble| trouble.group).as_deref());
    }

    fn drop_slot(&mut self, slot: u32) -> Freed<P> {
        match self.slab.take(slot) {
            Some(entry) => Freed::One(entry.payload),
            None => Freed::Nothing,
        }
    }

    fn purge(&mut self) -> Freed<P> {
        let mut gone = Vec::with_capacity(usize::try_from(self.live.len()).unwrap_or(0));
        while self.live.len() > 0 {
            // The oldest message is the head of its group, so it can always leave.
            let slot = self.live.head;
            self.exit(slot);
            if let Freed::One(payload) = self.drop_slot(slot) {
                gone.push(payload);
            }
        }
        self.totals.purged += gone.len() as u64;
        Freed::Many(gone)
    }
}
