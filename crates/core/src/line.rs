//! Who is next, and when. The one ordered index of the queue: it answers receive, the next wake-up,
//! and the order of deliveries (D7).
//!
//! Three parts share the work. `ready` is a plain FIFO of places whose due time had come when they
//! were put there; `leases` and `delays` are heaps of the others. None is ever moved into another
//! when time passes: the next place is the smallest of the three heads, compared by (due, stamp).
//! So a million leases that run out in the same instant cost nothing until somebody receives. The
//! two heaps are apart so that counting leases that are over never walks over delays that are.
//!
//! Places are deleted lazily. A place is current while its stamp is the stamp of the message in its
//! slot; every change of `due` gives a new stamp. Stale ones are swept out of the heaps a few at a
//! time, so that no single event pays for a million others. Invariants: all heads are current; at
//! most half of the places in each part, plus a constant, are not; `ready` is sorted.

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
    /// How many places in `ready` are current.
    ready_current: usize,
    leases: Held,
    delays: Held,
}

/// Places that wait for a later time.
#[derive(Debug, Clone)]
struct Held {
    heap: Heap<Place>,
    /// How many of them are current.
    current: usize,
}

/// Stale places, and unused room, that are not worth a clean-up.
const SLACK: usize = 64;

/// Places looked at for each one that becomes stale, once a third of them are: as many as leave on
/// average, so that the share stays there.
const SWEEP: usize = 4;

impl Held {
    const fn new() -> Self {
        Self { heap: Heap::new(), current: 0 }
    }

    #[inline]
    fn push(&mut self, place: Place) {
        self.current += 1;
        self.heap.push(place);
    }

    /// As [`Line::leave`].
    #[inline]
    fn leave(&mut self, stamp: u64) -> bool {
        self.current -= 1;
        let first = self.heap.peek().is_some_and(|place| place.stamp == stamp);
        if first {
            self.heap.pop();
        }
        first
    }

    #[inline]
    fn tidy(&mut self, is_current: impl Fn(&Place) -> bool) {
        if self.heap.len() > self.current {
            self.drop_stale(is_current);
        }
        self.heap.give_back(SLACK);
    }

    fn drop_stale(&mut self, is_current: impl Fn(&Place) -> bool) {
        while self.heap.peek().is_some_and(|place| !is_current(place)) {
            self.heap.pop();
        }
        if self.heap.len() > self.current + self.current / 2 + SLACK {
            self.heap.sweep(SWEEP, &is_current);
        }
        // The broom may leave some behind when others are moved past it; that has an end too.
        if !self.is_tidy() {
            self.heap.retain(&is_current);
        }
    }

    fn is_tidy(&self) -> bool {
        self.heap.len() <= self.current * 2 + SLACK
    }
}

impl Line {
    pub(crate) const fn new() -> Self {
        let ready = VecDeque::new();
        Self { ready, ready_current: 0, leases: Held::new(), delays: Held::new() }
    }

    /// Adds a place; true if it has to be held until a later time. (Or out of the FIFO, because it
    /// belongs somewhere in the middle of it.)
    #[inline]
    pub(crate) fn add(&mut self, place: Place, now: Time, leased: bool) -> bool {
        if place.due <= now && self.ready.back().is_none_or(|last| *last < place) {
            self.ready_current += 1;
            self.ready.push_back(place);
            return false;
        }
        if place.due <= now && self.ready.front().is_some_and(|first| place < *first) {
            self.ready_current += 1;
            self.ready.push_front(place);
            return false;
        }
        if leased {
            self.leases.push(place)
        } else {
            self.delays.push(place)
        }
        true
    }

    /// The place with this stamp, which was added as `leased` and is `held` or not, is no longer
    /// wanted. True if it is gone at once, as the first of its part is; the others stay behind as
    /// stale.
    #[inline]
    pub(crate) fn leave(&mut self, stamp: u64, held: bool, leased: bool) -> bool {
        if held {
            return if leased { self.leases.leave(stamp) } else { self.delays.leave(stamp) };
        }
        self.ready_current -= 1;
        let first = self.ready.front().is_some_and(|place| place.stamp == stamp);
        if first {
            self.ready.pop_front();
        }
        first
    }

