//! Mailboxes on Redis as subjects: real servers, started at the first case and ended with the
//! process. Every world has a prefix of its own, so that cases share servers and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::testing::ManualClock;
use mailbox::{Abilities, Result};
use mailbox_redis_servers::shared;

use crate::subject::{Home, Opened, Restart, Setup, Subject};
use crate::world::Time;

/// Mailboxes on one Redis server.
#[must_use]
pub fn redis() -> Subject {
    on_servers("redis", || format!("redis://{}", shared::standalone().address()))
}

/// The same on a cluster of six, found out from one of its nodes.
#[must_use]
pub fn redis_cluster() -> Subject {
    on_servers("redis-cluster", || {
        let nodes = shared::cluster().nodes();
        format!("redis://{}", nodes.last().expect("it has six nodes").address())
    })
}

/// The same on whichever server three sentinels say.
#[must_use]
pub fn redis_sentinel() -> Subject {
    on_servers("redis-sentinel", || {
        let sentinels = shared::sentinels();
        format!("redis+sentinel://{}/{}", sentinels.seeds(), sentinels.master_name())
    })
}

fn on_servers(name: &'static str, url: fn() -> String) -> Subject {
    Subject::new(name, abilities(), move |setup| async move {
        opened(url(), config(&setup), ManualClock::new()).await
    })
    .with(|info| (info.virtual_time, info.configurable, info.restart) = (true, true, true))
}

pub(crate) fn abilities() -> Abilities {
    RedisConfig::default().abilities()
}

pub(crate) fn config(setup: &Setup) -> RedisConfig {
    static WORLDS: AtomicU64 = AtomicU64::new(0);
    let world = WORLDS.fetch_add(1, Ordering::Relaxed);
    let mut config = RedisConfig::default().with_prefix(format!("w{world}:"));
    config.max_mailboxes = setup.max_mailboxes.unwrap_or(config.max_mailboxes);
    config.max_waiters = setup.max_waiters.unwrap_or(config.max_waiters);
    config.max_payload = setup.max_payload.unwrap_or(config.max_payload);
    config
}

fn opened(
    url: String,
    config: RedisConfig,
    clock: ManualClock,
) -> BoxFuture<'static, Result<Opened>> {
    Box::pin(async move {
        let with_clock = config.clone().with_clock(clock.clock());
        let backend = RedisBackend::open_with(&url, with_clock).await?;
        let time = clock.clone();
        let restart = Restart(Box::new(move || opened(url, config, time)));
        let (home, time) = (Home::Backend(backend), Time::Virtual(clock));
        Ok(Opened { home, time, restart: Some(restart), keep: None })
    })
}
