//! The client of all contestants: so many connections, each with so many requests in flight. What
//! has come is heard together, and what that leads to is said together, so that as little as
//! possible of what is measured is the client's own.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What is read at a time, at most.
const READ: usize = 128 * 1024;
/// Messages of a turn, about: they have to fit into the memory of the machine, and into a mailbox.
const MOST: usize = 3_000_000;

/// One connection's side of a protocol.
pub(super) trait Talker: Send + 'static {
    /// Says what has to be said first.
    fn greet(&mut self, out: &mut Vec<u8>);

    /// Asks once, in one of the slots, which are numbered from 1.
    fn ask(&mut self, slot: usize, out: &mut Vec<u8>);

    /// Hears the next answer, if it is all there: how long it is, and what it means. What has to be
    /// said before the slot is done is said.
    fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<(usize, Heard)>;
}

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing was waiting for it, or it is not the last of its slot.
    Aside,
    /// A slot is done, with so many messages.
    Done(usize, u64),
    /// There is nothing left to receive: the slot is not used any more.
    Nothing,
}

/// How many at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    pub(super) connections: usize,
    /// On each of them.
    pub(super) in_flight: usize,
}

/// What came of a turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) messages: u64,
    time: Duration,
}

impl Turn {
    /// Messages a second.
    pub(super) fn rate(self) -> f64 {
        self.messages as f64 / self.time.as_secs_f64()
    }
}

/// Talks for so long, or until it is enough, or there is nothing left. Whatever was asked is
/// answered in the end.
pub(super) async fn turn<T: Talker>(
    address: SocketAddr,
    crowd: Crowd,
    time: Duration,
    talker: impl Fn() -> T,
) -> Turn {
    let started = Instant::now();
    let tasks: Vec<_> = (0..crowd.connections)
        .map(|_| tokio::spawn(talk(address, talker(), crowd, started + time)))
        .collect();
    let mut messages = 0;
    for task in tasks {
        messages += task.await.expect("a client does not panic");
    }
    Turn { messages, time: started.elapsed() }
}

/// One connection; how many messages that were.
async fn talk(address: SocketAddr, mut talker: impl Talker, crowd: Crowd, end: Instant) -> u64 {
    let (slots, most) = (crowd.in_flight, (MOST / crowd.connections) as u64);
    let mut stream = TcpStream::connect(address).await.expect("the server is there");
    stream.set_nodelay(true).expect("a connection that is open");
    let (mut input, mut out) = (BytesMut::new(), Vec::new());
    talker.greet(&mut out);
    (1..=slots).for_each(|slot| talker.ask(slot, &mut out));
    let (mut in_use, mut messages) = (slots, 0);
    while in_use > 0 {
        stream.write_all(&out).await.expect("the server reads");
        out.clear();
        input.reserve(READ);
        let read = stream.read_buf(&mut input).await.expect("the server answers");
        assert!(read > 0, "the server has closed the connection");
        let is_over = messages >= most || Instant::now() >= end;
        while let Some((len, heard)) = talker.hear(&input, &mut out) {
            input.advance(len);
            match heard {
                Heard::Aside => {}
                Heard::Nothing => in_use -= 1,
                Heard::Done(slot, count) => {
                    messages += count;
                    if is_over {
                        in_use -= 1;
                    } else {
                        talker.ask(slot, &mut out);
                    }
                }
            }
        }
    }
    messages
}
