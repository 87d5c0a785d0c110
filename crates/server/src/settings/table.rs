//! Every setting: its name, its default, its bounds, and whether it can change while the service
//! runs. Flags, environment, file and help are all made from this table.

use super::value::Kind;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const MIB: u64 = 1 << 20;

/// Words for how much is logged, the fewest first.
const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// Which setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table says what each is")]
pub enum Key {
    Store,
    Listen,
    Oap,
    Unix,
    Data,
    Profile,
    TlsCert,
    TlsKey,
    InsecurePlaintext,
    Log,
    LogFormat,
    OtlpEndpoint,
    OtlpPercent,
    Shards,
    ShardCapacity,
    DedupCapacity,
    MailboxInflight,
    GlobalInflight,
    MaxInflightPerCap,
    VisibilityMin,
    VisibilityDefault,
    MaxWait,
    MaxMessages,
    MaxBytes,
    TReplay,
    MaxAttempts,
    BackoffBase,
    BackoffMax,
    RetentionAge,
    RetentionInflight,
    RetentionDead,
    AllowUnboundedRetention,
    CapCacheTtl,
    CapMaxTtl,
    CapGrace,
    MaxConnections,
    MaxConnectionsPerIp,
    MaxRequests,
    RefusalPause,
    MaxWaiting,
    MaxWaitingPerCap,
    MaxBody,
    MaxBodies,
    MaxAnswers,
    ReadTimeout,
    WriteTimeout,
    IdleTimeout,
    DrainTimeout,
    Heartbeat,
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Which one.
    pub key: Key,
    /// Its name in the file; in flags with `-`, in the environment in capitals after `MAILBOX_`.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Whether it takes effect on SIGHUP; others need a restart.
    pub is_live: bool,
    pub(super) kind: Kind,
    pub(super) default: &'static str,
}

impl Setting {
    /// Its flag, with the dashes.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace('_', "-"))
    }

    /// Its variable.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("MAILBOX_{}", self.name.to_ascii_uppercase())
    }

    /// Whether it is `true` or `false`, and a flag alone means `true`.
    #[must_use]
    pub const fn is_switch(&self) -> bool {
        matches!(self.kind, Kind::Switch)
    }

    /// Whether it is a time.
    #[must_use]
    pub const fn is_time(&self) -> bool {
        matches!(self.kind, Kind::Time(..))
    }

    /// Whether it is a number of bytes.
    #[must_use]
    pub const fn is_size(&self) -> bool {
        matches!(self.kind, Kind::Size(..))
    }

    /// Whether it is about numbers and times, not about what the service is.
    #[must_use]
    pub const fn is_bound(&self) -> bool {
        self.key as usize >= Key::Shards as usize
    }

    /// What it is if nobody says; empty if that is nothing, or depends on something else.
    #[must_use]
    pub const fn default(&self) -> &'static str {
        self.default
    }

    const fn live(mut self) -> Self {
        self.is_live = true;
        self
    }
}

const fn row(
    key: Key,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
) -> Setting {
    Setting { key, name, about, is_live: false, kind, default }
}

