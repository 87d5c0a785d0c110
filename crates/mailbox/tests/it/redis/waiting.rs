//! Waiting receives, by the system's clock and with messages that other processes send.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{Backend, Delivery, ErrorKind, MessageId, Outgoing, Result, Verdict};
use mailbox_redis_servers::Cluster;
use tokio::task::{JoinHandle, JoinSet};

use super::stage::{
    Stage, acknowledge, info, name, receive, receive_for, run, say, send, send_this, settle, stats,
    text,
};
use super::{PATIENCE, SOON, until};

const HOUR: Duration = Duration::from_secs(3_600);
/// At most so late may a message be that becomes receivable by itself (V2).
const LATE: Duration = Duration::from_secs(1);

type Waiting = JoinHandle<Result<Vec<Delivery>>>;

/// A receive that waits for one message, in a task of its own.
fn wait_at(backend: &Arc<RedisBackend>, mailbox: &'static str, wait: Duration) -> Waiting {
    let backend = Arc::clone(backend);
    tokio::spawn(async move { receive_for(&backend, mailbox, 1, wait, HOUR).await })
}

async fn until_waiting(backend: &RedisBackend, mailbox: &str, count: u64) {
    until("they wait", || async { stats(backend, mailbox).await.waiters == count }).await;
}

/// Waits until the server is going to tell of changes.
async fn until_listening(stage: &Stage) {
    let mut plain = stage.connect();
    until("the server was asked to tell", || {
        let keys: u64 = info(&mut plain, "stats", "tracking_total_keys").parse().unwrap();
        async move { keys > 0 }
    })
    .await;
}

/// How long a waiting receive takes to get what another process sends.
async fn wake_up(waiting: &Arc<RedisBackend>, sender: &RedisBackend) -> Duration {
    let task = wait_at(waiting, "jobs", SOON);
    until_waiting(waiting, "jobs", 1).await;
    let start = Instant::now();
    let sent = send(sender, "jobs", "wake up").await.unwrap();
    let delivery = task.await.unwrap().unwrap().remove(0);
    let late = start.elapsed();
    assert_eq!(delivery.id, sent);
    acknowledge(waiting, "jobs", &delivery).await.unwrap();
    late
}

#[tokio::test]
async fn a_waiting_receive_is_woken_by_a_send_of_another_process() {
    let stage = Stage::new().await;
    let other = stage.another().await;
    let mut late = Vec::new();
    for _ in 0..50 {
        late.push(wake_up(&stage.backend, &other).await);
    }
    late.sort_unstable();
    let (middle, last) = (late[25], late[49]);
    say(&format!("redis: a waiting receive is woken after {middle:?} (p50), {last:?} (worst)"));
    assert!(middle < Duration::from_millis(50), "{late:?}");
}

#[cfg(feature = "planted")]
#[tokio::test]
async fn one_who_does_not_listen_is_noticed() {
    use mailbox::backends::redis::{Bug, Planted};

    let mut config = RedisConfig::default();
    config.planted = Planted::bug(Bug::Deaf);
    let stage = Stage::with(&[], config).await;
    let (deaf, other) = (&stage.backend, stage.another().await);
    send(&other, "jobs", "").await.unwrap();
    assert_eq!(receive(&other, "jobs", Duration::ZERO).await.unwrap().len(), 1);
    let task = wait_at(deaf, "jobs", SOON);
    until_waiting(deaf, "jobs", 1).await;
    until_listening(&stage).await;
    let start = Instant::now();
    send(&other, "jobs", "wake up").await.unwrap();
    task.await.unwrap().unwrap().remove(0);
    assert!(start.elapsed() > Duration::from_millis(500), "{:?}", start.elapsed());
}

