//! Points on a queue's own clock. Invariant: only ever compared with points of the same clock;
//! the origin is the home's business, and wall time never gets in here.

use std::time::Duration;

/// A point in queue time: nanoseconds since an origin that the home chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any point that is ever reached.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This point moved later by `by`; stays at [`Time::MAX`] once there.
    #[must_use]
    pub const fn after(self, by: Duration) -> Self {
        let whole = by.as_secs().saturating_mul(1_000_000_000);
        Self(self.0.saturating_add(whole).saturating_add(by.subsec_nanos() as u64))
    }

    /// How long after `earlier` this point lies; zero if it does not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
