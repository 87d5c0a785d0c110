//! Corners in which a journal once hung, wrote without end or lost something: each of these was a
//! defect.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use mailbox::backends::journal::disk::{Disk, DiskFile, Lock, SimDisk};
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::testing::ManualClock;
use mailbox::{
    Backend, Delivery, Durability, Error, ErrorKind, MessageId, Name, Outgoing, Peek, Policy,
    ReceiptHandle, ReceiveOptions, Result, Settlement, Verdict,
};

use super::workload::own_path;

const SEGMENT_LEN: u32 = 64 * 1024;
/// Whatever takes longer than this hangs.
const HANGS: Duration = Duration::from_secs(10);
/// Whatever takes longer than this waits for something.
const WAITS: Duration = Duration::from_millis(100);

struct Corner {
    path: PathBuf,
    disk: SimDisk,
    clock: ManualClock,
    config: JournalConfig,
}

impl Corner {
    fn new() -> Self {
        let clock = ManualClock::new();
        let config = JournalConfig::default()
            .with_segment_len(SEGMENT_LEN)
            .with_max_payload(28 * 1024)
            .with_clock(clock.clock());
        Self { path: own_path(), disk: SimDisk::new(), clock, config }
    }

    fn os_buffered() -> Self {
        let corner = Self::new();
        Self { config: corner.config.clone().with_durability(Durability::OsBuffered), ..corner }
    }

    fn with_lens(self, segment_len: u32, max_payload: usize) -> Self {
        let config = self.config.with_segment_len(segment_len).with_max_payload(max_payload);
        Self { config, ..self }
    }

    async fn open(&self) -> Journal {
        self.open_on(Arc::new(self.disk.clone())).await.unwrap()
    }

    async fn open_on(&self, disk: Arc<dyn Disk>) -> Result<Journal> {
        let config = self.config.clone().with_disk(disk);
        in_time(JournalBackend::open_with(&self.path, config)).await.map(Journal)
    }

    /// Ends when the journal leaves the disk alone.
    async fn at_rest(&self) {
        let until = Instant::now() + HANGS;
        let mut still = 0;
        while still < 3 {
            assert!(Instant::now() < until, "it writes and writes, and nobody asked it to");
            let before = self.disk.operations();
            tokio::time::sleep(Duration::from_millis(10)).await;
            still = if self.disk.operations() == before { still + 1 } else { 0 };
        }
    }

    fn segments_len(&self) -> usize {
        let mut segments = self.disk.files();
        segments.retain(|path| path.extension().is_some_and(|it| it == "segment"));
        segments.iter().map(|path| self.disk.read_file(path).len()).sum()
    }
}

/// An open journal whose answers come in time.
struct Journal(Arc<JournalBackend>);

impl Journal {
    async fn send(&self, mailbox: &str, len: usize) -> Result<MessageId> {
        in_time(send(&self.0, mailbox, len)).await
    }

    async fn receive(&self, mailbox: &str, most: u32) -> Result<Vec<Delivery>> {
        let options = ReceiveOptions::new().with_max_messages(most);
        in_time(self.0.receive(&name(mailbox), &options)).await
    }

    async fn acknowledge(&self, mailbox: &str, receipt_handle: ReceiptHandle) -> Result<()> {
        let batch = vec![Settlement { receipt_handle, verdict: Verdict::Acknowledge }];
        in_time(self.0.settle(&name(mailbox), batch)).await?.remove(0)
    }

    /// Receives and acknowledges all there is.
    async fn drain(&self, mailbox: &str) -> Result<()> {
        loop {
            let deliveries = self.receive(mailbox, 10).await?;
            if deliveries.is_empty() {
                return Ok(());
            }
            for delivery in deliveries {
                self.acknowledge(mailbox, delivery.receipt_handle).await?;
            }
        }
    }

    /// Sends until the disk is full.
    async fn fill(&self, mailbox: &str) {
        for _ in 0..1_000 {
            if let Err(error) = self.send(mailbox, 4_000).await {
                return assert!(is_full(&error), "{error:?}");
            }
        }
        panic!("1000 messages went to a small disk");
    }

    async fn configure(&self, mailbox: &str) -> Result<()> {
        in_time(self.0.configure(&name(mailbox), Policy::default())).await
    }

    async fn live(&self, mailbox: &str) -> u64 {
        self.0.stats(&name(mailbox)).await.unwrap().live()
    }

    async fn close(&self) -> Result<()> {
        in_time(self.0.close()).await
    }
}

async fn in_time<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANGS, answer).await.expect("it hangs")
}

