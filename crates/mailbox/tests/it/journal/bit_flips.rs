//! Single bits that change on the disk: noticed, named, and never the end of more than the very
//! last batch.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::testing::ManualClock;
use mailbox::{Backend, DeadReason, Error, ErrorKind, Name, Peek, Phase, ReceiveOptions};
use tokio::runtime::Runtime;

use super::audit::{Auditor, Image, Violation, audit, audit_open};
use super::history::{History, Note};
use super::scale;
use super::workload::{Life, MAILBOXES, Random, config, tag_of};

/// Flips in each of the two tests.
const FLIPS: u64 = 1_000;
const STEPS: usize = 70;

/// A journal that nobody has open, and how it came about.
pub(super) struct Lying {
    path: PathBuf,
    config: JournalConfig,
    disk: SimDisk,
    history: Arc<History>,
    /// The history before the very last send.
    before_last: usize,
    /// Where the last batch is.
    last_batch: (PathBuf, Range<u64>),
    is_closed: bool,
}

/// Lives for a while, and ends with a send in a batch of its own.
pub(super) fn lying(runtime: &Runtime, settings: &JournalConfig, is_closed: bool) -> Lying {
    let disk = SimDisk::new();
    let history = Arc::new(History::default());
    let settings = settings.clone().with_disk(Arc::new(disk.clone()));
    let mut life = Life::new(99, &history, settings);
    runtime.block_on(async {
        for _ in 0..STEPS {
            assert!(life.step().await.is_empty());
        }
        let backend = life.open().await.unwrap();
        let mut before_last = 0;
        for _ in 0..2 {
            before_last = history.len();
            history.note(Note::Step);
            life.send(&backend, 0, &mut Vec::new()).await.unwrap();
        }
        if is_closed {
            backend.close().await.unwrap();
        }
        drop(backend);
        life.backend = None;
        let disk = disk.crash(SimDisk::NOTHING_KEPT);
        let last_batch = last_batch(&disk);
        let Life { path, config, .. } = life;
        Lying { path, config, disk, history, before_last, last_batch, is_closed }
    })
}

/// Reads headers of records, as `docs/journal-format.md` has them: the batch with the highest
/// number.
fn last_batch(disk: &SimDisk) -> (PathBuf, Range<u64>) {
    let mut last = (0, PathBuf::new(), 0..0);
    for path in disk.files() {
        if path.extension().is_none_or(|extension| extension != "segment") {
            continue;
        }
        let bytes = disk.read_file(&path);
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (salt, mut at) = (number(40), 4096);
        while at + 40 <= bytes.len() && number(at) == salt {
            let fact = u16::from_le_bytes(bytes[at + 30..at + 32].try_into().unwrap());
            let len = (40 + usize::from(fact) + number(at + 32) as usize).next_multiple_of(8);
            let batch = number(at + 8);
            if batch > last.0 {
                last = (batch, path.clone(), at as u64..0);
            }
            last.2.end = if batch == last.0 { (at + len) as u64 } else { last.2.end };
            at += len;
        }
    }
    (last.1, last.2)
}

impl Lying {
    /// Turns one bit around, and looks at what comes of it.
    pub(super) fn flip(&self, runtime: &Runtime, random: &mut Random) -> Result<(), Violation> {
        let files = self.disk.files();
        let path = &files[random.below(files.len())];
        let bytes = self.disk.read_file(path);
        if bytes.is_empty() {
            return Ok(());
        }
        // Most of a file may be zeros that nobody reads.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let most = if random.below(8) == 0 { bytes.len() } else { used.max(1) };
        let bit = random.below(most * 8) as u64;
        let disk = self.disk.fork();
        disk.flip_bit(path, bit);
        let what = format!("bit {bit} (byte {}) of {}", bit / 8, path.display());
        let settings = self.config.clone().with_disk(Arc::new(disk));
        let looked = runtime.block_on(async {
            match JournalBackend::open_with(&self.path, settings).await {
                Ok(backend) => self.look(&backend, path, bit / 8).await,
                Err(error) => check_refusal(&error, path),
            }
        });
        looked.map_err(|violation| format!("{what}: {violation}"))
    }

