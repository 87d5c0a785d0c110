//! How long the frames are that a server answers with. An echo of what was asked writes far more
//! than the service does to a send and far less to a receive; told these lengths, it does neither.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::asker::{Asker, Load};
use super::talk::{Heard, Talker};
use crate::http::server::Server;

/// What an echo is told so that its answers are as long as those of the service. There has to be a
/// message that can be received.
pub(super) async fn of_answers(ours: &Server, echo: &Server) -> Vec<String> {
    let mut words = Vec::new();
    for load in [Load::Sends(1), Load::Cycles(1)] {
        let answers = exchanges(ours, load).await;
        // An echo knows a request by its length, and is asked by a client that has no handles.
        let asked = exchanges(echo, load).await;
        assert_eq!(answers.len(), asked.len(), "requests of {load:?}");
        words.extend(
            asked.iter().zip(answers).map(|(it, (_, answer))| format!("{}:{answer}", it.0)),
        );
    }
    words
}

/// The frames of one turn of one slot: how long is what was asked, and what was answered.
async fn exchanges(server: &Server, load: Load) -> Vec<(usize, usize)> {
    let mut stream = TcpStream::connect(server.oap).await.expect("the server is there");
    let mut asker = Asker::new(load, server.needed(), 1);
    let (mut input, mut out, mut next) = (BytesMut::new(), Vec::new(), Vec::new());
    asker.greet(&mut out);
    exchange(&mut stream, &mut asker, &mut input, &out, &mut next).await;
    out.clear();
    asker.ask(1, &mut out);
    let mut lengths = Vec::new();
    loop {
        let (len, heard) = exchange(&mut stream, &mut asker, &mut input, &out, &mut next).await;
        lengths.push((out.len(), len));
        match heard {
            Heard::Aside => out = std::mem::take(&mut next),
            Heard::Done(..) => return lengths,
            Heard::Nothing => panic!("there was nothing to receive"),
        }
    }
}

/// Asks, and hears one answer; what it leads to is written to `next`.
async fn exchange(
    stream: &mut TcpStream,
    asker: &mut Asker,
    input: &mut BytesMut,
    out: &[u8],
    next: &mut Vec<u8>,
) -> (usize, Heard) {
    stream.write_all(out).await.expect("the server reads");
    loop {
        if let Some((len, heard)) = asker.hear(input, next) {
            input.advance(len);
            return (len, heard);
        }
        let read = stream.read_buf(input).await.expect("the server answers");
        assert!(read > 0, "the server has closed the connection");
    }
}
