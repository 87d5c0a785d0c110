//! Everything that can be answered: with every field, each with a value of its own, and with none.

use mailbox_wire::attributes::Attributes;
use mailbox_wire::call::Reply;
use mailbox_wire::hash::Hash;
use mailbox_wire::json::{
    Abilities, BatchResult, Death, Deleted, Envelope, Minted, Ok, Policy, Problem, Purged,
    Received, Record, Records, Removed, Reprocessed, Retention, Revoked, Rotated, Sent, SentBatch,
    SettleResult, SettledBatch, Stats, Topic, TopicEntry, Topics, Totals,
};
use mailbox_wire::payload::Payload;

use super::{some, text};

pub(crate) fn envelope() -> Envelope {
    Envelope {
        msg_id: text("msg_id"),
        topic: text("topic"),
        ts: text("ts"),
        idem_key: some("idem_key"),
        payload_hash: Hash::of_payload(b"payload"),
        attrs: [(text("key"), text("value"))].into(),
        corr_id: text("corr_id"),
        shard: 1,
        attempt: u32::MAX,
        hash_chain: Hash::of_payload(b"chain"),
        sig: some("sig"),
        receipt_handle: some("receipt_handle"),
        visible_until_ms: Some(-1),
        reply_to: some("reply_to"),
        group: some("group"),
        partition: some("partition"),
        traceparent: some("traceparent"),
        payload_b64: Payload(text("payload").into()),
    }
}

fn empty_envelope() -> Envelope {
    Envelope {
        msg_id: String::new(),
        topic: String::new(),
        ts: String::new(),
        idem_key: None,
        payload_hash: Hash::of_payload(b""),
        attrs: Attributes::default(),
        corr_id: String::new(),
        shard: 0,
        attempt: 0,
        hash_chain: Hash::of_payload(b""),
        sig: None,
        receipt_handle: None,
        visible_until_ms: None,
        reply_to: None,
        group: None,
        partition: None,
        traceparent: None,
        payload_b64: Payload::default(),
    }
}

fn record() -> Record {
    Record {
        envelope: envelope(),
        state: text("state"),
        receivable_in_ms: 1,
        last_error: some("last_error"),
        death: Some(Death { reason: text("reason"), at: text("at"), order: 2 }),
    }
}

fn empty_record() -> Record {
    let envelope = empty_envelope();
    let state = String::new();
    Record { envelope, state, receivable_in_ms: 0, last_error: None, death: None }
}

fn problem() -> Box<Problem> {
    Box::new(Problem {
        code: text("code"),
        message: text("message"),
        corr_id: text("corr_id"),
        kind: text("kind"),
        retry_after_ms: Some(1),
        reason: some("reason"),
        field: some("field"),
        topic: some("topic"),
        msg_id: some("msg_id"),
    })
}

fn stats() -> Stats {
    Stats {
        delayed: 1,
        ready: 2,
        invisible: 3,
        dead: 4,
        oldest_age_ms: Some(5),
        waiters: 6,
        dedup_entries: 7,
        totals: Totals {
            sent: 8,
            delivered: 9,
            redelivered: 10,
            timed_out: 11,
            acknowledged: 12,
            dead_lettered: 13,
            redriven: 14,
            purged: 15,
            retention_dropped: u64::MAX,
        },
        set_aside: 16,
        durability: text("durability"),
        expires_in_ms: Some(17),
    }
}

fn policy() -> Policy {
    Policy {
        max_size: Some(1),
        max_in_flight: 2,
        max_attempts: Some(3),
        replay_window_ms: 4,
        dedup_capacity: 5,
        late_settle: text("late_settle"),
        retention: Retention {
            ready_age_ms: Some(6),
            ready_count: Some(7),
            in_flight_factor: Some(8),
            dead_age_ms: Some(9),
            dead_count: Some(10),
        },
    }
}

fn empty_topic() -> Topic {
    let retention = Retention {
        ready_age_ms: None,
        ready_count: None,
        in_flight_factor: None,
        dead_age_ms: None,
        dead_count: None,
    };
    let policy = Policy {
        max_size: None,
        max_in_flight: 0,
        max_attempts: None,
        replay_window_ms: 0,
        dedup_capacity: 0,
        late_settle: String::new(),
        retention,
    };
    Topic { topic: String::new(), stats: Stats::default(), policy }
}

/// All different, as far as a bool can be.
fn abilities() -> Vec<Abilities> {
    let with = |which: usize| Abilities {
        backend: text("backend"),
        durable: which == 0,
        ordered: which == 1,
        exact_count: which == 2,
        totals: which == 3,
        idempotency: which == 4,
        groups: which == 5,
        undo: which == 6,
        strict_deadlines: which == 7,
        resolution_ms: 1,
        max_messages: 2,
        max_payload: 3,
        max_delay_ms: 4,
        max_body: 5,
    };
    (0..9).map(with).collect()
}

/// Each of them at least once.
pub(crate) fn answers() -> Vec<Reply> {
    let sent = || Sent { msg_id: text("msg_id"), duplicate: true };
    let results = vec![
        BatchResult::Sent(sent()),
        BatchResult::Refused { error: problem() },
        BatchResult::Refused { error: Box::default() },
    ];
    let settled = vec![
        SettleResult::Settled { ok: true },
        SettleResult::Refused { error: problem() },
        SettleResult::Refused { error: Box::default() },
    ];
    let minted = Minted {
        capability: text("capability"),
        token_id: text("token_id"),
        expires_at: text("expires_at"),
    };
    let rotated = Rotated {
        kid: text("kid"),
        previous_until: some("previous_until"),
        operator_capability: some("operator_capability"),
    };
    let topics = vec![
        TopicEntry { topic: text("topic"), stats: Some(stats()) },
        TopicEntry { topic: text("other"), stats: Some(Stats::default()) },
        TopicEntry { topic: text("third"), stats: None },
    ];
    let mut all = vec![
        Reply::Sent(sent()),
        Reply::Sent(Sent { msg_id: String::new(), duplicate: false }),
        Reply::SentBatch(SentBatch { results }),
        Reply::SentBatch(SentBatch { results: Vec::new() }),
        Reply::Received(Received { messages: vec![envelope(), empty_envelope()] }),
        Reply::Received(Received { messages: Vec::new() }),
        Reply::Done(Ok { ok: true }),
        Reply::SettledBatch(SettledBatch { results: settled }),
        Reply::Topics(Topics { topics }),
        Reply::Topic(Topic { topic: text("topic"), stats: stats(), policy: policy() }),
        Reply::Topic(empty_topic()),
        Reply::Removed(Removed { removed: true }),
        Reply::Removed(Removed { removed: false }),
        Reply::Purged(Purged { removed: 1 }),
        Reply::Records(Records { messages: vec![record(), empty_record()] }),
        Reply::Record(Box::new(record())),
        Reply::Record(Box::new(empty_record())),
        Reply::Reprocessed(Reprocessed { reprocessed: 1, remaining: 2 }),
        Reply::Deleted(Deleted { deleted: 1, remaining: 2 }),
        Reply::Minted(minted),
        Reply::Revoked(Revoked { token_id: text("token_id") }),
        Reply::Rotated(rotated),
        Reply::Rotated(Rotated {
            kid: String::new(),
            previous_until: None,
            operator_capability: None,
        }),
    ];
    all.extend(abilities().into_iter().map(Reply::Abilities));
    all
}
