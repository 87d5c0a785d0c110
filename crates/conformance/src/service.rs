//! Mailboxes through a service on this machine, by every protocol it has: every call is a request,
//! and whatever keeps the messages behind it takes its time from the case.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::backends::remote::{RemoteBackend, RemoteConfig};
use mailbox::testing::ManualClock;
use mailbox::{
    Abilities, Backend, Delivery, Error, ErrorKind, Figure, Name, Outgoing, Peek, Policy,
    ReceiveOptions, Record, Result, Selection, Sent, Settlement, Stats,
};
use mailbox_redis_servers::shared;
use mailbox_server::auth::Vault;
use mailbox_server::config::Config;
use mailbox_server::{Auth, Listener, Service};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::journal::Reopening;
use crate::redis;
use crate::subject::{Home, Opened, Restart, Setup, Subject};
use crate::subjects::{in_memory, journal_abilities, journal_config, memory_abilities, temporary};
use crate::world::Time;

/// What times on the wire are counted in.
const MILLISECOND: Duration = Duration::from_millis(1);

/// How a service is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Http,
    Grpc,
    Oap,
}

/// Through a service that keeps messages in memory, over HTTP.
#[must_use]
pub fn http_memory() -> Subject {
    over_memory("http-memory", Way::Http)
}

/// The same over gRPC.
#[must_use]
pub fn grpc_memory() -> Subject {
    over_memory("grpc-memory", Way::Grpc)
}

/// The same over OAP/1.
#[must_use]
pub fn oap_memory() -> Subject {
    over_memory("oap-memory", Way::Oap)
}

/// Through a service that keeps messages in a journal, over HTTP.
#[must_use]
pub fn http_journal() -> Subject {
    over_journal("http-journal", Way::Http)
}

/// The same over gRPC.
#[must_use]
pub fn grpc_journal() -> Subject {
    over_journal("grpc-journal", Way::Grpc)
}

/// The same over OAP/1.
#[must_use]
pub fn oap_journal() -> Subject {
    over_journal("oap-journal", Way::Oap)
}

fn over_memory(name: &'static str, way: Way) -> Subject {
    Subject::new(name, memory_abilities(), move |setup: Setup| async move {
        let clock = ManualClock::new();
        let store = in_memory(setup.clone(), &clock)?;
        let served = Served::start(store, &setup, way).await?;
        Ok(served.opened(clock, None))
    })
    .with(|info| (info.virtual_time, info.configurable, info.finest) = (true, true, MILLISECOND))
}

fn over_journal(name: &'static str, way: Way) -> Subject {
    Subject::new(name, journal_abilities(), move |setup: Setup| async move {
        let clock = ManualClock::new();
        let config = journal_config(setup.clone(), &clock);
        let journal = Arc::new(Reopening::in_directory(temporary()?, config).await?);
        opened_journal(journal, setup, clock, way).await
    })
    .with(|info| (info.virtual_time, info.configurable, info.restart) = (true, true, true))
    .with(|info| info.finest = MILLISECOND)
}

/// Through a service that keeps messages on one Redis server.
#[must_use]
pub fn http_redis() -> Subject {
    Subject::new("http-redis", redis::abilities(), async |setup| {
        let url = format!("redis://{}", shared::standalone().address());
        opened_redis(url, redis::config(&setup), setup, ManualClock::new()).await
    })
    .with(|info| (info.virtual_time, info.configurable, info.restart) = (true, true, true))
    .with(|info| info.finest = MILLISECOND)
}

/// Through two services that share a cluster: what one has sent the other hands out.
#[must_use]
pub fn http_two() -> Subject {
    Subject::new("http-two", redis::abilities(), async |setup| {
        let url = format!("redis+cluster://{}", cluster_seeds());
        opened_two(url, redis::config(&setup), setup, ManualClock::new()).await
    })
    .with(|info| (info.virtual_time, info.configurable, info.restart) = (true, true, true))
    .with(|info| info.finest = MILLISECOND)
    .with(|info| (info.alone, info.tells_removal) = (false, false))
}

fn cluster_seeds() -> String {
    let nodes = shared::cluster().nodes();
    let addresses: Vec<String> = nodes.iter().take(3).map(|it| it.address().to_string()).collect();
    addresses.join(",")
}

