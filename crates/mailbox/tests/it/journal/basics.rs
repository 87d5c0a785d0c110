//! What a journal does on a good day, on a real disk.

use std::sync::Arc;
use std::time::Duration;

use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::{Backend, Durability, ErrorKind, Mailbox, ReceiveOptions};

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
