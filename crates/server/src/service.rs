//! The service as all protocols see it: a store, who may use it, and how much of it at once.

use std::sync::Arc;

use mailbox::{Backend, Error, ErrorKind, Result, Retry};
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::auth::Auth;
use crate::config::Config;
use crate::failure::{Answer, Failure};
use crate::handouts::Handouts;
use crate::metrics::{Metrics, Own};

/// How long a store has to say that it is there.
const READY_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

/// A service that is running, or about to.
#[derive(Debug)]
pub struct Service {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) auth: Arc<Auth>,
    pub(crate) handouts: Handouts,
    pub(crate) metrics: Metrics,
    pub(crate) admission: Arc<Admission>,
    /// Set when the service is to stop: those who wait are sent away.
    pub(crate) draining: CancellationToken,
    /// What goes on after an answer: deliveries that are given back.
    pub(crate) tasks: TaskTracker,
    config: RwLock<Arc<Config>>,
}

impl Service {
    /// A service on this store.
    #[must_use]
    pub fn new(store: Arc<dyn Backend>, auth: Arc<Auth>, config: Config) -> Arc<Self> {
        let profile = if store.abilities().durable { "durable" } else { "ephemeral" };
        Arc::new(Self {
            metrics: Metrics::new(profile, config.shards),
            store,
            auth,
            handouts: Handouts::new(config.global_inflight),
            admission: Arc::new(Admission::new(&config.limits)),
            draining: CancellationToken::new(),
            tasks: TaskTracker::new(),
            config: RwLock::new(Arc::new(config)),
        })
    }

    /// The settings at this moment.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read())
    }

    /// Takes other settings. Bounds on connections, requests and deliveries stay as they were.
    pub fn reload(&self, config: Config) {
        self.auth.reload(config.capabilities.clone());
        *self.config.write() = Arc::new(config);
    }

    /// Everything that is counted and measured, for Prometheus.
    pub(crate) async fn metrics_text(&self) -> String {
        self.metrics.survey.renew(&self.store, self.config().shards).await;
        self.metrics.text(Own {
            cached: self.auth.cached(),
            handed_out: self.handouts.count(std::time::Instant::now()),
            connections: self.admission.connections(),
        })
    }

    /// Refuses what is new while the service stops.
    pub(crate) fn check_open(&self) -> Answer<()> {
        if self.draining.is_cancelled() {
            return Err(stopping());
        }
        Ok(())
    }

    /// What is missing for the service to do its work; nothing if it can.
    pub(crate) async fn not_ready(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.draining.is_cancelled() {
            reasons.push("the service is stopping".to_owned());
        }
        // The kind alone: what lies behind it is for the log.
        match tokio::time::timeout(READY_WITHIN, self.store.list(None, 1)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => reasons.push(format!("the store says {}", error.kind().as_str())),
            Err(_) => reasons.push("the store does not answer".to_owned()),
        }
        reasons
    }

    /// Looks now and then whether others have changed keys or revocations.
    pub(crate) fn refresh(&self) -> Result<()> {
        self.auth.refresh()
    }
}

/// What everybody hears while the service stops: nothing was done.
fn stopping() -> Failure {
    let error = Error::new(ErrorKind::Connection, "the service is stopping");
    let error = error.with_retry(Retry::After(std::time::Duration::from_secs(1)));
    Failure { reason: Some("stopping"), ..error.into() }
}
