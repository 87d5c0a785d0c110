//! The seam between homes and doors: one trait, bytes only. Whoever keeps messages implements it;
//! whoever gives access to them calls it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mailbox_core::{DeadReason, Phase, Policy, Totals, Verdict};

use crate::abilities::Abilities;
use crate::durability::Durability;
use crate::error::Result;
use crate::figure::Figure;
use crate::id::{MessageId, ReceiptHandle};
use crate::name::Name;
use crate::options::ReceiveOptions;
use crate::resolver::shown;
use crate::timestamp::Timestamp;

/// Keeps the messages of many mailboxes, by name.
///
/// A mailbox exists as soon as it is named: reading one that nobody has used gives empty answers,
/// not errors. Every method checks its arguments against [`Backend::abilities`], because callers
/// may pass on a stranger's. There are no default methods, so that no implementation can forget
/// one.
///
/// # Cancel safety
/// Dropping the future of `receive` loses no message and takes none out of sight for longer than
/// one visibility timeout (W2). Dropping any other future leaves it open whether the call took
/// effect, but never half of an item.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What this backend can do.
    fn abilities(&self) -> &Abilities;

    /// What others can find a mailbox by, without secrets: what is written as `reply_to` for a
    /// reader who may be on another backend. Where there is no address, the name.
    fn address(&self, mailbox: &Name) -> String;

    /// Sends a batch, in order. Returns one result per message, after the durability point (D2).
    ///
    /// # Errors
    /// As a whole: `Closed`, `Connection`, `InvalidParameter` (batch too large). Per message:
    /// `MailboxFull`, `TooLarge`, `InvalidParameter`, `Duplicate`, `Saturated`, `Unsupported`.
    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>>;

    /// Receives up to `max_messages`; waits for the first one (D5, D6, W1).
    ///
    /// # Errors
    /// `Closed`, `Connection`, `InvalidParameter`, `Saturated`.
    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>>;

    /// Settles a batch of deliveries. Returns one result each.
    ///
    /// # Errors
    /// As a whole: `Closed`, `Connection`, `InvalidParameter` (batch too large). Per delivery:
    /// `ReceiptHandleExpired`, `InvalidParameter`, `TooLarge`.
    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>>;

    /// Shows messages without receiving them (M3).
    ///
    /// # Errors
    /// `Closed`, `Connection`, `InvalidParameter`.
    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>>;

    /// Counts (M2, M3).
    ///
    /// # Errors
    /// `Closed`, `Connection`.
    async fn stats(&self, mailbox: &Name) -> Result<Stats>;

    /// Removes every message that is not a dead letter; returns how many (M1).
    ///
    /// # Errors
    /// `Closed`, `Connection`.
    async fn purge(&self, mailbox: &Name) -> Result<u64>;

    /// Puts dead letters back in line; returns how many (X3).
    ///
    /// # Errors
    /// `Closed`, `Connection`; `NotFound` if a named message is not a dead letter; `MailboxFull`.
    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64>;

    /// Deletes dead letters; returns how many (X3).
    ///
    /// # Errors
    /// `Closed`, `Connection`; `NotFound` if a named message is not a dead letter.
    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64>;

    /// Sets the rules of a mailbox.
    ///
    /// # Errors
    /// `Closed`, `Connection`, `InvalidParameter`.
    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()>;

    /// The rules of a mailbox.
    ///
    /// # Errors
    /// `Closed`, `Connection`.
    async fn policy(&self, mailbox: &Name) -> Result<Policy>;

    /// The mailboxes there are, sorted, from behind `after`, at most `limit`.
    ///
    /// # Errors
    /// `Closed`, `Connection`.
    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>>;

    /// Removes a mailbox with all its messages, dead letters and rules; false if there was none.
    /// Its waiters get `NotFound`.
    ///
    /// # Errors
    /// `Closed`, `Connection`.
    async fn remove(&self, mailbox: &Name) -> Result<bool>;

    /// What it measures of itself, if anything: for those who watch it. Costs next to nothing.
    fn figures(&self) -> Vec<Figure>;

    /// Ends it: every waiter, and every later call, gets `Closed` (W3). Closing twice is no error.
    ///
    /// # Errors
    /// Whatever went wrong while ending; it is closed all the same.
    async fn close(&self) -> Result<()>;
}

/// A message on its way in. `B` is the payload: bytes, or a body that stays in this process.
#[derive(Clone, PartialEq, Eq)]
pub struct Outgoing<B = Bytes> {
    /// The payload.
    pub payload: B,
    /// Kept with it (D9).
    pub attributes: BTreeMap<String, String>,
    /// Name or address of the mailbox for replies (R1).
    pub reply_to: Option<String>,
    /// Recognises a second send (I1).
    pub idempotency_key: Option<String>,
    /// Ordering group.
    pub group: Option<String>,
    /// How long it stays invisible at first (D8).
    pub delay: Duration,
}

