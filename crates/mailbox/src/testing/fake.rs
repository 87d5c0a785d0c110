//! A whole mailbox that a test controls.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use mailbox_core::Verdict;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::{Backend, Outgoing, Settlement};
use crate::codec::{Codec, Json};
use crate::error::{Error, Result};
use crate::home::clock::ManualClock;
use crate::id::{MessageId, ReceiptHandle};
use crate::mailbox::Mailbox;
use crate::name::Name;
use crate::testing::stand_in::{Sends, StandIn};

/// A mailbox in memory that behaves in full, by a clock that only the test moves, and fails when
/// the test says so.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use std::time::Duration;
/// use mailbox::ErrorKind;
/// use mailbox::testing::FakeMailbox;
///
/// let jobs: FakeMailbox<String> = FakeMailbox::new("jobs")?;
///
/// // A consumer that is too slow.
/// jobs.send("tidy up".to_owned()).await?;
/// let slow = jobs.receive().await?.remove(0);
/// jobs.expire_handle(slow.receipt_handle())?;
/// assert_eq!(slow.acknowledge().await.unwrap_err().kind(), ErrorKind::ReceiptHandleExpired);
///
/// // A backend that is away for a while.
/// jobs.set_connection_error("the cable was pulled");
/// assert_eq!(jobs.receive().await.unwrap_err().kind(), ErrorKind::Connection);
/// jobs.clear_connection_error();
/// assert_eq!(jobs.receive().await?[0].delivery_count(), 2);
///
/// // A message that has failed before.
/// jobs.inject_message("cursed".to_owned(), 5)?;
/// assert_eq!(jobs.receive().await?[0].delivery_count(), 5);
///
/// // Twelve hours, now.
/// jobs.clock().advance(Duration::from_secs(12 * 3600));
/// assert_eq!(jobs.stats().await?.ready, 2);
/// # Ok(()) }
/// ```
pub struct FakeMailbox<T, R = ()> {
    mailbox: Mailbox<T, R>,
    stand_in: Arc<StandIn>,
    clock: ManualClock,
}

/// Most deliveries that a message can be given as its past: each one is played.
const MAX_DELIVERY_COUNT: u32 = 10_000;

impl<T, R> FakeMailbox<T, R>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// A mailbox with a clock of its own.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn new<N>(name: N) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        Self::with_clock(name, ManualClock::new())
    }

    /// A mailbox that shares a clock with others.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn with_clock<N>(name: N, clock: ManualClock) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        let name: Name = name.try_into()?;
        let stand_in = StandIn::new(name.clone(), clock.clock(), Sends::Delivered)?;
        let mailbox = Mailbox::new(stand_in.memory.reached(), name).owning_its_backend();
        Ok(Self { mailbox, stand_in, clock })
    }

    /// The mailbox to give to the code under test.
    #[must_use]
    pub const fn mailbox(&self) -> &Mailbox<T, R> {
        &self.mailbox
    }

    /// The clock that decides about its delays, visibility timeouts and waits.
    #[must_use]
    pub const fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Ends a delivery as if its visibility timeout had passed: the message is receivable again,
    /// and settling with the handle gives `ReceiptHandleExpired`. Works while the connection is
    /// down.
    ///
    /// # Errors
    /// `ReceiptHandleExpired` if the handle is not that of a delivery now; `Closed`.
    pub fn expire_handle(&self, handle: &ReceiptHandle) -> Result<()> {
        // A deadline that is set to now has passed.
        let verdict = Verdict::Extend { timeout: Duration::ZERO };
        let settlement = Settlement { receipt_handle: handle.clone(), verdict };
        self.stand_in.memory.room(&self.stand_in.name)?.settle(settlement).map(drop)
    }

    /// Makes every call fail with `Connection` until the error is cleared: on this mailbox, on
    /// every other handle to it, and in receives that wait already. Nothing is lost meanwhile; the
    /// clock runs on as it is moved, so deliveries can expire.
    pub fn set_connection_error(&self, message: impl Into<String>) {
        self.stand_in.set_connection_error(message.into());
    }

    /// Lets calls through again.
    pub fn clear_connection_error(&self) {
        self.stand_in.clear_connection_error();
    }

    /// Puts a message in line that failed before: its next delivery is number `delivery_count`.
    /// It goes behind the others. Works while the connection is down.
    ///
    /// With a policy of fewer `max_attempts` it becomes a dead letter instead, when its turn comes.
    ///
    /// # Errors
    /// `InvalidParameter` unless `delivery_count` is in 1..=10,000; `Serialization`, `TooLarge`,
    /// `MailboxFull`, `Closed`.
    pub fn inject_message(&self, body: T, delivery_count: u32) -> Result<MessageId> {
        let StandIn { name, memory, .. } = &*self.stand_in;
        if !(1..=MAX_DELIVERY_COUNT).contains(&delivery_count) {
            let bound = format_args!("1..={MAX_DELIVERY_COUNT}");
            let error = Error::invalid("delivery_count", delivery_count, bound);
            return Err(error.with_mailbox(name));
        }
        let named = |error: Error| error.with_mailbox(name);
        let message = Outgoing::new(Json.encode(&body).map_err(named)?);
        memory.abilities().check_send(&message, message.payload.len()).map_err(named)?;
        memory.room(name)?.inject(message, delivery_count - 1)
    }
}

impl<T, R> Deref for FakeMailbox<T, R> {
    type Target = Mailbox<T, R>;

    fn deref(&self) -> &Mailbox<T, R> {
        &self.mailbox
    }
}

impl<T, R> Clone for FakeMailbox<T, R> {
    fn clone(&self) -> Self {
        Self {
            mailbox: self.mailbox.clone(),
            stand_in: Arc::clone(&self.stand_in),
            clock: self.clock.clone(),
        }
    }
}

impl<T, R> fmt::Debug for FakeMailbox<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeMailbox")
            .field("mailbox", &self.mailbox)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
