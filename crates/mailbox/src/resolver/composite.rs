//! Registry, then cache, then factory.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::mailbox::Mailbox;
use crate::resolver::{Factory, LruConfig, LruResolver, RegistryResolver, Resolver, ResolverStats};

/// Most mailboxes kept by [`CompositeResolver::with_factory`]: more than most programs ever talk
/// to, and yet a bound.
const CAPACITY: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("it is not zero");

/// Resolves registered identifiers first, then from its cache, then by a factory.
///
/// Without a factory it is a [`RegistryResolver`] that counts. Its cache is an [`LruResolver`], of
/// 65,536 mailboxes unless given another with [`with_cache`](Self::with_cache): what that says
/// about eviction, age and health holds here. Registered mailboxes are never evicted, checked or
/// closed. See the [module](crate::resolver) for an example.
pub struct CompositeResolver<R> {
    registry: RegistryResolver<R>,
    cache: LruResolver<R>,
    registry_hits: AtomicU64,
}

impl<R: Send + Sync + 'static> CompositeResolver<R> {
    /// Resolves what is registered, and nothing else until it is given a factory.
    #[must_use]
    pub fn new(registry: RegistryResolver<R>) -> Self {
        let cache = LruResolver::new(NoFactory);
        Self { registry, cache, registry_hits: AtomicU64::new(0) }
    }

    /// Makes what is not registered with `factory`, and keeps up to 65,536 of those.
    #[must_use]
    pub fn with_factory(self, factory: impl Factory<R>) -> Self {
        let config = LruConfig::default().with_capacity(CAPACITY);
        self.with_cache(LruResolver::with_config(factory, config))
    }

    /// Resolves what is not registered with `cache`.
    #[must_use]
    pub fn with_cache(mut self, cache: LruResolver<R>) -> Self {
        self.cache = cache;
        self
    }

    /// Takes a mailbox out of the cache; see [`LruResolver::evict`].
    ///
    /// # Cancel safety
    /// As [`LruResolver::evict`].
    pub async fn evict(&self, identifier: &str) -> bool {
        self.cache.evict(identifier).await
    }

    /// Takes dead mailboxes out of the cache; see [`LruResolver::check_health`].
    ///
    /// # Cancel safety
    /// As [`LruResolver::check_health`].
    pub async fn check_health(&self) -> usize {
        self.cache.check_health().await
    }

    /// What it has done so far. Registered mailboxes count as hits.
    #[must_use]
    pub fn stats(&self) -> ResolverStats {
        let mut stats = self.cache.stats();
        stats.hits += self.registry_hits.load(Ordering::Relaxed);
        stats
    }
}

#[async_trait]
impl<R: Send + Sync + 'static> Resolver<R> for CompositeResolver<R> {
    async fn resolve(&self, identifier: &str) -> Result<Mailbox<R>> {
        if let Some(mailbox) = self.registry.get(identifier) {
            self.registry_hits.fetch_add(1, Ordering::Relaxed);
            return Ok(mailbox.clone());
        }
        self.cache.resolve(identifier).await
    }
}

impl<R: Send + Sync + 'static> fmt::Debug for CompositeResolver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompositeResolver")
            .field("registry", &self.registry)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// Makes nothing.
#[derive(Debug)]
struct NoFactory;

#[async_trait]
impl<R: 'static> Factory<R> for NoFactory {
    async fn create(&self, identifier: &str) -> Result<Mailbox<R>> {
        Err(Error::resolution(identifier, "it is not registered, and there is no factory"))
    }
}
