//! A mailbox that keeps nothing.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::codec::Codec;
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;
use crate::mailbox::Mailbox;
use crate::name::Name;
use crate::testing::stand_in::{Sends, StandIn};

/// Drops what is sent and receives nothing: for code whose messages do not matter to the test.
///
/// A send gives an id; a receive that may wait waits its whole time, and ends early when the
/// mailbox is closed; every count is 0. Options are checked against the limits as anywhere else.
/// Bodies are not even encoded, so they can be of any type.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use mailbox::testing::NullMailbox;
///
/// let events: NullMailbox<String> = NullMailbox::new("events")?;
/// events.send("dropped".to_owned()).await?;
/// assert!(events.receive().await?.is_empty());
/// assert_eq!(events.approximate_count().await?, 0);
/// # Ok(()) }
/// ```
pub struct NullMailbox<T, R = ()> {
    mailbox: Mailbox<T, R>,
}

impl<T, R> NullMailbox<T, R>
where
    T: Send + Sync + 'static,
    R: Send + Sync + 'static,
{
    /// A mailbox that keeps nothing.
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

    /// A mailbox that keeps nothing, whose receives wait by `clock`.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn with_clock<N>(name: N, clock: Clock) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        let name: Name = name.try_into()?;
        let stand_in = StandIn::new(name.clone(), clock, Sends::Dropped)?;
        let mailbox = Mailbox::with_codec(stand_in, name, Unwritten).owning_its_backend();
        Ok(Self { mailbox })
    }

    /// The mailbox to give to the code under test.
    #[must_use]
    pub const fn mailbox(&self) -> &Mailbox<T, R> {
        &self.mailbox
    }
}

impl<T, R> Deref for NullMailbox<T, R> {
    type Target = Mailbox<T, R>;

    fn deref(&self) -> &Mailbox<T, R> {
        &self.mailbox
    }
}

impl<T, R> Clone for NullMailbox<T, R> {
    fn clone(&self) -> Self {
        Self { mailbox: self.mailbox.clone() }
    }
}

impl<T, R> fmt::Debug for NullMailbox<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NullMailbox").field(&self.mailbox).finish()
    }
}

/// Writes nothing, because nothing will be read.
#[derive(Debug)]
struct Unwritten;

impl<T> Codec<T> for Unwritten {
    fn encode(&self, _body: &T) -> Result<Bytes> {
        Ok(Bytes::new())
    }

    fn decode(&self, _payload: &Bytes) -> Result<T> {
        Err(Error::new(ErrorKind::Serialization, "a null mailbox has no bodies"))
    }
}
