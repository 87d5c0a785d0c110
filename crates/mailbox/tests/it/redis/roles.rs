//! Servers that change their roles, and servers that differ: who has to confirm, who has to be
//! asked to, and what is tried again until there is a master.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{Backend, Durability, ErrorKind, MessageId, Name, ReceiptHandle, Result};
use mailbox::{Settlement, Verdict};
use mailbox_redis_servers::{Cluster, Node, Sentinels};
use redis::Connection;
use tokio::task::JoinHandle;

use super::listening::Between;
use super::proxy::Proxy;
use super::stage::{
    Stage, acknowledge, expect, info, key, name, receive, run, send, stats, try_run, url,
};
use super::{SOON, until};

fn replicated() -> RedisConfig {
    RedisConfig::default().with_durability(Durability::Replicated)
}

/// The same, for one who does not wait for long.
fn hasty() -> RedisConfig {
    let mut config = replicated();
    (config.patience, config.replication_timeout) =
        (Duration::from_millis(300), Duration::from_millis(200));
    config
}

/// A master and its replica.
async fn pair() -> (Node, Node) {
    let quick = ("repl-diskless-sync-delay", "0");
    let master = Node::start(&[quick]).unwrap();
    let follow = format!("{} {}", master.host(), master.port());
    let replica = Node::start(&[quick, ("replicaof", &follow)]).unwrap();
    until_followed(&master).await;
    (master, replica)
}

async fn until_followed(master: &Node) {
    let mut plain = master.connect().unwrap();
    until("it has a replica", || {
        let said: String = run(&mut plain, &["INFO", "replication"]);
        async move { said.contains("state=online") }
    })
    .await;
}

fn follow(replica: &Node, master: &Node) {
    let (host, port) = (master.host(), master.port().to_string());
    run::<()>(&mut replica.connect().unwrap(), &["REPLICAOF", host, &port]);
}

fn promote(node: &Node) {
    run::<()>(&mut node.connect().unwrap(), &["REPLICAOF", "NO", "ONE"]);
}

/// How often a server has refused to write because it is a replica.
fn refused(node: &Node) -> u64 {
    let said: String = run(&mut node.connect().unwrap(), &["INFO", "errorstats"]);
    let count = said.lines().find_map(|line| line.strip_prefix("errorstat_READONLY:count="));
    count.map_or(0, |count| count.trim().parse().unwrap())
}

async fn settle_unknown(backend: &RedisBackend, mailbox: &str) -> Result<()> {
    let receipt_handle = ReceiptHandle::from_text(&format!("nobody:{:032x}", 7));
    let batch = vec![Settlement { receipt_handle, verdict: Verdict::Acknowledge }];
    backend.settle(&name(mailbox), batch).await?.remove(0)
}

#[tokio::test]
async fn a_demoted_master_is_waited_for_by_those_who_wait_for_replicas() {
    let (first, second) = pair().await;
    let quick = RedisBackend::open_with(&url(&first), hasty()).await.unwrap();
    let patient = RedisBackend::open_with(&url(&first), replicated()).await.unwrap();
    send(&patient, "jobs", "held").await.unwrap();
    let held = receive(&patient, "jobs", Duration::ZERO).await.unwrap().remove(0);
    promote(&second);
    follow(&first, &second);
    let outcomes = [
        ("send", send(&quick, "jobs", "refused").await.map(drop)),
        ("acknowledge", acknowledge(&quick, "jobs", &held).await),
        // Nothing would be written: only who should confirm it refuses.
        ("settle", settle_unknown(&quick, "nothing").await),
        ("purge", quick.purge(&name("nothing")).await.map(drop)),
        ("remove", quick.remove(&name("nothing")).await.map(drop)),
    ];
    for (what, outcome) in outcomes {
        let error = outcome.expect_err(what);
        expect(&error, ErrorKind::Connection, &first.address(), &[]);
    }
    // It becomes master again while somebody still tries.
    let before = refused(&first);
    let back = async {
        until("it was refused", || async { refused(&first) > before }).await;
        promote(&first);
        follow(&second, &first);
    };
    let (sent, ()) = tokio::join!(send(&patient, "jobs", "in the end"), back);
    let taken = receive(&patient, "jobs", Duration::ZERO).await.unwrap();
    assert_eq!(taken.iter().map(|one| &one.id).collect::<Vec<_>>(), [&sent.unwrap()]);
    acknowledge(&patient, "jobs", &held).await.unwrap();
}

