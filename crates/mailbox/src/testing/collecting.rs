//! A mailbox that remembers what was sent to it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::Outgoing;
use crate::codec::{Codec, Json};
use crate::error::{Error, Result};
use crate::home::clock::Clock;
use crate::id::MessageId;
use crate::mailbox::Mailbox;
use crate::name::Name;
use crate::testing::log::Log;
use crate::testing::stand_in::{Sends, StandIn};

/// A mailbox in memory that remembers what was sent to it, in order.
///
/// It remembers each message that was accepted, whatever becomes of it: it can still be received,
/// acknowledged or purged, as from any mailbox. A duplicate (I1) is not accepted a second time.
///
/// It remembers at most 10,000 messages (see [`with_capacity`](Self::with_capacity)); one more is
/// refused with `MailboxFull`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use mailbox::SendOptions;
/// use mailbox::testing::CollectingMailbox;
///
/// let orders: CollectingMailbox<String> = CollectingMailbox::new("orders")?;
/// orders.send("tea".to_owned()).await?;
/// orders.send_with("milk".to_owned(), SendOptions::new().with_attribute("to", "table 4")).await?;
///
/// assert_eq!(orders.sent()?, ["tea", "milk"]);
/// assert_eq!(orders.collected()?[1].attributes["to"], "table 4");
/// # Ok(()) }
/// ```
pub struct CollectingMailbox<T, R = ()> {
    mailbox: Mailbox<T, R>,
    stand_in: Arc<StandIn>,
    log: Arc<Log>,
}

/// A message that was sent to a [`CollectingMailbox`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected<T> {
    /// The id that the sender got.
    pub id: MessageId,
    /// What was sent.
    pub body: T,
    /// What the sender said beside the body.
    pub attributes: BTreeMap<String, String>,
    /// Name or address of the mailbox for replies.
    pub reply_to: Option<String>,
    /// The key it was sent with.
    pub idempotency_key: Option<String>,
    /// Its ordering group.
    pub group: Option<String>,
    /// How long it was to stay invisible at first.
    pub delay: Duration,
}

/// What a mailbox remembers unless told otherwise.
const CAPACITY: usize = 10_000;

impl<T, R> CollectingMailbox<T, R>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// A mailbox that remembers up to 10,000 messages.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn new<N>(name: N) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        Self::with_clock(name, Clock::system())
    }

    /// A mailbox that takes its time from `clock`.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn with_clock<N>(name: N, clock: Clock) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        let name: Name = name.try_into()?;
        let log = Arc::new(Log::new(CAPACITY));
        let stand_in = StandIn::new(name.clone(), clock, Sends::Noted(Arc::clone(&log)))?;
        let mailbox = Mailbox::new(stand_in.memory.reached(), name).owning_its_backend();
        Ok(Self { mailbox, stand_in, log })
    }

    /// Remembers at most `capacity` messages; further ones are refused with `MailboxFull`.
    #[must_use]
    pub fn with_capacity(self, capacity: usize) -> Self {
        self.log.set_capacity(capacity);
        self
    }

    pub(crate) fn with_identifier(self, identifier: &str) -> Self {
        Self { mailbox: self.mailbox.with_identifier(identifier), ..self }
    }

    /// The mailbox to give to the code under test.
    #[must_use]
    pub const fn mailbox(&self) -> &Mailbox<T, R> {
        &self.mailbox
    }

    /// The bodies that were sent, in order.
    ///
    /// # Errors
    /// `Serialization` if one does not read back, as a receiver would find.
    pub fn sent(&self) -> Result<Vec<T>> {
        self.log.entries().iter().map(|(_, message)| Json.decode(&message.payload)).collect()
    }

    /// The messages that were sent, in order, with all that was said beside the body.
    ///
    /// # Errors
    /// As [`sent`](Self::sent).
    pub fn collected(&self) -> Result<Vec<Collected<T>>> {
        let collected = |(id, message): (MessageId, Outgoing)| {
            let body = Json.decode(&message.payload)?;
            let Outgoing { attributes, reply_to, idempotency_key, group, delay, .. } = message;
            Ok(Collected { id, body, attributes, reply_to, idempotency_key, group, delay })
        };
        self.log.entries().into_iter().map(collected).collect()
    }

    /// How many messages were sent.
    #[must_use]
    pub fn sent_count(&self) -> usize {
        self.log.len()
    }

    /// Forgets what was sent so far. Messages that wait to be received are not touched.
    pub fn forget_sent(&self) {
        self.log.forget();
    }

    /// Makes every call fail with `Connection` until the error is cleared; see
    /// [`FakeMailbox::set_connection_error`](crate::testing::FakeMailbox::set_connection_error).
    pub fn set_connection_error(&self, message: impl Into<String>) {
        self.stand_in.set_connection_error(message.into());
    }

    /// Lets calls through again.
    pub fn clear_connection_error(&self) {
        self.stand_in.clear_connection_error();
    }
}

impl<T, R> Deref for CollectingMailbox<T, R> {
    type Target = Mailbox<T, R>;

    fn deref(&self) -> &Mailbox<T, R> {
        &self.mailbox
    }
}

impl<T, R> Clone for CollectingMailbox<T, R> {
    fn clone(&self) -> Self {
        Self {
            mailbox: self.mailbox.clone(),
            stand_in: Arc::clone(&self.stand_in),
            log: Arc::clone(&self.log),
        }
    }
}

impl<T, R> fmt::Debug for CollectingMailbox<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectingMailbox")
            .field("mailbox", &self.mailbox)
            .field("sent", &self.log.len())
            .finish_non_exhaustive()
    }
}
