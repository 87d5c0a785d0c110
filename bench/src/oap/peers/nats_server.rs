//! A NATS server with a stream that is a queue: what is acknowledged is gone.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::nats::{CONNECT, CONSUMER, INBOX, STREAM, SUBJECT, publish, said};

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that runs until this is dropped.
pub(super) struct NatsServer {
    child: Child,
    pub(super) address: SocketAddr,
    storage: &'static str,
}

impl NatsServer {
    /// One that is durable syncs before it answers: what it does unless told is every two minutes.
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

    /// Makes the stream and its consumer.
    pub(super) async fn prepare(&self) {
        let stream = format!(
            "{{\"name\":\"{STREAM}\",\"subjects\":[\"{SUBJECT}\"],\"retention\":\"workqueue\",\
             \"storage\":\"{}\"}}",
            self.storage
        );
        self.request(&format!("STREAM.CREATE.{STREAM}"), &stream).await;
        let consumer = format!(
            "{{\"stream_name\":\"{STREAM}\",\
             \"config\":{{\"durable_name\":\"{CONSUMER}\",\"ack_policy\":\"explicit\"}}}}"
        );
        let subject = format!("CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}");
        self.request(&subject, &consumer).await;
    }

    /// Empties the stream.
    pub(super) async fn purge(&self) {
        self.request(&format!("STREAM.PURGE.{STREAM}"), "").await;
    }

    async fn request(&self, call: &str, body: &str) {
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
                    return;
                }
                let len = said.len();
                input.advance(len);
            }
        }
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
