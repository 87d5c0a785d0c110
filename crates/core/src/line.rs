//! Who is next, and when. The one ordered index of the queue: it answers receive, the next wake-up,
//! and the order of deliveries (D7).
//!
//! Two parts share the work. `ready` is a plain FIFO of places whose due time had come when they
//! were put there; `held` is a heap of the others. Neither is ever moved into the other when time
//! passes: the next place is the smaller of the two heads, compared by (due, stamp). So a million
//! leases that run out in the same instant cost nothing until somebody receives.
//!
//! Places are deleted lazily. A place is current while its stamp is the stamp of the message in its
//! slot; every change of `due` gives a new stamp. Invariants: both heads are current; at most half
//! of all places, plus a constant, are not.

use std::collections::VecDeque;

use crate::heap::Heap;
use crate::time::Time;

/// One message's turn. Ordered by when it becomes receivable, then by when that was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) due: Time,
    pub(crate) stamp: u64,
    pub(crate) slot: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Line {
    ready: VecDeque<Place>,
    held: Heap<Place>,
    /// How many places are current.
    current: usize,
}

/// Stale places that are not worth a clean-up.
const SLACK: usize = 64;

impl Line {
    pub(crate) const fn new() -> Self {
        Self { ready: VecDeque::new(), held: Heap::new(), current: 0 }
    }

    /// Adds a place; true if it has to be held until a later time.
    pub(crate) fn add(&mut self, place: Place, now: Time) -> bool {
        self.current += 1;
        // The FIFO stays sorted: `now` never goes back, and an older due goes to the heap.
        if place.due <= now && self.ready.back().is_none_or(|last| last.due <= place.due) {
            self.ready.push_back(place);
            false
        } else {
            self.held.push(place);
            true
        }
    }

    /// One place has become stale, because its message got another stamp or is gone.
    pub(crate) fn forget_one(&mut self) {
        self.current -= 1;
    }

    /// Restores the invariants after places have become stale.
    pub(crate) fn tidy(&mut self, is_current: impl Fn(&Place) -> bool) {
        while self.ready.front().is_some_and(|place| !is_current(place)) {
            self.ready.pop_front();
        }
        while self.held.peek().is_some_and(|place| !is_current(place)) {
            self.held.pop();
        }
        if self.ready.len() + self.held.len() > self.current * 2 + SLACK {
            self.ready.retain(&is_current);
            self.ready.shrink_to(self.ready.len() * 2);
            self.held.retain(&is_current);
        }
    }

    /// Whose turn it is at `now`.
    pub(crate) fn first(&self, now: Time) -> Option<Place> {
        let held = self.held.peek().filter(|place| place.due <= now);
        match (self.ready.front(), held) {
            (Some(ready), Some(held)) => Some(*ready.min(held)),
            (ready, held) => ready.or(held).copied(),
        }
    }

    /// When the next place becomes receivable; in the past if one is.
    pub(crate) fn next_due(&self) -> Option<Time> {
        let ready = self.ready.front().map(|place| place.due);
        let held = self.held.peek().map(|place| place.due);
        match (ready, held) {
            (Some(ready), Some(held)) => Some(ready.min(held)),
            (ready, held) => ready.or(held),
        }
    }

    /// The earliest time that a place is held for.
    pub(crate) fn next_held(&self) -> Option<Time> {
        self.held.peek().map(|place| place.due)
    }

    /// Calls `visit` with every held place whose time has come, stale ones too, until it says stop.
    pub(crate) fn visit_due(&self, now: Time, visit: impl FnMut(&Place) -> bool) {
        self.held.visit_while(|place| place.due <= now, visit);
    }

    /// Every place, stale ones too, in no order.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.ready.iter().chain(self.held.iter())
    }

    pub(crate) const fn current(&self) -> usize {
        self.current
    }

    pub(crate) fn heads(&self) -> impl Iterator<Item = &Place> {
        self.ready.front().into_iter().chain(self.held.peek())
    }
}
