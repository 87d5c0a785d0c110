//! A received message: what was sent, and what can be done about it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mailbox_core::{DeadReason, Phase, Verdict};

use crate::backend::Death;
use crate::contents::Contents;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{MessageId, ReceiptHandle};
use crate::mailbox::Mailbox;
use crate::options::NackOptions;
use crate::timestamp::Timestamp;

/// One delivery of a message.
///
/// It is invisible to other consumers until its visibility timeout ends. Settle it:
/// [`acknowledge`](Self::acknowledge) when done, [`nack`](Self::nack) to have it delivered again,
/// [`reject`](Self::reject) to make it a dead letter. Dropping it does nothing: its deadline
/// brings it back (V8).
///
/// Every settling call goes to the backend, so a handle that is no longer current gives
/// `ReceiptHandleExpired`, and a call that failed for another reason can be repeated.
#[must_use = "a message that is not settled is delivered again"]
pub struct Message<T, R = ()> {
    pub(crate) mailbox: Mailbox<T, R>,
    pub(crate) id: MessageId,
    pub(crate) receipt_handle: ReceiptHandle,
    pub(crate) delivery_count: u32,
    pub(crate) contents: Contents<T, R>,
    pub(crate) finalized: AtomicBool,
}

impl<T, R> Message<T, R>
where
    T: Send + Sync + 'static,
    R: Send + Sync + 'static,
{
    /// Its identity; the same at every delivery (D4).
    pub const fn id(&self) -> &MessageId {
        &self.id
    }

    /// What was sent.
    ///
    /// # Errors
    /// `Serialization` if the payload is not a `T`. This message alone is affected: see
    /// [`payload`](Self::payload) for the bytes, [`reject`](Self::reject) to put it aside. In a
    /// worker's loop do that instead of `?`, or the message ends one worker after the other.
    pub fn body(&self) -> Result<&T> {
        self.contents.body()
    }

    /// What was sent, taken out. Settle first: the message is gone after this.
    ///
    /// # Errors
    /// As [`body`](Self::body).
    pub fn into_body(self) -> Result<T>
    where
        T: Clone,
    {
        self.contents.into_body()
    }

    /// The bytes as they came; none in a [`Mailbox::local`].
    #[must_use]
    pub fn payload(&self) -> Option<&Bytes> {
        self.contents.payload()
    }

    /// Stands for this delivery, for use outside this process.
    pub const fn receipt_handle(&self) -> &ReceiptHandle {
        &self.receipt_handle
    }

    /// 1 at the first delivery (D3).
    #[must_use]
    pub const fn delivery_count(&self) -> u32 {
        self.delivery_count
    }

    /// When it was first sent (D4).
    #[must_use]
    pub fn enqueued_at(&self) -> Timestamp {
        self.contents.enqueued_at()
    }

    /// What the sender said beside the body (D9).
    pub fn attributes(&self) -> &BTreeMap<String, String> {
        self.contents.attributes()
    }

    /// Name or address of the mailbox for replies (R1).
    #[must_use]
    pub fn reply_to(&self) -> Option<&str> {
        self.contents.reply_to()
    }

    /// Its ordering group.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.contents.group()
    }

    /// The key it was sent with.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        self.contents.idempotency_key()
    }

    /// The mailbox it came from.
    pub const fn mailbox(&self) -> &Mailbox<T, R> {
        &self.mailbox
    }

    /// Whether it was acknowledged, nacked, rejected or undone through this value.
    #[must_use]
    pub fn is_finalized(&self) -> bool {
        self.finalized.load(Ordering::Acquire)
    }

    /// Deletes the message: done. A second call gives `ReceiptHandleExpired`, like any other use
    /// of a delivery that is over.
    ///
    /// # Errors
    /// `ReceiptHandleExpired` if this delivery is over (V4); `Connection`; `Closed`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the message was deleted; calling again is safe.
    pub async fn acknowledge(&self) -> Result<()> {
        self.finalize(Verdict::Acknowledge).await
    }

    /// Gives it back: receivable again at once, behind those already waiting. (In an ordering
    /// group it keeps its place: the group goes on with it.)
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
    ///
    /// # Cancel safety
    /// As [`acknowledge`](Self::acknowledge).
    pub async fn nack(&self) -> Result<()> {
        self.nack_with(NackOptions::default()).await
    }

    /// Gives it back: receivable again after `delay`.
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge); `InvalidParameter` for a delay above 12 h.
    ///
    /// # Cancel safety
    /// As [`acknowledge`](Self::acknowledge).
    pub async fn nack_in(&self, delay: Duration) -> Result<()> {
        self.nack_with(NackOptions::default().with_delay(delay)).await
    }

    /// Gives it back, saying what went wrong.
    ///
    /// # Errors
    /// As [`nack_in`](Self::nack_in).
    ///
    /// # Cancel safety
    /// As [`acknowledge`](Self::acknowledge).
    pub async fn nack_with(&self, options: NackOptions) -> Result<()> {
        let error = options.error.map(String::into_boxed_str);
        self.finalize(Verdict::Nack { delay: options.delay, error }).await
    }

    /// Keeps it invisible for `timeout` from now (V5).
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge); `InvalidParameter` above 12 h, or beyond what the
    /// mailbox's retention lets a delivery be held.
    ///
    /// # Cancel safety
    /// As [`acknowledge`](Self::acknowledge).
    pub async fn extend_visibility(&self, timeout: Duration) -> Result<()> {
        self.mailbox.settle(&self.receipt_handle, Verdict::Extend { timeout }).await
    }

    /// Makes it a dead letter now, without further deliveries (X2). The recorded reason is
    /// `rejected`, or `decode` if its body could not be decoded.
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
    ///
    /// # Cancel safety
    /// As [`acknowledge`](Self::acknowledge).
    pub async fn reject(&self, why: impl Into<String> + Send) -> Result<()> {
        let reason = if self.body().is_ok() { DeadReason::Rejected } else { DeadReason::Decode };
        let error = Some(why.into().into_boxed_str());
        self.finalize(Verdict::Reject { reason, error }).await
    }

    /// Undoes this delivery as if it had not happened: for those who took a message for somebody
    /// and could not hand it over (D3, W2).
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
    ///
    /// # Cancel safety
    /// As [`acknowledge`](Self::acknowledge).
    pub async fn undo_delivery(&self) -> Result<()> {
        self.finalize(Verdict::Return).await
    }

    /// Sends a reply to where the sender wants it. Several are allowed, until it is settled.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> mailbox::Result<()> {
    /// use mailbox::{Mailbox, SendOptions};
    ///
    /// let questions: Mailbox<String, usize> = Mailbox::memory("questions")?;
    /// let answers: Mailbox<usize> = Mailbox::memory("answers")?;
    /// let options = SendOptions::new().with_reply_to(&answers);
    /// questions.send_with("how long is this?".to_owned(), options).await?;
    ///
    /// for question in questions.receive().await? {
    ///     question.reply(question.body()?.len()).await?;
    ///     question.acknowledge().await?;
    /// }
    /// assert_eq!(*answers.receive().await?[0].body()?, 17);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `ReplyNotAvailable`, `MessageFinalized`, `MailboxResolution`, and whatever the send gives.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the reply was sent.
    pub async fn reply(&self, body: R) -> Result<MessageId> {
        if self.is_finalized() {
            let message = format!("message {} was settled: reply before settling", self.id);
            return Err(
                Error::new(ErrorKind::MessageFinalized, message).with_mailbox(self.mailbox.name())
            );
        }
        self.reply_mailbox().await?.send(body).await
    }

    /// The mailbox for replies.
    ///
    /// # Errors
    /// `ReplyNotAvailable`, `MailboxResolution`, and whatever opening it gives.
    ///
    /// # Cancel safety
    /// Safe: nothing is sent.
    pub async fn reply_mailbox(&self) -> Result<Mailbox<R>> {
        if let Some(mailbox) = self.contents.reply_mailbox() {
            return Ok(mailbox.clone());
        }
        let Some(identifier) = self.reply_to() else {
            let message = format!("message {} names no mailbox to reply to", self.id);
            return Err(
                Error::new(ErrorKind::ReplyNotAvailable, message).with_mailbox(self.mailbox.name())
            );
        };
        match self.mailbox.resolver() {
            Some(resolver) => resolver.resolve(identifier).await,
            None => Err(Error::resolution(identifier, "the mailbox has no resolver")),
        }
    }

    async fn finalize(&self, verdict: Verdict) -> Result<()> {
        self.mailbox.settle(&self.receipt_handle, verdict).await?;
        self.finalized.store(true, Ordering::Release);
        Ok(())
    }
}

