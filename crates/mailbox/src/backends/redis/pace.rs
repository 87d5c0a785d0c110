//! Time as scripts have it: the server's microseconds, or the nanoseconds of a clock that a test
//! moves by hand. Invariant: what is waited for is never shorter than what was asked for.

use std::time::Duration;

use mailbox_core::Time;

use crate::home::clock::Clock;

/// How a backend counts time.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    pub(crate) clock: Clock,
}

impl Pace {
    /// What scripts take for the present; empty: their server's.
    pub(crate) fn present(&self) -> String {
        if self.clock.is_manual() { self.clock.now().as_nanos().to_string() } else { String::new() }
    }

    /// A span in the unit of scripts.
    pub(crate) fn span(&self, span: Duration) -> u64 {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        if self.clock.is_manual() { nanos } else { nanos.div_ceil(1_000) }
    }

    /// A span that a script has given.
    pub(crate) fn read(&self, span: u64) -> Duration {
        if self.clock.is_manual() {
            Duration::from_nanos(span)
        } else {
            Duration::from_micros(span)
        }
    }

    /// A score, which is in seconds, in the unit of scripts.
    pub(crate) fn read_score(&self, score: f64) -> u64 {
        let unit = if self.clock.is_manual() { 1e9 } else { 1e6 };
        // Saturates, and makes nothing of what is no number.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let at = (score * unit).round() as u64;
        at
    }

    /// When, by our own clock, something is due that a server says is due at `due`, its present
    /// being `present`.
    pub(crate) fn local(&self, due: u64, present: u64) -> Time {
        self.clock.now().after(self.read(due.saturating_sub(present)))
    }
}
