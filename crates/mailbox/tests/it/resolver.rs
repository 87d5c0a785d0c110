//! Resolvers and factories, as a user sees them (R1 to R5).

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use mailbox::backends::memory::MemoryBackend;
use mailbox::resolver::{
    AllowList, CompositeResolver, Factory, LruConfig, LruResolver, MemoryFactory, RegistryResolver,
    UrlFactory,
};
use mailbox::testing::ManualClock;
use mailbox::{Backend, Error, ErrorKind, Mailbox, Name, Resolver, Result, SendOptions};
use tokio::sync::Semaphore;

/// Makes mailboxes with a memory backend each, which is closed with them; counts them.
#[derive(Debug, Default)]
struct OwnBackends {
    created: AtomicUsize,
}

#[async_trait]
impl Factory<u32> for OwnBackends {
    async fn create(&self, identifier: &str) -> Result<Mailbox<u32>> {
        self.created.fetch_add(1, Ordering::Relaxed);
        Mailbox::memory(identifier)
    }
}

/// Makes mailboxes once it is let, or fails; counts the attempts.
#[derive(Debug)]
struct Gated {
    gate: Semaphore,
    attempts: AtomicUsize,
    outcome: Option<ErrorKind>,
}

impl Gated {
    fn new(outcome: Option<ErrorKind>) -> Arc<Self> {
        Arc::new(Self { gate: Semaphore::new(0), attempts: AtomicUsize::new(0), outcome })
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Factory<u32> for Gated {
    async fn create(&self, identifier: &str) -> Result<Mailbox<u32>> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let _open = self.gate.acquire().await.unwrap();
        match self.outcome {
            Some(kind) => Err(Error::new(kind, "as asked")),
            None => Mailbox::memory(identifier),
        }
    }
}

fn config(capacity: usize) -> LruConfig {
    LruConfig::default().with_capacity(NonZeroUsize::new(capacity).unwrap())
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Whether a future, polled once more, has still not ended.
async fn is_waiting(future: &mut (impl Future + Unpin)) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = std::future::ready(()) => true,
    }
}

const RESOLUTION: Option<ErrorKind> = Some(ErrorKind::MailboxResolution);

#[tokio::test]
async fn a_registry_resolves_what_it_has_and_names_what_it_has_not() {
    let replies: Mailbox<u32> = Mailbox::memory("replies").unwrap();
    let resolver = RegistryResolver::new([("anything: goes?", replies.clone())]);
    resolver.resolve("anything: goes?").await.unwrap().send(1).await.unwrap();
    assert_eq!(replies.approximate_count().await.unwrap(), 1);

    let error = resolver.resolve("replies").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MailboxResolution);
    assert_eq!(error.identifier(), Some("replies"));
}

#[tokio::test]
async fn resolve_optional_gives_none_for_what_leads_nowhere_and_passes_other_errors_on() {
    let resolver: Arc<dyn Resolver<u32>> =
        Arc::new(RegistryResolver::new([("here", Mailbox::memory("here").unwrap())]));
    assert!(resolver.resolve_optional("here").await.unwrap().is_some());
    assert!(resolver.resolve_optional("nowhere").await.unwrap().is_none());

    let broken = Gated::new(Some(ErrorKind::Connection));
    broken.gate.add_permits(1);
    let broken = LruResolver::new(broken);
    assert_eq!(kind(broken.resolve_optional("x").await), Some(ErrorKind::Connection));
}

#[tokio::test]
async fn a_composite_asks_the_registry_then_the_cache_then_the_factory() {
    let registered: Mailbox<u32> = Mailbox::memory("registered").unwrap();
    let factory = Arc::new(OwnBackends::default());
    let resolver = CompositeResolver::new(RegistryResolver::new([("both", registered.clone())]))
        .with_factory(Arc::clone(&factory));

    resolver.resolve("both").await.unwrap().send(1).await.unwrap();
    assert_eq!(registered.approximate_count().await.unwrap(), 1);
    assert_eq!(factory.created.load(Ordering::Relaxed), 0);

    let made = resolver.resolve("made").await.unwrap();
    let again = resolver.resolve("made").await.unwrap();
    assert_eq!(made.identifier(), again.identifier());
    assert_eq!(factory.created.load(Ordering::Relaxed), 1);

    let stats = resolver.stats();
    assert_eq!((stats.hits, stats.misses, stats.creations), (2, 1, 1));
    assert!(!resolver.evict("both").await);
    drop((made, again));
    assert!(resolver.evict("made").await);
    assert_eq!(resolver.check_health().await, 0);
}

