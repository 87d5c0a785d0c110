//! Who listens for those who wait, and what is heard: also while somebody looks, after a runtime
//! has ended, after a mailbox has moved, and where a server does not tell.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mailbox::backends::redis::RedisBackend;
use mailbox::{Delivery, Result};
use mailbox_redis_servers::{Cluster, Node};
use redis::Connection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::stage::{
    Stage, acknowledge, info, key, receive, receive_for, run, say, send, stats, url,
};
use super::{PATIENCE, SOON, until};

/// The worst that waking up may take. What was not heard is read again after several seconds.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Longer than any pause between two looks at what could have been missed.
const ANYWAY: Duration = Duration::from_secs(6);

/// Somebody between a backend and its server who makes one kind of connection stand still while the
/// other goes on, and puts other words into the server's mouth.
pub(super) struct Between {
    address: SocketAddr,
    plan: Arc<Plan>,
    listening: JoinHandle<()>,
}

#[derive(Default)]
struct Plan {
    still: watch::Sender<Still>,
    /// What is said instead of what; equally long.
    edits: Mutex<Vec<(String, String)>>,
    /// Scripts that were asked for, whether the server has them or not.
    scripts: AtomicU32,
    /// Answers to scripts that were kept back.
    kept: AtomicU32,
    /// Connections on which servers are to tell of changes.
    ears: AtomicU32,
    /// How often they were told that a mailbox has one message.
    told: AtomicU32,
    /// How often a disk was waited for.
    disks: AtomicU32,
}

/// What stands still.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum Still {
    #[default]
    Nothing,
    /// Scripts, on their way to the server.
    Scripts,
    /// Their answers.
    Answers,
    /// What is heard.
    Ears,
}

