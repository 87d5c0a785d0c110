//! Ours and another queue, in turns. Nobody pays for what others have left to the disk, or for
//! memory that is touched for the first time: a round that does not count comes first.

use std::net::SocketAddr;

use tokio::runtime::Runtime;

use super::super::asker::Load;
use super::super::talk::{Talker, turn};
use super::super::{Best, MANY, TURN, TURNS, of, settle_up};
use crate::http::server::Server;
use crate::journal::place::Place;

/// Another queue.
pub(super) trait Peer {
    type Talker: Talker;

    fn address(&self) -> SocketAddr;

    /// The client of one connection, with one message to a request.
    fn talker(load: Load) -> Self::Talker;

    /// Throws away what is waiting; how much that was.
    async fn empty(&self) -> u64;
}

/// The best turns of sends, and of receives with their acknowledgements.
pub(super) fn race<P: Peer>(
    runtime: &Runtime,
    place: &Place,
    ours: &Server,
    peer: &P,
) -> (Best, Best) {
    let (mut sends, mut cycles) = ((0_f64, 0_f64), (0_f64, 0_f64));
    let mine = |load| {
        place.rest();
        runtime.block_on(of(ours, load, MANY, TURN))
    };
    let theirs = |load| {
        place.rest();
        runtime.block_on(turn(peer.address(), MANY, TURN, || P::talker(load)))
    };
    for round in 0..=TURNS {
        let sent = (mine(Load::Sends(1)), theirs(Load::Sends(1)));
        let received = (mine(Load::Cycles(1)), theirs(Load::Cycles(1)));
        runtime.block_on(async {
            settle_up(ours, sent.0.messages, received.0.messages).await;
            let left = sent.1.messages - received.1.messages;
            assert_eq!(peer.empty().await, left, "messages that the peer has left");
        });
        if round > 0 {
            sends = (sends.0.max(sent.0.rate()), sends.1.max(sent.1.rate()));
            cycles = (cycles.0.max(received.0.rate()), cycles.1.max(received.1.rate()));
        }
    }
    (sends, cycles)
}