#[tokio::test]
async fn many_who_begin_to_wait_at_once_are_all_woken() {
    let stage = Stage::new().await;
    let other = stage.another().await;
    let mailboxes: Vec<String> = (0..40).map(|n| format!("jobs-{n}")).collect();
    let waiting = wait_at_each(&stage.backend, &mailboxes);
    for mailbox in &mailboxes {
        until_waiting(&stage.backend, mailbox, 1).await;
    }
    until_listening(&stage).await;
    send_to_each(&other, &mailboxes, waiting).await;
}

/// Somebody who waits at each mailbox, all from the same moment on.
fn wait_at_each(backend: &Arc<RedisBackend>, mailboxes: &[String]) -> JoinSet<String> {
    let mut waiting = JoinSet::new();
    for mailbox in mailboxes {
        let (backend, mailbox) = (Arc::clone(backend), mailbox.clone());
        waiting.spawn(async move {
            let taken = receive(&backend, &mailbox, PATIENCE).await.unwrap();
            assert_eq!(text(&taken[0]), mailbox);
            mailbox
        });
    }
    waiting
}

/// Sends to each mailbox: everybody is woken soon.
async fn send_to_each(sender: &RedisBackend, mailboxes: &[String], mut waiting: JoinSet<String>) {
    let start = Instant::now();
    for mailbox in mailboxes {
        send(sender, mailbox, mailbox.as_str()).await.unwrap();
    }
    let mut woken = BTreeSet::new();
    while let Some(mailbox) = waiting.join_next().await {
        woken.insert(mailbox.unwrap());
    }
    assert_eq!(woken, mailboxes.iter().cloned().collect());
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[tokio::test]
async fn one_whose_connections_were_cut_is_woken_too() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    let mailboxes: Vec<String> = (0..10).map(|n| format!("jobs-{n}")).collect();
    let waiting = wait_at_each(&stage.backend, &mailboxes);
    for mailbox in &mailboxes {
        until_waiting(&stage.backend, mailbox, 1).await;
    }
    until_listening(&stage).await;
    assert!(run::<u32>(&mut plain, &["CLIENT", "KILL", "TYPE", "normal"]) >= 2);
    let other = stage.another().await;
    send_to_each(&other, &mailboxes, waiting).await;
}

#[tokio::test]
async fn two_hundred_who_wait_get_one_message_each() {
    let stage = Stage::new().await;
    let other = stage.another().await;
    let waiting: Vec<Waiting> =
        (0..200).map(|_| wait_at(&stage.backend, "jobs", PATIENCE)).collect();
    until_waiting(&stage.backend, "jobs", 200).await;
    let mut sent: BTreeSet<MessageId> = BTreeSet::new();
    // Some alone, some together.
    for _ in 0..50 {
        sent.insert(send(&other, "jobs", "alone").await.unwrap());
    }
    let batch = vec![Outgoing::new("together".into()); 150];
    for one in other.send(&name("jobs"), batch).await.unwrap() {
        sent.insert(one.unwrap().id);
    }
    assert_eq!(sent.len(), 200);
    let start = Instant::now();
    let mut received = BTreeSet::new();
    for task in waiting {
        let delivery = task.await.unwrap().unwrap().remove(0);
        assert_eq!(delivery.delivery_count, 1);
        received.insert(delivery.id);
    }
    assert_eq!(received, sent);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_eq!(stats(&stage.backend, "jobs").await.waiters, 0);
}

