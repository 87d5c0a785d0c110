//! Opens a journal and compares what is in it with what must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::{Backend, Name, Peek, Phase, ReceiveOptions, Record};

use super::belief::{Belief, Fate};
use super::history::{Note, Tag};
use super::workload::{MAILBOXES, Random, TEMPORARY, outgoing, tag_of, version_of};

/// Most messages that are shown at once.
const SHOWN: u32 = 256;

/// What is wrong, in words.
pub(super) type Violation = String;

/// A disk, and which part of a history it has to agree with.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) disk: SimDisk,
    /// Answers before this note must hold.
    pub(super) before: usize,
    /// Tries before this note may have happened.
    pub(super) after: usize,
    pub(super) seed: u64,
}

/// Follows a history, from image to image.
#[derive(Debug)]
pub(super) struct Auditor {
    notes: Vec<Note>,
    known: Belief,
    at: usize,
}

impl Auditor {
    pub(super) fn new(notes: Vec<Note>) -> Self {
        Self { notes, known: Belief::default(), at: 0 }
    }

    /// What must hold in an image. Images come in the order of their `before`.
    pub(super) fn belief(&mut self, before: usize, after: usize) -> Belief {
        for note in &self.notes[self.at..before] {
            self.known.learn(note);
        }
        self.at = self.at.max(before);
        let mut belief = self.known.clone();
        for note in &self.notes[before..after] {
            belief.allow(note);
        }
        belief
    }
}

/// Opens an image and looks at everything in it.
pub(super) async fn audit(
    image: &Image,
    path: &Path,
    config: JournalConfig,
    belief: &Belief,
) -> Result<(), Violation> {
    let config = config.with_disk(Arc::new(image.disk.clone()));
    let opened = JournalBackend::open_with(path, config).await;
    let backend = opened.map_err(|error| format!("it does not open: {error:#}"))?;
    audit_open(&backend, belief, image.seed).await
}

/// Looks at everything in a journal that is open, and tries a few things.
pub(super) async fn audit_open(
    backend: &JournalBackend,
    belief: &Belief,
    seed: u64,
) -> Result<(), Violation> {
    let mut seen = BTreeMap::new();
    for number in 0..MAILBOXES.len() {
        look_at_mailbox(backend, number, belief, &mut seen).await?;
    }
    for (tag, fate) in &belief.messages {
        if fate.must_be_there() && !seen.contains_key(tag) {
            return Err(format!("message {tag} is lost: {fate:?}"));
        }
    }
    let mut random = Random::new(seed);
    send_again(backend, belief, &mut random).await?;
    let number = random.below(MAILBOXES.len());
    receive_some(backend, number, belief, &seen).await
}

async fn look_at_mailbox(
    backend: &JournalBackend,
    number: usize,
    belief: &Belief,
    seen: &mut BTreeMap<Tag, (Phase, u32)>,
) -> Result<(), Violation> {
    let name = name(number);
    let stats = backend.stats(&name).await.map_err(text)?;
    let (mut live, mut dead) = (Vec::new(), Vec::new());
    if stats.live() > 0 {
        live = backend.peek(&name, &Peek::Live { limit: SHOWN }).await.map_err(text)?;
    }
    if stats.dead > 0 {
        let request = Peek::Dead { after: None, limit: SHOWN };
        dead = backend.peek(&name, &request).await.map_err(text)?;
    }
    if (stats.live(), stats.dead) != (live.len() as u64, dead.len() as u64) {
        return Err(format!("{name} counts {stats:?}, and shows {} {}", live.len(), dead.len()));
    }
    for record in live.iter().chain(&dead) {
        let tag = check_record(record, number, belief)?;
        if seen.insert(tag, (record.phase, record.delivery_count)).is_some() {
            return Err(format!("message {tag} is there twice"));
        }
    }
    let Some(rules) = belief.mailboxes.get(&number) else { return Ok(()) };
    let policy = backend.policy(&name).await.map_err(text)?;
    match version_of(number, &policy) {
        Some(version) if (rules.least..=rules.most).contains(&version) => Ok(()),
        _ => Err(format!("the rules of {name} are {policy:?}, not of version {rules:?}")),
    }
}

