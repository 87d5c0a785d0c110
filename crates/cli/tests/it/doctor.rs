//! `mailbox doctor`.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::{Backend, Name, Outgoing, Peek, Policy};
use serde_json::Value;
use tempfile::TempDir;

use super::{Ran, mailbox};

const SEGMENT: &str = "shard-00/00000001.segment";

fn config() -> JournalConfig {
    JournalConfig::default().with_segment_len(64 * 1024).with_max_payload(16 * 1024)
}

fn name() -> Name {
    Name::parse("jobs").unwrap()
}

/// A journal with ten messages, closed.
async fn journal() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let backend = JournalBackend::open_with(&path, config()).await.unwrap();
    let policy = Policy { max_attempts: Some(3), ..Policy::default() };
    backend.configure(&name(), policy).await.unwrap();
    for number in 0..10 {
        let message = Outgoing::new(Bytes::from(format!("payload number {number}")));
        backend.send(&name(), vec![message]).await.unwrap().remove(0).unwrap();
    }
    backend.close().await.unwrap();
    (dir, path)
}

/// Changes a byte of the payload of a message.
fn damage(path: &Path, number: usize) -> usize {
    let file = path.join(SEGMENT);
    let mut bytes = fs::read(&file).unwrap();
    let payload = format!("payload number {number}");
    let at = bytes.windows(payload.len()).position(|it| it == payload.as_bytes()).unwrap();
    bytes[at] ^= 0x20;
    fs::write(&file, bytes).unwrap();
    at
}

/// Every file of a directory but the lock, which every reader signs.
fn bytes_of(path: &Path) -> Vec<Vec<u8>> {
    let files = ["meta", SEGMENT, "shard-00/00000002.segment", "shard-00/index"];
    files.iter().map(|file| fs::read(path.join(file)).unwrap()).collect()
}

fn doctor(path: &Path, more: &[&str]) -> Ran {
    mailbox(&[&["doctor", path.to_str().unwrap()], more].concat())
}

#[tokio::test]
async fn a_sound_journal_is_described_and_not_changed() {
    let (_dir, path) = journal().await;
    let before = bytes_of(&path);
    let ran = doctor(&path, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains("journal: sound\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("shard 0: closed in order"), "{}", ran.stdout);
    assert!(ran.stdout.contains(SEGMENT), "{}", ran.stdout);
    let row = ran.stdout.lines().find(|line| line.trim_start().starts_with("jobs")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((cells[1], cells[4], cells[7]), ("10", "0", "max_attempts=3"), "{row}");
    let ran = doctor(&path, &["--repair"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), "nothing to repair\n"), "{ran:?}");
    assert_eq!(before, bytes_of(&path));
    let beside = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(beside, 1, "a sound journal needs no copy");
}

#[tokio::test]
async fn damage_is_named_with_file_and_offset_and_nothing_is_changed() {
    let (_dir, path) = journal().await;
    let at = damage(&path, 3);
    let before = bytes_of(&path);
    let ran = doctor(&path, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(5), ""), "{ran:?}");
    assert!(ran.stdout.contains("journal: DAMAGED\n"), "{}", ran.stdout);
    let problem = ran.stdout.lines().find(|line| line.contains(" at offset ")).unwrap();
    assert!(problem.contains(SEGMENT) && problem.contains("checksum"), "{problem}");
    let offset = problem.split("at offset ").nth(1).unwrap().split(':').next().unwrap();
    let offset: usize = offset.parse().unwrap();
    assert!(offset < at && at - offset < 300, "{offset} is not the record around {at}");
    assert!(ran.stdout.contains("--repair` saves what can be read"), "{}", ran.stdout);
    assert_eq!(before, bytes_of(&path));
}

#[tokio::test]
async fn a_repair_saves_the_rest_and_keeps_the_damaged_journal() {
    let (dir, path) = journal().await;
    damage(&path, 3);
    let before = bytes_of(&path);
    let ran = doctor(&path, &["--repair"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains("1 mailbox, 9 messages saved"), "{}", ran.stdout);
    assert!(ran.stdout.contains("1 message cannot be read"), "{}", ran.stdout);
    let copy = dir.path().join("journal.damaged-1");
    assert_eq!(before, bytes_of(&copy));
    assert_eq!(doctor(&path, &[]).code, Some(0));
    assert_eq!(doctor(&copy, &[]).code, Some(5));
    let backend = JournalBackend::open_with(&path, config()).await.unwrap();
    let live = backend.peek(&name(), &Peek::Live { limit: 100 }).await.unwrap();
    let payloads: Vec<_> = live.iter().map(|it| it.letter.payload.clone()).collect();
    let expected = (0..10).filter(|number| *number != 3).map(|it| format!("payload number {it}"));
    assert_eq!(payloads, expected.collect::<Vec<_>>());
    let dead = backend.peek(&name(), &Peek::Dead { after: None, limit: 100 }).await.unwrap();
    assert_eq!(dead[0].death.unwrap().reason.as_str(), "integrity");
    assert!(dead[0].last_error.as_deref().unwrap().contains(SEGMENT));
    backend.close().await.unwrap();
}

#[tokio::test]
async fn a_repair_into_another_directory_leaves_the_journal_alone() {
    let (dir, path) = journal().await;
    damage(&path, 7);
    let before = bytes_of(&path);
    let saved = dir.path().join("saved");
    let ran = doctor(&path, &["--repair", "--into", saved.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(before, bytes_of(&path));
    assert_eq!(doctor(&saved, &[]).code, Some(0));
    let ran = doctor(&path, &["--repair", "--into", saved.to_str().unwrap()]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("is not empty"), "{ran:?}");
}

#[tokio::test]
async fn json_is_one_document() {
    let (_dir, path) = journal().await;
    let document = |ran: &Ran| serde_json::from_str::<Value>(&ran.stdout).unwrap();
    let sound = document(&doctor(&path, &["--json"]));
    assert_eq!(sound["report"]["sound"], true);
    assert_eq!(sound["report"]["shards"][0]["mailboxes"][0]["live"], 10);
    assert_eq!(sound["report"]["shards"][0]["segments"][0]["state"], "open");
    assert!(sound.get("repaired").is_none());
    damage(&path, 0);
    let ran = doctor(&path, &["--json"]);
    assert_eq!(ran.code, Some(5));
    let damaged = document(&ran);
    assert_eq!(damaged["report"]["sound"], false);
    assert_eq!(damaged["report"]["problems"][0]["file"], SEGMENT);
    assert!(damaged["report"]["problems"][0]["offset"].as_u64().unwrap() > 4096);
    let repaired = document(&doctor(&path, &["--repair", "--json"]));
    assert_eq!(repaired["repaired"]["messages"], 9);
    assert_eq!(repaired["repaired"]["unreadable"], 1);
}

#[tokio::test]
async fn what_is_not_a_journal_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("note"), "hello").unwrap();
    let ran = doctor(dir.path(), &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("is not a journal"), "{ran:?}");
    let file = doctor(&dir.path().join("note"), &[]);
    assert_eq!(file.code, Some(2), "{file:?}");
    assert!(file.stderr.contains("it is a file, not a directory"), "{file:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let nowhere = doctor(&dir.path().join("nowhere"), &["--repair"]);
    assert_eq!((nowhere.code, nowhere.stdout.as_str()), (Some(3), ""), "{nowhere:?}");
}

#[tokio::test]
async fn somebody_who_has_it_open_is_named() {
    let (_dir, path) = journal().await;
    let backend = JournalBackend::open_with(&path, config()).await.unwrap();
    for more in [&[][..], &["--repair"]] {
        let ran = doctor(&path, more);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(6), ""), "{ran:?}");
        let own = format!("process {}", std::process::id());
        assert!(ran.stderr.contains(&own), "{ran:?}");
    }
    backend.close().await.unwrap();
    assert_eq!(doctor(&path, &[]).code, Some(0));
}

#[tokio::test]
async fn another_version_is_said_to_be_that() {
    let (_dir, path) = journal().await;
    let mut meta = fs::read(path.join("meta")).unwrap();
    meta[8] = 2;
    let crc = crc32c::crc32c(&meta[..72]);
    meta[72..].copy_from_slice(&crc.to_le_bytes());
    fs::write(path.join("meta"), meta).unwrap();
    for more in [&[][..], &["--repair"]] {
        let ran = doctor(&path, more);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("format version 2"), "{ran:?}");
    }
}

