//! From identifiers to mailboxes: how a worker finds the mailbox that a message wants its reply in
//! (R1 to R5).
//!
//! An identifier is a name, an address, or a key of the program's own; it comes out of a message,
//! so it is a stranger's. A [`Resolver`] decides what it leads to, a [`Factory`] makes the mailbox.
//!
//! | | finds | makes |
//! |---|---|---|
//! | [`SameBackendResolver`] | names on one backend: what a mailbox has unless told otherwise | |
//! | [`RegistryResolver`] | a fixed map | |
//! | [`LruResolver`] | a bounded cache | what a factory makes |
//! | [`CompositeResolver`] | the fixed map, then the cache | what a factory makes |
//!
//! Factories: [`MemoryFactory`] (one namespace in memory), [`UrlFactory`] (addresses that pass an
//! [`AllowList`]).
//!
//! A resolver is a plain value, `Send + Sync + 'static`: put it behind an `Arc` and share it. None
//! of them has a background task (R5); what has to be tidied up is tidied up by the calls.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> mailbox::Result<()> {
//! use std::sync::Arc;
//! use mailbox::resolver::{CompositeResolver, MemoryFactory, RegistryResolver};
//! use mailbox::{Mailbox, Resolver, SendOptions};
//!
//! let audit: Mailbox<String> = Mailbox::memory("audit")?;
//! let resolver = Arc::new(
//!     CompositeResolver::new(RegistryResolver::new([("audit", audit)]))
//!         .with_factory(MemoryFactory::new()),
//! );
//! let requests: Mailbox<u32, String> = Mailbox::memory("requests")?;
//! let requests = requests.with_resolver(resolver.clone());
//!
//! // The client names a mailbox that nobody has made yet; the factory will.
//! requests.send_with(21, SendOptions::new().with_reply_to("client-7")).await?;
//!
//! let request = requests.receive().await?.remove(0);
//! request.reply((request.body()? * 2).to_string()).await?;
//! request.acknowledge().await?;
//!
//! let replies = resolver.resolve("client-7").await?;
//! assert_eq!(replies.receive().await?[0].body()?, "42");
//! assert_eq!((resolver.stats().creations, resolver.stats().hits), (1, 1));
//! # Ok(()) }
//! ```

mod allow_list;
mod cache;
#[cfg(test)]
mod closing;
mod composite;
pub(crate) mod factory;
mod flights;
mod host;
pub(crate) mod identifier;
mod lru;
mod registry;
mod same_backend;
#[cfg(test)]
mod silent;
mod stats;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{ErrorKind, Result};
use crate::mailbox::Mailbox;

pub use allow_list::AllowList;
pub use composite::CompositeResolver;
pub use factory::{Factory, MemoryFactory, UrlFactory};
pub use lru::{LruConfig, LruResolver};
pub use registry::RegistryResolver;
pub use same_backend::SameBackendResolver;
pub use stats::ResolverStats;

pub(crate) use identifier::shown;

/// Finds mailboxes by identifier: a name, an address, or a key of its own. A plain shareable value.
#[async_trait]
pub trait Resolver<R>: fmt::Debug + Send + Sync + 'static {
    /// The mailbox for `identifier`. It is meant for sending replies, and may be shared with others
    /// who resolved the same: whoever closes it closes it for them too.
    ///
    /// # Errors
    /// `MailboxResolution` if it leads nowhere or may not be followed; whatever opening it gave.
    ///
    /// # Cancel safety
    /// Safe: nothing is sent, and what was being opened is dropped.
    async fn resolve(&self, identifier: &str) -> Result<Mailbox<R>>;

    /// The mailbox for `identifier`, or none if it leads nowhere or may not be followed.
    ///
    /// # Errors
    /// Everything that [`resolve`](Self::resolve) gives but `MailboxResolution`: a backend that
    /// cannot be reached is no reason to believe that there is no mailbox.
    ///
    /// # Cancel safety
    /// As [`resolve`](Self::resolve).
    async fn resolve_optional(&self, identifier: &str) -> Result<Option<Mailbox<R>>>
    where
        R: Send + Sync + 'static,
    {
        match self.resolve(identifier).await {
            Ok(mailbox) => Ok(Some(mailbox)),
            Err(error) if error.kind() == ErrorKind::MailboxResolution => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl<R, S> Resolver<R> for Arc<S>
where
    R: Send + Sync + 'static,
    S: Resolver<R> + ?Sized,
{
    async fn resolve(&self, identifier: &str) -> Result<Mailbox<R>> {
        (**self).resolve(identifier).await
    }

    async fn resolve_optional(&self, identifier: &str) -> Result<Option<Mailbox<R>>> {
        (**self).resolve_optional(identifier).await
    }
}
