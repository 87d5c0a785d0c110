//! What `inbox.json` says: how an inbox is laid out, and the rules of its mailbox. Written as a
//! whole, read by every process; people edit it too, so a mistake in it is named and nothing is
//! guessed.

use std::fmt;
use std::time::Duration;

use mailbox_core::{LateSettle, Policy, Retention};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::backends::directory::folders::BUCKETS;

/// The file.
pub(crate) const FILE: &str = "inbox.json";
/// The version of the layout that this program knows.
const VERSION: u32 = 1;
/// Largest file that is read.
pub(crate) const LEN_MAX: u64 = 64 * 1024;

/// What an inbox is like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    version: u32,
    /// 0, or 64 buckets.
    pub(crate) shards: u8,
    /// How long a shell that took a message with `mv` has it.
    pub(crate) shell_lease: Span,
    /// How long acknowledged messages are kept in `done/`; none at all if zero.
    pub(crate) done_age: Span,
    /// How many of them.
    pub(crate) done_count: u64,
    /// Whether `acks/` gets a file for each of them.
    pub(crate) acks: bool,
    #[serde(with = "Rules")]
    pub(crate) policy: Policy,
}

impl Settings {
    /// Of a new inbox.
    pub(crate) fn new(is_sharded: bool, policy: Policy) -> Self {
        Self {
            version: VERSION,
            shards: if is_sharded { BUCKETS } else { 0 },
            shell_lease: Span(Duration::from_secs(60)),
            done_age: Span(Duration::from_secs(86_400)),
            done_count: 10_000,
            acks: false,
            policy,
        }
    }

    /// Reads the file's content.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        // First the version alone: another one may have other fields.
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let version: Version = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if version.version != VERSION {
            return Err(format!("version {}, known is {VERSION}", version.version));
        }
        let read: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if read.shards != 0 && read.shards != BUCKETS {
            return Err(format!("shards is {}, can be 0 or {BUCKETS}", read.shards));
        }
        Ok(read)
    }

    /// The file's content, for people to read.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("plain data becomes JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Whether messages are spread over buckets.
    pub(crate) const fn is_sharded(&self) -> bool {
        self.shards > 0
    }
}

/// A time that is written as `"1.5s"`: exact, and nobody has to guess the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:09}", self.0.subsec_nanos());
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{}s", self.0.as_secs()),
            fraction => write!(f, "{}.{fraction}s", self.0.as_secs()),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || D::Error::custom(format!("{text:?} is no time such as \"60s\" or \"0.5s\""));
        let number = text.strip_suffix('s').ok_or_else(wrong)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
            return Err(wrong());
        }
        let whole = whole.parse().map_err(|_| wrong())?;
        let nanos = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
        Ok(Self(Duration::new(whole, nanos)))
    }
}

/// [`Policy`] as it stands in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    max_size: Option<u64>,
    max_in_flight: u64,
    max_attempts: Option<u32>,
    replay_window: Span,
    dedup_capacity: usize,
    late_settle: Late,
    ready_age: Option<Span>,
    ready_count: Option<u64>,
    in_flight_factor: Option<u32>,
    dead_age: Option<Span>,
    dead_count: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Late {
    Refuse,
    UntilRedelivered,
}

impl Rules {
    fn serialize<S: Serializer>(policy: &Policy, serializer: S) -> Result<S::Ok, S::Error> {
        let Retention { ready_age, ready_count, in_flight_factor, dead_age, dead_count } =
            policy.retention.clone();
        let rules = Self {
            max_size: policy.max_size,
            max_in_flight: policy.max_in_flight,
            max_attempts: policy.max_attempts,
            replay_window: Span(policy.replay_window),
            dedup_capacity: policy.dedup_capacity,
            late_settle: match policy.late_settle {
                LateSettle::Refuse => Late::Refuse,
                LateSettle::UntilRedelivered => Late::UntilRedelivered,
            },
            ready_age: ready_age.map(Span),
            ready_count,
            in_flight_factor,
            dead_age: dead_age.map(Span),
            dead_count,
        };
        Serialize::serialize(&rules, serializer)
    }

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Policy, D::Error> {
        let rules: Self = Deserialize::deserialize(deserializer)?;
        Ok(Policy {
            max_size: rules.max_size,
            max_in_flight: rules.max_in_flight,
            max_attempts: rules.max_attempts,
            replay_window: rules.replay_window.0,
            dedup_capacity: rules.dedup_capacity,
            late_settle: match rules.late_settle {
                Late::Refuse => LateSettle::Refuse,
                Late::UntilRedelivered => LateSettle::UntilRedelivered,
            },
            retention: Retention {
                ready_age: rules.ready_age.map(|span| span.0),
                ready_count: rules.ready_count,
                in_flight_factor: rules.in_flight_factor,
                dead_age: rules.dead_age.map(|span| span.0),
                dead_count: rules.dead_count,
            },
        })
    }
}
