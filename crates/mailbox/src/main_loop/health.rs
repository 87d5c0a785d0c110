//! How a loop is doing, for whoever watches it. Counting is cheap and never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::timestamp::Timestamp;

/// How a loop is doing (P5). Counts are since the loop was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Health {
    /// It is running: receiving, or draining after a stop.
    pub running: bool,
    /// When it last showed a sign of life, which it does every 5 s at least while it receives.
    pub last_heartbeat: Option<Timestamp>,
    /// How long ago that was, by a clock that nobody sets.
    pub since_heartbeat: Option<Duration>,
    /// Requests received and not yet settled, or whose handlers have not ended.
    pub in_flight: u64,
    /// Requests answered with an output.
    pub handled: u64,
    /// Requests answered with an error.
    pub failed: u64,
    /// Results that nobody wanted: no `reply_to`, no responses mailbox. Also in `handled` or
    /// `failed`.
    pub unanswered: u64,
    /// Requests nacked: their reply could not be sent, or the loop had to end.
    pub given_back: u64,
    /// Requests whose lease was lost. Either they were still handled, and their results were
    /// dropped; or they could not be settled any more and come again, although those that were
    /// answered are also in `handled` or `failed`.
    pub lease_lost: u64,
    /// Messages that are no requests, made dead letters.
    pub undecodable: u64,
    /// Receives that failed.
    pub receive_errors: u64,
}

impl Health {
    /// Whether it is running and has shown a sign of life within `patience`.
    #[must_use]
    pub fn is_alive(&self, patience: Duration) -> bool {
        self.running && self.since_heartbeat.is_some_and(|since| since <= patience)
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Handled,
    Failed,
    Unanswered,
    GivenBack,
    LeaseLost,
    Undecodable,
    ReceiveErrors,
}

/// Where a loop notes how it is doing.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    running: AtomicU64,
    in_flight: AtomicU64,
    heartbeat: Mutex<Option<(Instant, Timestamp)>>,
    counts: [AtomicU64; 7],
}

impl Meter {
    pub(crate) fn count(&self, what: Count) {
        self.counts[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A request could not be settled because of `error`, and its lease is over.
    pub(crate) fn not_settled(&self, error: &Error) {
        // A mailbox that was closed took no lease away: it says so to everybody.
        if error.kind() != ErrorKind::Closed {
            self.count(Count::LeaseLost);
        }
    }

    pub(crate) fn beat(&self) {
        *self.heartbeat.lock() = Some((Instant::now(), Timestamp::now()));
    }

    /// The loop runs for as long as the guard lives.
    pub(crate) fn running(self: &Arc<Self>) -> Present {
        self.beat();
        Present::enter(self, |meter| &meter.running)
    }

    /// A request is in flight for as long as the guard lives.
    pub(crate) fn in_flight(self: &Arc<Self>) -> Present {
        Present::enter(self, |meter| &meter.in_flight)
    }

    pub(crate) fn read(&self) -> Health {
        let heartbeat = *self.heartbeat.lock();
        let count = |what: Count| self.counts[what as usize].load(Ordering::Relaxed);
        Health {
            running: self.running.load(Ordering::Relaxed) > 0,
            last_heartbeat: heartbeat.map(|(_, wall)| wall),
            since_heartbeat: heartbeat.map(|(at, _)| at.elapsed()),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            handled: count(Count::Handled),
            failed: count(Count::Failed),
            unanswered: count(Count::Unanswered),
            given_back: count(Count::GivenBack),
            lease_lost: count(Count::LeaseLost),
            undecodable: count(Count::Undecodable),
            receive_errors: count(Count::ReceiveErrors),
        }
    }
}

/// Counts itself while it lives, so that nothing stays counted when a future is dropped.
#[derive(Debug)]
pub(crate) struct Present {
    meter: Arc<Meter>,
    which: fn(&Meter) -> &AtomicU64,
}

impl Present {
    fn enter(meter: &Arc<Meter>, which: fn(&Meter) -> &AtomicU64) -> Self {
        which(meter).fetch_add(1, Ordering::Relaxed);
        Self { meter: Arc::clone(meter), which }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        (self.which)(&self.meter).fetch_sub(1, Ordering::Relaxed);
    }
}
