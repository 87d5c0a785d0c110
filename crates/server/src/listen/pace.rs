//! How fast something is taken. Invariant: it is late when nothing is taken for too long, or, over
//! any longer while, less than `SLOWEST`. What was taken fast gives time, but not more than as
//! long again: what went out at once may still have to be read, out of buffers on the way.

use std::time::Duration;

use tokio::time::Instant;

/// Slowest that answers may be taken, in bytes per second, once the first wait is over.
const SLOWEST: u64 = 64 * 1024;

/// Until when something has to be taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    patience: Duration,
    deadline: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant, patience: Duration) -> Self {
        Self { patience, deadline: now + patience }
    }

    /// So many bytes were taken.
    pub(super) fn taken(&mut self, now: Instant, bytes: usize) {
        let earned = Duration::from_millis((bytes as u64).saturating_mul(1000) / SLOWEST);
        self.deadline = (self.deadline + earned).min(now + 2 * self.patience);
    }

    /// When it is late, if nothing more is taken. Never earlier than it was.
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn however_much_was_taken_it_is_late_after_twice_as_long() {
        let start = Instant::now();
        let mut pace = Pace::new(start, PATIENCE);
        assert_eq!(pace.deadline(), start + PATIENCE);
        let now = start + Duration::from_secs(1);
        pace.taken(now, 20 << 20);
        assert_eq!(pace.deadline(), now + 2 * PATIENCE);
        // One byte now and then is no progress.
        for second in 2..10 {
            pace.taken(start + Duration::from_secs(second), 1);
        }
        assert_eq!(pace.deadline(), now + 2 * PATIENCE);
    }

    /// The other end reads at this pace, but room is made for it in large steps.
    #[test]
    fn whoever_takes_enough_in_steps_is_not_late() {
        let start = Instant::now();
        let mut pace = Pace::new(start, PATIENCE);
        pace.taken(start, 4 << 20);
        for step in 1..100 {
            let now = start + step * Duration::from_secs(8);
            assert!(now < pace.deadline(), "step {step}");
            pace.taken(now, 8 * 64 * 1024);
        }
    }
}
