//! A NATS server with a stream that is a queue: what is acknowledged is gone.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::asker::Load;
use super::nats::{CONNECT, CONSUMER, INBOX, Nats, STREAM, SUBJECT, publish, said};
use super::race::Peer;

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is acknowledged is gone.
const RETENTION: &str = "\"retention\":\"workqueue\"";
/// Where its answer says how many there were.
const PURGED: &str = "\"purged\":";

/// A server that runs until this is dropped.
pub(super) struct NatsServer {
    child: Child,
    pub(super) address: SocketAddr,
    storage: &'static str,
}

impl NatsServer {
    /// One that is durable syncs before it answers, to a message and to its acknowledgement, as
    /// strace shows of 2.15.1; what it does unless told is every two minutes. What was delivered
    /// it writes and syncs too, about ten times a second, and nobody waits for that; with ours it
    /// is part of the next sync.
    pub(super) fn start(folder: &Path, is_durable: bool) -> Option<Self> {
        let free =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).ok()?;
        let config = format!(
            "listen: \"{free}\"\n\
             jetstream {{\n  store_dir: \"{}\"\n  sync_interval: always\n  \
             max_memory_store: 4GB\n  max_file_store: 2GB\n}}\n",
            folder.join("nats").display()
        );
        let path = folder.join("nats.conf");
        std::fs::write(&path, config).ok()?;
        let mut command = Command::new(program());
        command.arg("-c").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().ok()?;
        let storage = if is_durable { "file" } else { "memory" };
        let server = Self { child, address: free, storage };
        let deadline = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(free).is_err() {
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Makes the stream and its consumer.
    pub(super) async fn prepare(&self) {
        let stream = format!(
            "{{\"name\":\"{STREAM}\",\"subjects\":[\"{SUBJECT}\"],{RETENTION},\
             \"storage\":\"{}\"}}",
            self.storage
        );
        let made = self.request(&format!("STREAM.CREATE.{STREAM}"), &stream).await;
        // What it does not know it leaves out.
        for wanted in [format!("\"storage\":\"{}\"", self.storage), RETENTION.to_owned()] {
            assert!(made.contains(&wanted), "{wanted} is not in {made}");
        }
        let consumer = format!(
            "{{\"stream_name\":\"{STREAM}\",\
             \"config\":{{\"durable_name\":\"{CONSUMER}\",\"ack_policy\":\"explicit\"}}}}"
        );
        let subject = format!("CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}");
        self.request(&subject, &consumer).await;
    }

    /// Calls its API; what it answers if that is no error.
    async fn request(&self, call: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.expect("the peer is there");
        let inbox = format!("{INBOX}bench");
        let request = publish(&format!("$JS.API.{call}"), &inbox, body);
        let text = format!("{CONNECT}SUB {inbox} 1\r\n{request}");
        stream.write_all(text.as_bytes()).await.expect("the peer reads");
        let mut input = BytesMut::new();
        loop {
            let read = stream.read_buf(&mut input).await.expect("the peer answers");
            assert!(read > 0, "the peer has closed the connection");
            while let Some(said) = said(&input) {
                if said.is_answer() {
                    let text = String::from_utf8_lossy(said.body);
                    assert!(!text.contains("\"error\""), "{call}: {text}");
                    return text.into_owned();
                }
                let len = said.len();
                input.advance(len);
            }
        }
    }
}

impl Peer for NatsServer {
    type Talker = Nats;

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn talker(load: Load) -> Nats {
        Nats::new(load)
    }

    async fn empty(&self) -> u64 {
        let answer = self.request(&format!("STREAM.PURGE.{STREAM}"), "").await;
        let (_, rest) = answer.split_once(PURGED).expect("it says how many there were");
        let end = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().expect("a number")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where `scripts/install-peers.sh` puts it, beside the folder of this program; or anywhere.
fn program() -> PathBuf {
    let own = std::env::current_exe().ok();
    let target = own.as_deref().and_then(Path::parent).and_then(Path::parent);
    let installed = target.map(|target| target.join("python/bin/nats-server"));
    installed.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from("nats-server"))
}
