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
//! slot; every change of `due` gives a new stamp. Invariants: all heads are current; at most half
//! of all places, plus a constant, are not; `ready` is sorted.

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
    leases: Heap<Place>,
    delays: Heap<Place>,
    /// How many places are current.
    current: usize,
}

/// Stale places, and unused room, that are not worth a clean-up.
const SLACK: usize = 64;

impl Line {
    pub(crate) const fn new() -> Self {
        Self { ready: VecDeque::new(), leases: Heap::new(), delays: Heap::new(), current: 0 }
    }

    /// Adds a place; true if it has to be held until a later time. (Or out of the FIFO, because it
    /// belongs somewhere in the middle of it.)
    pub(crate) fn add(&mut self, place: Place, now: Time, leased: bool) -> bool {
        self.current += 1;
        if place.due <= now && self.ready.back().is_none_or(|last| *last < place) {
            self.ready.push_back(place);
            return false;
        }
        if place.due <= now && self.ready.front().is_some_and(|first| place < *first) {
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

    /// One place has become stale, because its message got another stamp or is gone.
    pub(crate) fn forget_one(&mut self) {
        self.current -= 1;
    }

    /// Restores the invariants after places have become stale, and gives memory back.
    pub(crate) fn tidy(&mut self, is_current: impl Fn(&Place) -> bool) {
        while self.ready.front().is_some_and(|place| !is_current(place)) {
            self.ready.pop_front();
        }
        for heap in [&mut self.leases, &mut self.delays] {
            while heap.peek().is_some_and(|place| !is_current(place)) {
                heap.pop();
            }
        }
        let places = self.ready.len() + self.leases.len() + self.delays.len();
        if places > self.current * 2 + SLACK {
            self.ready.retain(&is_current);
            self.leases.retain(&is_current);
            self.delays.retain(&is_current);
        }
        if self.ready.capacity() / 4 > self.ready.len() + SLACK {
            self.ready.shrink_to(self.ready.len() * 2);
        }
        self.leases.give_back(SLACK);
        self.delays.give_back(SLACK);
    }

    /// Whose turn it is at `now`.
    pub(crate) fn first(&self, now: Time) -> Option<Place> {
        self.heads().min().copied().filter(|place| place.due <= now)
    }

    /// When the next place becomes receivable; in the past if one is.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.heads().min().map(|place| place.due)
    }

    /// When the first of the leases is over, or was.
    pub(crate) fn next_lease_over(&self) -> Option<Time> {
        self.leases.peek().map(|place| place.due)
    }

    /// Calls `visit` with every lease that is over, stale places too, until it says stop.
    pub(crate) fn visit_leases_over(&self, now: Time, visit: impl FnMut(&Place) -> bool) {
        self.leases.visit_while(|place| place.due <= now, visit);
    }

    /// Calls `visit` with every delay that is over, stale places too, until it says stop.
    pub(crate) fn visit_delays_over(&self, now: Time, visit: impl FnMut(&Place) -> bool) {
        self.delays.visit_while(|place| place.due <= now, visit);
    }

    /// Every place, stale ones too, in no order.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.ready.iter().chain(self.leases.iter()).chain(self.delays.iter())
    }

    pub(crate) const fn current(&self) -> usize {
        self.current
    }

    /// The first place of each part.
    pub(crate) fn heads(&self) -> impl Iterator<Item = &Place> {
        self.ready.front().into_iter().chain(self.leases.peek()).chain(self.delays.peek())
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
        for _ in 0..30_000 {
            line.forget_one();
        }
        line.tidy(|_| false);
        let room = line.ready.capacity() + line.leases.capacity() + line.delays.capacity();
        assert!(room < 1_000, "{room} places are kept for nobody");
    }
}
