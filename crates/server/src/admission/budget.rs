//! Memory that large bodies and answers take. Small ones are not counted: there are never more of
//! them than connections. Invariant: no capability has more than its share, so that one that sends
//! or reads slowly is in nobody's way but its own.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What is no larger than this is small: as much as a connection reads at a time.
const SMALL: u64 = 64 * 1024;
/// One capability may have this part of everything.
const SHARE: u64 = 4;

/// So many bytes, for all together.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: u64,
    most_each: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: u64,
    by_id: HashMap<Arc<str>, u64>,
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
        let (most, least) = (bytes as u64, least as u64);
        let most_each = (most / SHARE).max(least).min(most);
        Self(Arc::new(Inner { most, most_each, taken: Mutex::default() }))
    }

    /// Most that one capability can ever have.
    pub(crate) fn most_each(&self) -> u64 {
        self.0.most_each
    }
}

impl Room {
    /// Makes it large enough for so many bytes; false, and as it was, if that is not to be had.
    pub(crate) fn grow(&mut self, budget: &Budget, token_id: &Arc<str>, bytes: u64) -> bool {
        let has = self.0.as_ref().map_or(0, |part| part.bytes);
        let wanted = if bytes <= SMALL { 0 } else { bytes };
        if wanted <= has {
            return true;
        }
        let Inner { most, most_each, taken } = &*budget.0;
        let mut taken = taken.lock();
        let own = taken.by_id.get(token_id).copied().unwrap_or(0);
        let more = wanted - has;
        if taken.all + more > *most || own + more > *most_each {
            return false;
        }
        taken.all += more;
        taken.by_id.insert(Arc::clone(token_id), own + more);
        drop(taken);
        let (budget, token_id) = (budget.clone(), Arc::clone(token_id));
        self.0.get_or_insert(Part { budget, token_id, bytes: 0 }).bytes = wanted;
        true
    }

    /// Gives back what is more than so many bytes need.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        if bytes <= SMALL {
            self.0 = None;
        } else if let Some(part) = &mut self.0 {
            part.give_back(part.bytes.saturating_sub(bytes));
        }
    }

    /// How many bytes fit in.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |part| part.bytes).max(SMALL)
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
        assert!(!other.grow(&budget, &a, 100 * KIB) && other.grow(&budget, &a, SMALL));
        assert!(one.grow(&budget, &a, 200 * KIB) && !one.grow(&budget, &a, 200 * KIB + 1));
        one.shrink(100 * KIB);
        assert!(other.grow(&budget, &a, 100 * KIB) && !one.grow(&budget, &a, 101 * KIB));
        other.shrink(SMALL);
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

    #[test]
    fn the_largest_body_gets_in_also_if_a_share_is_less() {
        let (budget, id) = (Budget::new(1024 * 1024, 512 * 1024), "a".into());
        assert!(Room::default().grow(&budget, &id, 512 * KIB));
        assert!(!Room::default().grow(&budget, &id, 512 * KIB + 1));
    }
}
