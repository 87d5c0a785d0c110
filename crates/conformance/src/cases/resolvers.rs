//! R3 and R4: from the address in a message to a mailbox, and only where one may go.

use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use mailbox::resolver::{
    AllowList, CompositeResolver, Factory, LruConfig, LruResolver, MemoryFactory, RegistryResolver,
    UrlFactory,
};
use mailbox::testing::{FakeMailbox, ManualClock};
use mailbox::{ErrorKind, Mailbox, Resolver, Result, SendOptions};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{only, refused, take_one};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("R3", a_registry_resolves_what_it_was_made_with),
    case!("R3", a_composite_looks_in_registry_then_cache_then_factory, once),
    case!("R3", a_bounded_resolver_closes_what_it_evicts, once),
    case!("R3", mailboxes_can_be_evicted_by_name_and_by_age, once),
    case!("R3", dead_mailboxes_are_found_and_replaced, once),
    case!("R3", what_leads_nowhere_is_named_or_none),
    case!("R3", those_who_ask_together_share_one_creation, once),
    case!("R3", a_mailbox_replies_through_its_resolver),
    case!("R4", an_address_is_opened_only_if_it_is_allowed, once),
    case!("R4", a_factory_leads_to_no_other_namespace, once),
];

type Replies = Mailbox<Probe>;

async fn a_registry_resolves_what_it_was_made_with(world: World) -> Outcome {
    let replies: Replies = world.typed("replies")?;
    let resolver = RegistryResolver::new([("somebody", replies.clone())]);
    resolver.resolve("somebody").await?.send(Probe::new(1)).await?;
    assert_eq!(only(replies.receive().await?).body()?.number, 1);
    // Its key, not the name of the mailbox.
    let error = refused(resolver.resolve("replies").await, ErrorKind::MailboxResolution);
    assert_eq!(error.identifier(), Some("replies"));
    Ok(())
}

async fn a_composite_looks_in_registry_then_cache_then_factory(_: World) -> Outcome {
    let known: Replies = Mailbox::memory("known")?;
    let resolver = CompositeResolver::new(RegistryResolver::new([("known", known.clone())]))
        .with_factory(MemoryFactory::new());
    let counts = || {
        let stats = resolver.stats();
        (stats.hits, stats.misses, stats.creations, stats.evictions)
    };
    resolver.resolve("known").await?.send(Probe::new(1)).await?;
    assert_eq!(known.approximate_count().await?, 1);
    assert_eq!(counts(), (1, 0, 0, 0));
    let made: Replies = resolver.resolve("new").await?;
    assert_eq!(counts(), (1, 1, 1, 0));
    resolver.resolve("new").await?.send(Probe::new(2)).await?;
    assert_eq!(counts(), (2, 1, 1, 0));
    assert_eq!(made.approximate_count().await?, 1, "it was the same");
    assert!(resolver.evict("new").await && !resolver.evict("new").await);
    assert!(!resolver.evict("known").await, "what is registered stays");
    assert_eq!(counts(), (2, 1, 1, 1));
    Ok(())
}

fn lru(capacity: usize, clock: &ManualClock) -> LruConfig {
    let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
    LruConfig::default().with_capacity(capacity).with_clock(clock.clock())
}

async fn a_bounded_resolver_closes_what_it_evicts(_: World) -> Outcome {
    let resolver: LruResolver<Probe> =
        LruResolver::with_config(Doubles::default(), lru(2, &ManualClock::new()));
    for name in ["a", "b"] {
        resolver.resolve(name).await?;
    }
    resolver.resolve("a").await?;
    // While somebody has a handle it must stay usable.
    let held = resolver.resolve("b").await?;
    resolver.resolve("a").await?;
    resolver.resolve("c").await?;
    let stats = resolver.stats();
    assert_eq!((stats.cached, stats.evictions, stats.creations), (2, 1, 3));
    held.send(Probe::new(1)).await?;
    drop(held);
    resolver.resolve("d").await?;
    resolver.check_health().await;
    let again = resolver.resolve("b").await?;
    assert_eq!(again.approximate_count().await?, 0, "a new one: the old one was closed");
    assert_eq!(resolver.stats().cached, 2);
    Ok(())
}

async fn mailboxes_can_be_evicted_by_name_and_by_age(_: World) -> Outcome {
    let clock = ManualClock::new();
    let config = lru(9, &clock).with_ttl(std::time::Duration::from_secs(60));
    let resolver: LruResolver<Probe> = LruResolver::with_config(MemoryFactory::new(), config);
    resolver.resolve("a").await?;
    assert!(resolver.evict("a").await);
    resolver.resolve("a").await?;
    clock.advance(std::time::Duration::from_secs(59));
    resolver.resolve("a").await?;
    assert_eq!(resolver.stats().creations, 2);
    clock.advance(std::time::Duration::from_secs(1));
    resolver.resolve("a").await?;
    let stats = resolver.stats();
    assert_eq!((stats.creations, stats.evictions, stats.hits, stats.misses), (3, 2, 1, 3));
    Ok(())
}

