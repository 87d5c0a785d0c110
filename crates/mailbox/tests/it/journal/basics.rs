//! What a journal does on a good day, on a real disk.

use std::sync::Arc;
use std::time::Duration;

use mailbox::backends::journal::disk::SimDisk;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::{Backend, Durability, ErrorKind, Mailbox, ReceiveOptions, SendOptions};

fn small() -> JournalConfig {
    JournalConfig::default().with_segment_len(64 * 1024).with_max_payload(16 * 1024)
}

#[tokio::test]
async fn what_was_sent_is_there_after_a_clean_stop_and_after_none() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4_u32 {
        let backend = JournalBackend::open_with(dir.path(), small()).await.unwrap();
        let jobs: Mailbox<u32> =
            Mailbox::new(Arc::<JournalBackend>::clone(&backend), "jobs".parse().unwrap());
        assert_eq!(jobs.approximate_count().await.unwrap(), u64::from(round));
        jobs.send(round).await.unwrap();
        if round % 2 == 0 {
            backend.close().await.unwrap();
        }
    }
    let backend = JournalBackend::open_with(dir.path(), small()).await.unwrap();
    let jobs: Mailbox<u32> =
        Mailbox::new(Arc::<JournalBackend>::clone(&backend), "jobs".parse().unwrap());
    assert_eq!(jobs.stats().await.unwrap().durability, Durability::Fsync);
    let options = ReceiveOptions::new().with_max_messages(10);
    let messages = jobs.receive_with(options).await.unwrap();
    let bodies: Vec<u32> = messages.iter().map(|message| *message.body().unwrap()).collect();
    assert_eq!(bodies, [0, 1, 2, 3]);
    backend.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_segments_go_round_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let backend = JournalBackend::open_with(dir.path(), small()).await.unwrap();
    let jobs: Mailbox<String> =
        Mailbox::new(Arc::<JournalBackend>::clone(&backend), "jobs".parse().unwrap());
    let body = "x".repeat(1000);
    // One that stays, at the very beginning.
    jobs.send("first".to_owned()).await.unwrap();
    let long = ReceiveOptions::new().with_visibility_timeout(Duration::from_secs(4_000));
    let first = jobs.receive_with(long.clone()).await.unwrap().remove(0);
    for _ in 0..400 {
        let sends = (0..8).map(|_| jobs.send(body.clone()));
        for sent in futures_util::future::join_all(sends).await {
            sent.unwrap();
        }
        let mut taken = 0;
        while taken < 8 {
            for message in jobs.receive_with(long.clone().with_max_messages(8)).await.unwrap() {
                taken += 1;
                message.acknowledge().await.unwrap();
            }
        }
    }
    let files = std::fs::read_dir(dir.path().join("shard-00")).unwrap().count();
    assert!(files < 10, "{files} files for one message");
    first.acknowledge().await.unwrap();
    assert_eq!(jobs.approximate_count().await.unwrap(), 0);
    backend.close().await.unwrap();
}

#[tokio::test]
async fn a_second_opener_is_told_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let backend = JournalBackend::open_with(dir.path(), small()).await.unwrap();
    let error = JournalBackend::open_with(dir.path(), small()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.to_string().contains("this process"), "{error}");
    backend.close().await.unwrap();
    let again = JournalBackend::open_with(dir.path(), small()).await.unwrap();
    drop(again);
    JournalBackend::open_with(dir.path(), small()).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn the_last_mailbox_opened_by_address_closes_the_journal_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let address = |name: &str| format!("journal:{}/{name}", dir.path().join("j").display());
    let first: Mailbox<u32> = Mailbox::open(&address("first")).await.unwrap();
    let second: Mailbox<u32> = Mailbox::open(&address("second")).await.unwrap();
    let third = Mailbox::<u32>::open(&(address("third") + "?ack=lazy")).await;
    assert_eq!(third.unwrap_err().kind(), ErrorKind::InvalidParameter);
    first.close().await.unwrap();
    first.close().await.unwrap();
    second.send(2).await.unwrap();
    assert_eq!(first.send(1).await.unwrap_err().kind(), ErrorKind::Closed);
    let index = dir.path().join("j/shard-00/index");
    assert!(!index.exists(), "somebody still uses it");
    second.close().await.unwrap();
    assert!(index.exists(), "the last one stops it in order");
    let again: Mailbox<u32> = Mailbox::open(&address("second")).await.unwrap();
    assert_eq!(again.approximate_count().await.unwrap(), 1);
}

#[tokio::test]
async fn what_was_synced_is_not_cut_off_with_what_was_not() {
    let disk = SimDisk::new();
    for durability in [Durability::OsBuffered, Durability::Fsync] {
        let config = small().with_disk(Arc::new(disk.clone())).with_durability(durability);
        let backend = JournalBackend::open_with("/j", config).await.unwrap();
        let jobs: Mailbox<String> =
            Mailbox::new(Arc::<JournalBackend>::clone(&backend), "jobs".parse().unwrap());
        // As many as fill most of a segment, so that none is moved.
        for number in 0..26 {
            jobs.send(format!("job {number:2000}")).await.unwrap();
        }
        drop(jobs);
        backend.close().await.unwrap();
        let index = std::path::Path::new("/j/shard-00/index");
        disk.write_file(index, b"gone");
    }
    let segment = std::path::Path::new("/j/shard-00/00000001.segment");
    let bytes = disk.read_file(segment);
    let third = format!("job {:2000}", 3);
    let at = bytes.windows(third.len()).position(|window| window == third.as_bytes()).unwrap();
    disk.flip_bit(segment, at as u64 * 8);
    let config = small().with_disk(Arc::new(disk.clone()));
    let refused = JournalBackend::open_with("/j", config).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Integrity, "{refused}");
}

#[tokio::test]
async fn a_log_of_nothing_but_keys_comes_to_rest() {
    let disk = SimDisk::new();
    let config = small().with_disk(Arc::new(disk.clone()));
    let backend = JournalBackend::open_with("/j", config).await.unwrap();
    let jobs: Mailbox<u32> =
        Mailbox::new(Arc::<JournalBackend>::clone(&backend), "jobs".parse().unwrap());
    for number in 0..3_000 {
        let keyed = SendOptions::new().with_idempotency_key(format!("key {number}"));
        jobs.send_with(number, keyed).await.unwrap();
        for message in jobs.receive().await.unwrap() {
            message.acknowledge().await.unwrap();
        }
    }
    let until = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let before = disk.operations();
        tokio::time::sleep(Duration::from_millis(100)).await;
        if disk.operations() == before {
            break;
        }
        assert!(std::time::Instant::now() < until, "it writes and writes, and nobody asked it to");
    }
    let keyed = SendOptions::new().with_idempotency_key("key 7");
    assert!(jobs.send_with(7, keyed).await.unwrap().duplicate, "and forgets none of them");
}