fn check_record(record: &Record, mailbox: usize, belief: &Belief) -> Result<Tag, Violation> {
    let Some(tag) = tag_of(&record.letter.payload) else {
        return Err(format!("there is a payload that nobody sent: {record:?}"));
    };
    let Some(fate) = belief.messages.get(&tag) else {
        return Err(format!("message {tag} is there, and was never sent: {record:?}"));
    };
    let sent = outgoing(tag);
    let letter = &record.letter;
    let is_same = sent.payload == letter.payload
        && sent.attributes == letter.attributes
        && sent.group == letter.group
        && sent.idempotency_key == letter.idempotency_key
        && fate.mailbox == mailbox
        && fate.id.as_ref().is_none_or(|id| *id == record.id);
    let wrong = |what: &str| Err(format!("message {tag} {what}: {record:?}, known is {fate:?}"));
    if !is_same {
        return wrong("is not what was sent");
    }
    if fate.is_gone {
        return wrong("is back");
    }
    let is_dead = record.phase == Phase::Dead;
    if is_dead && !fate.may_be_dead || !is_dead && !fate.may_be_live {
        return wrong("is not in the state that it was in");
    }
    check_count(record, fate, belief).map_or(Ok(tag), wrong)
}

fn check_count(record: &Record, fate: &Fate, belief: &Belief) -> Option<&'static str> {
    let count = record.delivery_count;
    if count < fate.least_count() {
        return Some("has forgotten deliveries");
    }
    (count > belief.most_count(fate)).then_some("was delivered more often than anybody tried")
}

/// Receives, and compares with what was shown: the next delivery of the same message, with a handle
/// that was never there before.
async fn receive_some(
    backend: &JournalBackend,
    number: usize,
    belief: &Belief,
    seen: &BTreeMap<Tag, (Phase, u32)>,
) -> Result<(), Violation> {
    if !belief.mailboxes.contains_key(&number) {
        return Ok(());
    }
    let options = ReceiveOptions::new().with_max_messages(3);
    let deliveries = backend.receive(&name(number), &options).await.map_err(text)?;
    let mut tags = BTreeSet::new();
    for delivery in deliveries {
        let Some(tag) = tag_of(&delivery.letter.payload) else {
            return Err(format!("a payload was delivered that nobody sent: {delivery:?}"));
        };
        let shown = seen.get(&tag);
        let is_next = shown.is_some_and(|(phase, count)| {
            *phase == Phase::Ready && delivery.delivery_count == count + 1
        });
        if !is_next || !tags.insert(tag) {
            return Err(format!("message {tag} was shown as {shown:?}, then {delivery:?}"));
        }
        if belief.handles.contains(&delivery.receipt_handle.to_string()) {
            return Err(format!("message {tag} has a handle that was used before"));
        }
    }
    Ok(())
}

/// Sends something again that has a key, and expects it to be recognised.
async fn send_again(
    backend: &JournalBackend,
    belief: &Belief,
    random: &mut Random,
) -> Result<(), Violation> {
    let known = |(_, fate): &(&Tag, &Fate)| fate.keyed && fate.is_sent && fate.id.is_some();
    let keyed: Vec<(&Tag, &Fate)> = belief.messages.iter().filter(known).collect();
    if keyed.is_empty() {
        return Ok(());
    }
    let (tag, fate) = keyed[random.below(keyed.len())];
    if fate.mailbox == TEMPORARY {
        return Ok(());
    }
    let batch = vec![outgoing(*tag)];
    let sent = backend.send(&name(fate.mailbox), batch).await.map_err(text)?.remove(0);
    let sent = sent.map_err(text)?;
    if !sent.duplicate || Some(&sent.id) != fate.id.as_ref() {
        return Err(format!("the key of message {tag} is forgotten: {sent:?}, {fate:?}"));
    }
    Ok(())
}

fn name(number: usize) -> Name {
    MAILBOXES[number].parse().unwrap()
}

fn text(error: mailbox::Error) -> Violation {
    format!("an error: {error:#}")
}
