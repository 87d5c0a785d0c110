//! Servers that get into trouble while they are used: full, busy, loading, unable to save, or no
//! master any more. What passes by itself is waited for, what does not is said; nothing is lost.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mailbox::backends::redis::RedisConfig;
use mailbox::{Backend, ErrorKind, Outgoing, Peek, Retry, Verdict};
use redis::Connection;

use super::stage::{
    Stage, acknowledge, contents, expect, expect_same, info, name, receive, receive_for, run, send,
    settle, stats, try_run,
};
use super::{PATIENCE, until};

const HOUR: Duration = Duration::from_secs(3_600);

/// Settings with which nothing is waited for longer than this.
fn patient_for(patience: Duration) -> RedisConfig {
    let mut config = RedisConfig::default();
    config.patience = patience;
    config
}

#[tokio::test]
async fn a_server_without_memory_refuses_sends_and_can_be_drained() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    let backend = &*stage.backend;
    let large = "x".repeat(20_000);
    let mut sent = Vec::new();
    for _ in 0..100 {
        sent.push(send(backend, "jobs", large.as_str()).await.unwrap());
    }
    let used: u64 = info(&mut plain, "memory", "used_memory").parse().unwrap();
    let most = (used - 500_000).to_string();
    run::<()>(&mut plain, &["CONFIG", "SET", "maxmemory", &most]);
    let before = contents(&mut plain);
    for _ in 0..3 {
        let error = send(backend, "jobs", "one more").await.unwrap_err();
        expect(&error, ErrorKind::Saturated, &stage.node.address(), &["xxxx"]);
        assert_ne!(error.retry(), Retry::Never);
        let error = send(backend, "elsewhere", "one more").await.unwrap_err();
        expect(&error, ErrorKind::Saturated, &stage.node.address(), &[]);
        let batch = vec![Outgoing::new("a".into()), Outgoing::new("b".into())];
        let error = backend.send(&name("jobs"), batch).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Saturated);
    }
    expect_same(&mut plain, &before, "refused");
    assert_eq!(stats(backend, "jobs").await.ready, 100);
    backend.peek(&name("jobs"), &Peek::Live { limit: 10 }).await.unwrap();
    // Everything that makes room, or needs none, works.
    let first = receive_for(backend, "jobs", 1, Duration::ZERO, HOUR).await.unwrap().remove(0);
    let extend = Verdict::Extend { timeout: HOUR };
    settle(backend, "jobs", &first, extend).await.unwrap();
    let nack = Verdict::Nack { delay: Duration::ZERO, error: Some("full".into()) };
    settle(backend, "jobs", &first, nack).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < sent.len() {
        let taken = receive(backend, "jobs", Duration::ZERO).await.unwrap();
        assert!(!taken.is_empty(), "only {} came", seen.len());
        for delivery in taken {
            acknowledge(backend, "jobs", &delivery).await.unwrap();
            seen.push(delivery.id);
        }
    }
    // The first was given back, behind the others.
    sent.rotate_left(1);
    assert_eq!(seen, sent);
    send(backend, "jobs", "there is room").await.unwrap();
    assert_eq!(receive(backend, "jobs", Duration::ZERO).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_master_that_becomes_a_replica_is_waited_for_and_then_told() {
    let patience = Duration::from_millis(600);
    let stage = Stage::with(&[], patient_for(patience)).await;
    let mut plain = stage.connect();
    let backend = &*stage.backend;
    let kept = send(backend, "jobs", "kept").await.unwrap();
    let held = receive(backend, "jobs", Duration::ZERO).await.unwrap().remove(0);
    run::<()>(&mut plain, &["REPLICAOF", "127.0.0.1", "1"]);
    let start = Instant::now();
    let error = send(backend, "jobs", "lost?").await.unwrap_err();
    expect(&error, ErrorKind::Connection, &stage.node.address(), &[]);
    assert_ne!(error.retry(), Retry::Never);
    assert!(start.elapsed() < patience + Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(start.elapsed() > patience / 2, "{:?}", start.elapsed());
    let error = receive(backend, "jobs", Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    let error = acknowledge(backend, "jobs", &held).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    // Whoever waits for a message waits for the server too.
    let waiting = receive(backend, "jobs", PATIENCE);
    let (taken, sent) = tokio::join!(waiting, async {
        tokio::time::sleep(patience).await;
        run::<()>(&mut plain, &["REPLICAOF", "NO", "ONE"]);
        send(backend, "jobs", "afterwards").await.unwrap()
    });
    assert_eq!(taken.unwrap()[0].id, sent);
    assert_eq!(held.id, kept);
    acknowledge(backend, "jobs", &held).await.unwrap();
    assert_eq!(stats(backend, "jobs").await.live(), 1);
}

#[tokio::test]
async fn a_server_that_cannot_save_is_waited_for() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    run::<()>(&mut plain, &["CONFIG", "SET", "save", "3600 1"]);
    let (_, folder): (String, PathBuf) = {
        let (name, folder): (String, String) = run(&mut plain, &["CONFIG", "GET", "dir"]);
        (name, folder.into())
    };
    // A folder where it wants to have a file.
    let obstacle = folder.join("dump.rdb");
    std::fs::create_dir_all(obstacle.join("not empty")).unwrap();
    run::<()>(&mut plain, &["BGSAVE"]);
    until("it could not save", || async {
        info(&mut stage.connect(), "persistence", "rdb_last_bgsave_status") == "err"
    })
    .await;
    let refused = try_run::<()>(&mut plain, &["SET", "a", "b"]).unwrap_err();
    assert_eq!(refused.code(), Some("MISCONF"));
    let backend = &*stage.backend;
    let sending = async { send(backend, "jobs", "late").await.unwrap() };
    let relief = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::fs::remove_dir_all(&obstacle).unwrap();
        run::<()>(&mut plain, &["BGSAVE"]);
    };
    let (sent, ()) = tokio::join!(sending, relief);
    let taken = receive(backend, "jobs", Duration::ZERO).await.unwrap();
    assert_eq!((taken.len(), &taken[0].id), (1, &sent));
}

#[tokio::test]
async fn a_server_that_is_busy_is_waited_for() {
    let stage = Stage::with(&[("busy-reply-threshold", "20")], RedisConfig::default()).await;
    let backend = &*stage.backend;
    let first = send(backend, "jobs", "first").await.unwrap();
    let mut busy = stage.connect();
    let script = std::thread::spawn(move || {
        try_run::<()>(&mut busy, &["EVAL", "while true do redis.call('GET', 'x') end", "0"])
    });
    let mut plain = stage.connect();
    until("it is busy", || {
        let answer = try_run::<String>(&mut plain, &["PING"]);
        async move { answer.is_err_and(|error| error.code() == Some("BUSY")) }
    })
    .await;
    let calls = async {
        let sent = send(backend, "jobs", "second").await.unwrap();
        let taken = receive(backend, "jobs", Duration::ZERO).await.unwrap();
        (sent, taken)
    };
    let relief = async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        run::<()>(&mut plain, &["SCRIPT", "KILL"]);
    };
    let ((second, taken), ()) = tokio::join!(calls, relief);
    assert_eq!(taken.iter().map(|one| &one.id).collect::<Vec<_>>(), [&first, &second]);
    script.join().unwrap().unwrap_err();
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_waited_for() {
    let slow = [("key-load-delay", "4000"), ("loading-process-events-interval-bytes", "1024")];
    let mut stage = Stage::with(&slow, RedisConfig::default()).await;
    let first = send(&stage.backend, "jobs", "first").await.unwrap();
    let mut plain = stage.connect();
    let value = "x".repeat(4_000);
    for n in 0..300 {
        run::<()>(&mut plain, &["SET", &format!("ballast {n}"), &value]);
    }
    run::<()>(&mut plain, &["SAVE"]);
    let (mut node, backend) = (stage.node, stage.backend);
    let url = super::stage::url(&node);
    node.kill();
    let restart = std::thread::spawn(move || {
        node.restart().unwrap();
        node
    });
    until("it loads", || {
        let is_loading = raw(&url).is_ok_and(|mut plain| {
            try_run::<String>(&mut plain, &["GET", "x"])
                .is_err_and(|error| error.code() == Some("LOADING"))
        });
        async move { is_loading }
    })
    .await;
    let second = send(&backend, "jobs", "second").await.unwrap();
    let taken = receive(&backend, "jobs", Duration::ZERO).await.unwrap();
    assert_eq!(taken.iter().map(|one| &one.id).collect::<Vec<_>>(), [&first, &second]);
    stage = Stage { node: restart.join().unwrap(), backend };
    assert_eq!(stats(&stage.backend, "jobs").await.invisible, 2);
}

/// A connection to a server that may not be ready.
fn raw(url: &str) -> redis::RedisResult<Connection> {
    redis::Client::open(url)?.get_connection_with_timeout(Duration::from_millis(200))
}
