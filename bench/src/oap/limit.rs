//! What is left of a connection when a service is behind it: against a server that only writes
//! frames back, and against the same service over HTTP.

use tokio::runtime::Runtime;

use super::asker::Load;
use super::{Best, Crowd, MANY, ONE, TURN, TURNS, of, settle_up, warmed};
use crate::http::client::{self, Batch};
use crate::http::server::Server;
use crate::http::{CONNECTIONS, two_threads};
use crate::report::Row;

/// Of the echo's requests.
const MANY_BOUND: f64 = 0.5;
const ONE_BOUND: f64 = 0.8;
/// Times what goes over HTTP.
const HTTP_BOUND: f64 = 3.0;

/// Ours against the limit, with many requests in flight and with one.
pub(crate) fn against_echo() -> Vec<Row> {
    let runtime = two_threads();
    let (ours, echo) = (warmed(&runtime), Server::start(&["echo"]));
    let mut rows = Vec::new();
    for (crowd, bound) in [(MANY, MANY_BOUND), (ONE, ONE_BOUND)] {
        let (sends, cycles) = race(&runtime, &ours, &echo, crowd);
        let Crowd { connections, in_flight } = crowd;
        let what = format!("oap memory, {connections} x {in_flight} in flight");
        let row = Row::compared(format!("{what}: sends/s : echo"), sends.0, sends.1);
        rows.push(row.in_unit("/s").at_least(bound));
        let row = Row::compared(format!("{what}: receive + ack/s : echo"), cycles.0, cycles.1);
        rows.push(row.in_unit("/s"));
    }
    rows
}

/// Sends, and receives with their acknowledgements.
fn race(runtime: &Runtime, ours: &Server, echo: &Server, crowd: Crowd) -> (Best, Best) {
    let (mut sends, mut cycles) = ((0_f64, 0_f64), (0_f64, 0_f64));
    for _ in 0..TURNS {
        let sent = runtime.block_on(of(ours, Load::Sends(1), crowd, TURN));
        let theirs = runtime.block_on(of(echo, Load::Sends(1), crowd, TURN));
        sends = (sends.0.max(sent.rate()), sends.1.max(theirs.rate()));
        // What was just sent is there to be received.
        let received = runtime.block_on(of(ours, Load::Cycles(1), crowd, TURN));
        let theirs = runtime.block_on(of(echo, Load::Cycles(1), crowd, TURN));
        cycles = (cycles.0.max(received.rate()), cycles.1.max(theirs.rate()));
        runtime.block_on(settle_up(ours, sent.messages, received.messages));
    }
    (sends, cycles)
}

/// The same service by its two protocols, each as it is used.
pub(crate) fn against_http() -> Vec<Row> {
    let runtime = two_threads();
    let ours = warmed(&runtime);
    let mut best: Best = (0.0, 0.0);
    for _ in 0..TURNS {
        let sent = runtime.block_on(of(&ours, Load::Sends(1), MANY, TURN));
        runtime.block_on(settle_up(&ours, sent.messages, 0));
        let load = client::Load::Sends(Batch::One);
        let over_http = runtime.block_on(client::run(&ours, load, CONNECTIONS, TURN));
        runtime.block_on(client::purge(&ours));
        best = (best.0.max(sent.rate()), best.1.max(over_http));
    }
    let name = "oap memory, 8 x 16 in flight: sends/s : http, 64 connections";
    vec![Row::compared(name, best.0, best.1).in_unit("/s").at_least(HTTP_BOUND)]
}
