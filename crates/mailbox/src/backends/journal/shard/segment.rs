//! One file of the log. Invariant: a segment that can be found under its own name has its header
//! and all its bytes on the disk; unfinished ones are called `*.new`, and nobody reads those.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backends::journal::disk::{Disk, DiskFile};
use crate::backends::journal::format::Place;
use crate::backends::journal::format::segment::SegmentHeader;
use crate::backends::journal::planted::{Bug, Planted};
use crate::home::random;
use crate::timestamp::Timestamp;

/// Zeros written at a time.
const CHUNK: usize = 1 << 20;
/// Bytes of a new segment that wait for the disk at a time.
const FILL_STEP: usize = 1 << 20;
/// The end of the name of a file that is not finished.
pub(crate) const UNFINISHED: &str = ".new";

/// A file of the log, open.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u32,
    pub(crate) salt: u32,
    pub(crate) len: u32,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Bytes of records of messages that are still there.
    live_bytes: AtomicU64,
    /// Bytes of records of idempotency keys whose messages are gone.
    key_bytes: AtomicU64,
    /// Bytes of records about mailboxes.
    statement_bytes: AtomicU64,
    /// Until when, in queue time, an idempotency key is remembered that was written here.
    keys_until: AtomicU64,
}

/// Where segments are made.
#[derive(Debug, Clone)]
pub(crate) struct Workshop {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) journal: [u8; 16],
    pub(crate) shard: u16,
    pub(crate) segment_len: u32,
    pub(crate) planted: Planted,
}

impl Segment {
    pub(crate) fn new(header: &SegmentHeader, path: PathBuf, file: Arc<dyn DiskFile>) -> Self {
        Self {
            number: header.number,
            salt: header.salt,
            len: header.len,
            path,
            file,
            live_bytes: AtomicU64::new(0),
            key_bytes: AtomicU64::new(0),
            statement_bytes: AtomicU64::new(0),
            keys_until: AtomicU64::new(0),
        }
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add_live(&self, bytes: u32) {
        self.live_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
    }

    pub(crate) fn sub_live(&self, bytes: u32) {
        self.live_bytes.fetch_sub(u64::from(bytes), Ordering::Relaxed);
    }

    pub(crate) fn add_key(&self, bytes: u32) {
        self.key_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
    }

    pub(crate) fn add_statement(&self, bytes: u32) {
        self.statement_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
    }

    /// What the keys in it have taken, if there is none left at `now`; not counted from then on.
    pub(crate) fn take_expired_keys(&self, now: u64) -> u64 {
        if self.keys_until() > now { 0 } else { self.key_bytes.swap(0, Ordering::Relaxed) }
    }

    /// What is counted as still there.
    pub(crate) fn counted(&self) -> u64 {
        let others = [&self.key_bytes, &self.statement_bytes];
        self.live_bytes() + others.iter().map(|it| it.load(Ordering::Relaxed)).sum::<u64>()
    }

    pub(crate) fn keys_until(&self) -> u64 {
        self.keys_until.load(Ordering::Relaxed)
    }

    pub(crate) fn note_key(&self, until: u64) {
        self.keys_until.fetch_max(until, Ordering::Relaxed);
    }

    /// The bytes of a record.
    pub(crate) fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; place.len as usize];
        self.file.read_at(&mut bytes, u64::from(place.offset))?;
        Ok(bytes)
    }

    /// All of it.
    pub(crate) fn read_all(&self) -> io::Result<Vec<u8>> {
        read_all(&*self.file, u64::from(self.len))
    }
}

/// The whole of a file, up to `most` bytes.
pub(crate) fn read_all(file: &dyn DiskFile, most: u64) -> io::Result<Vec<u8>> {
    let len = file.len()?.min(most);
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The name of a segment's file.
pub(crate) fn file_name(number: u32) -> String {
    format!("{number:08x}.segment")
}

/// The number of the segment with this name, if it is a segment's.
pub(crate) fn number_in(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".segment").filter(|digits| digits.len() == 8)?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (file_name(number) == name).then_some(number)
}

impl Workshop {
    /// Makes a new segment, all of it on the disk.
    pub(crate) fn make(&self, number: u32) -> io::Result<Segment> {
        let unfinished = self.unfinished(number);
        let made = self.disk.create(&unfinished).and_then(|file| {
            self.fill(&*file)?;
            self.finish(number, &unfinished, file)
        });
        if made.is_err() {
            // So that what could not be finished does not take the space of others.
            let _ = self.disk.remove(&unfinished);
        }
        made
    }

