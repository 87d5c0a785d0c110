//! Ordering groups. Invariant: the messages of a group form a chain in the order in which they
//! entered, and only the head of a chain has a place in the line. So at most one message of a group
//! is in flight, a nacked or expired head is delivered again before its successors, and a group
//! costs the line one place however long it is. A group exists while it has a message.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::Arc;

use crate::entry::Entry;
use crate::slab::{NONE, Slab};

/// Hashes with a seed from outside: keys come from strangers, and core draws no random numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeded(pub(crate) u64);

impl BuildHasher for Seeded {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

#[derive(Debug, Clone)]
struct Chain {
    key: Arc<str>,
    head: u32,
    tail: u32,
}

/// Where in its group a message was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// It is the only one.
    Head,
    /// It is the head now, and this one was.
    Before(u32),
    /// Others are before it.
    Behind,
}

#[derive(Debug, Clone)]
pub(crate) struct Groups {
    by_key: HashMap<Arc<str>, u32, Seeded>,
    chains: Slab<Chain>,
}

impl Groups {
    pub(crate) fn new(seed: u64) -> Self {
        Self { by_key: HashMap::with_hasher(Seeded(seed)), chains: Slab::new() }
    }

    /// Adds a message at the end of its group's chain; true if it is the head.
    pub(crate) fn join<P>(
        &mut self,
        slab: &mut Slab<Entry<P>>,
        key: &str,
        slot: u32,
    ) -> (u32, bool) {
        if let Some(&group) = self.by_key.get(key) {
            return (group, self.rejoin(slab, group, slot));
        }
        let group = self.chains.vacant();
        let key: Arc<str> = key.into();
        self.by_key.insert(Arc::clone(&key), group);
        self.chains.fill(group, Chain { key, head: slot, tail: slot });
        (group, true)
    }

    fn rejoin<P>(&mut self, slab: &mut Slab<Entry<P>>, group: u32, slot: u32) -> bool {
        let chain = self.chains.get_mut(group).expect("a named group exists");
        slab.get_mut(chain.tail).expect("a chained slot is full").behind = slot;
        chain.tail = slot;
        false
    }

    /// Puts a message where it belongs in its group's chain: by its number in the order of
    /// entering.
    pub(crate) fn insert<P>(
        &mut self,
        slab: &mut Slab<Entry<P>>,
        key: &str,
        slot: u32,
    ) -> (u32, Joined) {
        let Some(&group) = self.by_key.get(key) else {
            return (self.join(slab, key, slot).0, Joined::Head);
        };
        let order =
            |slab: &Slab<Entry<P>>, slot| slab.get(slot).expect("a chained slot is full").order;
        let own = order(slab, slot);
        let chain = self.chains.get_mut(group).expect("a named group exists");
        if order(slab, chain.tail) < own {
            self.rejoin(slab, group, slot);
            return (group, Joined::Behind);
        }
        let mut next = chain.head;
        if own < order(slab, next) {
            chain.head = slot;
            slab.get_mut(slot).expect("a chained slot is full").behind = next;
            return (group, Joined::Before(next));
        }
        // It ends before the tail, which comes after this message.
        let mut before = next;
        while order(slab, next) < own {
            before = next;
            next = slab.get(next).expect("a chained slot is full").behind;
        }
        slab.get_mut(before).expect("a chained slot is full").behind = slot;
        slab.get_mut(slot).expect("a chained slot is full").behind = next;
        (group, Joined::Behind)
    }

    /// Takes the head off its chain; gives the next head.
    pub(crate) fn leave<P>(
        &mut self,
        slab: &mut Slab<Entry<P>>,
        group: u32,
        slot: u32,
    ) -> Option<u32> {
        let chain = self.chains.get_mut(group).expect("a message's group exists");
        assert_eq!(chain.head, slot, "only the head of a group leaves it");
        let entry = slab.get_mut(slot).expect("a chained slot is full");
        let next = std::mem::replace(&mut entry.behind, NONE);
        if next == NONE {
            let key = self.chains.take(group, |chain| Arc::clone(&chain.key));
            self.by_key.remove(&key.expect("it was there"));
            return None;
        }
        chain.head = next;
        Some(next)
    }

    /// Forgets every group: no message is left.
    pub(crate) fn clear(&mut self) {
        self.by_key.clear();
        self.by_key.shrink_to_fit();
        self.chains = Slab::new();
    }

    pub(crate) fn is_head(&self, group: u32, slot: u32) -> bool {
        group == NONE || self.chains.get(group).is_some_and(|chain| chain.head == slot)
    }

    pub(crate) fn key(&self, group: u32) -> Option<&Arc<str>> {
        self.chains.get(group).map(|chain| &chain.key)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}
