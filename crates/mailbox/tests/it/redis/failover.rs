//! Servers that die, forget, cut connections or hand mailboxes to others while they are used: what
//! was acknowledged to a sender is there, and what is in doubt is said to be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mailbox::backends::redis::{Planted, RedisBackend, RedisConfig};
use mailbox::{Durability, ErrorKind, MessageId, Result};
use mailbox_redis_servers::{Cluster, Node, Sentinels};
use redis::Connection;
use tokio::task::JoinSet;

use super::stage::{
    Stage, acknowledge, info, key, receive, receive_for, run, say, send, stats, text, url,
};
use super::{PATIENCE, until};

/// How long a consumer holds a message: it comes again soon if nobody knows that it was received.
const HELD: Duration = Duration::from_secs(2);

fn replicated() -> RedisConfig {
    RedisConfig::default().with_durability(Durability::Replicated)
}

/// What senders and receivers were told.
#[derive(Default)]
struct Account {
    /// By payload, which is sent once.
    sent: BTreeMap<String, MessageId>,
    /// Payloads of sends that failed; they may be there.
    failed: BTreeSet<String>,
    seen: BTreeMap<String, BTreeSet<MessageId>>,
    acknowledged: BTreeSet<MessageId>,
    /// Settles and receives that failed.
    doubts: usize,
    faults: Vec<String>,
}

