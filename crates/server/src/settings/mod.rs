//! What an operator sets: flag before environment before file before default. Pure: what the
//! environment and the file say comes in as text. Invariant: settings that exist are within their
//! bounds and fit together.

mod checks;
mod file;
mod layers;
mod table;
mod tls;
mod units;
mod value;

use std::path::{Path, PathBuf};
use std::time::Duration;

use mailbox::{Policy, Result, Retention};

pub use file::File;
pub use layers::{Layers, Source, data_directory};
pub use table::{ALL, Key, Setting};
pub use tls::Certificates;
pub use units::{size, time};

use value::Value;

use crate::config::{CapabilityConfig, Config, Limits, Timeouts};

/// Every setting, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// In the order of the table.
    set: Vec<Set>,
    data: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Set {
    value: Value,
    source: Source,
}

/// One setting, to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its row in the table.
    pub setting: &'static Setting,
    /// What it is; empty if it is not set.
    pub value: String,
    /// Where that comes from.
    pub source: Source,
}

impl Settings {
    /// What holds if all of these are taken together.
    ///
    /// # Errors
    /// `InvalidParameter`, saying what is wrong, where it was said, and what is allowed.
    pub fn of(layers: &Layers) -> Result<Self> {
        let set = layers.resolve()?;
        let mut settings = Self { set, data: None };
        settings.data = match settings.text(Key::Data) {
            _ if settings.is_micronode() => None,
            "" => Some(layers.data_directory()?),
            path => Some(path.into()),
        };
        checks::check(&settings)?;
        Ok(settings)
    }

    fn get(&self, key: Key) -> &Value {
        &self.set[key as usize].value
    }

    fn source(&self, key: Key) -> &Source {
        &self.set[key as usize].source
    }

    fn text(&self, key: Key) -> &str {
        match self.get(key) {
            Value::Text(text) => text,
            other => unreachable!("{key:?} is text, not {other:?}"),
        }
    }

    fn count(&self, key: Key) -> u64 {
        match self.get(key) {
            Value::Count(number) | Value::Size(number) => *number,
            other => unreachable!("{key:?} is a number, not {other:?}"),
        }
    }

    fn time(&self, key: Key) -> Duration {
        match self.get(key) {
            Value::Time(time) => *time,
            other => unreachable!("{key:?} is a time, not {other:?}"),
        }
    }

    fn is_on(&self, key: Key) -> bool {
        match self.get(key) {
            Value::Switch(is_on) => *is_on,
            other => unreachable!("{key:?} is a switch, not {other:?}"),
        }
    }

    /// Whether nothing may ever be on disk.
    #[must_use]
    pub fn is_micronode(&self) -> bool {
        self.text(Key::Profile) == "micronode"
    }

    /// The data directory; none if nothing may be on disk.
    #[must_use]
    pub fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// What keeps the messages: an address without a name.
    #[must_use]
    pub fn store(&self) -> String {
        match (self.text(Key::Store), &self.data) {
            ("", None) => "memory:".to_owned(),
            ("", Some(data)) => format!("journal:{}", data.join("journal").display()),
            (store, _) => store.to_owned(),
        }
    }

    /// Where to listen: `host:port`.
    pub fn listen(&self) -> impl Iterator<Item = &str> {
        self.text(Key::Listen).split(',')
    }

    /// Where to listen for OAP/1: `host:port`.
    pub fn oap(&self) -> impl Iterator<Item = &str> {
        self.text(Key::Oap).split(',').filter(|address| !address.is_empty())
    }

    /// Whether somebody said where to listen for OAP/1.
    #[must_use]
    pub fn is_oap_said(&self) -> bool {
        *self.source(Key::Oap) != Source::Default
    }

    /// The socket in the file system to listen on as well.
    #[must_use]
    pub fn unix(&self) -> Option<&Path> {
        Some(self.text(Key::Unix)).filter(|path| !path.is_empty()).map(Path::new)
    }

    /// Certificates and private key for TLS.
    #[must_use]
    pub fn tls(&self) -> Option<(&Path, &Path)> {
        let (cert, key) = (self.text(Key::TlsCert), self.text(Key::TlsKey));
        (!cert.is_empty()).then(|| (Path::new(cert), Path::new(key)))
    }

    /// Whether to listen without TLS where others than this machine can connect.
    #[must_use]
    pub fn allows_plaintext(&self) -> bool {
        self.is_on(Key::InsecurePlaintext)
    }

    /// How much is logged: `off`, `error`, `warn`, `info`, `debug` or `trace`.
    #[must_use]
    pub fn log(&self) -> &str {
        self.text(Key::Log)
    }

    /// Whether logs are JSON.
    #[must_use]
    pub fn logs_json(&self) -> bool {
        self.text(Key::LogFormat) == "json"
    }

