//! What can be seen of a mailbox, with messages called by their number in order of sending, so that
//! sights of different mailboxes can be compared.

use std::time::Duration;

use mailbox::{DeadReason, ErrorKind, Phase};

/// What a command gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gave {
    /// It is not answered with anything, or there was nothing to do it to.
    Nothing,
    /// It was refused.
    Refused(ErrorKind),
    /// The message with this number was sent, or recognised.
    Sent { number: usize, duplicate: bool },
    /// These were delivered: number and delivery count.
    Delivered(Vec<(usize, u32)>),
    /// So many were removed, redriven or deleted.
    Count(u64),
}

/// A mailbox as it can be seen without changing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    pub(super) counts: [u64; 4],
    pub(super) oldest_age: Option<Duration>,
    pub(super) dedup_entries: u64,
    pub(super) messages: Vec<Seen>,
}

/// A message as it can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) number: usize,
    pub(super) phase: Phase,
    pub(super) delivery_count: u32,
    pub(super) receivable_in: Duration,
    pub(super) last_error: Option<String>,
    pub(super) reason: Option<DeadReason>,
}

impl Sight {
    /// In which way it is not what was expected.
    pub(super) fn against(&self, expected: &Self) -> String {
        let differs = |(mine, other): &(&Seen, &Seen)| mine != other;
        match self.messages.iter().zip(&expected.messages).find(differs) {
            Some((mine, other)) => format!("shows {mine:?}, expected {other:?}"),
            None if self.messages.len() != expected.messages.len() => {
                format!("shows {:?}, expected {:?}", self.messages, expected.messages)
            }
            None => format!(
                "counts {:?} {:?} {}, expected {:?} {:?} {}",
                self.counts,
                self.oldest_age,
                self.dedup_entries,
                expected.counts,
                expected.oldest_age,
                expected.dedup_entries
            ),
        }
    }
}