#[tokio::test]
async fn what_becomes_receivable_by_itself_wakes_in_time() {
    let stage = Stage::new().await;
    let (backend, other) = (&stage.backend, stage.another().await);
    let pause = Duration::from_millis(1_200);
    // A delay that ends, a lease that ends, and a nack for later; by others, before and after
    // somebody waits.
    for mailbox in ["lease", "nack"] {
        send(&other, mailbox, "held").await.unwrap();
    }
    let held = receive_for(&other, "nack", 1, Duration::ZERO, HOUR).await.unwrap().remove(0);
    let waiting = ["delay", "nack", "late"];
    let waiting = waiting.map(|mailbox| (wait_at(backend, mailbox, PATIENCE), mailbox));
    for (_, mailbox) in &waiting {
        until_waiting(backend, mailbox, 1).await;
    }
    let start = Instant::now();
    let mut delayed = Outgoing::new("delayed".into());
    delayed.delay = pause;
    send_this(&other, "delay", delayed.clone()).await.unwrap();
    delayed.delay = HOUR;
    send_this(&other, "late", delayed.clone()).await.unwrap();
    delayed.delay = pause;
    send_this(&other, "late", delayed).await.unwrap();
    settle(&other, "nack", &held, Verdict::Nack { delay: pause, error: None }).await.unwrap();
    let lease = receive_for(&other, "lease", 1, Duration::ZERO, pause).await.unwrap();
    let lease = (wait_at(backend, "lease", PATIENCE), lease[0].id.clone());
    for (task, mailbox) in waiting {
        task.await.unwrap().unwrap().remove(0);
        let after = start.elapsed();
        assert!(after >= pause && after <= pause + LATE, "{mailbox}: {after:?}");
    }
    let delivery = lease.0.await.unwrap().unwrap().remove(0);
    let after = start.elapsed();
    assert_eq!((delivery.id, delivery.delivery_count), (lease.1, 2));
    assert!(after >= pause && after <= pause + LATE, "lease: {after:?}");
}

#[tokio::test]
async fn a_purge_by_another_process_leaves_who_waits_and_a_removal_ends_it() {
    let stage = Stage::new().await;
    let (backend, other) = (&stage.backend, stage.another().await);
    let held = send(&other, "jobs", "held").await.unwrap();
    let taken = receive(&other, "jobs", Duration::ZERO).await.unwrap();
    assert_eq!(taken[0].id, held);
    let waiting = wait_at(backend, "jobs", PATIENCE);
    until_waiting(backend, "jobs", 1).await;
    until_listening(&stage).await;
    assert_eq!(other.purge(&name("jobs")).await.unwrap(), 1);
    let sent = send(&other, "jobs", "after the purge").await.unwrap();
    let delivery = waiting.await.unwrap().unwrap().remove(0);
    assert_eq!(delivery.id, sent);
    let waiting: Vec<Waiting> = (0..3).map(|_| wait_at(backend, "jobs", PATIENCE)).collect();
    until_waiting(backend, "jobs", 3).await;
    until_listening(&stage).await;
    let start = Instant::now();
    assert!(other.remove(&name("jobs")).await.unwrap());
    for task in waiting {
        assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    // It can be used again, as if it had never been there.
    let waiting = wait_at(backend, "jobs", PATIENCE);
    until_waiting(backend, "jobs", 1).await;
    let sent = send(&other, "jobs", "new").await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap()[0].id, sent);
}

