//! Two processes at work on one mailbox at the same time, in real time: both send, receive, settle
//! for each other, let go and come too late. What they did is written down by one clock, and judged
//! afterwards: nothing lost, nothing made up, no two holders, counts that only rise.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use mailbox::{
    Backend, Delivery, ErrorKind, MessageId, Name, Outgoing, ReceiptHandle, ReceiveOptions,
    Settlement, Verdict,
};
use parking_lot::Mutex;

use super::{Opening, Pair};
use crate::case::Outcome;
use crate::fault::Dice;

/// How long everybody may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a message is held: some are let go of, so this is how long those take.
const VISIBILITY: Duration = Duration::from_millis(400);
/// Senders in each process, and receivers in each process.
const EACH: u64 = 2;

/// What happened to one delivery.
#[derive(Debug, Clone)]
struct Held {
    handle: String,
    count: u32,
    /// When it was asked for, and when it was there.
    asked: Instant,
    got: Instant,
    /// When settling it began, and when that was done.
    settling: Option<Instant>,
    acknowledged: Option<Instant>,
}

/// All that happened, by message.
#[derive(Debug, Default)]
struct Log {
    sent: BTreeMap<MessageId, u64>,
    held: BTreeMap<MessageId, Vec<Held>>,
    bodies: BTreeMap<MessageId, BTreeSet<Bytes>>,
}

/// Lets two processes send, receive and settle this many messages of one mailbox at the same time.
///
/// # Errors
/// What was not as it should be.
pub async fn both_at_once(messages: u64, seed: u64) -> Outcome {
    let dir = tempfile::tempdir()?;
    let path = dir.path().to_owned();
    let opening = Opening {
        path,
        sharded: seed % 2 == 1,
        max_mailboxes: None,
        max_waiters: None,
        max_payload: None,
    };
    let pair = Arc::new(Pair::open(opening, None).await?);
    let work = Arc::new(Work {
        pair: Arc::clone(&pair),
        mailbox: Name::parse("both")?,
        messages,
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        log: Mutex::default(),
    });
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..2 * EACH {
        let (sends, receives) = (Arc::clone(&work), Arc::clone(&work));
        let dice = Dice(seed.wrapping_mul(1_000) + worker);
        tasks.spawn(async move { sends.send(worker % 2 == 0).await });
        tasks.spawn(async move { receives.receive(worker % 2 == 0, dice).await });
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Outcome::Ok(())
    };
    match tokio::time::timeout(PATIENCE, all).await {
        Ok(ended) => ended?,
        Err(_) => {
            let done = work.done.load(Ordering::SeqCst);
            return Err(format!("{done} of {messages} were acknowledged in {PATIENCE:?}").into());
        }
    }
    for half in [pair.here() as &dyn Backend, pair.there()] {
        let stats = half.stats(&work.mailbox).await?;
        if (stats.live(), stats.dead) != (0, 0) {
            return Err(format!("something is left: {stats:?}").into());
        }
    }
    let faults = work.log.lock().faults(messages);
    pair.close().await?;
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n").into()) }
}

struct Work {
    pair: Arc<Pair>,
    mailbox: Name,
    messages: u64,
    next: AtomicU64,
    done: AtomicU64,
    log: Mutex<Log>,
}

fn body(number: u64) -> Bytes {
    Bytes::from(format!("message {number}"))
}

impl Work {
    fn half(&self, is_here: bool) -> &dyn Backend {
        if is_here { self.pair.here() } else { self.pair.there() }
    }