impl<T, R> fmt::Debug for Message<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("delivery_count", &self.delivery_count)
            .field("contents", &self.contents)
            .finish_non_exhaustive()
    }
}

/// A message, seen without receiving it.
pub struct Peeked<T, R = ()> {
    pub(crate) id: MessageId,
    pub(crate) contents: Contents<T, R>,
    pub(crate) phase: Phase,
    pub(crate) delivery_count: u32,
    pub(crate) receivable_in: Duration,
    pub(crate) last_error: Option<String>,
    pub(crate) death: Option<Death>,
}

impl<T, R> Peeked<T, R> {
    /// Its identity.
    pub const fn id(&self) -> &MessageId {
        &self.id
    }

    /// What was sent.
    ///
    /// # Errors
    /// `Serialization` if the payload is not a `T`.
    pub fn body(&self) -> Result<&T> {
        self.contents.body()
    }

    /// The bytes as they came; none in a [`Mailbox::local`].
    #[must_use]
    pub fn payload(&self) -> Option<&Bytes> {
        self.contents.payload()
    }

    /// Where it is in its life.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Deliveries so far.
    #[must_use]
    pub const fn delivery_count(&self) -> u32 {
        self.delivery_count
    }

    /// How long until it is receivable; zero if it is, or is dead.
    #[must_use]
    pub const fn receivable_in(&self) -> Duration {
        self.receivable_in
    }

    /// When it was first sent.
    #[must_use]
    pub fn enqueued_at(&self) -> Timestamp {
        self.contents.enqueued_at()
    }

    /// What the sender said beside the body.
    pub fn attributes(&self) -> &BTreeMap<String, String> {
        self.contents.attributes()
    }

    /// Name or address of the mailbox for replies.
    #[must_use]
    pub fn reply_to(&self) -> Option<&str> {
        self.contents.reply_to()
    }

    /// What the last nack or rejection said.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// How it died, if it is a dead letter (X1).
    #[must_use]
    pub const fn death(&self) -> Option<&Death> {
        self.death.as_ref()
    }
}

impl<T, R> fmt::Debug for Peeked<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peeked")
            .field("id", &self.id)
            .field("phase", &self.phase)
            .field("delivery_count", &self.delivery_count)
            .field("death", &self.death)
            .finish_non_exhaustive()
    }
}
