//! How a memory backend is set up.

use mailbox_core::{Policy, limits};

use crate::home::clock::Clock;

/// How a memory backend is set up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// Where time comes from.
    pub clock: Clock,
    /// Rules of mailboxes that were not configured themselves.
    pub policy: Policy,
    /// Most mailboxes; naming one more is refused with `Saturated`.
    pub max_mailboxes: usize,
    /// Most receives that wait at one mailbox; one more is refused with `Saturated`.
    pub max_waiters: usize,
    /// Largest payload; at most 256 MiB.
    pub max_payload: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            policy: Policy::default(),
            max_mailboxes: 1 << 16,
            max_waiters: 1 << 14,
            max_payload: limits::PAYLOAD_LEN,
        }
    }
}

impl MemoryConfig {
    /// Takes time from this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Gives mailboxes these rules to begin with.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Allows this many mailboxes.
    #[must_use]
    pub fn with_max_mailboxes(mut self, max_mailboxes: usize) -> Self {
        self.max_mailboxes = max_mailboxes;
        self
    }

    /// Allows this many waiting receives at one mailbox.
    #[must_use]
    pub fn with_max_waiters(mut self, max_waiters: usize) -> Self {
        self.max_waiters = max_waiters;
        self
    }

    /// Allows payloads of this many bytes.
    #[must_use]
    pub fn with_max_payload(mut self, max_payload: usize) -> Self {
        self.max_payload = max_payload;
        self
    }
}
