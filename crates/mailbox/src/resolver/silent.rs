//! A backend that never answers, and what a resolver does about its mailboxes.

use std::future::pending;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mailbox_core::Policy;

use crate::abilities::Abilities;
use crate::backend::{
    Backend, Delivery, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
use crate::error::Result;
use crate::figure::Figure;
use crate::mailbox::Mailbox;
use crate::name::Name;
use crate::options::ReceiveOptions;
use crate::resolver::{Factory, LruConfig, LruResolver, Resolver};
use crate::testing::ManualClock;

#[derive(Debug)]
struct Silent {
    abilities: Abilities,
    closing: Arc<AtomicUsize>,
}

#[async_trait]
impl Backend for Silent {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn address(&self, mailbox: &Name) -> String {
        mailbox.to_string()
    }

    async fn send(&self, _: &Name, _: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        pending().await
    }

    async fn receive(&self, _: &Name, _: &ReceiveOptions) -> Result<Vec<Delivery>> {
        pending().await
    }

    async fn settle(&self, _: &Name, _: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        pending().await
    }

    async fn peek(&self, _: &Name, _: &Peek) -> Result<Vec<Record>> {
        pending().await
    }

    async fn stats(&self, _: &Name) -> Result<Stats> {
        pending().await
    }

    async fn purge(&self, _: &Name) -> Result<u64> {
        pending().await
    }

    async fn redrive(&self, _: &Name, _: &Selection) -> Result<u64> {
        pending().await
    }

    async fn delete_dead(&self, _: &Name, _: &Selection) -> Result<u64> {
        pending().await
    }

    async fn configure(&self, _: &Name, _: Policy) -> Result<()> {
        pending().await
    }

    async fn policy(&self, _: &Name) -> Result<Policy> {
        pending().await
    }

    async fn list(&self, _: Option<&Name>, _: usize) -> Result<Vec<Name>> {
        pending().await
    }

    async fn remove(&self, _: &Name) -> Result<bool> {
        pending().await
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        self.closing.fetch_add(1, Ordering::Relaxed);
        pending().await
    }
}

/// Makes mailboxes that have a silent backend for themselves.
#[derive(Debug, Default)]
struct SilentFactory {
    closing: Arc<AtomicUsize>,
}

#[async_trait]
impl Factory<u32> for SilentFactory {
    async fn create(&self, identifier: &str) -> Result<Mailbox<u32>> {
        let abilities = Abilities::full("silent");
        let backend = Arc::new(Silent { abilities, closing: Arc::clone(&self.closing) });
        Ok(Mailbox::new(backend, Name::parse(identifier)?).owning_its_backend())
    }
}

fn resolver(clock: &ManualClock, capacity: usize) -> (LruResolver<u32>, Arc<AtomicUsize>) {
    let factory = SilentFactory::default();
    let closing = Arc::clone(&factory.closing);
    let config = LruConfig::default()
        .with_clock(clock.clock())
        .with_ttl(Duration::from_secs(600))
        .with_health_timeout(Duration::from_secs(3))
        .with_capacity(NonZeroUsize::new(capacity).unwrap());
    (LruResolver::with_config(factory, config), closing)
}

/// Moves the clock on by a second whenever `future` has nothing to do; gives the seconds it took.
async fn seconds<F: Future>(clock: &ManualClock, future: F) -> (F::Output, u32) {
    let mut future = std::pin::pin!(future);
    let mut seconds = 0;
    loop {
        tokio::select! {
            biased;
            output = &mut future => return (output, seconds),
            () = tokio::task::yield_now() => {
                clock.advance(Duration::from_secs(1));
                seconds += 1;
            }
        }
    }
}

#[tokio::test]
async fn mailboxes_that_do_not_answer_are_dead_after_the_timeout_side_by_side() {
    let clock = ManualClock::new();
    let (resolver, closing) = resolver(&clock, 100);
    for number in 0..60 {
        resolver.resolve(&number.to_string()).await.unwrap();
    }
    let (dead, seconds) = seconds(&clock, resolver.check_health()).await;
    assert_eq!(dead, 60);
    // Three seconds for the answers, one for closing.
    assert_eq!(seconds, 4);
    assert_eq!((resolver.stats().cached, resolver.stats().evictions), (0, 60));
    assert_eq!(closing.load(Ordering::Relaxed), 60);
}

#[tokio::test]
async fn a_resolution_waits_only_so_long_for_an_evicted_mailbox_to_close() {
    let clock = ManualClock::new();
    let (resolver, closing) = resolver(&clock, 1);
    resolver.resolve("a").await.unwrap();
    let (resolved, seconds) = seconds(&clock, resolver.resolve("b")).await;
    assert_eq!(resolved.unwrap().name().as_str(), "b");
    assert_eq!((seconds, closing.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test]
async fn a_resolution_that_is_dropped_while_closing_leaves_its_mailbox_in_the_cache() {
    let clock = ManualClock::new();
    let (resolver, _) = resolver(&clock, 1);
    resolver.resolve("a").await.unwrap();
    tokio::select! {
        biased;
        _ = resolver.resolve("b") => panic!("closing never ends"),
        () = std::future::ready(()) => {}
    }
    resolver.resolve("b").await.unwrap();
    assert_eq!((resolver.stats().hits, resolver.stats().creations), (1, 2));
}

#[tokio::test]
async fn a_health_check_that_is_dropped_while_closing_leaves_the_others_to_the_next_one() {
    let clock = ManualClock::new();
    let (resolver, closing) = resolver(&clock, 100);
    for number in 0..100 {
        resolver.resolve(&number.to_string()).await.unwrap();
    }
    clock.advance(Duration::from_secs(600));
    tokio::select! {
        biased;
        _ = resolver.check_health() => panic!("closing never ends"),
        () = std::future::ready(()) => {}
    }
    assert_eq!((closing.load(Ordering::Relaxed), resolver.stats().cached), (64, 36));
    let (dead, seconds) = seconds(&clock, resolver.check_health()).await;
    assert_eq!((dead, seconds, closing.load(Ordering::Relaxed)), (0, 1, 100));
}
