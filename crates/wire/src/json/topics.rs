//! Mailboxes themselves: which there are, what is in them, their rules.

use serde::{Deserialize, Serialize};

use super::stated;
use crate::object::{Listed, maybe_object, objects};
use crate::texts::texts;

/// `GET /v1/topics`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Topics {
    /// Sorted by name.
    #[serde(deserialize_with = "objects")]
    pub topics: Vec<TopicEntry>,
}

/// One mailbox of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TopicEntry {
    /// Its name.
    pub topic: String,
    /// What is in it, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Stats>,
}

impl Listed for TopicEntry {}

/// `GET /v1/topics/{topic}`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Topic {
    /// Its name.
    pub topic: String,
    /// What is in it.
    pub stats: Stats,
    /// Its rules.
    pub policy: Policy,
}

/// A mailbox, counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stats {
    /// Sent or nacked with a delay that is not over.
    pub delayed: u64,
    /// Receivable.
    pub ready: u64,
    /// Handed out.
    pub invisible: u64,
    /// Dead letters.
    pub dead: u64,
    /// How long ago the oldest message that is not dead was sent.
    pub oldest_age_ms: Option<u64>,
    /// Receives that are waiting.
    pub waiters: u64,
    /// Idempotency keys remembered.
    pub dedup_entries: u64,
    /// What has happened since it was made.
    pub totals: Totals,
    /// Files that are no messages, where messages are files.
    pub set_aside: u64,
    /// What a send waits for.
    pub durability: String,
    /// How long it stays if nobody uses it.
    pub expires_in_ms: Option<u64>,
}

/// What has happened to a mailbox since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Totals {
    /// Messages accepted.
    pub sent: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Deliveries that were not a message's first.
    pub redelivered: u64,
    /// Deliveries that ended by their deadline.
    pub timed_out: u64,
    /// Messages acknowledged.
    pub acknowledged: u64,
    /// Messages that became dead letters.
    pub dead_lettered: u64,
    /// Dead letters put back in line.
    pub redriven: u64,
    /// Messages removed by purge.
    pub purged: u64,
    /// Dead letters dropped by retention.
    pub retention_dropped: u64,
}

/// The rules of a mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Policy {
    /// Most messages that are not dead.
    pub max_size: Option<u64>,
    /// Most messages in flight.
    pub max_in_flight: u64,
    /// Deliveries before a message becomes a dead letter.
    pub max_attempts: Option<u32>,
    /// How long an idempotency key is remembered.
    pub replay_window_ms: u64,
    /// Most idempotency keys remembered.
    pub dedup_capacity: u64,
    /// Settling after the deadline: `refuse`, or `until_redelivered`.
    pub late_settle: String,
    /// How long, and how many, messages are kept.
    pub retention: Retention,
}

/// How long, and how many, messages are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Retention {
    /// Older messages become dead letters.
    pub ready_age_ms: Option<u64>,
    /// With more messages the oldest becomes a dead letter.
    pub ready_count: Option<u64>,
    /// A delivery can be held this many times its visibility timeout.
    pub in_flight_factor: Option<u32>,
    /// Older dead letters are dropped.
    pub dead_age_ms: Option<u64>,
    /// With more dead letters the oldest is dropped.
    pub dead_count: Option<u64>,
}

/// `PUT /v1/topics/{topic}`: what is not there stays as it is, `null` takes a bound away.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyChange {
    /// Most messages that are not dead.
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub max_size: Option<Option<u64>>,
    /// Most messages in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u64>,
    /// Deliveries before a message becomes a dead letter.
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub max_attempts: Option<Option<u32>>,
    /// How long an idempotency key is remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_window_ms: Option<u64>,
    /// Most idempotency keys remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_capacity: Option<u64>,
    /// Settling after the deadline: `refuse`, or `until_redelivered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_settle: Option<String>,
    /// How long, and how many, messages are kept.
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionChange>,
}

/// What changes about how long, and how many, messages are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetentionChange {
    /// Older messages become dead letters.
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub ready_age_ms: Option<Option<u64>>,
    /// With more messages the oldest becomes a dead letter.
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub ready_count: Option<Option<u64>>,
    /// A delivery can be held this many times its visibility timeout.
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub in_flight_factor: Option<Option<u32>>,
    /// Older dead letters are dropped.
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub dead_age_ms: Option<Option<u64>>,
    /// With more dead letters the oldest is dropped.
    #[serde(default, deserialize_with = "stated", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub dead_count: Option<Option<u64>>,
}

/// `POST /v1/topics/{topic}/lookup`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LookUpRequest {
    /// These, in whatever state; those that are gone are left out.
    #[serde(deserialize_with = "texts")]
    #[cfg_attr(feature = "openapi", schema(max_items = 256))]
    pub msg_ids: Vec<String>,
}

/// How many messages were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Purged {
    /// These are gone.
    pub removed: u64,
}

/// Whether there was such a mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Removed {
    /// It was there, and is gone.
    pub removed: bool,
}

/// `GET /v1/abilities`: what the service's store can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Abilities {
    /// What keeps the messages.
    pub backend: String,
    /// They survive the end of the service.
    pub durable: bool,
    /// Deliveries are in order of becoming receivable.
    pub ordered: bool,
    /// Counts are exact.
    pub exact_count: bool,
    /// Everything that happens is counted.
    pub totals: bool,
    /// Idempotency keys are understood.
    pub idempotency: bool,
    /// Ordering groups are understood.
    pub groups: bool,
    /// A delivery can be undone.
    pub undo: bool,
    /// A settle after the deadline is always refused.
    pub strict_deadlines: bool,
    /// How late a deadline may be noticed.
    pub resolution_ms: u64,
    /// Most messages of a receive or a batch.
    pub max_messages: u32,
    /// Largest payload.
    pub max_payload: u64,
    /// Longest delay of a send.
    pub max_delay_ms: u64,
    /// Largest body of a request.
    pub max_body: u64,
}
