//! The typed handle that users hold, without async.

use std::fmt;
use std::sync::Arc;

use mailbox_core::{Policy, Verdict};

use crate::abilities::Abilities;
use crate::backend::{Peek, Selection, Sent, Settlement, Stats};
use crate::blocking::message::Message;
use crate::blocking::runtime::wait;
use crate::error::Result;
use crate::id::{MessageId, ReceiptHandle};
use crate::mailbox::Mailbox as AsyncMailbox;
use crate::message::{Message as AsyncMessage, Peeked};
use crate::name::Name;
use crate::options::{ReceiveOptions, SendOptions};
use crate::resolver::Resolver;

/// A mailbox of bodies of type `T`, whose replies are of type `R`, for plain threads.
///
/// A cheap handle: clone it freely, share it between threads. See [`crate::Mailbox`] for what each
/// method promises.
///
/// # Errors
/// Beside those of the async mailbox, every call that may wait gives `Unsupported` in an async
/// task; see [the module](crate::blocking).
pub struct Mailbox<T, R = ()> {
    inner: AsyncMailbox<T, R>,
}

impl<T, R> Mailbox<T, R> {
    /// The same mailbox, without async.
    #[must_use]
    pub const fn from_async(mailbox: AsyncMailbox<T, R>) -> Self {
        Self { inner: mailbox }
    }

    /// The same mailbox, with async.
    #[must_use]
    pub const fn as_async(&self) -> &AsyncMailbox<T, R> {
        &self.inner
    }

    /// The same mailbox, with async.
    #[must_use]
    pub fn into_async(self) -> AsyncMailbox<T, R> {
        self.inner
    }
}

