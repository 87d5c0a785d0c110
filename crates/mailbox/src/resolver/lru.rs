//! A bounded cache in front of a factory. Invariants: the lock is never held while anything is
//! awaited or a mailbox is dropped; what is kept is bounded: mailboxes, their identifiers' bytes,
//! creations under way. From the moment a mailbox leaves the cache's hands to the first poll of
//! its closing nothing is awaited, so that whoever is cancelled forgets none.

use std::fmt;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::error::Result;
use crate::home::clock::Clock;
use crate::mailbox::Mailbox;
use crate::resolver::cache::{Cache, Suspect};
use crate::resolver::flights::{Flight, Flights};
use crate::resolver::identifier::check_length;
use crate::resolver::{Factory, Resolver, ResolverStats};

/// Most mailboxes that are asked, evicted or closed at a time, and most evicted ones that one
/// resolution looks at. It evicts fewer itself, so those that wait to be closed become fewer with
/// every miss.
const AT_ONCE: usize = 64;
/// How long closing may take before whoever waits for it goes on.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// How an [`LruResolver`] is set up. `Default` keeps 1,000 mailboxes of any age.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LruConfig {
    /// Most mailboxes in the cache.
    pub capacity: NonZeroUsize,
    /// How long after its creation a mailbox is made anew, used or not; none: never.
    pub ttl: Option<Duration>,
    /// How long a mailbox may take to answer a health check.
    pub health_timeout: Duration,
    /// Where time comes from.
    pub clock: Clock,
}

impl Default for LruConfig {
    fn default() -> Self {
        Self {
            capacity: NonZeroUsize::new(1000).expect("it is not zero"),
            ttl: None,
            health_timeout: Duration::from_secs(5),
            clock: Clock::system(),
        }
    }
}

impl LruConfig {
    /// Keeps this many mailboxes.
    #[must_use]
    pub const fn with_capacity(mut self, capacity: NonZeroUsize) -> Self {
        self.capacity = capacity;
        self
    }

    /// Keeps mailboxes for this long.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Waits this long for the answer to a health check.
    #[must_use]
    pub const fn with_health_timeout(mut self, health_timeout: Duration) -> Self {
        self.health_timeout = health_timeout;
        self
    }

    /// Takes time from this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

/// Resolves by a factory, and keeps what that made: up to a bound, the least recently used going
/// first, and up to an age if one is set.
///
/// **Creating.** Those who ask for the same identifier at the same time share one creation and its
/// outcome. An error is not kept: the next call tries again. A mailbox that is closed is never
/// given out from the cache: a new one is made.
///
/// **Evicting.** What leaves the cache is closed, with its backend if that was opened for it alone;
/// a backend that is shared with others is not. But whoever has been given a mailbox, and is about
/// to reply, must not see it close because of others: an evicted mailbox stays open while anybody
/// has a handle of it (a clone, or a message that came through it), and is closed by the next miss,
/// eviction or health check that finds it unused. The resolver remembers as many of those as
/// `capacity`, and at least 64; with one more that is in use, the oldest is left to its users: what
/// it holds is freed with the last handle. Evicting deletes no message.
///
/// **Health.** [`check_health`](Self::check_health) asks every cached mailbox for its counts, and
/// evicts those that do not answer; call it from time to time if backends can die. Nothing here
/// runs by itself.
///
/// Identifiers of more than 1 KiB, which no message can carry, are refused with
/// `MailboxResolution`; more than 4,096 creations at one time, with `Saturated`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use std::time::Duration;
/// use mailbox::resolver::{LruConfig, LruResolver, MemoryFactory};
/// use mailbox::testing::ManualClock;
/// use mailbox::{Mailbox, Resolver};
///
/// let clock = ManualClock::new();
/// let config = LruConfig::default().with_ttl(Duration::from_secs(600)).with_clock(clock.clock());
/// let resolver = LruResolver::with_config(MemoryFactory::new(), config);
///
/// let replies: Mailbox<String> = resolver.resolve("client-7").await?; // made
/// resolver.resolve("client-7").await?; // found
/// clock.advance(Duration::from_secs(600));
/// resolver.resolve("client-7").await?; // made anew
///
/// let stats = resolver.stats();
/// assert_eq!((stats.hits, stats.misses, stats.creations, stats.evictions), (1, 2, 2, 1));
/// replies.send("still works".into()).await?;
/// # Ok(()) }
/// ```
pub struct LruResolver<R> {
    factory: Arc<dyn Factory<R>>,
    clock: Clock,
    health_timeout: Duration,
    /// A plain lock: all that is done under it is looking up and counting.
    state: Mutex<State<R>>,
}

struct State<R> {
    cache: Cache<R>,
    flights: Flights<R>,
}

impl<R: Send + Sync + 'static> LruResolver<R> {
    /// Keeps what `factory` makes, with default settings.
    #[must_use]
    pub fn new(factory: impl Factory<R>) -> Self {
        Self::with_config(factory, LruConfig::default())
    }

