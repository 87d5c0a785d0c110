//! The queue itself: its parts, and what can be asked without changing it.

mod apply;
mod check;
mod decide;
mod restore;

use crate::dedup::Dedup;
use crate::entry::{Entry, View};
use crate::groups::Groups;
use crate::ids::{Key, LeaseId};
use crate::line::{Line, Place};
use crate::list::List;
use crate::policy::Policy;
use crate::slab::Slab;
use crate::stats::{Stats, Totals};
use crate::time::Time;

pub use apply::Freed;
pub use restore::Replayed;

/// The stamp of a message that never had a place in the line. No place has it: a stale one, left
/// by whoever had the slot before, must not become the place of a message that has none.
pub(crate) const NO_STAMP: u64 = 0;

/// Messages in line, in flight and dead, generic over what stands for a payload.
///
/// See the crate documentation for how it is driven.
#[derive(Debug, Clone)]
pub struct Queue<P> {
    pub(crate) policy: Policy,
    pub(crate) slab: Slab<Entry<P>>,
    pub(crate) line: Line,
    pub(crate) live: List,
    pub(crate) dead: List,
    pub(crate) groups: Groups,
    pub(crate) dedup: Dedup,
    pub(crate) next_seq: u64,
    pub(crate) next_stamp: u64,
    pub(crate) next_lease: LeaseId,
    /// The latest time ever seen: a clock that steps back is not followed.
    pub(crate) latest: Time,
    /// Messages with a lease whose place is held for a later time, passed by now or not. (A lease
    /// of zero length is never held.)
    pub(crate) leased: u64,
    /// Messages without a lease whose place is held for a later time, passed by now or not.
    pub(crate) held_back: u64,
    pub(crate) totals: Totals,
}

impl<P> Queue<P> {
    /// An empty queue in epoch 0. `seed` keys its hash tables: take it from a random source where
    /// keys come from strangers; the same events give the same queue whatever it is.
    #[must_use]
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            slab: Slab::new(),
            line: Line::new(),
            live: List::new(),
            dead: List::new(),
            groups: Groups::new(seed),
            dedup: Dedup::new(seed),
            next_seq: 0,
            next_stamp: NO_STAMP + 1,
            next_lease: LeaseId::first_of(0),
            latest: Time::ZERO,
            leased: 0,
            held_back: 0,
            totals: Totals::default(),
        }
    }

    /// The rules it keeps.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The key that the next new message will get; lets a home build it into the message's id.
    #[must_use]
    pub fn next_key(&self) -> Key {
        Key { seq: self.next_seq, slot: self.slab.vacant() }
    }

    /// Whether a message is receivable at `now`.
    #[must_use]
    pub fn is_receivable(&self, now: Time) -> bool {
        self.line.first(self.not_before(now)).is_some()
    }

    /// When the next message becomes receivable (in the past if one is), or never.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        self.line.next_due()
    }

    /// Delayed, ready and invisible messages together (M2). Exact.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.live.len()
    }

    /// The message with this key, in whatever state.
    #[must_use]
    pub fn get(&self, now: Time, key: Key) -> Option<View<'_, P>> {
        self.entry(key).map(|entry| self.view(key.slot, entry, self.not_before(now)))
    }

    /// The message in this slot, in whatever state: for homes whose ids carry the slot.
    #[must_use]
    pub fn in_slot(&self, now: Time, slot: u32) -> Option<View<'_, P>> {
        self.slab.get(slot).map(|entry| self.view(slot, entry, self.not_before(now)))
    }

    /// The message whose turn it is at `now`.
    #[must_use]
    pub fn first(&self, now: Time) -> Option<View<'_, P>> {
        let now = self.not_before(now);
        let place = self.line.first(now)?;
        self.slab.get(place.slot).map(|entry| self.view(place.slot, entry, now))
    }

    /// Live messages, oldest first.
    pub fn iter_live(&self, now: Time) -> impl Iterator<Item = View<'_, P>> {
        let now = self.not_before(now);
        self.live.iter(&self.slab).map(move |(slot, entry)| self.view(slot, entry, now))
    }

    /// Dead letters, in order of dying.
    pub fn iter_dead(&self, now: Time) -> impl Iterator<Item = View<'_, P>> {
        let now = self.not_before(now);
        self.dead.iter(&self.slab).map(move |(slot, entry)| self.view(slot, entry, now))
    }

    /// How many messages are in which state. Costs what is due but not received yet, no more.
    #[must_use]
    pub fn stats(&self, now: Time) -> Stats {
        let now = self.not_before(now);
        let current = |place: &Place| u64::from(self.is_current(place));
        let (mut leases_over, mut delays_over) = (0, 0);
        self.line.visit_leases_over(now, |place| {
            leases_over += current(place);
            true
        });
        self.line.visit_delays_over(now, |place| {
            delays_over += current(place);
            true
        });
        let invisible = self.leased - leases_over;
        let delayed = self.held_back - delays_over;
        Stats {
            delayed,
            invisible,
            ready: self.live.len() - invisible - delayed,
            dead: self.dead.len(),
            oldest_age: self.slab.get(self.live.head).map(|oldest| now.since(oldest.entered)),
            dedup_entries: self.dedup.unexpired(now) as u64,
            totals: self.totals,
        }
    }

    /// When [`Queue::decide_expire`] next has something to do, at the earliest.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Time> {
        let retention = &self.policy.retention;
        let oldest_live = self.slab.get(self.live.head).and_then(|oldest| {
            let over = retention.ready_count.is_some_and(|most| self.live.len() > most);
            let aged = retention.ready_age.map(|age| oldest.entered.after(age));
            let from = if over { Some(self.latest) } else { aged }?;
            // A message in flight is left alone until its lease is over.
            Some(if oldest.lease.is_some() { from.max(oldest.due) } else { from })
        });
        let oldest_dead = self.slab.get(self.dead.head).and_then(|oldest| {
            let over = retention.dead_count.is_some_and(|most| self.dead.len() > most);
            let aged = retention.dead_age.zip(oldest.death()).map(|(age, (_, at))| at.after(age));
            if over { Some(self.latest) } else { aged }
        });
        oldest_live.into_iter().chain(oldest_dead).min()
    }

    fn view<'a>(&self, slot: u32, entry: &'a Entry<P>, now: Time) -> View<'a, P> {
        entry.view(slot, now, !self.groups.is_head(entry.group, slot))
    }

    /// `now`, unless the clock has stepped back.
    pub(crate) fn not_before(&self, now: Time) -> Time {
        now.max(self.latest)
    }

    /// Whether a place in the line is still the one of its message.
    pub(crate) fn is_current(&self, place: &Place) -> bool {
        self.slab.get(place.slot).is_some_and(|entry| entry.is_at(place))
    }

    pub(crate) fn entry(&self, key: Key) -> Option<&Entry<P>> {
        self.slab.get(key.slot).filter(|entry| entry.seq == key.seq)
    }
}