impl<T, R> Mailbox<T, R>
where
    T: Send + Sync + 'static,
    R: Send + Sync + 'static,
{
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.inner.name()
    }

    /// What others can find it by: its address, or its name where that is all there is.
    #[must_use]
    pub fn identifier(&self) -> &str {
        self.inner.identifier()
    }

    /// What its backend can do.
    #[must_use]
    pub fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    /// What resolves the `reply_to` of received messages.
    #[must_use]
    pub fn resolver(&self) -> Option<&Arc<dyn Resolver<R>>> {
        self.inner.resolver()
    }

    /// Sends a body; gives the id of the message.
    ///
    /// # Errors
    /// `MailboxFull`, `Serialization`, `TooLarge`, `Connection`, `Closed`.
    pub fn send(&self, body: T) -> Result<MessageId> {
        wait(self.inner.send(body))
    }

    /// Sends a body with options.
    ///
    /// # Errors
    /// As [`send`](Self::send), and `InvalidParameter`, `Duplicate`, `Saturated`, `Unsupported`.
    pub fn send_with(&self, body: T, options: SendOptions<R>) -> Result<Sent> {
        wait(self.inner.send_with(body, options))
    }

    /// Sends many in one call, in order; one result each.
    ///
    /// # Errors
    /// As a whole: `Closed`, `Connection`, `InvalidParameter` for more than the backend's
    /// `max_messages`. Each: as [`send_with`](Self::send_with).
    pub fn send_batch(&self, batch: Vec<(T, SendOptions<R>)>) -> Result<Vec<Result<Sent>>> {
        wait(self.inner.send_batch(batch))
    }

    /// Takes a message if there is one, hiding it from others for 30 s.
    ///
    /// # Errors
    /// `Connection`, `Closed`, `Saturated`.
    pub fn receive(&self) -> Result<Vec<Message<T, R>>> {
        wait(self.inner.receive()).map(|messages| self.messages(messages))
    }

    /// Takes messages, as many, for as long and after as much waiting as `options` say. Never
    /// waits once it has one (D6). [`close`](Self::close), from another thread, ends the waiting.
    ///
    /// # Errors
    /// As [`receive`](Self::receive), and `InvalidParameter`.
    pub fn receive_with(&self, options: ReceiveOptions) -> Result<Vec<Message<T, R>>> {
        wait(self.inner.receive_with(options)).map(|messages| self.messages(messages))
    }

    /// Removes every message but dead letters, in flight too; gives how many (M1).
    ///
    /// # Errors
    /// `Connection`, `Closed`.
    pub fn purge(&self) -> Result<u64> {
        wait(self.inner.purge())
    }

    /// How many messages there are, dead letters not counted (M2).
    ///
    /// # Errors
    /// `Connection`, `Closed`.
    pub fn approximate_count(&self) -> Result<u64> {
        wait(self.inner.approximate_count())
    }

    /// How many messages are in which state, and how old the oldest is (M3).
    ///
    /// # Errors
    /// `Connection`, `Closed`.
    pub fn stats(&self) -> Result<Stats> {
        wait(self.inner.stats())
    }

    /// Shows messages without receiving them (M3), dead letters among them (X3).
    ///
    /// # Errors
    /// `Connection`, `Closed`, `InvalidParameter`.
    pub fn peek(&self, request: Peek) -> Result<Vec<Peeked<T, R>>> {
        wait(self.inner.peek(request))
    }

    /// Shows the oldest dead letters, at most `limit` (X3).
    ///
    /// # Errors
    /// `Connection`, `Closed`, `InvalidParameter`.
    pub fn dead_letters(&self, limit: u32) -> Result<Vec<Peeked<T, R>>> {
        wait(self.inner.dead_letters(limit))
    }

    /// Puts dead letters back in line, starting at attempt 1; gives how many (X3).
    ///
    /// # Errors
    /// `NotFound` if a named one is none; `MailboxFull` if there was no room for any;
    /// `Connection`, `Closed`.
    pub fn redrive(&self, which: Selection) -> Result<u64> {
        wait(self.inner.redrive(which))
    }

    /// Deletes dead letters; gives how many (X3).
    ///
    /// # Errors
    /// `NotFound` if a named one is none; `Connection`, `Closed`.
    pub fn delete_dead(&self, which: Selection) -> Result<u64> {
        wait(self.inner.delete_dead(which))
    }

    /// Sets the rules: capacity, attempts, retention, replay window.
    ///
    /// # Errors
    /// `InvalidParameter`, `Connection`, `Closed`.
    pub fn configure(&self, policy: Policy) -> Result<()> {
        wait(self.inner.configure(policy))
    }

    /// The rules.
    ///
    /// # Errors
    /// `Connection`, `Closed`.
    pub fn policy(&self) -> Result<Policy> {
        wait(self.inner.policy())
    }

    /// Closes this handle and its clones: receives that wait, and all later calls, give `Closed`
    /// (W3).
    ///
    /// # Errors
    /// Whatever the backend gives while closing; the handle is closed all the same.
    pub fn close(&self) -> Result<()> {
        wait(self.inner.close())
    }

    /// Whether it was closed through this handle or a clone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Settles a delivery by its handle. With a [`Message`] at hand its own methods are better.
    ///
    /// # Errors
    /// `ReceiptHandleExpired` (V4), `InvalidParameter`, `Connection`, `Closed`.
    pub fn settle(&self, handle: &ReceiptHandle, verdict: Verdict) -> Result<()> {
        wait(self.inner.settle(handle, verdict))
    }

    /// Settles many deliveries in one call; one result each.
    ///
    /// # Errors
    /// As a whole: `Closed`, `Connection`, `InvalidParameter` for more than the backend's
    /// `max_messages`. Each: as [`settle`](Self::settle).
    pub fn settle_batch(&self, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        wait(self.inner.settle_batch(batch))
    }

    fn messages(&self, messages: Vec<AsyncMessage<T, R>>) -> Vec<Message<T, R>> {
        messages.into_iter().map(|message| Message::new(message, self.clone())).collect()
    }
}

impl<T, R> Clone for Mailbox<T, R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T, R> fmt::Debug for Mailbox<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Mailbox").field(&self.inner).finish()
    }
}

impl<T, R> From<AsyncMailbox<T, R>> for Mailbox<T, R> {
    fn from(mailbox: AsyncMailbox<T, R>) -> Self {
        Self::from_async(mailbox)
    }
}
