//! Idempotency keys of recent sends. Invariant: a key is found until its own expiry and never
//! after; a full table refuses new keys instead of forgetting one early (I3).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::groups::Seeded;
use crate::ids::Id;
use crate::refusal::Refusal;
use crate::time::Time;

/// What tells one payload from another: its BLAKE3 hash, in practice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// The key of an accepted send, as its event keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The key.
    pub key: Box<str>,
    /// What was sent under it.
    pub fingerprint: Fingerprint,
    /// When it is free again.
    pub expires: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Known {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) id: Id,
    pub(crate) expires: Time,
}

#[derive(Debug, Clone)]
pub(crate) struct Dedup {
    known: HashMap<Arc<str>, Known, Seeded>,
    /// Keys in the order in which they expire, which is the order in which they came unless the
    /// window was made shorter; those that expire leave at the front.
    order: VecDeque<(Time, Arc<str>)>,
}

/// Expired keys dropped per recorded one: more than one, so that the table shrinks.
const DROPS_PER_RECORD: usize = 4;

impl Dedup {
    pub(crate) fn new(seed: u64) -> Self {
        Self { known: HashMap::with_hasher(Seeded(seed)), order: VecDeque::new() }
    }

    /// Whether `key` may be used: `Ok(None)` if it is free, `Ok(Some(id))` if the same payload was
    /// sent under it.
    pub(crate) fn check(
        &self,
        now: Time,
        key: &str,
        fingerprint: &Fingerprint,
        capacity: usize,
    ) -> Result<Option<Id>, Refusal> {
        match self.known.get(key).filter(|known| known.expires > now) {
            Some(known) if known.fingerprint == *fingerprint => Ok(Some(known.id)),
            Some(known) => Err(Refusal::KeyTaken { first: known.id }),
            None => match self.wait_for_room(now, capacity) {
                Some(retry_after) => Err(Refusal::DedupFull { capacity, retry_after }),
                None => Ok(None),
            },
        }
    }

    /// How long until a place is free; `None` if one is.
    fn wait_for_room(&self, now: Time, capacity: usize) -> Option<Duration> {
        if self.order.len() < capacity {
            return None;
        }
        if self.unexpired(now) < capacity {
            return None;
        }
        // There are too many if the capacity was made smaller: all those have to go first.
        let last_to_go = self.order.len() - capacity;
        Some(self.order.get(last_to_go).map_or(Duration::MAX, |(expires, _)| expires.since(now)))
    }

    pub(crate) fn record(&mut self, at: Time, idempotency: Idempotency, id: Id) {
        self.drop_expired(at, DROPS_PER_RECORD);
        let key: Arc<str> = idempotency.key.into();
        let known =
            Known { fingerprint: idempotency.fingerprint, id, expires: idempotency.expires };
        let place = (known.expires, Arc::clone(&key));
        if self.order.back().is_none_or(|(last, _)| *last <= known.expires) {
            self.order.push_back(place);
        } else {
            let index = self.order.partition_point(|(expires, _)| *expires <= known.expires);
            self.order.insert(index, place);
        }
        self.known.insert(key, known);
    }

    /// Drops up to `most` expired keys.
    fn drop_expired(&mut self, now: Time, most: usize) {
        for _ in 0..most {
            if self.order.front().is_none_or(|(expires, _)| *expires > now) {
                return;
            }
            let Some((expires, key)) = self.order.pop_front() else {
                return;
            };
            // A key used again after its window has a later expiry, and a later place here.
            if self.known.get(&key).is_some_and(|known| known.expires == expires) {
                self.known.remove(&key);
            }
        }
    }

    /// How many keys are remembered at `now`.
    pub(crate) fn unexpired(&self, now: Time) -> usize {
        self.order.len() - self.order.partition_point(|(expires, _)| *expires <= now)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Known> {
        self.known.get(key)
    }

    /// Unexpired keys, in order of expiry.
    pub(crate) fn in_order(&self, now: Time) -> impl Iterator<Item = (Idempotency, Id)> {
        let unexpired = self.order.partition_point(|(expires, _)| *expires <= now);
        self.order.iter().skip(unexpired).filter_map(|(expires, key)| {
            // A key used again after its window has a later place too; this one is over.
            let known = self.known.get(key).filter(|known| known.expires == *expires)?;
            let (fingerprint, expires) = (known.fingerprint, known.expires);
            Some((Idempotency { key: Box::from(&**key), fingerprint, expires }, known.id))
        })
    }

    /// Unexpired keys, sorted.
    pub(crate) fn sorted(&self, now: Time) -> Vec<(Arc<str>, Known)> {
        let mut all: Vec<_> = self
            .known
            .iter()
            .filter(|(_, known)| known.expires > now)
            .map(|(key, known)| (Arc::clone(key), *known))
            .collect();
        all.sort();
        all
    }
}
