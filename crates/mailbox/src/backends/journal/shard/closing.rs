//! A clean stop, and the index that makes the next open quick. Invariant: the index says behind
//! which record it was taken; it is used only if that record is there, says that the journal was
//! closed, and nothing follows it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mailbox_core::Idempotency;

use crate::backends::journal::format::Flaw;
use crate::backends::journal::format::event::Remembered;
use crate::backends::journal::format::fact::Opened;
use crate::backends::journal::format::index::{IndexHead, IndexReader, IndexWriter, Item};
use crate::backends::journal::format::record::{self, Kind, record_len};
use crate::backends::journal::format::segment::DATA_START;
use crate::backends::journal::planted::Bug;
use crate::backends::journal::shard::log::Entry;
use crate::backends::journal::shard::recover::{Files, LogEnd, io_error, missing_segment};
use crate::backends::journal::shard::replay::Replay;
use crate::backends::journal::shard::segment::{UNFINISHED, Workshop, read_all};
use crate::backends::journal::shard::{Denied, JournalRoom, Shard};
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};

/// The name of the index.
const INDEX: &str = "index";

impl Shard {
    /// Ends it: writes what waits, an index, and that it was closed. Nobody may append any more.
    /// Blocks until its threads have ended.
    pub(crate) fn close(&self) -> Result<()> {
        self.stop_caring();
        let closed = self.write_closing();
        self.stop_writing();
        self.lock.lock().take();
        closed
    }

    /// Ends its threads as they are, with what waits written and nothing else. Does not block.
    pub(crate) fn abandon(&self) {
        self.care.stop.store(true, Ordering::Release);
        self.ask_for_care();
        let mut log = self.log.lock();
        log.stop = true;
        self.work.notify_one();
        drop(log);
        self.space.notify_waiters();
    }

    fn stop_caring(&self) {
        self.care.stop.store(true, Ordering::Release);
        self.care.asked.store(false, Ordering::Release);
        self.ask_for_care();
        let caretaker = self.threads.lock().pop();
        if let Some(thread) = caretaker {
            // It has logged what went wrong, if anything did.
            let _ = thread.join();
        }
    }

    fn stop_writing(&self) {
        {
            let mut log = self.log.lock();
            log.stop = true;
            self.work.notify_one();
        }
        self.space.notify_waiters();
        let committer = self.threads.lock().pop();
        if let Some(thread) = committer {
            let _ = thread.join();
        }
    }

    fn write_closing(&self) -> Result<()> {
        if let Some(commit) = self.so_far() {
            commit.wait_here()?;
        }
        let fact = self.opened_fact();
        let entry = Entry { mailbox: 0, kind: Kind::Closed, fact: &fact, letter: None };
        let head = {
            let mut log = self.log.lock();
            if let Some(error) = &log.failed {
                return Err(error.clone());
            }
            if !log.fits_own(entry.len()) {
                self.roll(&mut log).map_err(denied)?;
            }
            IndexHead {
                journal: self.workshop.journal,
                shard: self.workshop.shard,
                segment: log.segment.number,
                end: log.offset + u32::try_from(entry.len()).unwrap_or(u32::MAX),
                last_lsn: log.next_lsn,
                last_batch: log.batch_for(entry.len()),
                first_segment: self.first_segment.load(Ordering::Relaxed),
                rooms: 0,
            }
        };
        if let Err(error) = self.write_index(head) {
            // The next open reads everything instead: slower, and just as good.
            tracing::warn!(%error, "no index could be written");
        }
        let (_, commit) = self.append(entry, super::Use::Own).map_err(denied)?;
        commit.wait_here()?;
        if self.durability == Durability::Fsync {
            return Ok(());
        }
        let active = Arc::clone(&self.log.lock().segment);
        active.file.sync().map_err(|error| io_error(&active.path, error))
    }

