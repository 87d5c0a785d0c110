//! Does to a journal everything that can be done to one, at random, and notes it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mailbox::backends::journal::disk::Disk;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::testing::ManualClock;
use mailbox::{
    Backend, DeadReason, Delivery, Error, ErrorKind, Name, Outgoing, Policy, ReceiptHandle,
    ReceiveOptions, Result, Selection, Sent, Settlement, Verdict,
};

use super::history::{History, Note, Settle, Tag};

/// The mailboxes that are used.
pub(super) const MAILBOXES: [&str; 4] = ["orders", "mails", "reports", "temporary"];
/// The one whose messages die after some attempts, and how many.
pub(super) const LIMITED: usize = 1;
pub(super) const ATTEMPTS: u32 = 3;
/// The one that is removed from time to time.
pub(super) const TEMPORARY: usize = 3;
/// With more messages than this, some are taken out first.
const MANY: usize = 90;
/// How far the clock is moved at most: less than any key is remembered.
const TIME_MAX: Duration = Duration::from_secs(240);

/// Numbers at random; the same seed gives the same ones.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

/// The message with this number, in all its parts.
pub(super) fn outgoing(tag: Tag) -> Outgoing {
    let mut message = Outgoing::new(payload(tag));
    if tag.is_multiple_of(4) {
        message.attributes.insert("tag".to_owned(), format!("number {tag}"));
    }
    message.idempotency_key = key_of(tag);
    message.group = (tag % 5 == 2).then(|| format!("group-{}", tag % 3));
    message.delay = Duration::from_secs(if tag % 7 == 3 { 5 } else { 0 });
    message
}

pub(super) fn key_of(tag: Tag) -> Option<String> {
    (tag % 3 == 1).then(|| format!("key-{tag}"))
}

fn payload(tag: Tag) -> Bytes {
    let mut random = Random::new(u64::from(tag));
    let len = match random.below(12) {
        0 => 4_000 + random.below(6_000),
        1..=3 => 0,
        _ => 100 + random.below(900),
    };
    let mut bytes = format!("{tag:08}").into_bytes();
    while bytes.len() < len {
        bytes.extend(random.next().to_le_bytes());
    }
    bytes.into()
}

/// The number in a payload.
pub(super) fn tag_of(payload: &[u8]) -> Option<Tag> {
    std::str::from_utf8(payload.get(..8)?).ok()?.parse().ok()
}

/// The rules of a mailbox in one version.
pub(super) fn policy(mailbox: usize, version: u64) -> Policy {
    let max_attempts = (mailbox == LIMITED && version > 0).then_some(ATTEMPTS);
    Policy { max_in_flight: 1_000_000 - version, max_attempts, ..Policy::default() }
}

pub(super) fn version_of(mailbox: usize, rules: &Policy) -> Option<u64> {
    let version = 1_000_000_u64.checked_sub(rules.max_in_flight)?;
    (*rules == policy(mailbox, version)).then_some(version)
}

/// A path that no other journal of this process has.
pub(super) fn own_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    PathBuf::from(format!("/journal-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// How the journals of these tests are set up.
pub(super) fn config(clock: &ManualClock) -> JournalConfig {
    JournalConfig::default()
        .with_segment_len(64 * 1024)
        .with_max_payload(24 * 1024)
        .with_policy(policy(0, 0))
        .with_clock(clock.clock())
}

/// A delivery that was not settled.
#[derive(Debug, Clone)]
struct Held {
    mailbox: usize,
    tag: Tag,
    handle: ReceiptHandle,
}

/// What may happen in a life of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restarts {
    Never,
    /// Closed in order, or dropped.
    Sometimes,
}

/// A journal and those who use it.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) path: PathBuf,
    pub(super) config: JournalConfig,
    pub(super) history: Arc<History>,
    pub(super) clock: ManualClock,
    pub(super) backend: Option<Arc<JournalBackend>>,
    restarts: Restarts,
    random: Random,
    held: Vec<Held>,
    next_tag: Tag,
    versions: u64,
    /// Messages that may be there.
    live: [usize; MAILBOXES.len()],
}

