//! A message, and a queue, as they stand: what a journal writes when it wants to forget how they
//! came there. Invariant: restoring what was taken gives a queue that answers every question alike.

use std::sync::Arc;

use crate::event::DeadReason;
use crate::ids::{Id, Key, LeaseId};
use crate::policy::Policy;
use crate::stats::Totals;
use crate::time::Time;

/// A message as it stands, without its past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keepsake<P> {
    /// Where it lives.
    pub key: Key,
    /// Its identity.
    pub id: Id,
    /// What stands for its payload.
    pub payload: P,
    /// Receivable from then on.
    pub due: Time,
    /// Its number among those with the same due time; a dead letter's in the order of dying.
    pub stamp: u64,
    /// Due time and number of the place that it was last delivered from.
    pub turn: (Time, u64),
    /// When it was sent or redriven.
    pub entered: Time,
    /// Its number in the order of entering.
    pub order: u64,
    /// How far its delivery can be extended.
    pub hold_until: Time,
    /// The last delivery, as long as it has not been settled.
    pub lease: Option<LeaseId>,
    /// Deliveries so far.
    pub attempts: u32,
    /// Its ordering group.
    pub group: Option<Arc<str>>,
    /// What the last nack or rejection said.
    pub last_error: Option<Box<str>>,
    /// How it died, if it is a dead letter.
    pub death: Option<(DeadReason, Time)>,
}

impl<P> Keepsake<P> {
    /// The same message, with something else to stand for its payload.
    #[must_use]
    pub fn with_payload<Q>(self, payload: Q) -> Keepsake<Q> {
        Keepsake {
            payload,
            key: self.key,
            id: self.id,
            due: self.due,
            stamp: self.stamp,
            turn: self.turn,
            entered: self.entered,
            order: self.order,
            hold_until: self.hold_until,
            lease: self.lease,
            attempts: self.attempts,
            group: self.group,
            last_error: self.last_error,
            death: self.death,
        }
    }
}

/// What a queue knows besides its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its rules.
    pub policy: Policy,
    /// The sequence number of the next message.
    pub next_seq: u64,
    /// The next number for a place in the line.
    pub next_stamp: u64,
    /// The next lease.
    pub next_lease: LeaseId,
    /// The latest time it has seen.
    pub latest: Time,
    /// What has happened to it.
    pub totals: Totals,
}
