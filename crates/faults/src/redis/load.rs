//! Producers and consumers that never stop, each a task, and the book in which they write what they
//! do. Producers and consumers have a backend each, as processes would.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mailbox::backends::redis::RedisBackend;
use mailbox::{Backend, Delivery, ErrorKind, Name, ReceiveOptions, Settlement, Verdict};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::letters::Letters;
use crate::redis::book::{Book, number};
use crate::violation::Violation;

/// Between two sends of a producer.
const BREATH: Duration = Duration::from_millis(4);
/// Messages that a receive takes at most.
const BATCH: u32 = 4;
/// How long a message stays with whoever took it. Longer than a failover, so that nothing comes
/// back because of it that would not have come back otherwise.
const LEASE: Duration = Duration::from_secs(4);
/// How long a receive waits.
const WAIT: Duration = Duration::from_secs(5);
/// Producers wait while so many messages are on their way.
const MOST: u64 = 1000;
/// Until everything that was sent has come and everybody is idle.
const DRAINING: Duration = Duration::from_secs(20);
/// Until everybody has done something.
const STARTING: Duration = Duration::from_secs(20);
/// Between two looks at something.
const LOOK: Duration = Duration::from_millis(10);

/// A mailbox, and how many use it.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) name: Name,
    pub(crate) producers: usize,
    pub(crate) consumers: usize,
    /// Nobody receives while others rest: what is sent meanwhile stays there.
    pub(crate) rests: bool,
}

/// All that goes on. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) lanes: Vec<Lane>,
    sender: Arc<RedisBackend>,
    receiver: Arc<RedisBackend>,
    book: Arc<Mutex<Book>>,
    hold: watch::Sender<bool>,
    rest: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Load {
    /// Begins.
    pub(crate) fn start(
        lanes: Vec<Lane>,
        sender: Arc<RedisBackend>,
        receiver: Arc<RedisBackend>,
        seed: u64,
    ) -> Self {
        let letters = Letters { seed, plain: true, groups: false };
        let book = Arc::new(Mutex::new(Book::default()));
        let (hold, held) = watch::channel(false);
        let (rest, resting) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for (mailbox, lane) in lanes.iter().enumerate() {
            for place in 0..lane.producers {
                let producer = Producer {
                    mailbox,
                    place,
                    name: lane.name.clone(),
                    backend: Arc::clone(&sender),
                    letters,
                    book: Arc::clone(&book),
                };
                tasks.spawn(producer.run(held.clone()));
            }
            for _ in 0..lane.consumers {
                let consumer = Consumer {
                    name: lane.name.clone(),
                    backend: Arc::clone(&receiver),
                    letters,
                    book: Arc::clone(&book),
                };
                tasks.spawn(consumer.run(lane.rests.then(|| resting.clone())));
            }
        }
        Self { lanes, sender, receiver, book, hold, rest, tasks }
    }

    /// What was written down.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        write_in(&self.book)
    }

    /// Lets producers go on, and waits until every mailbox has been sent to.
    pub(crate) async fn flow(&self) -> Result<(), String> {
        self.hold.send_replace(false);
        let start = Instant::now();
        let is_flowing = || {
            let book = self.book();
            (0..self.lanes.len()).all(|mailbox| book.is_served_since(mailbox, start))
        };
        match until(STARTING, is_flowing).await {
            true => Ok(()),
            false => Err("no send to some mailbox was answered".to_owned()),
        }
    }

    /// Whether consumers of mailboxes that rest do so now.
    pub(crate) fn rest(&self, is_resting: bool) {
        self.rest.send_replace(is_resting);
    }

    /// Holds producers back until everything that was sent has come and was settled; then looks
    /// what was lost.
    pub(crate) async fn settle(&self) {
        self.hold.send_replace(true);
        let start = Instant::now();
        let left = loop {
            let open = self.book().in_flight(self.lanes.len());
            let left = match open {
                0 => self.left().await,
                open => Some(format!("{open} calls and deliveries are open")),
            };
            if left.is_none() || start.elapsed() > DRAINING {
                break left;
            }
            tokio::time::sleep(LOOK).await;
        };
        let mut book = self.book();
        match left {
            None => book.audit(),
            Some(left) => {
                book.report(Violation::Stuck(format!("the rest of the messages: {left}")))
            }
        }
    }

    /// Ends everything in order.
    pub(crate) async fn end(mut self) {
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        for backend in [&self.sender, &self.receiver] {
            // It holds nothing but connections.
            let _ = backend.close().await;
        }
    }

    /// What is still in the mailboxes.
    async fn left(&self) -> Option<String> {
        for lane in &self.lanes {
            match self.receiver.stats(&lane.name).await {
                Ok(stats) if stats.live() + stats.dead == 0 => {}
                Ok(stats) => return Some(format!("{}: {stats:?}", lane.name)),
                Err(error) => return Some(format!("{}: {error:#}", lane.name)),
            }
        }
        None
    }
}

