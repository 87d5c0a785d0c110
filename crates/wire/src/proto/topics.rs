//! Mailboxes themselves: which there are, what is in them, their rules.

use super::garbled::{all, each, needed};
use super::{Garbled, v1};
use crate::{call, json};

mirror! {
    call::TopicsRequest = ListTopicsRequest { after, limit, stats }
    call::TopicRequest = GetTopicRequest { topic }
    call::TopicRequest = RemoveTopicRequest { topic }
    call::TopicRequest = PurgeTopicRequest { topic }
    json::Removed = RemoveTopicResponse { removed }
    json::Purged = PurgeTopicResponse { removed }
    json::Totals = Totals {
        sent, delivered, redelivered, timed_out, acknowledged, dead_lettered, redriven, purged,
        retention_dropped
    }
    json::Retention = Retention {
        ready_age_ms, ready_count, in_flight_factor, dead_age_ms, dead_count
    }
    json::Abilities = Abilities {
        backend, durable, ordered, exact_count, totals, idempotency, groups, undo,
        strict_deadlines, resolution_ms, max_messages, max_payload, max_delay_ms, max_body
    }
}

impl From<json::Topics> for v1::ListTopicsResponse {
    fn from(it: json::Topics) -> Self {
        Self { topics: all(it.topics) }
    }
}

impl TryFrom<v1::ListTopicsResponse> for json::Topics {
    type Error = Garbled;

    fn try_from(it: v1::ListTopicsResponse) -> Result<Self, Garbled> {
        Ok(Self { topics: each(it.topics)? })
    }
}

impl From<json::TopicEntry> for v1::TopicEntry {
    fn from(it: json::TopicEntry) -> Self {
        let json::TopicEntry { topic, stats } = it;
        Self { topic, stats: stats.map(Into::into) }
    }
}

impl TryFrom<v1::TopicEntry> for json::TopicEntry {
    type Error = Garbled;

    fn try_from(it: v1::TopicEntry) -> Result<Self, Garbled> {
        let v1::TopicEntry { topic, stats } = it;
        Ok(Self { topic, stats: stats.map(TryInto::try_into).transpose()? })
    }
}

impl From<json::Topic> for v1::Topic {
    fn from(it: json::Topic) -> Self {
        let json::Topic { topic, stats, policy } = it;
        Self { topic, stats: Some(stats.into()), policy: Some(policy.into()) }
    }
}

impl TryFrom<v1::Topic> for json::Topic {
    type Error = Garbled;

    fn try_from(it: v1::Topic) -> Result<Self, Garbled> {
        let v1::Topic { topic, stats, policy } = it;
        let stats = needed(stats, "stats")?.try_into()?;
        Ok(Self { topic, stats, policy: needed(policy, "policy")?.try_into()? })
    }
}

// Literals name every field, so one that is new in either is not forgotten here.
impl From<json::Stats> for v1::Stats {
    fn from(it: json::Stats) -> Self {
        Self {
            delayed: it.delayed,
            ready: it.ready,
            invisible: it.invisible,
            dead: it.dead,
            oldest_age_ms: it.oldest_age_ms,
            waiters: it.waiters,
            dedup_entries: it.dedup_entries,
            totals: Some(it.totals.into()),
            set_aside: it.set_aside,
            durability: it.durability,
            expires_in_ms: it.expires_in_ms,
        }
    }
}

impl TryFrom<v1::Stats> for json::Stats {
    type Error = Garbled;

    fn try_from(it: v1::Stats) -> Result<Self, Garbled> {
        Ok(Self {
            delayed: it.delayed,
            ready: it.ready,
            invisible: it.invisible,
            dead: it.dead,
            oldest_age_ms: it.oldest_age_ms,
            waiters: it.waiters,
            dedup_entries: it.dedup_entries,
            totals: needed(it.totals, "totals")?.into(),
            set_aside: it.set_aside,
            durability: it.durability,
            expires_in_ms: it.expires_in_ms,
        })
    }
}

impl From<json::Policy> for v1::Policy {
    fn from(it: json::Policy) -> Self {
        Self {
            max_size: it.max_size,
            max_in_flight: it.max_in_flight,
            max_attempts: it.max_attempts,
            replay_window_ms: it.replay_window_ms,
            dedup_capacity: it.dedup_capacity,
            late_settle: it.late_settle,
            retention: Some(it.retention.into()),
        }
    }
}

impl TryFrom<v1::Policy> for json::Policy {
    type Error = Garbled;

    fn try_from(it: v1::Policy) -> Result<Self, Garbled> {
        Ok(Self {
            max_size: it.max_size,
            max_in_flight: it.max_in_flight,
            max_attempts: it.max_attempts,
            replay_window_ms: it.replay_window_ms,
            dedup_capacity: it.dedup_capacity,
            late_settle: it.late_settle,
            retention: needed(it.retention, "retention")?.into(),
        })
    }
}
