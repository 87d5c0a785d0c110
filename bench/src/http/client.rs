//! The client of all contestants: plain requests over plain connections, so that as little as
//! possible of what is measured is its own.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::server::Server;

/// A payload of 1 KiB, base64.
pub(super) static PAYLOAD_B64: LazyLock<String> = LazyLock::new(|| {
    // 1023 bytes are 1364 letters without padding.
    (0..1364).map(|at| char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"[at * 7 % 32])).collect()
});

/// How many messages a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batch {
    One,
    Ten,
}

/// What a connection does, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Sends(Batch),
    Cycles(Batch),
}

/// Messages a second, over so many connections for so long.
pub(crate) async fn run(server: &Server, load: Load, connections: usize, turn: Duration) -> f64 {
    let done = std::sync::Arc::new(AtomicU64::new(0));
    let end = Instant::now() + turn;
    let started = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (done, requests) = (std::sync::Arc::clone(&done), Requests::new(server, load));
            let address = server.address;
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await;
                while Instant::now() < end {
                    done.fetch_add(requests.once(&mut connection).await, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a client does not panic");
    }
    done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

/// Empties the mailbox, so that every turn begins alike.
pub(crate) async fn purge(server: &Server) {
    let mut connection = Connection::open(server.address).await;
    let request = request(server, "/v1/topics/jobs/purge", "");
    let (status, _) = connection.exchange(&request).await;
    assert_eq!(status, 200, "a mailbox can be emptied");
}

/// A request in full.
pub(super) fn request(server: &Server, path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.address,
        server.capability,
        body.len()
    )
    .into_bytes()
}

/// The body of a send.
pub(super) fn send_body() -> String {
    format!("{{\"topic\":\"jobs\",\"payload_b64\":\"{}\"}}", &**PAYLOAD_B64)
}

/// Requests that are the same every time.
struct Requests {
    load: Load,
    first: Vec<u8>,
    head: String,
}

impl Requests {
    fn new(server: &Server, load: Load) -> Self {
        let one = format!("{{\"payload_b64\":\"{}\"}}", &**PAYLOAD_B64);
        // The limit has no arguments: how many it gives is in its path.
        let is_limit = server.needed().is_none();
        let first = match load {
            Load::Sends(Batch::One) => request(server, "/v1/send", &send_body()),
            Load::Sends(Batch::Ten) => {
                let messages = [one.as_str(); 10].join(",");
                let body = format!("{{\"topic\":\"jobs\",\"messages\":[{messages}]}}");
                request(server, "/v1/send/batch", &body)
            }
            Load::Cycles(Batch::One) => request(server, "/v1/recv", "{\"topic\":\"jobs\"}"),
            Load::Cycles(Batch::Ten) => {
                let path = if is_limit { "/v1/recv10" } else { "/v1/recv" };
                request(server, path, "{\"topic\":\"jobs\",\"max_messages\":10}")
            }
        };
        let head = format!(
            "host: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
            server.address, server.capability
        );
        Self { load, first, head }
    }

    /// Does it once; how many messages that was.
    async fn once(&self, connection: &mut Connection) -> u64 {
        let (status, body) = connection.exchange(&self.first).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        match self.load {
            Load::Sends(Batch::One) => 1,
            Load::Sends(Batch::Ten) => 10,
            Load::Cycles(batch) => {
                let handles = handles(&body);
                if handles.is_empty() {
                    // There was nothing to receive.
                    return 0;
                }
                let second = self.settle(batch, &body, &handles);
                let count = handles.len() as u64;
                let (status, body) = connection.exchange(&second).await;
                assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
                count
            }
        }
    }

    fn settle(&self, batch: Batch, received: &[u8], handles: &[&str]) -> Vec<u8> {
        let (path, body) = match batch {
            Batch::One => {
                let id = text_after(received, "\"msg_id\":\"").unwrap_or_default();
                let body = format!("{{\"receipt_handle\":\"{}\"}}", handles[0]);
                (format!("/v1/ack/{id}"), body)
            }
            Batch::Ten => {
                let item =
                    |handle: &&str| format!("{{\"op\":\"ack\",\"receipt_handle\":\"{handle}\"}}");
                let items: Vec<String> = handles.iter().map(item).collect();
                ("/v1/settle/batch".to_owned(), format!("{{\"items\":[{}]}}", items.join(",")))
            }
        };
        let len = body.len();
        format!("POST {path} HTTP/1.1\r\n{}content-length: {len}\r\n\r\n{body}", self.head)
            .into_bytes()
    }
}

/// The acknowledgement of the first message in an answer.
pub(super) fn settled_one(
    address: std::net::SocketAddr,
    capability: &str,
    received: &[u8],
) -> Vec<u8> {
    let id = text_after(received, "\"msg_id\":\"").expect("there is a message");
    let handle = text_after(received, "\"receipt_handle\":\"").expect("it was received");
    let body = format!("{{\"receipt_handle\":\"{handle}\"}}");
    format!(
        "POST /v1/ack/{id} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {capability}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Receipt handles in an answer.
fn handles(body: &[u8]) -> Vec<&str> {
    const MARK: &str = "\"receipt_handle\":\"";
    let text = std::str::from_utf8(body).unwrap_or_default();
    let after = text.split(MARK).skip(1);
    after.filter_map(|rest| rest.split('"').next()).collect()
}

fn text_after<'a>(body: &'a [u8], mark: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(body).ok()?;
    text.split_once(mark)?.1.split('"').next()
}

/// A connection that is used again and again.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(address: std::net::SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server is there");
        stream.set_nodelay(true).expect("a connection that is open");
        Self { stream, buffer: Vec::with_capacity(32 * 1024) }
    }

    /// One request and its answer.
    pub(super) async fn exchange(&mut self, request: &[u8]) -> (u16, Vec<u8>) {
        self.stream.write_all(request).await.expect("the server reads");
        self.buffer.clear();
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await.expect("the server answers");
            assert!(read > 0, "the server has closed the connection");
            let Some(end) = find(&self.buffer, b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&self.buffer[..end]).expect("a head is text");
            let status = head.get(9..12).and_then(|code| code.parse().ok()).expect("a status");
            let len: usize = head
                .split("\r\n")
                .filter_map(|line| line.split_once(": "))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .and_then(|(_, value)| value.parse().ok())
                .unwrap_or(0);
            while self.buffer.len() < end + 4 + len {
                let read = self.stream.read_buf(&mut self.buffer).await.expect("the rest");
                assert!(read > 0, "the server has closed the connection");
            }
            return (status, self.buffer[end + 4..end + 4 + len].to_vec());
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