#[tokio::test]
async fn a_composite_without_factory_resolves_what_is_registered_alone() {
    let resolver = CompositeResolver::<u32>::new(RegistryResolver::default());
    let error = resolver.resolve("x").await.unwrap_err();
    assert_eq!((error.kind(), error.identifier()), (ErrorKind::MailboxResolution, Some("x")));
    assert_eq!((resolver.stats().misses, resolver.stats().creations), (1, 0));
}

#[tokio::test]
async fn what_is_evicted_is_closed_with_the_backend_that_it_alone_has() {
    let resolver = LruResolver::with_config(OwnBackends::default(), config(1));
    // A handle of another origin shows what becomes of the backend.
    let address = resolver.resolve("a").await.unwrap().identifier().to_owned();
    let witness: Mailbox<u32> = Mailbox::open(&address).await.unwrap();
    witness.send(1).await.unwrap();

    resolver.resolve("b").await.unwrap();
    assert_eq!(kind(witness.send(2).await), Some(ErrorKind::Closed));

    let address = resolver.resolve("b").await.unwrap().identifier().to_owned();
    let witness: Mailbox<u32> = Mailbox::open(&address).await.unwrap();
    assert!(resolver.evict("b").await);
    assert!(!resolver.evict("b").await);
    assert_eq!(kind(witness.send(2).await), Some(ErrorKind::Closed));
    assert_eq!((resolver.stats().evictions, resolver.stats().cached), (2, 0));
}

