//! The capability that came last on a connection: most connections send the same one every time.
//! Invariant: it is believed for no longer than the cache would, and not at all once anything was
//! revoked or replaced.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::Timestamp;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::Verified;

/// What one connection remembers.
#[derive(Default)]
pub(crate) struct Memo(Mutex<Option<Entry>>);

struct Entry {
    header: Zeroizing<Vec<u8>>,
    verified: Arc<Verified>,
    since: Instant,
    epoch: u64,
}

impl Memo {
    /// What is known of this header, if it is the one that came last.
    pub(super) fn get(&self, header: &[u8], ttl: Duration, epoch: u64) -> Option<Arc<Verified>> {
        let entry = self.0.lock();
        let entry = entry.as_ref()?;
        let is_fresh = entry.epoch == epoch && entry.since.elapsed() < ttl;
        let is_good = is_fresh && entry.verified.is_good_at(Timestamp::now());
        (is_good && is_same(&entry.header, header)).then(|| Arc::clone(&entry.verified))
    }

    pub(super) fn put(&self, header: &[u8], verified: &Arc<Verified>, since: Instant, epoch: u64) {
        let (header, verified) = (Zeroizing::new(header.to_vec()), Arc::clone(verified));
        *self.0.lock() = Some(Entry { header, verified, since, epoch });
    }
}

/// Looks at all of it, wherever the first difference is: behind a proxy others may share the
/// connection.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && black_box(differ) == 0
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memo(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_same_bytes_are_the_same() {
        assert!(is_same(b"Bearer abc", b"Bearer abc") && is_same(b"", b""));
        for other in [&b"Bearer abd"[..], b"bearer abc", b"Bearer ab", b"Bearer abcd", b""] {
            assert!(!is_same(b"Bearer abc", other), "{other:?}");
        }
    }
}