impl Life {
    pub(super) fn new(seed: u64, history: &Arc<History>, config: JournalConfig) -> Self {
        let clock = ManualClock::new();
        Self {
            path: own_path(),
            config: config.with_clock(clock.clock()),
            history: Arc::clone(history),
            clock,
            backend: None,
            restarts: Restarts::Never,
            random: Random::new(seed),
            held: Vec::new(),
            next_tag: 1,
            versions: 0,
            live: [0; MAILBOXES.len()],
        }
    }

    pub(super) fn with_restarts(mut self, restarts: Restarts) -> Self {
        self.restarts = restarts;
        self
    }

    /// Goes on with another disk.
    pub(super) fn move_to(&mut self, disk: Arc<dyn Disk>) {
        self.backend = None;
        self.config.disk = disk;
    }

    pub(super) async fn open(&mut self) -> Result<Arc<JournalBackend>> {
        if let Some(backend) = &self.backend {
            return Ok(Arc::clone(backend));
        }
        let backend = JournalBackend::open_with(&self.path, self.config.clone()).await?;
        self.backend = Some(Arc::clone(&backend));
        Ok(backend)
    }

    /// Does something, and gives the errors that nobody would expect on a good day.
    pub(super) async fn step(&mut self) -> Vec<Error> {
        self.history.note(Note::Step);
        let backend = match self.open().await {
            Ok(backend) => backend,
            Err(error) => return vec![error],
        };
        let mailbox = self.random.below(MAILBOXES.len());
        if self.live[mailbox] > MANY {
            return self.drain(&backend, mailbox).await;
        }
        let mut errors = Vec::new();
        let done = match self.random.below(100) {
            0..40 => self.send(&backend, mailbox, &mut errors).await,
            40..58 => self.receive(&backend, mailbox).await,
            58..82 => self.settle(&backend, &mut errors).await,
            82..88 => self.send_and_receive(&backend, mailbox, &mut errors).await,
            88..90 => self.purge(&backend, mailbox).await,
            90..92 => self.redrive(&backend, mailbox).await,
            92 => self.discard(&backend, mailbox).await,
            93..95 => self.configure(&backend, mailbox).await,
            95 => self.remove(&backend).await,
            96 | 97 => {
                self.pass_time();
                Ok(())
            }
            _ => {
                drop(backend);
                self.restart().await
            }
        };
        errors.extend(done.err());
        errors
    }

    fn pass_time(&self) {
        if self.clock.elapsed() < TIME_MAX {
            self.clock.advance(Duration::from_secs(4));
        }
    }

    async fn restart(&mut self) -> Result<()> {
        if self.restarts == Restarts::Never {
            return Ok(());
        }
        let Some(backend) = self.backend.take() else { return Ok(()) };
        if self.random.below(2) == 0 {
            backend.close().await?;
        }
        Ok(())
    }

    fn new_message(&mut self, mailbox: usize) -> Tag {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.live[mailbox] += 1;
        self.history.note(Note::Sending { mailbox, tag });
        tag
    }

    pub(super) async fn send(
        &mut self,
        backend: &JournalBackend,
        mailbox: usize,
        errors: &mut Vec<Error>,
    ) -> Result<()> {
        let count = 1 + self.random.below(5);
        let tags: Vec<Tag> = (0..count).map(|_| self.new_message(mailbox)).collect();
        send_these(backend, mailbox, &tags, &self.history, errors).await
    }

