//! How this process uses the inboxes of a folder. What belongs to an inbox itself is in its
//! `inbox.json`.

use mailbox_core::{Policy, limits};

use crate::abilities::Abilities;
use crate::backends::directory::planted::Planted;
use crate::backends::directory::trust::Trust;
use crate::durability::{Durability, Settling};
use crate::error::{Error, Result};
use crate::home::clock::Clock;

/// Longest name of a sender: names of files have to stay short.
const SENDER_LEN: usize = 32;
/// Deliveries until a message of a new inbox becomes a dead letter.
const ATTEMPTS: u32 = 3;

/// How this process uses the inboxes of a folder.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DirectoryConfig {
    /// Where time comes from.
    pub clock: Clock,
    /// Rules of a new inbox. Unlike elsewhere a message has three attempts.
    pub policy: Policy,
    /// Whether a new inbox spreads its messages over 64 folders: for hundreds of thousands.
    pub sharded: bool,
    /// Who sends, in the names of files: 1 to 32 letters, digits, dots and underscores.
    pub sender: String,
    /// What a send waits for.
    pub durability: Durability,
    /// Whether settling waits for the disk too. If not, a power cut may bring back what was
    /// acknowledged just before it.
    pub settle: Settling,
    /// Whether files of other users are messages too. Whoever can write to a folder can forge and
    /// delete what is in it.
    pub shared: bool,
    /// Whether to ask the system for file events. Without, folders are looked at twice a second.
    pub events: bool,
    /// Most mailboxes in the folder; one more is refused with `Saturated`.
    pub max_mailboxes: usize,
    /// Most receives that wait at one mailbox; one more is refused with `Saturated`.
    pub max_waiters: usize,
    /// Largest payload; at most 256 MiB.
    pub max_payload: usize,
    /// Bugs that are switched on, to see whether tests notice; none can be in a release.
    #[doc(hidden)]
    pub planted: Planted,
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            policy: Policy { max_attempts: Some(ATTEMPTS), ..Policy::default() },
            sharded: false,
            sender: default_sender(),
            durability: Durability::Fsync,
            settle: Settling::Durable,
            shared: false,
            events: true,
            max_mailboxes: 1 << 12,
            max_waiters: 1 << 14,
            max_payload: limits::PAYLOAD_LEN,
            planted: Planted::default(),
        }
    }
}

impl DirectoryConfig {
    /// Takes time from this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Gives new inboxes these rules.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Signs with this name.
    #[must_use]
    pub fn with_sender(mut self, sender: impl Into<String>) -> Self {
        self.sender = sender.into();
        self
    }

    /// Whether the settings make sense.
    pub(crate) fn check(&self) -> Result<()> {
        if !is_sender(&self.sender) {
            let bound = format!("1..={SENDER_LEN} letters, digits, dots and underscores");
            return Err(Error::invalid("sender", format_args!("{:?}", self.sender), bound));
        }
        if self.max_payload > limits::PAYLOAD_LEN_MAX {
            let bound = format!("0..={}", limits::PAYLOAD_LEN_MAX);
            return Err(Error::invalid("max_payload", self.max_payload, bound));
        }
        if !matches!(self.durability, Durability::OsBuffered | Durability::Fsync) {
            return Err(Error::invalid("durability", self.durability, "fsync, os-buffered"));
        }
        self.abilities().check_policy(&self.policy)
    }

    /// What inboxes can do.
    #[must_use]
    pub fn abilities(&self) -> Abilities {
        let mut abilities = Abilities::full("directory");
        abilities.groups = false;
        abilities.totals = false;
        abilities.resolution = std::time::Duration::from_secs(1);
        abilities.max_payload = self.max_payload;
        abilities
    }

    pub(crate) const fn trust(&self) -> Trust {
        if self.shared { Trust::Shared } else { Trust::Own }
    }
}

/// Whether a name can stand in the names of files, between two dashes.
pub(crate) fn is_sender(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._".contains(&byte);
    (1..=SENDER_LEN).contains(&name.len()) && name.bytes().all(is_plain)
}

/// The name of the user, where it can stand in a file name.
fn default_sender() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    if is_sender(&user) { user } else { "mailbox".to_owned() }
}
