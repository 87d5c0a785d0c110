//! What the command says with `--json`, read back. Invariant: an error has the exit code that the
//! help promises for its kind, or it is no answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mailbox::{
    Death, Delivery, Error, ErrorKind, Letter, MessageId, Name, ReceiptHandle, Record, Result,
    Sent, Stats, Timestamp, Totals,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::words;

/// How a run ended.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: Option<i32>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

/// The exit code for a kind of error, by the table in the help.
const fn exit_code(kind: ErrorKind) -> i32 {
    use ErrorKind as Kind;
    match kind {
        Kind::NotFound | Kind::ReceiptHandleExpired | Kind::MessageFinalized | Kind::Duplicate => 3,
        Kind::Unauthorized | Kind::Forbidden => 4,
        Kind::Integrity => 5,
        Kind::MailboxFull | Kind::Saturated | Kind::Connection | Kind::Closed => 6,
        Kind::Internal => 1,
        _ => 2,
    }
}

fn unreadable(answer: &Answer, why: &str) -> Error {
    let said = String::from_utf8_lossy(&answer.stdout);
    let (code, complaint) = (answer.code, &answer.stderr);
    let message = format!("{why}: exit code {code:?}, stdout {said:?}, stderr {complaint:?}");
    Error::new(ErrorKind::Internal, message)
}

#[derive(Deserialize)]
struct Complaint {
    error: Said,
}

/// An error in words.
#[derive(Deserialize)]
struct Said {
    kind: String,
    message: String,
}

impl Said {
    fn error(self) -> Error {
        let Some(kind) = words::kind(&self.kind) else {
            return Error::new(ErrorKind::Internal, format!("{} is no kind", self.kind));
        };
        let named = self.message.strip_prefix("mailbox `").and_then(|rest| rest.split_once("`: "));
        let (mailbox, message) = match named {
            Some((mailbox, message)) => (Name::parse(mailbox).ok(), message),
            None => (None, self.message.as_str()),
        };
        let mut error = Error::new(kind, message);
        // The words begin with what is out of bounds, and name the bounds.
        let is_bound = [ErrorKind::InvalidParameter, ErrorKind::TooLarge].contains(&kind);
        let field = message.split_once(" is ").or_else(|| message.split_once(" has "));
        if let Some((field, _)) = field.filter(|_| is_bound && message.contains(", allowed ")) {
            error = error.with_field(words::lasting(field));
        }
        mailbox.map_or(error.clone(), |mailbox| error.with_mailbox(&mailbox))
    }
}

/// What was said, if all is well; the error that the command complained of, if not.
fn text(answer: &Answer) -> Result<&[u8]> {
    if answer.code == Some(0) {
        return Ok(&answer.stdout);
    }
    let last = answer.stderr.lines().last().unwrap_or_default();
    let Ok(Complaint { error }) = serde_json::from_str(last) else {
        // Arguments that make no sense are refused before it is known that a program asks.
        return Err(match answer.code {
            Some(2) => Error::new(ErrorKind::InvalidParameter, answer.stderr.trim()),
            _ => unreadable(answer, "no error in JSON"),
        });
    };
    let error = error.error();
    if answer.code != Some(exit_code(error.kind())) {
        return Err(unreadable(answer, "another exit code than its kind has"));
    }
    Err(error)
}

/// One JSON document.
fn document<T: DeserializeOwned>(answer: &Answer) -> Result<T> {
    let read = serde_json::from_slice(text(answer)?);
    read.map_err(|error| unreadable(answer, &error.to_string()))
}

/// One JSON object a line.
fn lines<T: DeserializeOwned>(answer: &Answer) -> Result<Vec<T>> {
    read_lines(answer, text(answer)?)
}

fn read_lines<T: DeserializeOwned>(answer: &Answer, text: &[u8]) -> Result<Vec<T>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let read: serde_json::Result<Vec<T>> = lines.map(serde_json::from_slice).collect();
    read.map_err(|error| unreadable(answer, &error.to_string()))
}

#[derive(Deserialize)]
struct Sending {
    id: String,
    duplicate: bool,
}

pub(super) fn sent(answer: &Answer) -> Result<Sent> {
    let sent: Sending = document(answer)?;
    Ok(Sent::new(MessageId::from_text(&sent.id), sent.duplicate))
}

#[derive(Deserialize)]
struct Settling {
    receipt_handle: String,
    ok: bool,
    error: Option<Said>,
}

/// One result each; the exit code is that of the worst.
pub(super) fn settled(answer: &Answer, handles: &[String]) -> Result<Vec<Result<()>>> {
    if answer.stdout.is_empty() {
        text(answer)?;
    }
    let results: Vec<Settling> = read_lines(answer, &answer.stdout)?;
    let said: Vec<&str> = results.iter().map(|result| result.receipt_handle.as_str()).collect();
    if said != handles {
        return Err(unreadable(answer, "other handles than were asked about"));
    }
    let mut codes = vec![0];
    let mut settled = Vec::new();
    for result in results {
        let error = result.error.map(Said::error);
        if result.ok != error.is_none() {
            return Err(unreadable(answer, "neither done nor refused"));
        }
        codes.extend(error.iter().map(|error| exit_code(error.kind())));
        settled.push(error.map_or(Ok(()), Err));
    }
    let is_one = answer.code.is_some_and(|code| codes.contains(&code));
    let is_all_well = codes.iter().all(|code| *code == 0);
    if !is_one || is_all_well != (answer.code == Some(0)) {
        return Err(unreadable(answer, "an exit code that none of the results has"));
    }
    Ok(settled)
}

#[derive(Deserialize)]
struct Delivered {
    id: String,
    body: Option<Box<RawValue>>,
    payload_b64: Option<String>,
    receipt_handle: String,
    delivery_count: u32,
    enqueued_at: Timestamp,
    attributes: BTreeMap<String, String>,
    reply_to: Option<String>,
    key: Option<String>,
    group: Option<String>,
}

