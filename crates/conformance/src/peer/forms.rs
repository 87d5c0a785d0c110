//! From what a backend takes and gives to what goes over the pipe, and back. What the other process
//! says is not trusted to make sense: it may have a defect, and then that is an error.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mailbox::{
    DeadReason, Death, Delivery, Durability, Error, ErrorKind, Letter, MessageId, Name, Outgoing,
    Peek, Phase, ReceiptHandle, Record, Result, Retry, Selection, Sent, Settlement, Stats, Verdict,
};

use super::wire;
use crate::words;

/// What came over the pipe is not what was agreed on.
pub(super) fn garbled(what: &str) -> Error {
    Error::new(ErrorKind::Connection, format!("the other process says {what}"))
}

pub(super) fn name(text: &str) -> Result<Name> {
    Name::parse(text)
}

impl From<Error> for wire::Fault {
    fn from(error: Error) -> Self {
        Self {
            kind: words::of_kind(error.kind()),
            // With what lies behind it: that stays where it happened.
            message: match std::error::Error::source(&error) {
                Some(source) => format!("{}: {source}", error.message()),
                None => error.message().to_owned(),
            },
            retry_after: match error.retry() {
                Retry::Never => None,
                Retry::Now => Some(std::time::Duration::ZERO),
                Retry::After(time) => Some(time),
            },
            mailbox: error.mailbox().map(Name::to_string),
            field: error.field().map(str::to_owned),
        }
    }
}

impl From<wire::Fault> for Error {
    fn from(fault: wire::Fault) -> Self {
        let Some(kind) = words::kind(&fault.kind) else { return garbled("a kind of error") };
        let mut error = Self::new(kind, fault.message);
        error = error.with_retry(match fault.retry_after {
            None => Retry::Never,
            Some(time) if time.is_zero() => Retry::Now,
            Some(time) => Retry::After(time),
        });
        if let Some(name) = fault.mailbox.and_then(|name| Name::parse(&name).ok()) {
            error = error.with_mailbox(&name);
        }
        match fault.field {
            Some(field) => error.with_field(words::lasting(&field)),
            None => error,
        }
    }
}

impl From<Outgoing> for wire::Message {
    fn from(message: Outgoing) -> Self {
        Self {
            payload: STANDARD.encode(&message.payload),
            attributes: message.attributes,
            reply_to: message.reply_to,
            idempotency_key: message.idempotency_key,
            group: message.group,
            delay: message.delay,
        }
    }
}

impl TryFrom<wire::Message> for Outgoing {
    type Error = Error;

    fn try_from(message: wire::Message) -> Result<Self> {
        let payload = STANDARD.decode(&message.payload).map_err(|_| garbled("no base64"))?;
        Ok(Self {
            payload: Bytes::from(payload),
            attributes: message.attributes,
            reply_to: message.reply_to,
            idempotency_key: message.idempotency_key,
            group: message.group,
            delay: message.delay,
        })
    }
}

impl From<&Letter> for wire::Letter {
    fn from(letter: &Letter) -> Self {
        let mut message = Outgoing::new(letter.payload.clone());
        message.attributes = letter.attributes.clone();
        message.reply_to = letter.reply_to.clone();
        message.idempotency_key = letter.idempotency_key.clone();
        message.group = letter.group.clone();
        Self { message: message.into(), enqueued_at: letter.enqueued_at }
    }
}

impl TryFrom<wire::Letter> for Letter {
    type Error = Error;

    fn try_from(letter: wire::Letter) -> Result<Self> {
        let message = Outgoing::try_from(letter.message)?;
        Ok(Self {
            payload: message.payload,
            attributes: message.attributes,
            reply_to: message.reply_to,
            idempotency_key: message.idempotency_key,
            group: message.group,
            enqueued_at: letter.enqueued_at,
        })
    }
}

impl From<Delivery> for wire::Delivery {
    fn from(delivery: Delivery) -> Self {
        Self {
            id: delivery.id.to_string(),
            receipt_handle: delivery.receipt_handle.to_string(),
            delivery_count: delivery.delivery_count,
            letter: (&*delivery.letter).into(),
        }
    }
}

impl TryFrom<wire::Delivery> for Delivery {
    type Error = Error;

    fn try_from(delivery: wire::Delivery) -> Result<Self> {
        Ok(Self {
            id: MessageId::from_text(&delivery.id),
            letter: Arc::new(delivery.letter.try_into()?),
            receipt_handle: ReceiptHandle::from_text(&delivery.receipt_handle),
            delivery_count: delivery.delivery_count,
        })
    }
}

impl From<Record> for wire::Record {
    fn from(record: Record) -> Self {
        Self {
            id: record.id.to_string(),
            letter: (&*record.letter).into(),
            phase: words::of_phase(record.phase),
            delivery_count: record.delivery_count,
            receivable_in: record.receivable_in,
            last_error: record.last_error,
            death: record.death.map(|it| (it.reason.as_str().to_owned(), it.at, it.order)),
        }
    }
}

impl TryFrom<wire::Record> for Record {
    type Error = Error;

