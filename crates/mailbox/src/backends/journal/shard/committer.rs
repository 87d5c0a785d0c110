//! Writes batches, one after the other, on a thread of its own. Invariant: a batch is written only
//! after the one before it is on the disk, so that recovery can tell a torn batch from damage; a
//! failed write or sync is never tried again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backends::journal::planted::Bug;
use crate::backends::journal::shard::Shard;
use crate::backends::journal::shard::log::{Batch, Part, position};
use crate::durability::Durability;

/// How long records wait for others that nobody waits for.
const LAZY: Duration = Duration::from_millis(5);

/// How long the next one may take of those who have just been answered and are likely to come back:
/// a sync takes several times that, and one with all of them is worth two with half of them each.
const COMING_BACK: Duration = Duration::from_micros(40);
/// How long all of them may take.
const ALL_BACK: Duration = Duration::from_micros(500);
/// Batches that nobody is expected for after some did not come back.
const NOT_EXPECTED: u32 = 16;

pub(super) fn run(shard: &Arc<Shard>) {
    let mut regulars = Regulars::default();
    while wait_for_work(shard) {
        regulars.wait_for(shard);
        while let Some(answered) = write_next(shard) {
            regulars.expect(answered);
            if shard.log.lock().is_empty() {
                break;
            }
            regulars.wait_for(shard);
        }
    }
}

/// Those who wait for one record after the other.
#[derive(Debug, Default)]
struct Regulars {
    /// How many have been answered last.
    answered: u32,
    /// Batches to be written before any are expected again.
    disappointed: u32,
}

impl Regulars {
    fn expect(&mut self, answered: u32) {
        self.answered = answered;
        self.disappointed = self.disappointed.saturating_sub(1);
    }

    /// Gives those who were just answered a moment to come back, if there were several.
    fn wait_for(&mut self, shard: &Shard) {
        let expected = std::mem::take(&mut self.answered);
        if expected < 2 || self.disappointed > 0 {
            return;
        }
        let started = Instant::now();
        let (mut come, mut last_came) = (0, started);
        loop {
            let now = Instant::now();
            {
                let log = shard.log.lock();
                if log.awaited >= expected || log.has_closed_batch() || log.stop {
                    return;
                }
                if log.awaited > come {
                    (come, last_came) = (log.awaited, now);
                }
            }
            if now - last_came >= COMING_BACK || now - started >= ALL_BACK {
                self.disappointed = NOT_EXPECTED;
                return;
            }
            std::thread::yield_now();
        }
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

/// Writes the oldest batch; how many were waiting for it, or `None` if there is none, or it failed.
pub(super) fn write_next(shard: &Shard) -> Option<u32> {
    let batch = shard.log.lock().take()?;
    if shard.workshop.planted.has(Bug::AnswerBeforeSync) {
        batch.commit.finish(Ok(()));
    }
    if let Err((what, error)) = write(shard, &batch) {
        shard.fail(what, &batch.segment.path, error);
        return None;
    }
    shard.durable.store(position(batch.segment.number, batch.end), Ordering::Release);
    shard.log.lock().written();
    batch.commit.finish(Ok(()));
    if batch.seals {
        shard.ask_for_care();
    }
    Some(batch.awaited)
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
    if shard.workshop.planted.has(Bug::EarlyBatch) && batch.id % 2 == 1 && !batch.seals {
        return Ok(());
    }
    let started = Instant::now();
    let synced = batch.segment.file.sync();
    shard.syncs.note(started.elapsed());
    match synced {
        Err(_) if shard.workshop.planted.has(Bug::SyncFailureIgnored) => Ok(()),
        synced => synced.map_err(|error| ("syncing", error)),
    }
}
