//! Changes of a mailbox's rules. Invariant: what stays, what is taken away and what is set are
//! three things: no [`Bound`](v1::Bound), one without a value, one with.

use super::garbled::needed;
use super::{Garbled, v1};
use crate::{call, json};

impl From<call::ConfigureRequest> for v1::ConfigureTopicRequest {
    fn from(it: call::ConfigureRequest) -> Self {
        let call::ConfigureRequest { topic, policy } = it;
        Self { topic, policy: Some(policy.into()) }
    }
}

impl TryFrom<v1::ConfigureTopicRequest> for call::ConfigureRequest {
    type Error = Garbled;

    fn try_from(it: v1::ConfigureTopicRequest) -> Result<Self, Garbled> {
        let v1::ConfigureTopicRequest { topic, policy } = it;
        Ok(Self { topic, policy: needed(policy, "policy")?.try_into()? })
    }
}

// Literals name every field, so one that is new in either is not forgotten here.
impl From<json::PolicyChange> for v1::PolicyChange {
    fn from(it: json::PolicyChange) -> Self {
        Self {
            max_size: bound(it.max_size),
            max_in_flight: it.max_in_flight,
            max_attempts: bound(it.max_attempts),
            replay_window_ms: it.replay_window_ms,
            dedup_capacity: it.dedup_capacity,
            late_settle: it.late_settle,
            retention: it.retention.map(Into::into),
        }
    }
}

impl TryFrom<v1::PolicyChange> for json::PolicyChange {
    type Error = Garbled;

    fn try_from(it: v1::PolicyChange) -> Result<Self, Garbled> {
        Ok(Self {
            max_size: stated(it.max_size),
            max_in_flight: it.max_in_flight,
            max_attempts: stated_narrow(it.max_attempts, "max_attempts")?,
            replay_window_ms: it.replay_window_ms,
            dedup_capacity: it.dedup_capacity,
            late_settle: it.late_settle,
            retention: it.retention.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<json::RetentionChange> for v1::RetentionChange {
    fn from(it: json::RetentionChange) -> Self {
        Self {
            ready_age_ms: bound(it.ready_age_ms),
            ready_count: bound(it.ready_count),
            in_flight_factor: bound(it.in_flight_factor),
            dead_age_ms: bound(it.dead_age_ms),
            dead_count: bound(it.dead_count),
        }
    }
}

impl TryFrom<v1::RetentionChange> for json::RetentionChange {
    type Error = Garbled;

    fn try_from(it: v1::RetentionChange) -> Result<Self, Garbled> {
        Ok(Self {
            ready_age_ms: stated(it.ready_age_ms),
            ready_count: stated(it.ready_count),
            in_flight_factor: stated_narrow(it.in_flight_factor, "in_flight_factor")?,
            dead_age_ms: stated(it.dead_age_ms),
            dead_count: stated(it.dead_count),
        })
    }
}

fn bound<T: Into<u64>>(stated: Option<Option<T>>) -> Option<v1::Bound> {
    stated.map(|value| v1::Bound { value: value.map(Into::into) })
}

fn stated(bound: Option<v1::Bound>) -> Option<Option<u64>> {
    bound.map(|bound| bound.value)
}

/// A bound that has 32 bits: a larger one is refused. Fewer bits on the wire would not do that,
/// readers of protobuf cut off what is too much.
fn stated_narrow(
    bound: Option<v1::Bound>,
    name: &'static str,
) -> Result<Option<Option<u32>>, Garbled> {
    let narrow = |value: u64| u32::try_from(value).map_err(|_| Garbled(name));
    bound.map(|bound| bound.value.map(narrow).transpose()).transpose()
}
