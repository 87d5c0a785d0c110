//! Makes segments ahead of need and takes back the space of old ones, on a thread of its own.
//! Invariant: an old segment goes away only after everything in it that still matters has been
//! written again and is on the disk, and only the oldest one does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backends::journal::shard::segment::{Segment, is_full};
use crate::backends::journal::shard::{RESERVE, Shard, compact};

/// How often a full disk is looked at again.
const FULL_RETRY: Duration = Duration::from_millis(500);

pub(super) fn run(shard: &Arc<Shard>) {
    let mut idle = Vec::new();
    let mut try_again = Instant::now();
    let mut make = |idle: &mut Vec<Arc<Segment>>| {
        // A full file system takes its time to say so: not for every message that is settled.
        let is_full = shard.is_full.load(Ordering::Relaxed);
        if is_full && idle.is_empty() && Instant::now() < try_again {
            return false;
        }
        try_again = Instant::now() + FULL_RETRY;
        make_spares(shard, idle)
    };
    while !shard.care.stop.load(Ordering::Acquire) {
        shard.care.asked.store(false, Ordering::Release);
        shard.forget_keys();
        let mut made = make(&mut idle);
        let compacted = compact::oldest_if_wasteful(shard, &mut idle);
        if compacted {
            // What was emptied is the next spare, if one more is of any use.
            made = make(&mut idle);
        }
        trim_spares(shard, &mut idle);
        shard.space.notify_waiters();
        if !compacted {
            wait(shard, (!made).then_some(FULL_RETRY));
        }
    }
}

fn wait(shard: &Shard, at_most: Option<Duration>) {
    let mut guard = shard.care.lock.lock();
    if shard.care.asked.load(Ordering::Acquire) || shard.care.stop.load(Ordering::Acquire) {
        return;
    }
    match at_most {
        None => shard.care.wake.wait(&mut guard),
        Some(at_most) => {
            shard.care.wake.wait_for(&mut guard, at_most);
        }
    }
}

/// How many spares there should be: the reserve, and one more as soon as the present segment may
/// not take the next record.
fn wanted(shard: &Shard) -> usize {
    let log = shard.log.lock();
    let soon = usize::from(log.is_running_out());
    shard.spare_segments.max(RESERVE) as usize + soon
}

/// Makes what is missing; false if the disk has no space for it. `idle` are segments that nobody
/// needs any more.
pub(super) fn make_spares(shard: &Shard, idle: &mut Vec<Arc<Segment>>) -> bool {
    while !shard.care.stop.load(Ordering::Acquire) {
        let (have, number) = {
            let log = shard.log.lock();
            if log.failed.is_some() {
                return true;
            }
            let last = log.spares.back().unwrap_or(&log.segment).number;
            (log.spares.len(), last + 1)
        };
        if have >= wanted(shard) + usize::from(!idle.is_empty()) {
            shard.log.lock().full = None;
            shard.is_full.store(false, Ordering::Relaxed);
            return true;
        }
        let made = match idle.pop() {
            // Somebody may be reading from it: then its blocks are not ours to write to yet.
            Some(old) if Arc::strong_count(&old) == 1 && old.len == shard.workshop.segment_len => {
                shard.workshop.recycle(&old.path, number)
            }
            Some(old) => {
                remove(shard, &old);
                continue;
            }
            None => shard.workshop.make(number),
        };
        match made {
            Ok(segment) => shard.log.lock().spares.push_back(Arc::new(segment)),
            Err(error) if !is_full(&error) => {
                shard.fail("making a segment in", &shard.workshop.dir, error);
                return true;
            }
            Err(error) => {
                let why = format!("no space for another segment ({error})");
                tracing::warn!(path = %shard.workshop.dir.display(), "{why}");
                shard.log.lock().full = Some(why);
                shard.is_full.store(true, Ordering::Relaxed);
                shard.space.notify_waiters();
                return false;
            }
        }
        shard.space.notify_waiters();
    }
    true
}

/// Gives back what is not needed as a spare.
fn trim_spares(shard: &Shard, idle: &mut Vec<Arc<Segment>>) {
    for old in idle.drain(..) {
        remove(shard, &old);
    }
    let surplus = {
        let wanted = wanted(shard) + 1;
        let mut log = shard.log.lock();
        let keep = log.spares.len().min(wanted);
        log.spares.split_off(keep)
    };
    for spare in surplus.iter().rev() {
        remove(shard, spare);
    }
}

fn remove(shard: &Shard, segment: &Segment) {
    if let Err(error) = shard.workshop.disk.remove(&segment.path) {
        // It is found again, and removed, at the next open.
        tracing::warn!(path = %segment.path.display(), %error, "cannot remove a segment");
    }
}
