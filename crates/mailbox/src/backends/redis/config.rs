//! How this process uses the mailboxes of a Redis. What belongs to a mailbox itself is in its keys.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mailbox_core::{Policy, limits};

use crate::abilities::Abilities;
use crate::address::Address;
use crate::backends::redis::planted::Planted;
use crate::backends::redis::target::decoded;
use crate::durability::{Durability, Settling};
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;
use crate::open::{whole_number, yes_or_no};

/// What others who share the layout let whole mailboxes live without being used.
pub(super) const SHARED_TTL: Duration = Duration::from_secs(259_200);
/// Longest prefix of keys.
const PREFIX_LEN: usize = 128;
/// What a send can wait for, in words.
const DURABILITIES: &str = "memory, async, replicated, fsync";

/// What can be said behind the `?` of an address.
pub(super) const OPTIONS: [&str; 12] = [
    "db",
    "prefix",
    "durability",
    "ack",
    "ttl",
    "replicas",
    "patience",
    "ca",
    "tls",
    "events",
    "sentinel_user",
    "sentinel_password",
];

/// How this process uses the mailboxes of a Redis.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// Where time comes from. The system's clock stands for the server's own `TIME`: the clocks of
    /// clients decide nothing.
    pub clock: Clock,
    /// Rules of a mailbox that has none of its own.
    pub policy: Policy,
    /// Put before `queue:NAME` in every key: tenants with different prefixes share nothing.
    pub prefix: String,
    /// Which database; a cluster has only 0.
    pub db: u16,
    /// How long a mailbox stays that nobody uses; `None`: for ever. Dead letters and rules always
    /// stay. The default, three days, is that of the others who share the layout.
    pub ttl: Option<Duration>,
    /// What a send waits for: `Memory`, `Async`, `Replicated` or `Fsync`.
    pub durability: Durability,
    /// Whether settling waits for the same.
    pub settle: Settling,
    /// Replicas that have to have a message before it counts as replicated; `None`: all that its
    /// master has.
    pub replicas: Option<u32>,
    /// How long a call goes on trying while servers fail over, before it gives `Connection`.
    pub patience: Duration,
    /// How long one try waits for its answer.
    pub response_timeout: Duration,
    /// How long replicas have to confirm.
    pub replication_timeout: Duration,
    /// Certificates to trust, in PEM, instead of the system's.
    pub ca: Option<PathBuf>,
    /// User and password for sentinels, which have their own.
    pub sentinel_login: Option<SentinelLogin>,
    /// Whether servers tell of changes. Without, waiting receives look several times a second.
    pub events: bool,
    /// Most mailboxes under the prefix that this process makes; one more is refused with
    /// `Saturated`.
    pub max_mailboxes: usize,
    /// Most receives that wait at one mailbox in this process; one more is refused with
    /// `Saturated`.
    pub max_waiters: usize,
    /// Largest payload; at most 256 MiB.
    pub max_payload: usize,
    /// Bugs that are switched on, to see whether tests notice; none can be in a release.
    #[doc(hidden)]
    pub planted: Planted,
}

/// User and password for sentinels. It does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct SentinelLogin {
    pub(super) user: Option<String>,
    pub(super) password: String,
}

impl SentinelLogin {
    /// This user, or the default one, with this password.
    #[must_use]
    pub const fn new(user: Option<String>, password: String) -> Self {
        Self { user, password }
    }
}

impl fmt::Debug for SentinelLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentinelLogin").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            policy: Policy::default(),
            prefix: String::new(),
            db: 0,
            ttl: Some(SHARED_TTL),
            durability: Durability::Async,
            settle: Settling::Durable,
            replicas: None,
            patience: Duration::from_secs(10),
            response_timeout: Duration::from_secs(5),
            replication_timeout: Duration::from_secs(1),
            ca: None,
            sentinel_login: None,
            events: true,
            max_mailboxes: 1 << 20,
            max_waiters: 1 << 14,
            max_payload: limits::PAYLOAD_LEN,
            planted: Planted::default(),
        }
    }
}

impl RedisConfig {
    /// What an address says; the defaults for what it does not.
    pub(crate) fn of(address: &Address) -> Result<Self> {
        let option = |name: &str| address.options().get(name);
        check_meaning(address)?;
        let mut config = Self::default();
        config.db = whole_number(address, "db")?.unwrap_or(config.db);
        if let Some(prefix) = option("prefix") {
            config.prefix.clone_from(prefix);
        }
        if let Some(durability) = option("durability") {
            config.durability = durability.parse()?;
        }
        if let Some(ack) = option("ack") {
            config.settle = ack.parse()?;
        }
        if let Some(ttl) = whole_number(address, "ttl")? {
            config.ttl = (ttl > 0).then(|| Duration::from_secs(ttl));
        }
        config.replicas = whole_number(address, "replicas")?;
        if let Some(patience) = whole_number(address, "patience")? {
            config.patience = Duration::from_secs(patience);
        }
        config.ca = option("ca").map(Into::into);
        config.events = yes_or_no(address, "events", config.events)?;
        if let Some(password) = option("sentinel_password") {
            let user = option("sentinel_user").map(|user| decoded(user)).transpose()?;
            config.sentinel_login = Some(SentinelLogin::new(user, decoded(password)?));
        }
        Ok(config)
    }

