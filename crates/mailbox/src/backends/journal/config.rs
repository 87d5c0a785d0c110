//! How a journal is set up.

use std::sync::Arc;

use mailbox_core::{Policy, limits};

use crate::abilities::Abilities;
use crate::backends::journal::disk::{Disk, RealDisk};
use crate::backends::journal::keep::RECORD_OVERHEAD;
use crate::backends::journal::planted::Planted;
use crate::durability::{Durability, Settling};
use crate::error::{Error, Result};
use crate::home::clock::Clock;

/// Smallest segment.
pub(crate) const SEGMENT_LEN_MIN: u32 = 64 * 1024;
/// Largest segment.
pub(crate) const SEGMENT_LEN_MAX: u32 = 1024 * 1024 * 1024;
/// Most spare segments.
pub(crate) const SPARES_MAX: u32 = 1024;
/// Most shards.
pub(crate) const SHARDS_MAX: u16 = 64;

/// How a journal is set up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JournalConfig {
    /// Where time comes from.
    pub clock: Clock,
    /// Rules of mailboxes that were not configured themselves.
    pub policy: Policy,
    /// Most mailboxes; naming one more is refused with `Saturated`.
    pub max_mailboxes: usize,
    /// Most receives that wait at one mailbox; one more is refused with `Saturated`.
    pub max_waiters: usize,
    /// Largest payload; at most 256 MiB, and less than half of a segment.
    pub max_payload: usize,
    /// What a send waits for.
    pub durability: Durability,
    /// Whether settling waits for the disk too. If not, a crash may bring back what was
    /// acknowledged in the last moments before it.
    pub settle: Settling,
    /// Length of the log's files. What there is on disk is at most twice what is kept, and two of
    /// these.
    pub segment_len: u32,
    /// Files made ahead of need. Two of them are the reserve that lets a full disk drain.
    pub spare_segments: u32,
    /// Logs that mailboxes are spread over; takes effect when a journal is made, and stays. More
    /// than one is for disks that serve several writers faster than one.
    pub shards: u16,
    /// What it is kept on.
    pub disk: Arc<dyn Disk>,
    /// Bugs that are switched on, to see whether tests notice; none can be in a release.
    #[doc(hidden)]
    pub planted: Planted,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            policy: Policy::default(),
            max_mailboxes: 1 << 16,
            max_waiters: 1 << 14,
            max_payload: limits::PAYLOAD_LEN,
            durability: Durability::Fsync,
            settle: Settling::Durable,
            segment_len: 16 * 1024 * 1024,
            spare_segments: 2,
            shards: 1,
            disk: Arc::new(RealDisk::new()),
            planted: Planted::default(),
        }
    }
}

impl JournalConfig {
    /// Whether the settings make sense.
    pub(crate) fn check(&self) -> Result<()> {
        let range = |least, most| format!("{least}..={most}");
        if !(SEGMENT_LEN_MIN..=SEGMENT_LEN_MAX).contains(&self.segment_len)
            || !self.segment_len.is_multiple_of(8)
        {
            let bound = range(SEGMENT_LEN_MIN, SEGMENT_LEN_MAX) + ", in steps of 8";
            return Err(Error::invalid("segment_len", self.segment_len, bound));
        }
        if !(1..=SHARDS_MAX).contains(&self.shards) {
            return Err(Error::invalid("shards", self.shards, range(1, u32::from(SHARDS_MAX))));
        }
        if !(2..=SPARES_MAX).contains(&self.spare_segments) {
            let bound = range(2, SPARES_MAX);
            return Err(Error::invalid("spare_segments", self.spare_segments, bound));
        }
        let most =
            (self.segment_len as usize / 2 - 2 * RECORD_OVERHEAD).min(limits::PAYLOAD_LEN_MAX);
        if self.max_payload > most {
            let bound = format!("0..={most}, less than half of a segment");
            return Err(Error::invalid("max_payload", self.max_payload, bound));
        }
        if !matches!(self.durability, Durability::OsBuffered | Durability::Fsync) {
            return Err(Error::invalid("durability", self.durability, "fsync, os-buffered"));
        }
        Abilities::full("journal").check_policy(&self.policy)
    }

    /// Takes time from this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Gives mailboxes these rules to begin with.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Lets a send wait for this.
    #[must_use]
    pub const fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Lets settling wait for the disk, or not.
    #[must_use]
    pub const fn with_settling(mut self, settle: Settling) -> Self {
        self.settle = settle;
        self
    }

    /// Makes the log's files this long.
    #[must_use]
    pub const fn with_segment_len(mut self, segment_len: u32) -> Self {
        self.segment_len = segment_len;
        self
    }

    /// Allows payloads of this many bytes.
    #[must_use]
    pub const fn with_max_payload(mut self, max_payload: usize) -> Self {
        self.max_payload = max_payload;
        self
    }

    /// Keeps it on this disk.
    #[must_use]
    pub fn with_disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.disk = disk;
        self
    }
}
