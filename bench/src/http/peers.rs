//! Peers with equal durability, each by its own protocol and with as many connections: beanstalkd
//! and Redis Streams, without a disk against ours in memory, and with a sync before every answer
//! against ours in a journal. They have no capabilities, hashes or JSON; the ratios say what those
//! cost.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mailbox_redis_servers::Node;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::client::{self, Batch, Load};
use super::server::Server;
use super::{CONNECTIONS, TURN, TURNS, two_threads};
use crate::journal::place::Place;
use crate::report::Row;

const BODY_LEN: usize = 1023;
/// Bytes that beanstalkd may have and not need: more than it ever has.
const KEPT_MEMORY: &str = "68719476736";

/// A protocol in which one request has one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Beanstalkd,
    Streams,
}

/// Sends and cycles of each, against ours.
pub(crate) fn compared(place: &Place) -> Vec<Row> {
    let runtime = &two_threads();
    let mut rows = Vec::new();
    for store in ["memory", "journal"] {
        let folder = place.folder(&format!("http-peers-{store}"));
        let is_durable = store == "journal";
        let path = folder.path().join("data").display().to_string();
        let ours = Server::start(&[store, &path]);
        let beanstalkd = Beanstalkd::start(is_durable.then(|| folder.path()));
        let redis = start_redis(is_durable, folder.path());
        let mut contestants: Vec<(&str, Peer, SocketAddr)> = Vec::new();
        match &beanstalkd {
            Some(it) => contestants.push(("beanstalkd", Peer::Beanstalkd, it.address)),
            None => rows.push(missing("beanstalkd is not installed")),
        }
        match &redis {
            Some(node) => {
                let address = node.address().to_string().parse().expect("an address");
                contestants.push(("Redis Streams", Peer::Streams, address));
            }
            None => rows.push(missing("redis-server does not start")),
        }
        for (name, peer, address) in contestants {
            let (sends, cycles) = race(runtime, &ours, peer, address);
            let what = format!("http {store} : {name}");
            rows.push(Row::compared(format!("{what}, sends/s"), sends.0, sends.1).in_unit("/s"));
            let row = Row::compared(format!("{what}, receive + ack/s"), cycles.0, cycles.1);
            rows.push(row.in_unit("/s"));
        }
    }
    rows
}

/// A figure that is missing is one that is missed.
fn missing(why: &str) -> Row {
    Row::alone(format!("http: {why}"), f64::NAN, "/s").at_least(0.0)
}

fn race(
    runtime: &Runtime,
    ours: &Server,
    peer: Peer,
    address: SocketAddr,
) -> ((f64, f64), (f64, f64)) {
    let (mut sends, mut cycles) = ((0_f64, 0_f64), (0_f64, 0_f64));
    runtime.block_on(peer.prepare(address));
    for _ in 0..TURNS {
        let load = Load::Sends(Batch::One);
        let mine = runtime.block_on(client::run(ours, load, CONNECTIONS, TURN));
        let theirs = runtime.block_on(run(peer, address, true));
        sends = (sends.0.max(mine), sends.1.max(theirs));
        let load = Load::Cycles(Batch::One);
        let mine = runtime.block_on(client::run(ours, load, CONNECTIONS, TURN));
        let theirs = runtime.block_on(run(peer, address, false));
        cycles = (cycles.0.max(mine), cycles.1.max(theirs));
        runtime.block_on(client::purge(ours));
        runtime.block_on(empty(peer, address));
    }
    (sends, cycles)
}

/// Receives what is left, so that every turn begins alike for the peer too.
async fn empty(peer: Peer, address: SocketAddr) {
    let one = |number| async move {
        let mut line = Line::open(address).await;
        while peer.cycle(&mut line, number).await > 0 {}
    };
    let tasks: Vec<_> = (0..CONNECTIONS).map(|number| tokio::spawn(one(number))).collect();
    for task in tasks {
        task.await.expect("a client does not panic");
    }
}

