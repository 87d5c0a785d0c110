//! What a message of a batch costs the service: its processor time, as the kernel counts it. The
//! client's does not matter, though it is on the same machine.

use std::time::Duration;

use tokio::runtime::Runtime;

use super::asker::Load;
use super::talk::Turn;
use super::{BATCH, FEW, of, settle_up, warmed};
use crate::http::server::Server;
use crate::http::two_threads;
use crate::report::Row;

/// The kernel counts in hundredths of a second, so turns are longer than elsewhere.
const TURN: Duration = Duration::from_secs(3);
const TURNS: usize = 3;
/// Messages per second of processor time.
const BOUND: f64 = 500_000.0;

/// Sends, and receives with their acknowledgements, in batches.
pub(crate) fn by_processor_time() -> Vec<Row> {
    let runtime = two_threads();
    let ours = warmed(&runtime);
    let (mut sends, mut cycles, mut sent_a_second) = (0_f64, 0_f64, 0_f64);
    for _ in 0..TURNS {
        let (sent, by_processor) = timed(&runtime, &ours, Load::Sends(BATCH));
        sends = sends.max(by_processor);
        sent_a_second = sent_a_second.max(sent.rate());
        let (received, by_processor) = timed(&runtime, &ours, Load::Cycles(BATCH));
        cycles = cycles.max(by_processor);
        runtime.block_on(settle_up(&ours, sent.messages, received.messages));
    }
    let what = "oap memory, batches of 64, per second of the server's processor";
    vec![
        Row::alone(format!("{what}: sends"), sends, "/s").at_least(BOUND),
        Row::alone(format!("{what}: receive + ack"), cycles, "/s"),
        Row::alone("oap memory, batches of 64, 4 x 4 in flight: sends/s", sent_a_second, "/s"),
    ]
}

/// A turn, and its messages per second of processor time.
fn timed(runtime: &Runtime, ours: &Server, load: Load) -> (Turn, f64) {
    let before = ours.cpu_time();
    let turn = runtime.block_on(of(ours, load, FEW, TURN));
    let used = ours.cpu_time() - before;
    (turn, turn.messages as f64 / used.as_secs_f64())
}