#[tokio::test]
async fn a_worker_that_was_given_a_mailbox_can_reply_after_its_eviction() {
    let resolver = Arc::new(LruResolver::with_config(OwnBackends::default(), config(1)));
    let mine = resolver.resolve("a").await.unwrap();
    let witness: Mailbox<u32> = Mailbox::open(mine.identifier()).await.unwrap();
    resolver.resolve("b").await.unwrap();
    resolver.evict("b").await;
    mine.send(1).await.unwrap();

    // A derived handle and a message hold it too.
    let derived = mine.with_identifier("alias");
    resolver.resolve("c").await.unwrap();
    let message = derived.receive().await.unwrap().remove(0);
    drop(derived);
    resolver.resolve("d").await.unwrap();
    message.acknowledge().await.unwrap();

    drop(message);
    resolver.resolve("e").await.unwrap();
    assert_eq!(kind(witness.send(2).await), Some(ErrorKind::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_worker_sees_its_mailbox_close_however_fast_others_push_it_out() {
    let resolver = Arc::new(LruResolver::with_config(OwnBackends::default(), config(1)));
    let workers = (0..8).map(|worker| {
        let resolver = Arc::clone(&resolver);
        tokio::spawn(async move {
            for round in 0..200 {
                let replies = resolver.resolve(&format!("{}", (worker + round) % 3)).await.unwrap();
                tokio::task::yield_now().await;
                replies.send(round).await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let stats = resolver.stats();
    assert_eq!(stats.hits + stats.misses, 1600);
    assert_eq!(stats.creations, stats.evictions + 1);
}

#[tokio::test]
async fn evicting_closes_no_shared_backend_and_loses_no_message() {
    let backend = MemoryBackend::new();
    let resolver = LruResolver::with_config(MemoryFactory::on(Arc::clone(&backend)), config(1));
    let other: Mailbox<u32> = Mailbox::new(backend, Name::parse("a").unwrap());
    resolver.resolve("a").await.unwrap().send(7).await.unwrap();
    resolver.resolve("b").await.unwrap();
    assert_eq!(resolver.stats().evictions, 1);
    assert_eq!(other.approximate_count().await.unwrap(), 1);
    let again = resolver.resolve("a").await.unwrap();
    assert_eq!(*again.receive().await.unwrap()[0].body().unwrap(), 7);
}

#[tokio::test]
async fn a_mailbox_older_than_the_ttl_is_made_anew_even_if_it_is_used() {
    let clock = ManualClock::new();
    let config = config(10).with_ttl(Duration::from_secs(60)).with_clock(clock.clock());
    let resolver = LruResolver::with_config(OwnBackends::default(), config);
    let first = resolver.resolve("a").await.unwrap().identifier().to_owned();
    clock.advance(Duration::from_millis(59_999));
    assert_eq!(resolver.resolve("a").await.unwrap().identifier(), first);
    clock.advance(Duration::from_millis(1));
    assert_ne!(resolver.resolve("a").await.unwrap().identifier(), first);

    // Those that nobody asks for again go with the next miss, or the next health check.
    clock.advance(Duration::from_secs(60));
    resolver.resolve("b").await.unwrap();
    assert_eq!((resolver.stats().cached, resolver.stats().evictions), (1, 2));
    clock.advance(Duration::from_secs(60));
    assert_eq!(resolver.check_health().await, 0);
    assert_eq!((resolver.stats().cached, resolver.stats().evictions), (0, 3));
}

/// A factory that takes as long as it is told to, by the clock.
#[derive(Debug)]
struct Slow(ManualClock, Mutex<Vec<Duration>>);

#[async_trait]
impl Factory<u32> for Slow {
    async fn create(&self, identifier: &str) -> Result<Mailbox<u32>> {
        self.0.advance(self.1.lock().unwrap().pop().unwrap());
        Mailbox::memory(identifier)
    }
}

#[tokio::test]
async fn hits_misses_creations_evictions_and_time_are_counted() {
    let clock = ManualClock::new();
    let times = [1, 5, 2].map(Duration::from_secs).to_vec();
    let factory = Slow(clock.clone(), Mutex::new(times));
    let resolver = LruResolver::with_config(factory, config(2).with_clock(clock.clock()));
    for identifier in ["a", "b", "a", "a", "c"] {
        resolver.resolve(identifier).await.unwrap();
    }
    let stats = resolver.stats();
    assert_eq!((stats.hits, stats.misses, stats.creations, stats.evictions), (2, 3, 3, 1));
    assert_eq!(stats.resolution_time, Duration::from_secs(8));
    assert_eq!(stats.longest_resolution, Duration::from_secs(5));
    assert_eq!(stats.cached, 2);
    // "b" was used longest ago.
    resolver.resolve("a").await.unwrap();
    assert_eq!(resolver.stats().hits, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_who_ask_for_one_mailbox_at_once_share_one_creation() {
    let factory = Gated::new(None);
    let resolver = Arc::new(LruResolver::new(Arc::clone(&factory)));
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let resolver = Arc::clone(&resolver);
            tokio::spawn(async move { resolver.resolve("a").await })
        })
        .collect();
    while resolver.stats().misses < 100 {
        tokio::task::yield_now().await;
    }
    factory.gate.add_permits(100);
    let resolved: Vec<_> =
        join_all(tasks).await.into_iter().map(|task| task.unwrap().unwrap()).collect();
    assert_eq!(factory.attempts(), 1);
    assert!(resolved.iter().all(|mailbox| mailbox.identifier() == resolved[0].identifier()));
    let stats = resolver.stats();
    assert_eq!((stats.misses, stats.creations, stats.cached), (100, 1, 1));
}

#[tokio::test]
async fn those_who_share_a_failed_creation_share_its_error_and_the_next_one_tries_again() {
    let factory = Gated::new(Some(ErrorKind::Connection));
    let resolver = LruResolver::new(Arc::clone(&factory));
    let asked = join_all((0..10).map(|_| resolver.resolve("a")));
    let (results, ()) = tokio::join!(asked, async { factory.gate.add_permits(1) });
    assert!(results.into_iter().all(|result| kind(result) == Some(ErrorKind::Connection)));
    assert_eq!(factory.attempts(), 1);
    assert!(resolver.resolve("a").await.is_err());
    assert_eq!((factory.attempts(), resolver.stats().cached), (2, 0));
}

#[tokio::test]
async fn when_the_one_who_creates_goes_away_the_next_one_creates() {
    let factory = Gated::new(None);
    let resolver = LruResolver::new(Arc::clone(&factory));
    let mut first = Box::pin(resolver.resolve("a"));
    let mut second = Box::pin(resolver.resolve("a"));
    assert!(is_waiting(&mut first).await);
    assert!(is_waiting(&mut second).await);
    assert_eq!(factory.attempts(), 1);
    drop(first);
    factory.gate.add_permits(1);
    second.await.unwrap();
    assert_eq!((factory.attempts(), resolver.stats().creations), (2, 1));
}

#[tokio::test]
async fn what_is_evicted_just_after_its_creation_is_not_given_to_those_who_come_later() {
    let factory = Gated::new(None);
    let resolver = LruResolver::new(Arc::clone(&factory));
    let mut first = Box::pin(resolver.resolve("a"));
    let mut second = Box::pin(resolver.resolve("a"));
    assert!(is_waiting(&mut first).await);
    assert!(is_waiting(&mut second).await);
    factory.gate.add_permits(1);
    let first = first.await.unwrap();
    assert!(resolver.evict("a").await);
    // The second one took part in that creation, and can use its outcome.
    assert_ne!(resolver.resolve("a").await.unwrap().identifier(), first.identifier());
    assert_eq!(factory.attempts(), 2);
    second.await.unwrap().send(1).await.unwrap();
}

#[tokio::test]
async fn a_mailbox_that_somebody_closed_is_never_given_out_again() {
    let resolver = LruResolver::new(OwnBackends::default());
    let closed = resolver.resolve("a").await.unwrap();
    closed.close().await.unwrap();
    let fresh = resolver.resolve("a").await.unwrap();
    assert!(!fresh.is_closed());
    fresh.send(1).await.unwrap();
    assert_eq!((resolver.stats().evictions, resolver.stats().cached), (1, 1));
}

/// Makes mailboxes on backends that a test can kill.
#[derive(Debug, Default)]
struct Mortal(Mutex<Vec<Arc<MemoryBackend>>>);

#[async_trait]
impl Factory<u32> for Mortal {
    async fn create(&self, identifier: &str) -> Result<Mailbox<u32>> {
        let backend = MemoryBackend::new();
        self.0.lock().unwrap().push(Arc::clone(&backend));
        Ok(Mailbox::new(backend, Name::parse(identifier)?))
    }
}

#[tokio::test]
async fn a_health_check_takes_out_the_dead_and_they_are_replaced() {
    let factory = Arc::new(Mortal::default());
    let resolver = LruResolver::new(Arc::clone(&factory));
    for identifier in ["a", "b", "c"] {
        resolver.resolve(identifier).await.unwrap();
    }
    assert_eq!(resolver.check_health().await, 0);

    let doomed = Arc::clone(&factory.0.lock().unwrap()[1]);
    doomed.close().await.unwrap();
    assert_eq!(kind(resolver.resolve("b").await.unwrap().send(1).await), Some(ErrorKind::Closed));
    assert_eq!(resolver.check_health().await, 1);
    assert_eq!(resolver.stats().cached, 2);
    resolver.resolve("b").await.unwrap().send(1).await.unwrap();
    assert_eq!((resolver.stats().creations, resolver.stats().evictions), (4, 1));
}

#[tokio::test]
async fn no_collection_grows_beyond_its_bound_whatever_strangers_ask_for() {
    let resolver = LruResolver::with_config(MemoryFactory::<u32>::new(), config(8));
    for number in 0..1000 {
        resolver.resolve(&format!("client-{number}")).await.unwrap();
    }
    let stats = resolver.stats();
    assert_eq!((stats.cached, stats.creations, stats.evictions), (8, 1000, 992));
    assert_eq!(kind(resolver.resolve(&"x".repeat(1025)).await), RESOLUTION);
    assert_eq!(kind(resolver.resolve("not a name").await), RESOLUTION);
    assert_eq!(kind(resolver.resolve("").await), RESOLUTION);
    let stats = resolver.stats();
    assert_eq!((stats.cached, stats.hits, stats.misses), (8, 0, 1003), "every call counts");
}

#[tokio::test]
async fn a_worker_replies_to_mailboxes_that_a_factory_makes() {
    let resolver = Arc::new(
        CompositeResolver::new(RegistryResolver::default()).with_factory(MemoryFactory::new()),
    );
    let shared: Arc<dyn Resolver<String>> = Arc::<CompositeResolver<String>>::clone(&resolver);
    let requests: Mailbox<u32, String> = Mailbox::memory("requests").unwrap();
    let requests = requests.with_resolver(shared);
    for sample in 0..5 {
        let options = SendOptions::new().with_reply_to("eval-1".to_owned());
        requests.send_with(sample, options).await.unwrap();
    }
    for _ in 0..5 {
        let message = requests.receive().await.unwrap().remove(0);
        message.reply(format!("{}!", message.body().unwrap())).await.unwrap();
        message.acknowledge().await.unwrap();
    }
    let replies = resolver.resolve("eval-1").await.unwrap();
    assert_eq!(replies.approximate_count().await.unwrap(), 5);
    assert_eq!(resolver.stats().creations, 1);
}

#[test]
fn resolvers_and_factories_are_plain_shareable_values() {
    fn shareable<T: Send + Sync + std::fmt::Debug + 'static>() {}
    shareable::<RegistryResolver<u32>>();
    shareable::<CompositeResolver<u32>>();
    shareable::<LruResolver<u32>>();
    shareable::<MemoryFactory<u32>>();
    shareable::<UrlFactory<u32>>();
    shareable::<AllowList>();
    shareable::<Arc<dyn Resolver<u32>>>();
    shareable::<Arc<dyn Factory<u32>>>();
}
