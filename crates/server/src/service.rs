//! The service as all protocols see it: a store, who may use it, and how much of it at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use mailbox::{Backend, Error, ErrorKind, Result, Retry, Sent};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::auth::Auth;
use crate::config::Config;
use crate::failure::{Answer, Failure};
use crate::handouts::Handouts;
use crate::metrics::{Metrics, Own};
use crate::traces::Traces;

/// How long a store has to say that it is there.
const READY_WITHIN: Duration = Duration::from_secs(2);
/// A send that failed because of the store counts for this long, unless one has worked since.
const FAILED_LATELY: Duration = Duration::from_secs(10);

/// A service that is running, or about to.
#[derive(Debug)]
pub struct Service {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) auth: Arc<Auth>,
    pub(crate) handouts: Handouts,
    pub(crate) metrics: Metrics,
    pub(crate) traces: Option<Traces>,
    pub(crate) admission: Arc<Admission>,
    /// Cancelled when the service is to stop: those who wait are sent away.
    pub(crate) draining: CancellationToken,
    /// The same, for those who only want to know: it takes no lock that all calls share.
    is_stopping: AtomicBool,
    /// What goes on after an answer: deliveries that are given back.
    pub(crate) tasks: TaskTracker,
    /// Whether it was ready when somebody looked last, for those who watch.
    pub(crate) ready: watch::Sender<bool>,
    config: ArcSwap<Config>,
    /// Why and when the store could not take messages last.
    send_failed: Mutex<Option<(Instant, ErrorKind)>>,
    /// There is something in `send_failed`: so that those who succeed need not look.
    has_failed: AtomicBool,
}

/// What a service can do.
#[derive(Debug)]
pub(crate) struct Readiness {
    pub(crate) reads: bool,
    /// Never without reads.
    pub(crate) writes: bool,
    /// Why not all of it.
    pub(crate) reasons: Vec<String>,
}

impl Service {
    /// A service on this store.
    #[must_use]
    pub fn new(store: Arc<dyn Backend>, auth: Arc<Auth>, config: Config) -> Arc<Self> {
        Self::traced(store, auth, config, None)
    }

    /// The same, with its calls traced.
    #[must_use]
    pub fn traced(
        store: Arc<dyn Backend>,
        auth: Arc<Auth>,
        config: Config,
        traces: Option<Traces>,
    ) -> Arc<Self> {
        let profile = if store.abilities().durable { "durable" } else { "ephemeral" };
        Arc::new(Self {
            metrics: Metrics::new(profile, config.shards),
            traces,
            store,
            auth,
            handouts: Handouts::new(config.global_inflight, config.inflight_per_capability),
            admission: Arc::new(Admission::new(&config.limits)),
            draining: CancellationToken::new(),
            is_stopping: AtomicBool::default(),
            tasks: TaskTracker::new(),
            ready: watch::Sender::new(true),
            config: ArcSwap::from_pointee(config),
            send_failed: Mutex::default(),
            has_failed: AtomicBool::default(),
        })
    }

    /// The settings at this moment.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// The same for a moment, without a count that all threads share.
    pub(crate) fn settings(&self) -> arc_swap::Guard<Arc<Config>> {
        self.config.load()
    }

    /// Takes nothing new any more, and sends those away who wait.
    pub(crate) fn stop(&self) {
        // In this order: whoever is woken looks at the flag.
        self.is_stopping.store(true, Ordering::Release);
        self.draining.cancel();
    }

    /// Whether it was told to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Takes other settings. Bounds on connections, requests and deliveries stay as they were.
    pub fn reload(&self, config: Config) {
        self.auth.reload(config.capabilities.clone());
        self.config.store(Arc::new(config));
    }

    /// Everything that is counted and measured, for Prometheus.
    pub(crate) async fn metrics_text(&self) -> String {
        self.metrics.survey.renew(&self.store, self.config().shards).await;
        self.metrics.text(Own {
            cached: self.auth.cached(),
            handed_out: self.handouts.count(Instant::now()),
            connections: self.admission.connections(),
        })
    }

    /// Refuses what is new while the service stops.
    pub(crate) fn check_open(&self) -> Answer<()> {
        if self.is_stopping() {
            return Err(stopping());
        }
        Ok(())
    }

    /// Refuses a request of so many bytes if that is too many.
    pub(crate) fn check_size(&self, len: usize) -> Answer<()> {
        let most = self.settings().limits.body;
        if len > most {
            let message = format!("the request is larger than {most} bytes");
            return Err(Error::new(ErrorKind::TooLarge, message).with_field("payload").into());
        }
        Ok(())
    }

    /// What the service can do at this moment, and why not the rest.
    pub(crate) async fn readiness(&self) -> Readiness {
        let mut reasons = Vec::new();
        if self.is_stopping() {
            reasons.push("the service is stopping".to_owned());
        }
        // The kind alone: what lies behind it is for the log.
        match tokio::time::timeout(READY_WITHIN, self.store.list(None, 1)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => reasons.push(format!("the store says {}", error.kind().as_str())),
            Err(_) => reasons.push("the store does not answer".to_owned()),
        }
        let reads = reasons.is_empty();
        if let Some((since, kind)) = *self.send_failed.lock()
            && since.elapsed() < FAILED_LATELY
        {
            reasons.push(format!("sends fail: the store says {}", kind.as_str()));
        }
        if !self.admission.has_place_to_send() {
            reasons.push("there is no place for another send".to_owned());
        }
        Readiness { reads, writes: reasons.is_empty(), reasons }
    }

    /// Tells those who watch whether it is ready, if there are any.
    pub(crate) async fn tell_ready(&self) {
        if self.ready.receiver_count() > 0 {
            let readiness = self.readiness().await;
            let is_ready = readiness.reads && readiness.writes;
            self.ready.send_if_modified(|was| std::mem::replace(was, is_ready) != is_ready);
        }
    }

    /// Remembers how the last send ended, as far as that says something about the store.
    pub(crate) fn note_sent(&self, sent: &[Result<Sent>]) {
        // A full mailbox, or one with too many keys, says nothing about others; a full disk does.
        let is_the_stores = |error: &&Error| match error.kind() {
            ErrorKind::Connection | ErrorKind::Internal => true,
            ErrorKind::Saturated => error.field() == Some("storage"),
            _ => false,
        };
        let failed = sent.iter().filter_map(|sent| sent.as_ref().err()).find(is_the_stores);
        let has_worked = sent.iter().any(Result::is_ok);
        if failed.is_some() || has_worked && self.has_failed.load(Ordering::Relaxed) {
            let mut send_failed = self.send_failed.lock();
            *send_failed = failed.map(|error| (Instant::now(), error.kind()));
            self.has_failed.store(send_failed.is_some(), Ordering::Relaxed);
        }
    }

    /// Looks now and then whether others have changed keys or revocations.
    pub(crate) fn refresh(&self) -> Result<()> {
        self.auth.refresh()
    }
}

/// What everybody hears while the service stops: nothing was done.
fn stopping() -> Failure {
    let error = Error::new(ErrorKind::Connection, "the service is stopping");
    let error = error.with_retry(Retry::After(Duration::from_secs(1)));
    Failure { reason: Some("stopping"), ..error.into() }
}
