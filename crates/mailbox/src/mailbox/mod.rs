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
use crate::error::{Error, Result};
use crate::id::{MessageId, ReceiptHandle};
use crate::mailbox::route::Route;
use crate::message::{Message, Peeked};
use crate::name::Name;
use crate::options::{ReceiveOptions, ReplyTo, SendOptions};
use crate::resolver::{Resolver, shown};

/// A mailbox of bodies of type `T`, whose replies are of type `R`. Write the type out where it is
/// made: `let jobs: Mailbox<Job> = ..` without replies, `Mailbox<Question, Answer>` with.
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
    /// Others can find it by its identifier; a local mailbox has only a name that nobody knows.
    addressable: bool,
    route: Route<T, R>,
    resolver: Option<Arc<dyn Resolver<R>>>,
    /// Shared by every handle that was made from this one; counted, so that a cache can see
    /// whether anybody else has one.
    closed: Arc<CancellationToken>,
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
    /// A receive that is kept but not polled (beside a `select!` arm that takes long, say) does not
    /// keep messages from others that wait: the next one looks 25 ms later.
    ///
    /// # Errors
    /// As [`receive`](Self::receive), and `InvalidParameter`.
    ///
    /// # Cancel safety
    /// Safe; see the type.
    pub async fn receive_with(&self, options: ReceiveOptions) -> Result<Vec<Message<T, R>>> {
        self.check_open()?;
        if self.inner.route.is_local() || options.wait.is_zero() {
            // Its waiters are woken by the close itself, or there is nothing to wake.
            return self.inner.route.receive(self, &options).await;
        }
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

    /// Shows the oldest dead letters, at most `limit` (X3); see [`Peek::Dead`] for going on from
    /// there. A message whose attempts are used up becomes one when it would be delivered next: at
    /// the first receive after its nack delay.
    ///
    /// # Errors
    /// `Connection`, `Closed`, `InvalidParameter`.
    ///
    /// # Cancel safety
    /// Safe: nothing changes.
    pub async fn dead_letters(&self, limit: u32) -> Result<Vec<Peeked<T, R>>> {
        self.peek(Peek::Dead { after: None, limit }).await
    }

    /// Puts dead letters back in line, starting at attempt 1; gives how many (X3). If the mailbox
    /// fills up on the way, the rest stay dead letters.
    ///
    /// # Errors
    /// `NotFound` if a named message is not a dead letter; `MailboxFull` if there was no room for
    /// any; `Connection`, `Closed`.
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
    /// `NotFound` if a named message is not a dead letter; `Connection`, `Closed`.
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
    /// (W3), also settling messages that are still held: let workers finish first. Messages stay
    /// where the backend keeps them; a backend that was opened for this mailbox alone is closed
    /// with it, and a journal with the last of the mailboxes that were opened in it by address.
    ///
    /// # Errors
    /// Whatever the backend gives while closing; the handle is closed all the same.
    ///
    /// # Cancel safety
    /// The handle is closed at the first poll.
    pub async fn close(&self) -> Result<()> {
        if self.inner.closed.is_cancelled() {
            return Ok(());
        }
        self.inner.closed.cancel();
        self.inner.route.close().await
    }

    /// Whether it was closed through this handle or a clone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }

    /// Whether there are other handles of it: clones, or messages that came through it.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1 || Arc::strong_count(&self.inner.closed) > 1
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
        self.check_open()?;
        let settlement = Settlement { receipt_handle: handle.clone(), verdict };
        self.inner.route.settle_one(&self.inner.name, settlement).await
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
        // A local mailbox was closed itself, not only its handle, and says so.
        if !self.inner.route.is_local() && self.is_closed() {
            return Err(Error::closed(&self.inner.name));
        }
        Ok(())
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
            Some(ReplyTo::Mailbox(mailbox)) => Some(mailbox.known_as().to_owned()),
            None => None,
        },
        idempotency_key: options.idempotency_key.take(),
        group: options.group.take(),
        delay: options.delay,
    }
}

impl<T, R> Mailbox<T, R> {
    /// What others can find it by, whatever its types can do.
    pub(crate) fn known_as(&self) -> &str {
        &self.inner.identifier
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
            .field("identifier", &shown(&self.inner.identifier))
            .field("closed", &self.inner.closed.is_cancelled())
            .finish_non_exhaustive()
    }
}
