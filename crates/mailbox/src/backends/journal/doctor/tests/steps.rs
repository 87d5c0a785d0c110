//! What the doctor does, step by step.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use mailbox_core::{DeadReason, Verdict};

use super::scenes::{AT, config, filled, journal, name, see_all, shared};
use crate::ErrorKind;
use crate::backend::{Backend, Outgoing, Settlement};
use crate::backends::journal::JournalBackend;
use crate::backends::journal::disk::{Disk, SimDisk};
use crate::backends::journal::doctor::{examine, repair};
use crate::backends::journal::format::record::{Kind, read};
use crate::backends::journal::format::segment::SegmentHeader;
use crate::options::ReceiveOptions;
use crate::testing::ManualClock;

/// The segments of a log, in order.
pub(super) fn segments(disk: &SimDisk, shard: u16) -> Vec<PathBuf> {
    let dir = Path::new(AT).join(format!("shard-{shard:02}"));
    let is_one = |file: &PathBuf| {
        file.starts_with(&dir) && file.extension().is_some_and(|it| it == "segment")
    };
    disk.files().into_iter().filter(is_one).collect()
}

#[tokio::test]
async fn a_sound_journal_is_counted_and_not_touched() {
    for closed in [true, false] {
        let (disk, clock) = journal(11, closed).await;
        let truth = see_all(AT, config(&disk.fork(), &clock)).await.unwrap();
        let operations = disk.operations();
        let report = examine(AT, &shared(&disk)).unwrap();
        assert_eq!(disk.operations(), operations, "something was written");
        assert!(report.sound, "{:?}", report.problems);
        let mailboxes = report.shards.iter().flat_map(|shard| &shard.mailboxes);
        let (live, dead) = mailboxes.fold((0, 0), |sum, it| (sum.0 + it.live, sum.1 + it.dead));
        let truly_dead = truth.iter().filter(|seen| seen.reason.is_some()).count() as u64;
        assert_eq!((live, dead), (truth.len() as u64 - truly_dead, truly_dead));
        assert!(report.shards.iter().all(|shard| shard.closed == closed));
        let bytes: u64 = report.shards.iter().flat_map(|it| &it.mailboxes).map(|it| it.bytes).sum();
        let kept: u64 =
            report.shards.iter().flat_map(|it| &it.segments).map(|it| it.live_bytes).sum();
        assert_eq!(bytes, kept);
        let jobs = report.shards.iter().flat_map(|it| &it.mailboxes);
        let jobs = jobs.into_iter().find(|it| it.name.as_deref() == Some("jobs")).unwrap();
        assert_eq!(jobs.policy["max_attempts"], "7");
        assert_eq!(jobs.policy.len(), 1);
    }
}

#[tokio::test]
async fn a_sound_journal_comes_out_of_a_repair_as_it_was() {
    for closed in [true, false] {
        let (disk, clock) = journal(12, closed).await;
        let truth = see_all(AT, config(&disk.fork(), &clock)).await.unwrap();
        let repaired = repair(AT, None, &shared(&disk)).unwrap();
        assert_eq!((repaired.unreadable, repaired.lost_records), (0, Some(0)));
        assert_eq!(repaired.original, Path::new("/data/journal.damaged-1"));
        assert_eq!(see_all(AT, config(&disk.fork(), &clock)).await.unwrap(), truth);
        let old = see_all(&repaired.original, config(&disk, &clock)).await.unwrap();
        assert_eq!(old, truth);
    }
}

#[tokio::test]
async fn the_damaged_journal_is_kept_under_the_first_free_name() {
    let (disk, _) = journal(13, true).await;
    disk.create_dir(Path::new("/data/journal.damaged-1")).unwrap();
    disk.flip_bit(&segments(&disk, 0)[0], 4100 * 8);
    let repaired = repair(AT, None, &shared(&disk)).unwrap();
    assert_eq!(repaired.original, Path::new("/data/journal.damaged-2"));
    assert!(!examine(&repaired.original, &shared(&disk)).unwrap().sound);
    assert!(examine(AT, &shared(&disk)).unwrap().sound);
}

