//! Where a case happens: a namespace of its own, and power over its time.
//!
//! Cases count time in units. Where time is virtual a unit is a second and passes in no time; where
//! it is real it is as short as the subject's resolution allows. A case that wants something *not*
//! to have happened leaves at least one unit before it would.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mailbox::testing::{FakeMailbox, ManualClock};
use mailbox::{Abilities, Backend, Error, ErrorKind, Mailbox, Name, Result, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::case::Outcome;
use crate::probe::Probe;
use crate::subject::{Home, Keepsake, Opened, Restart, Setup, Subject};

/// How time passes.
#[derive(Debug, Clone)]
pub enum Time {
    /// When the case says so.
    Virtual(ManualClock),
    /// By itself.
    Real {
        /// At least four times the resolution of the subject's deadlines.
        unit: Duration,
    },
}

/// A fresh, isolated namespace of a subject. Cheap to clone.
#[derive(Debug, Clone)]
pub struct World {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    subject: Subject,
    home: Home,
    time: Time,
    restart: Mutex<Option<Restart>>,
    /// Mailboxes that no backend knows, by type and name: the same name means the same mailbox.
    known: Mutex<HashMap<(TypeId, String), Box<dyn Any + Send + Sync>>>,
    /// Goes last.
    _keep: Option<Arc<dyn Keepsake>>,
}

/// How long to wait, in real time, for what must happen anyway.
const PATIENCE: Duration = Duration::from_secs(20);

impl World {
    pub(crate) fn new(subject: Subject, opened: Opened) -> Self {
        let Opened { home, time, restart, keep } = opened;
        let (restart, known) = (Mutex::new(restart), Mutex::default());
        Self { inner: Arc::new(Inner { subject, home, time, restart, known, _keep: keep }) }
    }

    /// What the subject can do.
    #[must_use]
    pub fn abilities(&self) -> &Abilities {
        &self.inner.subject.abilities
    }

    /// The mailbox of probes with this name.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn mailbox(&self, name: &str) -> Result<Mailbox<Probe, Probe>> {
        self.typed(name)
    }

    /// The mailbox with this name, for bodies `T` and replies `R`. The same name means the same
    /// messages; where bodies are not encoded, the types belong to the name.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn typed<T, R>(&self, name: &str) -> Result<Mailbox<T, R>>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
        R: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let name = Name::parse(name)?;
        if let Home::Backend(backend) = &self.inner.home {
            return Ok(Mailbox::new(Arc::clone(backend), name));
        }
        let key = (TypeId::of::<(T, R)>(), name.to_string());
        let mut known = self.inner.known.lock();
        if let Some(mailbox) = known.get(&key).and_then(|any| any.downcast_ref::<Mailbox<T, R>>()) {
            return Ok(mailbox.clone());
        }
        let mailbox: Mailbox<T, R> = match &self.inner.home {
            Home::Backend(backend) => Mailbox::new(Arc::clone(backend), name),
            Home::Local(clock) => Mailbox::local_with_clock(name, clock.clone())?,
            Home::Fake(clock) => FakeMailbox::with_clock(name, clock.clone())?.mailbox().clone(),
        };
        known.insert(key, Box::new(mailbox.clone()));
        Ok(mailbox)
    }

    /// The backend itself; none where mailboxes live in their handles.
    #[must_use]
    pub fn backend(&self) -> Option<Arc<dyn Backend>> {
        match &self.inner.home {
            Home::Backend(backend) => Some(Arc::clone(backend)),
            Home::Local(_) | Home::Fake(_) => None,
        }
    }

    /// Another namespace of the same subject, with bounds of its own.
    ///
    /// # Errors
    /// Whatever opening it gives.
    pub async fn another(&self, setup: Setup) -> Result<Self> {
        self.inner.subject.open(setup).await
    }

    /// Ends this world as a crash would, and opens it again with what it has kept.
    ///
    /// # Errors
    /// `Unsupported` where nothing is kept; whatever opening it gives.
    pub async fn restart(self) -> Result<Self> {
        let restart = self.inner.restart.lock().take();
        let Some(Restart(restart)) = restart else {
            return Err(Error::new(ErrorKind::Unsupported, "this subject cannot be restarted"));
        };
        let subject = self.inner.subject.clone();
        drop(self);
        Ok(Self::new(subject, restart().await?))
    }

    /// How long a unit of time is.
    #[must_use]
    pub fn unit(&self) -> Duration {
        match self.inner.time {
            Time::Virtual(_) => Duration::from_secs(1),
            Time::Real { unit } => unit,
        }
    }

    /// So many units.
    #[must_use]
    pub fn units(&self, count: u32) -> Duration {
        self.unit() * count
    }

    /// The shortest time that can be said here.
    #[must_use]
    pub fn finest(&self) -> Duration {
        self.inner.subject.info.finest
    }

    /// Lets so many units pass, and everything that is due by then be noticed.
    pub async fn pass(&self, units: u32) {
        self.pass_time(self.units(units)).await;
    }

    /// Lets time pass, and everything that is due by then be noticed.
    pub async fn pass_time(&self, time: Duration) {
        match &self.inner.time {
            Time::Virtual(clock) => clock.advance(time),
            Time::Real { .. } => {
                tokio::time::sleep(time + self.abilities().resolution).await;
            }
        }
    }

    /// The clock that the case moves, where time is virtual.
    ///
    /// # Errors
    /// Says that time is real.
    pub fn clock(&self) -> Outcome<&ManualClock> {
        match &self.inner.time {
            Time::Virtual(clock) => Ok(clock),
            Time::Real { .. } => Err("time is real here".into()),
        }
    }

    /// What the wall clock shows where time is virtual: how a clock that nobody stepped counts.
    ///
    /// # Errors
    /// Says that time is real.
    pub fn wall(&self) -> Outcome<Timestamp> {
        let origin = Timestamp::from_unix_millis(1_735_689_600_000);
        Ok(origin.after(self.clock()?.elapsed()))
    }

    /// Waits until something that must happen has happened.
    ///
    /// # Errors
    /// It has not, after a long time.
    pub async fn until<C>(&self, what: &str, mut holds: impl FnMut() -> C) -> Outcome
    where
        C: Future<Output = Result<bool>>,
    {
        let started = tokio::time::Instant::now();
        let mut looks = 0_u32;
        while !holds().await? {
            if started.elapsed() > PATIENCE {
                return Err(format!("waited in vain until {what}").into());
            }
            // Most things need a few turns of the executor, some another thread.
            looks += 1;
            match looks {
                0..50 => tokio::task::yield_now().await,
                _ => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        Ok(())
    }

    /// Waits until so many receives are waiting at a mailbox.
    ///
    /// # Errors
    /// They are not, after a long time.
    pub async fn until_waiting<T, R>(&self, mailbox: &Mailbox<T, R>, receives: u64) -> Outcome
    where
        T: Send + Sync + 'static,
        R: Send + Sync + 'static,
    {
        let what = format!("{receives} receives wait");
        let enough = || async { Ok(mailbox.stats().await?.waiters == receives) };
        // For a few looks in a row: a receive that is dropped and called again comes and goes.
        for _ in 0..4 {
            self.until(&what, enough).await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Ends it, so that nothing that still waits keeps the process alive.
    pub async fn end(&self) {
        if let Home::Backend(backend) = &self.inner.home {
            // It may have been closed by the case, and nobody needs it any more.
            let _ = backend.close().await;
        }
    }
}