    async fn send(&self, is_here: bool) -> Outcome {
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            if number >= self.messages {
                return Ok(());
            }
            let batch = vec![Outgoing::new(body(number))];
            for sent in self.half(is_here).send(&self.mailbox, batch).await? {
                self.log.lock().sent.insert(sent?.id, number);
            }
        }
    }

    async fn receive(&self, is_here: bool, mut dice: Dice) -> Outcome {
        while self.done.load(Ordering::SeqCst) < self.messages {
            let most = 1 + u32::try_from(dice.roll(3))?;
            let options = ReceiveOptions::new()
                .with_max_messages(most)
                .with_visibility_timeout(VISIBILITY)
                .with_wait(Duration::from_millis(50));
            let asked = Instant::now();
            let taken = self.half(is_here).receive(&self.mailbox, &options).await?;
            let got = Instant::now();
            for delivery in &taken {
                self.log.lock().hold(delivery, asked, got);
            }
            for delivery in taken {
                self.settle(delivery, &mut dice).await?;
            }
        }
        Ok(())
    }

    /// Mostly acknowledges; whoever does it, it is often not who received.
    async fn settle(&self, delivery: Delivery, dice: &mut Dice) -> Outcome {
        let verdict = match dice.roll(12) {
            // Let go: its time ends by itself.
            0 => return Ok(()),
            1 => {
                // Too late, perhaps.
                tokio::time::sleep(VISIBILITY).await;
                Verdict::Acknowledge
            }
            2 => Verdict::Nack { delay: Duration::ZERO, error: None },
            3 => Verdict::Return,
            4 => Verdict::Extend { timeout: Duration::from_millis(1) },
            _ => Verdict::Acknowledge,
        };
        let acknowledges = verdict == Verdict::Acknowledge;
        let handle = delivery.receipt_handle.to_string();
        self.log.lock().change(&delivery.id, &handle, |held| held.settling = Some(Instant::now()));
        let receipt_handle = ReceiptHandle::from_text(&handle);
        let half = self.half(dice.roll(2) == 0);
        let batch = vec![Settlement { receipt_handle, verdict }];
        for settled in half.settle(&self.mailbox, batch).await? {
            match settled {
                Ok(()) if acknowledges => {
                    let now = Instant::now();
                    let mut log = self.log.lock();
                    log.change(&delivery.id, &handle, |held| held.acknowledged = Some(now));
                    self.done.fetch_add(1, Ordering::SeqCst);
                }
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::ReceiptHandleExpired => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Log {
    fn hold(&mut self, delivery: &Delivery, asked: Instant, got: Instant) {
        let held = Held {
            handle: delivery.receipt_handle.to_string(),
            count: delivery.delivery_count,
            asked,
            got,
            settling: None,
            acknowledged: None,
        };
        self.held.entry(delivery.id.clone()).or_default().push(held);
        let bodies = self.bodies.entry(delivery.id.clone()).or_default();
        bodies.insert(delivery.letter.payload.clone());
    }

    fn change(&mut self, id: &MessageId, handle: &str, change: impl FnOnce(&mut Held)) {
        let all = self.held.get_mut(id).into_iter().flatten();
        if let Some(held) = all.into_iter().find(|held| held.handle == handle) {
            change(held);
        }
    }

    /// What is not as it should be.
    fn faults(&self, messages: u64) -> Vec<String> {
        let mut faults = Vec::new();
        if self.sent.len() as u64 != messages {
            faults.push(format!("{} ids for {messages} messages", self.sent.len()));
        }
        for id in self.held.keys().filter(|id| !self.sent.contains_key(id)) {
            faults.push(format!("{id} was delivered, and never sent"));
        }
        for (id, number) in &self.sent {
            let Some(held) = self.held.get(id) else {
                faults.push(format!("{id} was never delivered"));
                continue;
            };
            if self.bodies.get(id) != Some(&BTreeSet::from([body(*number)])) {
                faults.push(format!("{id} has another payload than was sent"));
            }
            if held.iter().filter(|held| held.acknowledged.is_some()).count() != 1 {
                faults.push(format!("{id} was not acknowledged once: {held:?}"));
            }
            for (place, first) in held.iter().enumerate() {
                for second in &held[place + 1..] {
                    faults.extend(
                        first
                            .against(second)
                            .map(|why| format!("{id} {why}: {first:?} and {second:?}")),
                    );
                }
            }
        }
        faults
    }
}

impl Held {
    /// Until when nobody else can have it, at least.
    fn until(&self) -> Instant {
        let over = self.asked + VISIBILITY;
        self.settling.map_or(over, |settling| settling.min(over))
    }

    /// What is wrong with two deliveries of one message.
    fn against(&self, other: &Self) -> Option<&'static str> {
        if self.handle == other.handle {
            return Some("was delivered twice with one handle");
        }
        if self.got.max(other.got) < self.until().min(other.until()) {
            return Some("had two holders at the same time");
        }
        let (first, second) = if self.got <= other.asked { (self, other) } else { (other, self) };
        if first.got > second.asked {
            return None;
        }
        if first.acknowledged.is_some_and(|done| done <= second.asked) {
            return Some("was delivered after it was acknowledged");
        }
        // A delivery that is undone does not count: the next one has its number.
        (first.count > second.count).then_some("has a count that fell")
    }
}