async fn send(backend: &JournalBackend, mailbox: &str, len: usize) -> Result<MessageId> {
    let message = Outgoing::new(vec![7; len].into());
    let sent = backend.send(&name(mailbox), vec![message]).await?.remove(0)?;
    Ok(sent.id)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::Saturated && error.field() == Some("storage")
}

/// A disk that makes no segment while it is held up, and lets some syncs of directories fail
/// because too many files are open: nothing is lost by those.
#[derive(Debug, Clone)]
struct Grudging {
    disk: SimDisk,
    held_up: Arc<(Mutex<bool>, Condvar)>,
    refusals: Arc<AtomicU32>,
}

impl Grudging {
    fn new(disk: &SimDisk) -> Self {
        Self { disk: disk.clone(), held_up: Arc::default(), refusals: Arc::default() }
    }

    fn hold_up(&self, is_held_up: bool) {
        *self.held_up.0.lock().unwrap() = is_held_up;
        self.held_up.1.notify_all();
    }
}

impl Disk for Grudging {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let (is_held_up, changed) = &*self.held_up;
        let is_segment = path.to_string_lossy().contains(".segment");
        let held_up = is_held_up.lock().unwrap();
        drop(changed.wait_while(held_up, |held_up| *held_up && is_segment).unwrap());
        self.disk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        self.disk.rename(from, to, replace)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        const TOO_MANY_OPEN_FILES: i32 = 24;
        let less = |refusals: u32| refusals.checked_sub(1);
        match self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Err(io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES)),
            Err(_) => self.disk.sync_dir(path),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.disk.lock(path)
    }

    fn lock_holder(&self, path: &Path) -> Option<u32> {
        self.disk.lock_holder(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.disk.canonical(path)
    }
}

