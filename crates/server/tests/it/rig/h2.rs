//! A client that speaks HTTP/2, and gRPC on it, and takes of an answer what a test wants it to.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::{self, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use mailbox_wire::json::Problem;
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::PATIENCE;

/// One connection.
pub(crate) struct H2Client {
    requests: SendRequest<Bytes>,
    pings: PingPong,
    connection: JoinHandle<()>,
}

/// A call, and what has come of its answer. Dropped, it is taken back.
pub(crate) struct Call {
    pub(crate) answer: Response<RecvStream>,
    /// As long as it is there, and the request was not ended, more can be said.
    _request: SendStream<Bytes>,
    buffer: BytesMut,
}

/// A message with what stands before it.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(message.encoded_len() as u32);
    message.encode(&mut bytes).unwrap();
    bytes.freeze()
}

impl H2Client {
    pub(crate) async fn open(address: SocketAddr, window: u32) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut builder = client::Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(1 << 20);
        let (requests, mut connection) = builder.handshake(stream).await.unwrap();
        let pings = connection.ping_pong().unwrap();
        // How it ends is seen where something is asked on it.
        let connection = tokio::spawn(async move { drop(connection.await) });
        Self { requests, pings, connection }
    }

    /// Asks; with no end behind the body, more of it may come.
    pub(crate) async fn try_ask(
        &self,
        request: Request<()>,
        body: Bytes,
        is_end: bool,
    ) -> Result<Call, h2::Error> {
        let requests = self.requests.clone();
        let asked = async {
            let mut ready = requests.ready().await?;
            let (answer, mut sending) = ready.send_request(request, false)?;
            sending.send_data(body, is_end)?;
            let answer = answer.await?;
            Ok(Call { answer, _request: sending, buffer: BytesMut::new() })
        };
        timeout(PATIENCE, asked).await.expect("an answer")
    }

    pub(crate) async fn get(&self, path: &str, capability: &str) -> Call {
        let request = Request::get(format!("http://localhost{path}"))
            .header("host", "localhost")
            .header("authorization", format!("Bearer {capability}"));
        self.try_ask(request.body(()).unwrap(), Bytes::new(), true).await.unwrap()
    }

    /// Why nothing more can be asked.
    pub(crate) async fn get_late(&self, path: &str) -> h2::Error {
        let request = Request::get(format!("http://localhost{path}")).body(()).unwrap();
        self.try_ask(request, Bytes::new(), true).await.err().expect("it is too late")
    }

    /// Calls a method of gRPC with these very bytes.
    pub(crate) async fn call(&self, path: &str, capability: &str, body: Bytes) -> Call {
        self.try_ask(grpc(path, capability), body, true).await.unwrap()
    }

    /// The same, and does not end.
    pub(crate) async fn begin(&self, path: &str, body: Bytes) -> Call {
        self.try_ask(grpc(path, ""), body, false).await.unwrap()
    }

    /// Whether the connection is over.
    pub(crate) fn is_over(&self) -> bool {
        self.connection.is_finished()
    }

    /// Says something that is about no answer.
    pub(crate) async fn ping(&mut self) {
        let pong = self.pings.ping(Ping::opaque());
        let _ = timeout(PATIENCE, pong).await.expect("a pong, or the end");
    }

    /// Pings until it is over; how often that was.
    pub(crate) async fn ping_until_over(&mut self) -> usize {
        let mut pings = 0;
        let pinging = async {
            while !self.is_over() {
                self.ping().await;
                pings += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, pinging).await.expect("it is over in time");
        pings
    }
}

/// A call of gRPC.
pub(crate) fn grpc(path: &str, capability: &str) -> Request<()> {
    Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {capability}"))
        .body(())
        .unwrap()
}

impl Drop for H2Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Call {
    /// Some more of the answer, which makes room for as much; nothing behind the last.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, h2::Error> {
        let body = self.answer.body_mut();
        let Some(piece) = timeout(PATIENCE, body.data()).await.expect("something comes") else {
            return Ok(None);
        };
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        Ok(Some(piece))
    }

    /// The next message, if one comes before the end.
    pub(crate) async fn message<M: Message + Default>(&mut self) -> Result<Option<M>, h2::Error> {
        loop {
            if let Some((prefix, rest)) = self.buffer.split_first_chunk::<5>() {
                let [_, len @ ..] = *prefix;
                let len = u32::from_be_bytes(len) as usize;
                if rest.len() >= len {
                    self.buffer.advance(5);
                    return Ok(Some(M::decode(self.buffer.split_to(len)).unwrap()));
                }
            }
            match self.piece().await? {
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }

    /// How it ended, and what the service says about it.
    pub(crate) async fn status(&mut self) -> (Code, Option<Problem>) {
        let of = |headers: &HeaderMap| {
            let status = Status::from_header_map(headers)?;
            Some((status.code(), mailbox_wire::proto::problem(status.details())))
        };
        if let Some(status) = of(self.answer.headers()) {
            return status;
        }
        while self.piece().await.unwrap().is_some() {}
        let trailers = timeout(PATIENCE, self.answer.body_mut().trailers()).await.unwrap();
        of(&trailers.unwrap().expect("trailers")).expect("a status")
    }

    /// Waits until the service ends this alone; why.
    pub(crate) async fn reset(&mut self) -> Option<Reason> {
        let body = self.answer.body_mut();
        let ended = async {
            // What comes is not taken.
            while let Some(piece) = body.data().await {
                if let Err(error) = piece {
                    return error.reason();
                }
            }
            None
        };
        timeout(PATIENCE, ended).await.expect("it ends in time")
    }
}
