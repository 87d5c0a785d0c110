//! One message as the queue keeps it, and as it shows it.

use std::sync::Arc;

use crate::event::DeadReason;
use crate::ids::{Id, Key, LeaseId};
use crate::line::Place;
use crate::list::Links;
use crate::queue::NO_STAMP;
use crate::slab::NONE;
use crate::time::Time;

/// What the queue knows about a message. Kept small: this is most of the index.
#[derive(Debug, Clone)]
pub(crate) struct Entry<P> {
    /// None only in the moment in which the message leaves.
    pub(crate) payload: Option<P>,
    pub(crate) id: Id,
    pub(crate) seq: u64,
    /// Receivable from then on. Means nothing for a dead letter.
    pub(crate) due: Time,
    /// Which place in the line is current; a dead letter's number in the order of dying.
    pub(crate) stamp: u64,
    /// Due time and stamp of the place it was last delivered from: an undone delivery goes there.
    pub(crate) turn: (Time, u64),
    /// When it was sent or redriven: decides age.
    pub(crate) entered: Time,
    /// Its number in the order of entering, which is that of its list and of its group.
    pub(crate) order: u64,
    /// How far its delivery can be extended.
    pub(crate) hold_until: Time,
    /// The last delivery, as long as it has not been settled.
    pub(crate) lease: Option<LeaseId>,
    pub(crate) links: Links,
    pub(crate) attempts: u32,
    /// Its ordering group, or `slab::NONE`.
    pub(crate) group: u32,
    /// The next message of its group.
    pub(crate) behind: u32,
    /// Its place in the line is in the part that waits for a later time.
    pub(crate) held: bool,
    pub(crate) trouble: Option<Box<Trouble>>,
}

/// What went wrong with a message; most never have any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) last_error: Option<Box<str>>,
    pub(crate) death: Option<(DeadReason, Time)>,
    /// The ordering group a dead letter goes back to when it is redriven.
    pub(crate) group: Option<Arc<str>>,
}

/// Where a message is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not receivable yet.
    Delayed,
    /// Receivable, or waiting behind the head of its ordering group.
    Ready,
    /// Handed out, deadline not passed.
    Invisible,
    /// A dead letter.
    Dead,
}

/// A message, seen without touching it.
#[derive(Debug)]
pub struct View<'a, P> {
    /// Where it lives.
    pub key: Key,
    /// Its identity.
    pub id: Id,
    /// What stands for its payload.
    pub payload: &'a P,
    /// Where it is in its life.
    pub phase: Phase,
    /// Deliveries so far.
    pub attempts: u32,
    /// When it becomes receivable, its group permitting; in the past if it is.
    pub due: Time,
    /// When it was sent, or redriven.
    pub entered: Time,
    /// The delivery it is out on, until settled or delivered again.
    pub lease: Option<LeaseId>,
    /// What the last nack or rejection said.
    pub last_error: Option<&'a str>,
    /// Set for dead letters.
    pub dead: Option<DeadLetter>,
}

/// How a message died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetter {
    /// Why.
    pub reason: DeadReason,
    /// When.
    pub at: Time,
    /// Its number in the order of dying; a cursor for listing.
    pub order: u64,
}

impl<P> Entry<P> {
    /// A message as it is sent; in no list and no line yet.
    #[inline(always)]
    pub(crate) const fn sent(payload: P, id: Id, seq: u64, at: Time, due: Time) -> Self {
        Self {
            payload: Some(payload),
            id,
            seq,
            due,
            stamp: NO_STAMP,
            turn: (due, NO_STAMP),
            entered: at,
            order: NO_STAMP,
            hold_until: Time::MAX,
            lease: None,
            links: Links::NONE,
            attempts: 0,
            group: NONE,
            behind: NONE,
            held: false,
            trouble: None,
        }
    }

    pub(crate) const fn payload(&self) -> &P {
        self.payload.as_ref().expect("it leaves only with its message")
    }

    pub(crate) fn death(&self) -> Option<(DeadReason, Time)> {
        self.trouble.as_ref().and_then(|trouble| trouble.death)
    }

    /// Whether `place`, in this message's slot, is its current one.
    pub(crate) const fn is_at(&self, place: &Place) -> bool {
        self.stamp == place.stamp
    }

    /// `behind`: whether another message of its group is before it. Its own delay, if it has one,
    /// counts only when its turn has come, as in [`crate::Stats`].
    pub(crate) fn phase(&self, now: Time, behind: bool) -> Phase {
        if self.death().is_some() {
            Phase::Dead
        } else if behind || self.due <= now {
            Phase::Ready
        } else if self.lease.is_some() {
            Phase::Invisible
        } else {
            Phase::Delayed
        }
    }

    pub(crate) fn view(&self, slot: u32, now: Time, behind: bool) -> View<'_, P> {
        View {
            key: Key { seq: self.seq, slot },
            id: self.id,
            payload: self.payload(),
            phase: self.phase(now, behind),
            attempts: self.attempts,
            due: self.due,
            entered: self.entered,
            lease: self.lease,
            last_error: self.trouble.as_ref().and_then(|trouble| trouble.last_error.as_deref()),
            dead: self.death().map(|(reason, at)| DeadLetter { reason, at, order: self.stamp }),
        }
    }
}
