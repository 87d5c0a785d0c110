//! The journal as the bench uses it: one mailbox, through the `Backend` trait, bytes only.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::{Backend, Delivery, Name, Outgoing, ReceiveOptions, Settlement, Verdict};

use crate::journal::load::{Bodies, Sink};
use crate::journal::place::files;

/// Length of a log file in every part.
pub(crate) const SEGMENT_LEN: u32 = 16 * 1024 * 1024;
/// Messages of a batch where sending itself is not what is measured.
pub(crate) const BATCH: u64 = 64;
/// Tasks that send or work off batches.
pub(crate) const BATCH_TASKS: usize = 16;
/// How long the journal may take to put its files in order after a round.
const ORDER_TIMEOUT: Duration = Duration::from_secs(20);
const ORDER_STEP: Duration = Duration::from_millis(50);

/// An open journal with one mailbox.
#[derive(Debug)]
pub(crate) struct Ours {
    backend: Arc<JournalBackend>,
    mailbox: Name,
    path: PathBuf,
}

impl Ours {
    /// Everything as it is by default.
    pub(crate) async fn open(path: &Path) -> Arc<Self> {
        Self::open_with(path, JournalConfig::default()).await
    }

    /// With so many files made ahead that a round of sends does not need new ones.
    pub(crate) async fn open_with_spares(path: &Path, spare_segments: u32) -> Arc<Self> {
        let mut config = JournalConfig::default();
        config.spare_segments = spare_segments;
        let ours = Self::open_with(path, config).await;
        ours.in_order().await;
        ours
    }

    async fn open_with(path: &Path, mut config: JournalConfig) -> Arc<Self> {
        config.segment_len = SEGMENT_LEN;
        let backend = JournalBackend::open_with(path, config).await.expect("the journal opens");
        let mailbox = Name::try_from("bench").expect("a good name");
        Arc::new(Self { backend, mailbox, path: path.to_owned() })
    }

    /// Sends a batch.
    pub(crate) async fn send_batch(&self, bodies: impl Iterator<Item = Bytes> + Send) {
        let batch = bodies.map(Outgoing::new).collect();
        let sent = self.backend.send(&self.mailbox, batch).await.expect("the journal is open");
        assert!(sent.iter().all(Result::is_ok), "a plain send into an unbounded mailbox");
    }

    /// Sends `count` messages, many at a time.
    pub(crate) async fn fill(self: &Arc<Self>, count: u64) {
        let started = Arc::new(AtomicU64::new(0));
        let bodies = Bodies::new();
        let task = |number: usize| {
            let (ours, started) = (Arc::clone(self), Arc::clone(&started));
            let mut bodies = bodies.starting_at(number);
            tokio::spawn(async move {
                while let Some(size) = share(&started, count) {
                    ours.send_batch((0..size).map(|_| bodies.next())).await;
                }
            })
        };
        let tasks: Vec<_> = (0..BATCH_TASKS).map(task).collect();
        for task in tasks {
            task.await.expect("a producer does not panic");
        }
    }

    /// Receives up to `max_messages`, of which one at least must come soon.
    pub(crate) async fn receive(&self, max_messages: u32) -> Vec<Delivery> {
        let options = ReceiveOptions::new()
            .with_max_messages(max_messages)
            .with_wait(Duration::from_secs(20));
        let received = self.backend.receive(&self.mailbox, &options).await;
        let received = received.expect("the journal is open");
        assert!(!received.is_empty(), "messages wait");
        received
    }

    /// Acknowledges all of it.
    pub(crate) async fn acknowledge(&self, deliveries: Vec<Delivery>) {
        let settlement = |delivery: Delivery| Settlement {
            receipt_handle: delivery.receipt_handle,
            verdict: Verdict::Acknowledge,
        };
        let batch = deliveries.into_iter().map(settlement).collect();
        let settled = self.backend.settle(&self.mailbox, batch).await;
        let settled = settled.expect("the journal is open");
        assert!(settled.iter().all(Result::is_ok), "acknowledged in time");
    }

    /// Messages that are there.
    pub(crate) async fn live(&self) -> u64 {
        self.backend.stats(&self.mailbox).await.expect("the journal is open").live()
    }

    /// Removes everything and waits for the files to be in order again.
    pub(crate) async fn clear(&self) {
        self.backend.purge(&self.mailbox).await.expect("the journal is open");
        self.in_order().await;
    }

    /// Waits until no file comes, goes, or changes its length for a while.
    pub(crate) async fn in_order(&self) {
        let start = Instant::now();
        let (mut before, mut quiet) = (Vec::new(), 0);
        while quiet < 5 && start.elapsed() < ORDER_TIMEOUT {
            tokio::time::sleep(ORDER_STEP).await;
            let now: Vec<_> = files(&self.path)
                .into_iter()
                .map(|path| (std::fs::metadata(&path).map_or(0, |found| found.len()), path))
                .collect();
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
        }
    }

    /// Ends it in good order.
    pub(crate) async fn close(&self) {
        self.backend.close().await.expect("the journal closes");
    }
}

impl Sink for Ours {
    async fn send(&self, body: Bytes) {
        self.send_batch(std::iter::once(body)).await;
    }
}

/// The size of the next batch out of `count` messages, `None` when all have been shared out.
pub(crate) fn share(started: &AtomicU64, count: u64) -> Option<u64> {
    let from = started.fetch_add(BATCH, Ordering::Relaxed);
    (from < count).then(|| BATCH.min(count - from))
}