impl Between {
    pub(super) async fn before(node: &Node) -> Self {
        let (listener, server) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), node.address());
        let (address, plan) = (listener.local_addr().unwrap(), Arc::<Plan>::default());
        let own = Arc::clone(&plan);
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, plan) = (server.clone(), Arc::clone(&own));
                // A connection that breaks is the business of its two ends.
                tokio::spawn(async move { drop(plan.pass_on(client, &server).await) });
            }
        });
        Self { address, plan, listening }
    }

    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(super) fn say_instead(&self, edits: Vec<(String, String)>) {
        assert!(edits.iter().all(|(said, instead)| said.len() == instead.len()), "{edits:?}");
        *self.plan.edits.lock().unwrap() = edits;
    }

    /// How often a disk was waited for.
    pub(super) fn disks(&self) -> u32 {
        self.plan.disks.load(Ordering::Relaxed)
    }

    fn stop(&self, what: Still) {
        self.plan.still.send_replace(what);
    }

    /// Waits until something has happened more often than that.
    async fn until_more(&self, what: &str, count: impl Fn(&Plan) -> &AtomicU32, than: u32) {
        until(what, || async { count(&self.plan).load(Ordering::Relaxed) > than }).await;
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Plan {
    async fn pass_on(&self, mut client: TcpStream, server: &str) -> io::Result<()> {
        let mut server = TcpStream::connect(server).await?;
        let mut still = self.still.subscribe();
        let (mut request, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let (mut is_ear, mut has_scripts) = (false, false);
        loop {
            tokio::select! {
                read = client.read(&mut request) => {
                    let request = &request[..read?];
                    if request.is_empty() {
                        return Ok(());
                    }
                    if has(request, "TRACKING\r\n$2\r\nON") {
                        is_ear = true;
                        count(&self.ears);
                    }
                    if has(request, "WAITAOF") {
                        count(&self.disks);
                    }
                    if has(request, "EVALSHA") {
                        has_scripts = true;
                        count(&self.scripts);
                        let _ = still.wait_for(|still| *still != Still::Scripts).await;
                    }
                    server.write_all(request).await?;
                }
                read = server.read(&mut reply) => {
                    let reply = self.edit(&reply[..read?]);
                    if reply.is_empty() {
                        return Ok(());
                    }
                    if has_scripts && *still.borrow() == Still::Answers {
                        count(&self.kept);
                        let _ = still.wait_for(|still| *still != Still::Answers).await;
                    }
                    if is_ear {
                        let _ = still.wait_for(|still| *still != Still::Ears).await;
                    }
                    client.write_all(&reply).await?;
                    if is_ear && has(&reply, "\r\n:1\r\n") {
                        count(&self.told);
                    }
                }
            }
        }
    }

    fn edit(&self, reply: &[u8]) -> Vec<u8> {
        let mut reply = reply.to_vec();
        for (said, instead) in self.edits.lock().unwrap().iter() {
            let (said, instead) = (said.as_bytes(), instead.as_bytes());
            let mut at = 0;
            while let Some(found) = reply[at..].windows(said.len()).position(|one| one == said) {
                at += found;
                reply[at..at + said.len()].copy_from_slice(instead);
            }
        }
        reply
    }
}

fn has(bytes: &[u8], words: &str) -> bool {
    bytes.windows(words.len()).any(|one| one == words.as_bytes())
}

fn count(what: &AtomicU32) {
    what.fetch_add(1, Ordering::Relaxed);
}

type Waiting = JoinHandle<Result<Vec<Delivery>>>;

/// A receive that waits, in a task of its own.
fn wait_at(backend: &Arc<RedisBackend>, mailbox: &'static str) -> Waiting {
    let backend = Arc::clone(backend);
    tokio::spawn(async move { receive(&backend, mailbox, PATIENCE).await })
}

async fn until_waiting(backend: &RedisBackend, mailbox: &str) {
    until("it waits", || async { stats(backend, mailbox).await.waiters == 1 }).await;
}

/// How long a receive takes to get the only message, from now on.
async fn wake_up(waiting: Waiting, most: Duration, what: &str) -> (Delivery, Duration) {
    let start = Instant::now();
    let taken = tokio::time::timeout(most, waiting).await;
    let taken = taken.unwrap_or_else(|_| panic!("not woken within {most:?}: {what}"));
    let mut taken = taken.unwrap().unwrap();
    assert_eq!(taken.len(), 1, "{what}");
    (taken.remove(0), start.elapsed())
}

#[tokio::test]
async fn what_is_told_while_a_waiting_receive_looks_is_not_forgotten() {
    let node = Node::start(&[]).unwrap();
    let between = Between::before(&node).await;
    let here = RedisBackend::open(&super::url(&between.address())).await.unwrap();
    let other = RedisBackend::open(&url(&node)).await.unwrap();
    let plan = &between.plan;
    let mut worst = Duration::ZERO;
    for round in 0..8 {
        let waiting = wait_at(&here, "jobs");
        until_waiting(&here, "jobs").await;
        let scripts = plan.scripts.load(Ordering::Relaxed);
        // It is woken and looks, but somebody else has been quicker.
        between.stop(Still::Scripts);
        send(&other, "jobs", "for others").await.unwrap();
        between.until_more("it looks", |plan| &plan.scripts, scripts).await;
        let taken = receive(&other, "jobs", Duration::ZERO).await.unwrap().remove(0);
        acknowledge(&other, "jobs", &taken).await.unwrap();
        let kept = plan.kept.load(Ordering::Relaxed);
        between.stop(Still::Answers);
        between.until_more("it found nothing", |plan| &plan.kept, kept).await;
        // Before it knows, there is another message, and everybody is told.
        let told = plan.told.load(Ordering::Relaxed);
        let sent = send(&other, "jobs", "the next").await.unwrap();
        between.until_more("the server has told", |plan| &plan.told, told).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        between.stop(Still::Nothing);
        let (delivery, late) = wake_up(waiting, AT_ONCE, &format!("round {round}")).await;
        assert_eq!(delivery.id, sent);
        acknowledge(&here, "jobs", &delivery).await.unwrap();
        worst = worst.max(late);
    }
    say(&format!("redis: told while it looked, woken after {worst:?} (worst)"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_while_a_receive_begins_to_wait_is_noticed() {
    let stage = Stage::new().await;
    let other = stage.another().await;
    let mut worst = Duration::ZERO;
    for round in 0..150_u64 {
        let waiting = wait_at(&stage.backend, "jobs");
        // At any moment between the first look and listening.
        let begun = Instant::now();
        let pause = Duration::from_micros(round * 37 % 1_500);
        while begun.elapsed() < pause {
            tokio::task::yield_now().await;
        }
        let sent = send(&other, "jobs", "now").await.unwrap();
        let (delivery, late) = wake_up(waiting, AT_ONCE, &format!("round {round}")).await;
        assert_eq!(delivery.id, sent);
        acknowledge(&other, "jobs", &delivery).await.unwrap();
        worst = worst.max(late);
    }
    say(&format!("redis: sent while it began to wait, woken after {worst:?} (worst)"));
}

#[tokio::test]
async fn somebody_listens_after_the_runtime_of_the_first_who_did_has_ended() {
    let node = Node::start(&[]).unwrap();
    let between = Between::before(&node).await;
    let other = RedisBackend::open(&url(&node)).await.unwrap();
    let first = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let first = first.unwrap();
    let place = super::url(&between.address());
    let backend = first.spawn(async move { RedisBackend::open(&place).await.unwrap() });
    let backend = backend.await.unwrap();
    // The one who listens ends in the middle of beginning to.
    between.stop(Still::Ears);
    let own = Arc::clone(&backend);
    let ended = first.spawn(async move { receive(&own, "elsewhere", PATIENCE).await });
    between.until_more("the first listens", |plan| &plan.ears, 0).await;
    let waiting = wait_at(&backend, "jobs");
    between.until_more("it listens for the second", |plan| &plan.ears, 1).await;
    tokio::task::spawn_blocking(move || drop(first)).await.unwrap();
    assert!(ended.await.unwrap_err().is_cancelled());
    between.stop(Still::Nothing);
    let sent = send(&other, "jobs", "for the second").await.unwrap();
    // Whoever waits looks after a while whether anybody still listens.
    tokio::time::pause();
    tokio::time::advance(ANYWAY).await;
    tokio::time::resume();
    let (delivery, _) = wake_up(waiting, SOON, "after the end of a runtime").await;
    assert_eq!(delivery.id, sent);
    // From then on it is told again.
    let waiting = wait_at(&backend, "jobs");
    until_waiting(&backend, "jobs").await;
    let sent = send(&other, "jobs", "the next").await.unwrap();
    let (delivery, _) = wake_up(waiting, AT_ONCE, "told again").await;
    assert_eq!(delivery.id, sent);
}

#[tokio::test]
async fn who_begins_to_wait_after_the_end_of_a_runtime_listens_for_all() {
    let stage = Stage::new().await;
    let (backend, other) = (&stage.backend, stage.another().await);
    let first = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let first = first.unwrap();
    let own = Arc::clone(backend);
    let ended = first.spawn(async move { receive(&own, "elsewhere", PATIENCE).await });
    until_waiting(backend, "elsewhere").await;
    let early = wait_at(backend, "early");
    until_waiting(backend, "early").await;
    tokio::task::spawn_blocking(move || drop(first)).await.unwrap();
    assert!(ended.await.unwrap_err().is_cancelled());
    let late = wait_at(backend, "late");
    until_waiting(backend, "late").await;
    for (waiting, mailbox) in [(early, "early"), (late, "late")] {
        let sent = send(&other, mailbox, mailbox).await.unwrap();
        let (delivery, _) = wake_up(waiting, AT_ONCE, mailbox).await;
        assert_eq!(delivery.id, sent);
    }
}

/// How often a server was asked what there is for those who wait.
fn asked(plain: &mut Connection) -> u64 {
    let stats: String = run(plain, &["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_ttl:calls="));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn who_has_taken_a_damaged_message_only_is_woken_when_the_next_one_comes_back() {
    let stage = Stage::new().await;
    let between = Between::before(&stage.node).await;
    let here = RedisBackend::open(&super::url(&between.address())).await.unwrap();
    let (other, mut plain, plan) = (&stage.backend, stage.connect(), &between.plan);
    // The server knows the scripts.
    send(other, "jobs", "0").await.unwrap();
    let zero = receive(other, "jobs", Duration::ZERO).await.unwrap().remove(0);
    acknowledge(other, "jobs", &zero).await.unwrap();
    let held = send(other, "jobs", "held").await.unwrap();
    let taken = receive_for(other, "jobs", 1, Duration::ZERO, Duration::from_secs(1)).await;
    assert_eq!(taken.unwrap().len(), 1);
    let waiting = wait_at(&here, "jobs");
    until_waiting(&here, "jobs").await;
    let scripts = plan.scripts.load(Ordering::Relaxed);
    between.stop(Still::Scripts);
    let damaged = send(other, "jobs", "damaged").await.unwrap().to_string();
    between.until_more("it looks", |plan| &plan.scripts, scripts).await;
    run::<()>(&mut plain, &["HSET", &key("jobs", "data"), &damaged, "not what was sent"]);
    let (before, kept) = (asked(&mut plain), plan.kept.load(Ordering::Relaxed));
    between.stop(Still::Answers);
    between.until_more("it has taken it", |plan| &plan.kept, kept).await;
    until("it knows what there is", || std::future::ready(asked(&mut plain) > before)).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    // Before it can say that the message is damaged, somebody else has it.
    run::<()>(&mut plain, &["HSET", &key("jobs", "meta"), &format!("{damaged}:handle"), "other"]);
    between.stop(Still::Nothing);
    let (delivery, _) = wake_up(waiting, 2 * AT_ONCE, "when the held one comes back").await;
    assert_eq!(delivery.id, held);
}

/// Hands over a slot without any keys.
fn hand_over(slot: u16, from: &Node, to: &Node) {
    let (mut source, mut target) = (from.connect().unwrap(), to.connect().unwrap());
    let slot = slot.to_string();
    assert_eq!(run::<u32>(&mut source, &["CLUSTER", "COUNTKEYSINSLOT", &slot]), 0);
    let [source_id, target_id]: [String; 2] =
        [&mut source, &mut target].map(|node| run(node, &["CLUSTER", "MYID"]));
    run::<()>(&mut target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
    run::<()>(&mut source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
    for node in [&mut target, &mut source] {
        run::<()>(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
    }
}

#[tokio::test]
async fn who_waits_at_a_mailbox_that_moves_is_told_by_its_new_server() {
    let cluster = Cluster::start_with(1_000, 0, None).unwrap();
    let place = format!("redis+cluster://{}", cluster.seeds());
    let backend = RedisBackend::open(&place).await.unwrap();
    let other = RedisBackend::open(&place).await.unwrap();
    let mut plain = cluster.nodes()[0].connect().unwrap();
    let slot: u16 = run(&mut plain, &["CLUSTER", "KEYSLOT", &key("jobs", "pending")]);
    let from = cluster.master_of(slot).unwrap();
    let (from, to) = (&cluster.nodes()[from], &cluster.nodes()[(from + 1) % 3]);
    let waiting = wait_at(&backend, "jobs");
    let listens_to = |node: &Node| {
        let keys = info(&mut node.connect().unwrap(), "stats", "tracking_total_keys");
        async move { keys != "0" }
    };
    until("the old server is listened to", || listens_to(from)).await;
    // The mailbox is empty: its old server has nothing to tell.
    hand_over(slot, from, to);
    assert_eq!(stats(&backend, "jobs").await.waiters, 1);
    let start = Instant::now();
    until("the new server is listened to", || listens_to(to)).await;
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    let sent = send(&other, "jobs", "after the move").await.unwrap();
    let (delivery, _) = wake_up(waiting, AT_ONCE, "after the move").await;
    assert_eq!(delivery.id, sent);
}

#[tokio::test]
async fn one_who_may_not_listen_is_warned_and_looks_by_itself() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    let rights = ["on", ">secret", "~*", "&*", "+@all", "-client|tracking"];
    run::<()>(&mut plain, &[&["ACL", "SETUSER", "limited"], &rights[..]].concat());
    let place = format!("redis://limited:secret@{}", stage.node.address());
    let deaf = RedisBackend::open(&place).await.unwrap();
    let warns = |backend: &RedisBackend| {
        let is_about = |text: &&String| text.contains("does not tell of changes");
        backend.warnings().iter().find(is_about).cloned()
    };
    assert_eq!(warns(&stage.backend), None);
    let warning = warns(&deaf).expect("an operator is told");
    assert!(warning.contains(&stage.node.address()), "{warning}");
    assert!(!warning.contains("secret"), "{warning}");
    for round in 0..3 {
        let waiting = wait_at(&deaf, "jobs");
        until_waiting(&deaf, "jobs").await;
        let sent = send(&stage.backend, "jobs", "for the deaf").await.unwrap();
        let (delivery, _) = wake_up(waiting, AT_ONCE, &format!("round {round}")).await;
        assert_eq!(delivery.id, sent);
        acknowledge(&deaf, "jobs", &delivery).await.unwrap();
    }
    assert_eq!(info(&mut plain, "stats", "tracking_total_keys"), "0");
}
