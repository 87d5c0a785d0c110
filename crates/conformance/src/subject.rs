//! What is examined: how to open a fresh namespace of it, and what can be done to it there.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mailbox::testing::ManualClock;
use mailbox::{Abilities, Backend, Clock, Result};

use crate::world::{Time, World};

/// A backend, a decorator, or a door: whatever promises to keep the contract.
#[derive(Clone)]
pub struct Subject {
    /// What cases must know about it.
    pub info: SubjectInfo,
    /// What it can do. Known without opening it, so that it is known which cases apply.
    pub abilities: Abilities,
    open: Open,
}

type Open = Arc<dyn Fn(Setup) -> BoxFuture<'static, Result<Opened>> + Send + Sync>;

/// What cases must know about a subject that its [`Abilities`] do not say.
#[derive(Debug, Clone)]
pub struct SubjectInfo {
    /// What it is called in the names of tests and in `docs/conformance.md`.
    pub name: &'static str,
    /// It is reached through a [`Backend`], so bodies become bytes.
    pub backend: bool,
    /// Time stands still unless a case moves it.
    pub virtual_time: bool,
    /// A receive that waits can be dropped.
    pub cancellable: bool,
    /// It takes a [`Setup`].
    pub configurable: bool,
    /// It can be ended and opened again.
    pub restart: bool,
    /// The library itself is called: batches, and its own words and facts, come through whole.
    pub library: bool,
    /// One process has it all, so that bounds of a process are bounds of the whole.
    pub alone: bool,
    /// Those who wait hear of the end of their mailbox, whoever has removed it.
    pub tells_removal: bool,
    /// The shortest time that can be said to it.
    pub finest: Duration,
    /// Cases that are about something else than where mailboxes are kept run here only.
    pub reference: bool,
}

/// Bounds that a case wants set when a world is opened; `None` leaves the subject's own.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Most mailboxes (L1).
    pub max_mailboxes: Option<usize>,
    /// Most receives that wait at one mailbox (L1).
    pub max_waiters: Option<usize>,
    /// Largest payload (L1).
    pub max_payload: Option<usize>,
}

/// A fresh namespace, as a subject hands it over.
#[derive(Debug)]
pub struct Opened {
    /// Where mailboxes come from.
    pub home: Home,
    /// How time passes there.
    pub time: Time,
    /// Ends it as a crash would, and opens it again with what it has kept.
    pub restart: Option<Restart>,
    /// What has to be there as long as the world is, such as a directory or a service.
    pub keep: Option<Arc<dyn Keepsake>>,
}

/// Something that a world leans on.
pub trait Keepsake: std::fmt::Debug + Send + Sync {}

impl<T: std::fmt::Debug + Send + Sync> Keepsake for T {}

/// Where the mailboxes of a world come from.
#[derive(Debug)]
pub enum Home {
    /// They are kept there, by name.
    Backend(Arc<dyn Backend>),
    /// They live in their handles, and take their time from there.
    Local(Clock),
    /// Each is a double of its own, and takes its time from there.
    Fake(ManualClock),
}

/// How to end a world and open it again.
pub struct Restart(pub Box<dyn FnOnce() -> BoxFuture<'static, Result<Opened>> + Send>);

impl std::fmt::Debug for Restart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Restart")
    }
}

impl Subject {
    /// A subject that is opened by `open`. It starts with every optional hook missing.
    pub fn new<F, Fut>(name: &'static str, abilities: Abilities, open: F) -> Self
    where
        F: Fn(Setup) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Opened>> + Send + 'static,
    {
        let info = SubjectInfo {
            name,
            backend: true,
            virtual_time: false,
            cancellable: true,
            configurable: false,
            restart: false,
            library: true,
            alone: true,
            tells_removal: true,
            finest: Duration::from_nanos(1),
            reference: false,
        };
        Self { info, abilities, open: Arc::new(move |setup| open(setup).boxed()) }
    }

    /// A backend that takes its time from a [`Clock`] and its bounds from a [`Setup`].
    pub fn in_virtual_time<F, Fut>(name: &'static str, abilities: Abilities, open: F) -> Self
    where
        F: Fn(Setup, ManualClock) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Arc<dyn Backend>>> + Send + 'static,
    {
        let open = Arc::new(open);
        let subject = Self::new(name, abilities, move |setup| {
            let (open, clock) = (Arc::clone(&open), ManualClock::new());
            async move {
                let home = Home::Backend(open(setup, clock.clone()).await?);
                Ok(Opened { home, time: Time::Virtual(clock), restart: None, keep: None })
            }
        });
        subject.with(|info| (info.virtual_time, info.configurable) = (true, true))
    }

    /// This subject, with something else to be known about it.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut SubjectInfo)) -> Self {
        change(&mut self.info);
        self
    }

    /// A fresh namespace.
    ///
    /// # Errors
    /// Whatever opening it gives.
    pub async fn open(&self, setup: Setup) -> Result<World> {
        Ok(World::new(self.clone(), (self.open)(setup).await?))
    }
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Where subjects that roll dice begin: `SEED` gives others.
pub(crate) fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0)
}
