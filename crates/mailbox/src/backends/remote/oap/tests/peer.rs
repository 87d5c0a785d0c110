//! A service that does as it is told, frame by frame.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::hash::Hash;
use mailbox_wire::json::{self, Abilities, Envelope, Problem, Received};
use mailbox_wire::oap::{
    APP_HELLO, APP_PROTO, Decoder, Flags, Frame, Header, HelloAnswer, MAX_FRAME,
};
use mailbox_wire::payload::Payload;
use mailbox_wire::proto::{Asked, read_request, write_reply};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::backends::remote::{RemoteBackend, RemoteConfig};
use crate::name::Name;

/// Somewhere to connect to.
pub(super) struct Peer {
    listener: TcpListener,
    pub(super) max_inflight: u32,
    pub(super) max_frame: u32,
    pub(super) tls: Option<TlsAcceptor>,
}

/// A connection, whatever is around it.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection, as the service sees it.
pub(super) struct Conn {
    pub(super) stream: Box<dyn Stream>,
    decoder: Decoder,
    buffer: BytesMut,
    /// Frames that were read since the hello.
    pub(super) frames: usize,
    /// The first frame.
    pub(super) hello: Frame,
}

pub(super) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(super) fn config() -> RemoteConfig {
    let config = RemoteConfig::default().with_capability("some-capability");
    config.with_patience(Duration::ZERO)
}

impl Peer {
    pub(super) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener, max_inflight: 64, max_frame: MAX_FRAME as u32, tls: None }
    }

    pub(super) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "oaps" } else { "oap" };
        format!("{scheme}://{}", self.listener.local_addr().unwrap())
    }

    /// The next connection, as it comes.
    pub(super) async fn accept_raw(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    /// The next connection, which has said hello and was answered.
    pub(super) async fn accept(&self) -> Conn {
        let stream = self.accept_raw().await;
        let stream: Box<dyn Stream> = match &self.tls {
            Some(tls) => Box::new(tls.accept(stream).await.unwrap()),
            None => Box::new(stream),
        };
        let hello = Frame::default();
        let (decoder, buffer) = (Decoder::default(), BytesMut::new());
        let mut conn = Conn { stream, decoder, buffer, frames: 0, hello };
        conn.hello = conn.frame().await.unwrap();
        conn.frames = 0;
        let (max_frame, max_inflight) = (self.max_frame, self.max_inflight);
        let answer = HelloAnswer { max_frame, max_inflight, ..HelloAnswer::new("tcp") };
        let payload = serde_json::to_vec(&answer).unwrap();
        let header = Header::new(Flags::RESP, APP_HELLO, conn.hello.corr_id);
        conn.send(Header { code: 200, ..header }, payload).await;
        conn
    }

    /// A client, and its first connection.
    pub(super) async fn open(&self, config: RemoteConfig) -> (Arc<RemoteBackend>, Conn) {
        let url = self.url();
        let opening = RemoteBackend::open_with(&url, config);
        let (backend, conn) = tokio::join!(opening, async {
            let mut conn = self.accept().await;
            let (id, asked) = conn.request().await.unwrap();
            assert_eq!(asked, Asked::Call(Request::Abilities));
            conn.reply(id, Reply::Abilities(abilities())).await;
            conn.frames = 0;
            conn
        });
        (backend.unwrap(), conn)
    }
}

impl Conn {
    pub(super) async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer).unwrap() {
                self.frames += 1;
                return Some(frame);
            }
            // A client that is gone may have left things unread.
            if self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The next request, its parts joined; nothing if the client has closed the connection.
    pub(super) async fn request(&mut self) -> Option<(u64, Asked)> {
        let mut joined = BytesMut::new();
        loop {
            let frame = self.frame().await?;
            assert_eq!((frame.app, frame.code), (APP_PROTO, 0));
            joined.extend_from_slice(&frame.payload);
            if frame.flags == Flags::REQ {
                return Some((frame.corr_id, read_request(joined.freeze()).unwrap()));
            }
            assert_eq!(frame.flags, Flags::EVENT);
        }
    }

    pub(super) async fn send(&mut self, header: Header, payload: impl Into<Bytes>) {
        let mut bytes = BytesMut::new();
        Frame::new(header, payload.into()).encode(&mut bytes).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// A frame of an answer.
    pub(super) async fn piece(
        &mut self,
        flags: Flags,
        code: u16,
        id: u64,
        payload: impl Into<Bytes>,
    ) {
        self.send(Header { code, ..Header::new(flags, APP_PROTO, id) }, payload).await;
    }

    pub(super) async fn reply(&mut self, id: u64, reply: Reply) {
        self.piece(Flags::RESP, 200, id, written(reply)).await;
    }

    pub(super) async fn refuse(&mut self, id: u64, code: u16, problem: &Problem) {
        self.piece(Flags::RESP, code, id, serde_json::to_vec(problem).unwrap()).await;
    }
}

pub(super) fn written(reply: Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_reply(reply, &mut bytes);
    bytes
}

pub(super) fn problem(kind: &str) -> Problem {
    Problem {
        code: "E_TEST".to_owned(),
        message: format!("this is {kind}"),
        kind: kind.to_owned(),
        ..Problem::default()
    }
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

/// A message that was received.
pub(super) fn envelope(topic: &str, id: &str, payload: &[u8]) -> Envelope {
    let ts = "2025-10-12T18:02:41.000Z";
    let (hash, attrs) = (Hash::of_payload(payload), json_attributes());
    Envelope {
        msg_id: id.to_owned(),
        topic: topic.to_owned(),
        ts: ts.to_owned(),
        idem_key: None,
        payload_hash: hash,
        hash_chain: Hash::of_chain(topic, ts, None, hash, &attrs),
        attrs,
        corr_id: "01234567-89ab-7def-8123-456789abcdef".to_owned(),
        shard: 0,
        attempt: 1,
        sig: None,
        receipt_handle: Some(format!("{topic}/handle-of-{id}")),
        visible_until_ms: None,
        reply_to: None,
        group: None,
        partition: None,
        traceparent: None,
        payload_b64: Payload(Bytes::copy_from_slice(payload)),
    }
}

fn json_attributes() -> mailbox_wire::attributes::Attributes {
    [("kind".to_owned(), "test".to_owned())].into()
}

/// What is answered to a settle of so many.
pub(super) fn settled(count: usize) -> Reply {
    let results = vec![json::SettleResult::Settled { ok: true }; count];
    Reply::SettledBatch(json::SettledBatch { results })
}

pub(super) fn received(envelopes: Vec<Envelope>) -> Reply {
    Reply::Received(Received { messages: envelopes })
}

/// What became of each message of a batch: how its payload begins is its id.
pub(super) fn sent(batch: &json::SendBatchRequest) -> Reply {
    let results = batch.messages.iter().map(|message| {
        let payload = &message.payload_b64.0;
        let msg_id = String::from_utf8(payload[..payload.len().min(26)].to_vec()).unwrap();
        json::BatchResult::Sent(json::Sent { msg_id, duplicate: false })
    });
    Reply::SentBatch(json::SentBatch { results: results.collect() })
}
