//! What a mailbox allows. Plain data: every bound that the queue keeps is one of these fields.

use std::time::Duration;

/// The rules of one queue. `Default` is the library's: no attempts limit, no retention, a replay
/// window of 300 s and bounds wide enough for a million messages in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Most messages delayed, ready and invisible together (M4). `None`: as many as there are
    /// slots. `Some(0)` accepts nothing.
    pub max_size: Option<u64>,
    /// Most messages in flight at a time (L1).
    pub max_in_flight: u64,
    /// Deliveries before a message becomes a dead letter (X1). `None`: no limit. It becomes one
    /// when it would be delivered once more; until then it counts as live.
    pub max_attempts: Option<u32>,
    /// How long an idempotency key is remembered (I1).
    pub replay_window: Duration,
    /// Most idempotency keys remembered at a time (I3).
    pub dedup_capacity: usize,
    /// Whether a settle after the deadline still counts (V4).
    pub late_settle: LateSettle,
    /// How long, and how many, messages are kept in each state (X5).
    pub retention: Retention,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_size: None,
            max_in_flight: 1 << 20,
            max_attempts: None,
            replay_window: Duration::from_secs(300),
            dedup_capacity: 1 << 20,
            late_settle: LateSettle::Refuse,
            retention: Retention::default(),
        }
    }
}

/// What a settle means after its deadline has passed and before the message is delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LateSettle {
    /// It is refused as expired: the contract's rule (V4).
    #[default]
    Refuse,
    /// It counts until the message is delivered again, as SQS has it.
    UntilRedelivered,
}

/// How long, and how many, messages are kept (X5). `None` everywhere by default: no retention.
///
/// Retention looks at the oldest message only, so that it costs the same however many there are.
/// While that one is in flight retention waits, also for those behind it; none of them is delivered
/// too old, because receive looks at the age again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retention {
    /// A message not in flight that was sent (or redriven) this long ago becomes a dead letter.
    pub ready_age: Option<Duration>,
    /// With more live messages than this the oldest one becomes a dead letter.
    pub ready_count: Option<u64>,
    /// A delivery can be held, extensions included, this many times its visibility timeout.
    pub in_flight_factor: Option<u32>,
    /// A dead letter older than this is dropped, and counted.
    pub dead_age: Option<Duration>,
    /// With more dead letters than this the oldest is dropped, and counted.
    pub dead_count: Option<u64>,
}
