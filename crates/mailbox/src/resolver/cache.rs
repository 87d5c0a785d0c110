//! What a resolver keeps: pure bookkeeping under its lock, no awaiting.
//!
//! Invariants: at most `capacity` mailboxes are cached, and at most `max_retired` are retired;
//! `by_use` and `by_birth` have one turn for each cached mailbox. A retired mailbox has left the
//! cache but was still in somebody's hands; it is closed when it no longer is, so that nobody who
//! was given a mailbox sees it close for the cache's reasons.
//!
//! No mailbox is dropped in here: a backend's or a body's `Drop` may run anything, so also what
//! takes the lock. Those that leave are handed to the caller (`leaving`), who closes what nobody
//! else has once the lock is free.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mailbox_core::Time;

use crate::mailbox::Mailbox;
use crate::resolver::ResolverStats;

/// Most mailboxes that one call evicts for their age: the rest is for the next call.
const EXPIRED_AT_ONCE: usize = 8;

pub(crate) struct Cache<R> {
    capacity: usize,
    max_retired: usize,
    ttl: Option<Duration>,
    entries: HashMap<Arc<str>, Entry<R>>,
    /// Least recently used first.
    by_use: BTreeMap<Turn, Arc<str>>,
    /// Oldest first.
    by_birth: BTreeMap<Turn, Arc<str>>,
    last_turn: Turn,
    retired: VecDeque<Mailbox<R>>,
    stats: ResolverStats,
}

/// Numbers what happens, in order.
pub(crate) type Turn = u64;

struct Entry<R> {
    mailbox: Mailbox<R>,
    expires: Time,
    used: Turn,
    born: Turn,
}

impl<R: Send + Sync + 'static> Entry<R> {
    fn is_stale(&self, now: Time) -> bool {
        self.expires <= now || self.mailbox.is_closed()
    }
}

/// A cached mailbox, taken out of the lock to be looked at.
pub(crate) struct Suspect<R> {
    pub(crate) identifier: Arc<str>,
    pub(crate) born: Turn,
    pub(crate) mailbox: Mailbox<R>,
}

