//! Deliveries over a restart: they hold, they end in time, and time goes on as it should.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::testing::ManualClock;
use mailbox::{
    Backend, Delivery, ErrorKind, Name, Outgoing, Peek, Phase, ReceiveOptions, Settlement,
    Timestamp, Verdict,
};

use super::audit::Violation;
use super::workload::{config, own_path};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A journal that is opened again and again.
struct Journal {
    path: PathBuf,
    disk: SimDisk,
    clock: ManualClock,
    backend: Option<Arc<JournalBackend>>,
}

/// How a journal ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Closed,
    Killed,
    PowerCut,
}

const ENDS: [End; 3] = [End::Closed, End::Killed, End::PowerCut];

impl Journal {
    async fn new() -> Self {
        let (path, disk, clock) = (own_path(), SimDisk::new(), ManualClock::new());
        let mut journal = Self { path, disk, clock, backend: None };
        journal.open().await;
        journal
    }

    async fn open(&mut self) {
        let config = config(&self.clock).with_disk(Arc::new(self.disk.clone()));
        self.backend = Some(JournalBackend::open_with(&self.path, config).await.unwrap());
    }

    async fn end(&mut self, end: End) {
        let backend = self.backend.take().unwrap();
        match end {
            End::Closed => backend.close().await.unwrap(),
            End::Killed => self.disk = self.disk.fork(),
            End::PowerCut => self.disk = self.disk.crash(SimDisk::NOTHING_KEPT),
        }
    }

    async fn restart(&mut self, end: End) {
        self.end(end).await;
        self.open().await;
    }

    fn backend(&self) -> &JournalBackend {
        self.backend.as_deref().unwrap()
    }

    async fn send(&self, text: &'static str) {
        let batch = vec![Outgoing::new(text.into())];
        self.backend().send(&name(), batch).await.unwrap().remove(0).unwrap();
    }

    async fn receive(&self) -> Option<Delivery> {
        let options = ReceiveOptions::new().with_visibility_timeout(TIMEOUT);
        self.backend().receive(&name(), &options).await.unwrap().pop()
    }

    async fn acknowledge(&self, delivery: &Delivery) -> mailbox::Result<()> {
        let receipt_handle = delivery.receipt_handle.clone();
        let batch = vec![Settlement { receipt_handle, verdict: Verdict::Acknowledge }];
        self.backend().settle(&name(), batch).await?.remove(0)
    }

    async fn shown(&self) -> (Phase, Duration) {
        let records = self.backend().peek(&name(), &Peek::Live { limit: 1 }).await.unwrap();
        (records[0].phase, records[0].receivable_in)
    }
}

fn name() -> Name {
    "orders".parse().unwrap()
}

/// A journal with one message in flight, of which the disk knows.
async fn in_flight() -> (Journal, Delivery) {
    let journal = Journal::new().await;
    journal.send("work").await;
    let delivery = journal.receive().await.unwrap();
    // Whatever is answered after it takes the delivery with it to the disk.
    journal.send("more").await;
    (journal, delivery)
}

#[tokio::test]
async fn a_delivery_holds_over_a_restart_and_its_handle_settles_it() {
    for end in ENDS {
        let (mut journal, delivery) = in_flight().await;
        journal.clock.advance(Duration::from_secs(10));
        journal.restart(end).await;
        let (phase, left) = journal.shown().await;
        assert_eq!(phase, Phase::Invisible, "{end:?}");
        assert_eq!(left, TIMEOUT - Duration::from_secs(10), "{end:?}");
        journal.acknowledge(&delivery).await.unwrap();
        journal.restart(end).await;
        assert_eq!(journal.backend().stats(&name()).await.unwrap().live(), 1, "{end:?}");
    }
}

