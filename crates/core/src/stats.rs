//! What a queue holds, counted.

use std::time::Duration;

/// A queue at one moment. Exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Sent or nacked with a delay that is not over.
    pub delayed: u64,
    /// Receivable, or waiting behind the head of their ordering group.
    pub ready: u64,
    /// Handed out, deadline not passed.
    pub invisible: u64,
    /// Dead letters.
    pub dead: u64,
    /// How long ago the oldest delayed, ready or invisible message was sent or redriven.
    pub oldest_age: Option<Duration>,
    /// Idempotency keys remembered.
    pub dedup_entries: u64,
    /// What has happened since the queue was made.
    pub totals: Totals,
}

impl Stats {
    /// Everything but dead letters (M2).
    #[must_use]
    pub const fn live(&self) -> u64 {
        self.delayed + self.ready + self.invisible
    }
}

/// What has happened to a queue since it was made. Only ever grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Messages accepted.
    pub sent: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Deliveries that were not a message's first.
    pub redelivered: u64,
    /// Deliveries that ended by their deadline: seen when the message is delivered again or dies.
    pub timed_out: u64,
    /// Messages acknowledged.
    pub acknowledged: u64,
    /// Messages that became dead letters.
    pub dead_lettered: u64,
    /// Dead letters put back in line.
    pub redriven: u64,
    /// Messages removed by purge.
    pub purged: u64,
    /// Dead letters dropped by retention.
    pub retention_dropped: u64,
}