    /// Makes a new segment out of one that nobody needs any more. Its blocks are written already,
    /// which spares the file system the work of finding some; what is in them has another salt.
    pub(crate) fn recycle(&self, old: &Path, number: u32) -> io::Result<Segment> {
        let unfinished = self.unfinished(number);
        self.disk.rename(old, &unfinished, false)?;
        // Its old name goes for good first, or a power cut might leave its new header under it.
        let made = self
            .disk
            .sync_dir(&self.dir)
            .and_then(|()| self.disk.open(&unfinished))
            .and_then(|file| self.finish(number, &unfinished, file));
        if made.is_err() {
            let _ = self.disk.remove(&unfinished);
        }
        made
    }

    /// Makes a segment anew from its present bytes, with nothing behind them. What was read may be
    /// in the page cache only, if a sync failed before a crash; after this it is on the disk.
    pub(crate) fn renew(&self, old: &Segment, bytes: &[u8]) -> io::Result<Segment> {
        let unfinished = self.unfinished(old.number);
        let file = match self.copy(&unfinished, old, bytes) {
            Ok(file) => file,
            Err(error) if is_full(&error) => {
                match self.disk.remove(&unfinished) {
                    // There may have been no space for its name either.
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => return self.rewrite(old, bytes),
                }
            }
            Err(error) => return Err(error),
        };
        self.disk.rename(&unfinished, &old.path, true)?;
        self.disk.sync_dir(&self.dir)?;
        Ok(self.renewed(old, file))
    }

    fn copy(&self, to: &Path, old: &Segment, bytes: &[u8]) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.create(to)?;
        write_zeros(&*file, bytes.len(), old.len as usize)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        Ok(file)
    }

    /// Without space for a copy: the same bytes are written to the same place, which makes them
    /// due for the disk again. If that is cut short, they are still the same.
    fn rewrite(&self, old: &Segment, bytes: &[u8]) -> io::Result<Segment> {
        old.file.write_at(bytes, 0)?;
        write_zeros(&*old.file, bytes.len(), old.len as usize)?;
        old.file.sync()?;
        Ok(self.renewed(old, Arc::clone(&old.file)))
    }

    fn renewed(&self, old: &Segment, file: Arc<dyn DiskFile>) -> Segment {
        let header = SegmentHeader { len: old.len, ..self.header(old.number, old.salt) };
        Segment::new(&header, old.path.clone(), file)
    }

    fn fill(&self, file: &dyn DiskFile) -> io::Result<()> {
        // Zeros, not holes: a flush must never have to find space, or change the file's layout.
        let len = self.segment_len as usize;
        for from in (0..len).step_by(FILL_STEP) {
            if from > 0 {
                // A file system may write all of this before it answers a sync of the log.
                file.sync()?;
            }
            write_zeros(file, from, len.min(from + FILL_STEP))?;
        }
        Ok(())
    }

    fn finish(
        &self,
        number: u32,
        unfinished: &Path,
        file: Arc<dyn DiskFile>,
    ) -> io::Result<Segment> {
        let salt = if self.planted.has(Bug::NoSalt) { 0x5A17 } else { new_salt() };
        let header = self.header(number, salt);
        file.write_at(&header.encode(), 0)?;
        if !self.planted.has(Bug::NoSegmentSync) {
            file.sync()?;
        }
        let path = self.dir.join(file_name(number));
        self.disk.rename(unfinished, &path, false)?;
        if !self.planted.has(Bug::NoDirSync) {
            let synced = self.disk.sync_dir(&self.dir);
            if let Err(error) = synced {
                // It is ours, and nobody knows of it: the next try has to find its name free.
                let _ = self.disk.remove(&path);
                return Err(error);
            }
        }
        Ok(Segment::new(&header, path, file))
    }

    fn header(&self, number: u32, salt: u32) -> SegmentHeader {
        SegmentHeader {
            journal: self.journal,
            shard: self.shard,
            number,
            salt,
            len: self.segment_len,
            created_ms: Timestamp::now().as_unix_millis(),
        }
    }

    fn unfinished(&self, number: u32) -> PathBuf {
        self.dir.join(file_name(number) + UNFINISHED)
    }
}

/// Whether an error says that there is no space, or nothing else to make a file with: that passes.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{OutOfMemory, QuotaExceeded, StorageFull};
    /// Too many open files, in this process or in all.
    const TOO_MANY_FILES: [i32; 2] = [24, 23];
    matches!(error.kind(), StorageFull | QuotaExceeded | OutOfMemory)
        || error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code))
}

fn write_zeros(file: &dyn DiskFile, from: usize, to: usize) -> io::Result<()> {
    let zeros = vec![0; CHUNK.min(to.saturating_sub(from))];
    let mut at = from;
    while at < to {
        let len = zeros.len().min(to - at);
        file.write_at(&zeros[..len], at as u64)?;
        at += len;
    }
    Ok(())
}

/// Never zero: zero-filled space must not look like a record.
fn new_salt() -> u32 {
    u32::from_le_bytes(random()) | 1
}