#[tokio::test]
async fn closing_ends_all_waiting_at_once() {
    let stage = Stage::new().await;
    let other = stage.another().await;
    let mut waiting = Vec::new();
    for mailbox in ["jobs", "other", "third"] {
        waiting.push(wait_at(&stage.backend, mailbox, PATIENCE));
        until_waiting(&stage.backend, mailbox, 1).await;
    }
    let start = Instant::now();
    stage.backend.close().await.unwrap();
    for task in waiting {
        assert_eq!(task.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let later = receive(&stage.backend, "jobs", HOUR).await.unwrap_err();
    assert_eq!(later.kind(), ErrorKind::Closed);
    assert_eq!(send(&stage.backend, "jobs", "").await.unwrap_err().kind(), ErrorKind::Closed);
    stage.backend.close().await.unwrap();
    // Its connections are gone, and others go on.
    send(&other, "jobs", "for the others").await.unwrap();
    assert_eq!(receive(&other, "jobs", Duration::ZERO).await.unwrap().len(), 1);
}

#[tokio::test]
async fn without_events_a_waiting_receive_looks_by_itself() {
    let mut config = RedisConfig::default();
    config.events = false;
    let stage = Stage::with(&[], config).await;
    let other = stage.another().await;
    let mut plain = stage.connect();
    for _ in 0..3 {
        let late = wake_up(&stage.backend, &other).await;
        assert!(late < LATE, "{late:?}");
    }
    assert_eq!(info(&mut plain, "stats", "tracking_total_keys"), "0");
}

#[tokio::test]
async fn dropping_a_waiting_receive_loses_nothing() {
    let stage = Stage::new().await;
    let other = stage.another().await;
    let mut given_back = 0;
    for round in 1..=400_u64 {
        let task = wait_at(&stage.backend, "jobs", PATIENCE);
        until_waiting(&stage.backend, "jobs", 1).await;
        let sent = send(&other, "jobs", "for somebody").await.unwrap();
        // At any moment on the way from the server to whoever waits.
        for _ in 0..round * 7 % 150 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let taken = match task.await {
            Ok(received) => received.unwrap(),
            Err(_) => receive_for(&other, "jobs", 1, SOON, HOUR).await.unwrap(),
        };
        assert!(!taken.is_empty(), "round {round}: it does not come back");
        assert_eq!((&taken[0].id, taken[0].delivery_count), (&sent, 1), "round {round}");
        acknowledge(&other, "jobs", &taken[0]).await.unwrap();
        let stats = stats(&other, "jobs").await;
        assert_eq!((stats.live(), stats.dead), (0, 0), "round {round}");
        // The server counts what it has handed over to somebody who was gone.
        given_back = stats.totals.delivered - round;
        if given_back == 5 {
            break;
        }
    }
    assert!(given_back > 0, "nobody went away at the right moment");
}

#[tokio::test]
async fn idle_waiting_costs_almost_nothing() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    let mailboxes = ["a", "b", "c", "d", "e"];
    let mut waiting = JoinSet::new();
    for mailbox in mailboxes {
        send(&stage.backend, mailbox, "held").await.unwrap();
        assert_eq!(receive(&stage.backend, mailbox, Duration::ZERO).await.unwrap().len(), 1);
        for _ in 0..20 {
            let backend = Arc::clone(&stage.backend);
            waiting.spawn(async move { receive(&backend, mailbox, PATIENCE).await });
        }
        until_waiting(&stage.backend, mailbox, 20).await;
    }
    until_listening(&stage).await;
    run::<()>(&mut plain, &["CONFIG", "RESETSTAT"]);
    let busy = stage.node.cpu_time();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let busy = stage.node.cpu_time() - busy;
    let counts: String = run(&mut plain, &["INFO", "commandstats"]);
    let count = |line: &str| {
        let (_, rest) = line.split_once("calls=")?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    let calls: u64 = counts.lines().filter_map(count).sum();
    say(&format!("redis: 100 who wait for 3 s make {calls} calls, {busy:?} of processor time"));
    // Everything is read again every 5 s; looking ten times a second would be thousands.
    assert!(calls <= 60, "{counts}");
    waiting.shutdown().await;
}

#[tokio::test]
async fn who_waits_in_a_cluster_is_woken_whichever_server_has_the_mailbox() {
    let cluster = Cluster::start().unwrap();
    let url = format!("redis+cluster://{}", cluster.seeds());
    let backend = RedisBackend::open(&url).await.unwrap();
    let other = RedisBackend::open(&format!("redis://{}", cluster.nodes()[1].address())).await;
    let other = other.unwrap();
    let mailboxes: Vec<String> = (0..30).map(|n| format!("jobs-{n}")).collect();
    let waiting = wait_at_each(&backend, &mailboxes);
    for mailbox in &mailboxes {
        until_waiting(&backend, mailbox, 1).await;
    }
    send_to_each(&other, &mailboxes, waiting).await;
    // They were on all masters.
    for node in &cluster.nodes()[..3] {
        let keys: u64 = run(&mut node.connect().unwrap(), &["DBSIZE"]);
        assert!(keys > 0, "{}", node.address());
    }
}
