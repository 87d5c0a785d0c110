//! The end of the log cut off at every byte: what was on the disk before is not lost, and a file
//! that is too short is noticed.

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::testing::ManualClock;
use mailbox::{Backend, ErrorKind, Name, Outgoing, Peek};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::scale;
use super::watched::{Step, Watched};
use super::workload::{Random, config, own_path};

/// How much of the end is cut off.
const TAIL: usize = 64 * 1024;
/// Messages in the last batch; together they are longer than the tail.
const LAST: usize = 12;
const LAST_LEN: usize = 5_700;
/// Messages that were answered before.
const FIRST: usize = 3;

/// A journal in the middle of writing a large batch.
struct Writing {
    path: PathBuf,
    segment: PathBuf,
    config: JournalConfig,
    /// The disk with the batch, not synced.
    disk: SimDisk,
    /// The segment before the batch was written, and then.
    without: Vec<u8>,
    with: Vec<u8>,
    /// Where what was written ends.
    end: usize,
}

/// Lets nobody pass while it is shut.
#[derive(Default)]
struct Gate {
    is_shut: AtomicBool,
    somebody_waits: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        while self.is_shut.load(Ordering::Acquire) {
            self.somebody_waits.store(true, Ordering::Release);
            std::thread::yield_now();
        }
    }

    fn wait_for_somebody(&self) {
        while !self.somebody_waits.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}

fn name() -> Name {
    "orders".parse().unwrap()
}

