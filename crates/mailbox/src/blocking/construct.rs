//! How blocking mailboxes come about.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::Backend;
use crate::blocking::mailbox::Mailbox;
use crate::blocking::runtime::wait;
use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::home::clock::Clock;
use crate::mailbox::Mailbox as AsyncMailbox;
use crate::name::Name;
use crate::options::ReplyTo;
use crate::resolver::Resolver;

impl<T, R> Mailbox<T, R>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// A mailbox of its own in memory. Bodies are encoded, so it behaves as one in production.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn memory<N>(name: N) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        AsyncMailbox::memory(name).map(Self::from_async)
    }

    /// A mailbox of its own in memory that takes its time from `clock`: for tests.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn memory_with_clock<N>(name: N, clock: Clock) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        AsyncMailbox::memory_with_clock(name, clock).map(Self::from_async)
    }

    /// The mailbox called `name` on `backend`, with bodies as JSON. Reply addresses are resolved
    /// on the same backend; see [`with_resolver`](Self::with_resolver) for others.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, name: Name) -> Self {
        Self::from_async(AsyncMailbox::new(backend, name))
    }

    /// The mailbox at `address`; see [`Address`](crate::Address) for the grammar.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad address; `Unsupported` for a scheme that this build lacks;
    /// whatever opening the backend gives.
    pub fn open(address: &str) -> Result<Self> {
        wait(AsyncMailbox::open(address)).map(Self::from_async)
    }
}

impl<T, R> Mailbox<T, R>
where
    T: Send + Sync + 'static,
    R: Send + Sync + 'static,
{
    /// A mailbox that lives in its handles and holds `Arc<T>`: no encoding, no serde, the same
    /// contract. It ends when the last handle and message are gone.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn local<N>(name: N) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        AsyncMailbox::local(name).map(Self::from_async)
    }

    /// A local mailbox that takes its time from `clock`: for tests.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn local_with_clock<N>(name: N, clock: Clock) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        AsyncMailbox::local_with_clock(name, clock).map(Self::from_async)
    }

    /// The mailbox called `name` on `backend`, with bodies encoded by `codec`. It resolves no
    /// reply addresses until it is given a resolver.
    #[must_use]
    pub fn with_codec(backend: Arc<dyn Backend>, name: Name, codec: impl Codec<T>) -> Self {
        Self::from_async(AsyncMailbox::with_codec(backend, name, codec))
    }

    /// This mailbox, with the reply addresses of received messages resolved by `resolver`.
    #[must_use]
    pub fn with_resolver(self, resolver: impl Resolver<R>) -> Self {
        Self::from_async(self.into_async().with_resolver(resolver))
    }

    /// This mailbox, found by others under `identifier`.
    #[must_use]
    pub fn with_identifier(self, identifier: impl Into<String>) -> Self {
        Self::from_async(self.into_async().with_identifier(identifier))
    }
}

impl<R> From<&Mailbox<R>> for ReplyTo<R> {
    fn from(mailbox: &Mailbox<R>) -> Self {
        Self::Mailbox(mailbox.as_async().clone())
    }
}

impl<R> From<Mailbox<R>> for ReplyTo<R> {
    fn from(mailbox: Mailbox<R>) -> Self {
        Self::Mailbox(mailbox.into_async())
    }
}
