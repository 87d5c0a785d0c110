//! Doubly linked lists through the slab. Invariant: a message is in exactly one list, of the live
//! or of the dead, in the order in which it came there; so the head is always the oldest.

use crate::entry::Entry;
use crate::slab::{NONE, Slab};

#[derive(Debug, Clone)]
pub(crate) struct List {
    pub(crate) head: u32,
    tail: u32,
    len: u64,
}

/// A message's neighbours in the list it is in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    prev: u32,
    pub(crate) next: u32,
}

impl Links {
    pub(crate) const NONE: Self = Self { prev: NONE, next: NONE };
}

impl List {
    pub(crate) const fn new() -> Self {
        Self { head: NONE, tail: NONE, len: 0 }
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn push_back<P>(&mut self, slab: &mut Slab<Entry<P>>, slot: u32) {
        let links = self.append(slab, slot);
        slab.get_mut(slot).expect("a listed slot is full").links = links;
    }

    /// Makes `slot` the last one; its message must get the links that this gives.
    pub(crate) fn append<P>(&mut self, slab: &mut Slab<Entry<P>>, slot: u32) -> Links {
        let links = Links { prev: self.tail, next: NONE };
        match slab.get_mut(self.tail) {
            Some(last) => last.links.next = slot,
            None => self.head = slot,
        }
        self.tail = slot;
        self.len += 1;
        links
    }

    pub(crate) fn unlink<P>(&mut self, slab: &mut Slab<Entry<P>>, slot: u32) {
        let entry = slab.get_mut(slot).expect("a listed slot is full");
        let links = std::mem::replace(&mut entry.links, Links::NONE);
        self.close_gap(slab, links);
    }

    /// Makes the neighbours of a message that had `links` each other's.
    pub(crate) fn close_gap<P>(&mut self, slab: &mut Slab<Entry<P>>, links: Links) {
        let Links { prev, next } = links;
        match slab.get_mut(prev) {
            Some(before) => before.links.next = next,
            None => self.head = next,
        }
        match slab.get_mut(next) {
            Some(behind) => behind.links.prev = prev,
            None => self.tail = prev,
        }
        self.len -= 1;
    }

    /// This list, in another order; as it is if it is in that order.
    pub(crate) fn sorted_by_key<P, K: Ord>(
        self,
        slab: &mut Slab<Entry<P>>,
        key: impl Fn(&Entry<P>) -> K,
    ) -> Self {
        if self.iter(slab).is_sorted_by_key(|(_, entry)| key(entry)) {
            return self;
        }
        let mut slots: Vec<(K, u32)> =
            self.iter(slab).map(|(slot, entry)| (key(entry), slot)).collect();
        slots.sort();
        let mut sorted = Self::new();
        for (_, slot) in slots {
            sorted.push_back(slab, slot);
        }
        sorted
    }

    pub(crate) fn iter<'a, P>(
        &'a self,
        slab: &'a Slab<Entry<P>>,
    ) -> impl Iterator<Item = (u32, &'a Entry<P>)> {
        let mut slot = self.head;
        std::iter::from_fn(move || {
            let entry = slab.get(slot)?;
            let here = slot;
            slot = entry.links.next;
            Some((here, entry))
        })
    }
}