impl<B> Outgoing<B> {
    /// A message with nothing but a payload.
    pub const fn new(payload: B) -> Self {
        Self {
            payload,
            attributes: BTreeMap::new(),
            reply_to: None,
            idempotency_key: None,
            group: None,
            delay: Duration::ZERO,
        }
    }
}

impl<B> fmt::Debug for Outgoing<B> {
    /// Never the payload: it is nobody's business but the consumer's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("attributes", &self.attributes.len())
            .field("reply_to", &self.reply_to.as_deref().map(shown))
            .field("delay", &self.delay)
            .finish_non_exhaustive()
    }
}

/// A message that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// Its identity; of the first one, if this send was a duplicate.
    pub id: MessageId,
    /// The key was known: nothing new was put in line (I1).
    pub duplicate: bool,
}

impl Sent {
    /// What a backend answers to a send.
    #[must_use]
    pub const fn new(id: MessageId, duplicate: bool) -> Self {
        Self { id, duplicate }
    }
}

/// What the sender said; never changes.
#[derive(Clone, PartialEq, Eq)]
pub struct Letter<B = Bytes> {
    /// The payload.
    pub payload: B,
    /// Kept with it (D9).
    pub attributes: BTreeMap<String, String>,
    /// Name or address of the mailbox for replies (R1).
    pub reply_to: Option<String>,
    /// The key it was sent with.
    pub idempotency_key: Option<String>,
    /// Ordering group.
    pub group: Option<String>,
    /// When it was first sent (D4).
    pub enqueued_at: Timestamp,
}

impl<B> fmt::Debug for Letter<B> {
    /// Never the payload: it is nobody's business but the consumer's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letter")
            .field("enqueued_at", &self.enqueued_at)
            .field("attributes", &self.attributes.len())
            .field("reply_to", &self.reply_to.as_deref().map(shown))
            .finish_non_exhaustive()
    }
}

/// One handing-out of a message.
#[derive(Debug, Clone)]
pub struct Delivery<B = Bytes> {
    /// The message's identity.
    pub id: MessageId,
    /// What the sender said.
    pub letter: Arc<Letter<B>>,
    /// Settles this delivery.
    pub receipt_handle: ReceiptHandle,
    /// 1 for the first delivery (D3).
    pub delivery_count: u32,
}

/// A verdict on a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Which delivery.
    pub receipt_handle: ReceiptHandle,
    /// What shall become of it.
    pub verdict: Verdict,
}

/// Which messages to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peek {
    /// Delayed, ready and invisible ones, oldest first, at most this many.
    Live {
        /// At most this many; a backend gives no more than `max_messages` of its abilities.
        limit: u32,
    },
    /// Dead letters in order of dying, at most `limit`, from behind the one numbered `after`.
    Dead {
        /// [`Death::order`] of the last one already seen.
        after: Option<u64>,
        /// At most this many.
        limit: u32,
    },
    /// These, in whatever state; those that are gone are left out.
    These(Vec<MessageId>),
}

/// A message, seen without receiving it.
#[derive(Debug, Clone)]
pub struct Record<B = Bytes> {
    /// Its identity.
    pub id: MessageId,
    /// What the sender said.
    pub letter: Arc<Letter<B>>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Deliveries so far.
    pub delivery_count: u32,
    /// How long until it is receivable; zero if it is, or is dead.
    pub receivable_in: Duration,
    /// What the last nack or rejection said.
    pub last_error: Option<String>,
    /// How it died, if it is a dead letter.
    pub death: Option<Death>,
}

/// How a message died (X1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// Why.
    pub reason: DeadReason,
    /// When.
    pub at: Timestamp,
    /// Higher for those that died later, with gaps; for [`Peek::Dead`].
    pub order: u64,
}

/// Which dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All there are now.
    All,
    /// The oldest, at most this many.
    Oldest(u64),
    /// All that died of this.
    Reason(DeadReason),
    /// These.
    These(Vec<MessageId>),
}

/// A mailbox, counted (M3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Sent or nacked with a delay that is not over.
    pub delayed: u64,
    /// Receivable, or waiting behind the head of their ordering group.
    pub ready: u64,
    /// Handed out, deadline not passed.
    pub invisible: u64,
    /// Dead letters.
    pub dead: u64,
    /// How long ago the oldest delayed, ready or invisible message was sent or redriven.
    pub oldest_age: Option<Duration>,
    /// Receives that are waiting, in this process.
    pub waiters: u64,
    /// Idempotency keys remembered.
    pub dedup_entries: u64,
    /// What has happened since the mailbox was made, where the backend counts it.
    pub totals: Totals,
    /// Files that are no messages and were set aside, where messages are files.
    pub set_aside: u64,
    /// What a send waits for.
    pub durability: Durability,
    /// How long the mailbox and its messages stay if nobody uses it; `None`: for ever.
    pub expires_in: Option<Duration>,
}

impl Stats {
    /// Delayed, ready and invisible messages (M2).
    #[must_use]
    pub const fn live(&self) -> u64 {
        self.delayed + self.ready + self.invisible
    }
}