/// Makes doubles, each a backend of its own, and remembers them.
#[derive(Debug, Default, Clone)]
struct Doubles(Arc<parking_lot::Mutex<Vec<FakeMailbox<Probe>>>>);

#[async_trait]
impl Factory<Probe> for Doubles {
    async fn create(&self, identifier: &str) -> Result<Replies> {
        tokio::task::yield_now().await;
        let made = FakeMailbox::new(identifier)?;
        self.0.lock().push(made.clone());
        Ok(made.mailbox().clone())
    }
}

async fn dead_mailboxes_are_found_and_replaced(_: World) -> Outcome {
    let doubles = Doubles::default();
    let resolver = LruResolver::new(doubles.clone());
    for name in ["a", "b"] {
        resolver.resolve(name).await?;
    }
    assert_eq!(resolver.check_health().await, 0);
    doubles.0.lock()[0].set_connection_error("gone");
    assert_eq!(resolver.check_health().await, 1);
    assert_eq!(resolver.stats().cached, 1);
    resolver.resolve("a").await?.send(Probe::new(1)).await?;
    // One that is closed is never given out.
    resolver.resolve("b").await?.close().await?;
    resolver.resolve("b").await?.send(Probe::new(1)).await?;
    assert_eq!(resolver.stats().creations, 4);
    Ok(())
}

async fn what_leads_nowhere_is_named_or_none(world: World) -> Outcome {
    let replies: Replies = world.typed("replies")?;
    let resolver = RegistryResolver::new([("known", replies)]);
    assert!(resolver.resolve_optional("known").await?.is_some());
    for nowhere in ["unknown", "", "gopher://example.org/x"] {
        let error = refused(resolver.resolve(nowhere).await, ErrorKind::MailboxResolution);
        assert_eq!(error.identifier(), Some(nowhere));
        assert!(resolver.resolve_optional(nowhere).await?.is_none());
    }
    Ok(())
}

async fn those_who_ask_together_share_one_creation(_: World) -> Outcome {
    let (doubles, mut asking) = (Doubles::default(), Vec::new());
    let resolver = Arc::new(LruResolver::new(doubles.clone()));
    for _ in 0..50 {
        let resolver = Arc::clone(&resolver);
        asking.push(tokio::spawn(async move { resolver.resolve("a").await }));
    }
    for ask in asking {
        ask.await??.send(Probe::new(0)).await?;
    }
    assert_eq!((doubles.0.lock().len(), resolver.stats().creations), (1, 1));
    assert_eq!(resolver.resolve("a").await?.approximate_count().await?, 50);
    Ok(())
}

async fn a_mailbox_replies_through_its_resolver(world: World) -> Outcome {
    let replies: Replies = world.typed("replies")?;
    let resolver = Arc::new(RegistryResolver::new([("desk 7", replies.clone())]));
    let jobs = world.mailbox("jobs")?.with_resolver(resolver);
    jobs.send_with(Probe::new(1), SendOptions::new().with_reply_to("desk 7")).await?;
    let message = take_one(&jobs, world.units(60)).await?;
    message.reply(Probe::new(2)).await?;
    message.acknowledge().await?;
    assert_eq!(only(replies.receive().await?).body()?.number, 2);
    jobs.send_with(Probe::new(1), SendOptions::new().with_reply_to("desk 8")).await?;
    let message = take_one(&jobs, world.units(60)).await?;
    let error = refused(message.reply(Probe::new(2)).await, ErrorKind::MailboxResolution);
    assert_eq!(error.identifier(), Some("desk 8"));
    Ok(())
}

async fn an_address_is_opened_only_if_it_is_allowed(_: World) -> Outcome {
    let own: Replies = Mailbox::memory("replies")?;
    let place = own.identifier().to_owned();
    let nothing = LruResolver::<Probe>::new(UrlFactory::new(AllowList::new()));
    refused(nothing.resolve(&place).await, ErrorKind::MailboxResolution);
    let memory = AllowList::new().allow_scheme("memory")?;
    let resolver = LruResolver::<Probe>::new(UrlFactory::new(memory));
    resolver.resolve(&place).await?.send(Probe::new(1)).await?;
    assert_eq!(own.approximate_count().await?, 1);
    for strange in [
        "redis://127.0.0.1/replies",
        "http://169.254.169.254/latest",
        "dir:///etc/replies",
        "memory://gone/replies",
        "replies",
        "memory://",
        "",
    ] {
        let error = refused(resolver.resolve(strange).await, ErrorKind::MailboxResolution);
        assert!(error.identifier().is_some(), "{strange:?}");
    }
    Ok(())
}

async fn a_factory_leads_to_no_other_namespace(_: World) -> Outcome {
    let elsewhere: Replies = Mailbox::memory("replies")?;
    let resolver = LruResolver::new(MemoryFactory::new());
    resolver.resolve("replies").await?.send(Probe::new(1)).await?;
    assert_eq!(elsewhere.approximate_count().await?, 0);
    let followed = resolver.resolve(elsewhere.identifier()).await;
    refused(followed, ErrorKind::MailboxResolution);
    Ok(())
}