    /// Sends again what was not answered, and has a key. What is answered now must be kept.
    pub(super) async fn send_in_doubt(&self) -> Option<Sent> {
        let backend = self.backend.as_ref()?;
        let notes = self.history.notes();
        for note in &notes {
            let Note::Sending { mailbox, tag } = *note else { continue };
            let is_answered =
                |note: &Note| matches!(note, Note::Sent { tag: it, .. } if *it == tag);
            if key_of(tag).is_none() || notes.iter().any(is_answered) {
                continue;
            }
            let sent = backend.send(&name(mailbox), vec![outgoing(tag)]).await;
            if let Ok(Ok(sent)) = sent.map(|mut sent| sent.remove(0)) {
                return Some(sent);
            }
        }
        None
    }

    async fn receive(&mut self, backend: &JournalBackend, mailbox: usize) -> Result<()> {
        let most = 1 + self.random.below(5);
        let got = receive_some(backend, mailbox, most, &self.history).await?;
        self.held.extend(got);
        Ok(())
    }

    /// Somebody sends while somebody else receives.
    async fn send_and_receive(
        &mut self,
        backend: &JournalBackend,
        mailbox: usize,
        errors: &mut Vec<Error>,
    ) -> Result<()> {
        let tags: Vec<Tag> = (0..3).map(|_| self.new_message(mailbox)).collect();
        let history = Arc::clone(&self.history);
        let send = send_these(backend, mailbox, &tags, &history, errors);
        let receive = async {
            tokio::task::yield_now().await;
            receive_some(backend, mailbox, 9, &history).await
        };
        let (sent, received) = futures_util::future::join(send, receive).await;
        self.held.extend(received?);
        sent
    }

    async fn settle(&mut self, backend: &JournalBackend, errors: &mut Vec<Error>) -> Result<()> {
        for _ in 0..=self.random.below(4) {
            if self.held.is_empty() {
                return Ok(());
            }
            let held = self.held.swap_remove(self.random.below(self.held.len()));
            let how = match self.random.below(10) {
                0..6 => Settle::Acknowledge,
                6 => Settle::Nack,
                7 => Settle::Extend,
                _ => Settle::Reject,
            };
            if let Err(error) = self.settle_one(backend, held, how).await {
                errors.push(error);
            }
        }
        Ok(())
    }