    /// Takes time from this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Gives mailboxes without rules these.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Keeps to keys with this prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Makes a send wait for this.
    #[must_use]
    pub const fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Lets a mailbox that nobody uses go after so long; `None`: never.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Option<Duration>) -> Self {
        self.ttl = ttl;
        self
    }

    /// What mailboxes on Redis can do.
    #[must_use]
    pub fn abilities(&self) -> Abilities {
        let mut abilities = Abilities::full("redis");
        abilities.resolution = Duration::from_secs(1);
        abilities.max_payload = self.max_payload;
        abilities.durable = self.durability != Durability::Memory;
        abilities
    }

    /// Whether the settings make sense.
    pub(crate) fn check(&self) -> Result<()> {
        // A prefix that could be read as another one with another mailbox would share its keys; and
        // one that means something in an address would not be read back from it.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"{}&%#?".contains(&byte);
        let is_clear = self.prefix.bytes().all(is_plain) && !self.prefix.contains("queue:");
        if self.prefix.len() > PREFIX_LEN || !is_clear {
            let bound = format!("0..={PREFIX_LEN} of ASCII, none of {{}}&%#? and no `queue:`");
            return Err(Error::invalid("prefix", format_args!("{:.40?}", self.prefix), bound));
        }
        if self.max_payload > limits::PAYLOAD_LEN_MAX {
            let bound = format!("0..={}", limits::PAYLOAD_LEN_MAX);
            return Err(Error::invalid("max_payload", self.max_payload, bound));
        }
        if self.durability == Durability::OsBuffered {
            return Err(Error::invalid("durability", self.durability, DURABILITIES));
        }
        if self.ttl.is_some_and(|ttl| ttl.as_secs() == 0) {
            return Err(Error::invalid("ttl", "less than 1 s", "whole seconds, or none"));
        }
        if self.replicas == Some(0) {
            return Err(Error::invalid("replicas", 0, "1 or more, or none"));
        }
        self.abilities().check_policy(&self.policy)
    }

    /// In whole seconds, as scripts take it; 0: for ever.
    pub(crate) fn ttl_seconds(&self) -> u64 {
        self.ttl.map_or(0, |ttl| ttl.as_secs())
    }
}

/// Refuses options that would have no effect: whoever says them relies on one.
fn check_meaning(address: &Address) -> Result<()> {
    let option = |name: &str| address.options().get(name).map(String::as_str);
    let has_tls = address.scheme() == "rediss" || option("tls") == Some("yes");
    let is_sentinel = address.scheme() == "redis+sentinel";
    let refuse = |name: &'static str, why: &str| {
        let message = format!("{name} has no effect here: {why}");
        Err(Error::new(ErrorKind::InvalidParameter, message).with_field(name))
    };
    if option("ca").is_some() && !has_tls {
        return refuse("ca", "it is for rediss: or tls=yes");
    }
    if option("replicas").is_some() && option("durability") != Some("replicated") {
        return refuse("replicas", "it is for durability=replicated");
    }
    if option("sentinel_user").is_some() && option("sentinel_password").is_none() {
        return refuse("sentinel_user", "it needs a sentinel_password");
    }
    if option("sentinel_password").is_some() && !is_sentinel {
        return refuse("sentinel_password", "it is for redis+sentinel:");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_show_no_password() {
        let said =
            "redis+sentinel://u:sesame-1@a/m/jobs?sentinel_user=anna&sentinel_password=se%3A2";
        let address: Address = said.parse().unwrap();
        let config = RedisConfig::of(&address).unwrap();
        let login = SentinelLogin::new(Some("anna".to_owned()), "se:2".to_owned());
        assert_eq!(config.sentinel_login, Some(login));
        let shown = format!("{config:?} {config:#?}");
        assert!(shown.contains("anna"), "{shown}");
        for secret in ["sesame", "se:2", "se%3A2"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn a_prefix_that_could_be_read_as_something_else_is_refused() {
        let long = "a".repeat(PREFIX_LEN + 1);
        let check = |prefix: &str| RedisConfig::default().with_prefix(prefix).check();
        for prefix in ["queue:", "a:queue:", "{", "}", "&", "%", "#", "?", " ", "\0", "ä", &long] {
            let error = check(prefix).unwrap_err();
            let found = (error.kind(), error.field());
            assert_eq!(found, (ErrorKind::InvalidParameter, Some("prefix")), "{prefix:?}");
        }
        for prefix in ["", "queue", "tenant-a:", &long[1..]] {
            check(prefix).unwrap_or_else(|error| panic!("{prefix:?}: {error}"));
        }
    }
}
