//! Capabilities that were verified lately. Invariant: a hash of the whole text is the key, so that
//! nothing is believed of a capability but what was verified of that very one, and none is kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::Verified;

/// Most capabilities that are remembered.
const MOST: usize = 16_384;
/// So many refusals within a second, and everything is verified anew.
const SPIKE: u32 = 200;

fn hash(text: &str) -> [u8; 32] {
    *blake3::hash(text.as_bytes()).as_bytes()
}

/// What was verified, and when.
type Entry = (Arc<Verified>, Instant);

#[derive(Debug, Default)]
pub(super) struct Cache {
    by_hash: RwLock<HashMap<[u8; 32], Entry>>,
    refusals: Mutex<Option<(Instant, u32)>>,
    /// How often everything was forgotten.
    epoch: AtomicU64,
}

impl Cache {
    /// What was verified of this, and when.
    pub(super) fn get(&self, text: &str, now: Instant, ttl: Duration) -> Option<Entry> {
        let by_hash = self.by_hash.read();
        let entry = by_hash.get(&hash(text))?;
        (now.saturating_duration_since(entry.1) < ttl).then(|| entry.clone())
    }

    /// Changes whenever everything is forgotten.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn put(&self, text: &str, verified: &Arc<Verified>, now: Instant, ttl: Duration) {
        let (key, mut by_hash) = (hash(text), self.by_hash.write());
        if by_hash.len() >= MOST && !by_hash.contains_key(&key) {
            by_hash.retain(|_, (_, since)| now.saturating_duration_since(*since) < ttl);
            if by_hash.len() >= MOST {
                by_hash.clear();
            }
        }
        by_hash.insert(key, (Arc::clone(verified), now));
    }

    pub(super) fn clear(&self) {
        let mut by_hash = self.by_hash.write();
        by_hash.clear();
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn len(&self) -> usize {
        self.by_hash.read().len()
    }

    /// Somebody was refused: many of those are a reason to believe nothing any more.
    pub(super) fn note_refusal(&self, now: Instant) {
        let mut refusals = self.refusals.lock();
        let (since, count) = refusals.get_or_insert((now, 0));
        if now.saturating_duration_since(*since) > Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        let is_spike = *count == SPIKE;
        drop(refusals);
        if is_spike {
            self.clear();
        }
    }
}
