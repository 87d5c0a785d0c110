//! Mailboxes on Redis or Valkey: one server, a cluster, or whichever server the sentinels say.
//! Other programs may use the same mailboxes, also ones that know the shared part of the layout
//! only (`docs/redis-format.md`).
//!
//! * **Model**: every operation is one script on the keys of one mailbox, which share a hash tag;
//!   nobody sees half of it. A message is in the list `pending`, or in `invisible` by when it comes
//!   back, or dead.
//! * **Durability**: as [`RedisConfig::durability`] says, and no more than the servers are set up
//!   for: without replicas that confirm, a failover loses what was not copied yet.
//! * **Ordering**: in order of becoming receivable (D7); a failover may disturb it.
//! * **Clock**: the server's `TIME` (V6).
//! * **Limits**: see [`RedisConfig`]. In a cluster a mailbox is on one master, whole.
//! * **Cancel safety**: what a dropped receive has taken is given back; a dropped send or settle
//!   may have taken effect.
//! * **Operations notes**: a call goes on for [`RedisConfig::patience`] while servers fail over. A
//!   send or receive whose answer was lost is tried again and finds what it did; a settle is not:
//!   it gives `Connection`, and the message may come again. While a slot of a cluster moves to
//!   another master its mailboxes stand still.

mod answers;
mod checks;
mod client;
mod config;
mod factory;
mod keys;
mod letter;
mod link;
mod manage;
mod pace;
mod planted;
mod receive;
mod replicas;
mod room;
mod rules;
mod scripts;
mod send;
mod sentinels;
mod settle;
mod survey;
mod target;
mod topology;
mod trouble;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mailbox_core::Policy;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::abilities::Abilities;
use crate::address::Address;
use crate::backend::{
    Backend, Delivery, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
use crate::error::{Error, ErrorKind, Result};
use crate::figure::Figure;
use crate::name::Name;
use crate::open::yes_or_no;
use crate::options::ReceiveOptions;
use crate::timestamp::Timestamp;

use client::{Call, Client};
use keys::Keys;
use link::Confirm;
use manage::Made;
use pace::Pace;
use scripts::Argument;
use settle::Settling;
use target::Target;
use trouble::Trouble;
use watch::Watch;

use config::OPTIONS;
pub use config::{RedisConfig, SentinelLogin};
pub use factory::RedisMailboxFactory;
#[cfg(feature = "planted")]
pub use planted::Bug;
pub use planted::Planted;

/// How long closing waits for what dropped receives give back.
const GOING_BACK: Duration = Duration::from_secs(1);
/// Most receives that ask a server at the same time; others wait for their turn.
const LOOKS: u32 = 1 << 16;

/// Most mailboxes whose keys are remembered.
const KNOWN_KEYS: usize = 1024;

/// Keeps mailboxes on Redis. One database and one prefix are one namespace.
pub struct RedisBackend {
    inner: Arc<Inner>,
    abilities: Abilities,
}

/// What the tasks of a backend share.
struct Inner {
    client: Arc<Client>,
    watch: Arc<Watch>,
    pace: Pace,
    /// What a send waits for.
    confirm: Confirm,
    /// The rules of mailboxes without, as scripts take them.
    rules: String,
    made: Mutex<Made>,
    /// Keys of mailboxes that were used before.
    keys: Mutex<HashMap<Name, Keys>>,
    warnings: Vec<String>,
    /// No more calls are taken; those that are under way end.
    is_closing: AtomicBool,
    /// Receives that are asking a server right now: whoever has dropped one gets nothing of it.
    looks: Semaphore,
}

impl RedisBackend {
    /// Uses the servers at a URL without a mailbox: `redis://host:port`, `rediss://host`,
    /// `redis+cluster://a,b,c`, `redis+sentinel://a,b/master`; each may have `user:password@`
    /// before its servers. A server that is part of a cluster leads to that cluster.
    ///
    /// # Errors
    /// As [`RedisBackend::open_with`].
    ///
    /// # Cancel safety
    /// Safe: a connection that was being made is dropped.
    pub async fn open(url: &str) -> Result<Arc<Self>> {
        Self::open_with(url, RedisConfig::default()).await
    }

    /// The same, with settings.
    ///
    /// # Errors
    /// `InvalidParameter` if URL or settings make no sense; `Unauthorized` and `Forbidden` if a
    /// server says so; `Unsupported` if it cannot keep the durability that is asked for;
    /// `Connection` if none can be reached, or it is a read-only replica, or no Redis.
    ///
    /// # Cancel safety
    /// Safe: a connection that was being made is dropped.
    pub async fn open_with(url: &str, config: RedisConfig) -> Result<Arc<Self>> {
        let Some((scheme, place)) = url.split_once("://") else {
            let message = "url of a Redis has no scheme: write redis://host:port";
            return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
        };
        Self::open_at(scheme, place, false, config).await
    }

    /// The servers, and the settings, that an address of one of their mailboxes names. Behind the
    /// `?`: `db`, `prefix`, `durability`, `ack`, `ttl` (seconds), `replicas`, `patience` (seconds),
    /// `ca`, `tls`, `events`, `sentinel_user`, `sentinel_password`; as in [`RedisConfig`].
    ///
    /// # Errors
    /// As [`RedisBackend::open_with`].
    ///
    /// # Cancel safety
    /// Safe: a connection that was being made is dropped.
    pub async fn at(address: &Address) -> Result<Arc<Self>> {
        Self::at_with(address, None).await
    }

    /// The same; mailboxes that were not configured themselves have these rules.
    pub(crate) async fn at_with(address: &Address, rules: Option<Policy>) -> Result<Arc<Self>> {
        address.allow_options(&OPTIONS)?;
        let tls = yes_or_no(address, "tls", false)?;
        let mut config = RedisConfig::of(address)?;
        config.policy = rules.unwrap_or(config.policy);
        Self::open_at(address.scheme(), address.place(), tls, config).await
    }

    async fn open_at(
        scheme: &str,
        place: &str,
        tls: bool,
        config: RedisConfig,
    ) -> Result<Arc<Self>> {
        config.check()?;
        let target = Target::read(scheme, place, tls)?;
        let abilities = config.abilities();
        let config = Arc::new(config);
        let client = Client::new(target, Arc::clone(&config));
        client.look_around().await.map_err(Trouble::into_error)?;
        let (confirm, warnings) = checks::examine(&client).await?;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let pace = Pace { clock: config.clock.clone() };
        let watch =
            Watch::new(pace.clone(), config.prefix.clone(), config.max_waiters, !config.events);
        let inner = Inner {
            client: Arc::new(client),
            watch: Arc::new(watch),
            pace,
            confirm,
            rules: rules::line(&config.policy),
            made: Mutex::default(),
            keys: Mutex::default(),
            warnings,
            is_closing: AtomicBool::new(false),
            looks: Semaphore::new(LOOKS as usize),
        };
        Ok(Arc::new(Self { inner: Arc::new(inner), abilities }))
    }

    /// What an operator should know about these servers: where messages could be lost in spite of
    /// everything, found when this was opened.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    fn check_batch(&self, mailbox: &Name, size: usize) -> Result<()> {
        let checked = self.abilities.check_batch("batch", size);
        checked.map_err(|error| error.with_mailbox(mailbox))
    }

    fn check_open(&self, mailbox: &Name) -> Result<()> {
        match self.inner.is_closing.load(Ordering::Acquire) {
            true => Err(Error::closed(mailbox)),
            false => Ok(()),
        }
    }
}

