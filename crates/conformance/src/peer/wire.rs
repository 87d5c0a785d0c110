//! What goes over the pipe between two processes, as lines of JSON: calls and what they gave, in
//! forms that have all that a [`Backend`](mailbox::Backend) is told and tells.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mailbox::{LateSettle, Policy, Retention, Timestamp, Totals};
use serde::{Deserialize, Serialize};

/// What a clock shows, see `ManualClock::face`; none where time is real.
pub(super) type Face = Option<(Duration, Timestamp, u128)>;

/// A line to the other process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// The time it is.
    pub(super) face: Face,
    /// What its answer is called by.
    pub(super) id: u64,
    pub(super) ask: Ask,
}

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// To open the inboxes: the first of all.
    Open(Opening),
    /// To call.
    Call(Call),
    /// To drop the call with this id. It is answered as [`Told::Cancelled`] unless it was answered.
    Cancel,
    /// Only that time has passed: there is no answer.
    Nothing,
}

/// Which inboxes, and within which bounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opening {
    pub(crate) path: PathBuf,
    pub(crate) sharded: bool,
    pub(crate) max_mailboxes: Option<usize>,
    pub(crate) max_waiters: Option<usize>,
    pub(crate) max_payload: Option<usize>,
}

/// A line from the other process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) id: u64,
    pub(super) told: Told,
}

/// What became of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    Gave(Gave),
    Failed(Fault),
    Cancelled,
}

/// A call of a `Backend`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call {
    Send(String, Vec<Message>),
    Receive { mailbox: String, max_messages: u32, visibility_timeout: Duration, wait: Duration },
    Settle(String, Vec<(String, Verdict)>),
    Peek(String, Peek),
    Stats(String),
    Purge(String),
    Redrive(String, Selection),
    DeleteDead(String, Selection),
    Configure(String, #[serde(with = "Rules")] Policy),
    Policy(String),
    List(Option<String>, usize),
    Remove(String),
    Close,
}

/// What a call gave.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Gave {
    /// Identity, and whether it was known.
    Sent(Vec<Result<(String, bool), Fault>>),
    Deliveries(Vec<Delivery>),
    Settled(Vec<Result<(), Fault>>),
    Records(Vec<Record>),
    Stats(Box<Stats>),
    Count(u64),
    Policy(#[serde(with = "Rules")] Policy),
    Names(Vec<String>),
    Yes(bool),
    Done,
}

/// An error.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Fault {
    pub(super) kind: String,
    pub(super) message: String,
    /// Nothing: never. Otherwise how long to wait.
    pub(super) retry_after: Option<Duration>,
    pub(super) mailbox: Option<String>,
    pub(super) field: Option<String>,
}

/// What is sent, and what is delivered of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Message {
    /// In base64.
    pub(super) payload: String,
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) reply_to: Option<String>,
    pub(super) idempotency_key: Option<String>,
    pub(super) group: Option<String>,
    pub(super) delay: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Letter {
    pub(super) message: Message,
    pub(super) enqueued_at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Delivery {
    pub(super) id: String,
    pub(super) receipt_handle: String,
    pub(super) delivery_count: u32,
    pub(super) letter: Letter,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) letter: Letter,
    pub(super) phase: String,
    pub(super) delivery_count: u32,
    pub(super) receivable_in: Duration,
    pub(super) last_error: Option<String>,
    /// Reason, when, order.
    pub(super) death: Option<(String, Timestamp, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Verdict {
    Acknowledge,
    Nack(Duration, Option<String>),
    Extend(Duration),
    Reject(String, Option<String>),
    Return,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Peek {
    Live(u32),
    Dead(Option<u64>, u32),
    These(Vec<String>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Selection {
    All,
    Oldest(u64),
    Reason(String),
    These(Vec<String>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stats {
    /// Delayed, ready, invisible, dead.
    pub(super) counts: [u64; 4],
    pub(super) oldest_age: Option<Duration>,
    pub(super) waiters: u64,
    pub(super) dedup_entries: u64,
    #[serde(with = "Happened")]
    pub(super) totals: Totals,
    pub(super) set_aside: u64,
    pub(super) durability: String,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Policy")]
struct Rules {
    max_size: Option<u64>,
    max_in_flight: u64,
    max_attempts: Option<u32>,
    replay_window: Duration,
    dedup_capacity: usize,
    #[serde(with = "Late")]
    late_settle: LateSettle,
    #[serde(with = "Keeping")]
    retention: Retention,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "LateSettle")]
enum Late {
    Refuse,
    UntilRedelivered,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Retention")]
struct Keeping {
    ready_age: Option<Duration>,
    ready_count: Option<u64>,
    in_flight_factor: Option<u32>,
    dead_age: Option<Duration>,
    dead_count: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Totals")]
struct Happened {
    sent: u64,
    delivered: u64,
    redelivered: u64,
    timed_out: u64,
    acknowledged: u64,
    dead_lettered: u64,
    redriven: u64,
    purged: u64,
    retention_dropped: u64,
}