/// Waits until something is so; false if it is not in time.
pub(crate) async fn until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > limit {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
    true
}

fn write_in(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().expect("nobody panics while writing")
}

#[derive(Debug)]
struct Producer {
    mailbox: usize,
    place: usize,
    name: Name,
    backend: Arc<RedisBackend>,
    letters: Letters,
    book: Arc<Mutex<Book>>,
}

impl Producer {
    async fn run(self, mut held: watch::Receiver<bool>) {
        for sequence in 0..u32::MAX {
            // An error means that everything is over.
            if held.wait_for(|hold| !hold).await.is_err() {
                return;
            }
            while write_in(&self.book).backlog() >= MOST {
                tokio::time::sleep(LOOK).await;
            }
            self.send(number(self.mailbox, self.place, sequence)).await;
            tokio::time::sleep(BREATH).await;
        }
    }

    async fn send(&self, number: u64) {
        let batch = vec![self.letters.outgoing(number)];
        write_in(&self.book).try_send(number);
        let sent = self.backend.send(&self.name, batch).await;
        let sent = sent.map(|mut sent| sent.pop());
        let mut book = write_in(&self.book);
        match sent {
            Ok(Some(Ok(sent))) => book.sent(number, &sent.id, Instant::now()),
            Ok(None) => book.send_failed(number, "a send without an answer".to_owned()),
            Ok(Some(Err(error))) | Err(error) => match error.kind() {
                ErrorKind::Connection => book.send_in_doubt(number),
                _ => book.send_failed(number, format!("send: {error:#}")),
            },
        }
    }
}

#[derive(Debug)]
struct Consumer {
    name: Name,
    backend: Arc<RedisBackend>,
    letters: Letters,
    book: Arc<Mutex<Book>>,
}

impl Consumer {
    async fn run(self, mut resting: Option<watch::Receiver<bool>>) {
        let options = ReceiveOptions::new()
            .with_max_messages(BATCH)
            .with_visibility_timeout(LEASE)
            .with_wait(WAIT);
        loop {
            if let Some(resting) = &mut resting
                && resting.wait_for(|is_resting| !is_resting).await.is_err()
            {
                return;
            }
            let began = Instant::now();
            match self.backend.receive(&self.name, &options).await {
                Ok(deliveries) => self.take(deliveries, began).await,
                Err(error) => {
                    match error.kind() {
                        ErrorKind::Connection => write_in(&self.book).receive_failed(),
                        _ => write_in(&self.book).failed(format!("receive: {error:#}")),
                    }
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    async fn take(&self, deliveries: Vec<Delivery>, began: Instant) {
        let mut numbers = Vec::with_capacity(deliveries.len());
        let mut batch = Vec::with_capacity(deliveries.len());
        {
            let mut book = write_in(&self.book);
            for delivery in deliveries {
                let Some(number) = self.recognise(&mut book, &delivery) else { continue };
                book.delivered(number, &delivery.id, began);
                numbers.push(number);
                let receipt_handle = delivery.receipt_handle;
                batch.push(Settlement { receipt_handle, verdict: Verdict::Acknowledge });
            }
        }
        if batch.is_empty() {
            return;
        }
        let settled = self.backend.settle(&self.name, batch).await;
        let at = Instant::now();
        let mut book = write_in(&self.book);
        for (place, number) in numbers.into_iter().enumerate() {
            let error = match &settled {
                Ok(settled) => settled.get(place).and_then(|one| one.as_ref().err()),
                Err(error) => Some(error),
            };
            match error.map(mailbox::Error::kind) {
                None => book.acked(number, at),
                Some(ErrorKind::Connection) => book.ack_in_doubt(number),
                Some(ErrorKind::ReceiptHandleExpired) => book.ack_refused(number),
                Some(kind) => {
                    book.ack_refused(number);
                    book.failed(format!("acknowledge: {kind:?}: {error:?}"));
                }
            }
        }
    }

    /// Which message it is; it must be as it was sent.
    fn recognise(&self, book: &mut Book, delivery: &Delivery) -> Option<u64> {
        let Some(number) = delivery.letter.payload.first_chunk() else {
            book.report(Violation::Unreadable);
            return None;
        };
        let number = u64::from_le_bytes(*number);
        if self.letters.outgoing(number).payload != delivery.letter.payload {
            book.report(Violation::Damaged(number));
        }
        Some(number)
    }
}
