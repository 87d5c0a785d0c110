//! Answers: what happened. Total on every event that a `decide_*` of the same state gave; an event
//! that does not fit is a programmer's error (or a damaged journal, see [`Queue::fits`]).

use std::sync::Arc;

use crate::entry::{Entry, Trouble};
use crate::event::{DeadReason, Event};
use crate::ids::{Key, LeaseId};
use crate::line::{Line, Place};
use crate::list::{Links, List};
use crate::queue::{NO_STAMP, Queue};
use crate::slab::NONE;
use crate::time::Time;

/// Every event takes as many numbers, whatever it needs. So the same event takes the same ones in a
/// replay that has forgotten what was before, and none that belong to the next event.
const STAMPS_PER_EVENT: u64 = 4;

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
    // Inlined as far as the three events of every message's life: after a decision the compiler
    // knows which one it is, and builds none in memory.
    #[inline(always)]
    pub fn apply(&mut self, event: Event<P>) -> Freed<P> {
        debug_assert!(self.fits(&event), "does not fit: {:?} at {:?}", event.key(), event.at());
        self.latest = self.latest.max(event.at());
        let first_stamp = self.next_stamp;
        let freed = self.make_happen(event);
        debug_assert!(self.next_stamp <= first_stamp + STAMPS_PER_EVENT, "too many stamps");
        self.next_stamp = first_stamp + STAMPS_PER_EVENT;
        freed
    }

    #[inline(always)]
    fn make_happen(&mut self, event: Event<P>) -> Freed<P> {
        match event {
            Event::Sent { key, id, at, due, group, idempotency, payload } => {
                if let Some(idempotency) = idempotency {
                    self.dedup.record(at, *idempotency, id);
                }
                self.accept(key, Entry::sent(payload, id, key.seq, at, due), group.as_deref());
                Freed::Nothing
            }
            Event::Delivered { key, lease, due, hold_until, .. } => {
                self.deliver(key, lease, due, hold_until);
                Freed::Nothing
            }
            Event::Acknowledged { key, .. } => {
                self.totals.acknowledged += 1;
                self.exit(key.slot, key.seq);
                self.drop_slot(key.slot)
            }
            other => self.apply_other(other),
        }
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

    fn apply_other(&mut self, event: Event<P>) -> Freed<P> {
        if let Some(key) = event.key() {
            // Always: a stale event must never change whoever has the slot by now.
            assert!(self.entry(key).is_some(), "no such message: {key:?}");
        }
        match event {
            Event::Sent { .. } | Event::Delivered { .. } | Event::Acknowledged { .. } => {
                unreachable!("applied before it comes here")
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

    pub(super) fn entry_mut(&mut self, slot: u32) -> &mut Entry<P> {
        self.slab.get_mut(slot).expect("the event fits: its slot is full")
    }

    /// A new message comes in at the end.
    #[inline(always)]
    fn accept(&mut self, key: Key, mut entry: Entry<P>, group: Option<&str>) {
        self.next_seq = self.next_seq.max(key.seq + 1);
        self.totals.sent += 1;
        if group.is_some() {
            self.slab.fill(key.slot, entry);
            return self.enter(key.slot, group);
        }
        // As `enter` does it, but before the message is in its slot: one look-up instead of four.
        entry.links = self.live.append(&mut self.slab, key.slot);
        entry.stamp = self.new_stamp();
        entry.order = entry.stamp;
        let place = Place { due: entry.due, stamp: entry.stamp, slot: key.slot };
        entry.held = self.line.add(place, self.latest, false);
        self.held_back += u64::from(entry.held);
        self.slab.fill(key.slot, entry);
    }

    /// A message that is not in line comes in at the end.
    fn enter(&mut self, slot: u32, group: Option<&str>) {
        self.live.push_back(&mut self.slab, slot);
        let order = self.new_stamp();
        self.entry_mut(slot).order = order;
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
    #[inline]
    fn exit(&mut self, slot: u32, seq: u64) {
        let entry = self.slab.get_mut(slot).expect("the event fits: its slot is full");
        // Always: a stale event must never change whoever has the slot by now.
        assert!(entry.seq == seq, "no such message: {seq} in slot {slot}");
        let group = std::mem::replace(&mut entry.group, NONE);
        let links = std::mem::replace(&mut entry.links, Links::NONE);
        let stamp = std::mem::replace(&mut entry.stamp, NO_STAMP);
        let (held, leased) = (entry.held, entry.lease.is_some());
        self.unplace(held, leased, stamp);
        self.live.close_gap(&mut self.slab, links);
        if group != NONE {
            self.move_up(group, slot);
        }
        self.tidy();
    }

    /// The head of a group has left the line: its successor takes its place.
    fn move_up(&mut self, group: u32, slot: u32) {
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

    pub(super) fn place_at(&mut self, slot: u32, stamp: u64) {
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

    /// Gives up a message's place. True if it is gone at once, so that its stamp can be used again;
    /// otherwise the message must get a new one, or be gone, before the line is tidied.
    #[inline]
    pub(super) fn unplace(&mut self, held: bool, leased: bool, stamp: u64) -> bool {
        self.leased -= u64::from(held && leased);
        self.held_back -= u64::from(held && !leased);
        self.line.leave(stamp, held, leased)
    }

    fn move_to(&mut self, slot: u32, due: Time, lease: Option<LeaseId>) {
        let entry = self.entry_mut(slot);
        let (held, leased, stamp) = (entry.held, entry.lease.is_some(), entry.stamp);
        entry.due = due;
        entry.lease = lease;
        self.unplace(held, leased, stamp);
        self.place(slot);
        self.tidy();
    }

    #[inline]
    fn deliver(&mut self, key: Key, lease: LeaseId, due: Time, hold_until: Time) {
        let slot = key.slot;
        self.next_lease = self.next_lease.max(lease.next());
        let new_stamp = self.new_stamp();
        let entry = self.slab.get_mut(slot).expect("the event fits: its slot is full");
        // Always: a stale event must never change whoever has the slot by now.
        assert!(entry.seq == key.seq, "no such message: {key:?}");
        let timed_out = entry.lease.is_some();
        self.leased -= u64::from(entry.held && timed_out);
        self.held_back -= u64::from(entry.held && !timed_out);
        // Its place can be taken again if it is gone from the line now, as a first one is. A
        // journal that was put together anew may hand out another; that goes behind its equals.
        let gone = self.line.leave(entry.stamp, entry.held, timed_out);
        entry.turn = (entry.due, if gone { entry.stamp } else { new_stamp });
        entry.attempts = entry.attempts.saturating_add(1);
        entry.hold_until = hold_until;
        entry.due = due;
        entry.lease = Some(lease);
        entry.stamp = if gone { new_stamp } else { new_stamp + 1 };
        entry.held = self.line.add(Place { due, stamp: entry.stamp, slot }, self.latest, true);
        self.next_stamp = entry.stamp + 1;
        self.leased += u64::from(entry.held);
        self.totals.delivered += 1;
        self.totals.redelivered += u64::from(entry.attempts > 1);
        self.totals.timed_out += u64::from(timed_out);
        self.tidy();
    }

    #[inline]
    pub(super) fn tidy(&mut self) {
        let slab = &self.slab;
        self.line.tidy(|place| slab.get(place.slot).is_some_and(|entry| entry.is_at(place)));
    }

    /// The delivery did not happen: the message is where it was in line.
    fn undo(&mut self, slot: u32) {
        let entry = self.entry_mut(slot);
        let (held, leased, stamp) = (entry.held, entry.lease.is_some(), entry.stamp);
        entry.attempts -= 1;
        entry.lease = None;
        let turn = entry.turn;
        entry.due = turn.0;
        self.unplace(held, leased, stamp);
        self.place_at(slot, turn.1);
        self.tidy();
    }

    fn note_error(&mut self, slot: u32, error: Option<Box<str>>) {
        if error.is_some() {
            self.entry_mut(slot).trouble.get_or_insert_default().last_error = error;
        }
    }

    fn bury(&mut self, slot: u32, reason: DeadReason, at: Time) {
        let entry = self.entry_mut(slot);
        let (seq, group) = (entry.seq, entry.group);
        let group = self.groups.key(group).map(Arc::clone);
        // Before its successor takes one: whether that is there yet depends on what a replay has
        // read so far, and a cursor into the dead letters must not.
        let stamp = self.new_stamp();
        self.exit(slot, seq);
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
        entry.stamp = NO_STAMP;
        self.enter(slot, trouble.and_then(|trouble| trouble.group).as_deref());
    }

    #[inline(always)]
    fn drop_slot(&mut self, slot: u32) -> Freed<P> {
        match self.slab.take(slot, |entry| entry.payload.take()) {
            Some(Some(payload)) => Freed::One(payload),
            _ => Freed::Nothing,
        }
    }

    fn purge(&mut self) -> Freed<P> {
        let mut gone = Vec::with_capacity(usize::try_from(self.live.len()).unwrap_or(0));
        let mut slot = self.live.head;
        while let Some(entry) = self.slab.get(slot) {
            let next = entry.links.next;
            if let Freed::One(payload) = self.drop_slot(slot) {
                gone.push(payload);
            }
            slot = next;
        }
        // Only live messages have a place in the line, or are in a group.
        self.live = List::new();
        self.line = Line::new();
        self.groups.clear();
        (self.leased, self.held_back) = (0, 0);
        self.totals.purged += gone.len() as u64;
        Freed::Many(gone)
    }
}