    async fn look(
        &self,
        backend: &JournalBackend,
        path: &Path,
        byte: u64,
    ) -> Result<(), Violation> {
        let is_last = *path == self.last_batch.0 && self.last_batch.1.contains(&byte);
        let all = self.history.len();
        let before = if is_last && !self.is_closed { self.before_last } else { all };
        let belief = Auditor::new(self.history.notes()).belief(before, all);
        let is_segment = path.extension().is_some_and(|extension| extension == "segment");
        if self.is_closed && is_segment && bury(backend).await? {
            // All but one are what they were; that one is a dead letter and says why.
            return Ok(());
        }
        audit_open(backend, &belief, byte).await
    }
}

/// Receives everything if there is something that is not what was sent. It must become a dead
/// letter, and nobody may get it.
async fn bury(backend: &JournalBackend) -> Result<bool, Violation> {
    let mut found = false;
    for name in MAILBOXES {
        let name: Name = name.parse().unwrap();
        let live = backend.peek(&name, &Peek::Live { limit: 256 }).await.map_err(text)?;
        let dead = Peek::Dead { after: None, limit: 256 };
        let dead = backend.peek(&name, &dead).await.map_err(text)?;
        let damaged = live.iter().chain(&dead).filter(|it| tag_of(&it.letter.payload).is_none());
        let damaged: Vec<_> = damaged.collect();
        let [record] = damaged[..] else {
            if damaged.is_empty() {
                continue;
            }
            return Err(format!("one bit has damaged {damaged:?}"));
        };
        found = true;
        if record.last_error.as_deref().is_none_or(|error| !error.contains("unreadable")) {
            return Err(format!("it does not say that it is damaged: {record:?}"));
        }
        if record.phase != Phase::Ready {
            continue;
        }
        let options = ReceiveOptions::new().with_max_messages(256);
        for delivery in backend.receive(&name, &options).await.map_err(text)? {
            if delivery.id == record.id || tag_of(&delivery.letter.payload).is_none() {
                return Err(format!("it was delivered: {delivery:?}"));
            }
        }
        let now = backend.peek(&name, &Peek::These(vec![record.id.clone()])).await.map_err(text)?;
        let reason = now.first().and_then(|record| record.death).map(|death| death.reason);
        // In a group it may be behind others, and not yet received.
        let is_behind = record.letter.group.is_none() && now[0].phase == Phase::Ready;
        if reason != Some(DeadReason::Integrity) && !is_behind {
            return Err(format!("it was not buried: {now:?}"));
        }
    }
    Ok(found)
}

fn check_refusal(error: &Error, path: &Path) -> Result<(), Violation> {
    let text = error.to_string();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_named = text.contains(&*name) && text.contains("offset");
    let is_version = error.kind() == ErrorKind::Unsupported && text.contains("version");
    if error.kind() == ErrorKind::Integrity && is_named || is_version && text.contains(&*name) {
        // Of the first record of a segment nobody may know which it was.
        let in_records = text.contains("offset")
            && !["offset 0:", "offset 4096:"].iter().any(|start| text.contains(start));
        if in_records && !text.contains("lost record is number") {
            return Err(format!("it does not say what is lost: {text}"));
        }
        return Ok(());
    }
    Err(format!("it is refused with {error:?}"))
}

fn text(error: Error) -> Violation {
    format!("an error: {error:#}")
}

/// Flips so many bits, one at a time.
pub(super) fn flip_bits(
    settings: &JournalConfig,
    is_closed: bool,
    flips: u64,
) -> Result<(), Violation> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let lying = lying(&runtime, settings, is_closed);
    let all = lying.history.len();
    let belief = Auditor::new(lying.history.notes()).belief(all, all);
    let image = Image { disk: lying.disk.fork(), before: all, after: all, seed: 0 };
    let audited = audit(&image, &lying.path, lying.config.clone(), &belief);
    runtime.block_on(audited).map_err(|violation| format!("as it lies: {violation}"))?;
    let mut random = Random::new(4);
    (0..flips).try_for_each(|_| lying.flip(&runtime, &mut random))
}

#[test]
fn a_bit_that_changes_after_a_kill_is_noticed() {
    flip_bits(&config(&ManualClock::new()), false, FLIPS * scale()).unwrap();
}

#[test]
fn a_bit_that_changes_after_a_clean_stop_is_noticed() {
    flip_bits(&config(&ManualClock::new()), true, FLIPS * scale()).unwrap();
}
