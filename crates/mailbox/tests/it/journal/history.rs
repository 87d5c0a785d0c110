//! What was tried and what was answered, in the order in which it happened. Invariant: a try is
//! noted before the call, an answer after it. So whoever copies the length of the history before
//! looking at the disk, and again after, knows: all answers before the first length must hold
//! there, and nothing can be there that was not tried before the second.

use mailbox::MessageId;
use parking_lot::Mutex;

/// A message, by the number that is in its payload.
pub(super) type Tag = u32;

/// One thing that was tried or answered. `mailbox` is a number in [`super::workload::MAILBOXES`].
#[derive(Debug, Clone)]
pub(super) enum Note {
    /// A step begins: everything of the steps before it was answered.
    Step,
    Sending {
        mailbox: usize,
        tag: Tag,
    },
    Sent {
        tag: Tag,
        id: MessageId,
    },
    /// Refused, for certain.
    NotSent {
        tag: Tag,
    },
    Receiving {
        mailbox: usize,
    },
    Received {
        tag: Tag,
        handle: String,
    },
    /// The receive that began last has ended.
    ReceiveOver {
        mailbox: usize,
    },
    Settling {
        tag: Tag,
        how: Settle,
    },
    Settled {
        tag: Tag,
        how: Settle,
    },
    /// The handle was too old: nothing happened.
    NotSettled {
        tag: Tag,
    },
    Purging {
        mailbox: usize,
    },
    Purged {
        mailbox: usize,
    },
    Redriving {
        mailbox: usize,
    },
    Redriven {
        mailbox: usize,
    },
    Discarding {
        mailbox: usize,
    },
    Discarded {
        mailbox: usize,
    },
    Configuring {
        mailbox: usize,
        version: u64,
    },
    Configured {
        mailbox: usize,
        version: u64,
    },
    Removing {
        mailbox: usize,
    },
    Removed {
        mailbox: usize,
    },
    /// The power was cut: deliveries that had not to be on the disk may be forgotten.
    Crashed,
}

/// Which verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settle {
    Acknowledge,
    Nack,
    Extend,
    Reject,
}

/// What happened, shared by all who make it happen and look at it.
#[derive(Debug, Default)]
pub(super) struct History {
    notes: Mutex<Vec<Note>>,
}

impl History {
    pub(super) fn note(&self, note: Note) {
        self.notes.lock().push(note);
    }

    pub(super) fn len(&self) -> usize {
        self.notes.lock().len()
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        self.notes.lock().clone()
    }
}