impl<R: Send + Sync + 'static> Cache<R> {
    pub(crate) fn new(capacity: usize, max_retired: usize, ttl: Option<Duration>) -> Self {
        Self {
            capacity,
            max_retired,
            ttl,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            by_birth: BTreeMap::new(),
            last_turn: 0,
            retired: VecDeque::new(),
            stats: ResolverStats::default(),
        }
    }

    /// The cached mailbox, if it is alive and not too old. One that is not stays where it is until
    /// its successor comes: whoever asks now may go away before it could close what leaves.
    pub(crate) fn get(&mut self, identifier: &str, now: Time) -> Option<Mailbox<R>> {
        let turn = self.next_turn();
        let Some(entry) = self.entries.get_mut(identifier) else {
            self.stats.misses += 1;
            return None;
        };
        if entry.is_stale(now) {
            self.stats.misses += 1;
            return None;
        }
        let key = self.by_use.remove(&entry.used);
        self.by_use.extend(key.map(|key| (turn, key)));
        entry.used = turn;
        self.stats.hits += 1;
        Some(entry.mailbox.clone())
    }

    /// Keeps a new mailbox; the least recently used one makes room.
    pub(crate) fn insert(
        &mut self,
        identifier: &Arc<str>,
        mailbox: Mailbox<R>,
        now: Time,
        leaving: &mut Vec<Mailbox<R>>,
    ) {
        self.stats.creations += 1;
        self.evict(identifier, leaving);
        self.evict_expired(now, EXPIRED_AT_ONCE, leaving);
        while self.entries.len() >= self.capacity
            && let Some((_, stalest)) = self.by_use.first_key_value()
        {
            let stalest = Arc::clone(stalest);
            self.evict(&stalest, leaving);
        }
        let turn = self.next_turn();
        let expires = self.ttl.map_or(Time::MAX, |ttl| now.after(ttl));
        let entry = Entry { mailbox, expires, used: turn, born: turn };
        self.entries.insert(Arc::clone(identifier), entry);
        self.by_use.insert(turn, Arc::clone(identifier));
        self.by_birth.insert(turn, Arc::clone(identifier));
        debug_assert_eq!(self.entries.len(), self.by_use.len());
        debug_assert_eq!(self.entries.len(), self.by_birth.len());
    }

    /// Takes a mailbox out of the cache; false if it was not there. At most one is leaving: this
    /// one, or if somebody still has it, the one that it displaces among the retired.
    pub(crate) fn evict(&mut self, identifier: &str, leaving: &mut Vec<Mailbox<R>>) -> bool {
        let Some(entry) = self.entries.remove(identifier) else {
            return false;
        };
        self.by_use.remove(&entry.used);
        self.by_birth.remove(&entry.born);
        self.stats.evictions += 1;
        if !entry.mailbox.is_shared() {
            leaving.push(entry.mailbox);
            return true;
        }
        if self.retired.len() >= self.max_retired {
            // One that can be closed, or else the oldest: its users have that for themselves from
            // now on, and what it holds goes with the last one.
            let unused = self.retired.iter().position(|mailbox| !mailbox.is_shared());
            leaving.extend(self.retired.remove(unused.unwrap_or(0)));
        }
        self.retired.push_back(entry.mailbox);
        true
    }

    /// Takes a mailbox out of the cache if it is closed or too old.
    pub(crate) fn evict_stale(
        &mut self,
        identifier: &str,
        now: Time,
        leaving: &mut Vec<Mailbox<R>>,
    ) {
        if self.entries.get(identifier).is_some_and(|entry| entry.is_stale(now)) {
            self.evict(identifier, leaving);
        }
    }

    /// Takes a mailbox out of the cache, unless another has come in its place meanwhile.
    pub(crate) fn evict_suspect(
        &mut self,
        identifier: &str,
        born: Turn,
        leaving: &mut Vec<Mailbox<R>>,
    ) -> bool {
        self.entries.get(identifier).is_some_and(|entry| entry.born == born)
            && self.evict(identifier, leaving)
    }

    /// Takes mailboxes that are too old out of the cache, at most `most`; gives how many.
    pub(crate) fn evict_expired(
        &mut self,
        now: Time,
        most: usize,
        leaving: &mut Vec<Mailbox<R>>,
    ) -> usize {
        for evicted in 0..most {
            let Some((_, oldest)) = self.by_birth.first_key_value() else { return evicted };
            let oldest = Arc::clone(oldest);
            if self.entries.get(&oldest).is_none_or(|entry| entry.expires > now) {
                return evicted;
            }
            self.evict(&oldest, leaving);
        }
        most
    }

    /// Looks at the next `look` retired mailboxes for those that nobody else has any more: to be
    /// closed, at most `most`. The others go to the end of the line, so that every one has its
    /// turn.
    pub(crate) fn take_unused(&mut self, look: usize, most: usize) -> Vec<Mailbox<R>> {
        let mut unused = Vec::new();
        for _ in 0..self.retired.len().min(look) {
            if unused.len() >= most {
                break;
            }
            match self.retired.pop_front() {
                Some(mailbox) if mailbox.is_shared() => self.retired.push_back(mailbox),
                mailbox => unused.extend(mailbox),
            }
        }
        unused
    }

    /// Counts a call that was refused before anything was looked up.
    pub(crate) const fn refused(&mut self) {
        self.stats.misses += 1;
    }

    pub(crate) fn suspects(&self) -> Vec<Suspect<R>> {
        let suspect = |(identifier, entry): (&Arc<str>, &Entry<R>)| Suspect {
            identifier: Arc::clone(identifier),
            born: entry.born,
            mailbox: entry.mailbox.clone(),
        };
        self.entries.iter().map(suspect).collect()
    }

    pub(crate) fn took(&mut self, time: Duration) {
        self.stats.resolution_time = self.stats.resolution_time.saturating_add(time);
        self.stats.longest_resolution = self.stats.longest_resolution.max(time);
    }

    pub(crate) fn stats(&self) -> ResolverStats {
        ResolverStats { cached: self.entries.len(), ..self.stats }
    }

    const fn next_turn(&mut self) -> Turn {
        self.last_turn += 1;
        self.last_turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> Mailbox<()> {
        Mailbox::local("x").unwrap()
    }

    #[test]
    fn the_least_recently_used_one_makes_room() {
        let mut cache = Cache::new(2, 2, None);
        for identifier in ["a", "b"] {
            cache.insert(&identifier.into(), mailbox(), Time::ZERO, &mut Vec::new());
        }
        assert!(cache.get("a", Time::ZERO).is_some());
        let mut leaving = Vec::new();
        cache.insert(&"c".into(), mailbox(), Time::ZERO, &mut leaving);
        assert_eq!(leaving.len(), 1);
        assert!(cache.get("b", Time::ZERO).is_none());
        assert!(cache.get("a", Time::ZERO).is_some() && cache.get("c", Time::ZERO).is_some());
        assert_eq!(cache.stats().cached, 2);
    }

    #[test]
    fn retired_mailboxes_are_bounded_and_taken_when_nobody_has_them() {
        let mut cache = Cache::new(2, 2, None);
        let held: Vec<_> = (0..10).map(|_| mailbox()).collect();
        let mut leaving = Vec::new();
        for (number, mailbox) in held.iter().enumerate() {
            cache.insert(&number.to_string().into(), mailbox.clone(), Time::ZERO, &mut leaving);
        }
        assert_eq!((cache.entries.len(), cache.retired.len(), leaving.len()), (2, 2, 6));
        assert!(leaving.iter().all(Mailbox::is_shared), "they are left to their users");
        assert!(cache.take_unused(9, 9).is_empty());
        drop(held);
        assert_eq!(cache.take_unused(1, 9).len(), 1);
        assert_eq!(cache.take_unused(9, 0).len(), 0);
        assert_eq!(cache.take_unused(9, 9).len(), 1);
        assert!(cache.retired.is_empty());
    }

    #[test]
    fn one_that_nobody_has_leaves_at_once_and_displaces_none_in_use() {
        let mut cache = Cache::new(1, 1, None);
        let (held, mut leaving) = (mailbox(), Vec::new());
        cache.insert(&"used".into(), held.clone(), Time::ZERO, &mut leaving);
        for identifier in ["a", "b", "c"] {
            cache.insert(&identifier.into(), mailbox(), Time::ZERO, &mut leaving);
        }
        assert_eq!((cache.retired.len(), leaving.len()), (1, 2));
        assert!(held.is_shared() && !leaving.iter().any(Mailbox::is_shared));
    }

    #[test]
    fn one_that_can_be_closed_is_displaced_before_one_in_use() {
        let mut cache = Cache::new(1, 2, None);
        let held: Vec<_> = (0..4).map(|_| mailbox()).collect();
        let mut leaving = Vec::new();
        for (number, mailbox) in held.iter().take(3).enumerate() {
            cache.insert(&number.to_string().into(), mailbox.clone(), Time::ZERO, &mut leaving);
        }
        assert!(leaving.is_empty());
        // The first and the second one are retired; now nobody has the second one.
        let mut held = held;
        drop(held.remove(1));
        cache.insert(&"3".into(), held.remove(2), Time::ZERO, &mut leaving);
        assert_eq!(leaving.len(), 1);
        assert!(!leaving[0].is_shared());
        assert!(held.iter().all(Mailbox::is_shared), "both are still remembered");
    }

    #[test]
    fn one_call_evicts_only_so_many_for_their_age() {
        let mut cache = Cache::new(100, 100, Some(Duration::from_secs(1)));
        let mut leaving = Vec::new();
        for number in 0..20 {
            cache.insert(&number.to_string().into(), mailbox(), Time::ZERO, &mut leaving);
        }
        let later = Time::ZERO.after(Duration::from_secs(1));
        cache.insert(&"new".into(), mailbox(), later, &mut leaving);
        assert_eq!((cache.stats().cached, leaving.len()), (13, EXPIRED_AT_ONCE));
        assert_eq!(cache.evict_expired(later, 10, &mut leaving), 10);
        assert_eq!(cache.evict_expired(later, 10, &mut leaving), 2);
        assert_eq!((cache.stats().cached, leaving.len()), (1, 20));
    }

    #[test]
    fn a_suspect_that_was_replaced_is_left_alone() {
        let mut cache = Cache::new(2, 2, None);
        let mut leaving = Vec::new();
        cache.insert(&"a".into(), mailbox(), Time::ZERO, &mut leaving);
        let suspect = cache.suspects().remove(0);
        cache.insert(&"a".into(), mailbox(), Time::ZERO, &mut leaving);
        assert!(!cache.evict_suspect(&suspect.identifier, suspect.born, &mut leaving));
        assert_eq!(cache.stats().cached, 1);
    }
}
