//! A received message, without async.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::blocking::mailbox::Mailbox;
use crate::blocking::runtime::wait;
use crate::error::Result;
use crate::id::{MessageId, ReceiptHandle};
use crate::message::Message as AsyncMessage;
use crate::options::NackOptions;
use crate::timestamp::Timestamp;

/// One delivery of a message. See [`crate::Message`] for what each method promises.
///
/// # Errors
/// Beside those of the async message, every call that may wait gives `Unsupported` in an async
/// task; see [the module](crate::blocking).
#[must_use = "a message that is not settled is delivered again"]
pub struct Message<T, R = ()> {
    inner: AsyncMessage<T, R>,
    mailbox: Mailbox<T, R>,
}

impl<T, R> Message<T, R> {
    pub(super) const fn new(inner: AsyncMessage<T, R>, mailbox: Mailbox<T, R>) -> Self {
        Self { inner, mailbox }
    }

    /// The same message, with async.
    pub const fn as_async(&self) -> &AsyncMessage<T, R> {
        &self.inner
    }

    /// The same message, with async.
    pub fn into_async(self) -> AsyncMessage<T, R> {
        self.inner
    }
}

impl<T, R> Message<T, R>
where
    T: Send + Sync + 'static,
    R: Send + Sync + 'static,
{
    /// Its identity; the same at every delivery (D4).
    pub const fn id(&self) -> &MessageId {
        self.inner.id()
    }

    /// What was sent.
    ///
    /// # Errors
    /// `Serialization` if the payload is not a `T`.
    pub fn body(&self) -> Result<&T> {
        self.inner.body()
    }

    /// What was sent, taken out. Settle first: the message is gone after this.
    ///
    /// # Errors
    /// As [`body`](Self::body).
    pub fn into_body(self) -> Result<T>
    where
        T: Clone,
    {
        self.inner.into_body()
    }

    /// The bytes as they came; none in a [`Mailbox::local`].
    #[must_use]
    pub fn payload(&self) -> Option<&Bytes> {
        self.inner.payload()
    }

    /// Stands for this delivery, for use outside this process.
    pub const fn receipt_handle(&self) -> &ReceiptHandle {
        self.inner.receipt_handle()
    }

    /// 1 at the first delivery (D3).
    #[must_use]
    pub const fn delivery_count(&self) -> u32 {
        self.inner.delivery_count()
    }

    /// When it was first sent (D4).
    #[must_use]
    pub fn enqueued_at(&self) -> Timestamp {
        self.inner.enqueued_at()
    }

    /// What the sender said beside the body (D9).
    pub fn attributes(&self) -> &BTreeMap<String, String> {
        self.inner.attributes()
    }

    /// Name or address of the mailbox for replies (R1).
    #[must_use]
    pub fn reply_to(&self) -> Option<&str> {
        self.inner.reply_to()
    }

    /// Its ordering group.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.inner.group()
    }

    /// The key it was sent with.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<&str> {
        self.inner.idempotency_key()
    }

    /// The mailbox it came from.
    pub const fn mailbox(&self) -> &Mailbox<T, R> {
        &self.mailbox
    }

    /// Whether it was acknowledged, nacked or rejected through this value.
    #[must_use]
    pub fn is_finalized(&self) -> bool {
        self.inner.is_finalized()
    }

    /// Deletes the message: done.
    ///
    /// # Errors
    /// `ReceiptHandleExpired` if this delivery is over (V4); `Connection`; `Closed`.
    pub fn acknowledge(&self) -> Result<()> {
        wait(self.inner.acknowledge())
    }

    /// Gives it back: receivable again at once, behind those already waiting.
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
    pub fn nack(&self) -> Result<()> {
        wait(self.inner.nack())
    }

    /// Gives it back: receivable again after `delay`.
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge); `InvalidParameter` for a delay above 12 h.
    pub fn nack_in(&self, delay: Duration) -> Result<()> {
        wait(self.inner.nack_in(delay))
    }

    /// Gives it back, saying what went wrong.
    ///
    /// # Errors
    /// As [`nack_in`](Self::nack_in).
    pub fn nack_with(&self, options: NackOptions) -> Result<()> {
        wait(self.inner.nack_with(options))
    }

    /// Keeps it invisible for `timeout` from now (V5).
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge); `InvalidParameter` above 12 h, or beyond what the
    /// mailbox's retention lets a delivery be held.
    pub fn extend_visibility(&self, timeout: Duration) -> Result<()> {
        wait(self.inner.extend_visibility(timeout))
    }

    /// Makes it a dead letter now, without further deliveries (X2).
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
    pub fn reject(&self, why: impl Into<String> + Send) -> Result<()> {
        wait(self.inner.reject(why))
    }

    /// Undoes this delivery as if it had not happened (D3, W2).
    ///
    /// # Errors
    /// As [`acknowledge`](Self::acknowledge).
    pub fn undo_delivery(&self) -> Result<()> {
        wait(self.inner.undo_delivery())
    }

    /// Sends a reply to where the sender wants it. Several are allowed, until it is settled.
    ///
    /// # Errors
    /// `ReplyNotAvailable`, `MessageFinalized`, `MailboxResolution`, and whatever the send gives.
    pub fn reply(&self, body: R) -> Result<MessageId> {
        wait(self.inner.reply(body))
    }

    /// The mailbox for replies.
    ///
    /// # Errors
    /// `ReplyNotAvailable`, `MailboxResolution`, and whatever opening it gives.
    pub fn reply_mailbox(&self) -> Result<Mailbox<R>> {
        wait(self.inner.reply_mailbox()).map(Mailbox::from_async)
    }
}

impl<T, R> fmt::Debug for Message<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Message").field(&self.inner).finish()
    }
}
