//! How mailboxes come about from identifiers.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::backend::Backend;
use crate::backends::memory::MemoryBackend;
use crate::error::{Error, ErrorKind, Result};
use crate::mailbox::Mailbox;
use crate::name::Name;
use crate::open;
use crate::resolver::AllowList;
use crate::resolver::identifier::unreadable;

/// Makes mailboxes from identifiers, a new handle each time: keeping them is the resolver's part.
///
/// What it makes is for sending replies, so it is cheap and starts no background task (R5). An
/// identifier comes out of a message: it is untrusted.
#[async_trait]
pub trait Factory<R>: fmt::Debug + Send + Sync + 'static {
    /// A handle of the mailbox that `identifier` stands for.
    ///
    /// # Errors
    /// `MailboxResolution` if it leads nowhere or may not be followed; `Connection` and whatever
    /// else opening it gives.
    ///
    /// # Cancel safety
    /// Must be safe: what was being opened is dropped.
    async fn create(&self, identifier: &str) -> Result<Mailbox<R>>;
}

#[async_trait]
impl<R: 'static, F: Factory<R> + ?Sized> Factory<R> for Arc<F> {
    async fn create(&self, identifier: &str) -> Result<Mailbox<R>> {
        (**self).create(identifier).await
    }
}

/// The mailbox that a bare name, or one of the backend's own addresses, leads to there.
pub(crate) fn name_on(backend: &dyn Backend, identifier: &str) -> Result<Name> {
    if !Address::has_scheme(identifier) {
        return Name::parse(identifier).map_err(|why| unreadable(identifier, &why));
    }
    let address = Address::parse(identifier).map_err(|why| unreadable(identifier, &why))?;
    if backend.address(address.name()) != identifier {
        return Err(Error::resolution(identifier, "it is not in this namespace"));
    }
    Ok(address.name().clone())
}

/// Makes mailboxes of one memory backend, from bare names and from that backend's own addresses.
///
/// One factory is one namespace: it leads to no other backend, so each tenant gets a factory of its
/// own. Messages are the backend's, so they outlive the handles made here.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use mailbox::resolver::{LruResolver, MemoryFactory};
/// use mailbox::{Mailbox, Resolver};
///
/// let resolver = LruResolver::new(MemoryFactory::new());
/// let replies: Mailbox<String> = resolver.resolve("client-7").await?;
/// replies.send("done".into()).await?;
///
/// resolver.evict("client-7").await;
/// assert_eq!(resolver.resolve("client-7").await?.approximate_count().await?, 1);
/// # Ok(()) }
/// ```
pub struct MemoryFactory<R> {
    backend: Arc<MemoryBackend>,
    bodies: PhantomData<fn() -> R>,
}

impl<R> MemoryFactory<R> {
    /// A namespace of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::on(MemoryBackend::new())
    }

    /// The namespace of this backend.
    #[must_use]
    pub const fn on(backend: Arc<MemoryBackend>) -> Self {
        Self { backend, bodies: PhantomData }
    }
}

#[async_trait]
impl<R> Factory<R> for MemoryFactory<R>
where
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    async fn create(&self, identifier: &str) -> Result<Mailbox<R>> {
        Ok(Mailbox::new(self.backend.reached(), name_on(&*self.backend, identifier)?))
    }
}

impl<R> Default for MemoryFactory<R> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R> Clone for MemoryFactory<R> {
    /// A factory for the same namespace.
    fn clone(&self) -> Self {
        Self::on(Arc::clone(&self.backend))
    }
}

impl<R> fmt::Debug for MemoryFactory<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryFactory").field(&self.backend).finish()
    }
}

/// Opens addresses, as [`Mailbox::open`] does, if they pass an [`AllowList`] (R4).
///
/// A refused address gives `MailboxResolution`, as do one that cannot be read, one of a scheme that
/// this build lacks, and one that leads nowhere; the text shows no user, password or option. Bare
/// names are refused too: they say nothing about where.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use mailbox::resolver::{AllowList, LruResolver, UrlFactory};
/// use mailbox::{ErrorKind, Mailbox, Resolver};
///
/// let allowed = AllowList::new().allow_scheme("memory")?.allow_host("redis", "*.internal")?;
/// let resolver = LruResolver::new(UrlFactory::new(allowed));
///
/// let replies: Mailbox<String> = resolver.resolve("memory://replies").await?;
/// replies.send("done".into()).await?;
///
/// let error = resolver.resolve("redis://queue.internal@evil.example/replies").await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::MailboxResolution);
/// # Ok(()) }
/// ```
pub struct UrlFactory<R> {
    allowed: AllowList,
    bodies: PhantomData<fn() -> R>,
}

impl<R> UrlFactory<R> {
    /// Opens what `allowed` allows.
    #[must_use]
    pub const fn new(allowed: AllowList) -> Self {
        Self { allowed, bodies: PhantomData }
    }
}

#[async_trait]
impl<R> Factory<R> for UrlFactory<R>
where
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    async fn create(&self, identifier: &str) -> Result<Mailbox<R>> {
        let address = Address::parse(identifier).map_err(|why| unreadable(identifier, &why))?;
        if let Some(why) = self.allowed.objection(&address) {
            return Err(Error::resolution(identifier, why));
        }
        // What is opened is what was checked: the text is not read a second time.
        open::open(&address).await.map_err(|error| match error.kind() {
            ErrorKind::InvalidParameter | ErrorKind::NotFound | ErrorKind::Unsupported => {
                Error::resolution(identifier, error.message())
            }
            _ => error,
        })
    }
}

impl<R> Clone for UrlFactory<R> {
    fn clone(&self) -> Self {
        Self::new(self.allowed.clone())
    }
}

impl<R> fmt::Debug for UrlFactory<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UrlFactory").field(&self.allowed).finish()
    }
}
