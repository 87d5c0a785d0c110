//! Memory that bodies and answers take. All of it is counted: a connection can have many of them.
//! Invariant: no capability has more than its share, however many calls it makes at a time, so that
//! one that sends or reads slowly is in nobody's way but its own. Small ones may have a little more
//! than large ones: whoever is busy with those can still settle.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What is no larger than this is small: as much as a connection reads at a time.
const SMALL: u64 = 64 * 1024;
/// One capability may have this part of everything.
const SHARE: u64 = 4;
/// Small ones have this part more of it.
const RESERVE: u64 = 8;
/// But so many of them always have room.
const SMALL_ONES: u64 = 16;

/// So many bytes, for all together.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    large: Bounds,
    small: Bounds,
    taken: Mutex<Taken>,
}

/// How much there may be.
#[derive(Debug)]
struct Bounds {
    all: u64,
    each: u64,
}

#[derive(Debug, Default)]
struct Taken {
    all: u64,
    /// Keys are all of the service's making, so that nobody can choose them to collide.
    by_id: HashMap<Arc<str>, u64, foldhash::fast::RandomState>,
}

/// A part of a budget, given back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room(Option<Part>);

#[derive(Debug)]
struct Part {
    budget: Budget,
    token_id: Arc<str>,
    bytes: u64,
}

impl Budget {
    /// So many bytes for all, of which one capability may have a share, or at least `least`.
    pub(super) fn new(bytes: usize, least: usize) -> Self {
        let (all, least) = (bytes as u64, least as u64);
        let each = (all / SHARE).max(least).min(all);
        let small = Bounds {
            all: all + (all / RESERVE).max(SHARE * SMALL_ONES * SMALL),
            each: each + (each / RESERVE).max(SMALL_ONES * SMALL),
        };
        Self(Arc::new(Inner { large: Bounds { all, each }, small, taken: Mutex::default() }))
    }

    /// Most that one capability can ever have at once.
    pub(crate) fn most_each(&self) -> u64 {
        self.0.large.each
    }
}

impl Room {
    /// Makes it large enough for so many bytes; false, and as it was, if that is not to be had.
    pub(crate) fn grow(&mut self, budget: &Budget, token_id: &Arc<str>, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes());
        if more == 0 {
            return true;
        }
        let Inner { large, small, taken } = &*budget.0;
        let most = if bytes <= SMALL { small } else { large };
        let mut taken = taken.lock();
        let own = taken.by_id.get(token_id).copied().unwrap_or(0);
        if taken.all + more > most.all || own + more > most.each {
            return false;
        }
        taken.all += more;
        match taken.by_id.get_mut(token_id) {
            Some(own) => *own += more,
            None => drop(taken.by_id.insert(Arc::clone(token_id), more)),
        }
        drop(taken);
        match &mut self.0 {
            Some(part) => part.bytes = bytes,
            None => {
                let (budget, token_id) = (budget.clone(), Arc::clone(token_id));
                self.0 = Some(Part { budget, token_id, bytes });
            }
        }
        true
    }

    /// Gives back what is more than so many bytes need.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        if bytes == 0 {
            self.0 = None;
        } else if let Some(part) = &mut self.0 {
            part.give_back(part.bytes.saturating_sub(bytes));
        }
    }

    /// How many bytes fit in.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |part| part.bytes)
    }
}

impl Part {
    fn give_back(&mut self, bytes: u64) {
        let mut taken = self.budget.0.taken.lock();
        self.bytes -= bytes;
        taken.all -= bytes;
        if let Some(own) = taken.by_id.get_mut(&self.token_id) {
            *own -= bytes;
            if *own == 0 {
                taken.by_id.remove(&self.token_id);
            }
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    #[test]
    fn room_grows_as_far_as_there_is_some_and_is_given_back() {
        let budget = Budget::new(800 * 1024, 0);
        let [a, b, c, d, e]: [Arc<str>; 5] = ["a", "b", "c", "d", "e"].map(Into::into);
        let mut one = Room::default();
        assert!(one.grow(&budget, &a, SMALL) && one.grow(&budget, &a, 150 * KIB));
        assert_eq!(one.bytes(), 150 * KIB);
        // One capability has a share, whichever call it is for.
        let mut other = Room::default();
        assert!(!other.grow(&budget, &a, 100 * KIB));
        assert!(one.grow(&budget, &a, 200 * KIB) && !one.grow(&budget, &a, 200 * KIB + 1));
        one.shrink(100 * KIB);
        assert!(other.grow(&budget, &a, 100 * KIB) && !one.grow(&budget, &a, 101 * KIB));
        other.shrink(0);
        assert!(one.grow(&budget, &a, 200 * KIB));
        let mut rooms = [&b, &c, &d].map(|id| (id, Room::default()));
        for (id, room) in &mut rooms {
            assert!(room.grow(&budget, id, 200 * KIB));
        }
        assert!(!other.grow(&budget, &e, 100 * KIB), "there is none for anybody");
        drop(one);
        assert!(other.grow(&budget, &e, 200 * KIB));
        drop((other, rooms));
        assert_eq!(budget.0.taken.lock().all, 0);
        assert!(budget.0.taken.lock().by_id.is_empty());
    }

    /// A connection of HTTP/2 has many streams: what was too small to be counted on each of them
    /// was a lot on all of them.
    #[test]
    fn small_ones_are_counted_and_have_a_little_more_than_large_ones() {
        let (budget, id) = (Budget::new(64 << 20, 0), "a".into());
        let mut rooms = Vec::new();
        let mut grow = |bytes| {
            let mut room = Room::default();
            let has_grown = room.grow(&budget, &id, bytes);
            rooms.push(room);
            has_grown
        };
        for _ in 0..16 {
            assert!(grow(1 << 20));
        }
        assert!(!grow(SMALL + 1), "large ones have all they may have");
        let small = std::iter::from_fn(|| grow(SMALL).then_some(())).take(1000).count();
        assert_eq!(small as u64, (16 << 20) / RESERVE / SMALL);
        // Nor is there room for one that grows.
        assert!(!rooms[20].grow(&budget, &id, SMALL + 1));
        drop(rooms);
        assert!(Room::default().grow(&budget, &id, 16 << 20));
    }

    #[test]
    fn the_largest_body_gets_in_also_if_a_share_is_less() {
        let (budget, id) = (Budget::new(1024 * 1024, 512 * 1024), "a".into());
        assert!(Room::default().grow(&budget, &id, 512 * KIB));
        assert!(!Room::default().grow(&budget, &id, 512 * KIB + 1));
    }
}
