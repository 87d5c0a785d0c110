//! How often. Invariant: in the long run no more than the rate is let through, and at once no more
//! than a burst, but for a batch that is larger by itself: all of it counts.

use std::time::{Duration, Instant};

use mailbox_wire::capability::Rate;
use parking_lot::{Mutex, MutexGuard};

/// A capability may be used this many times its rate at once, after a pause.
const BURST: u64 = 2;

/// Lets through `rate` in the long run, and a burst after a pause.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Time that one use takes, in nanoseconds.
    each: u64,
    /// Uses that may come at once.
    burst: u64,
    start: Instant,
    uses: Mutex<Used>,
    /// Settlements that failed. Those that do not fail end what was counted already.
    misses: Mutex<Used>,
}

/// Up to when, after the start, everything is used up; nanoseconds.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Used(u64);

impl Bucket {
    pub(super) fn new(rate: Rate) -> Self {
        let times = u64::from(rate.times.get());
        Self {
            each: rate.per.as_millis() * 1_000_000 / times,
            burst: times * BURST,
            start: Instant::now(),
            uses: Mutex::default(),
            misses: Mutex::default(),
        }
    }

    pub(super) fn uses(&self) -> MutexGuard<'_, Used> {
        self.uses.lock()
    }

    fn elapsed(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start).as_nanos();
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }

    /// Whether it is as good as a new one.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        let now = self.elapsed(now);
        self.uses.lock().0 <= now && self.misses.lock().0 <= now
    }

    /// What is used up after so many uses more; or after how long they may come.
    pub(super) fn after(&self, used: Used, uses: u64, now: Instant) -> Result<Used, Duration> {
        // More than fit in at all wait until everything is free: else they would never get through.
        self.wait(used, uses.min(self.burst), now)?;
        // But all of them count, and keep back what comes next for as long as that takes.
        Ok(self.more(used, uses, now))
    }

    fn more(&self, used: Used, uses: u64, now: Instant) -> Used {
        let since = used.0.max(self.elapsed(now));
        Used(since.saturating_add(self.each.saturating_mul(uses)))
    }

    /// After how long so many uses fit in.
    fn wait(&self, used: Used, uses: u64, now: Instant) -> Result<(), Duration> {
        let ahead = self.ahead(used, now).saturating_add(self.each * uses);
        let most = self.each * self.burst;
        if ahead > most { Err(Duration::from_nanos(ahead - most)) } else { Ok(()) }
    }

    fn ahead(&self, used: Used, now: Instant) -> u64 {
        used.0.saturating_sub(self.elapsed(now))
    }

    /// Whether one use would be let through.
    pub(super) fn check(&self, now: Instant) -> Result<(), Duration> {
        self.wait(*self.uses.lock(), 1, now)
    }

    /// How many uses would be let through.
    pub(super) fn left(&self, now: Instant) -> u64 {
        if self.each == 0 {
            return u64::MAX;
        }
        let ahead = self.ahead(*self.uses.lock(), now);
        (self.each * self.burst).saturating_sub(ahead) / self.each
    }

    /// So many uses have come, whether they were let through or not.
    pub(super) fn count(&self, uses: u64, now: Instant) {
        let mut used = self.uses.lock();
        *used = self.more(*used, uses, now);
    }

    /// Whether one more settlement may fail.
    pub(super) fn check_miss(&self, now: Instant) -> Result<(), Duration> {
        self.wait(*self.misses.lock(), 1, now)
    }

    /// So many settlements have failed.
    pub(super) fn miss(&self, count: u64, now: Instant) {
        let mut misses = self.misses.lock();
        *misses = self.more(*misses, count, now);
    }
}