#[tokio::test]
async fn a_send_that_waits_for_space_is_told_of_the_close() {
    let corner = Corner::new();
    let slow = Grudging::new(&corner.disk);
    let journal = corner.open_on(Arc::new(slow.clone())).await.unwrap();
    journal.send("bulk", 100).await.unwrap();
    corner.at_rest().await;
    slow.hold_up(true);
    // First sends have to wait, then everything else too.
    while tokio::time::timeout(WAITS, send(&journal.0, "bulk", 20_000)).await.is_ok() {}
    let (bulk, policy) = (name("bulk"), Policy::default());
    let configure = || journal.0.configure(&bulk, policy.clone());
    while tokio::time::timeout(WAITS, configure()).await.is_ok() {}
    let mut waiting = pin!(send(&journal.0, "bulk", 28_000));
    assert!(waiting.as_mut().now_or_never().is_none(), "there was space");
    let mut close = pin!(journal.0.close());
    let early = tokio::time::timeout(WAITS, close.as_mut()).await;
    assert!(early.is_err(), "closed while a segment was being made: {early:?}");
    slow.hold_up(false);
    in_time(close).await.unwrap();
    assert_eq!(in_time(waiting).await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn the_largest_message_finds_space_behind_one_of_any_length() {
    let largest = SEGMENT_LEN as usize / 2 - 2 * 1024;
    for len in (20_000..30_600).step_by(400) {
        let corner = Corner::new().with_lens(SEGMENT_LEN, largest);
        let journal = corner.open().await;
        journal.send("orders", len).await.unwrap();
        corner.at_rest().await;
        journal.send("orders", largest).await.unwrap();
        assert_eq!(journal.live("orders").await, 2, "after one of {len} bytes");
    }
}

#[tokio::test]
async fn a_log_of_nothing_but_empty_mailboxes_comes_to_rest() {
    let corner = Corner::new();
    let journal = corner.open().await;
    for number in 0..600 {
        let mailbox = format!("mailbox-number-{number}");
        assert!(journal.receive(&mailbox, 1).await.unwrap().is_empty());
    }
    corner.at_rest().await;
    assert_eq!(journal.0.list(None, 1_000).await.unwrap().len(), 600);
}

#[tokio::test]
async fn too_many_open_files_are_no_reason_to_fail_for_good() {
    let corner = Corner::new();
    let short = Grudging::new(&corner.disk);
    let journal = corner.open_on(Arc::new(short.clone())).await.unwrap();
    journal.send("orders", 100).await.unwrap();
    corner.at_rest().await;
    short.refusals.store(1, Ordering::SeqCst);
    let until = Instant::now() + HANGS;
    for _ in 0..12 {
        while let Err(error) = journal.send("orders", 20_000).await {
            assert_eq!(error.kind(), ErrorKind::Saturated, "{error:?}");
            assert!(Instant::now() < until, "it passed, and it is still said: {error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(short.refusals.load(Ordering::SeqCst), 0, "no directory was synced");
    assert_eq!(journal.live("orders").await, 13);
}

#[tokio::test]
async fn a_receipt_handle_of_a_life_that_was_lost_settles_nothing_in_the_next() {
    let corner = Corner::os_buffered();
    let journal = corner.open().await;
    journal.send("old", 5).await.unwrap();
    journal.close().await.unwrap();
    let disk = corner.disk.fork();
    let journal = corner.open_on(Arc::new(disk.clone())).await.unwrap();
    journal.send("orders", 10).await.unwrap();
    let lost = journal.receive("orders", 1).await.unwrap().remove(0);
    let disk = disk.crash(SimDisk::NOTHING_KEPT);
    let journal = corner.open_on(Arc::new(disk)).await.unwrap();
    assert_eq!(journal.live("orders").await, 0, "it was durable after all");
    journal.send("orders", 20).await.unwrap();
    let present = journal.receive("orders", 1).await.unwrap().remove(0);
    let settled = journal.acknowledge("orders", lost.receipt_handle).await;
    assert!(settled.is_err(), "another message was acknowledged with it");
    assert_eq!(journal.live("orders").await, 1);
    journal.acknowledge("orders", present.receipt_handle).await.unwrap();
}

/// Moves a durable message while the k-th sync fails: whatever the journal says, the message must
/// be there after a power cut.
async fn move_with_failing_sync(k: u64) {
    let mut corner = Corner::os_buffered();
    let journal = corner.open().await;
    journal.send("kept", 1_000).await.unwrap();
    // Durable from here on, in whatever mode.
    journal.close().await.unwrap();
    corner.disk = corner.disk.crash(SimDisk::NOTHING_KEPT);
    let journal = corner.open().await;
    corner.at_rest().await;
    corner.disk.fail_sync_at(corner.disk.syncs() + k, io::ErrorKind::Other);
    for _ in 0..4 {
        if journal.send("orders", 20_000).await.is_err() || journal.drain("orders").await.is_err() {
            break;
        }
        corner.at_rest().await;
    }
    let disk = corner.disk.crash(SimDisk::NOTHING_KEPT);
    let again = corner.open_on(Arc::new(disk)).await;
    let again = again.unwrap_or_else(|error| panic!("sync {k}: it does not open: {error}"));
    assert_eq!(again.live("kept").await, 1, "sync {k}: it is lost");
}

#[tokio::test]
async fn a_message_is_not_lost_by_a_move_whose_sync_failed() {
    for k in 1..=8 {
        move_with_failing_sync(k).await;
    }
}

#[tokio::test]
async fn naming_mailboxes_does_not_use_up_the_reserve_of_a_full_disk() {
    let corner = Corner::new();
    corner.disk.capacity(6 * u64::from(SEGMENT_LEN) + 8 * 1024);
    let journal = corner.open().await;
    journal.fill("orders").await;
    let deliveries = journal.receive("orders", 10).await.unwrap();
    assert_eq!(deliveries.len(), 10);
    let left = journal.live("orders").await - 10;
    let mut refusal = None;
    for number in 0..5_000 {
        refusal = journal.receive(&format!("probe-{number}"), 1).await.err();
        if refusal.is_some() {
            break;
        }
    }
    let refusal = refusal.expect("5000 mailboxes were made on a full disk");
    assert!(is_full(&refusal), "{refusal:?}");
    for delivery in deliveries {
        journal.acknowledge("orders", delivery.receipt_handle).await.unwrap();
    }
    // There may be no space for an index: then it opens without.
    let _ = journal.close().await;
    let again = corner.open_on(Arc::new(corner.disk.fork())).await.unwrap();
    assert_eq!(again.live("orders").await, left);
}

#[tokio::test]
async fn a_journal_comes_to_rest_when_opened_with_shorter_segments_than_its_messages() {
    let corner = Corner::new().with_lens(512 * 1024, 200 * 1024);
    let journal = corner.open().await;
    journal.send("kept", 100 * 1024).await.unwrap();
    for _ in 0..20 {
        journal.send("orders", 100 * 1024).await.unwrap();
    }
    journal.drain("orders").await.unwrap();
    corner.at_rest().await;
    journal.close().await.unwrap();
    let corner = corner.with_lens(SEGMENT_LEN, 28 * 1024);
    let journal = corner.open().await;
    for _ in 0..20 {
        journal.send("orders", 20_000).await.unwrap();
    }
    corner.at_rest().await;
    assert_eq!(journal.live("orders").await, 20);
    let kept = journal.receive("kept", 1).await.unwrap().remove(0);
    assert_eq!(kept.letter.payload.len(), 100 * 1024);
}

#[tokio::test]
async fn messages_that_cannot_be_read_are_not_in_the_way_of_others() {
    let corner = Corner::new();
    let journal = corner.open().await;
    for _ in 0..2 {
        journal.send("orders", 28_000).await.unwrap();
    }
    let third = journal.send("orders", 28_000).await.unwrap();
    corner.disk.fail_reads("00000001.segment");
    let mut received = Vec::new();
    for _ in 0..10 {
        corner.clock.advance(Duration::from_secs(1));
        match journal.receive("orders", 1).await {
            Ok(deliveries) => received.extend(deliveries),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}"),
        }
    }
    let received: Vec<_> = received.into_iter().map(|delivery| delivery.id).collect();
    assert_eq!(received, [third]);
    assert_eq!(journal.live("orders").await, 3, "what cannot be read now is still there");
}

#[tokio::test]
async fn nothing_hangs_on_a_full_disk_whose_oldest_segment_cannot_be_read() {
    let corner = Corner::new();
    let journal = corner.open().await;
    for _ in 0..16 {
        journal.send("kept", 4_000).await.unwrap();
    }
    corner.disk.fail_reads("00000001.segment");
    corner.disk.capacity(8 * u64::from(SEGMENT_LEN));
    journal.fill("orders").await;
    // Some of it may be refused for want of space; all of it is answered.
    for _ in 0..400 {
        let Ok(deliveries) = journal.receive("orders", 1).await else { continue };
        for delivery in deliveries {
            if let Err(error) = journal.acknowledge("orders", delivery.receipt_handle).await {
                assert!(is_full(&error), "{error:?}");
            }
        }
    }
    for _ in 0..5_000 {
        if let Err(error) = journal.configure("orders").await {
            return assert!(is_full(&error), "{error:?}");
        }
    }
    panic!("no space is taken back, and there is no end to it");
}

#[tokio::test]
async fn what_is_synced_after_a_stop_whose_sync_failed_survives_a_power_cut() {
    let mut failures = 0;
    for k in 1..=4 {
        let corner = Corner::os_buffered();
        let journal = corner.open().await;
        journal.send("orders", 3_000).await.unwrap();
        corner.at_rest().await;
        corner.disk.fail_sync_at(corner.disk.syncs() + k, io::ErrorKind::Other);
        failures += u32::from(journal.close().await.is_err());
        let disk = corner.disk.fork();
        let config = corner.config.clone().with_durability(Durability::Fsync);
        let corner = Corner { config, ..corner };
        let journal = corner.open_on(Arc::new(disk.clone())).await.unwrap();
        let synced = journal.send("orders", 10).await.unwrap();
        let disk = disk.crash(SimDisk::NOTHING_KEPT);
        let again = corner.open_on(Arc::new(disk)).await;
        let again = again.unwrap_or_else(|error| panic!("sync {k}: it does not open: {error}"));
        let live = again.0.peek(&name("orders"), &Peek::Live { limit: 10 }).await.unwrap();
        assert!(live.iter().any(|record| record.id == synced), "sync {k}: it is lost");
    }
    assert!(failures > 0, "no stop failed");
}

#[tokio::test]
async fn a_second_close_says_what_the_first_one_said() {
    let mut failures = 0;
    for k in 1..=4 {
        let corner = Corner::new();
        let journal = corner.open().await;
        journal.send("orders", 10).await.unwrap();
        corner.at_rest().await;
        corner.disk.fail_sync_at(corner.disk.syncs() + k, io::ErrorKind::Other);
        let [first, second] = [journal.close().await, journal.close().await];
        failures += u32::from(first.is_err());
        let said = |closed: Result<()>| closed.map_err(|error| (error.kind(), error.to_string()));
        assert_eq!(said(first), said(second), "sync {k}");
    }
    assert!(failures > 0, "no close failed");
}

#[tokio::test]
async fn a_move_that_stops_half_way_for_want_of_space_leaks_none() {
    const KEPT: usize = 40;
    let corner = Corner::new().with_lens(1024 * 1024, 20 * 1024);
    let journal = corner.open().await;
    for mailbox in ["kept", "orders", "orders"] {
        for _ in 0..KEPT {
            journal.send(mailbox, 12_000).await.unwrap();
        }
    }
    journal.drain("orders").await.unwrap();
    journal.close().await.unwrap();
    // What is in one segment now takes many to move to.
    let corner = corner.with_lens(SEGMENT_LEN, 28 * 1024);
    let journal = corner.open().await;
    for _ in 0..200 {
        journal.send("orders", 4_000).await.unwrap();
        journal.drain("orders").await.unwrap();
    }
    corner.at_rest().await;
    let (len, live) = (corner.segments_len(), KEPT * 12_100);
    assert!(len <= 2 * live + 2 * 1024 * 1024, "{len} bytes on disk for {live}");
    assert_eq!(journal.live("kept").await, KEPT as u64);
}
