//! A service over HTTP/2 that does as it is told, call by call.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request, Response};
use mailbox_wire::call::{self, Reply};
use mailbox_wire::json::{Abilities, Problem};
use mailbox_wire::proto::{Asked, details, read_request, write_reply};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tonic::{Code, Status};

use crate::backends::remote::{RemoteBackend, RemoteConfig};
use crate::name::Name;

/// Somewhere to connect to.
pub(super) struct Peer {
    listener: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
}

/// A connection, as the service sees it.
pub(super) struct Conn {
    calls: mpsc::Receiver<Raw>,
    task: JoinHandle<()>,
    /// Beside HTTP/2.
    raw: std::net::TcpStream,
}

/// A call.
pub(super) struct Call {
    pub(super) method: String,
    pub(super) authorization: Option<HeaderValue>,
    pub(super) body: RecvStream,
    pub(super) answer: SendResponse<Bytes>,
    unread: BytesMut,
}

pub(super) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

/// With no time for another attempt, and one connection.
pub(super) fn config() -> RemoteConfig {
    let mut config = RemoteConfig::default().with_capability("some-capability");
    config.connections = 1;
    config.with_patience(Duration::ZERO)
}

/// With time for another attempt.
pub(super) fn patient() -> RemoteConfig {
    config().with_patience(Duration::from_secs(20))
}

impl Peer {
    pub(super) async fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap(), tls: None }
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "grpcs" } else { "grpc" };
        format!("{scheme}://{}", self.listener.local_addr().unwrap())
    }

    /// The next connection, as it comes.
    pub(super) async fn accept_raw(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    /// The next connection, which has said hello and goes on until it is cut.
    pub(super) async fn accept(&self) -> Conn {
        let stream = self.accept_raw().await.into_std().unwrap();
        let raw = stream.try_clone().unwrap();
        let stream = TcpStream::from_std(stream).unwrap();
        let (tell, calls) = mpsc::channel(256);
        let task = match &self.tls {
            None => tokio::spawn(drive(stream, tell)),
            Some(tls) => {
                let stream = tls.accept(stream).await.unwrap();
                assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
                tokio::spawn(drive(stream, tell))
            }
        };
        let mut conn = Conn { calls, task, raw };
        let (hello, mut answer) = conn.calls.recv().await.expect("there is a hello");
        assert_eq!(hello.uri().path(), "/grpc.health.v1.Health/Check");
        assert!(!hello.headers().contains_key(AUTHORIZATION));
        let mut response = Response::new(());
        *response.headers_mut() = trailers(&Status::not_found("there is no such service"));
        answer.send_response(response, true).unwrap();
        conn
    }

    /// A client, and its first connection.
    pub(super) async fn open(&self, config: RemoteConfig) -> (Arc<RemoteBackend>, Conn) {
        let url = self.url();
        let (backend, conn) = tokio::join!(RemoteBackend::open_with(&url, config), async {
            let mut conn = self.accept().await;
            let call = conn.call().await;
            assert_eq!(call.method, "GetAbilities");
            call.reply(Reply::Abilities(abilities()));
            conn
        });
        (backend.unwrap(), conn)
    }
}

/// A call, as it comes.
type Raw = (Request<RecvStream>, SendResponse<Bytes>);

async fn drive(stream: impl AsyncRead + AsyncWrite + Unpin, tell: mpsc::Sender<Raw>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok(call)) = connection.accept().await {
        let _ = tell.send(call).await;
    }
}

impl Conn {
    pub(super) async fn call(&mut self) -> Call {
        self.next_call().await.expect("there is a call")
    }

    /// The next call, unless the client has closed it.
    pub(super) async fn next_call(&mut self) -> Option<Call> {
        let (request, answer) = self.calls.recv().await?;
        let (head, body) = request.into_parts();
        let path = head.uri.path().strip_prefix("/mailbox.v1.Mailbox/").unwrap();
        let authorization = head.headers.get(AUTHORIZATION).cloned();
        Some(Call { method: path.to_owned(), authorization, body, answer, unread: BytesMut::new() })
    }

    /// Says something that is no HTTP/2.
    pub(super) fn garble(&mut self) {
        self.raw.write_all(&[0xff; 64]).unwrap();
    }