#[tokio::test]
async fn time_goes_on_while_the_journal_is_closed_and_the_machine_runs() {
    for end in ENDS {
        let (mut journal, delivery) = in_flight().await;
        journal.end(end).await;
        journal.clock.advance(TIMEOUT);
        journal.open().await;
        let error = journal.acknowledge(&delivery).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired, "{end:?}");
        // Those that became receivable first come first.
        let more = journal.receive().await.unwrap();
        assert_eq!(more.letter.payload, "more", "{end:?}");
        let again = journal.receive().await.unwrap();
        assert_eq!((again.id.clone(), again.delivery_count), (delivery.id.clone(), 2), "{end:?}");
        assert_ne!(again.receipt_handle, delivery.receipt_handle, "{end:?}");
        journal.acknowledge(&again).await.unwrap();
    }
}

#[tokio::test]
async fn time_stands_still_while_the_machine_is_off() {
    for end in ENDS {
        let (mut journal, delivery) = in_flight().await;
        journal.clock.advance(Duration::from_secs(10));
        // What is written now tells the next boot how late it was.
        journal.send("later").await;
        journal.end(end).await;
        // Another clock is another boot.
        journal.clock = ManualClock::new();
        journal.clock.advance(Duration::from_secs(3_600));
        journal.open().await;
        let (phase, left) = journal.shown().await;
        assert_eq!(phase, Phase::Invisible, "{end:?}");
        assert!(left <= TIMEOUT, "{end:?}: {left:?} is more than one more timeout");
        assert!(left >= TIMEOUT - Duration::from_secs(10), "{end:?}: {left:?} is too early");
        journal.clock.advance(left - Duration::from_millis(1));
        assert_eq!(journal.shown().await.0, Phase::Invisible, "{end:?}");
        journal.acknowledge(&delivery).await.unwrap();
    }
}

#[tokio::test]
async fn a_delivery_ends_at_its_deadline_after_a_restart() {
    for end in ENDS {
        let (mut journal, delivery) = in_flight().await;
        journal.end(end).await;
        journal.clock = ManualClock::new();
        journal.open().await;
        journal.clock.advance(TIMEOUT);
        let error = journal.acknowledge(&delivery).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired, "{end:?}");
        assert_eq!(journal.shown().await.0, Phase::Ready, "{end:?}");
    }
}

#[tokio::test]
async fn steps_of_the_wall_clock_change_no_deadline() {
    for end in ENDS {
        let (mut journal, _delivery) = in_flight().await;
        for years in [-10, 10] {
            let step = Timestamp::from_unix_millis(1_735_689_600_000 + years * 31_536_000_000);
            journal.clock.step_wall(step);
            journal.restart(end).await;
            assert_eq!(journal.shown().await, (Phase::Invisible, TIMEOUT), "{end:?} {years}");
        }
    }
}

#[tokio::test]
async fn no_handle_comes_twice_even_if_a_power_cut_took_the_delivery() {
    handles_are_new(&config(&ManualClock::new())).await.unwrap();
}

/// Receives, cuts the power before the delivery is on the disk, and receives the same message
/// again: the handle must be another.
pub(super) async fn handles_are_new(settings: &JournalConfig) -> Result<(), Violation> {
    let (path, mut disk) = (own_path(), SimDisk::new());
    let mailbox: Name = "orders".parse().unwrap();
    let mut handles = Vec::new();
    for _ in 0..5 {
        let settings = settings.clone().with_disk(Arc::new(disk.clone()));
        let backend = JournalBackend::open_with(&path, settings).await.unwrap();
        if handles.is_empty() {
            let batch = vec![Outgoing::new("work".into())];
            backend.send(&mailbox, batch).await.unwrap().remove(0).unwrap();
        }
        let got = backend.receive(&mailbox, &ReceiveOptions::new()).await.unwrap();
        // If the delivery was on the disk already, there is nothing to receive.
        let Some(delivery) = got.first() else { return Ok(()) };
        disk = disk.crash(SimDisk::NOTHING_KEPT);
        if handles.contains(&delivery.receipt_handle) {
            return Err("a handle came twice".to_owned());
        }
        handles.push(delivery.receipt_handle.clone());
    }
    Ok(())
}