    /// Where traces go, and of how many calls in a hundred.
    #[must_use]
    pub fn traces(&self) -> Option<(&str, u32)> {
        let percent = u32::try_from(self.count(Key::OtlpPercent)).unwrap_or(u32::MAX);
        let endpoint = self.text(Key::OtlpEndpoint);
        (!endpoint.is_empty()).then_some((endpoint, percent))
    }

    /// The same for the service.
    #[must_use]
    pub fn config(&self) -> Config {
        let most = |key| usize::try_from(self.count(key)).unwrap_or(usize::MAX);
        Config {
            shards: u32::try_from(self.count(Key::Shards)).unwrap_or(u32::MAX),
            visibility_default: self.time(Key::VisibilityDefault),
            wait_max: Some(self.time(Key::MaxWait)).filter(|most| !most.is_zero()),
            visibility_min: self.time(Key::VisibilityMin),
            max_messages: u32::try_from(self.count(Key::MaxMessages)).unwrap_or(u32::MAX),
            max_bytes: self.count(Key::MaxBytes),
            backoff_base: self.time(Key::BackoffBase),
            backoff_max: self.time(Key::BackoffMax),
            global_inflight: most(Key::GlobalInflight),
            inflight_per_capability: most(Key::MaxInflightPerCap),
            allow_unbounded_retention: self.is_on(Key::AllowUnboundedRetention),
            capabilities: CapabilityConfig {
                cache_ttl: self.time(Key::CapCacheTtl),
                max_ttl: self.time(Key::CapMaxTtl),
                grace: self.time(Key::CapGrace),
            },
            limits: Limits {
                connections: most(Key::MaxConnections),
                connections_per_ip: most(Key::MaxConnectionsPerIp),
                requests: most(Key::MaxRequests),
                refusal_pause: self.time(Key::RefusalPause),
                waiting: most(Key::MaxWaiting),
                waiting_per_capability: most(Key::MaxWaitingPerCap),
                body: most(Key::MaxBody),
                bodies: most(Key::MaxBodies),
                answers: most(Key::MaxAnswers),
            },
            timeouts: Timeouts {
                read: self.time(Key::ReadTimeout),
                write: self.time(Key::WriteTimeout),
                idle: self.time(Key::IdleTimeout),
                drain: self.time(Key::DrainTimeout),
                heartbeat: self.time(Key::Heartbeat),
            },
        }
    }

    /// The rules of mailboxes that were not configured themselves.
    #[must_use]
    pub fn policy(&self) -> Policy {
        let some = |key| Some(self.count(key)).filter(|count| *count > 0);
        let some_u32 = |key| some(key).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let age = |key| Some(self.time(key)).filter(|age| !age.is_zero());
        Policy {
            max_size: some(Key::ShardCapacity),
            max_in_flight: self.count(Key::MailboxInflight),
            max_attempts: some_u32(Key::MaxAttempts),
            replay_window: self.time(Key::TReplay),
            dedup_capacity: usize::try_from(self.count(Key::DedupCapacity)).unwrap_or(usize::MAX),
            retention: Retention {
                ready_age: age(Key::RetentionAge),
                in_flight_factor: some_u32(Key::RetentionInflight),
                dead_age: age(Key::RetentionDead),
                ..Retention::default()
            },
            ..Policy::default()
        }
    }

    /// Every setting, to be shown. None of them is secret but for a password in the store's
    /// address, which is left out.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        let shown = |setting: &'static Setting| {
            let source = self.source(setting.key).clone();
            let value = match setting.key {
                Key::Store => without_password(&self.store()),
                Key::Data => self.data.as_deref().unwrap_or(Path::new("")).display().to_string(),
                key => self.get(key).to_string(),
            };
            Shown { setting, value, source }
        };
        ALL.iter().map(shown).collect()
    }

    /// These settings with what can change while a service runs taken from `new`; and the settings
    /// that differ, but need a restart.
    #[must_use]
    pub fn reloaded(&self, new: &Self) -> (Self, Vec<&'static Setting>) {
        let (mut merged, mut held) = (self.clone(), Vec::new());
        for (setting, (old, new)) in ALL.iter().zip(merged.set.iter_mut().zip(&new.set)) {
            if setting.is_live {
                old.clone_from(new);
            } else if old.value != new.value {
                held.push(setting);
            }
        }
        // With TLS or without is decided at the start; only the files can change.
        if self.tls().is_some() != new.tls().is_some() {
            for key in [Key::TlsCert, Key::TlsKey] {
                merged.set[key as usize].clone_from(&self.set[key as usize]);
                held.push(key.setting());
            }
        }
        (merged, held)
    }
}

/// An address without user and password.
fn without_password(address: &str) -> String {
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
            format!("{scheme}://{rest}")
        }
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests;
