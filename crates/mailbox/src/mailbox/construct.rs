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
use crate::home::keep::InMemory;
use crate::home::random;
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
    /// A new mailbox in memory, shared with nobody but the clones of this handle: a second call
    /// with the same name makes another one. (For one that is found by its name, see
    /// [`open`](Self::open).) Bodies are encoded, so it behaves as one in production.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn memory<N>(name: N) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        let name = name.try_into()?;
        Ok(Self::new(MemoryBackend::new(), name).owning_its_backend())
    }

    /// A mailbox of its own in memory that takes its time from `clock`: for tests.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn memory_with_clock<N>(name: N, clock: impl Into<Clock>) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        let name = name.try_into()?;
        let backend = MemoryBackend::with_config(MemoryConfig::default().with_clock(clock.into()))?;
        Ok(Self::new(backend, name).owning_its_backend())
    }

    /// The mailbox called `name` on `backend`, with bodies as JSON. Reply addresses are resolved
    /// on the same backend; see [`with_resolver`](Self::with_resolver) for others.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, name: Name) -> Self {
        let resolver = Arc::new(SameBackendResolver::new(Arc::clone(&backend)));
        Self::encoded(backend, name, Arc::new(Json), Some(resolver))
    }

    /// The mailbox at `address`; see [`Address`] for the grammar. `memory://name` is shared by
    /// everybody in this process, and so is the journal of `journal:path/name`, which is let go of
    /// with the last of its mailboxes.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad address or an unknown scheme; `Unsupported` for a scheme whose
    /// backend is only planned; `NotFound` for a place in memory that is not there; whatever
    /// opening the backend gives.
    ///
    /// # Cancel safety
    /// Safe: a backend that was being opened is dropped.
    pub async fn open(address: &str) -> Result<Self> {
        open::open(&Address::parse(address)?).await
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
    pub fn local_with_clock<N>(name: N, clock: impl Into<Clock>) -> Result<Self>
    where
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        let name: Name = name.try_into()?;
        let fittings =
            Fittings { clock: clock.into(), number: 0, secret: random(), max_waiters: 1 << 14 };
        let room = Arc::new(Room::new(name.clone(), fittings, InMemory::new(), Policy::default()));
        // Bodies are never turned into bytes, so equal ones cannot be recognised.
        let abilities =
            Abilities { durable: false, idempotency: false, ..Abilities::full("local") };
        Ok(Self::from_inner(Inner {
            identifier: name.to_string(),
            addressable: false,
            name,
            route: Route::Local(Local { room, abilities: Arc::new(abilities) }),
            resolver: None,
            closed: Arc::new(CancellationToken::new()),
        }))
    }

    /// The mailbox called `name` on `backend`, with bodies encoded by `codec`. It resolves no
    /// reply addresses until it is given a resolver.
    #[must_use]
    pub fn with_codec(backend: Arc<dyn Backend>, name: Name, codec: impl Codec<T>) -> Self {
        Self::encoded(backend, name, Arc::new(codec), None)
    }

    /// This mailbox, with the reply addresses of received messages resolved by `resolver`.
    #[must_use]
    pub fn with_resolver(self, resolver: impl Resolver<R>) -> Self {
        Self::from_inner(Inner { resolver: Some(Arc::new(resolver)), ..self.parts() })
    }

    /// This mailbox, found by others under `identifier`: what is written as `reply_to` when it is
    /// given as the place for replies.
    #[must_use]
    pub fn with_identifier(self, identifier: impl Into<String>) -> Self {
        Self::from_inner(Inner { identifier: identifier.into(), addressable: true, ..self.parts() })
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
        codec: Arc<dyn Codec<T>>,
        resolver: Option<Arc<dyn Resolver<R>>>,
    ) -> Self {
        let identifier = backend.address(&name);
        let route = Route::Encoded(Encoded { backend, codec, owned: false });
        Self::from_inner(Inner {
            name,
            identifier,
            addressable: true,
            route,
            resolver,
            closed: Arc::new(CancellationToken::new()),
        })
    }

    fn from_inner(inner: Inner<T, R>) -> Self {
        Self { inner: Arc::new(inner) }
    }

    fn parts(&self) -> Inner<T, R> {
        Inner {
            name: self.inner.name.clone(),
            identifier: self.inner.identifier.clone(),
            addressable: self.inner.addressable,
            route: self.inner.route.clone(),
            resolver: self.inner.resolver.clone(),
            closed: Arc::clone(&self.inner.closed),
        }
    }
}
