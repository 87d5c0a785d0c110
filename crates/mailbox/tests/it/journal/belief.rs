//! What follows from a history: what must be there, what may be, what must not. Invariant: whatever
//! is in doubt widens what is allowed, never what is asked for.

use std::collections::{BTreeMap, BTreeSet};

use mailbox::MessageId;

use super::history::{Note, Settle, Tag};
use super::workload::{ATTEMPTS, LIMITED, key_of};

/// What is known about a message.
#[derive(Debug, Clone)]
pub(super) struct Fate {
    pub(super) mailbox: usize,
    pub(super) keyed: bool,
    pub(super) id: Option<MessageId>,
    /// Must be there, unless something may have removed it.
    pub(super) is_sent: bool,
    /// An acknowledgement is under way, or in doubt.
    is_acking: bool,
    /// Something else may have removed it.
    is_doubtful: bool,
    /// Must not be there.
    pub(super) is_gone: bool,
    pub(super) may_be_dead: bool,
    pub(super) may_be_live: bool,
    /// Deliveries that were answered.
    deliveries: u32,
    /// Those that do not count any more: it was redriven, or a power cut took them.
    forgotten: u32,
    /// Of those that count: how many before the present step, and how many must be on the disk
    /// because something that came later is.
    before_step: u32,
    durable: u32,
}

impl Fate {
    fn new(mailbox: usize, keyed: bool) -> Self {
        Self {
            mailbox,
            keyed,
            id: None,
            is_sent: false,
            is_acking: false,
            is_doubtful: false,
            is_gone: false,
            may_be_dead: false,
            may_be_live: true,
            deliveries: 0,
            forgotten: 0,
            before_step: 0,
            durable: 0,
        }
    }

    /// Whether it has to be there, alive or dead.
    pub(super) fn must_be_there(&self) -> bool {
        self.is_sent && !self.is_acking && !self.is_doubtful && !self.is_gone
    }

    /// Its delivery count is at least this.
    pub(super) fn least_count(&self) -> u32 {
        self.durable
    }
}

/// What is known about a mailbox.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules {
    /// The version of its rules is between these.
    pub(super) least: u64,
    pub(super) most: u64,
    /// A receive has begun, and may have delivered anything.
    is_receiving: bool,
}

/// What must hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Belief {
    pub(super) messages: BTreeMap<Tag, Fate>,
    pub(super) mailboxes: BTreeMap<usize, Rules>,
    pub(super) handles: BTreeSet<String>,
}

impl Belief {
    /// Takes in what happened before the disk was looked at.
    pub(super) fn learn(&mut self, note: &Note) {
        self.allow(note);
        match note {
            Note::Step => {
                for fate in self.messages.values_mut() {
                    fate.before_step = fate.deliveries - fate.forgotten;
                }
            }
            Note::Sent { tag, id } => {
                let fate = self.fate(*tag);
                fate.is_sent = true;
                fate.id = Some(id.clone());
                let mailbox = fate.mailbox;
                self.is_durable(mailbox);
            }
            Note::NotSent { tag } => self.fate(*tag).is_gone = true,
            // Nobody gets what is not on the disk.
            Note::Received { tag, .. } => self.fate(*tag).is_sent = true,
            Note::ReceiveOver { mailbox } => self.rules(*mailbox).is_receiving = false,
            Note::Settled { tag, how } => {
                let fate = self.fate(*tag);
                fate.is_gone |= *how == Settle::Acknowledge;
                fate.may_be_live &= *how != Settle::Reject;
                let mailbox = fate.mailbox;
                self.is_durable(mailbox);
            }
            Note::NotSettled { tag } => self.fate(*tag).is_acking = false,
            Note::Purged { mailbox } => {
                self.each(*mailbox, |fate| fate.is_gone |= fate.is_sent && !fate.may_be_dead);
                self.is_durable(*mailbox);
            }
            Note::Discarded { mailbox } => {
                self.each(*mailbox, |fate| fate.is_gone |= fate.is_sent && !fate.may_be_live);
                self.is_durable(*mailbox);
            }
            Note::Redriven { mailbox } => self.is_durable(*mailbox),
            Note::Configured { mailbox, version } => {
                self.rules(*mailbox).least = *version;
                self.is_durable(*mailbox);
            }
            Note::Removed { mailbox } => {
                self.each(*mailbox, |fate| {
                    fate.is_gone |= fate.is_sent;
                    fate.keyed = false;
                });
                *self.rules(*mailbox) = Rules::default();
            }
            Note::Crashed => {
                for fate in self.messages.values_mut() {
                    fate.forgotten = fate.deliveries - fate.durable;
                }
            }
            _ => {}
        }
    }

    /// Takes in what happened while the disk was being looked at: only tries matter.
    pub(super) fn allow(&mut self, note: &Note) {
        match note {
            Note::Sending { mailbox, tag } => {
                let keyed = key_of(*tag).is_some();
                self.messages.insert(*tag, Fate::new(*mailbox, keyed));
                self.rules(*mailbox);
            }
            Note::Receiving { mailbox } => self.rules(*mailbox).is_receiving = true,
            Note::Received { tag, handle } => {
                self.handles.insert(handle.clone());
                let fate = self.fate(*tag);
                fate.deliveries += 1;
                let counted = fate.deliveries - fate.forgotten;
                fate.may_be_dead |= fate.mailbox == LIMITED && counted >= ATTEMPTS;
            }
            Note::Settling { tag, how: Settle::Acknowledge } => self.fate(*tag).is_acking = true,
            Note::Settling { tag, how: Settle::Reject } => self.fate(*tag).may_be_dead = true,
            Note::Purging { mailbox } => {
                self.each(*mailbox, |fate| fate.is_doubtful |= fate.may_be_live);
            }
            Note::Discarding { mailbox } => {
                self.each(*mailbox, |fate| fate.is_doubtful |= fate.may_be_dead);
            }
            Note::Redriving { mailbox } => self.each(*mailbox, |fate| {
                if fate.may_be_dead {
                    fate.may_be_live = true;
                    (fate.forgotten, fate.before_step, fate.durable) = (fate.deliveries, 0, 0);
                }
            }),
            Note::Configuring { mailbox, version } => self.rules(*mailbox).most = *version,
            Note::Removing { mailbox } => {
                self.each(*mailbox, |fate| fate.is_doubtful = true);
                self.rules(*mailbox).least = 0;
            }
            _ => {}
        }
    }

    /// A message's delivery count is at most this.
    pub(super) fn most_count(&self, fate: &Fate) -> u32 {
        let receiving = self.mailboxes.get(&fate.mailbox).is_some_and(|it| it.is_receiving);
        fate.deliveries + u32::from(receiving)
    }

    /// Something about a mailbox is on the disk, and so is everything before this step.
    fn is_durable(&mut self, mailbox: usize) {
        self.each(mailbox, |fate| fate.durable = fate.durable.max(fate.before_step));
    }

    fn each(&mut self, mailbox: usize, mut change: impl FnMut(&mut Fate)) {
        self.messages.values_mut().filter(|fate| fate.mailbox == mailbox).for_each(&mut change);
    }

    fn fate(&mut self, tag: Tag) -> &mut Fate {
        self.messages.get_mut(&tag).expect("it was sent before")
    }

    fn rules(&mut self, mailbox: usize) -> &mut Rules {
        self.mailboxes.entry(mailbox).or_default()
    }
}