/// All settings.
#[rustfmt::skip]
pub static ALL: [Setting; 49] = {
    use Key::*;
    use Kind::{Count, Size, Switch, Text, Time, Word};
    [
        row(Store, "store", Text, "",
            "What keeps the messages: journal:PATH, memory:, dir:PATH, redis://HOST"),
        row(Listen, "listen", Kind::Listen, "127.0.0.1:7600",
            "Where to listen: host:port, several with commas; port 0 takes a free one"),
        row(Oap, "oap", Kind::ListenOrOff, "127.0.0.1:7601",
            "Where to listen for OAP/1: as --listen, or off; if nobody says, a free port if that \
            one is taken"),
        row(Unix, "unix", Text, "", "A socket in the file system to listen on as well"),
        row(Data, "data", Text, "", "The directory of keys, revocations and the journal"),
        row(Profile, "profile", Word(&["macronode", "micronode"]), "macronode",
            "macronode keeps messages on disk; micronode nothing at all, ever"),
        row(TlsCert, "tls_cert", Text, "", "Certificates for TLS, PEM").live(),
        row(TlsKey, "tls_key", Text, "", "Their private key, PEM").live(),
        row(InsecurePlaintext, "insecure_plaintext", Switch, "false",
            "Listen without TLS where others than this machine can connect"),
        row(Log, "log", Word(LEVELS), "info", "How much is logged: off, error, warn, info, debug, \
            trace").live(),
        row(LogFormat, "log_format", Word(&["text", "json"]), "text", "Logs as text or json"),
        row(OtlpEndpoint, "otlp_endpoint", Text, "",
            "A collector that takes traces, OTLP over gRPC: http://127.0.0.1:4317"),
        row(OtlpPercent, "otlp_percent", Count(0, 100), "100",
            "Calls in a hundred that are traced, if the caller's own trace does not say"),
        row(Shards, "shards", Count(1, 1024), "8", "Shards that mailboxes are counted under"),
        row(ShardCapacity, "shard_capacity", Count(1, 1 << 24), "65536",
            "Most messages of one mailbox, dead letters not counted"),
        row(DedupCapacity, "dedup_capacity", Count(1, 1 << 24), "1048576",
            "Most idempotency keys of one mailbox"),
        row(MailboxInflight, "mailbox_inflight", Count(1, 1 << 24), "65536",
            "Most deliveries of one mailbox that are not settled"),
        row(GlobalInflight, "global_inflight", Count(1, 1 << 24), "131072",
            "Most deliveries of all mailboxes that are not settled"),
        row(MaxInflightPerCap, "max_inflight_per_cap", Count(1, 1 << 24), "65536",
            "Most of them with one capability"),
        row(VisibilityMin, "visibility_min", Time(1, 12 * HOUR), "250ms",
            "Shortest visibility timeout").live(),
        row(VisibilityDefault, "visibility_default", Time(1, 12 * HOUR), "30s",
            "Visibility timeout if the receiver does not say").live(),
        row(MaxWait, "max_wait", Time(0, 366 * DAY), "0",
            "Longest that a receive may ask to wait; 0 for no bound").live(),
        row(MaxMessages, "max_messages", Count(1, 256), "256",
            "Most messages that one receive may ask for").live(),
        row(MaxBytes, "max_bytes", Size(1, 64 * MIB), "512KiB",
            "Most bytes of payload in one receive, if the receiver does not say").live(),
        row(TReplay, "t_replay", Time(0, 7 * DAY), "300s",
            "How long an idempotency key is remembered"),
        row(MaxAttempts, "max_attempts", Count(0, 1_000_000), "5",
            "Deliveries before a message becomes a dead letter; 0 for no bound"),
        row(BackoffBase, "backoff_base", Time(1, HOUR), "200ms",
            "Wait of a first nack without a delay, doubled with every attempt").live(),
        row(BackoffMax, "backoff_max", Time(1, 12 * HOUR), "60s", "But never longer").live(),
        row(RetentionAge, "retention_age", Time(0, 366 * DAY), "7d",
            "How long a message waits before it becomes a dead letter; 0 for ever"),
        row(RetentionInflight, "retention_inflight", Count(0, 1_000_000), "10",
            "How many visibility timeouts a delivery can be held; 0 for no bound"),
        row(RetentionDead, "retention_dead", Time(0, 366 * DAY), "14d",
            "How long dead letters are kept; 0 for ever"),
        row(AllowUnboundedRetention, "allow_unbounded_retention", Switch, "false",
            "Accept rules that keep messages for ever").live(),
        row(CapCacheTtl, "cap_cache_ttl", Time(5 * SECOND, 2 * MINUTE), "30s",
            "How long a capability that was verified is believed").live(),
        row(CapMaxTtl, "cap_max_ttl", Time(MINUTE, 3660 * DAY), "365d",
            "Longest life of a capability that is made here").live(),
        row(CapGrace, "cap_grace", Time(0, 366 * DAY), "24h",
            "How long a root key is good after it was replaced").live(),
        row(MaxConnections, "max_connections", Count(1, 1_000_000), "10240", "Most connections"),
        row(MaxConnectionsPerIp, "max_connections_per_ip", Count(1, 1_000_000), "8192",
            "Most connections of one address"),
        row(MaxRequests, "max_requests", Count(1, 1_000_000), "512",
            "Most requests worked on at a time"),
        row(RefusalPause, "refusal_pause", Time(0, 10 * SECOND), "25ms",
            "How long a request beyond that waits for a place before it is refused").live(),
        row(MaxWaiting, "max_waiting", Count(1, 1_000_000), "8192", "Most receives that wait"),
        row(MaxWaitingPerCap, "max_waiting_per_cap", Count(1, 1_000_000), "4096",
            "Most receives of one capability that wait"),
        row(MaxBody, "max_body", Size(64 << 10, 1 << 30), "8MiB", "Largest body of a request"),
        row(MaxBodies, "max_bodies", Size(64 << 10, 1 << 40), "256MiB",
            "Most bytes of bodies at a time, all requests together"),
        row(MaxAnswers, "max_answers", Size(2 << 20, 1 << 40), "256MiB",
            "Most bytes of answers with messages at a time, all requests together"),
        row(ReadTimeout, "read_timeout", Time(100, HOUR), "5s",
            "For the head of a request, and for a body that makes no progress").live(),
        row(WriteTimeout, "write_timeout", Time(100, HOUR), "5s",
            "For an answer that makes no progress").live(),
        row(IdleTimeout, "idle_timeout", Time(100, DAY), "60s", "Between requests").live(),
        row(DrainTimeout, "drain_timeout", Time(0, HOUR), "5s",
            "For calls that are worked on when the service stops").live(),
        row(Heartbeat, "heartbeat", Time(100, HOUR), "15s",
            "Between signs of life of a stream").live(),
    ]
};

impl Key {
    /// Its row.
    #[must_use]
    pub fn setting(self) -> &'static Setting {
        &ALL[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_stands_at_its_keys_place_and_its_default_is_within_its_bounds() {
        for (place, setting) in ALL.iter().enumerate() {
            assert_eq!(setting.key as usize, place, "{}", setting.name);
            let read = setting.kind.read(setting.default);
            assert!(read.is_ok(), "{}: {read:?}", setting.name);
        }
    }
}