    /// Keeps what `factory` makes.
    #[must_use]
    pub fn with_config(factory: impl Factory<R>, config: LruConfig) -> Self {
        let capacity = config.capacity.get();
        let cache = Cache::new(capacity, capacity.max(AT_ONCE), config.ttl);
        Self {
            factory: Arc::new(factory),
            clock: config.clock,
            health_timeout: config.health_timeout,
            state: Mutex::new(State { cache, flights: Flights::new() }),
        }
    }

    /// Takes a mailbox out of the cache and closes it, now or when nobody uses it any more (see
    /// the type); false if it was not there. A creation under way is not affected.
    ///
    /// # Cancel safety
    /// It has left the cache at the first poll.
    pub async fn evict(&self, identifier: &str) -> bool {
        let mut leaving = Vec::new();
        let evicted = self.state.lock().cache.evict(identifier, &mut leaving);
        self.tidy_up(leaving).await;
        evicted
    }

    /// Asks every cached mailbox for its counts, and evicts those that are closed, give an error,
    /// or take longer than `health_timeout`; gives how many those were. Evicts those that are too
    /// old as well, without counting them. The next resolution makes a new one.
    ///
    /// Asks 64 at a time, so that it takes at most `health_timeout` for every 64 cached mailboxes,
    /// and at most a second for every 64 that it closes.
    ///
    /// # Cancel safety
    /// Safe: those already found dead have left the cache, the others are not looked at.
    pub async fn check_health(&self) -> usize {
        // First those that wait to be closed: they make room for those that are still in use.
        self.close_unused().await;
        self.evict_expired().await;
        let mut suspects = self.state.lock().cache.suspects();
        let dead = AtomicUsize::new(0);
        while !suspects.is_empty() {
            let next = suspects.split_off(suspects.len().saturating_sub(AT_ONCE));
            all(next.into_iter().map(|suspect| self.probe(suspect, &dead))).await;
        }
        self.close_unused().await;
        dead.into_inner()
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> ResolverStats {
        self.state.lock().cache.stats()
    }

    async fn probe(&self, suspect: Suspect<R>, dead: &AtomicUsize) {
        let Suspect { identifier, born, mailbox } = suspect;
        let deadline = self.clock.now().after(self.health_timeout);
        let alive = tokio::select! {
            biased;
            stats = mailbox.stats() => stats.is_ok(),
            () = self.clock.sleep_until(deadline) => false,
        };
        // Or else it would count as used. If it was evicted meanwhile, this may be the last handle.
        self.let_go(vec![mailbox]).await;
        if alive {
            return;
        }
        let mut leaving = Vec::new();
        if self.state.lock().cache.evict_suspect(&identifier, born, &mut leaving) {
            dead.fetch_add(1, Ordering::Relaxed);
        }
        self.let_go(leaving).await;
    }

    /// Asks the factory, and keeps what it made.
    async fn create(
        &self,
        seat: &Seat<'_, R>,
        leaving: &mut Vec<Mailbox<R>>,
    ) -> Result<Mailbox<R>> {
        let created = self.factory.create(&seat.identifier).await;
        let now = self.clock.now();
        let mut state = self.state.lock();
        match &created {
            Ok(mailbox) => state.cache.insert(&seat.identifier, mailbox.clone(), now, leaving),
            Err(_) => state.cache.evict_stale(&seat.identifier, now, leaving),
        }
        // Under the same lock: whoever comes next either finds it in the cache or starts anew.
        state.flights.land(&seat.identifier, &seat.flight);
        created
    }

    /// Evicts all that are too old, in steps: none is out of the cache before it can be closed.
    async fn evict_expired(&self) {
        let now = self.clock.now();
        loop {
            let mut leaving = Vec::new();
            let evicted = self.state.lock().cache.evict_expired(now, AT_ONCE, &mut leaving);
            self.let_go(leaving).await;
            if evicted < AT_ONCE {
                return;
            }
        }
    }

    /// Closes all evicted mailboxes that nobody uses any more, in steps as well.
    async fn close_unused(&self) {
        loop {
            let unused = self.state.lock().cache.take_unused(usize::MAX, AT_ONCE);
            let taken = unused.len();
            self.let_go(unused).await;
            if taken < AT_ONCE {
                return;
            }
        }
    }

    /// Lets go of what has just left the cache, and of a few that left it before.
    async fn tidy_up(&self, mut leaving: Vec<Mailbox<R>>) {
        let most = AT_ONCE.saturating_sub(leaving.len());
        let unused = self.state.lock().cache.take_unused(AT_ONCE, most);
        leaving.extend(unused);
        self.let_go(leaving).await;
    }

    /// Closes those that nobody else has, and leaves the others to those who have them. All are
    /// closed at the first poll, whether or not there is another one.
    async fn let_go(&self, leaving: Vec<Mailbox<R>>) {
        debug_assert!(leaving.len() <= AT_ONCE, "more than are closed at a time");
        let unused = leaving.into_iter().filter(|mailbox| !mailbox.is_shared());
        all(unused.map(|mailbox| self.close(mailbox))).await;
    }

    async fn close(&self, mailbox: Mailbox<R>) {
        let deadline = self.clock.now().after(CLOSE_PATIENCE);
        let closed = tokio::select! {
            biased;
            closed = mailbox.close() => closed,
            () = self.clock.sleep_until(deadline) => {
                tracing::debug!(mailbox = %mailbox.name(), "closing an evicted mailbox takes long");
                return;
            }
        };
        if let Err(error) = closed {
            tracing::debug!(%error, "an evicted mailbox did not close well");
        }
    }
}

#[async_trait]
impl<R: Send + Sync + 'static> Resolver<R> for LruResolver<R> {
    async fn resolve(&self, identifier: &str) -> Result<Mailbox<R>> {
        if let Err(error) = check_length(identifier) {
            self.state.lock().cache.refused();
            return Err(error);
        }
        let started = self.clock.now();
        let seat = {
            let mut state = self.state.lock();
            if let Some(mailbox) = state.cache.get(identifier, started) {
                state.cache.took(self.clock.now().since(started));
                return Ok(mailbox);
            }
            let identifier: Arc<str> = identifier.into();
            let flight = state.flights.board(&identifier)?;
            Seat { resolver: self, identifier, flight }
        };
        let mut leaving = Vec::new();
        let created = seat.flight.get_or_init(|| self.create(&seat, &mut leaving));
        let resolved = created.await.clone();
        drop(seat);
        let took = self.clock.now().since(started);
        self.state.lock().cache.took(took);
        self.tidy_up(leaving).await;
        resolved
    }
}

impl<R: Send + Sync + 'static> fmt::Debug for LruResolver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LruResolver")
            .field("factory", &self.factory)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// One who waits for a creation; leaves when dropped, however that comes about.
struct Seat<'a, R> {
    resolver: &'a LruResolver<R>,
    identifier: Arc<str>,
    flight: Flight<R>,
}

impl<R> Drop for Seat<'_, R> {
    fn drop(&mut self) {
        self.resolver.state.lock().flights.leave(&self.identifier, &self.flight);
    }
}

/// Runs a few futures to their end, side by side in this task.
async fn all<F: Future<Output = ()> + Send>(futures: impl Iterator<Item = F>) {
    let mut futures: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