#[tokio::test]
async fn a_repair_that_is_cut_short_anywhere_loses_nothing_and_can_be_done_again() {
    let (disk, clock) = journal(14, false).await;
    disk.flip_bit(&segments(&disk, 0)[0], 5000 * 8);
    let whole = disk.fork();
    let start = whole.operations();
    repair(AT, None, &shared(&whole)).unwrap();
    let truth = see_all(AT, config(&whole.fork(), &clock)).await.unwrap();
    for operation in start + 1..=whole.operations() {
        let cut = disk.fork();
        cut.power_cut_at(operation);
        assert!(repair(AT, None, &shared(&cut)).is_err(), "operation {operation}");
        let left = cut.crash(operation);
        repair(AT, None, &shared(&left)).unwrap();
        let seen = see_all(AT, config(&left, &clock)).await.unwrap();
        // Ids of messages that are known only by what happened to them are made up.
        let key = |seen: &super::scenes::Seen| (seen.mailbox.clone(), seen.payload.clone());
        let (seen, truth): (Vec<_>, Vec<_>) =
            (seen.iter().map(key).collect(), truth.iter().map(key).collect());
        assert_eq!(seen, truth, "operation {operation}");
    }
}

#[tokio::test]
async fn a_lost_meta_is_made_up_and_that_is_said() {
    let (disk, clock) = journal(15, true).await;
    let truth = see_all(AT, config(&disk.fork(), &clock)).await.unwrap();
    disk.write_file("/data/journal/meta", [0; 76]);
    let report = examine(AT, &shared(&disk)).unwrap();
    assert_eq!(report.problems[0].file, "meta");
    let repaired = repair(AT, None, &shared(&disk)).unwrap();
    assert!(repaired.new_secret);
    assert_eq!(see_all(AT, config(&disk, &clock)).await.unwrap(), truth);
}

