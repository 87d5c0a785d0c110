//! Structural invariants, spelled out. Tests call this after every step; it walks everything.

use crate::line::Place;
use crate::queue::Queue;
use crate::slab::NONE;

impl<P> Queue<P> {
    /// Asserts everything that must hold between two events. For tests: costs the whole queue.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn assert_invariants(&self) {
        let (mut placed, mut leased, mut held_back) = (0, 0, 0);
        let mut seen = 0;
        let mut entered_before = crate::time::Time::ZERO;
        let mut order_before = 0;
        for (slot, entry) in self.live.iter(&self.slab) {
            seen += 1;
            assert!(seen <= self.live.len(), "the live list is a ring");
            assert!(entry.death().is_none(), "slot {slot}: dead and live");
            assert!(entry.entered >= entered_before, "slot {slot}: not in order of entering");
            assert!(entry.order > order_before, "slot {slot}: not in order of its number");
            order_before = entry.order;
            assert!(entry.seq < self.next_seq, "slot {slot}: sequence from the future");
            assert!(entry.lease.is_none_or(|lease| lease < self.next_lease), "slot {slot}: lease");
            assert!(
                entry.lease.is_none() || entry.attempts > 0,
                "slot {slot}: leased, undelivered"
            );
            entered_before = entry.entered;
            if !self.groups.is_head(entry.group, slot) {
                assert!(entry.lease.is_none(), "slot {slot}: two of a group in flight");
                continue;
            }
            placed += 1;
            leased += u64::from(entry.held && entry.lease.is_some());
            held_back += u64::from(entry.held && entry.lease.is_none());
        }
        assert_eq!(seen, self.live.len(), "live list");
        assert_eq!((leased, held_back), (self.leased, self.held_back), "counters");
        self.assert_line(placed);

        let mut died_before = None;
        let mut dead = 0;
        for (slot, entry) in self.dead.iter(&self.slab) {
            dead += 1;
            assert!(dead <= self.dead.len(), "the dead list is a ring");
            assert!(entry.death().is_some(), "slot {slot}: in the dead list, not dead");
            assert!(entry.lease.is_none() && entry.group == NONE, "slot {slot}: dead but busy");
            assert!(died_before < Some(entry.stamp), "slot {slot}: not in order of dying");
            died_before = Some(entry.stamp);
        }
        assert_eq!(dead, self.dead.len(), "dead list");
        assert_eq!(u64::from(self.slab.len()), self.live.len() + self.dead.len(), "a lost slot");
        assert!(self.groups.len() as u64 <= self.live.len(), "a group without a message");
    }

    fn assert_line(&self, placed: usize) {
        let current = |place: &&Place| self.is_current(place);
        let places: Vec<_> = self.line.places().filter(current).collect();
        assert_eq!(places.len(), placed, "every head of a group has one current place");
        assert_eq!(self.line.current(), placed, "count of current places");
        for place in places {
            let entry = self.slab.get(place.slot).expect("it is current");
            assert_eq!(place.due, entry.due, "slot {}: place and message disagree", place.slot);
        }
        assert!(self.line.is_tidy(), "too many stale places");
        assert!(self.line.is_sorted(), "the FIFO is not in order");
        assert!(self.line.heads().all(|head| current(&head)), "a stale head of the line");
    }
}