    fn write_index(&self, mut head: IndexHead) -> Result<()> {
        let rooms: Option<Vec<Arc<JournalRoom>>> =
            self.rooms.read().values().map(std::sync::Weak::upgrade).collect();
        // An index without one of them would be the end of it.
        let rooms = rooms.ok_or_else(|| Error::new(ErrorKind::Internal, "a mailbox is gone"))?;
        head.rooms = u32::try_from(rooms.len()).unwrap_or(u32::MAX);
        let path = self.workshop.dir.join(INDEX);
        let unfinished = self.workshop.dir.join(format!("{INDEX}{UNFINISHED}"));
        // Left behind by a stop that did not finish; it is of no use to anybody.
        let _ = self.workshop.disk.remove(&unfinished);
        let disk = &self.workshop.disk;
        let written = disk.create(&unfinished).and_then(|file| {
            let mut writer = IndexWriter::new(&head);
            let mut at = 0;
            let mut put = |bytes: Vec<u8>| {
                at += bytes.len() as u64;
                file.write_at(&bytes, at - bytes.len() as u64)
            };
            for room in &rooms {
                write_room(room, &mut writer, &mut put)?;
            }
            put(writer.finish())?;
            file.sync()?;
            disk.rename(&unfinished, &path, true)?;
            disk.sync_dir(&self.workshop.dir)
        });
        written.map_err(|error| io_error(&path, error))
    }
}

fn denied(denied: Denied) -> Error {
    match denied {
        Denied::Error(error) => error,
        Denied::NotYet => super::full("there is no space for the record of a clean stop"),
    }
}