    /// Says that the connection ends, after so many streams.
    pub(super) fn go_away(&mut self, last: u32, reason: Reason) {
        let mut frame = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
        frame.extend_from_slice(&last.to_be_bytes());
        frame.extend_from_slice(&u32::from(reason).to_be_bytes());
        self.raw.write_all(&frame).unwrap();
    }

    /// Ends the connection.
    pub(super) fn hang_up(&self) {
        let _ = self.raw.shutdown(std::net::Shutdown::Both);
    }

    /// Cuts the connection.
    pub(super) async fn cut(self) {
        // First: it is open as long as this is there.
        drop(self.raw);
        self.task.abort();
        let _ = self.task.await;
    }

    /// Waits until the client has closed it.
    pub(super) async fn closed(mut self) -> bool {
        let is_silent = self.calls.recv().await.is_none();
        is_silent && self.task.await.is_ok()
    }
}

impl Call {
    /// The next message of the client, without what stands before it; nothing at the end.
    pub(super) async fn message(&mut self) -> Option<Bytes> {
        loop {
            if let Some(prefix) = self.unread.get(..5) {
                let len = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
                if self.unread.len() >= 5 + len {
                    return Some(self.unread.split_to(5 + len).split_off(5).freeze());
                }
            }
            let data = self.body.data().await?.ok()?;
            self.body.flow_control().release_capacity(data.len()).unwrap();
            self.unread.extend_from_slice(&data);
        }
    }

    /// What is asked, which is the field with this number of a frame of OAP/1.
    pub(super) async fn asked(&mut self, field: u8) -> call::Request {
        let message = self.message().await.unwrap();
        let mut bytes = BytesMut::new();
        varint(u64::from(field) << 3 | 2, &mut bytes);
        varint(message.len() as u64, &mut bytes);
        bytes.extend_from_slice(&message);
        match read_request(bytes.freeze()).unwrap() {
            Asked::Call(request) => request,
            Asked::Cancel(_) => panic!("nothing is cancelled here"),
        }
    }

    /// Begins an answer.
    pub(super) fn begin(&mut self) -> SendStream<Bytes> {
        let response = Response::builder().header("content-type", "application/grpc").body(());
        self.answer.send_response(response.unwrap(), false).unwrap()
    }

    pub(super) fn reply(mut self, reply: Reply) {
        let mut stream = self.begin();
        stream.send_data(framed(&bare(reply)), false).unwrap();
        stream.send_trailers(trailers(&Status::new(Code::Ok, ""))).unwrap();
    }

    pub(super) fn refuse(mut self, status: &Status) {
        let mut response = Response::new(());
        *response.headers_mut() = trailers(status);
        self.answer.send_response(response, true).unwrap();
    }

    pub(super) fn reset(mut self, reason: Reason) {
        self.answer.send_reset(reason);
    }
}

/// A message as it is in a body.
pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.extend_from_slice(message);
    bytes.freeze()
}

/// An answer by itself: as it is in a frame of OAP/1, without what says which answer it is.
pub(super) fn bare(reply: Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_reply(reply, &mut bytes);
    let mut skipped = 0;
    for _ in 0..2 {
        skipped += 1 + bytes[skipped..].iter().position(|byte| *byte < 0x80).unwrap();
    }
    bytes.split_off(skipped)
}

pub(super) fn trailers(status: &Status) -> HeaderMap {
    status.clone().into_http::<()>().into_parts().0.headers
}

/// How the service says that something went wrong.
pub(super) fn status(code: Code, kind: &str, reason: Option<&str>) -> Status {
    let problem = Problem {
        code: "E_TEST".to_owned(),
        message: format!("this is {kind}"),
        kind: kind.to_owned(),
        reason: reason.map(str::to_owned),
        ..Problem::default()
    };
    Status::with_details(code, "told", details(code.into(), problem))
}

fn varint(mut number: u64, out: &mut BytesMut) {
    while number >= 0x80 {
        out.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

pub(super) fn abilities() -> Abilities {
    Abilities {
        backend: "peer".to_owned(),
        durable: true,
        ordered: true,
        exact_count: true,
        totals: true,
        idempotency: true,
        groups: true,
        undo: true,
        strict_deadlines: true,
        resolution_ms: 1,
        max_messages: 256,
        max_payload: 64 << 20,
        max_delay_ms: 1000,
        max_body: 64 << 20,
    }
}
