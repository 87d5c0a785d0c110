//! A client that speaks OAP/1, frame by frame.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::Problem;
use mailbox_wire::oap::{APP_HELLO, APP_PROTO, Decoder, Flags, Frame, Header};
use mailbox_wire::proto::{Asked, read_reply, write_request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::PATIENCE;

/// One connection.
pub(crate) struct OapClient<S = TcpStream> {
    pub(crate) stream: S,
    buffer: BytesMut,
    decoder: Decoder,
    next: u64,
}

impl OapClient {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> OapClient<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new(), decoder: Decoder::default(), next: 1 }
    }

    /// Begins the session.
    pub(crate) async fn start(&mut self, capability: &str) {
        let header = Header::new(Flags::REQ | Flags::START, APP_HELLO, u64::MAX);
        let mut frame = Frame::new(header, Bytes::from_static(b"{\"ua\":\"test\"}"));
        frame.cap = Bytes::copy_from_slice(capability.as_bytes());
        self.say(&frame).await;
        assert_eq!(self.frame().await.code, 200);
    }

    pub(crate) async fn say(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes).unwrap();
        self.raw(&bytes).await;
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// A request that is not sent yet.
    pub(crate) fn request(&mut self, request: Request) -> Frame {
        self.asked(Asked::Call(request))
    }

    pub(crate) fn asked(&mut self, asked: Asked) -> Frame {
        let corr_id = self.next;
        self.next += 1;
        Frame::new(Header::new(Flags::REQ, APP_PROTO, corr_id), write_request(asked).into())
    }

    /// The next frame; none if the connection is over.
    pub(crate) async fn next_frame(&mut self) -> Option<Frame> {
        let read = async {
            loop {
                if let Some(frame) = self.decoder.decode(&mut self.buffer).unwrap() {
                    return Some(frame);
                }
                let read = self.stream.read_buf(&mut self.buffer).await;
                // A connection that is reset is over, too.
                if read.is_err() || read.is_ok_and(|count| count == 0) {
                    return None;
                }
            }
        };
        tokio::time::timeout(PATIENCE, read).await.expect("something comes")
    }

    pub(crate) async fn frame(&mut self) -> Frame {
        self.next_frame().await.expect("the connection is open")
    }

    /// The next answer, whole or in parts, put together.
    pub(crate) async fn answer(&mut self) -> Frame {
        let first = self.frame().await;
        if !first.flags.contains(Flags::START) {
            return first;
        }
        let mut payload = BytesMut::new();
        loop {
            let frame = self.frame().await;
            assert_eq!(frame.corr_id, first.corr_id);
            if frame.flags.contains(Flags::END) {
                let payload = payload.freeze();
                return Frame { code: frame.code, payload, ..first };
            }
            assert!(frame.flags.contains(Flags::EVENT) && frame.payload.len() <= 65_536);
            payload.extend_from_slice(&frame.payload);
        }
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask(&mut self, request: Request) -> Result<Reply, (u16, Box<Problem>)> {
        let frame = self.request(request);
        self.say(&frame).await;
        let answer = self.answer().await;
        assert_eq!(answer.corr_id, frame.corr_id);
        proto_reply(&answer)
    }
}

/// What an answer in protobuf says.
pub(crate) fn proto_reply(frame: &Frame) -> Result<Reply, (u16, Box<Problem>)> {
    match frame.code {
        200 => Ok(read_reply(frame.plain_payload().unwrap()).unwrap()),
        code => Err((code, Box::new(problem(frame)))),
    }
}

fn problem(frame: &Frame) -> Problem {
    serde_json::from_slice(&frame.plain_payload().unwrap()).unwrap()
}
