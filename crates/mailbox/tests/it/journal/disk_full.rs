//! A disk without space: sends are refused by name, everything else goes on, and draining makes
//! space again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::testing::ManualClock;
use mailbox::{
    Backend, Error, ErrorKind, MessageId, Name, Outgoing, Peek, ReceiveOptions, Settlement, Verdict,
};
use tokio::runtime::Runtime;

use super::audit::Violation;
use super::scale;
use super::workload::{config, own_path};

/// Space for this many segments, and a little for the rest.
const SEGMENTS: u64 = 6;
const CAPACITY: u64 = SEGMENTS * 64 * 1024 + 8 * 1024;
/// More than fit.
const SENDS_MAX: usize = 1_000;
/// Tries until space must have been made; between them there is time for it.
const TRIES_MAX: usize = 2_000;

struct Full {
    path: PathBuf,
    disk: SimDisk,
    config: JournalConfig,
    mailbox: Name,
    /// What was answered and not acknowledged.
    kept: BTreeMap<MessageId, String>,
    sent: u64,
}

impl Full {
    fn new(config: JournalConfig) -> Self {
        let disk = SimDisk::new();
        disk.capacity(CAPACITY);
        let config = config.with_disk(Arc::new(disk.clone()));
        let mailbox = "orders".parse().unwrap();
        Self { path: own_path(), disk, config, mailbox, kept: BTreeMap::new(), sent: 0 }
    }

    async fn open(&self, disk: &SimDisk) -> mailbox::Result<Arc<JournalBackend>> {
        let config = self.config.clone().with_disk(Arc::new(disk.clone()));
        JournalBackend::open_with(&self.path, config).await
    }

    async fn send(&mut self, backend: &JournalBackend) -> Result<(), Error> {
        self.sent += 1;
        let text = format!("{:04000}", self.sent);
        let message = Outgoing::new(text.clone().into());
        let sent = backend.send(&self.mailbox, vec![message]).await?.remove(0)?;
        self.kept.insert(sent.id, text);
        Ok(())
    }

    /// Sends until the disk is full.
    async fn fill(&mut self, backend: &JournalBackend) -> Result<(), Violation> {
        for _ in 0..SENDS_MAX {
            if let Err(error) = self.send(backend).await {
                let is_typed =
                    error.kind() == ErrorKind::Saturated && error.field() == Some("storage");
                return if is_typed { Ok(()) } else { Err(format!("not full, but {error:?}")) };
            }
        }
        Err(format!("{SENDS_MAX} messages went to a disk for {SEGMENTS} segments"))
    }

    /// Receives and acknowledges all there is.
    async fn drain(&mut self, backend: &JournalBackend) -> Result<(), Violation> {
        let options = ReceiveOptions::new().with_max_messages(10);
        while !self.kept.is_empty() {
            let got = backend.receive(&self.mailbox, &options).await;
            let got = got.map_err(|error| format!("cannot receive: {error:?}"))?;
            if got.is_empty() {
                return Err(format!("{} messages are not there", self.kept.len()));
            }
            for delivery in got {
                let expected = self.kept.remove(&delivery.id);
                if expected.as_deref().map(str::as_bytes) != Some(&delivery.letter.payload[..]) {
                    return Err(format!("{} is not what was sent", delivery.id));
                }
                let receipt_handle = delivery.receipt_handle;
                let verdict = Verdict::Acknowledge;
                let batch = vec![Settlement { receipt_handle, verdict }];
                let settled = backend.settle(&self.mailbox, batch).await;
                let settled = settled.and_then(|mut settled| settled.remove(0));
                settled.map_err(|error| format!("cannot acknowledge: {error:?}"))?;
            }
        }
        Ok(())
    }

    /// Sends as soon as there is space again.
    async fn send_again(&mut self, backend: &JournalBackend) -> Result<(), Violation> {
        for _ in 0..TRIES_MAX {
            match self.send(backend).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Saturated => {}
                Err(error) => return Err(format!("not full, but {error:?}")),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Err("it was drained, and is still full".to_owned())
    }

    async fn check(&self, backend: &JournalBackend) -> Result<(), Violation> {
        let mut missing = self.kept.clone();
        let live = Peek::Live { limit: 256 };
        for record in backend.peek(&self.mailbox, &live).await.map_err(|e| e.to_string())? {
            if missing.remove(&record.id).is_none() {
                return Err(format!("{} is back", record.id));
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(format!("{} are lost", missing.len())) }
    }
}

/// Fills and drains a disk as often as this.
pub(super) fn fill_and_drain(config: &JournalConfig, cycles: u64) -> Result<(), Violation> {
    runtime().block_on(async {
        let mut full = Full::new(config.clone());
        let backend = full.open(&full.disk.clone()).await.map_err(|e| e.to_string())?;
        for cycle in 0..cycles {
            let done = async {
                full.fill(&backend).await?;
                full.check(&backend).await?;
                full.drain(&backend).await?;
                full.send_again(&backend).await
            };
            done.await.map_err(|violation| format!("cycle {cycle}: {violation}"))?;
        }
        Ok(())
    })
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn plain() -> JournalConfig {
    config(&ManualClock::new())
}

#[test]
fn a_full_disk_can_be_drained_and_used_again_without_opening_it_anew() {
    fill_and_drain(&plain(), 20 * scale()).unwrap();
}

#[test]
fn a_journal_on_a_full_disk_opens_after_a_kill_and_can_be_drained() {
    runtime().block_on(async {
        let mut full = Full::new(plain());
        let backend = full.open(&full.disk.clone()).await.unwrap();
        full.fill(&backend).await.unwrap();
        for disk in [full.disk.fork(), full.disk.crash(5), full.disk.crash(SimDisk::NOTHING_KEPT)] {
            let again = full.open(&disk).await.unwrap();
            full.check(&again).await.unwrap();
            let kept = full.kept.clone();
            full.drain(&again).await.unwrap();
            full.send_again(&again).await.unwrap();
            full.kept = kept;
        }
    });
}

#[test]
fn a_journal_on_a_full_disk_can_be_closed_and_is_there_afterwards() {
    runtime().block_on(async {
        let mut full = Full::new(plain());
        let backend = full.open(&full.disk.clone()).await.unwrap();
        full.fill(&backend).await.unwrap();
        // Not a byte more, also not for an index.
        full.disk.capacity(0);
        if let Err(error) = backend.close().await {
            assert_eq!(error.kind(), ErrorKind::Saturated, "{error:?}");
        }
        drop(backend);
        let disk = full.disk.fork();
        disk.capacity(CAPACITY);
        let again = full.open(&disk).await.unwrap();
        full.check(&again).await.unwrap();
        full.drain(&again).await.unwrap();
    });
}

#[test]
fn a_new_journal_on_a_disk_that_is_too_small_is_refused_by_name() {
    runtime().block_on(async {
        for capacity in [0, 10, 5_000, 60_000, 70_000] {
            let full = Full::new(plain());
            full.disk.capacity(capacity);
            let error = full.open(&full.disk).await.err();
            if let Some(error) = error {
                assert_eq!(error.kind(), ErrorKind::Saturated, "{capacity}: {error:?}");
                assert_eq!(error.field(), Some("storage"), "{capacity}: {error:?}");
            } else {
                assert!(capacity >= 64 * 1024, "{capacity} bytes were enough for a segment");
            }
            full.disk.capacity(CAPACITY);
            let mut full = full;
            let backend = full.open(&full.disk.clone()).await.unwrap();
            full.send_again(&backend).await.unwrap();
        }
    });
}
