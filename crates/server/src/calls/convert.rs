//! Between the library's types and the shapes of the wire.

use std::time::Duration;

use mailbox::{
    Abilities, DeadReason, Error, LateSettle, MessageId, Name, Peek, Phase, Policy, Record, Result,
    Retention, Selection, Stats, Totals,
};
use mailbox_wire::json;

use super::envelope;
use crate::config::Config;

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn stats(it: &Stats) -> json::Stats {
    let Totals {
        sent,
        delivered,
        redelivered,
        timed_out,
        acknowledged,
        dead_lettered,
        redriven,
        purged,
        retention_dropped,
    } = it.totals;
    json::Stats {
        delayed: it.delayed,
        ready: it.ready,
        invisible: it.invisible,
        dead: it.dead,
        oldest_age_ms: it.oldest_age.map(millis),
        waiters: it.waiters,
        dedup_entries: it.dedup_entries,
        totals: json::Totals {
            sent,
            delivered,
            redelivered,
            timed_out,
            acknowledged,
            dead_lettered,
            redriven,
            purged,
            retention_dropped,
        },
        set_aside: it.set_aside,
        durability: it.durability.to_string(),
        expires_in_ms: it.expires_in.map(millis),
    }
}

pub(crate) fn policy(it: &Policy) -> json::Policy {
    let retention = &it.retention;
    json::Policy {
        max_size: it.max_size,
        max_in_flight: it.max_in_flight,
        max_attempts: it.max_attempts,
        replay_window_ms: millis(it.replay_window),
        dedup_capacity: it.dedup_capacity as u64,
        late_settle: match it.late_settle {
            LateSettle::Refuse => "refuse".to_owned(),
            LateSettle::UntilRedelivered => "until_redelivered".to_owned(),
        },
        retention: json::Retention {
            ready_age_ms: retention.ready_age.map(millis),
            ready_count: retention.ready_count,
            in_flight_factor: retention.in_flight_factor,
            dead_age_ms: retention.dead_age.map(millis),
            dead_count: retention.dead_count,
        },
    }
}

/// The rules as they are, with what is asked to change.
pub(crate) fn changed(mut policy: Policy, change: json::PolicyChange) -> Result<Policy> {
    let json::PolicyChange {
        max_size,
        max_in_flight,
        max_attempts,
        replay_window_ms,
        dedup_capacity,
        late_settle,
        retention,
    } = change;
    set(&mut policy.max_size, max_size);
    set(&mut policy.max_in_flight, max_in_flight);
    set(&mut policy.max_attempts, max_attempts);
    set(&mut policy.replay_window, replay_window_ms.map(Duration::from_millis));
    let dedup_capacity = dedup_capacity.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    set(&mut policy.dedup_capacity, dedup_capacity);
    match late_settle.as_deref() {
        None => {}
        Some("refuse") => policy.late_settle = LateSettle::Refuse,
        Some("until_redelivered") => policy.late_settle = LateSettle::UntilRedelivered,
        Some(_) => {
            return Err(Error::invalid(
                "late_settle",
                "something else",
                "refuse, until_redelivered",
            ));
        }
    }
    if let Some(change) = retention {
        change_retention(&mut policy.retention, change);
    }
    Ok(policy)
}

fn change_retention(retention: &mut Retention, change: json::RetentionChange) {
    let json::RetentionChange {
        ready_age_ms,
        ready_count,
        in_flight_factor,
        dead_age_ms,
        dead_count,
    } = change;
    let age = |age: Option<Option<u64>>| age.map(|age| age.map(Duration::from_millis));
    set(&mut retention.ready_age, age(ready_age_ms));
    set(&mut retention.ready_count, ready_count);
    set(&mut retention.in_flight_factor, in_flight_factor);
    set(&mut retention.dead_age, age(dead_age_ms));
    set(&mut retention.dead_count, dead_count);
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

pub(crate) fn record(mailbox: &Name, it: Record, shards: u32) -> json::Record {
    let envelope = envelope(mailbox, &it.id, &it.letter, it.delivery_count, shards);
    json::Record {
        envelope,
        state: phase(it.phase).to_owned(),
        receivable_in_ms: millis(it.receivable_in),
        last_error: it.last_error,
        death: it.death.map(|death| json::Death {
            reason: death.reason.as_str().to_owned(),
            at: death.at.to_string(),
            order: death.order,
        }),
    }
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Delayed => "delayed",
        Phase::Ready => "ready",
        Phase::Invisible => "invisible",
        Phase::Dead => "dead",
    }
}

pub(crate) fn dead_reason(text: &str) -> Result<DeadReason> {
    let found = DeadReason::ALL.into_iter().find(|reason| reason.as_str() == text);
    found.ok_or_else(|| {
        let words = DeadReason::ALL.map(DeadReason::as_str).join(", ");
        Error::invalid("reason", "something else", words)
    })
}

/// Which dead letters a request means.
pub(crate) fn selection(request: &json::DeadRequest) -> Result<Selection> {
    match (request.limit, &request.msg_ids, &request.reason) {
        (None, None, None) => Ok(Selection::All),
        (Some(limit), None, None) => Ok(Selection::Oldest(limit)),
        (None, Some(ids), None) => Ok(Selection::These(message_ids(ids))),
        (None, None, Some(reason)) => Ok(Selection::Reason(dead_reason(reason)?)),
        _ => Err(Error::invalid("msg_ids", "not alone", "one of limit, msg_ids, reason")),
    }
}

fn message_ids(texts: &[String]) -> Vec<MessageId> {
    texts.iter().map(|text| MessageId::from_text(text)).collect()
}

pub(crate) fn these(request: &json::LookUpRequest) -> Peek {
    Peek::These(message_ids(&request.msg_ids))
}

pub(crate) fn abilities(it: &Abilities, config: &Config) -> json::Abilities {
    json::Abilities {
        backend: it.backend.to_owned(),
        durable: it.durable,
        ordered: it.ordered,
        exact_count: it.exact_count,
        totals: it.totals,
        idempotency: it.idempotency,
        groups: it.groups,
        undo: it.undo,
        strict_deadlines: it.strict_deadlines,
        resolution_ms: millis(it.resolution),
        max_messages: it.max_messages.min(config.max_messages),
        max_payload: it.max_payload as u64,
        max_delay_ms: millis(it.max_delay),
        max_body: config.limits.body as u64,
    }
}
