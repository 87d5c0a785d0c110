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

/// Resolves a bare name to the mailbox of that name on the same backend, and `memory://` addresses
/// to mailboxes of this process. Opens nothing: no other address is followed (R4).
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
            let name = Name::parse(identifier).map_err(|why| Error::resolution(identifier, why))?;
            return Ok(Mailbox::new(Arc::clone(&self.backend), name));
        }
        let address =
            Address::parse(identifier).map_err(|why| Error::resolution(identifier, why))?;
        if address.scheme() != "memory" {
            let why = format!(
                "this resolver follows no {}: address; give the mailbox a resolver that may",
                address.scheme()
            );
            return Err(Error::resolution(identifier, why));
        }
        match MemoryBackend::at(address.place()) {
            Some(backend) => Ok(Mailbox::in_memory(&backend, address.name().clone())),
            None => Err(Error::resolution(identifier, "that memory backend is gone")),
        }
    }
}

impl<R> fmt::Debug for SameBackendResolver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SameBackendResolver").field(&self.backend).finish()
    }
}
