//! Logs: to stderr, as text or as lines of JSON. How much can change while the service runs.

use std::io;

use mailbox::{Error, ErrorKind, Result};
use mailbox_server::settings::Settings;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// Logs that are being written.
#[derive(Debug)]
pub(super) struct Logging(reload::Handle<LevelFilter, Registry>);

/// From now on what happens is logged, for the whole process.
pub(super) fn start(settings: &Settings) -> Result<Logging> {
    let (filter, handle) = reload::Layer::new(level(settings.log()));
    let layer = fmt::layer().with_writer(io::stderr);
    let layer = match settings.logs_json() {
        true => layer.json().flatten_event(true).boxed(),
        false => layer.with_ansi(false).boxed(),
    };
    let started = tracing_subscriber::registry().with(filter).with(layer).try_init();
    started.map_err(|error| {
        Error::new(ErrorKind::Internal, format!("logs cannot be written: {error}"))
    })?;
    Ok(Logging(handle))
}

impl Logging {
    /// Logs this much from now on.
    pub(super) fn set_level(&self, words: &str) {
        // It fails only if nothing is logged any more.
        let _ = self.0.reload(level(words));
    }
}

fn level(words: &str) -> LevelFilter {
    words.parse().expect("settings have no other words")
}