    /// Restores the invariants after places have become stale, and gives memory back.
    #[inline]
    pub(crate) fn tidy(&mut self, is_current: impl Fn(&Place) -> bool) {
        if self.ready.len() > self.ready_current {
            while self.ready.front().is_some_and(|place| !is_current(place)) {
                self.ready.pop_front();
            }
            if !self.is_ready_tidy() {
                self.ready.retain(&is_current);
            }
        }
        if self.ready.capacity() / 4 > self.ready.len() + SLACK {
            self.ready.shrink_to(self.ready.len() * 2);
        }
        self.leases.tidy(&is_current);
        self.delays.tidy(&is_current);
    }

    /// Whose turn it is at `now`.
    pub(crate) fn first(&self, now: Time) -> Option<Place> {
        self.head().filter(|place| place.due <= now)
    }

    /// When the next place becomes receivable; in the past if one is.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.head().map(|place| place.due)
    }

    #[inline]
    fn head(&self) -> Option<Place> {
        let mut least = self.ready.front();
        for head in [self.leases.heap.peek(), self.delays.heap.peek()] {
            if let Some(head) = head
                && least.is_none_or(|least| head < least)
            {
                least = Some(head);
            }
        }
        least.copied()
    }

    /// When the first of the leases is over, or was.
    pub(crate) fn next_lease_over(&self) -> Option<Time> {
        self.leases.heap.peek().map(|place| place.due)
    }

    /// Calls `visit` with every lease that is over, stale places too, until it says stop.
    pub(crate) fn visit_leases_over(&self, now: Time, visit: impl FnMut(&Place) -> bool) {
        self.leases.heap.visit_while(|place| place.due <= now, visit);
    }

    /// Calls `visit` with every delay that is over, stale places too, until it says stop.
    pub(crate) fn visit_delays_over(&self, now: Time, visit: impl FnMut(&Place) -> bool) {
        self.delays.heap.visit_while(|place| place.due <= now, visit);
    }

    /// Every place, stale ones too, in no order.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.ready.iter().chain(self.leases.heap.iter()).chain(self.delays.heap.iter())
    }

    pub(crate) const fn current(&self) -> usize {
        self.ready_current + self.leases.current + self.delays.current
    }

    /// The first place of each part.
    pub(crate) fn heads(&self) -> impl Iterator<Item = &Place> {
        let held = [self.leases.heap.peek(), self.delays.heap.peek()];
        self.ready.front().into_iter().chain(held.into_iter().flatten())
    }

    /// Whether at most half of the places in each part, plus a constant, are stale.
    pub(crate) fn is_tidy(&self) -> bool {
        self.is_ready_tidy() && self.leases.is_tidy() && self.delays.is_tidy()
    }

    fn is_ready_tidy(&self) -> bool {
        self.ready.len() <= self.ready_current * 2 + SLACK
    }

    /// For tests: whether the FIFO is one.
    pub(crate) fn is_sorted(&self) -> bool {
        self.ready.iter().is_sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_when_the_places_are_gone() {
        let mut line = Line::new();
        let now = Time::ZERO;
        for stamp in 0..30_000_u64 {
            let due = Time::from_nanos(stamp % 3);
            let slot = u32::try_from(stamp).unwrap();
            line.add(Place { due, stamp, slot }, now, stamp % 3 == 1);
        }
        for stamp in 0..30_000 {
            line.leave(stamp, stamp % 3 > 0, stamp % 3 == 1);
        }
        line.tidy(|_| false);
        let room =
            line.ready.capacity() + line.leases.heap.capacity() + line.delays.heap.capacity();
        assert!(room < 1_000, "{room} places are kept for nobody");
    }
}