    fn try_from(record: wire::Record) -> Result<Self> {
        let phase: Option<Phase> = words::phase(&record.phase);
        let death = match record.death {
            None => None,
            Some((reason, at, order)) => Some(Death { reason: dead_reason(&reason)?, at, order }),
        };
        Ok(Self {
            id: MessageId::from_text(&record.id),
            letter: Arc::new(record.letter.try_into()?),
            phase: phase.ok_or_else(|| garbled("a phase"))?,
            delivery_count: record.delivery_count,
            receivable_in: record.receivable_in,
            last_error: record.last_error,
            death,
        })
    }
}

fn dead_reason(text: &str) -> Result<DeadReason> {
    words::reason(text).ok_or_else(|| garbled("a reason"))
}

pub(super) fn settlement(settlement: Settlement) -> (String, wire::Verdict) {
    let words = |error: Option<Box<str>>| error.map(String::from);
    let verdict = match settlement.verdict {
        Verdict::Acknowledge => wire::Verdict::Acknowledge,
        Verdict::Nack { delay, error } => wire::Verdict::Nack(delay, words(error)),
        Verdict::Extend { timeout } => wire::Verdict::Extend(timeout),
        Verdict::Reject { reason, error } => {
            wire::Verdict::Reject(reason.as_str().to_owned(), words(error))
        }
        Verdict::Return => wire::Verdict::Return,
    };
    (settlement.receipt_handle.to_string(), verdict)
}

pub(super) fn settlement_back((handle, verdict): (String, wire::Verdict)) -> Result<Settlement> {
    let words = |error: Option<String>| error.map(String::into_boxed_str);
    let verdict = match verdict {
        wire::Verdict::Acknowledge => Verdict::Acknowledge,
        wire::Verdict::Nack(delay, error) => Verdict::Nack { delay, error: words(error) },
        wire::Verdict::Extend(timeout) => Verdict::Extend { timeout },
        wire::Verdict::Reject(reason, error) => {
            Verdict::Reject { reason: dead_reason(&reason)?, error: words(error) }
        }
        wire::Verdict::Return => Verdict::Return,
    };
    Ok(Settlement { receipt_handle: ReceiptHandle::from_text(&handle), verdict })
}

fn texts(ids: &[MessageId]) -> Vec<String> {
    ids.iter().map(MessageId::to_string).collect()
}

fn ids(texts: &[String]) -> Vec<MessageId> {
    texts.iter().map(|text| MessageId::from_text(text)).collect()
}

pub(super) fn peek(request: &Peek) -> wire::Peek {
    match request {
        Peek::Live { limit } => wire::Peek::Live(*limit),
        Peek::Dead { after, limit } => wire::Peek::Dead(*after, *limit),
        Peek::These(these) => wire::Peek::These(texts(these)),
    }
}

pub(super) fn peek_back(request: &wire::Peek) -> Peek {
    match request {
        wire::Peek::Live(limit) => Peek::Live { limit: *limit },
        wire::Peek::Dead(after, limit) => Peek::Dead { after: *after, limit: *limit },
        wire::Peek::These(these) => Peek::These(ids(these)),
    }
}

pub(super) fn selection(which: &Selection) -> wire::Selection {
    match which {
        Selection::All => wire::Selection::All,
        Selection::Oldest(most) => wire::Selection::Oldest(*most),
        Selection::Reason(reason) => wire::Selection::Reason(reason.as_str().to_owned()),
        Selection::These(these) => wire::Selection::These(texts(these)),
    }
}

pub(super) fn selection_back(which: &wire::Selection) -> Result<Selection> {
    Ok(match which {
        wire::Selection::All => Selection::All,
        wire::Selection::Oldest(most) => Selection::Oldest(*most),
        wire::Selection::Reason(reason) => Selection::Reason(dead_reason(reason)?),
        wire::Selection::These(these) => Selection::These(ids(these)),
    })
}

pub(super) fn sent(sent: &Sent) -> (String, bool) {
    (sent.id.to_string(), sent.duplicate)
}

pub(super) fn sent_back((id, duplicate): &(String, bool)) -> Sent {
    Sent::new(MessageId::from_text(id), *duplicate)
}

impl From<Stats> for wire::Stats {
    fn from(stats: Stats) -> Self {
        Self {
            counts: [stats.delayed, stats.ready, stats.invisible, stats.dead],
            oldest_age: stats.oldest_age,
            waiters: stats.waiters,
            dedup_entries: stats.dedup_entries,
            totals: stats.totals,
            set_aside: stats.set_aside,
            durability: stats.durability.to_string(),
        }
    }
}

impl TryFrom<wire::Stats> for Stats {
    type Error = Error;

    fn try_from(told: wire::Stats) -> Result<Self> {
        let mut stats = Self::default();
        [stats.delayed, stats.ready, stats.invisible, stats.dead] = told.counts;
        stats.oldest_age = told.oldest_age;
        stats.waiters = told.waiters;
        stats.dedup_entries = told.dedup_entries;
        stats.totals = told.totals;
        stats.set_aside = told.set_aside;
        stats.durability = match told.durability.as_str() {
            "memory" => Durability::Memory,
            other => other.parse()?,
        };
        Ok(stats)
    }
}
