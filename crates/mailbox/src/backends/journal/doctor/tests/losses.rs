//! What is said about records that are lost, and what a repair counts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use mailbox_core::Verdict;

use super::scenes::{AT, config, filled, name, shared};
use super::steps::{damage_first, segments};
use crate::Durability;
use crate::backend::{Backend, Outgoing, Settlement};
use crate::backends::journal::JournalBackend;
use crate::backends::journal::disk::{Disk, SimDisk};
use crate::backends::journal::doctor::{SegmentState, examine, repair};
use crate::backends::journal::format::record::{Kind, read};
use crate::backends::journal::format::segment::SegmentHeader;
use crate::options::ReceiveOptions;
use crate::testing::ManualClock;

/// A journal of one log with ten messages in one segment.
async fn small(durability: Durability) -> (SimDisk, ManualClock) {
    let (disk, clock) = (SimDisk::new(), ManualClock::new());
    let mut config = config(&disk, &clock);
    (config.shards, config.durability) = (1, durability);
    let backend = JournalBackend::open_with(AT, config).await.unwrap();
    for number in 0..10_u8 {
        let message = Outgoing::new(Bytes::from(vec![number; 300]));
        backend.send(&name("jobs"), vec![message]).await.unwrap().remove(0).unwrap();
    }
    (disk.fork(), clock)
}

/// The last segment with records, and where these start.
fn last_used(disk: &SimDisk) -> (PathBuf, Vec<usize>) {
    let used = segments(disk, 0).into_iter().rev().find_map(|file| {
        let bytes = disk.read_file(&file);
        let salt = SegmentHeader::decode(&bytes).unwrap().salt;
        let (mut at, mut starts) = (4096, Vec::new());
        while let Ok(record) = read(&bytes[at..], salt) {
            starts.push(at);
            at += record.len;
        }
        (!starts.is_empty()).then_some((file, starts))
    });
    used.unwrap()
}

fn check_unknown(disk: &SimDisk) {
    let report = examine(AT, &shared(disk)).unwrap();
    assert!(!report.sound);
    assert_eq!(report.lost_records, None, "{:?}", report.problems);
    assert!(serde_json::to_value(&report).unwrap()["lost_records"].is_null());
    let repaired = repair(AT, Some(Path::new("/new")), &shared(disk)).unwrap();
    assert_eq!(repaired.lost_records, None);
}

#[tokio::test]
async fn nobody_knows_how_much_was_in_the_only_segment() {
    let (disk, _) = small(Durability::Fsync).await;
    let files = segments(&disk, 0);
    disk.remove(&files[0]).unwrap();
    check_unknown(&disk.fork());
    for file in &files[1..] {
        disk.remove(file).unwrap();
    }
    check_unknown(&disk);
}

#[tokio::test]
async fn nobody_knows_how_much_was_behind_the_place_where_a_file_is_cut_off() {
    let (disk, _) = filled().await;
    let (file, starts) = last_used(&disk);
    let middle = starts[starts.len() / 2];
    for len in [middle, middle + 60, 4096, 30, 0] {
        let cut = disk.fork();
        cut.truncate(&file, len as u64);
        check_unknown(&cut);
    }
}

#[tokio::test]
async fn a_cut_in_the_middle_of_the_log_is_counted_by_what_follows_it() {
    let (disk, _) = filled().await;
    let middle = segments(&disk, 0).remove(1);
    disk.truncate(&middle, 4096);
    let report = examine(AT, &shared(&disk)).unwrap();
    assert!(report.lost_records > Some(10), "{:?}", report.problems);
}

#[tokio::test]
async fn a_cut_in_a_segment_that_was_never_used_loses_nothing() {
    let (disk, _) = small(Durability::Fsync).await;
    let spare = segments(&disk, 0).remove(1);
    disk.truncate(&spare, 5000);
    let report = examine(AT, &shared(&disk)).unwrap();
    assert_eq!((report.sound, report.lost_records), (false, Some(0)), "{:?}", report.problems);
}

#[tokio::test]
async fn a_torn_end_of_unsynced_batches_tells_what_may_be_among_it() {
    for (durability, is_said) in [(Durability::OsBuffered, true), (Durability::Fsync, false)] {
        let (disk, _) = small(durability).await;
        let (file, starts) = last_used(&disk);
        // With syncs, only the last record can be torn.
        let torn = if is_said { starts[starts.len() - 4] } else { starts[starts.len() - 1] };
        disk.flip_bit(&file, (torn as u64 + 17) * 8);
        let report = examine(AT, &shared(&disk)).unwrap();
        assert!(report.sound, "{:?}", report.problems);
        let segment = report.shards[0].segments.iter().find(|it| file.ends_with(&it.file));
        assert_eq!(segment.unwrap().state, SegmentState::Torn);
        let remark = &report.remarks[0];
        assert_eq!(remark.offset, Some(torn as u64));
        let words = ["with os-buffered durability may be among", "3 whole records behind the gap"];
        for words in words {
            assert_eq!(remark.what.contains(words), is_said, "{remark:?}");
        }
        assert_eq!(remark.what.contains("nobody was told"), !is_said, "{remark:?}");
    }
}

#[tokio::test]
async fn messages_that_a_repair_makes_dead_letters_are_counted_as_such() {
    let (disk, clock) = filled().await;
    let mut config = config(&disk, &clock);
    config.shards = 1;
    let backend = JournalBackend::open_with(AT, config.clone()).await.unwrap();
    let options = ReceiveOptions::new().with_max_messages(1);
    let delivery = backend.receive(&name("jobs"), &options).await.unwrap().remove(0);
    let verdict = Verdict::Nack { delay: Duration::ZERO, error: None };
    let settlement = Settlement { receipt_handle: delivery.receipt_handle, verdict };
    backend.settle(&name("jobs"), vec![settlement]).await.unwrap().remove(0).unwrap();
    let disk = disk.fork();
    drop(backend);
    // One is known by its delivery only, of two others the payload is damaged.
    damage_first(&disk, Kind::Sent);
    let (file, starts) = last_used(&disk);
    let bytes = disk.read_file(&file);
    let salt = SegmentHeader::decode(&bytes).unwrap().salt;
    let is_sent = |at: &&usize| read(&bytes[**at..], salt).unwrap().kind == Kind::Sent;
    for at in starts.iter().filter(is_sent).take(2) {
        disk.flip_bit(&file, (*at as u64 + 1_500) * 8);
    }
    let repaired = repair(AT, None, &shared(&disk)).unwrap();
    assert_eq!((repaired.messages, repaired.unreadable), (97, 3));
    let backend = JournalBackend::open_with(AT, config.with_disk(shared(&disk))).await.unwrap();
    let stats = backend.stats(&name("jobs")).await.unwrap();
    assert_eq!((stats.dead, stats.totals.dead_lettered), (3, 3));
    backend.close().await.unwrap();
}
