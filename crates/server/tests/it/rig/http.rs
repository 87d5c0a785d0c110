//! HTTP/1.1 as bytes: a client that sends what a test wants, also what no library would.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mailbox_wire::json::Problem;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::PATIENCE;

/// A connection, and what was read from it and not used.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) buffer: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// The head of a request, with everything that is always there.
pub(crate) fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// Sends these very bytes.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// Makes a request and reads the answer.
    pub(crate) async fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let len = body.len().to_string();
        let mut all = headers.to_vec();
        all.push(("content-length", &len));
        let mut bytes = head(method, path, &all).into_bytes();
        bytes.extend_from_slice(body);
        // The service may have answered, and gone, before all of it was sent.
        let _ = self.write(&bytes).await;
        self.reply().await.expect("an answer")
    }

    /// The next answer; an error if there is none.
    pub(crate) async fn reply(&mut self) -> io::Result<Reply> {
        let mut reply = self.reply_head().await?;
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk().await? {
                reply.body.extend(chunk);
            }
        } else {
            let len = reply.header("content-length").map_or(0, |len| len.parse().unwrap());
            reply.body = self.take(len).await?;
        }
        Ok(reply)
    }

    /// Status and headers of the next answer.
    pub(crate) async fn reply_head(&mut self) -> io::Result<Reply> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            self.more().await?;
        };
        let text = String::from_utf8(self.take(end + 4).await?).expect("a head is text");
        let mut lines = text.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status = status.expect("a status line").parse().expect("a number");
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers = headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Ok(Reply { status, headers, body: Vec::new() })
    }

    /// The next chunk of an answer; nothing behind the last.
    pub(crate) async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let end = loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                break at;
            }
            self.more().await?;
        };
        let line = self.take(end + 2).await?;
        let len = std::str::from_utf8(&line).expect("text").trim();
        let len = usize::from_str_radix(len, 16).expect("a length");
        let mut chunk = self.take(len + 2).await?;
        chunk.truncate(len);
        Ok((len > 0).then_some(chunk))
    }

    async fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < len {
            self.more().await?;
        }
        let rest = self.buffer.split_off(len);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    async fn more(&mut self) -> io::Result<()> {
        let read = self.stream.read_buf(&mut self.buffer);
        let count = tokio::time::timeout(PATIENCE, read).await.expect("bytes, or the end")?;
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Whether the other end closes the connection within this time.
    pub(crate) async fn ends_within(&mut self, time: Duration) -> bool {
        let ended = async {
            let mut rest = [0; 4096];
            while !matches!(self.stream.read(&mut rest).await, Ok(0) | Err(_)) {}
        };
        tokio::time::timeout(time, ended).await.is_ok()
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(is, _)| is == name);
        found.next().map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// What it says, if all is well.
    pub(crate) fn good<T: DeserializeOwned>(&self) -> T {
        assert_eq!(self.status, 200, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap()
    }

    /// What went wrong; with this status and code, and everything that is always there.
    pub(crate) fn bad(&self, status: u16, code: &str) -> Problem {
        let text = self.text();
        assert_eq!(self.status, status, "{text}");
        let problem: Problem = serde_json::from_str(&text).expect("a problem");
        assert_eq!(problem.code, code, "{text}");
        assert!(!problem.message.is_empty() && !problem.kind.is_empty(), "{text}");
        assert!(!problem.corr_id.is_empty(), "{text}");
        assert_eq!(self.header("x-corr-id"), Some(problem.corr_id.as_str()), "{text}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        if matches!(status, 429 | 503) {
            let seconds: u64 = self.header("retry-after").expect("when").parse().unwrap();
            assert!(seconds >= 1, "{text}");
            assert!(problem.retry_after_ms.is_some_and(|ms| ms <= seconds * 1000), "{text}");
        }
        problem
    }

    /// Refused for this reason.
    pub(crate) fn refused(&self, status: u16, reason: &str) -> Problem {
        let code = if status == 401 { "E_CAP_AUTH" } else { "E_CAP_SCOPE" };
        let problem = self.bad(status, code);
        assert_eq!(problem.reason.as_deref(), Some(reason), "{}", self.text());
        problem
    }
}

pub(crate) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