/// A service that runs until this is dropped.
#[derive(Debug)]
struct Served {
    stop: CancellationToken,
    remote: Arc<RemoteBackend>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Served {
    async fn start(store: Arc<dyn Backend>, setup: &Setup, way: Way) -> Result<Self> {
        let mut config = Config::default();
        // Cases set the library's own rules, which have no bounds on age.
        config.allow_unbounded_retention = true;
        // And hold messages for less time than a busy network would allow for.
        config.visibility_min = Duration::ZERO;
        config.limits.body = setup.max_payload.unwrap_or(1 << 20) * 2 + (8 << 20);
        let auth = Auth::open(Vault::memory(), config.capabilities.clone())?;
        let capability = auth.operator()?.encode();
        let unbound =
            |error| Error::new(ErrorKind::Internal, "no port to listen on").with_source(error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        let (service, stop) = (Service::new(store, auth, config), CancellationToken::new());
        let listener = Listener::tcp(listener);
        let (listener, url) = match way {
            Way::Http => (listener, format!("http://{address}")),
            Way::Grpc => (listener, format!("grpc://{address}")),
            Way::Oap => (listener.for_oap(), format!("oap://{address}")),
        };
        let listeners = vec![listener];
        tokio::spawn(mailbox_server::run(listeners, service, stop.clone()));
        let config = RemoteConfig::default().with_capability(capability);
        let remote = RemoteBackend::open_with(&url, config).await?;
        Ok(Self { stop, remote })
    }

    fn opened(self, clock: ManualClock, restart: Option<Restart>) -> Opened {
        let home = Home::Backend(Arc::<RemoteBackend>::clone(&self.remote));
        Opened { home, time: Time::Virtual(clock), restart, keep: Some(Arc::new(self)) }
    }
}

fn opened_journal(
    journal: Arc<Reopening>,
    setup: Setup,
    clock: ManualClock,
    way: Way,
) -> BoxFuture<'static, Result<Opened>> {
    Box::pin(async move {
        let store = Arc::<Reopening>::clone(&journal);
        let served = Served::start(store, &setup, way).await?;
        let time = clock.clone();
        let restart = Restart(Box::new(move || {
            Box::pin(async move {
                journal.reopen().await?;
                opened_journal(journal, setup, time, way).await
            })
        }));
        Ok(served.opened(clock, Some(restart)))
    })
}

fn opened_redis(
    url: String,
    config: RedisConfig,
    setup: Setup,
    clock: ManualClock,
) -> BoxFuture<'static, Result<Opened>> {
    Box::pin(async move {
        let store = RedisBackend::open_with(&url, config.clone().with_clock(clock.clock())).await?;
        let served = Served::start(store, &setup, Way::Http).await?;
        let time = clock.clone();
        let restart = Restart(Box::new(move || opened_redis(url, config, setup, time)));
        Ok(served.opened(clock, Some(restart)))
    })
}

fn opened_two(
    url: String,
    config: RedisConfig,
    setup: Setup,
    clock: ManualClock,
) -> BoxFuture<'static, Result<Opened>> {
    Box::pin(async move {
        let with_clock = config.clone().with_clock(clock.clock());
        let one = RedisBackend::open_with(&url, with_clock.clone()).await?;
        let other = RedisBackend::open_with(&url, with_clock).await?;
        let (one, other) = (
            Served::start(one, &setup, Way::Http).await?,
            Served::start(other, &setup, Way::Http).await?,
        );
        let both = [one, other];
        let two = Two { both, turn: AtomicUsize::new(0) };
        let time = clock.clone();
        let restart = Restart(Box::new(move || opened_two(url, config, setup, time)));
        let home = Home::Backend(Arc::new(two));
        Ok(Opened { home, time: Time::Virtual(clock), restart: Some(restart), keep: None })
    })
}

/// Two services, called in turn.
#[derive(Debug)]
struct Two {
    both: [Served; 2],
    turn: AtomicUsize,
}

impl Two {
    fn next(&self) -> &RemoteBackend {
        &self.both[self.turn.fetch_add(1, Ordering::Relaxed) % 2].remote
    }
}

#[async_trait]
impl Backend for Two {
    fn abilities(&self) -> &Abilities {
        self.both[0].remote.abilities()
    }

    fn address(&self, mailbox: &Name) -> String {
        self.both[0].remote.address(mailbox)
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.next().send(mailbox, batch).await
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        self.next().receive(mailbox, options).await
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.next().settle(mailbox, batch).await
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        self.next().peek(mailbox, request).await
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.next().purge(mailbox).await
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.next().redrive(mailbox, which).await
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.next().delete_dead(mailbox, which).await
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.next().configure(mailbox, policy).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.next().policy(mailbox).await
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.next().list(after, limit).await
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.next().remove(mailbox).await
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        let [one, other] = &self.both;
        let mut stats = one.remote.stats(mailbox).await?;
        // Those who wait are counted where they wait.
        stats.waiters += other.remote.stats(mailbox).await?.waiters;
        Ok(stats)
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        for served in &self.both {
            served.remote.close().await?;
        }
        Ok(())
    }
}
