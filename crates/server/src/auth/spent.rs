//! How much in all. Invariant: what is counted never exceeds what is allowed, and is given back
//! only if nothing was done for it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use mailbox_wire::capability::{Grant, Quotas};

/// When a capability expires that does not.
const FOR_EVER: i64 = i64::MAX;

/// It is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UsedUp;

/// What one capability has used in all.
#[derive(Debug, Default)]
pub(super) struct Spent {
    ops: AtomicU64,
    bytes: AtomicU64,
    /// When the last of those that were made from it expires, in milliseconds of wall time.
    until: AtomicI64,
}

impl Spent {
    /// One with this grant uses it too.
    pub(super) fn note(&self, grant: &Grant) {
        // That of what it was narrowed from: others can be narrowed from that as well.
        let until = grant.last_expiry().map_or(FOR_EVER, |at| at.unix_ms());
        self.until.fetch_max(until, Ordering::Relaxed);
    }

    /// Whether nobody can use it any more.
    pub(super) fn is_over(&self, now_ms: i64) -> bool {
        self.until.load(Ordering::Relaxed) <= now_ms
    }

    pub(super) fn add(&self, ops: u64, bytes: u64, quotas: Quotas) -> Result<(), UsedUp> {
        add(&self.ops, ops, quotas.ops)?;
        let added = add(&self.bytes, bytes, quotas.bytes);
        if added.is_err() {
            subtract(&self.ops, ops);
        }
        added
    }

    /// It was done already, whether it was allowed or not.
    pub(super) fn count(&self, ops: u64, bytes: u64) {
        let _ = add(&self.ops, ops, None);
        let _ = add(&self.bytes, bytes, None);
    }

    /// Nothing was done for it.
    pub(super) fn give_back(&self, ops: u64, bytes: u64) {
        subtract(&self.ops, ops);
        subtract(&self.bytes, bytes);
    }

    /// What is left: operations, and bytes.
    pub(super) fn left(&self, quotas: Quotas) -> (u64, u64) {
        let left = |most: Option<u64>, count: &AtomicU64| {
            most.map_or(u64::MAX, |most| most.saturating_sub(count.load(Ordering::Relaxed)))
        };
        (left(quotas.ops, &self.ops), left(quotas.bytes, &self.bytes))
    }

    /// What is left is too little for anything: it is nothing from now on.
    pub(super) fn use_up(&self, quotas: Quotas) {
        if let Some(most) = quotas.bytes {
            self.bytes.fetch_max(most, Ordering::Relaxed);
        }
    }
}

/// Adds to a count unless that would be more than allowed.
fn add(count: &AtomicU64, more: u64, most: Option<u64>) -> Result<(), UsedUp> {
    let within = |so_far: u64| {
        let sum = so_far.saturating_add(more);
        most.is_none_or(|most| sum <= most).then_some(sum)
    };
    let added = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
    added.map(drop).map_err(|_| UsedUp)
}

fn subtract(count: &AtomicU64, less: u64) {
    let less = |so_far: u64| Some(so_far.saturating_sub(less));
    let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}
