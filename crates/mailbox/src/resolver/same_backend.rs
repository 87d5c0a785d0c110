//! What a mailbox resolves with unless told otherwise.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::backend::Backend;
use crate::backends::memory::MemoryBackend;
use crate::error::{Error, Result};
use crate::mailbox::Mailbox;
use crate::name::Name;
use crate::resolver::Resolver;
use crate::resolver::identifier::unreadable;

/// Resolves what stays on the same backend, and what only those can name who were told: what a
/// mailbox has unless given another. It opens nothing, and follows (R4):
///
/// | Identifier | Leads to |
/// |---|---|
/// | a bare name | the mailbox of that name on the same backend |
/// | an address of that backend, as it writes it | the same |
/// | `memory://place/name` | a mailbox of that memory backend: places are random, none is guessed |
///
/// No other address is followed. In particular `memory://name`, in the namespace that the process
/// shares, takes no secret to write: it is followed only by mailboxes of that namespace. A worker
/// that is to reply there from elsewhere needs a resolver that says so:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use mailbox::resolver::{AllowList, LruResolver, UrlFactory};
/// use mailbox::{ErrorKind, Mailbox, SendOptions};
///
/// let requests: Mailbox<u32, u32> = Mailbox::memory("requests")?;
/// requests.send_with(1, SendOptions::new().with_reply_to("memory://replies")).await?;
/// let request = requests.receive().await?.remove(0);
/// assert_eq!(request.reply(2).await.unwrap_err().kind(), ErrorKind::MailboxResolution);
/// request.nack().await?;
///
/// let allowed = AllowList::new().allow_scheme("memory")?;
/// let requests = requests.with_resolver(LruResolver::new(UrlFactory::new(allowed)));
/// let request = requests.receive().await?.remove(0);
/// request.reply(2).await?;
/// request.acknowledge().await?;
/// # Ok(()) }
/// ```
pub struct SameBackendResolver<R> {
    backend: Arc<dyn Backend>,
    replies: PhantomData<fn() -> R>,
}

impl<R> SameBackendResolver<R> {
    /// Resolves names on `backend`.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, replies: PhantomData }
    }
}

#[async_trait]
impl<R> Resolver<R> for SameBackendResolver<R>
where
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    async fn resolve(&self, identifier: &str) -> Result<Mailbox<R>> {
        if !Address::has_scheme(identifier) {
            let name = Name::parse(identifier).map_err(|why| unreadable(identifier, &why))?;
            return Ok(Mailbox::new(Arc::clone(&self.backend), name));
        }
        let address = Address::parse(identifier).map_err(|why| unreadable(identifier, &why))?;
        if self.backend.address(address.name()) == identifier {
            return Ok(Mailbox::new(Arc::clone(&self.backend), address.name().clone()));
        }
        if address.scheme() != "memory" {
            let why = format!(
                "this resolver follows no {}: address; give the mailbox a resolver that may",
                address.scheme()
            );
            return Err(Error::resolution(identifier, why));
        }
        if address.place().is_empty() {
            let why = "it is in the namespace that the process shares, and the mailbox is not; \
                       give the mailbox a resolver that may follow it";
            return Err(Error::resolution(identifier, why));
        }
        match MemoryBackend::at(address.place()) {
            Some(backend) => Ok(Mailbox::new(backend.reached(), address.name().clone())),
            None => Err(Error::resolution(identifier, "that memory backend is gone")),
        }
    }
}

impl<R> fmt::Debug for SameBackendResolver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SameBackendResolver").field(&self.backend).finish()
    }
}