    async fn settle_one(
        &mut self,
        backend: &JournalBackend,
        held: Held,
        how: Settle,
    ) -> Result<()> {
        let Held { mailbox, tag, handle } = held.clone();
        let verdict = match how {
            Settle::Acknowledge => Verdict::Acknowledge,
            Settle::Nack => {
                Verdict::Nack { delay: Duration::from_secs(2), error: Some("later".into()) }
            }
            Settle::Extend => Verdict::Extend { timeout: Duration::from_secs(60) },
            Settle::Reject => {
                Verdict::Reject { reason: DeadReason::Rejected, error: Some("never".into()) }
            }
        };
        self.history.note(Note::Settling { tag, how });
        let batch = vec![Settlement { receipt_handle: handle, verdict }];
        match backend.settle(&name(mailbox), batch).await?.remove(0) {
            Ok(()) => self.history.note(Note::Settled { tag, how }),
            Err(error) if error.kind() == ErrorKind::ReceiptHandleExpired => {
                self.history.note(Note::NotSettled { tag });
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        match how {
            Settle::Extend => self.held.push(held),
            Settle::Acknowledge => self.live[mailbox] = self.live[mailbox].saturating_sub(1),
            Settle::Nack | Settle::Reject => {}
        }
        Ok(())
    }

    /// Receives and acknowledges.
    pub(super) async fn drain(&mut self, backend: &JournalBackend, mailbox: usize) -> Vec<Error> {
        let received = receive_some(backend, mailbox, 12, &self.history).await;
        let mut errors = Vec::new();
        match received {
            Ok(got) => {
                if got.is_empty() {
                    // All of them are in flight, or delayed.
                    self.clock.advance(Duration::from_secs(if self.held.is_empty() {
                        30
                    } else {
                        1
                    }));
                    errors.extend(self.purge(backend, mailbox).await.err());
                }
                for held in got {
                    let settled = self.settle_one(backend, held, Settle::Acknowledge).await;
                    errors.extend(settled.err());
                }
            }
            Err(error) => errors.push(error),
        }
        errors
    }

    async fn purge(&mut self, backend: &JournalBackend, mailbox: usize) -> Result<()> {
        self.history.note(Note::Purging { mailbox });
        backend.purge(&name(mailbox)).await?;
        self.history.note(Note::Purged { mailbox });
        self.live[mailbox] = 0;
        Ok(())
    }

    async fn redrive(&self, backend: &JournalBackend, mailbox: usize) -> Result<()> {
        self.history.note(Note::Redriving { mailbox });
        backend.redrive(&name(mailbox), &Selection::All).await?;
        self.history.note(Note::Redriven { mailbox });
        Ok(())
    }

    async fn discard(&self, backend: &JournalBackend, mailbox: usize) -> Result<()> {
        self.history.note(Note::Discarding { mailbox });
        backend.delete_dead(&name(mailbox), &Selection::All).await?;
        self.history.note(Note::Discarded { mailbox });
        Ok(())
    }

    async fn configure(&mut self, backend: &JournalBackend, mailbox: usize) -> Result<()> {
        if mailbox == TEMPORARY {
            return Ok(());
        }
        self.versions += 1;
        let version = self.versions;
        self.history.note(Note::Configuring { mailbox, version });
        backend.configure(&name(mailbox), policy(mailbox, version)).await?;
        self.history.note(Note::Configured { mailbox, version });
        Ok(())
    }

    async fn remove(&mut self, backend: &JournalBackend) -> Result<()> {
        let mailbox = TEMPORARY;
        self.history.note(Note::Removing { mailbox });
        backend.remove(&name(mailbox)).await?;
        self.history.note(Note::Removed { mailbox });
        self.live[mailbox] = 0;
        self.held.retain(|held| held.mailbox != TEMPORARY);
        Ok(())
    }
}

async fn send_these(
    backend: &JournalBackend,
    mailbox: usize,
    tags: &[Tag],
    history: &History,
    errors: &mut Vec<Error>,
) -> Result<()> {
    let batch = tags.iter().map(|tag| outgoing(*tag)).collect();
    let answers = backend.send(&name(mailbox), batch).await?;
    for (tag, answer) in tags.iter().zip(answers) {
        match answer {
            Ok(sent) => {
                assert!(!sent.duplicate, "message {tag} has a key of its own");
                history.note(Note::Sent { tag: *tag, id: sent.id });
            }
            Err(error) => {
                if error.kind() == ErrorKind::Saturated {
                    history.note(Note::NotSent { tag: *tag });
                }
                errors.push(error);
            }
        }
    }
    Ok(())
}

async fn receive_some(
    backend: &JournalBackend,
    mailbox: usize,
    most: usize,
    history: &History,
) -> Result<Vec<Held>> {
    history.note(Note::Receiving { mailbox });
    let options = ReceiveOptions::new()
        .with_max_messages(u32::try_from(most).unwrap())
        .with_visibility_timeout(Duration::from_secs(10));
    let deliveries = backend.receive(&name(mailbox), &options).await?;
    let held: Vec<Held> = deliveries.iter().map(|delivery| hold(mailbox, delivery)).collect();
    for Held { tag, handle, .. } in &held {
        history.note(Note::Received { tag: *tag, handle: handle.to_string() });
    }
    history.note(Note::ReceiveOver { mailbox });
    Ok(held)
}

fn hold(mailbox: usize, delivery: &Delivery) -> Held {
    let tag = tag_of(&delivery.letter.payload).expect("only what was sent is delivered");
    assert!(delivery.letter.payload == payload(tag), "message {tag} is what was sent");
    Held { mailbox, tag, handle: delivery.receipt_handle.clone() }
}

fn name(number: usize) -> Name {
    MAILBOXES[number].parse().unwrap()
}