fn message(number: usize) -> Outgoing {
    let len = if number < FIRST { 20 } else { LAST_LEN };
    Outgoing::new(format!("{number:0len$}").into())
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// Brings a journal to the point where a batch longer than the tail is written, and not synced.
fn writing() -> Writing {
    let (path, disk) = (own_path(), SimDisk::new());
    let segment = path.join("shard-00/00000001.segment");
    let config = config(&ManualClock::new()).with_segment_len(80 * 1024);
    let gate = Arc::new(Gate::default());
    let images = Arc::new(Mutex::new(Vec::new()));
    let (passed, taken) = (Arc::clone(&gate), Arc::clone(&images));
    let watched = Watched::new(&disk, move |step, path, disk| {
        // Whoever made the file knows it by the name that it had then.
        if step == Step::Sync && path.to_string_lossy().contains("00000001.segment") {
            taken.lock().push(disk.fork());
            passed.pass();
        }
    });
    runtime().block_on(async {
        let config = config.clone().with_disk(Arc::new(watched));
        let backend = JournalBackend::open_with(&path, config).await.unwrap();
        for number in 0..FIRST - 1 {
            backend.send(&name(), vec![message(number)]).await.unwrap().remove(0).unwrap();
        }
        // While this one is being synced, all of the last batch comes together.
        gate.is_shut.store(true, Ordering::Release);
        let mailbox = name();
        let mut before = pin!(backend.send(&mailbox, vec![message(FIRST - 1)]));
        let mut context = Context::from_waker(Waker::noop());
        assert!(before.as_mut().poll(&mut context).is_pending());
        gate.wait_for_somebody();
        let mut last = pin!(backend.send(&mailbox, (FIRST..FIRST + LAST).map(message).collect()));
        assert!(last.as_mut().poll(&mut context).is_pending());
        gate.is_shut.store(false, Ordering::Release);
        before.await.unwrap().remove(0).unwrap();
        last.await.unwrap().remove(0).unwrap();
    });
    let images = images.lock();
    let [.., before, disk] = &images[..] else { unreachable!("there were many syncs") };
    let (without, with) = (before.read_file(&segment), disk.read_file(&segment));
    let differs = |at: &usize| without[*at] != with[*at];
    let start = (0..with.len()).find(differs).unwrap();
    let end = (0..with.len()).rfind(differs).unwrap() + 1;
    assert!(end - start >= TAIL, "the last batch is as long as what is cut off");
    Writing { path, segment, config, disk: disk.clone(), without, with, end }
}

/// The payloads that are there. The first ones must be, the last ones may be, all of them whole and
/// in order: a batch is cut off somewhere, it has no holes.
fn check(runtime: &Runtime, writing: &Writing, disk: &SimDisk, what: &dyn Fn() -> String) {
    runtime.block_on(async {
        let config = writing.config.clone().with_disk(Arc::new(disk.clone()));
        let opened = JournalBackend::open_with(&writing.path, config).await;
        let backend = opened.unwrap_or_else(|error| panic!("{}: {error}", what()));
        let records = backend.peek(&name(), &Peek::Live { limit: 100 }).await.unwrap();
        assert!(records.len() >= FIRST, "{}: only {} are left", what(), records.len());
        for (number, record) in records.iter().enumerate() {
            assert!(record.letter.payload == message(number).payload, "{}: {number}", what());
        }
    });
}

/// Cuts the log off at every `step`-th byte from `from` on; what is behind it was never written.
fn cut_off(from: usize, behind: impl Fn(&Writing) -> Vec<u8>) {
    let writing = writing();
    let runtime = runtime();
    let behind = behind(&writing);
    let start = writing.end - TAIL;
    for at in (start + from..writing.end).step_by(4) {
        let bytes = [&writing.with[..at], &behind[at..]].concat();
        let disk = writing.disk.fork();
        disk.write_file(&writing.segment, bytes);
        check(&runtime, &writing, &disk, &|| format!("cut off at {at}"));
    }
}

/// What the file held before it was used again: records of another salt.
fn stale(writing: &Writing) -> Vec<u8> {
    let mut bytes = writing.with.clone();
    let salt: [u8; 4] = bytes[40..44].try_into().unwrap();
    for place in bytes.chunks_exact_mut(8).filter(|place| place[..4] == salt) {
        place[..4].copy_from_slice(b"old.");
    }
    bytes
}

#[test]
fn a_log_that_ends_at_any_byte_opens_with_all_that_was_synced_1() {
    cut_off(0, |writing| writing.without.clone());
}

#[test]
fn a_log_that_ends_at_any_byte_opens_with_all_that_was_synced_2() {
    cut_off(1, stale);
}

#[test]
fn a_log_that_ends_at_any_byte_opens_with_all_that_was_synced_3() {
    cut_off(2, |writing| writing.without.clone());
}

#[test]
fn a_log_that_ends_at_any_byte_opens_with_all_that_was_synced_4() {
    cut_off(3, stale);
}

#[test]
fn any_sectors_of_the_last_batch_may_be_missing() {
    let writing = writing();
    let runtime = runtime();
    for seed in 0..4_000 * scale() {
        let disk = writing.disk.crash(seed);
        check(&runtime, &writing, &disk, &|| format!("power cut {seed}"));
    }
}

#[test]
fn a_file_that_was_cut_short_is_refused_by_name() {
    let writing = writing();
    let runtime = runtime();
    let whole = writing.with.len();
    let mut random = Random::new(11);
    for _ in 0..500 * scale() {
        let len = random.below(whole);
        let disk = writing.disk.fork();
        disk.truncate(&writing.segment, len as u64);
        let files = contents(&disk);
        let config = writing.config.clone().with_disk(Arc::new(disk.clone()));
        let opened = runtime.block_on(JournalBackend::open_with(&writing.path, config));
        let error = opened.expect_err("what was behind is lost");
        assert_eq!(error.kind(), ErrorKind::Integrity, "cut short at {len}: {error}");
        assert!(error.to_string().contains("00000001.segment"), "cut short at {len}: {error}");
        assert!(contents(&disk) == files, "cut short at {len}: the refusal changed something");
    }
}

/// Everything on a disk.
pub(super) fn contents(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.files().into_iter().map(|path| (path.clone(), disk.read_file(&path))).collect()
}
