//! What the service is told. Plain data with defaults; checked where it is read.

use std::time::Duration;

/// How a service behaves. What keeps the messages has its own settings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// How many shards mailboxes are counted under.
    pub shards: u32,
    /// How long a delivery is hidden if the receiver does not say.
    pub visibility_default: Duration,
    /// Shortest visibility timeout but for none at all.
    pub visibility_min: Duration,
    /// Longest that a receive may ask to wait; nothing for no bound.
    pub wait_max: Option<Duration>,
    /// Most messages that one receive may ask for.
    pub max_messages: u32,
    /// Most bytes of payload in one receive if the receiver does not say; the first always comes.
    pub max_bytes: u64,
    /// A nack without a delay waits a random time up to this, doubled with every attempt.
    pub backoff_base: Duration,
    /// But never longer than this.
    pub backoff_max: Duration,
    /// Most deliveries handed out and not settled, of all mailboxes together.
    pub global_inflight: usize,
    /// Most of them with one capability.
    pub inflight_per_capability: usize,
    /// Rules without a bound on age are accepted.
    pub allow_unbounded_retention: bool,
    /// What capabilities are worth.
    pub capabilities: CapabilityConfig,
    /// How much at once.
    pub limits: Limits,
    /// How long.
    pub timeouts: Timeouts,
}

/// What capabilities are worth, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CapabilityConfig {
    /// A capability that was verified is believed for this long.
    pub cache_ttl: Duration,
    /// Longest life of a capability that is made here.
    pub max_ttl: Duration,
    /// How long a root key is good after it was replaced, unless said otherwise.
    pub grace: Duration,
}

/// How much at once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections.
    pub connections: usize,
    /// Connections of one address.
    pub connections_per_ip: usize,
    /// Requests that are being worked on; receives that wait do not count.
    pub requests: usize,
    /// How long a request beyond that waits for a place before it is refused: clients that come
    /// again at once shall not use up the service with refusals.
    pub refusal_pause: Duration,
    /// Receives that wait.
    pub waiting: usize,
    /// Receives that wait, of one capability.
    pub waiting_per_capability: usize,
    /// Largest body of a request, in bytes.
    pub body: usize,
    /// All bodies together that are coming in or worked on, in bytes; small ones may have an eighth
    /// more.
    pub bodies: usize,
    /// All answers together that are going out, in bytes of payload; small ones may have an eighth
    /// more.
    pub answers: usize,
}

/// How long.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// For the head of a request from its first byte, and for a body that makes no progress.
    pub read: Duration,
    /// For an answer that makes no progress.
    pub write: Duration,
    /// Between requests.
    pub idle: Duration,
    /// For calls that are being worked on when the service stops.
    pub drain: Duration,
    /// Between signs of life of a stream.
    pub heartbeat: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            shards: 8,
            visibility_default: Duration::from_secs(30),
            visibility_min: Duration::from_millis(250),
            wait_max: None,
            max_messages: 256,
            max_bytes: 512 * 1024,
            backoff_base: Duration::from_millis(200),
            backoff_max: Duration::from_secs(60),
            global_inflight: 131_072,
            inflight_per_capability: 65_536,
            allow_unbounded_retention: false,
            capabilities: CapabilityConfig::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

impl Default for CapabilityConfig {
    fn default() -> Self {
        Self {
            cache_ttl: Duration::from_secs(30),
            max_ttl: Duration::from_secs(365 * 86_400),
            grace: Duration::from_secs(86_400),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_240,
            connections_per_ip: 8192,
            requests: 512,
            refusal_pause: Duration::from_millis(25),
            waiting: 8192,
            waiting_per_capability: 4096,
            body: 8 * 1024 * 1024,
            bodies: 256 * 1024 * 1024,
            answers: 256 * 1024 * 1024,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            read: Duration::from_secs(5),
            write: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            drain: Duration::from_secs(5),
            heartbeat: Duration::from_secs(15),
        }
    }
}
