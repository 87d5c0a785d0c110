//! Journals that must not be opened: each is refused by name, and left as it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mailbox::backends::journal::disk::{Disk, SimDisk};
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::testing::ManualClock;
use mailbox::{Backend, Error, ErrorKind, Name, Outgoing, ReceiveOptions, Settlement, Verdict};
use parking_lot::Mutex;

use super::torn_tail::contents;
use super::watched::{Step, Watched};
use super::workload::{config, own_path};

struct Closed {
    path: PathBuf,
    disk: SimDisk,
    config: JournalConfig,
}

impl Closed {
    async fn open(&self, disk: &SimDisk) -> mailbox::Result<Arc<JournalBackend>> {
        let config = self.config.clone().with_disk(Arc::new(disk.clone()));
        JournalBackend::open_with(&self.path, config).await
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Segments that hold records, by name.
    fn segments(&self) -> Vec<PathBuf> {
        let mut segments = self.disk.files();
        segments.retain(|path| path.extension().is_some_and(|it| it == "segment"));
        segments.retain(|path| self.disk.read_file(path)[4096..].iter().any(|byte| *byte != 0));
        segments
    }

    /// What is said when a change has been made, and that nothing else was changed.
    async fn refusal(&self, change: impl FnOnce(&SimDisk)) -> Error {
        let disk = self.disk.fork();
        change(&disk);
        let before = contents(&disk);
        let error = self.open(&disk).await.expect_err("it is not what it was");
        assert!(contents(&disk) == before, "the refused open changed something: {error}");
        error
    }
}

fn name() -> Name {
    "orders".parse().unwrap()
}

/// A journal of several segments, after a kill.
async fn killed() -> Closed {
    let (path, disk) = (own_path(), SimDisk::new());
    let config = config(&ManualClock::new());
    let journal = Closed { path, disk, config };
    let backend = journal.open(&journal.disk).await.unwrap();
    for number in 0..40 {
        let message = Outgoing::new(format!("{number:05000}").into());
        backend.send(&name(), vec![message]).await.unwrap().remove(0).unwrap();
    }
    drop(backend);
    Closed { disk: journal.disk.crash(SimDisk::NOTHING_KEPT), ..journal }
}

/// The same, closed in order.
async fn closed() -> Closed {
    let journal = killed().await;
    journal.open(&journal.disk).await.unwrap().close().await.unwrap();
    Closed { disk: journal.disk.fork(), ..journal }
}

fn says(error: &Error, words: &[&str]) {
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

fn set_version(disk: &SimDisk, file: &Path) {
    let mut bytes = disk.read_file(file);
    bytes[8..12].copy_from_slice(&77_u32.to_le_bytes());
    disk.write_file(file, bytes);
}

#[tokio::test]
async fn another_version_is_named() {
    let journal = killed().await;
    for file in [journal.file("meta"), journal.segments()[0].clone(), journal.segments()[2].clone()]
    {
        let error = journal.refusal(|disk| set_version(disk, &file)).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        says(&error, &["77", &file.display().to_string()]);
    }
}

#[tokio::test]
async fn an_index_of_another_version_is_not_used() {
    let journal = closed().await;
    let disk = journal.disk.fork();
    set_version(&disk, &journal.file("shard-00/index"));
    match journal.open(&disk).await {
        Ok(backend) => assert_eq!(backend.stats(&name()).await.unwrap().live(), 40),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            says(&error, &["77", "index"]);
        }
    }
}

#[tokio::test]
async fn a_journal_without_meta_is_refused() {
    for journal in [killed().await, closed().await] {
        let meta = journal.file("meta");
        let error = journal.refusal(|disk| disk.remove(&meta).unwrap()).await;
        assert!(
            matches!(error.kind(), ErrorKind::Integrity | ErrorKind::InvalidParameter),
            "{error:?}"
        );
        says(&error, &["meta"]);
    }
}

#[tokio::test]
async fn a_directory_of_somebody_else_is_left_alone() {
    let journal = killed().await;
    let disk = SimDisk::new();
    disk.write_file(journal.file("thesis.tex"), "chapter one");
    let error = journal.open(&disk).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParameter);
    assert_eq!(error.field(), Some("path"));
    says(&error, &["thesis.tex"]);
    assert_eq!(disk.read_file(journal.file("thesis.tex")), b"chapter one");
    assert_eq!(disk.files().len(), 1, "nothing was added: {:?}", disk.files());
}