#[tokio::test]
async fn who_names_a_part_of_a_journal_is_told_where_it_is() {
    let (_dir, path) = journal().await;
    let above = format!("the journal is the directory above: {}\n", path.display());
    for part in ["shard-00", "meta"] {
        let ran = doctor(&path.join(part), &[]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.ends_with(&above), "{ran:?}");
    }
    let file = doctor(&path.join("meta"), &[]);
    assert!(file.stderr.contains("it is a file, not a directory"), "{file:?}");
    assert!(!path.join("shard-00/lock").exists());
}

#[tokio::test]
async fn the_address_of_a_mailbox_is_understood() {
    let (_dir, path) = journal().await;
    for start in ["journal:", "journal://"] {
        let ran = mailbox(&["doctor", &format!("{start}{}/jobs?ack=fsync", path.display())]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(ran.stdout.starts_with(&format!("{}: sound\n", path.display())), "{ran:?}");
    }
    for address in ["journal:jobs", "journal:data/", "journal:"] {
        let ran = mailbox(&["doctor", address]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("name the directory of the journal"), "{ran:?}");
    }
}

#[tokio::test]
async fn with_json_errors_are_one_line_of_json() {
    let (_dir, path) = journal().await;
    for (path, code, kind) in
        [(path.join("meta"), 2, "InvalidParameter"), (path.join("nowhere"), 3, "NotFound")]
    {
        let ran = doctor(&path, &["--json"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        let document: Value = serde_json::from_str(&ran.stderr).unwrap();
        assert_eq!(document["error"]["kind"], kind);
        let message = document["error"]["message"].as_str().unwrap();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
    }
    let sound = doctor(&path, &["--repair", "--json"]);
    assert_eq!((sound.code, sound.stderr.as_str()), (Some(0), ""), "{sound:?}");
}

#[tokio::test]
async fn a_loss_that_nobody_can_count_is_said_to_be_that() {
    let (dir, path) = journal().await;
    fs::remove_file(path.join(SEGMENT)).unwrap();
    let ran = doctor(&path, &[]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stdout.contains("an unknown number of records is lost"), "{}", ran.stdout);
    let json: Value = serde_json::from_str(&doctor(&path, &["--json"]).stdout).unwrap();
    assert!(json["report"]["lost_records"].is_null(), "{json}");
    let saved = dir.path().join("saved");
    let ran = doctor(&path, &["--repair", "--into", saved.to_str().unwrap()]);
    let summary = ran.stdout.split("repaired: ").nth(1).unwrap();
    assert!(summary.contains("an unknown number of records is lost"), "{summary}");
}

#[tokio::test]
async fn a_repair_does_not_tell_what_there_is_none_of() {
    let (_dir, path) = journal().await;
    damage(&path, 3);
    let ran = doctor(&path, &["--repair"]);
    let summary = ran.stdout.split("repaired: ").nth(1).unwrap();
    assert!(summary.contains("1 message cannot be read"), "{summary}");
    assert!(!summary.contains("records") && !summary.contains("keys"), "{summary}");
}
