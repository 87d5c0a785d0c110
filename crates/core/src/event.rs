//! What happened: the facts a journal stores and a replay needs. Invariant: an event names results
//! (slots, deadlines, lease ids), never wishes, so that replaying it depends on no later rule.

use std::time::Duration;

use crate::dedup::{Fingerprint, Idempotency};
use crate::ids::{Id, Key, LeaseId, Receipt};
use crate::policy::Policy;
use crate::time::Time;

/// A message somebody wants to send.
#[derive(Debug, Clone)]
pub struct Draft<P> {
    /// Its identity, chosen by the home.
    pub id: Id,
    /// What stands for its payload.
    pub payload: P,
    /// How long it stays invisible at first (D8).
    pub delay: Duration,
    /// At most one message of a group is in flight, in order of sending.
    pub group: Option<Box<str>>,
    /// Key and payload fingerprint of an idempotent send (I1).
    pub idempotency: Option<(Box<str>, Fingerprint)>,
}

impl<P> Draft<P> {
    /// A message without delay, group or idempotency key.
    pub const fn new(id: Id, payload: P) -> Self {
        Self { id, payload, delay: Duration::ZERO, group: None, idempotency: None }
    }
}

/// What a send leads to.
#[derive(Debug, Clone)]
pub enum Sending<P> {
    /// A new message; apply the event.
    New(Event<P>),
    /// The key, with the same payload, was sent before: this is the first message (I1).
    Duplicate(Id),
}

/// What a consumer decided about a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Done: delete the message.
    Acknowledge,
    /// Not done: receivable again after `delay`.
    Nack {
        /// How long it stays invisible.
        delay: Duration,
        /// What went wrong, kept as `last_error`.
        error: Option<Box<str>>,
    },
    /// Keep it invisible for `timeout` from now.
    Extend {
        /// The new visibility timeout.
        timeout: Duration,
    },
    /// Never again: make it a dead letter.
    Reject {
        /// Why, in one of the contract's words.
        reason: DeadReason,
        /// Why, in the consumer's words.
        error: Option<Box<str>>,
    },
    /// The delivery never reached its consumer: undo it, as if it had not happened (D3, W2).
    Return,
}

/// Why a message became a dead letter (X2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeadReason {
    /// It would have been delivered once more than allowed.
    MaxAttempts,
    /// It waited longer, or there were more, than retention allows.
    Expired,
    /// A consumer asked for it.
    Rejected,
    /// Its payload is not what was sent.
    Integrity,
    /// Its body could not be decoded.
    Decode,
}

impl DeadReason {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::MaxAttempts, Self::Expired, Self::Rejected, Self::Integrity, Self::Decode];

    /// The contract's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxAttempts => "max_attempts",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
            Self::Integrity => "integrity",
            Self::Decode => "decode",
        }
    }
}

/// Something that happened to a queue.
#[derive(Debug, Clone)]
pub enum Event<P> {
    /// A message was accepted.
    Sent {
        /// Where it was put.
        key: Key,
        /// Its identity.
        id: Id,
        /// When.
        at: Time,
        /// When it becomes receivable.
        due: Time,
        /// Its ordering group.
        group: Option<Box<str>>,
        /// The key it can be recognised by, in the same event as the message (I1).
        idempotency: Option<Box<Idempotency>>,
        /// What stands for its payload.
        payload: P,
    },
    /// It was handed out.
    Delivered {
        /// The message.
        key: Key,
        /// The delivery.
        lease: LeaseId,
        /// When.
        at: Time,
        /// When it comes back by itself.
        due: Time,
        /// Up to when the delivery can be extended.
        hold_until: Time,
    },
    /// It was acknowledged, and is gone.
    Acknowledged {
        /// The message.
        key: Key,
        /// When.
        at: Time,
    },
    /// It was nacked.
    Nacked {
        /// The message.
        key: Key,
        /// When.
        at: Time,
        /// When it becomes receivable again.
        due: Time,
        /// What went wrong.
        error: Option<Box<str>>,
    },
    /// Its delivery was extended.
    Extended {
        /// The message.
        key: Key,
        /// When.
        at: Time,
        /// The new deadline.
        due: Time,
    },
    /// Its delivery was undone before anybody saw it.
    Returned {
        /// The message.
        key: Key,
        /// When.
        at: Time,
    },
    /// It became a dead letter.
    DeadLettered {
        /// The message.
        key: Key,
        /// When.
        at: Time,
        /// Why.
        reason: DeadReason,
        /// Why, in somebody's words; `None` keeps what an earlier nack said.
        error: Option<Box<str>>,
    },
    /// A dead letter is back in line.
    Redriven {
        /// The message.
        key: Key,
        /// When.
        at: Time,
    },
    /// A dead letter was deleted.
    Discarded {
        /// The message.
        key: Key,
        /// When.
        at: Time,
        /// By retention, not by somebody.
        by_retention: bool,
    },
    /// Every delayed, ready and invisible message was removed.
    Purged {
        /// When.
        at: Time,
    },
    /// The rules changed.
    Configured {
        /// When.
        at: Time,
        /// The rules from now on.
        policy: Box<Policy>,
    },
    /// The queue was opened: leases from now on belong to this epoch (V3).
    Opened {
        /// When.
        at: Time,
        /// The new epoch, above every earlier one.
        epoch: u32,
    },
}

impl<P> Event<P> {
    /// When it happened.
    #[must_use]
    pub const fn at(&self) -> Time {
        match self {
            Self::Sent { at, .. }
            | Self::Delivered { at, .. }
            | Self::Acknowledged { at, .. }
            | Self::Nacked { at, .. }
            | Self::Extended { at, .. }
            | Self::Returned { at, .. }
            | Self::DeadLettered { at, .. }
            | Self::Redriven { at, .. }
            | Self::Discarded { at, .. }
            | Self::Purged { at }
            | Self::Configured { at, .. }
            | Self::Opened { at, .. } => *at,
        }
    }

    /// Which message it happened to, if to one.
    #[must_use]
    pub const fn key(&self) -> Option<Key> {
        match self {
            Self::Sent { key, .. }
            | Self::Delivered { key, .. }
            | Self::Acknowledged { key, .. }
            | Self::Nacked { key, .. }
            | Self::Extended { key, .. }
            | Self::Returned { key, .. }
            | Self::DeadLettered { key, .. }
            | Self::Redriven { key, .. }
            | Self::Discarded { key, .. } => Some(*key),
            Self::Purged { .. } | Self::Configured { .. } | Self::Opened { .. } => None,
        }
    }

    /// The receipt of a delivery; `None` for every other event.
    #[must_use]
    pub const fn receipt(&self) -> Option<Receipt> {
        match self {
            Self::Delivered { key, lease, .. } => Some(Receipt { key: *key, lease: *lease }),
            _ => None,
        }
    }
}
