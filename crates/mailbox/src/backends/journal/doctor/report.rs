//! What was found in a journal: plain data, for people and for programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mailbox_core::{LateSettle, Policy, Retention};
use serde::Serialize;

/// Problems, and remarks, that are listed one by one; further ones are only counted.
pub(super) const LISTED: usize = 10_000;

/// A journal as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The directory.
    pub path: PathBuf,
    /// What tells this journal from others, in hexadecimal digits; empty if that is not known.
    pub journal: String,
    /// Nothing is damaged: the journal opens, and every record and every payload is what was
    /// written.
    pub sound: bool,
    /// Its logs.
    pub shards: Vec<ShardReport>,
    /// What is damaged, in the order of the log; at most 10,000 of them.
    pub problems: Vec<Problem>,
    /// Problems that are not listed.
    pub further_problems: u64,
    /// What is worth knowing and is no damage; at most 10,000 of them.
    pub remarks: Vec<Remark>,
    /// Records that have been there and cannot be read; `None` if nobody can tell how many,
    /// because a segment is missing or cut off and no later record gives the number.
    pub lost_records: Option<u64>,
    /// Messages that are known to be there, but whose letter cannot be read.
    pub unreadable_messages: u64,
}

/// One log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShardReport {
    /// Its number.
    pub shard: u16,
    /// It was closed in order, and nothing was written since.
    pub closed: bool,
    /// The last record that can be read; 0 if there is none.
    pub last_lsn: u64,
    /// Its files, in order.
    pub segments: Vec<SegmentReport>,
    /// The mailboxes in it, by number.
    pub mailboxes: Vec<MailboxReport>,
}

/// One file of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SegmentReport {
    /// Its number.
    pub number: u32,
    /// The file, seen from the journal's directory.
    pub file: String,
    /// Length of the file.
    pub bytes: u64,
    /// Records that can be read.
    pub records: u64,
    /// Batches that these are of.
    pub batches: u64,
    /// Bytes of records of messages that are still there.
    pub live_bytes: u64,
    /// What state it is in.
    pub state: SegmentState,
}

/// What state a segment is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SegmentState {
    /// Full and complete.
    Sealed,
    /// The one that is being filled.
    Open,
    /// The same, and its last batch was torn by a crash. Nobody was told that it is kept.
    Torn,
    /// Something in it cannot be read that was there once.
    Damaged,
    /// Made ahead, and never used.
    Spare,
    /// What it holds is not needed any more; the next open removes it.
    NotNeeded,
}

impl SegmentState {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sealed => "sealed",
            Self::Open => "open",
            Self::Torn => "torn",
            Self::Damaged => "damaged",
            Self::Spare => "spare",
            Self::NotNeeded => "not needed",
        }
    }
}

/// A mailbox, counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MailboxReport {
    /// Its number in the journal.
    pub number: u32,
    /// Its name; `None` if the record that says it cannot be read.
    pub name: Option<String>,
    /// Delayed, ready and invisible messages together.
    pub live: u64,
    /// Of these: not receivable yet.
    pub delayed: u64,
    /// Of these: handed out, deadline not passed.
    pub invisible: u64,
    /// Dead letters.
    pub dead: u64,
    /// Bytes that its messages take in the log.
    pub bytes: u64,
    /// Idempotency keys that are remembered.
    pub keys: u64,
    /// Rules that are not the default ones.
    pub policy: BTreeMap<String, String>,
}

/// Something is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The file, seen from the journal's directory.
    pub file: String,
    /// Where in it; `None` if it is about the file as a whole.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// Records that are lost here.
    pub lost: Option<Lost>,
}

/// Records that cannot be read, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Number of the first.
    pub from: u64,
    /// Number of the last.
    pub to: u64,
}

impl Lost {
    /// How many.
    #[must_use]
    pub const fn records(self) -> u64 {
        (self.to - self.from).saturating_add(1)
    }
}

/// Something worth knowing that is no damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Remark {
    /// The file, seen from the journal's directory.
    pub file: String,
    /// Where in it; `None` if it is about the file as a whole.
    pub offset: Option<u64>,
    /// What there is to know.
    pub what: String,
}

/// What a repair has saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Repaired {
    /// Where the repaired journal is.
    pub path: PathBuf,
    /// Where the journal is now that was damaged, untouched.
    pub original: PathBuf,
    /// Mailboxes that were saved.
    pub mailboxes: u64,
    /// Messages that were saved with everything they had, dead letters included.
    pub messages: u64,
    /// Messages that could not be read: they are dead letters with the reason `integrity`, whose
    /// last error says where the message was.
    pub unreadable: u64,
    /// Idempotency keys that were saved.
    pub keys: u64,
    /// Records that are lost; `None` if nobody can tell how many. A message whose acknowledgement
    /// is among them may be delivered again; one that was only sent there is gone.
    pub lost_records: Option<u64>,
    /// Mailboxes whose name is lost, and what they are called now.
    pub renamed: Vec<String>,
    /// The secret behind receipt handles is lost: handles from before do not work any more.
    pub new_secret: bool,
}

/// Rules that are not the default ones, by name.
pub(super) fn unusual_rules(policy: &Policy) -> BTreeMap<String, String> {
    let rules = |policy: &Policy| {
        let Policy {
            max_size,
            max_in_flight,
            max_attempts,
            replay_window,
            dedup_capacity,
            late_settle,
            retention,
        } = policy;
        let Retention { ready_age, ready_count, in_flight_factor, dead_age, dead_count } =
            retention;
        [
            ("max_size", or_none(max_size.as_ref())),
            ("max_in_flight", max_in_flight.to_string()),
            ("max_attempts", or_none(max_attempts.as_ref())),
            ("replay_window", format!("{replay_window:?}")),
            ("dedup_capacity", dedup_capacity.to_string()),
            (
                "late_settle",
                match late_settle {
                    LateSettle::Refuse => "refuse".to_owned(),
                    LateSettle::UntilRedelivered => "until_redelivered".to_owned(),
                },
            ),
            ("retention.ready_age", or_none(ready_age.map(|age| format!("{age:?}")).as_ref())),
            ("retention.ready_count", or_none(ready_count.as_ref())),
            ("retention.in_flight_factor", or_none(in_flight_factor.as_ref())),
            ("retention.dead_age", or_none(dead_age.map(|age| format!("{age:?}")).as_ref())),
            ("retention.dead_count", or_none(dead_count.as_ref())),
        ]
    };
    let usual = rules(&Policy::default());
    rules(policy)
        .into_iter()
        .filter(|rule| !usual.contains(rule))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn or_none<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "none".to_owned(), T::to_string)
}
