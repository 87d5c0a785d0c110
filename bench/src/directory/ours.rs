//! An inbox as the bench uses it: one mailbox, through the `Backend` trait, bytes only.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mailbox::backends::directory::{DirectoryBackend, DirectoryConfig};
use mailbox::{
    Backend, Delivery, Durability, Name, Outgoing, ReceiveOptions, Settlement, Settling, Verdict,
};

use crate::journal::load::{Bodies, Sink};

/// What the mailbox is called, which is the name of its folder too.
pub(crate) const MAILBOX: &str = "bench";
/// Messages of a batch where sending itself is not what is measured.
const BATCH: u64 = 256;
/// Longer than any part takes: nothing comes back while it is measured.
const HELD: Duration = Duration::from_secs(3_600);

/// An open folder of inboxes, with one of them.
#[derive(Debug)]
pub(crate) struct Ours {
    backend: Arc<DirectoryBackend>,
    mailbox: Name,
}

impl Ours {
    /// Everything as it is by default.
    pub(crate) async fn open(path: &Path) -> Arc<Self> {
        Self::open_with(path, DirectoryConfig::default()).await
    }

    /// Everything as it is by default but that settling does not wait for the disk.
    pub(crate) async fn open_lazy(path: &Path) -> Arc<Self> {
        let mut config = DirectoryConfig::default();
        config.settle = Settling::Lazy;
        Self::open_with(path, config).await
    }

    /// To be filled: nobody waits for the disk.
    pub(crate) async fn make(path: &Path, is_sharded: bool) -> Arc<Self> {
        let mut config = DirectoryConfig::default();
        config.sharded = is_sharded;
        config.durability = Durability::OsBuffered;
        Self::open_with(path, config).await
    }

    async fn open_with(path: &Path, config: DirectoryConfig) -> Arc<Self> {
        let backend = DirectoryBackend::open_with(path, config).await.expect("the folder opens");
        Arc::new(Self { backend, mailbox: Name::try_from(MAILBOX).expect("a good name") })
    }

    async fn send_batch(&self, bodies: impl Iterator<Item = Bytes> + Send) {
        let batch = bodies.map(Outgoing::new).collect();
        let sent = self.backend.send(&self.mailbox, batch).await.expect("the inbox is open");
        assert!(sent.iter().all(Result::is_ok), "a plain send into an unbounded mailbox");
    }

    /// Sends `count` messages.
    pub(crate) async fn fill(&self, count: u64) {
        let mut bodies = Bodies::new();
        let mut left = count;
        while left > 0 {
            let size = left.min(BATCH);
            self.send_batch((0..size).map(|_| bodies.next())).await;
            left -= size;
        }
    }

    /// Receives up to `max_messages`, of which one at least must come within `wait`.
    pub(crate) async fn receive(&self, max_messages: u32, wait: Duration) -> Vec<Delivery> {
        let options = ReceiveOptions::new()
            .with_max_messages(max_messages)
            .with_visibility_timeout(HELD)
            .with_wait(wait);
        self.backend.receive(&self.mailbox, &options).await.expect("the inbox is open")
    }

    /// Acknowledges all of it.
    pub(crate) async fn acknowledge(&self, deliveries: Vec<Delivery>) {
        let settlement = |delivery: Delivery| Settlement {
            receipt_handle: delivery.receipt_handle,
            verdict: Verdict::Acknowledge,
        };
        let batch = deliveries.into_iter().map(settlement).collect();
        let settled = self.backend.settle(&self.mailbox, batch).await;
        let settled = settled.expect("the inbox is open");
        assert!(settled.iter().all(Result::is_ok), "acknowledged in time");
    }

    /// Removes everything.
    pub(crate) async fn clear(&self) {
        self.backend.purge(&self.mailbox).await.expect("the inbox is open");
    }

    /// Ends it.
    pub(crate) async fn close(&self) {
        self.backend.close().await.expect("the folder closes");
    }
}

impl Sink for Ours {
    async fn send(&self, body: Bytes) {
        self.send_batch(std::iter::once(body)).await;
    }
}
