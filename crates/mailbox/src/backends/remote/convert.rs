//! Between the library's types and the shapes of the wire. What a service says is not trusted to
//! make sense: it may be another version, or no mailbox service at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mailbox_core::{DeadReason, LateSettle, Phase, Policy, Retention, Totals, Verdict, limits};
use mailbox_wire::payload::Payload;
use mailbox_wire::reserved::{CORR_ID, PARTITION, SIG, TRACEPARENT};
use mailbox_wire::{correlation, json};

use crate::abilities::Abilities;
use crate::backend::{
    Death, Delivery, Letter, Outgoing, Record, Selection, Sent, Settlement, Stats,
};
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::id::{MessageId, ReceiptHandle};
use crate::name::Name;

use super::calls::PAYLOAD;
use super::capability::SOURCES;
use super::door::Failed;
use super::settle::is_of;

/// Most that is kept of what a service says for people.
const TEXT: usize = 1024;

/// Names of arguments that a service can find fault with.
const FIELDS: &[&str] = &[
    "ack",
    "address",
    "attribute key",
    "attribute value",
    "attributes",
    "batch",
    "capability",
    "caveats",
    "corr_id",
    "dedup_capacity",
    "delay",
    "durability",
    "error",
    "group",
    "idempotency_key",
    "ids",
    "items",
    "limit",
    "max_attempts",
    "max_in_flight",
    "max_messages",
    "message",
    "message with its attributes",
    "messages",
    "msg_ids",
    "nack delay",
    "name",
    "path",
    "payload",
    "query",
    "reason",
    "receipt_handle",
    "reply_to",
    "retention.dead_age",
    "retention.in_flight_factor",
    "retention.ready_age",
    "storage",
    "token_id",
    "topic",
    "ttl",
    "visibility_timeout",
];

/// What a service said that makes no sense.
pub(super) fn garbled(what: &str) -> Error {
    let message = format!("the service says something that makes no sense: {what}");
    Error::new(ErrorKind::Internal, message)
}

/// Whole milliseconds; a part of one counts as one, so that nothing comes too early.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

pub(super) fn error(problem: json::Problem) -> Error {
    let kind = match ErrorKind::from_name(&problem.kind) {
        // It is the service's store that is closed; here everything is open.
        Some(ErrorKind::Closed) => ErrorKind::Connection,
        Some(kind) => kind,
        None => ErrorKind::Internal,
    };
    let message = match problem.reason.as_deref() {
        // The service says how to write one in its protocol: that is not for users of this library.
        Some("missing") if kind == ErrorKind::Unauthorized => {
            format!("no capability: one is taken from {SOURCES}")
        }
        _ => bounded(problem.message),
    };
    let mut error = Error::new(kind, message).with_retry(match problem.retry_after_ms {
        None => Retry::Never,
        Some(0) => Retry::Now,
        Some(millis) => Retry::After(Duration::from_millis(millis)),
    });
    if let Some(mailbox) = problem.topic.and_then(|topic| Name::parse(&topic).ok()) {
        error = error.with_mailbox(&mailbox);
    }
    let field = problem.field.as_deref();
    match FIELDS.iter().find(|known| Some(**known) == field) {
        Some(field) => error.with_field(field),
        None => error,
    }
}

/// What a service says for people. It may say as much as it likes.
fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT));
    text
}

pub(super) fn abilities(it: &json::Abilities) -> Abilities {
    Abilities {
        durable: it.durable,
        ordered: it.ordered,
        exact_count: it.exact_count,
        totals: it.totals,
        idempotency: it.idempotency,
        groups: it.groups,
        undo: it.undo,
        strict_deadlines: it.strict_deadlines,
        resolution: Duration::from_millis(it.resolution_ms),
        max_messages: it.max_messages,
        max_payload: usize::try_from(it.max_payload).unwrap_or(usize::MAX).min(PAYLOAD),
        max_delay: Duration::from_millis(it.max_delay_ms),
        ..Abilities::full("remote")
    }
}

pub(super) fn message(outgoing: Outgoing) -> json::BatchMessage {
    let mut attributes = outgoing.attributes;
    let mut take = |key: &str| attributes.remove(key);
    let (corr_id, sig) = (take(CORR_ID), take(SIG));
    let (partition, traceparent) = (take(PARTITION), take(TRACEPARENT));
    json::BatchMessage {
        topic: None,
        payload_b64: Payload(outgoing.payload),
        idem_key: outgoing.idempotency_key,
        attrs: attributes.into(),
        delay_ms: Some(millis(outgoing.delay)).filter(|delay| *delay > 0),
        reply_to: outgoing.reply_to,
        partition,
        group: outgoing.group,
        corr_id,
        sig,
        traceparent,
    }
}

/// Why one thing of several was not done.
fn refused(problem: json::Problem) -> Error {
    Failed::refused(problem).doubted().error
}