/// Some who send and some who receive, all the time.
struct Load {
    account: Arc<Mutex<Account>>,
    is_sending: Arc<AtomicBool>,
    is_receiving: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Load {
    /// Three senders on the one, three receivers on the other.
    fn start(sender: &Arc<RedisBackend>, receiver: &Arc<RedisBackend>) -> Self {
        let account: Arc<Mutex<Account>> = Arc::default();
        let is_sending = Arc::new(AtomicBool::new(true));
        let is_receiving = Arc::new(AtomicBool::new(true));
        let mut tasks = JoinSet::new();
        for n in 0..3 {
            let (own, go_on) = (Arc::clone(&account), Arc::clone(&is_sending));
            tasks.spawn(produce(Arc::clone(sender), n, own, go_on));
            let (own, go_on) = (Arc::clone(&account), Arc::clone(&is_receiving));
            tasks.spawn(consume(Arc::clone(receiver), own, go_on));
        }
        Self { account, is_sending, is_receiving, tasks }
    }

    fn sent(&self) -> usize {
        self.account.lock().unwrap().sent.len()
    }

    /// Waits until so many more have been sent.
    async fn until_sent(&self, more: usize) {
        let before = self.sent();
        until("sends go on", || async { self.sent() >= before + more }).await;
    }

    /// Lets receivers take all there is, and checks what everybody was told.
    async fn finish(mut self, backend: &RedisBackend, what: &str) -> Account {
        self.is_sending.store(false, Ordering::Relaxed);
        until("all is received", || async { stats(backend, "jobs").await.live() == 0 }).await;
        self.is_receiving.store(false, Ordering::Relaxed);
        while let Some(task) = self.tasks.join_next().await {
            task.unwrap();
        }
        let account = std::mem::take(&mut *self.account.lock().unwrap());
        let Account { sent, failed, seen, doubts, faults, .. } = &account;
        assert!(faults.is_empty(), "{what}: {faults:?}");
        for (payload, id) in sent {
            let ids = seen.get(payload);
            assert!(ids.is_some_and(|ids| ids.contains(id)), "{what}: {payload} is lost");
        }
        for (payload, ids) in seen {
            assert_eq!(ids.len(), 1, "{what}: {payload} was sent twice");
            let is_known = sent.contains_key(payload) || failed.contains(payload);
            assert!(is_known, "{what}: nobody sent {payload}");
        }
        say(&format!(
            "redis, {what}: {} sent, {} failed, {doubts} doubts",
            sent.len(),
            failed.len()
        ));
        account
    }
}

async fn produce(
    backend: Arc<RedisBackend>,
    sender: usize,
    account: Arc<Mutex<Account>>,
    go_on: Arc<AtomicBool>,
) {
    for n in 0..1_000_000 {
        if !go_on.load(Ordering::Relaxed) {
            return;
        }
        let payload = format!("{sender}-{n}");
        let sent = send(&backend, "jobs", payload.as_str()).await;
        {
            let mut account = account.lock().unwrap();
            match sent {
                Ok(id) => drop(account.sent.insert(payload, id)),
                Err(error) => {
                    if error.kind() != ErrorKind::Connection {
                        account.faults.push(format!("send: {error:#}"));
                    }
                    account.failed.insert(payload);
                }
            }
        }
        // Not as fast as possible: the receivers and the others on this machine want to live too.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn consume(backend: Arc<RedisBackend>, account: Arc<Mutex<Account>>, go_on: Arc<AtomicBool>) {
    let wait = Duration::from_millis(300);
    while go_on.load(Ordering::Relaxed) {
        let received = receive_for(&backend, "jobs", 10, wait, HELD).await;
        let taken = received.unwrap_or_else(|error| {
            let mut account = account.lock().unwrap();
            account.doubts += 1;
            if error.kind() != ErrorKind::Connection {
                account.faults.push(format!("receive: {error:#}"));
            }
            Vec::new()
        });
        // All at once: others may receive and acknowledge what is held for too long here.
        for delivery in &taken {
            let mut account = account.lock().unwrap();
            account.seen.entry(text(delivery)).or_default().insert(delivery.id.clone());
            if account.acknowledged.contains(&delivery.id) {
                account.faults.push(format!("{} came again", delivery.id));
            }
        }
        for delivery in taken {
            let settled = acknowledge(&backend, "jobs", &delivery).await;
            let mut account = account.lock().unwrap();
            match settled.map_err(|error| error.kind()) {
                Ok(()) => drop(account.acknowledged.insert(delivery.id)),
                // It was held for too long while servers changed.
                Err(ErrorKind::Connection | ErrorKind::ReceiptHandleExpired) => account.doubts += 1,
                Err(kind) => account.faults.push(format!("settle: {kind:?}")),
            }
        }
    }
}

/// Kills a master under load, while somebody waits at another mailbox on it.
async fn fail_over(url: &str, late: &str, what: &str, kill: impl FnOnce()) {
    let sender = RedisBackend::open_with(url, replicated()).await.unwrap();
    let receiver = RedisBackend::open_with(url, replicated()).await.unwrap();
    let waiting = tokio::spawn({
        let (receiver, late) = (Arc::clone(&receiver), late.to_owned());
        async move { receive(&receiver, &late, Duration::from_secs(30)).await }
    });
    until("it waits", || async { stats(&receiver, late).await.waiters == 1 }).await;
    let load = Load::start(&sender, &receiver);
    load.until_sent(100).await;
    let start = Instant::now();
    kill();
    load.until_sent(100).await;
    say(&format!("redis, {what}: sends resumed, 100 more after {:?}", start.elapsed()));
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert!(!waiting.is_finished(), "it waits for a message, not for a server");
    let sent = send(&sender, late, "after the failover").await.unwrap();
    let start = Instant::now();
    let taken = waiting.await.unwrap().unwrap();
    assert_eq!(taken[0].id, sent);
    assert!(start.elapsed() < super::SOON, "{:?}", start.elapsed());
    acknowledge(&receiver, late, &taken[0]).await.unwrap();
    load.finish(&sender, what).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_replace_a_dead_master_lose_no_acknowledged_send() {
    let mut servers = Sentinels::start().unwrap();
    let url = format!("redis+sentinel://{}/{}", servers.seeds(), servers.master_name());
    let master = servers.master().unwrap();
    fail_over(&url, "late", "sentinels", || servers.data_nodes_mut()[master].kill()).await;
}

/// The slot of a mailbox.
fn slot_of(plain: &mut Connection, mailbox: &str) -> u16 {
    run(plain, &["CLUSTER", "KEYSLOT", &key(mailbox, "pending")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_replaces_a_dead_master_loses_no_acknowledged_send() {
    let mut cluster = Cluster::start().unwrap();
    let mut plain = cluster.nodes()[0].connect().unwrap();
    let master = cluster.master_of(slot_of(&mut plain, "jobs")).unwrap();
    let mut names = (0..100).map(|n| format!("late-{n}"));
    let late = names.find(|name| cluster.master_of(slot_of(&mut plain, name)) == Some(master));
    let url = format!("redis+cluster://{}", cluster.seeds());
    fail_over(&url, &late.unwrap(), "cluster", || cluster.nodes_mut()[master].kill()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_a_server_forgets_are_told_again() {
    let master = Node::start(&[("repl-diskless-sync-delay", "0")]).unwrap();
    let follow = format!("{} {}", master.host(), master.port());
    let _replica = Node::start(&[("replicaof", &follow)]).unwrap();
    let mut plain = master.connect().unwrap();
    until("it has a replica", || {
        let replicas = info(&mut plain, "replication", "connected_slaves");
        let is_online = run::<String>(&mut plain, &["INFO", "replication"]).contains("online");
        async move { replicas == "1" && is_online }
    })
    .await;
    for config in [RedisConfig::default(), replicated()] {
        let what = format!("scripts forgotten, {}", config.durability);
        let sender = RedisBackend::open_with(&url(&master), config.clone()).await.unwrap();
        let receiver = RedisBackend::open_with(&url(&master), config).await.unwrap();
        let load = Load::start(&sender, &receiver);
        for _ in 0..20 {
            run::<()>(&mut plain, &["SCRIPT", "FLUSH"]);
            load.until_sent(20).await;
        }
        let account = load.finish(&sender, &what).await;
        assert_eq!((account.failed.len(), account.doubts), (0, 0), "it is nobody's business");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_lose_and_double_nothing() {
    let stage = Stage::new().await;
    let other = stage.another().await;
    let mut plain = stage.connect();
    let load = Load::start(&stage.backend, &other);
    load.until_sent(20).await;
    let mut cut = 0;
    for _ in 0..40 {
        cut += run::<u32>(&mut plain, &["CLIENT", "KILL", "TYPE", "normal"]);
        load.until_sent(15).await;
    }
    assert!(cut > 40, "only {cut} connections were cut");
    load.finish(&other, "connections cut").await;
}

/// A settle whose server stands still until it is killed: what it says, and whether the message
/// comes again.
async fn settle_in_doubt(planted: Planted) -> (Result<()>, bool) {
    let mut config = RedisConfig::default();
    config.planted = planted;
    config.response_timeout = Duration::from_millis(300);
    let options = [("appendonly", "yes"), ("appendfsync", "always")];
    let mut stage = Stage::with(&options, config).await;
    let backend = Arc::clone(&stage.backend);
    send(&backend, "jobs", "in doubt").await.unwrap();
    let delivery = receive_for(&backend, "jobs", 1, Duration::ZERO, HELD).await.unwrap().remove(0);
    stage.node.pause();
    let settled = acknowledge(&backend, "jobs", &delivery).await;
    stage.node.restart().unwrap();
    let again = receive_for(&backend, "jobs", 1, HELD * 3, HELD).await.unwrap();
    (settled, again.iter().any(|one| one.id == delivery.id))
}

#[tokio::test]
async fn a_settle_in_doubt_is_said_to_be() {
    let (settled, comes_again) = settle_in_doubt(Planted::default()).await;
    assert_eq!(settled.unwrap_err().kind(), ErrorKind::Connection);
    assert!(comes_again);
}

#[cfg(feature = "planted")]
#[tokio::test]
async fn a_doubt_that_is_taken_for_done_is_noticed() {
    use mailbox::backends::redis::Bug;

    // It has acknowledged what comes again.
    let (settled, comes_again) = settle_in_doubt(Planted::bug(Bug::DoubtIsDone)).await;
    assert!(settled.is_ok() && comes_again);
}

#[tokio::test]
async fn a_settle_in_doubt_may_have_been_done() {
    let mut config = RedisConfig::default();
    config.response_timeout = Duration::from_millis(300);
    let stage = Stage::with(&[], config).await;
    let backend = &*stage.backend;
    // A server that has not seen the script before would ask for it.
    for payload in ["before", "in doubt"] {
        send(backend, "jobs", payload).await.unwrap();
    }
    let mut taken = receive(backend, "jobs", Duration::ZERO).await.unwrap();
    acknowledge(backend, "jobs", &taken.remove(0)).await.unwrap();
    let delivery = taken.remove(0);
    stage.node.pause();
    let error = acknowledge(backend, "jobs", &delivery).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:#}");
    stage.node.resume();
    until("it was done", || async { stats(backend, "jobs").await.live() == 0 }).await;
    let error = acknowledge(backend, "jobs", &delivery).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired);
}

/// Hands a slot from one master to another, as `redis-cli --cluster reshard` does.
fn migrate(slot: u16, from: &Node, to: &Node) {
    let (mut source, mut target) = (from.connect().unwrap(), to.connect().unwrap());
    let slot = slot.to_string();
    let [source_id, target_id]: [String; 2] =
        [&mut source, &mut target].map(|node| run(node, &["CLUSTER", "MYID"]));
    run::<()>(&mut target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
    run::<()>(&mut source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
    loop {
        // One key at a time, for somebody to see the mailbox torn apart.
        let keys: Vec<String> = run(&mut source, &["CLUSTER", "GETKEYSINSLOT", &slot, "1"]);
        let Some(key) = keys.first() else { break };
        let port = to.port().to_string();
        run::<String>(&mut source, &["MIGRATE", to.host(), &port, key, "0", "5000"]);
        std::thread::sleep(Duration::from_millis(10));
    }
    for node in [&mut target, &mut source] {
        run::<()>(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mailbox_that_moves_to_another_master_loses_nothing() {
    let cluster = Cluster::start().unwrap();
    let url = format!("redis+cluster://{}", cluster.seeds());
    let sender = RedisBackend::open(&url).await.unwrap();
    let receiver = RedisBackend::open(&url).await.unwrap();
    let slot = slot_of(&mut cluster.nodes()[0].connect().unwrap(), "jobs");
    let load = Load::start(&sender, &receiver);
    load.until_sent(50).await;
    for round in 0..4 {
        let from = cluster.master_of(slot).unwrap();
        let (from, to) = (&cluster.nodes()[from], &cluster.nodes()[(from + 1) % 3]);
        let start = Instant::now();
        tokio::task::block_in_place(|| migrate(slot, from, to));
        load.until_sent(20).await;
        say(&format!("redis, slot moved {round}: sends resumed after {:?}", start.elapsed()));
        until("it is known", || async { cluster.master_of(slot).is_some() }).await;
    }
    let account = load.finish(&sender, "slot moved").await;
    assert_eq!(account.failed.len(), 0, "it is waited for");
    // Somebody who waits at an empty mailbox while it moves.
    let waiting = tokio::spawn({
        let receiver = Arc::clone(&receiver);
        async move { receive(&receiver, "jobs", PATIENCE).await }
    });
    until("it waits", || async { stats(&receiver, "jobs").await.waiters == 1 }).await;
    let from = cluster.master_of(slot).unwrap();
    let (from, to) = (&cluster.nodes()[from], &cluster.nodes()[(from + 1) % 3]);
    tokio::task::block_in_place(|| migrate(slot, from, to));
    let sent = send(&sender, "jobs", "after the move").await.unwrap();
    let start = Instant::now();
    assert_eq!(waiting.await.unwrap().unwrap()[0].id, sent);
    assert!(start.elapsed() < super::SOON, "{:?}", start.elapsed());
}
