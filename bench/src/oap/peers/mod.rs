//! Peers with equal durability, each by its own protocol, with as many connections and requests in
//! flight: beanstalkd and NATS `JetStream`, without a disk against ours in memory, and with a sync
//! before every answer, also to an acknowledgement, against ours in a journal. They have no
//! capabilities, hashes or ids; the ratios say what those cost.

mod beanstalk;
mod nats;
mod nats_server;

use std::net::SocketAddr;

use tokio::runtime::Runtime;

use super::asker::Load;
use super::talk::{Talker, turn};
use super::{Best, MANY, TURN, TURNS, of, settle_up};
use crate::http::peers::Beanstalkd;
use crate::http::server::Server;
use crate::http::two_threads;
use crate::journal::place::Place;
use crate::report::Row;
use beanstalk::Beanstalk;
use nats::Nats;
use nats_server::NatsServer;

/// Sends and cycles of each, against ours.
pub(crate) fn compared(place: &Place) -> Vec<Row> {
    let runtime = &two_threads();
    let mut rows = Vec::new();
    for store in ["memory", "journal"] {
        let folder = place.folder(&format!("oap-peers-{store}"));
        let is_durable = store == "journal";
        let path = folder.path().join("data").display().to_string();
        let ours = Server::start(&[store, &path]);
        match Beanstalkd::start(is_durable.then(|| folder.path())) {
            Some(peer) => {
                let raced = race(runtime, &ours, peer.address, Beanstalk::new, || {});
                rows.extend(shown(store, "beanstalkd", raced));
            }
            None => rows.push(missing("beanstalkd is not installed")),
        }
        match NatsServer::start(folder.path(), is_durable) {
            Some(peer) => {
                runtime.block_on(peer.prepare());
                let purge = || runtime.block_on(peer.purge());
                let raced = race(runtime, &ours, peer.address, Nats::new, purge);
                rows.extend(shown(store, "NATS JetStream", raced));
            }
            None => rows.push(missing("nats-server does not start")),
        }
    }
    rows
}

fn shown(store: &str, peer: &str, (sends, cycles): (Best, Best)) -> [Row; 2] {
    let what = format!("oap {store}, 8 x 16 in flight : {peer}");
    [("sends/s", sends), ("receive + ack/s", cycles)]
        .map(|(name, best)| Row::compared(format!("{what}, {name}"), best.0, best.1).in_unit("/s"))
}

/// A figure that is missing is one that is missed.
fn missing(why: &str) -> Row {
    Row::alone(format!("oap: {why}"), f64::NAN, "/s").at_least(0.0)
}

fn race<T: Talker>(
    runtime: &Runtime,
    ours: &Server,
    address: SocketAddr,
    talker: impl Fn(Load) -> T,
    purge: impl Fn(),
) -> (Best, Best) {
    let (mut sends, mut cycles) = ((0_f64, 0_f64), (0_f64, 0_f64));
    let theirs = |load| runtime.block_on(turn(address, MANY, TURN, || talker(load)));
    for _ in 0..TURNS {
        let sent = runtime.block_on(of(ours, Load::Sends(1), MANY, TURN));
        let its = theirs(Load::Sends(1));
        sends = (sends.0.max(sent.rate()), sends.1.max(its.rate()));
        let received = runtime.block_on(of(ours, Load::Cycles(1), MANY, TURN));
        let its = theirs(Load::Cycles(1));
        cycles = (cycles.0.max(received.rate()), cycles.1.max(its.rate()));
        runtime.block_on(settle_up(ours, sent.messages, received.messages));
        purge();
    }
    (sends, cycles)
}