fn write_room(
    room: &JournalRoom,
    writer: &mut IndexWriter,
    put: &mut impl FnMut(Vec<u8>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    room.with_queue_of(|queue| {
        let standing = queue.standing();
        let stats = queue.stats(standing.latest);
        let keys: Vec<_> = queue.keys(standing.latest).collect();
        let live = queue.count();
        let name = room.name.as_str();
        writer.room(room.number(), name, &standing, live, stats.dead, keys.len() as u64);
        for kept in queue.keepsakes() {
            let place = *kept.payload;
            writer.message(&kept.with_payload(place));
            if let Some(ready) = writer.take_ready() {
                put(ready)?;
            }
        }
        for (Idempotency { key, fingerprint, expires }, id) in keys {
            writer.key(&Remembered { id, key, fingerprint, expires });
            if let Some(ready) = writer.take_ready() {
                put(ready)?;
            }
        }
        Ok(())
    })
}

/// Takes everything from the index of a clean stop; `None` if there is none that can be used.
pub(super) fn read_index(
    workshop: &Workshop,
    files: &Files,
    replay: &mut Replay,
) -> Result<Option<LogEnd>> {
    let path = workshop.dir.join(INDEX);
    let bytes = match workshop.disk.open(&path).and_then(|file| read_all(&*file, u64::MAX)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return unusable(&path, &error),
    };
    let (mut reader, head) = match IndexReader::new(&bytes) {
        Ok(opened) => opened,
        Err(flaw) => return unusable(&path, &flaw),
    };
    let Some(end) = log_end(workshop, files, &head, replay)? else { return Ok(None) };
    let mut fresh = Replay::new(0, workshop.planted);
    std::mem::swap(&mut fresh, replay);
    let loaded = load(&mut reader, &head, files, &mut fresh);
    match loaded {
        Ok(()) => {
            *replay = fresh;
            Ok(Some(end))
        }
        Err(flaw) => unusable(&path, &flaw),
    }
}

fn unusable<T>(path: &Path, why: &dyn std::fmt::Display) -> Result<Option<T>> {
    tracing::warn!(path = %path.display(), %why, "the index cannot be used; reading everything");
    Ok(None)
}

fn load(
    reader: &mut IndexReader<'_>,
    head: &IndexHead,
    files: &Files,
    replay: &mut Replay,
) -> Result<(), Flaw> {
    replay.first_segment = head.first_segment;
    let mut mailbox = 0;
    let mut keys_until = 0;
    while let Some(item) = reader.next()? {
        match item {
            Item::Room { number, name, standing, .. } => {
                mailbox = number;
                replay.highest_mailbox = replay.highest_mailbox.max(number);
                let replica = replay.replica(number);
                replica.name = Some(name);
                // It may be said anywhere: say it again before any segment goes.
                replica.stated_in = 0;
                replica.queue.assume(standing);
            }
            Item::Message(kept) => {
                let known = files.by_number.contains_key(&kept.payload.segment);
                let restored = replay.replica(mailbox).queue.restore(kept);
                if !known || restored.is_err() {
                    return Err(Flaw::Field("message"));
                }
            }
            Item::Key(Remembered { id, key, fingerprint, expires }) => {
                keys_until = keys_until.max(expires.as_nanos());
                let queue = &mut replay.replica(mailbox).queue;
                queue.remember(Idempotency { key, fingerprint, expires }, id);
            }
        }
    }
    // Nobody knows which segment has which key.
    for (_, segment) in files.by_number.values() {
        segment.note_key(keys_until);
    }
    Ok(())
}

/// Where the log ends, if it ends where the index was taken.
fn log_end(
    workshop: &Workshop,
    files: &Files,
    head: &IndexHead,
    replay: &mut Replay,
) -> Result<Option<LogEnd>> {
    if head.journal != workshop.journal || head.shard != workshop.shard {
        return Ok(None);
    }
    if files.by_number.last_key_value().is_none_or(|(last, _)| *last < head.segment) {
        return Err(missing_segment(workshop, head.segment));
    }
    let all_there = (head.first_segment..=head.segment).all(|it| files.by_number.contains_key(&it));
    let Some((header, segment)) = files.by_number.get(&head.segment).filter(|_| all_there) else {
        return Ok(None);
    };
    let bytes = segment.read_all().map_err(|error| io_error(&segment.path, error))?;
    let closed_len = record_len(CLOSED_FACT, 0);
    let at = (head.end as usize).checked_sub(closed_len).filter(|at| *at >= DATA_START as usize);
    let Some(closed) = at.and_then(|at| bytes.get(at..)) else { return Ok(None) };
    let is_last = |record: &record::Record<'_>| {
        record.kind == Kind::Closed && record.lsn == head.last_lsn && record.len == closed_len
    };
    let Some(closed) = record::read(closed, header.salt).ok().filter(is_last) else {
        return Ok(None);
    };
    let follows = bytes.get(head.end as usize..).unwrap_or_default();
    if record::read(follows, header.salt).is_ok() && !workshop.planted.has(Bug::StaleIndex) {
        return Ok(None);
    }
    let first = record::read(&bytes[DATA_START as usize..], header.salt);
    let (Ok(first), Ok(opened)) = (first, Opened::decode(closed.fact)) else { return Ok(None) };
    if !workshop.planted.has(Bug::PageCacheTrusted) {
        // If the sync of the stop failed, this record may be in the page cache only.
        let start = head.end as usize - closed_len;
        let written = segment.file.write_at(&bytes[start..head.end as usize], start as u64);
        let synced = written.and_then(|()| segment.file.sync());
        synced.map_err(|error| io_error(&segment.path, error))?;
    }
    replay.open(&opened);
    replay.closed = true;
    Ok(Some(LogEnd {
        segment: Arc::clone(segment),
        offset: head.end,
        records_in_segment: (head.last_lsn + 1).saturating_sub(first.lsn),
        last_lsn: head.last_lsn,
        last_batch: closed.batch,
        sealed: false,
        open_batch: None,
        spares: u32::MAX,
        // If it was not synced batch by batch, nobody knows whether the sync of the stop went well.
        clean: opened.synced,
    }))
}

/// Length of the fact of a clean stop, which is that of an open.
const CLOSED_FACT: usize = 41;
