//! Looking at a journal that nobody has open, and saving what can be read of one that is damaged.
//!
//! [`examine`] reads every record and every payload, and says what is there and what is wrong. It
//! changes nothing. [`repair()`] puts together a new journal out of everything that can be read;
//! the damaged one is kept as it is.
//!
//! Both take the journal's lock, so that nobody else can open it meanwhile; [`examine`] does
//! without where nothing can be written, and says so. Both block: call them where that does no
//! harm.

mod files;
mod findings;
mod log;
mod loose;
mod rebuild;
mod repair;
mod report;
#[cfg(test)]
mod tests;
mod walk;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::Letter;
use crate::backends::journal::config::JournalConfig;
use crate::backends::journal::disk::{Disk, Lock};
use crate::backends::journal::format::letter::{EncodedLetter, encode_letter};
use crate::backends::journal::format::meta::Meta;
use crate::backends::journal::opening::{META, META_LEN_MAX, take_lock};
use crate::backends::journal::shard::recover::{io_error, unsupported};
use crate::backends::journal::shard::segment::read_all;
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;
use crate::home::random;
use crate::timestamp::Timestamp;

use files::{Folder, folder_name, is_newer, not_a_journal};
use findings::Findings;
use log::Log;

pub use repair::repair;
pub use report::{
    Lost, MailboxReport, Problem, Remark, Repaired, Report, SegmentReport, SegmentState,
    ShardReport,
};

/// Most logs that are looked for when nobody knows how many there are.
const SHARDS_LOOKED_FOR: u16 = crate::backends::journal::config::SHARDS_MAX;

/// Looks at everything in a journal that nobody has open.
///
/// # Errors
/// `Connection` if somebody has it open; `NotFound` if there is nothing; `InvalidParameter` if it
/// is no journal; `Unsupported` if it was written by another version; `Forbidden` or `Internal` if
/// the file system refuses. Damage is no error: it is in the report.
pub fn examine(path: impl AsRef<Path>, disk: &Arc<dyn Disk>) -> Result<Report> {
    let found = Found::open(path.as_ref(), disk, Need::Look)?;
    Ok(found.report())
}

/// What a journal is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// To look at it. Without a lock, if there can be none.
    Look,
    /// To save it.
    Save,
}

/// A journal that was read.
#[derive(Debug)]
struct Found {
    path: PathBuf,
    /// `None` where nothing can be written.
    lock: Option<Arc<dyn Lock>>,
    meta: Meta,
    /// The secret in `meta` is not the journal's.
    new_secret: bool,
    shards: Vec<(Folder, Log)>,
    findings: Findings,
}

impl Found {
    fn open(path: &Path, disk: &Arc<dyn Disk>, need: Need) -> Result<Self> {
        let names = disk.list(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotADirectory => not_a_journal(disk, path, true),
            _ => io_error(path, error),
        })?;
        let has_shard = disk.list(&path.join(folder_name(0))).is_ok();
        if !has_shard && !names.iter().any(|name| name == META) {
            return Err(not_a_journal(disk, path, false));
        }
        let path = disk.canonical(path).map_err(|error| io_error(path, error))?;
        let mut findings = Findings::default();
        let lock = lock(&path, disk, need, &mut findings)?;
        let meta = read_meta(&path, disk, &mut findings)?;
        let (journal, new_secret) = (meta.as_ref().map(|meta| meta.journal), meta.is_none());
        let count = match &meta {
            Some(meta) => meta.shards,
            None => shards_there(&path, disk),
        };
        let mut shards = Vec::new();
        for shard in 0..count {
            let folder = Folder::find(disk, &path, shard, journal, &mut findings)?;
            let log = Log::read(&folder, blank_letter(), &mut findings)?;
            if log.rebuild.wards.is_empty() && folder.files.is_empty() {
                tracing::debug!(shard, "nothing of this log is left");
            }
            log::check_names(&log, &folder, &mut findings);
            shards.push((folder, log));
        }
        check_twins(&shards, &mut findings);
        let meta = meta.unwrap_or_else(|| substitute(count, &shards));
        Ok(Self { path, lock, meta, new_secret, shards, findings })
    }

    fn report(self) -> Report {
        let mut unreadable_messages = 0;
        let mut shards = Vec::new();
        let mark = Clock::system().mark();
        for (folder, mut log) in self.shards {
            let now = log.rebuild.now(mark);
            let mut mailboxes = Vec::new();
            for (number, ward) in &mut log.rebuild.wards {
                if log.rebuild.lossy {
                    unreadable_messages += ward.ghosts();
                }
                let name = ward.name.clone();
                let loose = ward.loosen();
                let (delayed, invisible, dead) = loose.count(now);
                let mut bytes = 0;
                for kept in loose.messages.values() {
                    bytes += u64::from(kept.payload.len);
                    let is_blank = log.rebuild.unreadable.contains(&kept.payload);
                    unreadable_messages += u64::from(is_blank);
                    if let Some(segment) = log.segments.get_mut(&kept.payload.segment) {
                        segment.live_bytes += u64::from(kept.payload.len);
                    }
                }
                mailboxes.push(MailboxReport {
                    number: *number,
                    name,
                    live: loose.messages.len() as u64 - dead,
                    delayed,
                    invisible,
                    dead,
                    bytes,
                    keys: loose.keys.values().filter(|(_, expires, _)| *expires > now).count()
                        as u64,
                    policy: report::unusual_rules(&loose.standing.policy),
                });
            }
            shards.push(ShardReport {
                shard: folder.shard,
                closed: log.rebuild.closed,
                last_lsn: log.last_lsn,
                segments: log.segments.into_values().collect(),
                mailboxes,
            });
        }
        let lost_records = self.findings.lost_records();
        let digits = self.meta.journal.iter().map(|byte| format!("{byte:02x}")).collect();
        Report {
            path: self.path,
            journal: if self.new_secret { String::new() } else { digits },
            sound: self.findings.is_sound(),
            shards,
            problems: self.findings.problems,
            further_problems: self.findings.further_problems,
            remarks: self.findings.remarks,
            lost_records,
            unreadable_messages,
        }
    }
}

