//! `mailbox serve`: runs the service until it is told to end. Invariant: what was promised is in
//! the store when the process ends in order, and the store is closed.

mod listeners;
mod logging;
mod notify;
mod process;
mod ready;

use std::sync::Arc;
use std::time::Duration;

use mailbox::{Backend, Error, ErrorKind, Result, open_store};
use mailbox_server::auth::Vault;
use mailbox_server::settings::{Certificates, Settings};
use mailbox_server::{Auth, Listener, Service, Traces};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::config::layers;
use crate::args::Said;
use crate::exit::Outcome;
use crate::place;
use crate::signals::Signals;
use logging::Logging;
use ready::Ready;

/// How long what still blocks may hold up the end.
const LAST_WAIT: Duration = Duration::from_secs(1);

pub(super) fn run(said: &Said) -> Result<Outcome> {
    let settings = Settings::of(&layers(said)?)?;
    let logging = logging::start(&settings)?;
    if settings.is_micronode() {
        crate::ALLOCATOR.wipe_from_now_on();
    }
    process::prepare();
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot start the runtime").with_source(error)
    })?;
    let outcome = runtime.block_on(serve(said, settings, logging));
    runtime.shutdown_timeout(LAST_WAIT);
    outcome
}

async fn serve(said: &Said, settings: Settings, logging: Logging) -> Result<Outcome> {
    // From the first moment on: a service that is told to end while it starts does so in order.
    let mut signals = Signals::new()?;
    let mut hangups = signal(SignalKind::hangup()).map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot listen for signals").with_source(error)
    })?;
    let mut running = tokio::select! {
        started = Running::start(settings, logging) => started?,
        () = signals.next() => return Ok(Outcome::Done),
    };
    notify::tell("READY=1");
    let stop = CancellationToken::new();
    let listeners = std::mem::take(&mut running.listeners);
    let service = Arc::clone(&running.service);
    let mut serving = tokio::spawn(mailbox_server::run(listeners, service, stop.clone()));
    loop {
        tokio::select! {
            () = signals.next() => break,
            _ = hangups.recv() => running.reload(said),
            ended = &mut serving => return Err(ended_early(ended)),
        }
    }
    notify::tell("STOPPING=1");
    tracing::info!("stopping");
    stop.cancel();
    let ending = async {
        let ended = serving.await;
        let closed = running.store.close().await;
        running.ready.withdraw();
        end_traces(running.traces.take()).await;
        closed.and(ended.map_err(|error| ended_early(Err(error))))
    };
    tokio::select! {
        ended = ending => ended.map(|()| Outcome::Done),
        () = signals.next() => {
            tracing::warn!("told to end a second time: calls are cut off");
            running.ready.withdraw();
            Ok(Outcome::Interrupted)
        }
    }
}

/// Lets a collector have the last spans. Whether it takes them changes nothing about the service.
async fn end_traces(traces: Option<Traces>) {
    let Some(traces) = traces else { return };
    let stopped = tokio::task::spawn_blocking(move || traces.stop()).await;
    if let Ok(Err(error)) = stopped {
        let error = format!("{error:#}");
        tracing::warn!(error, "traces");
    }
}

fn ended_early(ended: Result<(), tokio::task::JoinError>) -> Error {
    let error = Error::new(ErrorKind::Internal, "the service ended by itself");
    match ended {
        Ok(()) => error,
        Err(source) => error.with_source(source),
    }
}

/// A service that was started.
struct Running {
    settings: Settings,
    logging: Logging,
    service: Arc<Service>,
    store: Arc<dyn Backend>,
    traces: Option<Traces>,
    listeners: Vec<Listener>,
    certificates: Option<Arc<Certificates>>,
    ready: Ready,
}

impl Running {
    async fn start(settings: Settings, logging: Logging) -> Result<Self> {
        let store = place::read_place(&settings.store())?;
        let certificates =
            settings.tls().map(|(cert, key)| Certificates::read(cert, key)).transpose()?;
        let vault = match settings.data() {
            Some(data) => Vault::directory(data)?,
            None => Vault::memory(),
        };
        let listeners = listeners::bind(&settings, certificates.as_ref()).await?;
        let config = settings.config();
        let auth = Auth::open(vault, config.capabilities.clone())?;
        let store = open_store(&store, settings.policy()).await?;
        let traces = settings
            .traces()
            .map(|(endpoint, percent)| Traces::start(endpoint, percent))
            .transpose()?;
        let service =
            Service::traced(Arc::clone(&store), Arc::clone(&auth), config, traces.clone());
        let ready = Ready::announce(&settings, &auth, &listeners)?;
        Ok(Self { settings, logging, service, store, traces, listeners, certificates, ready })
    }

    /// Reads the settings again, and takes those that can change. If that cannot be, all stay.
    fn reload(&mut self, said: &Said) {
        notify::reloading();
        match self.take_new(said) {
            Ok(held) if held.is_empty() => tracing::info!("settings read again"),
            Ok(held) => tracing::warn!(
                settings = %held.join(", "),
                "settings read again; these need a restart"
            ),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "settings stay as they were");
            }
        }
        notify::tell("READY=1");
    }

    fn take_new(&mut self, said: &Said) -> Result<Vec<&'static str>> {
        let new = Settings::of(&layers(said)?)?;
        let (merged, held) = self.settings.reloaded(&new);
        if let (Some(certificates), Some((cert, key))) = (&self.certificates, merged.tls()) {
            certificates.reload(cert, key)?;
        }
        self.logging.set_level(merged.log());
        self.service.reload(merged.config());
        self.settings = merged;
        Ok(held.iter().map(|setting| setting.name).collect())
    }
}
