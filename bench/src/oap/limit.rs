//! What is left of a connection when a service is behind it: against a server that only writes
//! frames back, and against the same service over HTTP with as many requests in flight.

use tokio::runtime::Runtime;

use super::asker::Load;
use super::lengths::of_answers;
use super::{Best, Crowd, MANY, ONE, TURN, TURNS, of, settle_up, threads, warmed};
use crate::http::client::{self, Batch};
use crate::http::server::Server;
use crate::http::two_threads;
use crate::report::Row;

/// Of the echo's requests.
const MANY_BOUND: f64 = 0.5;
const ONE_BOUND: f64 = 0.8;
/// Times what goes over HTTP.
const HTTP_BOUND: f64 = 3.0;
/// Over HTTP a connection has one request at a time, so there are more of them.
const HTTP_CONNECTIONS: usize = MANY.connections * MANY.in_flight;

/// Ours, the echo of the same frames, and the echo with frames as long as our answers.
const CONTESTANTS: usize = 3;

/// Ours against the limit, with many requests in flight and with one. The bounds are on the echo of
/// the same frames. It writes, and the client reads, more than with us for a send and less for a
/// receive; what that is worth, the other echo shows.
pub(crate) fn against_echo() -> Vec<Row> {
    let runtime = two_threads();
    let (ours, same) = (warmed(&runtime), Server::start(&["echo"]));
    let long = runtime.block_on(as_long_as(&ours, &same));
    let mut rows = Vec::new();
    for (crowd, bound) in [(MANY, MANY_BOUND), (ONE, ONE_BOUND)] {
        let (sends, cycles) = race(&runtime, [&ours, &same, &long], crowd);
        let Crowd { connections, in_flight } = crowd;
        let row = |what: &str, peer: &str, server: &Server, best: Best| {
            let threads = threads(ours.id(), server.id());
            let crowd = format!("oap memory, {connections} x {in_flight} in flight");
            Row::compared(format!("{crowd}: {what}/s : {peer}{threads}"), best.0, best.1)
                .in_unit("/s")
        };
        rows.push(row("sends", "echo", &same, (sends[0], sends[1])).at_least(bound));
        rows.push(row("receive + ack", "echo", &same, (cycles[0], cycles[1])));
        let as_long = "echo as long as ours";
        rows.push(row("sends", as_long, &long, (sends[0], sends[2])));
        rows.push(row("receive + ack", as_long, &long, (cycles[0], cycles[2])));
    }
    rows
}

/// An echo whose answers are as long as those of the service.
async fn as_long_as(ours: &Server, echo: &Server) -> Server {
    let words = of_answers(ours, echo).await;
    // One was sent, received and acknowledged to find out.
    settle_up(ours, 1, 1).await;
    let words: Vec<&str> = ["echo"].into_iter().chain(words.iter().map(String::as_str)).collect();
    Server::start(&words)
}

/// Sends, and receives with their acknowledgements, the best turns of each.
fn race(
    runtime: &Runtime,
    all: [&Server; CONTESTANTS],
    crowd: Crowd,
) -> ([f64; CONTESTANTS], [f64; CONTESTANTS]) {
    let (mut sends, mut cycles) = ([0_f64; CONTESTANTS], [0_f64; CONTESTANTS]);
    for _ in 0..TURNS {
        let turns = |load| all.map(|server| runtime.block_on(of(server, load, crowd, TURN)));
        let sent = turns(Load::Sends(1));
        // What was just sent is there to be received.
        let received = turns(Load::Cycles(1));
        for at in 0..CONTESTANTS {
            sends[at] = sends[at].max(sent[at].rate());
            cycles[at] = cycles[at].max(received[at].rate());
        }
        runtime.block_on(settle_up(all[0], sent[0].messages, received[0].messages));
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
        let over_http = runtime.block_on(client::run(&ours, load, HTTP_CONNECTIONS, TURN));
        runtime.block_on(client::purge(&ours));
        best = (best.0.max(sent.rate()), best.1.max(over_http));
    }
    let Crowd { connections, in_flight } = MANY;
    let name = format!(
        "oap memory, {connections} x {in_flight} in flight: sends/s : http, \
         {HTTP_CONNECTIONS} connections"
    );
    vec![Row::compared(name, best.0, best.1).in_unit("/s").at_least(HTTP_BOUND)]
}
