//! How mailboxes come about.

use std::sync::Arc;

use mailbox_core::Policy;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::abilities::Abilities;
use crate::address::Address;
use crate::backend::Backend;
use crate::backends::memory::{MemoryBackend, MemoryConfig};
use crate::codec::{Codec, Json};
use crate::error::{Error, Result};
use crate::home::clock::Clock;
use crate::home::room::{Fittings, Room};
use crate::mailbox::route::{Encoded, Local, Route};
use crate::mailbox::{Inner, Mailbox};
use crate::name::Name;
use crate::open;
use crate::resolver::{Resolver, SameBackendResolver};

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
        let name = name.try_into()?;
        Ok(Self::in_memory(&MemoryBackend::new(), name).owning_its_backend())
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
        let name = name.try_into()?;
        let backend = MemoryBackend::with_config(MemoryConfig::default().with_clock(clock))?;
        Ok(Self::in_memory(&backend, name).owning_its_backend())
    }

    /// The mailbox called `name` on `backend`, with bodies as JSON. Reply addresses are resolved
    /// on the same backend; see [`with_resolver`](Self::with_resolver) for others.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, name: Name) -> Self {
        let identifier = name.to_string();
        let resolver = Arc::new(SameBackendResolver::new(Arc::clone(&backend)));
        Self::encoded(backend, name, identifier, Arc::new(Json), Some(resolver))
    }

    /// The mailbox at `address`; see [`Address`] for the grammar. `memory://name` is shared by
    /// everybody in this process.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad address; `Unsupported` for a scheme that this build lacks;
    /// whatever opening the backend gives.
    ///
    /// # Cancel safety
    /// Safe: a backend that was being opened is dropped.
    pub async fn open(address: &str) -> Result<Self> {
        open::open(&Address::parse(address)?).await
    }

    /// A mailbox of a memory backend, which knows its whole address.
    pub(crate) fn in_memory(backend: &Arc<MemoryBackend>, name: Name) -> Self {
        let identifier = backend.address(&name);
        let backend: Arc<dyn Backend> = Arc::<MemoryBackend>::clone(backend);
        let resolver = Arc::new(SameBackendResolver::new(Arc::clone(&backend)));
        Self::encoded(backend, name, identifier, Arc::new(Json), Some(resolver))
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
        Self::local_with_clock(name, Clock::system())
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
        let name: Name = name.try_into()?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("the system has randomness: std's maps need it too");
        let fittings =
            Fittings { clock, number: 0, secret, max_waiters: 1 << 14, policy: Policy::default() };
        let room = Arc::new(Room::new(name.clone(), fittings));
        // Bodies are never turned into bytes, so equal ones cannot be recognised.
        let abilities =
            Abilities { durable: false, idempotency: false, ..Abilities::full("local") };
        Ok(Self::from_inner(Inner {
            identifier: name.to_string(),
            name,
            route: Route::Local(Local { room, abilities: Arc::new(abilities) }),
            resolver: None,
            closed: CancellationToken::new(),
        }))
    }

    /// The mailbox called `name` on `backend`, with bodies encoded by `codec`. It resolves no
    /// reply addresses until it is given a resolver.
    #[must_use]
    pub fn with_codec(backend: Arc<dyn Backend>, name: Name, codec: impl Codec<T>) -> Self {
        let identifier = name.to_string();
        Self::encoded(backend, name, identifier, Arc::new(codec), None)
    }

    /// This mailbox, with the reply addresses of received messages resolved by `resolver`.
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn Resolver<R>>) -> Self {
        Self::from_inner(Inner { resolver: Some(resolver), ..self.parts() })
    }

    /// This mailbox, found by others under `identifier`: what is written as `reply_to` when it is
    /// given as the place for replies.
    #[must_use]
    pub fn with_identifier(self, identifier: impl Into<String>) -> Self {
        Self::from_inner(Inner { identifier: identifier.into(), ..self.parts() })
    }

    pub(crate) fn owning_its_backend(self) -> Self {
        let mut inner = self.parts();
        if let Route::Encoded(encoded) = &mut inner.route {
            encoded.owned = true;
        }
        Self::from_inner(inner)
    }

    fn encoded(
        backend: Arc<dyn Backend>,
        name: Name,
        identifier: String,
        codec: Arc<dyn Codec<T>>,
        resolver: Option<Arc<dyn Resolver<R>>>,
    ) -> Self {
        let route = Route::Encoded(Encoded { backend, codec, owned: false });
        Self::from_inner(Inner {
            name,
            identifier,
            route,
            resolver,
            closed: CancellationToken::new(),
        })
    }

    fn from_inner(inner: Inner<T, R>) -> Self {
        Self { inner: Arc::new(inner) }
    }

    fn parts(&self) -> Inner<T, R> {
        Inner {
            name: self.inner.name.clone(),
            identifier: self.inner.identifier.clone(),
            route: self.inner.route.clone(),
            resolver: self.inner.resolver.clone(),
            closed: self.inner.closed.clone(),
        }
    }
}
