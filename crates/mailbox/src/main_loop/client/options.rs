//! How a client calls. Plain data with defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::request::Budget;

/// How a client receives. `Default` suits most.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Most calls that wait at a time; one more is refused with `Saturated`. 65,536 by default.
    pub max_calls: usize,
    /// On a shared mailbox: an answer completed this long ago, by wall time, that no call of this
    /// client waits for is nobody's, and becomes a dead letter. Keep it above the longest timeout
    /// of any client there. 1 h by default.
    pub orphan_after: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { max_calls: 65_536, orphan_after: Duration::from_secs(3_600) }
    }
}

impl ClientOptions {
    /// What suits most.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// At most this many calls wait at a time.
    #[must_use]
    pub fn with_max_calls(mut self, max_calls: usize) -> Self {
        self.max_calls = max_calls;
        self
    }

    /// An answer this old is nobody's.
    #[must_use]
    pub fn with_orphan_after(mut self, orphan_after: Duration) -> Self {
        self.orphan_after = orphan_after;
        self
    }
}

/// What a caller may say beside the request. `Default` waits for 60 s.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOptions {
    /// How long to wait for the answer, sending included.
    pub timeout: Duration,
    /// What the request may cost.
    pub budget: Option<Budget>,
    /// Kept with the request (D9).
    pub attributes: BTreeMap<String, String>,
    /// Its ordering group.
    pub group: Option<String>,
    /// Whether the request carries the end of `timeout` as its deadline, so that no loop begins
    /// what nobody waits for. True by default; switch it off where clocks differ by as much as
    /// the timeout, or where the work shall be done all the same.
    pub send_deadline: bool,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            budget: None,
            attributes: BTreeMap::new(),
            group: None,
            send_deadline: true,
        }
    }
}

impl CallOptions {
    /// Waits for 60 s.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wait this long for the answer.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The request may cost this much.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with_attribute(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.insert(key.into(), value.into());
        self
    }

    /// The request belongs to this ordering group.
    #[must_use]
    pub fn with_group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Whether the request carries a deadline.
    #[must_use]
    pub fn with_send_deadline(mut self, send_deadline: bool) -> Self {
        self.send_deadline = send_deadline;
        self
    }
}
