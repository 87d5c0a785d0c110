//! A policy in ticks, and what the two queues let their users see. The vocabulary that the naive
//! model and the real queue are compared in.

use std::time::Duration;

use mailbox_core::{DeadReason, LateSettle, Phase, Policy, Refusal, Retention, Time};

/// The unit of time of these tests. Not a nanosecond, so that "just before" is not "one before".
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Later than anything a test waits for.
pub(crate) const FAR: u64 = 1_000_000;

pub(crate) fn span(ticks: u64) -> Duration {
    TICK * u32::try_from(ticks).unwrap()
}

pub(crate) fn time(tick: u64) -> Time {
    Time::ZERO.after(span(tick))
}

/// The tick of a time; `None` if it is between two.
pub(crate) fn tick_of(time: Time) -> Option<u64> {
    let nanos = time.as_nanos();
    let tick = u64::try_from(TICK.as_nanos()).unwrap();
    nanos.is_multiple_of(tick).then_some(nanos / tick)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) max_size: Option<u64>,
    pub(crate) max_in_flight: u64,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) window: u64,
    pub(crate) dedup_capacity: usize,
    pub(crate) late: bool,
    pub(crate) ready_age: Option<u64>,
    pub(crate) ready_count: Option<u64>,
    pub(crate) in_flight_factor: Option<u32>,
    pub(crate) dead_age: Option<u64>,
    pub(crate) dead_count: Option<u64>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            max_size: None,
            max_in_flight: 1_000,
            max_attempts: None,
            window: 20,
            dedup_capacity: 1_000,
            late: false,
            ready_age: None,
            ready_count: None,
            in_flight_factor: None,
            dead_age: None,
            dead_count: None,
        }
    }
}

impl Rules {
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            max_size: self.max_size,
            max_in_flight: self.max_in_flight,
            max_attempts: self.max_attempts.filter(|most| *most > 0),
            replay_window: span(self.window),
            dedup_capacity: self.dedup_capacity,
            late_settle: if self.late { LateSettle::UntilRedelivered } else { LateSettle::Refuse },
            retention: Retention {
                ready_age: self.ready_age.map(span),
                ready_count: self.ready_count,
                in_flight_factor: self.in_flight_factor.filter(|most| *most > 0),
                dead_age: self.dead_age.map(span),
                dead_count: self.dead_count,
            },
        }
    }
}

/// What a command led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Sent(u64),
    Duplicate(u64),
    Delivered { id: u64, attempt: u32, deadline: u64 },
    Died { id: u64, reason: DeadReason },
    Settled(u64),
    Redriven(u64),
    Discarded(u64),
    Purged(Vec<u64>),
    Configured,
    Opened,
    Nothing,
    Refused(Refusal),
}

impl Outcome {
    /// Whether anything is different now.
    pub(crate) fn changes(&self) -> bool {
        !matches!(self, Self::Duplicate(_) | Self::Nothing | Self::Refused(_))
    }
}

/// A message as anybody may see it. `due` only where the message waits for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: u64,
    pub(crate) phase: Phase,
    pub(crate) attempts: u32,
    pub(crate) entered: u64,
    pub(crate) due: Option<u64>,
    /// The number of the delivery it is out on.
    pub(crate) delivery: Option<usize>,
    pub(crate) error: Option<String>,
    pub(crate) dead: Option<(DeadReason, u64)>,
}
