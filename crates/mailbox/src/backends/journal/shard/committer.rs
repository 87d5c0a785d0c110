//! Writes batches, one after the other, on a thread of its own. Invariant: a batch is written only
//! after the one before it is on the disk, so that recovery can tell a torn batch from damage; a
//! failed write or sync is never tried again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backends::journal::planted::planted;
use crate::backends::journal::shard::Shard;
use crate::backends::journal::shard::log::{Batch, Part, position};
use crate::durability::Durability;

/// How long records wait for others that nobody waits for.
const LAZY: Duration = Duration::from_millis(5);

pub(super) fn run(shard: &Arc<Shard>) {
    while wait_for_work(shard) {
        while write_next(shard) {}
    }
}

/// False when there is nothing to write and never will be.
fn wait_for_work(shard: &Shard) -> bool {
    let mut log = shard.log.lock();
    let mut lazy_until = None;
    loop {
        if log.failed.is_some() || log.stop && log.is_empty() {
            return false;
        }
        if log.urgent || log.stop || log.has_closed_batch() {
            return true;
        }
        if log.is_empty() {
            lazy_until = None;
            shard.work.wait(&mut log);
            continue;
        }
        let until = *lazy_until.get_or_insert_with(|| Instant::now() + LAZY);
        if shard.work.wait_until(&mut log, until).timed_out() {
            return true;
        }
    }
}

/// Writes the oldest batch; false if there is none, or it failed.
pub(super) fn write_next(shard: &Shard) -> bool {
    let Some(batch) = shard.log.lock().take() else { return false };
    if planted!(shard.workshop.planted, AnswerBeforeSync) {
        batch.commit.finish(Ok(()));
    }
    if let Err((what, error)) = write(shard, &batch) {
        shard.fail(what, &batch.segment.path, error);
        return false;
    }
    shard.durable.store(position(batch.segment.number, batch.end), Ordering::Release);
    shard.log.lock().written();
    batch.commit.finish(Ok(()));
    if batch.seals {
        shard.ask_for_care();
    }
    true
}

fn write(shard: &Shard, batch: &Batch) -> Result<(), (&'static str, io::Error)> {
    let mut at = u64::from(batch.offset);
    for part in &batch.parts {
        let (bytes, padding) = match part {
            Part::Records(bytes) => (bytes, 0),
            Part::Letter(letter, padding) => (&letter.bytes, *padding),
        };
        batch.segment.file.write_at(bytes, at).map_err(|error| ("writing to", error))?;
        at += (bytes.len() + padding) as u64;
    }
    debug_assert_eq!(at, u64::from(batch.end), "a batch has the length of its parts");
    // A sealed segment is on the disk whatever was promised: only the last one can be torn then.
    if shard.durability != Durability::Fsync && !batch.seals {
        return Ok(());
    }
    if planted!(shard.workshop.planted, EarlyBatch) && batch.id % 2 == 1 && !batch.seals {
        return Ok(());
    }
    match batch.segment.file.sync() {
        Err(_) if planted!(shard.workshop.planted, SyncFailureIgnored) => Ok(()),
        synced => synced.map_err(|error| ("syncing", error)),
    }
}
