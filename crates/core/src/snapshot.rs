//! A queue's state as plain, comparable data: what a replay must reproduce.

use crate::dedup::Known;
use crate::entry::Entry;
use crate::ids::{Id, LeaseId};
use crate::policy::Policy;
use crate::queue::Queue;
use crate::slab::NONE;
use crate::stats::Totals;
use crate::time::Time;

/// Everything a queue will ever let anybody observe. Two queues with equal snapshots answer every
/// question alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<P> {
    policy: Policy,
    live: Vec<Shot<P>>,
    dead: Vec<Shot<P>>,
    dedup: Vec<(String, Known)>,
    next: (u64, u64, LeaseId),
    latest: Time,
    totals: Totals,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Shot<P> {
    slot: u32,
    seq: u64,
    id: Id,
    payload: P,
    due: Time,
    stamp: u64,
    turn: (Time, u64),
    entered: Time,
    order: u64,
    hold_until: Time,
    lease: Option<LeaseId>,
    attempts: u32,
    group: Option<String>,
    behind: u32,
    trouble: String,
}

impl<P: Clone> Queue<P> {
    /// The state as data. Costs the whole queue.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<P> {
        let shot = |(slot, entry): (u32, &Entry<P>)| Shot {
            slot,
            seq: entry.seq,
            id: entry.id,
            payload: entry.payload().clone(),
            due: entry.due,
            stamp: entry.stamp,
            turn: entry.turn,
            entered: entry.entered,
            order: entry.order,
            hold_until: entry.hold_until,
            lease: entry.lease,
            attempts: entry.attempts,
            group: (entry.group != NONE)
                .then(|| self.groups.key(entry.group).map(ToString::to_string))
                .flatten(),
            behind: entry.behind,
            trouble: format!("{:?}", entry.trouble),
        };
        Snapshot {
            policy: self.policy.clone(),
            live: self.live.iter(&self.slab).map(shot).collect(),
            dead: self.dead.iter(&self.slab).map(shot).collect(),
            dedup: self
                .dedup
                .sorted(self.latest)
                .into_iter()
                .map(|(key, known)| (key.to_string(), known))
                .collect(),
            next: (self.next_seq, self.next_stamp, self.next_lease),
            latest: self.latest,
            totals: self.totals,
        }
    }
}
