//! Journals to be damaged, with everything that a log can hold.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mailbox_core::{DeadReason, Policy, Verdict};

use crate::backend::{Backend, Outgoing, Peek, Settlement};
use crate::backends::journal::disk::{Disk, SimDisk};
use crate::backends::journal::{JournalBackend, JournalConfig};
use crate::id::MessageId;
use crate::name::Name;
use crate::options::ReceiveOptions;
use crate::testing::ManualClock;

/// Where the journal is.
pub(super) const AT: &str = "/data/journal";

/// A small and repeatable source of chance.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

pub(super) fn config(disk: &SimDisk, clock: &ManualClock) -> JournalConfig {
    let mut config = JournalConfig::default()
        .with_segment_len(64 * 1024)
        .with_max_payload(8 * 1024)
        .with_clock(clock.clock())
        .with_disk(Arc::new(disk.clone()));
    config.shards = 2;
    config
}

pub(super) fn shared(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

pub(super) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// A journal with a past; closed properly or not.
pub(super) async fn journal(seed: u64, closed: bool) -> (SimDisk, ManualClock) {
    let (disk, clock) = (SimDisk::new(), ManualClock::new());
    let backend = JournalBackend::open_with(AT, config(&disk, &clock)).await.unwrap();
    let mut chance = Chance(seed);
    let names = ["jobs", "mail", "logs", "gone"].map(name);
    let policy = Policy { max_attempts: Some(7), ..Policy::default() };
    backend.configure(&names[0], policy).await.unwrap();
    for step in 0..260_u64 {
        let mailbox = &names[usize::try_from(chance.below(4)).unwrap()];
        clock.advance(Duration::from_millis(chance.below(50)));
        match chance.below(100) {
            0 => {
                backend.purge(&names[3]).await.unwrap();
            }
            1 => {
                backend.remove(&names[3]).await.unwrap();
            }
            2..45 => send(&backend, mailbox, step, &mut chance).await,
            _ => consume(&backend, mailbox, &mut chance).await,
        }
    }
    if closed {
        backend.close().await.unwrap();
    }
    (disk.fork(), clock)
}

/// A journal of one mailbox that fills several segments; message by message, in order.
pub(super) async fn filled() -> (SimDisk, ManualClock) {
    let (disk, clock) = (SimDisk::new(), ManualClock::new());
    let mut config = config(&disk, &clock);
    config.shards = 1;
    let backend = JournalBackend::open_with(AT, config).await.unwrap();
    for number in 0..100_u8 {
        let message = Outgoing::new(Bytes::from(vec![number; 3_000]));
        backend.send(&name("jobs"), vec![message]).await.unwrap().remove(0).unwrap();
    }
    (disk.fork(), clock)
}

async fn send(backend: &JournalBackend, mailbox: &Name, step: u64, chance: &mut Chance) {
    let len = usize::try_from(chance.below(3_000)).unwrap();
    let mut message = Outgoing::new(Bytes::from(vec![b'a' + (step % 26) as u8; len]));
    message.attributes.insert("step".to_owned(), step.to_string());
    match chance.below(6) {
        0 => message.idempotency_key = Some(format!("key-{step}")),
        1 => message.group = Some(format!("group-{}", chance.below(3))),
        2 => message.delay = Duration::from_secs(chance.below(100)),
        3 => message.reply_to = Some("mail".to_owned()),
        _ => {}
    }
    backend.send(mailbox, vec![message]).await.unwrap().remove(0).unwrap();
}

async fn consume(backend: &JournalBackend, mailbox: &Name, chance: &mut Chance) {
    let options = ReceiveOptions::new()
        .with_max_messages(2)
        .with_visibility_timeout(Duration::from_secs(1 + chance.below(100)));
    for delivery in backend.receive(mailbox, &options).await.unwrap() {
        let verdict = match chance.below(8) {
            0 => Verdict::Nack { delay: Duration::ZERO, error: Some("no".into()) },
            1 => Verdict::Reject { reason: DeadReason::Rejected, error: Some("bad".into()) },
            2 => Verdict::Extend { timeout: Duration::from_secs(200) },
            3 => continue,
            _ => Verdict::Acknowledge,
        };
        let settlement = Settlement { receipt_handle: delivery.receipt_handle, verdict };
        backend.settle(mailbox, vec![settlement]).await.unwrap().remove(0).unwrap();
    }
}

/// A message as a reader sees it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: MessageId,
    pub(super) mailbox: Name,
    pub(super) payload: Bytes,
    pub(super) attempts: u32,
    pub(super) reason: Option<DeadReason>,
    pub(super) last_error: Option<String>,
}

impl fmt::Debug for Seen {
    /// Without the payload, which is long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, mailbox, payload, attempts, reason, last_error } = self;
        let len = payload.len();
        write!(f, "{mailbox} {id}: {len} bytes, {attempts}, {reason:?}, {last_error:?}")
    }
}

/// Every message in a journal that opens.
pub(super) async fn see_all(
    path: impl AsRef<Path>,
    config: JournalConfig,
) -> crate::Result<Vec<Seen>> {
    let backend = JournalBackend::open_with(path, config).await?;
    let mut seen = Vec::new();
    for mailbox in backend.list(None, 100).await? {
        let live = backend.peek(&mailbox, &Peek::Live { limit: 256 }).await?;
        let dead = backend.peek(&mailbox, &Peek::Dead { after: None, limit: 256 }).await?;
        seen.extend(live.into_iter().chain(dead).map(|record| Seen {
            id: record.id,
            mailbox: mailbox.clone(),
            payload: record.letter.payload.clone(),
            attempts: record.delivery_count,
            reason: record.death.map(|death| death.reason),
            last_error: record.last_error,
        }));
    }
    backend.close().await?;
    Ok(seen)
}