#[tokio::test]
async fn a_segment_that_is_missing_is_named() {
    for journal in [killed().await, closed().await] {
        let segments = journal.segments();
        assert!(segments.len() >= 3, "{segments:?}");
        for segment in &segments[..segments.len() - 1] {
            let error = journal.refusal(|disk| disk.remove(segment).unwrap()).await;
            assert_eq!(error.kind(), ErrorKind::Integrity, "{error:?}");
            says(&error, &[&segment.file_name().unwrap().to_string_lossy()]);
        }
    }
}

#[tokio::test]
async fn a_log_whose_last_segment_is_missing_is_refused() {
    for journal in [killed().await, closed().await] {
        let last = journal.segments().pop().unwrap();
        let error = journal.refusal(|disk| disk.remove(&last).unwrap()).await;
        assert_eq!(error.kind(), ErrorKind::Integrity, "{error:?}");
        says(&error, &["segment"]);
    }
}

#[tokio::test]
async fn a_segment_of_another_journal_is_named() {
    let (journal, other) = (killed().await, killed().await);
    for (own, foreign) in journal.segments().iter().zip(other.segments()) {
        let bytes = other.disk.read_file(&foreign);
        let error = journal.refusal(|disk| disk.write_file(own, bytes)).await;
        assert_eq!(error.kind(), ErrorKind::Integrity, "{error:?}");
        says(&error, &[&own.display().to_string(), "another journal"]);
    }
    let [first, second, ..] = &journal.segments()[..] else { unreachable!("there are several") };
    let bytes = journal.disk.read_file(first);
    let error = journal.refusal(|disk| disk.write_file(second, bytes)).await;
    assert_eq!(error.kind(), ErrorKind::Integrity, "{error:?}");
    says(&error, &[&second.display().to_string()]);
}

#[tokio::test]
async fn a_second_opener_is_refused_and_the_first_goes_on() {
    let journal = killed().await;
    let first = journal.open(&journal.disk).await.unwrap();
    second_opener(&journal.path, &journal.config, &journal.disk).await.unwrap();
    let options = ReceiveOptions::new();
    let delivery = first.receive(&name(), &options).await.unwrap().remove(0);
    let receipt_handle = delivery.receipt_handle;
    let batch = vec![Settlement { receipt_handle, verdict: Verdict::Acknowledge }];
    first.settle(&name(), batch).await.unwrap().remove(0).unwrap();
    first.close().await.unwrap();
    journal.open(&journal.disk).await.unwrap();
}

/// Whether somebody who opens a journal that is open is told so.
pub(super) async fn second_opener(
    path: &Path,
    config: &JournalConfig,
    disk: &SimDisk,
) -> Result<(), String> {
    let config = config.clone().with_disk(Arc::new(disk.clone()));
    match JournalBackend::open_with(path, config).await {
        Err(error) if error.kind() == ErrorKind::Connection => Ok(()),
        Err(error) => Err(format!("the error is of another kind: {error:?}")),
        Ok(_) => Err("it was opened twice".to_owned()),
    }
}

#[tokio::test]
async fn a_lock_that_is_let_go_of_at_that_moment_does_not_refuse_the_next() {
    let (path, disk) = (own_path(), SimDisk::new());
    let settings = config(&ManualClock::new());
    let first = settings.clone().with_disk(Arc::new(disk.clone()));
    JournalBackend::open_with(&path, first).await.unwrap().close().await.unwrap();

    let held = Mutex::new(disk.lock(&path.join("lock")).unwrap());
    assert!(held.lock().is_some(), "nobody else has it");
    let refused = Arc::new(AtomicBool::new(false));
    let was_refused = Arc::clone(&refused);
    let watched = Watched::new(&disk, move |step, _, _| {
        if step == Step::LockRefused {
            was_refused.store(true, Ordering::Relaxed);
            held.lock().take();
        }
    });
    JournalBackend::open_with(&path, settings.with_disk(Arc::new(watched))).await.unwrap();
    assert!(refused.load(Ordering::Relaxed), "somebody had it");
}
