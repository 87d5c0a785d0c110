//! Journals of format version 1 that are checked in and stay for ever: every later version has to
//! read them, or to say that it does not.
//!
//! `UPDATE=1 cargo test -p mailbox --features journal --test it fixtures` makes them anew; never do
//! that to make a test pass.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mailbox::backends::journal::disk::{Disk, RealDisk, SimDisk};
use mailbox::backends::journal::doctor::{SegmentState, examine, repair};
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::testing::ManualClock;
use mailbox::{
    Backend, DeadReason, ErrorKind, Name, Outgoing, Peek, Policy, ReceiptHandle, ReceiveOptions,
    Retention, Selection, Settlement, Verdict,
};

/// What is in the journals `clean` and `killed`, and in `torn` when its end is cut off. One line a
/// message: mailbox, payload, phase, deliveries, seconds until receivable, when it was sent
/// (seconds after the first), and whatever else it has.
const CONTENTS: &str = "\
bulk: 12000 bytes, Ready, 0, 0 s, at 180
bulk: 12000 bytes, Ready, 0, 0 s, at 180
bulk: 12000 bytes, Ready, 0, 0 s, at 180
bulk: 12000 bytes, Ready, 0, 0 s, at 180
bulk: 12000 bytes, Ready, 0, 0 s, at 180
events: extended, Invisible, 1, 3600 s, at 180
events: redriven, Ready, 0, 0 s, at 180
filler
late: the last one, Ready, 0, 0 s, at 180
orders: in flight, Invisible, 1, 35820 s, at 0
orders: nacked, Ready, 1, 0 s, at 60, last error \"try later\"
orders: ready, Ready, 0, 0 s, at 60, colour=blue, size=10, reply to replies
orders: first of a group, Ready, 0, 0 s, at 60, group customer-1
orders: second of a group, Ready, 0, 0 s, at 60, group customer-1
orders: keyed, Ready, 0, 0 s, at 60, key order-17
orders: delayed, Delayed, 0, 3480 s, at 60
orders: dead, Dead, 1, 0 s, at 0, last error \"not wanted\", died of rejected
purged: after the purge, Ready, 0, 0 s, at 120
swept
";

/// Kinds of records that are in the journals, by number: all but `returned`, which takes a receiver
/// that goes away.
const KINDS: [u8; 19] = [1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 22, 23, 24, 25, 26, 32, 33];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/journal-v1").join(name)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.file_name() != "lock" {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn config(clock: &ManualClock) -> JournalConfig {
    let config = JournalConfig::default().with_segment_len(64 * 1024).with_max_payload(16 * 1024);
    config.with_clock(clock.clock())
}

fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk::new())
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn rules() -> Policy {
    let retention = Retention { dead_count: Some(100), ..Retention::default() };
    let replay_window = Duration::from_secs(7_200);
    Policy { max_attempts: Some(5), replay_window, retention, ..Policy::default() }
}

fn plain(payload: &'static str) -> Outgoing {
    Outgoing::new(Bytes::from_static(payload.as_bytes()))
}

async fn send(backend: &JournalBackend, mailbox: &str, message: Outgoing) {
    backend.send(&name(mailbox), vec![message]).await.unwrap().remove(0).unwrap();
}

/// Receives the next message and settles it, or not.
async fn receive(backend: &JournalBackend, mailbox: &str, verdict: Option<Verdict>) -> String {
    let hours = Duration::from_secs(36_000);
    let options = ReceiveOptions::new().with_max_messages(1).with_visibility_timeout(hours);
    let delivery = backend.receive(&name(mailbox), &options).await.unwrap().remove(0);
    let receipt_handle = delivery.receipt_handle;
    let text = receipt_handle.to_string();
    if let Some(verdict) = verdict {
        let settlement = Settlement { receipt_handle, verdict };
        backend.settle(&name(mailbox), vec![settlement]).await.unwrap().remove(0).unwrap();
    }
    text
}