/// Demotes a master that does not get its replica to confirm something.
async fn demote_while_it_waits(master: &Node) {
    let mut plain = master.connect().unwrap();
    until("it waits for its replica", || {
        let blocked = info(&mut plain, "clients", "blocked_clients");
        async move { blocked == "1" }
    })
    .await;
    // Its master is nowhere.
    run::<()>(&mut plain, &["REPLICAOF", "127.0.0.1", "1"]);
}

#[tokio::test]
async fn a_call_whose_master_is_demoted_while_replicas_confirm_is_in_doubt() {
    let (master, replica) = pair().await;
    let mut config = replicated();
    config.replication_timeout = Duration::from_secs(4);
    let backend = RedisBackend::open_with(&url(&master), config).await.unwrap();
    // A server that has not seen the script before would ask for it.
    for payload in ["before", "in doubt"] {
        send(&backend, "jobs", payload).await.unwrap();
    }
    let mut taken = receive(&backend, "jobs", Duration::ZERO).await.unwrap();
    acknowledge(&backend, "jobs", &taken.remove(0)).await.unwrap();
    let held = taken.remove(0);
    replica.pause();
    let start = Instant::now();
    let demote = demote_while_it_waits(&master);
    let (settled, ()) = tokio::join!(acknowledge(&backend, "jobs", &held), demote);
    // The server says so, or hangs up.
    expect(&settled.unwrap_err(), ErrorKind::Connection, "redis at", &[]);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    promote(&master);
    // A send is tried again, until everybody does what they should, and is there once.
    let demote = async {
        demote_while_it_waits(&master).await;
        promote(&master);
        replica.resume();
    };
    let (sent, ()) = tokio::join!(send(&backend, "jobs", "second"), demote);
    let taken = receive(&backend, "jobs", Duration::ZERO).await.unwrap();
    assert_eq!(taken.iter().map(|one| &one.id).collect::<Vec<_>>(), [&sent.unwrap()]);
}

/// Waits until these sentinels take so many replicas for dead.
async fn until_dead(servers: &Sentinels, sentinels: &[Node], count: usize) {
    let says = |sentinel: &Node| {
        let ask = ["SENTINEL", "REPLICAS", servers.master_name()];
        let replicas: Vec<BTreeMap<String, String>> = run(&mut sentinel.connect().unwrap(), &ask);
        replicas.iter().filter(|facts| facts["flags"].contains("s_down")).count() == count
    };
    until("they are taken for dead", || async { sentinels.iter().all(says) }).await;
}

/// Nobody may be told that it is done.
async fn expect_doubt(backend: &RedisBackend, why: &str) {
    let error = send(backend, "jobs", why).await.expect_err(why);
    expect(&error, ErrorKind::Connection, why, &[]);
}