pub(super) fn sent(result: json::BatchResult) -> Result<Sent> {
    match result {
        json::BatchResult::Sent(it) => {
            Ok(Sent::new(MessageId::from_text(&it.msg_id), it.duplicate))
        }
        json::BatchResult::Refused { error } => Err(refused(*error)),
    }
}

/// A letter, if its hashes say that it is what was sent, and it was sent to this mailbox.
fn letter(mailbox: &Name, envelope: json::Envelope) -> Result<(MessageId, u32, Arc<Letter>)> {
    if !envelope.is_whole() {
        let message = format!("message {} is not what was sent", envelope.msg_id);
        return Err(Error::new(ErrorKind::Integrity, message));
    }
    if envelope.topic != mailbox.as_str() {
        return Err(garbled("a message of another mailbox"));
    }
    let enqueued_at: crate::Timestamp = envelope.ts.parse().map_err(|_| garbled("a time"))?;
    let id = MessageId::from_text(&envelope.msg_id);
    let made = correlation::made(id.as_ulid(), &envelope.msg_id, enqueued_at.as_unix_millis());
    let corr_id = Some(envelope.corr_id).filter(|given| *given != made.to_string());
    let mut attributes: BTreeMap<String, String> = envelope.attrs.into_map();
    for (key, value) in [
        (CORR_ID, corr_id),
        (SIG, envelope.sig),
        (PARTITION, envelope.partition),
        (TRACEPARENT, envelope.traceparent),
    ] {
        attributes.extend(value.map(|value| (key.to_owned(), value)));
    }
    let letter = Letter {
        payload: envelope.payload_b64.0,
        attributes,
        reply_to: envelope.reply_to,
        idempotency_key: envelope.idem_key,
        group: envelope.group,
        enqueued_at,
    };
    Ok((id, envelope.attempt, Arc::new(letter)))
}

/// A delivery; or its handle, if it is not what was sent. What is of another mailbox is nobody's
/// here: it has none.
pub(super) fn delivery(
    mailbox: &Name,
    envelope: json::Envelope,
) -> Result<Delivery, (Option<ReceiptHandle>, Error)> {
    let handle = envelope.receipt_handle.as_deref().map(ReceiptHandle::from_text);
    let own = handle.filter(|handle| is_of(mailbox, handle));
    match (letter(mailbox, envelope), own) {
        (Ok((id, delivery_count, letter)), Some(receipt_handle)) => {
            Ok(Delivery { id, letter, receipt_handle, delivery_count })
        }
        (Ok(_), None) => Err((None, garbled("a delivery without a receipt handle of its mailbox"))),
        (Err(error), own) if error.kind() == ErrorKind::Integrity => Err((own, error)),
        (Err(error), _) => Err((None, error)),
    }
}

pub(super) fn record(mailbox: &Name, it: json::Record) -> Result<Record> {
    let phase = match it.state.as_str() {
        "delayed" => Phase::Delayed,
        "ready" => Phase::Ready,
        "invisible" => Phase::Invisible,
        "dead" => Phase::Dead,
        _ => return Err(garbled("a state")),
    };
    let death = it.death.map(|death| -> Result<Death> {
        let reason = DeadReason::ALL.into_iter().find(|it| it.as_str() == death.reason);
        Ok(Death {
            reason: reason.ok_or_else(|| garbled("a reason"))?,
            at: death.at.parse().map_err(|_| garbled("a time"))?,
            order: death.order,
        })
    });
    let (id, delivery_count, letter) = letter(mailbox, it.envelope)?;
    Ok(Record {
        id,
        letter,
        phase,
        delivery_count,
        receivable_in: Duration::from_millis(it.receivable_in_ms),
        last_error: it.last_error,
        death: death.transpose()?,
    })
}

pub(super) fn settlement(settlement: Settlement) -> json::SettleItem {
    let mut item = json::SettleItem {
        op: json::SettleOp::Ack,
        msg_id: None,
        receipt_handle: Some(settlement.receipt_handle.to_string()),
        reason: None,
        delay_ms: None,
        dead: None,
        dead_reason: None,
        visibility_ms: None,
    };
    match settlement.verdict {
        Verdict::Acknowledge => {}
        Verdict::Nack { delay, error } => {
            item.op = json::SettleOp::Nack;
            item.delay_ms = Some(millis(delay));
            item.reason = error.map(String::from);
        }
        Verdict::Extend { timeout } => {
            item.op = json::SettleOp::Extend;
            item.visibility_ms = Some(millis(timeout));
        }
        Verdict::Reject { reason, error } => {
            item.op = json::SettleOp::Nack;
            item.dead = Some(true);
            item.dead_reason = Some(reason.as_str().to_owned());
            item.reason = error.map(String::from);
        }
        Verdict::Return => item.op = json::SettleOp::Return,
    }
    item
}

pub(super) fn settled(result: json::SettleResult) -> Result<()> {
    match result {
        json::SettleResult::Settled { .. } => Ok(()),
        json::SettleResult::Refused { error } => Err(refused(*error)),
    }
}

