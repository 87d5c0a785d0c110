//! Mailboxes for replies, by name on the same Redis.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::Backend;
use crate::backends::redis::RedisBackend;
use crate::error::Result;
use crate::mailbox::Mailbox;
use crate::resolver::Factory;
use crate::resolver::factory::name_on;

/// Makes mailboxes of one Redis backend, from bare names, as other programs write them, and from
/// that backend's own addresses. It leads to no other server, database or prefix, so each tenant
/// gets a factory of its own. Making one costs nothing: no connection, no task.
pub struct RedisMailboxFactory<R> {
    backend: Arc<RedisBackend>,
    bodies: PhantomData<fn() -> R>,
}

impl<R> RedisMailboxFactory<R> {
    /// The namespace of this backend.
    #[must_use]
    pub const fn on(backend: Arc<RedisBackend>) -> Self {
        Self { backend, bodies: PhantomData }
    }
}

#[async_trait]
impl<R> Factory<R> for RedisMailboxFactory<R>
where
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    async fn create(&self, identifier: &str) -> Result<Mailbox<R>> {
        let backend: Arc<dyn Backend> = Arc::<RedisBackend>::clone(&self.backend);
        let name = name_on(&*backend, identifier)?;
        Ok(Mailbox::new(backend, name))
    }
}

impl<R> Clone for RedisMailboxFactory<R> {
    /// A factory for the same namespace.
    fn clone(&self) -> Self {
        Self::on(Arc::clone(&self.backend))
    }
}

impl<R> fmt::Debug for RedisMailboxFactory<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisMailboxFactory").field(&self.backend).finish()
    }
}
