//! What a caching resolver has done so far.

use std::time::Duration;

/// Counts of a resolver since it was made (R3): a snapshot.
///
/// `hits + misses` is how often it was asked, refused calls included. Several misses may share one
/// creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ResolverStats {
    /// Found: registered, or in the cache and alive.
    pub hits: u64,
    /// Not found: the factory was asked, by this call or by one that was under way, or the call was
    /// refused (an identifier that is too long, too many creations at one time).
    pub misses: u64,
    /// Mailboxes that the factory made.
    pub creations: u64,
    /// Mailboxes that left the cache: least recently used, too old, dead, or evicted by name.
    pub evictions: u64,
    /// Time that finished resolutions took, all together; that of registered and of refused ones is
    /// not measured.
    pub resolution_time: Duration,
    /// The longest of them.
    pub longest_resolution: Duration,
    /// Mailboxes in the cache now.
    pub cached: usize,
}
