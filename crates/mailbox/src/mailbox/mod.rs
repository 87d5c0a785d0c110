//! The typed handle that users hold.

mod construct;
mod route;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mailbox_core::{Policy, Verdict};
use tokio_util::sync::CancellationToken;

use crate::abilities::Abilities;
use crate::backend::{Outgoing, Peek, Selection, Sent, Settlement, Stats};
use crate::contents::Contents;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{MessageId, ReceiptHandle};
use crate::mailbox::route::Route;
use crate::message::{Message, Peeked};
use crate::name::Name;
use crate::options::{ReceiveOptions, ReplyTo, SendOptions};
use crate::resolver::Resolver;

/// A mailbox of bodies of type `T`, whose replies are of type `R`.
///
/// A cheap handle: clone it freely, share it between tasks. What it stands for lives in a backend,
/// or for [`Mailbox::local`] in the handles themselves.
///
/// # Cancel safety
/// [`receive`](Self::receive) may be dropped at any time, in a `select!` for example: no message
/// is lost, and none is hidden for longer than one visibility timeout (in memory: not at all).
/// Dropping any other future leaves it open whether the call took effect.
pub struct Mailbox<T, R = ()> {
    inner: Arc<Inner<T, R>>,
}

struct Inner<T, R> {
    name: Name,
    identifier: String,
    route: Route<T, R>,
    resolver: Option<Arc<dyn Resolver<R>>>,
    /// Shared by every handle that was made from this one.
    closed: CancellationToken,
}