/// Takes the journal's lock. Where no lock can be written, looking goes on without.
fn lock(
    path: &Path,
    disk: &Arc<dyn Disk>,
    need: Need,
    findings: &mut Findings,
) -> Result<Option<Arc<dyn Lock>>> {
    let config = JournalConfig::default().with_disk(Arc::clone(disk));
    match take_lock(path, &config) {
        Ok(Some(lock)) => Ok(Some(lock)),
        Ok(None) => Err(Error::new(ErrorKind::Connection, "somebody has it open")),
        // Nothing but the lock file has been touched so far.
        Err(error) if need == Need::Look && error.kind() == ErrorKind::Forbidden => {
            let what = "cannot be written, so that nobody guarantees that the journal is not open: \
                        if it is, what is said here may be wrong";
            findings.remark("lock", None, what.to_owned());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The file system does not let us, which says nothing about the file.
const fn is_refusal(kind: std::io::ErrorKind) -> bool {
    matches!(kind, std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied)
}

/// What the journal is as a whole; `None` if that cannot be read.
fn read_meta(path: &Path, disk: &Arc<dyn Disk>, findings: &mut Findings) -> Result<Option<Meta>> {
    let file = path.join(META);
    let bytes = match disk.open(&file).and_then(|file| read_all(&*file, META_LEN_MAX)) {
        Ok(bytes) => bytes,
        Err(error) if is_refusal(error.kind()) => return Err(io_error(&file, error)),
        Err(error) => {
            findings.problem(META, None, format!("cannot be read: {error}"));
            return Ok(None);
        }
    };
    let flaw = match Meta::decode(&bytes) {
        Ok(meta) => return Ok(Some(meta)),
        Err(flaw) => flaw,
    };
    // The checksum covers magic and version too, and proves what they were.
    let mended = mended_meta(&bytes);
    if mended.is_none() && is_newer(&flaw) {
        return Err(unsupported(&file, &flaw));
    }
    findings.problem(META, Some(0), flaw.to_string());
    Ok(mended)
}

fn mended_meta(bytes: &[u8]) -> Option<Meta> {
    let pattern = Meta { journal: [0; 16], secret: [0; 32], shards: 1, created_ms: 0 };
    let mut mended = bytes.to_vec();
    mended.get_mut(..12)?.copy_from_slice(&pattern.encode()[..12]);
    Meta::decode(&mended).ok()
}

/// How many logs there seem to be.
fn shards_there(path: &Path, disk: &Arc<dyn Disk>) -> u16 {
    let is_there = |shard: &u16| disk.list(&path.join(folder_name(*shard))).is_ok();
    (0..SHARDS_LOOKED_FOR).rev().find(is_there).map_or(1, |last| last + 1)
}

/// What stands for a `meta` that cannot be read.
fn substitute(shards: u16, found: &[(Folder, Log)]) -> Meta {
    let mut votes: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    let files = found.iter().flat_map(|(folder, _)| folder.files.values());
    for file in files.filter(|file| !file.is_guess) {
        *votes.entry(file.header.journal).or_default() += 1;
    }
    let journal = votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(journal, _)| journal);
    Meta {
        journal: journal.unwrap_or_else(random),
        secret: random(),
        shards,
        created_ms: Timestamp::now().as_unix_millis(),
    }
}

/// No name is there twice.
fn check_twins(shards: &[(Folder, Log)], findings: &mut Findings) {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for (folder, log) in shards {
        for (number, ward) in &log.rebuild.wards {
            let Some(name) = ward.name.as_deref() else { continue };
            if let Some(other) = seen.insert(name, *number) {
                let what = format!("mailboxes {other} and {number} are both called {name:?}");
                findings.problem(&folder_name(folder.shard), None, what);
            }
        }
    }
}

/// What is read instead of a letter that cannot be, and written for it. With a key, because the
/// record may announce one.
fn blank_letter() -> EncodedLetter {
    blank(Some(String::new()), 0)
}

fn blank(idempotency_key: Option<String>, enqueued_ms: i64) -> EncodedLetter {
    let letter = Letter {
        payload: bytes::Bytes::new(),
        attributes: BTreeMap::new(),
        reply_to: None,
        idempotency_key,
        group: None,
        enqueued_at: Timestamp::from_unix_millis(enqueued_ms),
    };
    encode_letter(&letter, blake3::hash(&[]).as_bytes())
}
