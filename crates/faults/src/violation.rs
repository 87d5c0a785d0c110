//! What must not happen, and how often it did.

use std::fmt;

/// A promise that was broken. Numbers are those of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A send was answered, nobody tried to delete it, and it is gone (D1, D2).
    Lost(u64),
    /// It was deleted, the deletion was answered, and it is there again.
    BackAgain(u64),
    /// There is a message that nobody sent, or whose send was refused.
    Phantom(u64),
    /// There is a message without a number.
    Unreadable,
    /// A message is there, but not as it was sent.
    Damaged(u64),
    /// A message is there twice.
    Doubled(u64),
    /// Two have taken a message at the same time.
    TakenTwice(u64),
    /// A delivery was forgotten: the count of a message went down, or stood still.
    Miscounted(u64),
    /// Files that were messages, or should have become some, were set aside.
    SetAside(u64),
    /// A second send with a known idempotency key was taken for a first one (I1).
    KeyForgotten(u64),
    /// Something that was begun after a failure was reported was answered all the same.
    LateAnswer(u64),
    /// A message came so far behind later ones of its producer.
    OutOfOrder(u64),
    /// Messages came again this often, although only so many were in flight.
    Repeated(u64, u64),
    /// The home did not open.
    RefusedOpen(String),
    /// A call gave an error that it should not give.
    Failure(String),
    /// Something did not end in time.
    Stuck(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(number) => write!(f, "message {number} is lost"),
            Self::BackAgain(number) => write!(f, "message {number} was deleted and is back"),
            Self::Phantom(number) => write!(f, "message {number} was never sent"),
            Self::Unreadable => write!(f, "a message has no number"),
            Self::Damaged(number) => write!(f, "message {number} is not what was sent"),
            Self::Doubled(number) => write!(f, "message {number} is there twice"),
            Self::TakenTwice(number) => write!(f, "message {number} was taken twice at once"),
            Self::Miscounted(number) => {
                write!(f, "a delivery of message {number} was not counted")
            }
            Self::SetAside(files) => write!(f, "{files} files were set aside"),
            Self::KeyForgotten(number) => write!(f, "the key of message {number} is forgotten"),
            Self::LateAnswer(number) => {
                write!(f, "message {number} was answered although the home had failed")
            }
            Self::OutOfOrder(depth) => write!(f, "a message came {depth} places too late"),
            Self::Repeated(times, in_flight) => {
                write!(f, "{times} messages came again, and {in_flight} were in flight")
            }
            Self::RefusedOpen(why) => write!(f, "it did not open: {why}"),
            Self::Failure(what) => write!(f, "unexpected: {what}"),
            Self::Stuck(what) => write!(f, "not in time: {what}"),
        }
    }
}

/// Violations of one experiment, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// [`Violation::Lost`].
    pub(crate) lost: u64,
    /// [`Violation::BackAgain`].
    pub(crate) back_again: u64,
    /// [`Violation::Phantom`] and [`Violation::Unreadable`].
    pub(crate) phantom: u64,
    /// [`Violation::RefusedOpen`].
    pub(crate) refused_opens: u64,
    /// [`Violation::Doubled`] and [`Violation::TakenTwice`].
    pub(crate) doubled: u64,
    /// [`Violation::Miscounted`].
    pub(crate) miscounted: u64,
    /// All others.
    pub(crate) other: u64,
}

impl Tally {
    /// Counts one.
    pub(crate) fn add(&mut self, violation: &Violation) {
        match violation {
            Violation::Lost(_) => self.lost += 1,
            Violation::BackAgain(_) => self.back_again += 1,
            Violation::Phantom(_) | Violation::Unreadable => self.phantom += 1,
            Violation::RefusedOpen(_) => self.refused_opens += 1,
            Violation::Doubled(_) | Violation::TakenTwice(_) => self.doubled += 1,
            Violation::Miscounted(_) => self.miscounted += 1,
            _ => self.other += 1,
        }
    }
}