/// A payload that is JSON is shown as it is, any other in base64.
fn payload(body: Option<&RawValue>, base64: Option<&str>) -> Result<Bytes> {
    match (body, base64) {
        (Some(body), None) => Ok(Bytes::copy_from_slice(body.get().as_bytes())),
        (None, Some(text)) => STANDARD.decode(text).map(Bytes::from).map_err(|error| {
            Error::new(ErrorKind::Internal, "payload_b64 is no base64").with_source(error)
        }),
        _ => Err(Error::new(ErrorKind::Internal, "neither body nor payload_b64, or both")),
    }
}

pub(super) fn deliveries(answer: &Answer) -> Result<Vec<Delivery>> {
    // There was nothing to receive, which is no error.
    if let Err(error) = text(answer)
        && error.kind() == ErrorKind::NotFound
        && error.message() == "nothing to receive"
    {
        return Ok(Vec::new());
    }
    let read = |it: Delivered| {
        Ok(Delivery {
            id: MessageId::from_text(&it.id),
            receipt_handle: ReceiptHandle::from_text(&it.receipt_handle),
            delivery_count: it.delivery_count,
            letter: Arc::new(Letter {
                payload: payload(it.body.as_deref(), it.payload_b64.as_deref())?,
                attributes: it.attributes,
                reply_to: it.reply_to,
                idempotency_key: it.key,
                group: it.group,
                enqueued_at: it.enqueued_at,
            }),
        })
    };
    lines(answer)?.into_iter().map(read).collect()
}

#[derive(Deserialize)]
struct Seen {
    id: String,
    state: String,
    body: Option<Box<RawValue>>,
    payload_b64: Option<String>,
    delivery_count: u32,
    enqueued_at: Timestamp,
    receivable_in_ms: u64,
    attributes: BTreeMap<String, String>,
    reply_to: Option<String>,
    key: Option<String>,
    group: Option<String>,
    last_error: Option<String>,
    death: Option<Dead>,
}

#[derive(Deserialize)]
struct Dead {
    reason: String,
    at: Timestamp,
}

fn record(seen: Seen, order: u64) -> Result<Record> {
    let odd = |what: &str| Error::new(ErrorKind::Internal, format!("{what} is none"));
    let death = match seen.death {
        None => None,
        Some(dead) => {
            let reason = words::reason(&dead.reason).ok_or_else(|| odd(&dead.reason))?;
            Some(Death { reason, at: dead.at, order })
        }
    };
    Ok(Record {
        id: MessageId::from_text(&seen.id),
        letter: Arc::new(Letter {
            payload: payload(seen.body.as_deref(), seen.payload_b64.as_deref())?,
            attributes: seen.attributes,
            reply_to: seen.reply_to,
            idempotency_key: seen.key,
            group: seen.group,
            enqueued_at: seen.enqueued_at,
        }),
        phase: words::phase(&seen.state).ok_or_else(|| odd(&seen.state))?,
        delivery_count: seen.delivery_count,
        receivable_in: Duration::from_millis(seen.receivable_in_ms),
        last_error: seen.last_error,
        death,
    })
}

pub(super) fn records(answer: &Answer) -> Result<Vec<Record>> {
    lines(answer)?.into_iter().map(|seen| record(seen, 0)).collect()
}

/// In order of dying. Their numbers are not shown: these are by when they died, and by place.
pub(super) fn dead_letters(answer: &Answer) -> Result<Vec<Record>> {
    let number = |seen: &Seen, place: u64| {
        let at = seen.death.as_ref().map_or(0, |dead| dead.at.as_unix_millis());
        u64::try_from(at).unwrap_or(0) << 16 | place
    };
    let seen: Vec<Seen> = lines(answer)?;
    (0..).zip(seen).map(|(place, seen)| record_numbered(seen, place, number)).collect()
}

fn record_numbered(seen: Seen, place: u64, number: impl Fn(&Seen, u64) -> u64) -> Result<Record> {
    let order = number(&seen, place);
    record(seen, order)
}

#[derive(Deserialize)]
struct Counted {
    count: u64,
    durability: String,
    delayed: u64,
    ready: u64,
    invisible: u64,
    dead: u64,
    oldest_age_ms: Option<u64>,
    dedup_entries: u64,
    set_aside: u64,
}

pub(super) fn stats(answer: &Answer) -> Result<Stats> {
    let counted: Counted = document(answer)?;
    let mut stats = Stats::default();
    stats.delayed = counted.delayed;
    stats.ready = counted.ready;
    stats.invisible = counted.invisible;
    stats.dead = counted.dead;
    stats.oldest_age = counted.oldest_age_ms.map(Duration::from_millis);
    stats.dedup_entries = counted.dedup_entries;
    stats.set_aside = counted.set_aside;
    stats.totals = Totals::default();
    stats.durability = counted.durability.parse()?;
    if stats.live() != counted.count {
        return Err(unreadable(answer, "a count that is not the sum"));
    }
    Ok(stats)
}

pub(super) fn count(answer: &Answer, what: &str) -> Result<u64> {
    let said: BTreeMap<String, u64> = document(answer)?;
    said.get(what).copied().ok_or_else(|| unreadable(answer, "nothing was counted"))
}

#[derive(Deserialize)]
struct Listed {
    name: String,
}

pub(super) fn names(answer: &Answer) -> Result<Vec<Name>> {
    let listed: Vec<Listed> = lines(answer)?;
    listed.iter().map(|listed| Name::parse(&listed.name)).collect()
}

pub(super) fn removed(answer: &Answer) -> Result<bool> {
    match text(answer) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