async fn run(peer: Peer, address: SocketAddr, is_send: bool) -> f64 {
    let (done, started) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let done = Arc::clone(&done);
            tokio::spawn(async move {
                let mut line = Line::open(address).await;
                while started.elapsed() < TURN {
                    let count = if is_send {
                        peer.send(&mut line).await
                    } else {
                        peer.cycle(&mut line, number).await
                    };
                    done.fetch_add(count, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a client does not panic");
    }
    done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

impl Peer {
    async fn prepare(self, address: SocketAddr) {
        if self == Self::Streams {
            let mut line = Line::open(address).await;
            line.say(&command(&["XGROUP", "CREATE", "jobs", "all", "0", "MKSTREAM"])).await;
            line.answer(self).await;
        }
    }

    async fn send(self, line: &mut Line) -> u64 {
        let body = "b".repeat(BODY_LEN);
        let request = match self {
            Self::Beanstalkd => format!("put 0 0 60 {BODY_LEN}\r\n{body}\r\n").into_bytes(),
            Self::Streams => command(&["XADD", "jobs", "*", "b", &body]),
        };
        line.say(&request).await;
        line.answer(self).await;
        1
    }

    async fn cycle(self, line: &mut Line, number: usize) -> u64 {
        match self {
            Self::Beanstalkd => {
                line.say(b"reserve-with-timeout 0\r\n").await;
                let answer = line.answer(self).await;
                let Some(id) = answer.strip_prefix("RESERVED ").and_then(|it| it.split(' ').next())
                else {
                    return 0;
                };
                line.say(format!("delete {id}\r\n").as_bytes()).await;
            }
            Self::Streams => {
                let consumer = format!("c{number}");
                let read = ["XREADGROUP", "GROUP", "all", &consumer, "COUNT", "1"];
                line.say(&command(&[&read[..], &["STREAMS", "jobs", ">"]].concat())).await;
                let answer = line.answer(self).await;
                // The only line of the answer that has the form of an id.
                let Some(id) = answer.lines().find(|line| is_stream_id(line)) else { return 0 };
                // To be gone a message has to be acknowledged and deleted: one round trip.
                let mut both = command(&["XACK", "jobs", "all", id]);
                both.extend(command(&["XDEL", "jobs", id]));
                line.say(&both).await;
                line.answer(self).await;
            }
        }
        line.answer(self).await;
        1
    }
}

fn is_stream_id(line: &str) -> bool {
    line.split_once('-').is_some_and(|(millis, number)| {
        millis.len() == 13
            && [millis, number].iter().all(|it| it.bytes().all(|b| b.is_ascii_digit()))
    })
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}

/// A connection to a peer.
struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Line {
    async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the peer is there");
        stream.set_nodelay(true).expect("a connection that is open");
        Self { stream, buffer: Vec::new() }
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the peer reads");
    }

    /// The next answer, as text.
    async fn answer(&mut self, peer: Peer) -> String {
        loop {
            let end = match peer {
                Peer::Beanstalkd => beanstalk_end(&self.buffer),
                Peer::Streams => reply_end(&self.buffer, 0),
            };
            if let Some(end) = end {
                let answer: Vec<u8> = self.buffer.drain(..end).collect();
                return String::from_utf8_lossy(&answer).into_owned();
            }
            let read = self.stream.read_buf(&mut self.buffer).await.expect("the peer answers");
            assert!(read > 0, "the peer has closed the connection");
        }
    }
}

pub(crate) fn line_end(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(2).position(|pair| pair == b"\r\n").map(|at| from + at + 2)
}

fn number(bytes: &[u8]) -> i64 {
    std::str::from_utf8(bytes).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(-1)
}

/// Where an answer of beanstalkd ends, if it is all there.
pub(crate) fn beanstalk_end(bytes: &[u8]) -> Option<usize> {
    let end = line_end(bytes, 0)?;
    if !bytes.starts_with(b"RESERVED ") {
        return Some(end);
    }
    let len = bytes[..end].rsplit(|byte| *byte == b' ').next().map_or(-1, number);
    let all = end + usize::try_from(len).unwrap_or(0) + 2;
    (bytes.len() >= all).then_some(all)
}

/// Where a reply of Redis ends, if it is all there.
fn reply_end(bytes: &[u8], from: usize) -> Option<usize> {
    let end = line_end(bytes, from)?;
    let count = number(&bytes[from + 1..end]);
    match bytes[from] {
        b'$' if count >= 0 => {
            let all = end + usize::try_from(count).unwrap_or(0) + 2;
            (bytes.len() >= all).then_some(all)
        }
        b'*' if count > 0 => (0..count).try_fold(end, |at, _| reply_end(bytes, at)),
        _ => Some(end),
    }
}

/// A beanstalkd that runs until this is dropped.
pub(crate) struct Beanstalkd {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Beanstalkd {
    /// With a directory it syncs before it answers.
    pub(crate) fn start(directory: Option<&std::path::Path>) -> Option<Self> {
        let free =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).ok()?;
        let mut command = Command::new("beanstalkd");
        command.args(["-l", "127.0.0.1", "-p", &free.port().to_string()]);
        if let Some(directory) = directory {
            let directory = directory.join("beanstalkd");
            std::fs::create_dir(&directory).ok()?;
            command.arg("-b").arg(directory).args(["-f", "0"]);
        }
        // The allocator of the C library gives back what is freed at the end; ours is warm, so its
        // memory stays its own too.
        command.env("MALLOC_TRIM_THRESHOLD_", KEPT_MEMORY);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::net::TcpStream::connect(free).is_err() {
            if Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self { child, address: free })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start_redis(is_durable: bool, path: &std::path::Path) -> Option<Node> {
    let directory = path.display().to_string();
    let durable = [("dir", &*directory), ("appendonly", "yes"), ("appendfsync", "always")];
    Node::start(if is_durable { &durable } else { &[] }).ok()
}
