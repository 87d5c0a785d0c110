//! What an inbox is to be like, and what a doctor says about it.

use std::path::PathBuf;
use std::time::Duration;

use mailbox_core::Policy;
use serde::Serialize;

/// What an inbox is to be like. What is `None` stays as it is; in a new inbox, as it is by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InboxSettings {
    /// Whether messages are spread over 64 folders. An inbox that is in use can be changed.
    pub sharded: Option<bool>,
    /// How long a shell that took a message with `mv` has it.
    pub shell_lease: Option<Duration>,
    /// How long acknowledged messages are kept in `done/`; zero keeps none.
    pub done_age: Option<Duration>,
    /// How many of them.
    pub done_count: Option<u64>,
    /// Whether a file in `acks/` tells senders what was acknowledged.
    pub acks: Option<bool>,
    /// The rules of the mailbox.
    pub policy: Option<Policy>,
}

/// What became of an inbox that was to be like something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Prepared {
    /// There was none, and now there is.
    Made,
    /// It was different.
    Changed,
    /// It was so.
    Unchanged,
}

/// What is in an inbox, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InboxReport {
    /// The folder.
    pub path: PathBuf,
    /// Nothing is wrong.
    pub sound: bool,
    /// Folders that messages are spread over; 0 if they are not.
    pub shards: u8,
    /// Messages that wait.
    pub incoming: u64,
    /// Messages that somebody has.
    pub processing: u64,
    /// Messages that were acknowledged and are still kept.
    pub done: u64,
    /// Dead letters.
    pub dead: u64,
    /// Files that were no messages and were set aside.
    pub set_aside: u64,
    /// Files where messages come in that are called something else.
    pub foreign: u64,
    /// Messages that are being written, or were given up.
    pub unfinished: u64,
    /// What is wrong: the first of it.
    pub problems: Vec<InboxProblem>,
    /// How much more is wrong.
    pub further_problems: u64,
    /// What has been put right.
    pub repaired: u64,
}

/// Something that is wrong in an inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InboxProblem {
    /// The file, from the inbox on.
    pub file: String,
    /// What is wrong with it, or what was done about it.
    pub what: String,
}

/// Problems that are told one by one.
const PROBLEMS: usize = 1000;

impl InboxReport {
    /// Adds something that is wrong.
    pub(crate) fn add(&mut self, file: String, what: impl Into<String>) {
        self.sound = false;
        if self.problems.len() < PROBLEMS {
            self.problems.push(InboxProblem { file, what: what.into() });
        } else {
            self.further_problems += 1;
        }
    }
}