impl Inner {
    fn config(&self) -> &RedisConfig {
        &self.client.config
    }

    fn keys(&self, name: &Name) -> Keys {
        let mut known = self.keys.lock();
        if let Some(keys) = known.get(name) {
            return keys.clone();
        }
        if known.len() >= KNOWN_KEYS {
            known.clear();
        }
        let keys = Keys::of(&self.config().prefix, name);
        known.insert(name.clone(), keys.clone());
        keys
    }

    fn wall(&self) -> Timestamp {
        self.pace.clock.wall_at(self.pace.clock.now())
    }

    /// What every script is told first.
    fn preamble(&self) -> Vec<Argument> {
        vec![
            self.pace.present().into(),
            self.config().ttl_seconds().to_string().into(),
            self.rules.as_str().into(),
        ]
    }

    /// A call that changes nothing that has to be safe.
    fn reading(&self, keys: &Keys) -> Call {
        let patience: Duration = self.config().patience;
        Call { slot: keys.slot, confirm: Confirm::Nothing, is_repeatable: true, patience }
    }

    /// A call that is answered when it is safe.
    fn writing(&self, keys: &Keys) -> Call {
        Call { confirm: self.confirm, ..self.reading(keys) }
    }
}

impl Drop for RedisBackend {
    fn drop(&mut self) {
        self.inner.client.closed.cancel();
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("target", &self.inner.client.target)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn address(&self, mailbox: &Name) -> String {
        self.inner.client.target.address(mailbox.as_str(), self.inner.config())
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.check_batch(mailbox, batch.len())?;
        self.check_open(mailbox)?;
        let check = |message: Outgoing| {
            let checked = self.abilities.check_send(&message, message.payload.len());
            checked.map(|()| message).map_err(|error| error.with_mailbox(mailbox))
        };
        let batch: Vec<Result<Outgoing>> = batch.into_iter().map(check).collect();
        self.inner.send(mailbox, batch).await
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        self.abilities.check_receive(options).map_err(|error| error.with_mailbox(mailbox))?;
        self.check_open(mailbox)?;
        receive::receive(&self.inner, mailbox, options).await
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.check_batch(mailbox, batch.len())?;
        self.check_open(mailbox)?;
        let mut good = Vec::with_capacity(batch.len());
        let checked: Vec<Result<()>> = batch
            .into_iter()
            .map(|settlement| {
                let checked = self.abilities.check_verdict(&settlement.verdict);
                checked.map_err(|error| error.with_mailbox(mailbox))?;
                good.push(Settling::from(settlement));
                Ok(())
            })
            .collect();
        let mut settled = self.inner.settle(mailbox, good).await?.into_iter();
        let missing = || answers::unexpected("fewer verdicts").with_mailbox(mailbox);
        let result =
            |one: Result<()>| one.and_then(|()| settled.next().unwrap_or_else(|| Err(missing())));
        Ok(checked.into_iter().map(result).collect())
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        super::memory::check_peek(&self.abilities, request)
            .map_err(|error| error.with_mailbox(mailbox))?;
        self.check_open(mailbox)?;
        self.inner.peek(mailbox, request).await
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        self.check_open(mailbox)?;
        self.inner.stats(mailbox).await
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.check_open(mailbox)?;
        self.inner.purge(mailbox).await
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.check_open(mailbox)?;
        self.inner.dead(mailbox, "redrive", which).await
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.check_open(mailbox)?;
        self.inner.dead(mailbox, "delete", which).await
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.abilities.check_policy(&policy).map_err(|error| error.with_mailbox(mailbox))?;
        self.check_open(mailbox)?;
        self.inner.configure(mailbox, &policy).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.check_open(mailbox)?;
        self.inner.policy(mailbox).await
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.inner.list(after, limit).await
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.check_open(mailbox)?;
        self.inner.remove(mailbox).await
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        self.inner.is_closing.store(true, Ordering::Release);
        self.inner.watch.close();
        // What a dropped receive took is on its way back: a moment, or its deadline brings it back.
        let _ = tokio::time::timeout(GOING_BACK, self.inner.looks.acquire_many(LOOKS)).await;
        self.inner.client.closed.cancel();
        Ok(())
    }
}