#[tokio::test]
async fn a_version_that_was_damaged_is_told_from_another_version() {
    let (disk, _) = journal(16, true).await;
    let whole = disk.fork();
    disk.flip_bit("/data/journal/meta", 8 * 8 + 1);
    let report = examine(AT, &shared(&disk)).unwrap();
    assert_eq!(report.problems.len(), 1);
    assert!(!repair(AT, None, &shared(&disk)).unwrap().new_secret);
    let mut meta = whole.read_file("/data/journal/meta");
    meta[8] = 2;
    let crc = crc32c::crc32c(&meta[..72]);
    meta[72..].copy_from_slice(&crc.to_le_bytes());
    whole.write_file("/data/journal/meta", meta);
    let error = examine(AT, &shared(&whole)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_mailbox_whose_name_is_lost_gets_another() {
    let (disk, clock) = journal(17, false).await;
    for file in segments(&disk, 0).into_iter().chain(segments(&disk, 1)) {
        let mut bytes = disk.read_file(&file);
        let salt = SegmentHeader::decode(&bytes).unwrap().salt;
        let mut at = 4096;
        while let Ok(record) = read(&bytes[at..], salt) {
            let (kind, len) = (record.kind, record.len);
            if kind == Kind::Room {
                bytes[at + 50] ^= 1;
            }
            at += len;
        }
        disk.write_file(&file, bytes);
    }
    let repaired = repair(AT, None, &shared(&disk)).unwrap();
    assert!(!repaired.renamed.is_empty());
    let seen = see_all(AT, config(&disk, &clock)).await.unwrap();
    assert!(seen.iter().any(|seen| seen.mailbox.as_str().starts_with("lost-")));
}

#[tokio::test]
async fn bytes_that_the_disk_cannot_read_are_damage_and_the_rest_is_saved() {
    let (disk, clock) = filled().await;
    let middle = segments(&disk, 0).remove(1);
    disk.fail_reads(middle.to_string_lossy());
    let report = examine(AT, &shared(&disk)).unwrap();
    assert!(report.problems[0].what.contains("the disk cannot read it"));
    let repaired = repair(AT, Some(Path::new("/new")), &shared(&disk)).unwrap();
    let lost = repaired.lost_records.unwrap();
    assert!(lost > 10, "{repaired:?}");
    let seen = see_all("/new", config(&disk.fork(), &clock)).await.unwrap();
    assert_eq!(seen.len() as u64, 100 - (lost - 2));
    assert!(seen.iter().all(|seen| seen.payload.len() == 3_000));
}

#[tokio::test]
async fn what_is_no_journal_or_is_open_or_not_there_is_refused_and_left_alone() {
    let (disk, clock) = journal(19, false).await;
    let error = examine("/nowhere", &shared(&disk)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    disk.write_file("/data/other/note", b"hello");
    let error = examine("/data/other", &shared(&disk)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParameter);
    assert_eq!(disk.list(Path::new("/data/other")).unwrap(), ["note"]);
    let into = Path::new("/data/other");
    let error = repair(AT, Some(into), &shared(&disk)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParameter);
    let open = JournalBackend::open_with(AT, config(&disk, &clock)).await.unwrap();
    let error = examine(AT, &shared(&disk)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(repair(AT, None, &shared(&disk)).is_err());
    drop(open);
}

#[tokio::test]
async fn a_missing_segment_is_named() {
    let (disk, _) = filled().await;
    let middle = segments(&disk, 0).remove(1);
    disk.remove(&middle).unwrap();
    let report = examine(AT, &shared(&disk)).unwrap();
    let problem = &report.problems[0];
    assert!(middle.ends_with(&problem.file), "{problem:?}");
    assert!(problem.lost.is_some_and(|lost| lost.records() > 10), "{problem:?}");
    assert!(repair(AT, None, &shared(&disk)).unwrap().lost_records > Some(0));
}

/// Turns a bit of the header of the first record of this kind.
pub(super) fn damage_first(disk: &SimDisk, wanted: Kind) {
    for file in segments(disk, 0) {
        let bytes = disk.read_file(&file);
        let salt = SegmentHeader::decode(&bytes).unwrap().salt;
        let mut at = 4096;
        while let Ok(record) = read(&bytes[at..], salt) {
            if record.kind == wanted {
                return disk.flip_bit(&file, (at as u64 + 17) * 8);
            }
            at += record.len;
        }
    }
    panic!("there is no such record");
}

#[tokio::test]
async fn a_message_that_is_known_only_by_its_delivery_becomes_a_dead_letter() {
    let (disk, clock) = filled().await;
    let one_shard = || {
        let mut config = config(&disk, &clock);
        config.shards = 1;
        config
    };
    let backend = JournalBackend::open_with(AT, one_shard()).await.unwrap();
    let options = ReceiveOptions::new().with_max_messages(2);
    let deliveries = backend.receive(&name("jobs"), &options).await.unwrap();
    let settlements = deliveries.into_iter().zip([
        Verdict::Nack { delay: Duration::ZERO, error: Some("the reason".into()) },
        Verdict::Acknowledge,
    ]);
    for (delivery, verdict) in settlements {
        let settlement = Settlement { receipt_handle: delivery.receipt_handle, verdict };
        backend.settle(&name("jobs"), vec![settlement]).await.unwrap().remove(0).unwrap();
    }
    let disk = disk.fork();
    drop(backend);
    damage_first(&disk, Kind::Sent);
    let report = examine(AT, &shared(&disk)).unwrap();
    assert_eq!((report.lost_records, report.unreadable_messages), (Some(1), 1));
    let repaired = repair(AT, None, &shared(&disk)).unwrap();
    assert_eq!((repaired.messages, repaired.unreadable), (98, 1));
    let seen = see_all(AT, config(&disk, &clock)).await.unwrap();
    let dead = seen.last().unwrap();
    assert_eq!((dead.reason, dead.attempts), (Some(DeadReason::Integrity), 1));
    assert!(dead.last_error.as_deref().unwrap().ends_with("was: the reason"), "{dead:?}");
}

#[tokio::test]
async fn who_sits_in_a_slot_that_was_given_to_somebody_else_is_gone() {
    let (disk, clock) = (SimDisk::new(), ManualClock::new());
    let mut config = config(&disk, &clock);
    config.shards = 1;
    let backend = JournalBackend::open_with(AT, config.clone()).await.unwrap();
    let jobs = name("jobs");
    for payload in ["first", "second"] {
        let message = Outgoing::new(Bytes::from(payload));
        backend.send(&jobs, vec![message]).await.unwrap().remove(0).unwrap();
        if payload == "first" {
            let delivery = backend.receive(&jobs, &ReceiveOptions::new()).await.unwrap().remove(0);
            let (receipt_handle, verdict) = (delivery.receipt_handle, Verdict::Acknowledge);
            let settlement = Settlement { receipt_handle, verdict };
            backend.settle(&jobs, vec![settlement]).await.unwrap().remove(0).unwrap();
        }
    }
    let disk = disk.fork();
    drop(backend);
    damage_first(&disk, Kind::Acknowledged);
    assert_eq!(repair(AT, None, &shared(&disk)).unwrap().messages, 1);
    let seen = see_all(AT, config.with_disk(shared(&disk))).await.unwrap();
    assert_eq!(seen[0].payload, "second");
}