pub(super) fn stats(it: &json::Stats) -> Result<Stats> {
    let json::Totals {
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
    Ok(Stats {
        delayed: it.delayed,
        ready: it.ready,
        invisible: it.invisible,
        dead: it.dead,
        oldest_age: it.oldest_age_ms.map(Duration::from_millis),
        waiters: it.waiters,
        dedup_entries: it.dedup_entries,
        totals: Totals {
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
        durability: it.durability.parse().map_err(|_| garbled("a durability"))?,
        expires_in: it.expires_in_ms.map(Duration::from_millis),
    })
}

pub(super) fn policy(it: &json::Policy) -> Result<Policy> {
    let retention = &it.retention;
    Ok(Policy {
        max_size: it.max_size,
        max_in_flight: it.max_in_flight,
        max_attempts: it.max_attempts,
        replay_window: Duration::from_millis(it.replay_window_ms),
        dedup_capacity: usize::try_from(it.dedup_capacity).unwrap_or(usize::MAX),
        late_settle: match it.late_settle.as_str() {
            "refuse" => LateSettle::Refuse,
            "until_redelivered" => LateSettle::UntilRedelivered,
            _ => return Err(garbled("a rule")),
        },
        retention: Retention {
            ready_age: retention.ready_age_ms.map(Duration::from_millis),
            ready_count: retention.ready_count,
            in_flight_factor: retention.in_flight_factor,
            dead_age: retention.dead_age_ms.map(Duration::from_millis),
            dead_count: retention.dead_count,
        },
    })
}

/// All rules at once.
pub(super) fn policy_change(policy: &Policy) -> json::PolicyChange {
    let retention = &policy.retention;
    json::PolicyChange {
        max_size: Some(policy.max_size),
        max_in_flight: Some(policy.max_in_flight),
        max_attempts: Some(policy.max_attempts),
        replay_window_ms: Some(millis(policy.replay_window)),
        dedup_capacity: Some(policy.dedup_capacity as u64),
        late_settle: Some(match policy.late_settle {
            LateSettle::Refuse => "refuse".to_owned(),
            LateSettle::UntilRedelivered => "until_redelivered".to_owned(),
        }),
        retention: Some(json::RetentionChange {
            ready_age_ms: Some(retention.ready_age.map(millis)),
            ready_count: Some(retention.ready_count),
            in_flight_factor: Some(retention.in_flight_factor),
            dead_age_ms: Some(retention.dead_age.map(millis)),
            dead_count: Some(retention.dead_count),
        }),
    }
}

pub(super) fn dead(mailbox: &Name, which: &Selection) -> json::DeadRequest {
    let mut request =
        json::DeadRequest { topic: mailbox.to_string(), ..json::DeadRequest::default() };
    match which {
        Selection::All => {}
        Selection::Oldest(most) => request.limit = Some(*most),
        Selection::Reason(reason) => request.reason = Some(reason.as_str().to_owned()),
        Selection::These(ids) => {
            request.msg_ids = Some(ids.iter().map(ToString::to_string).collect());
        }
    }
    request
}

/// About how long a message is on the wire: for requests that must not be too long.
pub(super) fn wire_len(outgoing: &Outgoing) -> usize {
    let texts: usize =
        outgoing.attributes.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
    // A sign of text may need six.
    outgoing.payload.len().div_ceil(3) * 4 + texts * 6 + 2 * limits::REPLY_TO_LEN + 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_millisecond_counts_as_one() {
        for (nanos, expected) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(millis(Duration::from_nanos(nanos)), expected);
        }
    }

    /// The service said that one has to be in a header, or in a frame.
    #[test]
    fn who_has_no_capability_learns_how_to_give_one() {
        let problem = |reason: &str| json::Problem {
            kind: "unauthorized".to_owned(),
            message: "send one as `Authorization: Bearer ...`".to_owned(),
            reason: Some(reason.to_owned()),
            ..json::Problem::default()
        };
        let missing = error(problem("missing"));
        assert_eq!(missing.kind(), ErrorKind::Unauthorized);
        for way in ["MAILBOX_CAP", "cap_file", "RemoteConfig::with_capability"] {
            assert!(missing.message().contains(way), "{missing}");
        }
        assert!(!missing.message().contains("Bearer"), "{missing}");
        let expired = error(problem("expired"));
        assert_eq!(expired.message(), "send one as `Authorization: Bearer ...`");
    }

    #[test]
    fn what_has_its_own_field_on_the_wire_is_no_attribute_there() {
        let mut outgoing = Outgoing::new(bytes::Bytes::from_static(b"x"));
        outgoing.attributes.insert(SIG.to_owned(), "s".to_owned());
        outgoing.attributes.insert("own".to_owned(), "o".to_owned());
        let message = message(outgoing);
        assert_eq!(message.sig.as_deref(), Some("s"));
        assert_eq!(message.attrs.iter().collect::<Vec<_>>(), [("own", "o")]);
    }
}
