//! The service over HTTP against the limit: the same server that answers a constant to every
//! request, with the same client. Servers are processes of their own; they take turns. Then peers
//! with equal durability.

pub(crate) mod client;
mod constant;
pub(crate) mod overload;
pub(crate) mod paced;
pub(crate) mod peers;
pub(crate) mod server;
pub(crate) mod slow;

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::journal::place::Place;
use crate::report::Row;
use client::{Batch, Load};
use server::Server;

pub(crate) use server::serve_as_child;

/// Connections at a time.
const CONNECTIONS: usize = 64;
/// How long a turn takes, and how many there are.
const TURN: Duration = Duration::from_millis(1200);
const TURNS: usize = 4;
/// Of the limit's requests, for single calls.
const MEMORY_BOUND: f64 = 0.6;
const JOURNAL_BOUND: f64 = 0.3;

/// Ours against the limit.
pub(crate) fn against_constant(place: &Place) -> Vec<Row> {
    let runtime = two_threads();
    let mut rows = Vec::new();
    for (store, bound) in [("memory", MEMORY_BOUND), ("journal", JOURNAL_BOUND)] {
        let folder = place.folder(&format!("http-{store}"));
        let limit = Server::start(&["constant"]);
        let path = folder.path().join("data").display().to_string();
        let ours = Server::start(&[store, &path]);
        for (batch, name) in [(Batch::One, "single"), (Batch::Ten, "batch 10")] {
            let (sends, cycles) = against_limit(&runtime, &ours, &limit, batch);
            let what = format!("http {store}, 64 connections, {name}");
            let send = Row::compared(format!("{what}: sends/s : constant"), sends.0, sends.1);
            let cycle =
                Row::compared(format!("{what}: receive + ack/s : constant"), cycles.0, cycles.1);
            let is_bound = batch == Batch::One;
            for row in [send.in_unit("/s"), cycle.in_unit("/s")] {
                rows.push(if is_bound { row.at_least(bound) } else { row });
            }
        }
    }
    rows
}

/// Best turns of sends, and of receives with their acknowledgements, ours and the limit's.
fn against_limit(
    runtime: &Runtime,
    ours: &Server,
    limit: &Server,
    batch: Batch,
) -> ((f64, f64), (f64, f64)) {
    let (mut sends, mut cycles) = ((0_f64, 0_f64), (0_f64, 0_f64));
    for _ in 0..TURNS {
        let mine = runtime.block_on(client::run(ours, Load::Sends(batch), CONNECTIONS, TURN));
        let theirs = runtime.block_on(client::run(limit, Load::Sends(batch), CONNECTIONS, TURN));
        sends = (sends.0.max(mine), sends.1.max(theirs));
        // What was just sent is there to be received, and more than can be in a turn.
        let mine = runtime.block_on(client::run(ours, Load::Cycles(batch), CONNECTIONS, TURN));
        let theirs = runtime.block_on(client::run(limit, Load::Cycles(batch), CONNECTIONS, TURN));
        cycles = (cycles.0.max(mine), cycles.1.max(theirs));
        runtime.block_on(client::purge(ours));
    }
    (sends, cycles)
}

pub(crate) fn two_threads() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime starts")
}
