//! How a loop runs. Plain data with defaults; checked once, when a loop takes them.

use std::time::Duration;

use mailbox_core::limits;

use crate::error::{Error, Result};

/// How a loop runs. `Default`: one request at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopOptions {
    /// How many requests are handled at once. 1 by default, at most
    /// [`LoopOptions::MAX_CONCURRENCY`].
    pub concurrency: usize,
    /// How long a request stays invisible before its lease must be extended, which the loop does
    /// after each third of it. 300 s by default; above zero.
    pub visibility_timeout: Duration,
    /// How long one receive waits for requests. 20 s by default.
    pub wait: Duration,
    /// After a stop: how long handlers may go on. 20 s by default.
    pub drain: Duration,
    /// How long a handler that was told to stop may take; it is cut off then. 5 s by default, so
    /// that a loop ends within the 30 s that most supervisors allow.
    pub grace: Duration,
    /// When a request whose reply could not be sent is receivable again.
    pub reply_backoff: Backoff,
    /// Ends after this many receives, when what they gave is handled: for tests.
    pub max_iterations: Option<u64>,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self {
            concurrency: 1,
            visibility_timeout: Duration::from_secs(300),
            wait: Duration::from_secs(20),
            drain: Duration::from_secs(20),
            grace: Duration::from_secs(5),
            reply_backoff: Backoff::default(),
            max_iterations: None,
        }
    }
}

impl LoopOptions {
    /// Most requests that one loop handles at once.
    pub const MAX_CONCURRENCY: usize = 65_536;

    /// One request at a time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Handle this many requests at once.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Leases last this long between extensions.
    #[must_use]
    pub fn with_visibility_timeout(mut self, visibility_timeout: Duration) -> Self {
        self.visibility_timeout = visibility_timeout;
        self
    }

    /// One receive waits this long.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// After a stop handlers may go on for this long.
    #[must_use]
    pub fn with_drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// A handler that was told to stop may take this long.
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// When a request whose reply could not be sent is receivable again. (A handler's error is an
    /// answer, not a reason to try again.)
    #[must_use]
    pub fn with_reply_backoff(mut self, backoff: Backoff) -> Self {
        self.reply_backoff = backoff;
        self
    }

    /// End after this many receives.
    #[must_use]
    pub fn with_max_iterations(mut self, max_iterations: u64) -> Self {
        self.max_iterations = Some(max_iterations);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if !(1..=Self::MAX_CONCURRENCY).contains(&self.concurrency) {
            let bound = format_args!("1..={}", Self::MAX_CONCURRENCY);
            return Err(Error::invalid("concurrency", self.concurrency, bound));
        }
        if self.visibility_timeout.is_zero() {
            return Err(Error::invalid("visibility_timeout", "0 s", "more than 0 s"));
        }
        let longest = match self.reply_backoff {
            Backoff::Fixed(delay) => delay,
            Backoff::ByDeliveryCount { most, .. } => most,
        };
        let times = [
            ("visibility_timeout", self.visibility_timeout),
            ("wait", self.wait),
            ("drain", self.drain),
            ("grace", self.grace),
            ("backoff", longest),
        ];
        for (field, time) in times {
            if time > limits::VISIBILITY_TIMEOUT {
                let bound = format_args!("0..={} s", limits::VISIBILITY_TIMEOUT.as_secs());
                let value = format_args!("{} s", time.as_secs_f64());
                return Err(Error::invalid(field, value, bound));
            }
        }
        Ok(())
    }
}

/// After how long a request that was nacked is receivable again (P2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backoff {
    /// Always this.
    Fixed(Duration),
    /// `min(step * delivery_count, most)`.
    ByDeliveryCount {
        /// After the first delivery.
        step: Duration,
        /// Never more.
        most: Duration,
    },
}

impl Default for Backoff {
    /// `min(60 s * delivery_count, 900 s)`.
    fn default() -> Self {
        Self::ByDeliveryCount { step: Duration::from_secs(60), most: Duration::from_secs(900) }
    }
}

impl Backoff {
    /// The delay after the `delivery_count`-th delivery.
    #[must_use]
    pub fn delay(&self, delivery_count: u32) -> Duration {
        match *self {
            Self::Fixed(delay) => delay,
            Self::ByDeliveryCount { step, most } => step.saturating_mul(delivery_count).min(most),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_with_the_deliveries_up_to_a_bound() {
        let delays = [1, 2, 14, 15, 16, u32::MAX].map(|count| Backoff::default().delay(count));
        assert_eq!(delays.map(|delay| delay.as_secs()), [60, 120, 840, 900, 900, 900]);
        let fixed = Backoff::Fixed(Duration::from_secs(7));
        assert_eq!(fixed.delay(9), Duration::from_secs(7));
    }

    #[test]
    fn options_out_of_bounds_are_refused_by_name() {
        let long = Duration::from_secs(43_201);
        let cases = [
            (LoopOptions::new().with_concurrency(0), "concurrency"),
            (LoopOptions::new().with_concurrency(65_537), "concurrency"),
            (LoopOptions::new().with_visibility_timeout(Duration::ZERO), "visibility_timeout"),
            (LoopOptions::new().with_visibility_timeout(long), "visibility_timeout"),
            (LoopOptions::new().with_drain(long), "drain"),
            (LoopOptions::new().with_reply_backoff(Backoff::Fixed(long)), "backoff"),
        ];
        for (options, field) in cases {
            assert_eq!(options.check().unwrap_err().field(), Some(field));
        }
        LoopOptions::new().check().unwrap();
    }
}