impl<T, R> Mailbox<T, R>
where
    T: Send + Sync + 'static,
    R: Send + Sync + 'static,
{
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.inner.name
    }

    /// What others can find it by: its address, or its name where that is all there is.
    #[must_use]
    pub fn identifier(&self) -> &str {
        &self.inner.identifier
    }

    /// What its backend can do.
    #[must_use]
    pub fn abilities(&self) -> &Abilities {
        self.inner.route.abilities()
    }

    /// What resolves the `reply_to` of received messages.
    #[must_use]
    pub fn resolver(&self) -> Option<&Arc<dyn Resolver<R>>> {
        self.inner.resolver.as_ref()
    }

    /// Sends a body; gives the id of the message.
    ///
    /// # Errors
    /// `MailboxFull`, `Serialization`, `TooLarge`, `Connection`, `Closed`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the message was sent.
    pub async fn send(&self, body: T) -> Result<MessageId> {
        Ok(self.send_with(body, SendOptions::default()).await?.id)
    }

    /// Sends a body with options.
    ///
    /// # Errors
    /// As [`send`](Self::send), and `InvalidParameter`, `Duplicate`, `Saturated`, `Unsupported`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the message was sent; with an idempotency key
    /// it can be sent again without harm.
    pub async fn send_with(&self, body: T, options: SendOptions<R>) -> Result<Sent> {
        self.check_open()?;
        self.inner.route.send_one(&self.inner.name, body, options).await
    }

    /// Sends many in one call, in order; one result each.
    ///
    /// # Errors
    /// As a whole: `Closed`, `Connection`, `InvalidParameter` for more than the backend's
    /// `max_messages`. Each: as [`send_with`](Self::send_with).
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open which messages were sent.
    pub async fn send_batch(&self, batch: Vec<(T, SendOptions<R>)>) -> Result<Vec<Result<Sent>>> {
        self.check_open()?;
        self.inner.route.send_many(&self.inner.name, batch).await
    }

    /// Takes a message if there is one, hiding it from others for 30 s.
    ///
    /// # Errors
    /// `Connection`, `Closed`, `Saturated`.
    ///
    /// # Cancel safety
    /// Safe; see the type.
    pub async fn receive(&self) -> Result<Vec<Message<T, R>>> {
        self.receive_with(ReceiveOptions::default()).await
    }

    /// Takes messages, as many, for as long and after as much waiting as `options` say. Never
    /// waits once it has one (D6).
    ///
    /// # Errors
    /// As [`receive`](Self::receive), and `InvalidParameter`.
    ///
    /// # Cancel safety
    /// Safe; see the type.
    pub async fn receive_with(&self, options: ReceiveOptions) -> Result<Vec<Message<T, R>>> {
        self.check_open()?;
        tokio::select! {
            biased;
            () = self.inner.closed.cancelled() => Err(Error::closed(&self.inner.name)),
            received = self.inner.route.receive(self, &options) => received,
        }
    }

    /// Removes every message but dead letters, in flight too; gives how many (M1).
    ///
    /// # Errors
    /// `Connection`, `Closed`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the mailbox was purged.
    pub async fn purge(&self) -> Result<u64> {
        self.check_open()?;
        self.inner.route.purge(&self.inner.name).await
    }

    /// How many messages there are, dead letters not counted (M2).
    ///
    /// # Errors
    /// `Connection`, `Closed`.
    ///
    /// # Cancel safety
    /// Safe: nothing changes.
    pub async fn approximate_count(&self) -> Result<u64> {
        Ok(self.stats().await?.live())
    }

    /// How many messages are in which state, and how old the oldest is (M3).
    ///
    /// # Errors
    /// `Connection`, `Closed`.
    ///
    /// # Cancel safety
    /// Safe: nothing changes.
    pub async fn stats(&self) -> Result<Stats> {
        self.check_open()?;
        self.inner.route.stats(&self.inner.name).await
    }

    /// Shows messages without receiving them (M3), dead letters among them (X3).
    ///
    /// # Errors
    /// `Connection`, `Closed`, `InvalidParameter`.
    ///
    /// # Cancel safety
    /// Safe: nothing changes.
    pub async fn peek(&self, request: Peek) -> Result<Vec<Peeked<T, R>>> {
        self.check_open()?;
        self.inner.route.peek(&self.inner.name, &request).await
    }

    /// Puts dead letters back in line, starting at attempt 1; gives how many (X3). If the mailbox
    /// fills up on the way, the rest stay dead letters.
    ///
    /// # Errors
    /// `NotFound` if a named one is none; `MailboxFull` if there was no room for any;
    /// `Connection`, `Closed`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open which ones were redriven.
    pub async fn redrive(&self, which: Selection) -> Result<u64> {
        self.check_open()?;
        self.inner.route.redrive(&self.inner.name, &which).await
    }

    /// Deletes dead letters; gives how many (X3).
    ///
    /// # Errors
    /// `NotFound` if a named one is none; `Connection`, `Closed`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open which ones were deleted.
    pub async fn delete_dead(&self, which: Selection) -> Result<u64> {
        self.check_open()?;
        self.inner.route.delete_dead(&self.inner.name, &which).await
    }

    /// Sets the rules: capacity, attempts, retention, replay window.
    ///
    /// # Errors
    /// `InvalidParameter`, `Connection`, `Closed`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the rules were set.
    pub async fn configure(&self, policy: Policy) -> Result<()> {
        self.check_open()?;
        self.inner.route.configure(&self.inner.name, policy).await
    }

    /// The rules.
    ///
    /// # Errors
    /// `Connection`, `Closed`.
    ///
    /// # Cancel safety
    /// Safe: nothing changes.
    pub async fn policy(&self) -> Result<Policy> {
        self.check_open()?;
        self.inner.route.policy(&self.inner.name).await
    }

    /// Closes this handle and its clones: receives that wait, and all later calls, give `Closed`
    /// (W3). Messages stay where the backend keeps them; a backend that was opened for this
    /// mailbox alone is closed with it.
    ///
    /// # Errors
    /// Whatever the backend gives while closing; the handle is closed all the same.
    ///
    /// # Cancel safety
    /// The handle is closed at the first poll.
    pub async fn close(&self) -> Result<()> {
        self.inner.closed.cancel();
        self.inner.route.close().await
    }

    /// Whether it was closed through this handle or a clone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }

    /// Settles a delivery by its handle, as whoever got the handle from elsewhere must. With a
    /// [`Message`] at hand its own methods are better.
    ///
    /// # Errors
    /// `ReceiptHandleExpired` (V4), `InvalidParameter`, `Connection`, `Closed`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the delivery was settled.
    pub async fn settle(&self, handle: &ReceiptHandle, verdict: Verdict) -> Result<()> {
        let settlement = Settlement { receipt_handle: handle.clone(), verdict };
        let results = self.settle_batch(vec![settlement]).await?;
        results.into_iter().next().unwrap_or_else(|| {
            let message = "the backend gave no result for a settlement";
            Err(Error::new(ErrorKind::Internal, message).with_mailbox(self.name()))
        })
    }

    /// Settles many deliveries in one call; one result each.
    ///
    /// # Errors
    /// As a whole: `Closed`, `Connection`, `InvalidParameter` for more than the backend's
    /// `max_messages`. Each: as [`settle`](Self::settle).
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open which deliveries were settled.
    pub async fn settle_batch(&self, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.check_open()?;
        self.inner.route.settle(&self.inner.name, batch).await
    }

    fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(Error::closed(&self.inner.name)) } else { Ok(()) }
    }

    fn message(
        &self,
        id: MessageId,
        receipt_handle: ReceiptHandle,
        delivery_count: u32,
        contents: Contents<T, R>,
    ) -> Message<T, R> {
        let finalized = AtomicBool::new(false);
        let mailbox = self.clone();
        Message { mailbox, id, receipt_handle, delivery_count, contents, finalized }
    }
}

/// What is sent, without what only a typed mailbox knows.
fn outgoing<B, R>(payload: B, options: &mut SendOptions<R>) -> Outgoing<B> {
    Outgoing {
        payload,
        attributes: std::mem::take(&mut options.attributes),
        reply_to: match &options.reply_to {
            Some(ReplyTo::Identifier(identifier)) => Some(identifier.clone()),
            Some(ReplyTo::Mailbox(mailbox)) => Some(mailbox.inner.identifier.clone()),
            None => None,
        },
        idempotency_key: options.idempotency_key.take(),
        group: options.group.take(),
        delay: options.delay,
    }
}

impl<T, R> Clone for Mailbox<T, R> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T, R> fmt::Debug for Mailbox<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("identifier", &self.inner.identifier)
            .field("closed", &self.inner.closed.is_cancelled())
            .finish_non_exhaustive()
    }
}