/// Everything that the journals hold, in this order. Returns the handle of the message in flight.
async fn tell(backend: &JournalBackend, clock: &ManualClock, disk: &SimDisk) -> String {
    backend.configure(&name("orders"), rules()).await.unwrap();
    let mut message = plain("acknowledged");
    message.idempotency_key = Some("order-16".to_owned());
    send(backend, "orders", message).await;
    receive(backend, "orders", Some(Verdict::Acknowledge)).await;
    send(backend, "orders", plain("dead")).await;
    let error = Some("not wanted".into());
    let reject = Verdict::Reject { reason: DeadReason::Rejected, error };
    receive(backend, "orders", Some(reject)).await;
    send(backend, "orders", plain("in flight")).await;
    let handle = receive(backend, "orders", None).await;
    clock.advance(Duration::from_secs(60));
    send(backend, "orders", plain("nacked")).await;
    let nack = Verdict::Nack { delay: Duration::ZERO, error: Some("try later".into()) };
    receive(backend, "orders", Some(nack)).await;
    let mut message = plain("ready");
    message.attributes.insert("colour".to_owned(), "blue".to_owned());
    message.attributes.insert("size".to_owned(), "10".to_owned());
    message.reply_to = Some("replies".to_owned());
    send(backend, "orders", message).await;
    for payload in ["first of a group", "second of a group"] {
        let mut message = plain(payload);
        message.group = Some("customer-1".to_owned());
        send(backend, "orders", message).await;
    }
    let mut message = plain("keyed");
    message.idempotency_key = Some("order-17".to_owned());
    send(backend, "orders", message).await;
    let mut message = plain("delayed");
    message.delay = Duration::from_secs(3_600);
    send(backend, "orders", message).await;
    clock.advance(Duration::from_secs(60));
    send(backend, "purged", plain("purged")).await;
    assert_eq!(backend.purge(&name("purged")).await.unwrap(), 1);
    send(backend, "purged", plain("after the purge")).await;
    send(backend, "removed", plain("removed")).await;
    assert!(backend.remove(&name("removed")).await.unwrap());
    move_on(backend, disk).await;
    handle
}

/// The rest, of which nothing is moved any more.
async fn tell_the_rest(backend: &JournalBackend, clock: &ManualClock) {
    clock.advance(Duration::from_secs(60));
    // A segment that is full, and stays.
    for _ in 0..5 {
        send(backend, "bulk", Outgoing::new(Bytes::from(vec![b'='; 12_000]))).await;
    }
    send(backend, "events", plain("extended")).await;
    let extend = Verdict::Extend { timeout: Duration::from_secs(3_600) };
    receive(backend, "events", Some(extend)).await;
    for payload in ["discarded", "redriven"] {
        send(backend, "events", plain(payload)).await;
        let reject = Verdict::Reject { reason: DeadReason::Rejected, error: None };
        receive(backend, "events", Some(reject)).await;
        let (events, all) = (name("events"), Selection::All);
        let done = match payload {
            "discarded" => backend.delete_dead(&events, &all).await,
            _ => backend.redrive(&events, &all).await,
        };
        assert_eq!(done.unwrap(), 1);
    }
    send(backend, "swept", plain("swept")).await;
    let nack = Verdict::Nack { delay: Duration::ZERO, error: None };
    receive(backend, "swept", Some(nack)).await;
    assert_eq!(backend.purge(&name("swept")).await.unwrap(), 1);
    backend.configure(&name("swept"), rules()).await.unwrap();
    send(backend, "short", plain("short")).await;
    assert!(backend.remove(&name("short")).await.unwrap());
    send(backend, "late", plain("the last one")).await;
}

/// Fills segments with what is not needed, until the first ones are gone.
async fn move_on(backend: &JournalBackend, disk: &SimDisk) {
    for _ in 0..1_000 {
        if !disk.files().iter().any(|file| file.ends_with("00000001.segment")) {
            return;
        }
        send(backend, "filler", Outgoing::new(Bytes::from(vec![b'-'; 6_000]))).await;
        receive(backend, "filler", Some(Verdict::Acknowledge)).await;
    }
    panic!("the first segment is never emptied");
}

/// Makes the journals in `root`, and the handle of the message in flight.
async fn generate(root: &Path) {
    let (disk, clock) = (SimDisk::new(), ManualClock::new());
    let config = config(&clock).with_disk(Arc::new(disk.clone()));
    let backend = JournalBackend::open_with("/journal", config.clone()).await.unwrap();
    let handle = tell(&backend, &clock, &disk).await;
    backend.close().await.unwrap();
    let backend = JournalBackend::open_with("/journal", config).await.unwrap();
    tell_the_rest(&backend, &clock).await;
    write_out(&disk.fork(), &root.join("killed"));
    backend.close().await.unwrap();
    write_out(&disk, &root.join("clean"));
    fs::write(root.join("receipt-handle"), handle).unwrap();
    copy(&root.join("killed"), &root.join("torn"));
    let torn = change(&root.join("torn"), "the last one", |bytes, at| {
        let salt = bytes[4096..4100].to_vec();
        let mut end = (at + "the last one".len()).next_multiple_of(8);
        while bytes[end..].starts_with(&salt) {
            end += record_len(&bytes[end..]);
        }
        bytes[end..end + 4].copy_from_slice(&salt);
        bytes[end + 4..end + 80].fill(0xAB);
    });
    assert_eq!(torn, 1);
    copy(&root.join("killed"), &root.join("damaged"));
    // A letter, and the header of another record.
    change(&root.join("damaged"), "ready", |bytes, at| bytes[at] ^= 1);
    change(&root.join("damaged"), "after the purge", |bytes, at| {
        let salt = bytes[4096..4100].to_vec();
        let starts = (at.saturating_sub(400)..at).rev().filter(|start| start % 8 == 0);
        let start = starts.into_iter().find(|start| bytes[*start..].starts_with(&salt));
        if let Some(start) = start {
            bytes[start + 20] ^= 1;
        }
    });
}