/// Waits until sends are confirmed. Those that are not are said to be in doubt.
async fn until_confirmed<const N: usize>(backends: [&RedisBackend; N]) {
    for backend in backends {
        until("enough confirm", || async {
            let sent = send(backend, "jobs", "confirmed").await;
            sent.map_err(|error| expect(&error, ErrorKind::Connection, "", &[])).is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn all_replicas_confirm_but_those_that_most_sentinels_take_for_dead() {
    let servers = Sentinels::start().unwrap();
    let open = async |seeds: &str| {
        let place = format!("redis+sentinel://{seeds}/{}", servers.master_name());
        RedisBackend::open_with(&place, hasty()).await.unwrap()
    };
    let sentinels = servers.sentinels();
    // One is told of one sentinel only, and hears of the others.
    let (all, one) = (open(&servers.seeds()).await, open(&sentinels[0].address()).await);
    let master = servers.master().unwrap();
    let replicas: Vec<&Node> =
        (0..3).filter(|n| *n != master).map(|n| &servers.data_nodes()[n]).collect();
    until_confirmed([&all, &one]).await;
    replicas[0].pause();
    expect_doubt(&one, " of 2 replicas confirmed").await;
    until_dead(&servers, sentinels, 1).await;
    until_confirmed([&all, &one]).await;
    // However many are dead: one copy is what was promised.
    replicas[1].pause();
    until_dead(&servers, sentinels, 2).await;
    expect_doubt(&all, "0 of ").await;
    replicas.iter().for_each(|replica| replica.resume());
    until_dead(&servers, sentinels, 0).await;
    until_confirmed([&all, &one]).await;
    // The opinion of one of three is not that of most, if the others say nothing.
    sentinels[1..].iter().for_each(Node::pause);
    replicas[0].pause();
    until_dead(&servers, &sentinels[..1], 1).await;
    expect_doubt(&all, " of 2 replicas confirmed").await;
    expect_doubt(&one, " of 2 replicas confirmed").await;
    replicas[0].resume();
    sentinels[1..].iter().for_each(Node::resume);
    until_confirmed([&all, &one]).await;
}

/// A cluster, with somebody between it and whoever opens it who says what version it is.
struct Disguised {
    cluster: Cluster,
    between: Vec<Between>,
}

impl Disguised {
    async fn new() -> Self {
        let cluster = Cluster::start_with(1_000, 0, None).unwrap();
        let mut between = Vec::new();
        for node in &cluster.nodes()[..3] {
            between.push(Between::before(node).await);
        }
        Self { cluster, between }
    }

    fn master(&self, n: usize) -> Connection {
        self.cluster.nodes()[n].connect().unwrap()
    }

    fn set(&self, n: usize, setting: &str, value: &str) {
        run::<()>(&mut self.master(n), &["CONFIG", "SET", setting, value]);
    }

    /// Lets all servers say that they are of this version, and elsewhere.
    fn disguise(&self, version: &str) {
        let said = |n: usize| info(&mut self.master(n), "server", "redis_version");
        let mut edits: Vec<(String, String)> = (0..3)
            .map(|n| (self.cluster.nodes()[n].address(), self.between[n].address()))
            .collect();
        let real = said(0)[..version.len()].to_owned();
        edits.push((format!("redis_version:{real}"), format!("redis_version:{version}")));
        self.between.iter().for_each(|one| one.say_instead(edits.clone()));
    }

    async fn open(&self) -> Result<Arc<RedisBackend>> {
        let seeds: Vec<String> = self.between.iter().map(Between::address).collect();
        let mut config = RedisConfig::default().with_durability(Durability::Fsync);
        config.patience = Duration::from_millis(50);
        RedisBackend::open_with(&format!("redis+cluster://{}", seeds.join(",")), config).await
    }

    /// Whether a send waits for a disk. Servers older than they say know nothing of that.
    async fn waits_for_disk(&self) -> bool {
        let disks = || self.between.iter().map(Between::disks).sum::<u32>();
        let (backend, before) = (self.open().await.unwrap(), disks());
        if let Err(error) = send(&backend, "jobs", "to disk").await {
            expect(&error, ErrorKind::Connection, "nobody confirms", &[]);
            assert!(disks() > before, "{error}");
        }
        disks() > before
    }
}

#[tokio::test]
async fn one_server_that_writes_late_makes_everybody_wait_for_disks() {
    let servers = Disguised::new().await;
    for n in 0..3 {
        servers.set(n, "appendfsync", "always");
        servers.set(n, "appendonly", "yes");
    }
    servers.disguise("9.9");
    assert!(!servers.waits_for_disk().await, "they write at once by themselves");
    for late in 0..3 {
        servers.set(late, "appendfsync", "everysec");
        servers.disguise("9.9");
        assert!(servers.waits_for_disk().await, "server {late} does not");
        // One that cannot be waited for cannot keep the promise, and is named.
        servers.disguise("7.1");
        let error = servers.open().await.unwrap_err();
        expect(&error, ErrorKind::Unsupported, &servers.between[late].address(), &[]);
        servers.set(late, "appendfsync", "always");
        servers.open().await.unwrap();
    }
    for version in ["7.1", "9.9"] {
        servers.disguise(version);
        servers.set(1, "appendonly", "no");
        let error = servers.open().await.unwrap_err();
        expect(&error, ErrorKind::Unsupported, &servers.between[1].address(), &[]);
        assert!(error.to_string().contains("appendonly is off"), "{error}");
        servers.set(1, "appendonly", "yes");
    }
}

type Listing = JoinHandle<Result<Vec<Name>>>;

fn list(backend: &Arc<RedisBackend>) -> Listing {
    let backend = Arc::clone(backend);
    tokio::spawn(async move { backend.list(None, 100).await })
}

#[tokio::test]
async fn a_listing_outlives_its_connection_and_its_server() {
    let kept = [("appendonly", "yes"), ("appendfsync", "always")];
    let mut stage = Stage::with(&kept, RedisConfig::default()).await;
    let proxy = Proxy::before(&stage.node).await;
    let backend = RedisBackend::open(&proxy.url()).await.unwrap();
    send(&backend, "jobs", "to be listed").await.unwrap();
    let mut plain = stage.connect();
    proxy.hold();
    let listing = list(&backend);
    until("it lists", || {
        let said: String = run(&mut plain, &["INFO", "commandstats"]);
        async move { said.contains("cmdstat_scan:") }
    })
    .await;
    proxy.cut();
    assert_eq!(listing.await.unwrap().unwrap(), [name("jobs")]);
    stage.node.kill();
    let tried = proxy.connections();
    let listing = list(&backend);
    until("it tries", || async { proxy.connections() > tried }).await;
    stage.node.restart().unwrap();
    assert_eq!(listing.await.unwrap().unwrap(), [name("jobs")]);
    // Not for ever.
    let mut config = RedisConfig::default();
    config.patience = Duration::from_millis(200);
    let hasty = RedisBackend::open_with(&proxy.url(), config).await.unwrap();
    stage.node.kill();
    let error = list(&hasty).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
}

#[tokio::test]
async fn a_listing_asks_the_server_that_takes_over() {
    let mut cluster = Cluster::start().unwrap();
    let place = format!("redis+cluster://{}", cluster.seeds());
    let backend = RedisBackend::open_with(&place, replicated()).await.unwrap();
    let mut names: Vec<Name> = (0..12).map(|n| name(&format!("jobs-{n}"))).collect();
    names.sort_unstable();
    let mut sent: Vec<MessageId> = Vec::new();
    for mailbox in &names {
        sent.push(send(&backend, mailbox.as_str(), "to be listed").await.unwrap());
    }
    let mut plain = cluster.nodes()[1].connect().unwrap();
    let slot: u16 = run(&mut plain, &["CLUSTER", "KEYSLOT", &key("jobs-0", "pending")]);
    let master = cluster.master_of(slot).unwrap();
    let mut heir = cluster.nodes()[master + 3].connect().unwrap();
    cluster.nodes_mut()[master].kill();
    let listing = list(&backend);
    tokio::task::yield_now().await;
    run::<()>(&mut heir, &["CLUSTER", "FAILOVER", "TAKEOVER"]);
    assert_eq!(listing.await.unwrap().unwrap(), names);
    assert_eq!(stats(&backend, "jobs-0").await.ready, 1);
    assert!(try_run::<u64>(&mut heir, &["DBSIZE"]).unwrap() > 0);
}
