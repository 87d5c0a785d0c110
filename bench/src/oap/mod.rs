//! The service over OAP/1 against the limit, which is a server that writes frames back, against
//! itself over HTTP, and against peers with equal durability. One client for all of them, with the
//! same requests in flight; servers are processes of their own, and take turns.

mod asker;
pub(crate) mod batches;
pub(crate) mod echo;
mod fields;
mod lengths;
pub(crate) mod limit;
pub(crate) mod peers;
mod talk;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mailbox_wire::call::{Reply, Request, TopicRequest};
use mailbox_wire::oap::{APP_PROTO, Decoder, Flags, Frame, Header};
use mailbox_wire::proto::{Asked, read_reply, write_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use crate::http::server::Server;
use crate::process;
use asker::{Asker, Load};
use talk::{Crowd, Turn, turn};

/// How long a turn takes, and how many there are.
const TURN: Duration = Duration::from_millis(1200);
const TURNS: usize = 4;
/// As many as make sense on one machine, and a quarter of what a connection may have in flight.
const MANY: Crowd = Crowd { connections: 8, in_flight: 16 };
const ONE: Crowd = Crowd { connections: 1, in_flight: 1 };
/// Enough for requests of many messages each.
const FEW: Crowd = Crowd { connections: 4, in_flight: 4 };
/// Messages to a request where there are many.
const BATCH: usize = 64;
const TOPIC: &str = "jobs";
const PAYLOAD_LEN: usize = 1024;

/// Ours and a peer's, the best turn of each.
type Best = (f64, f64);

/// A service in memory that has had many messages before. To touch memory for the first time costs
/// far more than a message does where the machine is a virtual one, and says nothing about the
/// service.
fn warmed(runtime: &Runtime) -> Server {
    let ours = Server::start(&["memory"]);
    for _ in 0..2 {
        let sent = runtime.block_on(of(&ours, Load::Sends(BATCH), FEW, 2 * TURN));
        runtime.block_on(settle_up(&ours, sent.messages, 0));
    }
    ours
}

/// How many threads each of two servers works with, by their processes, unless it is the same: how
/// a row goes on. Go moves its work between more threads than it lets run at a time.
fn threads(ours: u32, peer: u32) -> String {
    let (ours, peer) = (process::threads(ours), process::threads(peer));
    let shown = |count: Option<usize>| count.map_or("?".to_owned(), |count| count.to_string());
    match ours == peer {
        true => String::new(),
        false => format!(", threads {} : {}", shown(ours), shown(peer)),
    }
}

/// A turn of a service, or of the echo.
async fn of(server: &Server, load: Load, crowd: Crowd, time: Duration) -> Turn {
    turn(server.oap, crowd, time, || Asker::new(load, server.needed(), crowd.in_flight)).await
}

/// Empties the mailbox, so that every turn begins alike. What was answered must be true: as much is
/// in it as was sent and not acknowledged.
async fn settle_up(server: &Server, sent: u64, acknowledged: u64) {
    let purge = Request::Purge(TopicRequest { topic: TOPIC.to_owned() });
    match call(server, purge).await {
        Reply::Purged(purged) => {
            assert_eq!(purged.removed, sent - acknowledged, "messages that are left");
        }
        other => panic!("a purge was answered {other:?}"),
    }
}

/// One call by itself, whose answer is read in full.
async fn call(server: &Server, request: Request) -> Reply {
    let mut stream = TcpStream::connect(server.oap).await.expect("the server is there");
    let header = Header::new(Flags::REQ | Flags::START | Flags::END, APP_PROTO, 1);
    let payload = Bytes::from(write_request(Asked::Call(request)));
    let cap = Bytes::copy_from_slice(server.capability.as_bytes());
    let mut bytes = BytesMut::new();
    let frame = Frame { cap, ..Frame::new(header, payload) };
    frame.encode(&mut bytes).expect("it fits into a frame");
    stream.write_all(&bytes).await.expect("the server reads");
    bytes.clear();
    let mut decoder = Decoder::default();
    loop {
        if let Some(answer) = decoder.decode(&mut bytes).expect("a frame in order") {
            let text = String::from_utf8_lossy(&answer.payload);
            assert_eq!(answer.code, 200, "{text}");
            return read_reply(answer.payload.clone()).expect("a good answer can be read");
        }
        let read = stream.read_buf(&mut bytes).await.expect("the server answers");
        assert!(read > 0, "the server has closed the connection");
    }
}