/// The journal on a simulated disk, as it is at this moment, on a real one.
fn write_out(disk: &SimDisk, to: &Path) {
    for file in disk.files() {
        let target = to.join(file.strip_prefix("/journal").unwrap());
        if !target.ends_with("lock") && target.extension().is_none_or(|it| it != "new") {
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::write(target, disk.read_file(file)).unwrap();
        }
    }
}

/// Length of the record that starts here.
fn record_len(record: &[u8]) -> usize {
    let fact_len = u16::from_le_bytes(record[30..32].try_into().unwrap());
    let letter_len = u32::from_le_bytes(record[32..36].try_into().unwrap());
    (40 + usize::from(fact_len) + letter_len as usize).next_multiple_of(8)
}

/// The kinds of the records in a journal that is not damaged.
fn kinds(dir: &Path) -> BTreeSet<u8> {
    let mut kinds = BTreeSet::new();
    for entry in fs::read_dir(dir.join("shard-00")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let Some(salt) = bytes.get(40..44).filter(|_| bytes.starts_with(b"MBXJRNL")) else {
            continue;
        };
        let mut at = 4096;
        while bytes.get(at..at + 4) == Some(salt) {
            kinds.insert(bytes[at + 28]);
            at += record_len(&bytes[at..]);
        }
    }
    kinds
}

/// Changes a segment wherever a payload is; says how often that was.
fn change(dir: &Path, payload: &str, change: impl Fn(&mut Vec<u8>, usize)) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(dir.join("shard-00")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let windows = bytes.windows(payload.len()).enumerate();
        let is_it = |(_, window): &(usize, &[u8])| *window == payload.as_bytes();
        let places: Vec<usize> = windows.filter(is_it).map(|(at, _)| at).collect();
        for at in places {
            change(&mut bytes, at);
            count += 1;
        }
        fs::write(&path, bytes).unwrap();
    }
    count
}

/// What a journal holds, in the form of [`CONTENTS`].
async fn contents(backend: &JournalBackend) -> String {
    let mut text = String::new();
    for mailbox in backend.list(None, 100).await.unwrap() {
        let live = backend.peek(&mailbox, &Peek::Live { limit: 100 }).await.unwrap();
        let dead = Peek::Dead { after: None, limit: 100 };
        let dead = backend.peek(&mailbox, &dead).await.unwrap();
        if live.is_empty() && dead.is_empty() {
            writeln!(text, "{mailbox}").unwrap();
        }
        for record in live.into_iter().chain(dead) {
            let letter = &record.letter;
            let payload = match letter.payload.len() {
                short if short < 100 => String::from_utf8(letter.payload.to_vec()).unwrap(),
                long => format!("{long} bytes"),
            };
            let sent = letter.enqueued_at.as_unix_millis() / 1_000 - 1_735_689_600;
            let wait = record.receivable_in.as_secs();
            let (phase, count) = (record.phase, record.delivery_count);
            write!(text, "{mailbox}: {payload}, {phase:?}, {count}, {wait} s, at {sent}").unwrap();
            for (key, value) in &letter.attributes {
                write!(text, ", {key}={value}").unwrap();
            }
            if let Some(reply_to) = &letter.reply_to {
                write!(text, ", reply to {reply_to}").unwrap();
            }
            if let Some(group) = &letter.group {
                write!(text, ", group {group}").unwrap();
            }
            if let Some(key) = &letter.idempotency_key {
                write!(text, ", key {key}").unwrap();
            }
            if let Some(error) = &record.last_error {
                write!(text, ", last error {error:?}").unwrap();
            }
            if let Some(death) = record.death {
                write!(text, ", died of {}", death.reason.as_str()).unwrap();
            }
            text.push('\n');
        }
    }
    text
}

/// Opens a copy of a journal, and looks at everything.
async fn check(root: &Path, which: &str, expected: &str) {
    let backend = JournalBackend::open_with(root.join(which), config(&ManualClock::new()));
    let backend = backend.await.unwrap_or_else(|error| panic!("{which}: {error:?}"));
    assert_eq!(contents(&backend).await, expected, "{which}");
    assert_eq!(backend.policy(&name("orders")).await.unwrap(), rules(), "{which}");
    assert_eq!(backend.policy(&name("purged")).await.unwrap(), Policy::default(), "{which}");
    for (key, payload) in [("order-16", "acknowledged"), ("order-17", "keyed")] {
        let mut again = plain(payload);
        again.idempotency_key = Some(key.to_owned());
        let sent = backend.send(&name("orders"), vec![again]).await.unwrap().remove(0).unwrap();
        assert!(sent.duplicate, "{which}: {key} is forgotten");
    }
    let totals = backend.stats(&name("orders")).await.unwrap().totals;
    assert_eq!((totals.sent, totals.acknowledged), (9, 1), "{which}");
    let handle = fs::read_to_string(root.join("receipt-handle")).unwrap();
    let receipt_handle = ReceiptHandle::from_text(&handle);
    let settlement = Settlement { receipt_handle, verdict: Verdict::Acknowledge };
    let settled = backend.settle(&name("orders"), vec![settlement]).await.unwrap().remove(0);
    settled.unwrap_or_else(|error| panic!("{which}: {error}"));
    backend.close().await.unwrap();
}

/// The checked-in journals, copied to where they can be changed.
async fn copied() -> tempfile::TempDir {
    static UPDATED: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    if std::env::var_os("UPDATE").is_some() {
        let update = || async {
            let root = fixture("");
            let _ = fs::remove_dir_all(&root);
            generate(&root).await;
        };
        UPDATED.get_or_init(update).await;
    }
    let root = tempfile::tempdir().unwrap();
    copy(&fixture(""), root.path());
    root
}

#[tokio::test]
async fn journals_of_version_1_open_with_everything_that_was_in_them() {
    let root = copied().await;
    for which in ["clean", "killed"] {
        assert_eq!(kinds(&root.path().join(which)), BTreeSet::from(KINDS), "{which}");
        check(root.path(), which, CONTENTS).await;
    }
}

#[tokio::test]
async fn a_torn_journal_of_version_1_opens_and_its_end_is_saved() {
    let root = copied().await;
    let dir = root.path().join("torn");
    let report = examine(&dir, &disk()).unwrap();
    assert!(report.sound, "{:?}", report.problems);
    let states = report.shards[0].segments.iter().map(|segment| segment.state);
    assert!(states.into_iter().any(|state| state == SegmentState::Torn));
    check(root.path(), "torn", CONTENTS).await;
    let names = fs::read_dir(dir.join("shard-00")).unwrap();
    let saved = names
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("torn-"))
        .expect("the torn bytes are saved");
    assert!(fs::read(saved).unwrap().ends_with(&[0xAB; 30]));
}

#[tokio::test]
async fn a_damaged_journal_of_version_1_is_refused_and_what_can_be_read_is_saved() {
    let root = copied().await;
    let dir = root.path().join("damaged");
    let opened = JournalBackend::open_with(&dir, config(&ManualClock::new())).await;
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Integrity);
    let report = examine(&dir, &disk()).unwrap();
    assert_eq!(report.problems.len(), 2, "{:?}", report.problems);
    let first = &report.problems[0];
    let offset = first.offset.unwrap();
    assert!(error.message().contains(&first.file), "{error}");
    assert!(error.message().contains(&format!("offset {offset}")), "{error}");
    assert_eq!((report.lost_records, report.unreadable_messages), (Some(1), 1));
    let repaired = repair(&dir, None, &disk()).unwrap();
    assert_eq!((repaired.lost_records, repaired.unreadable, repaired.messages), (Some(1), 1, 15));
    let letter = report.problems.iter().find(|it| it.what.contains("letter")).unwrap();
    let (file, offset) = (&letter.file, letter.offset.unwrap());
    let why =
        format!("unreadable in {file} at offset {offset}: the checksum does not fit the bytes");
    let dead = format!("orders: , Dead, 0, 0 s, at 60, last error {why:?}, died of integrity\n");
    let rest = CONTENTS.lines().filter(|line| !line.contains(": ready,"));
    let mut expected: String = rest.map(|line| line.to_owned() + "\n").collect();
    expected = expected.replace("purged: after the purge, Ready, 0, 0 s, at 120\n", "");
    expected = expected.replace("swept\n", &format!("{dead}purged\nswept\n"));
    check(root.path(), "damaged", &expected).await;
    assert!(examine(&dir, &disk()).unwrap().sound);
    assert!(!examine(&repaired.original, &disk()).unwrap().sound);
}

#[tokio::test]
async fn what_is_written_today_opens_like_the_journals_of_version_1() {
    let root = tempfile::tempdir().unwrap();
    generate(root.path()).await;
    for which in ["clean", "killed", "torn"] {
        check(root.path(), which, CONTENTS).await;
    }
    let opened =
        JournalBackend::open_with(root.path().join("damaged"), config(&ManualClock::new()));
    assert_eq!(opened.await.unwrap_err().kind(), ErrorKind::Integrity);
}
