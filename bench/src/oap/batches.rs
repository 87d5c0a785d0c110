//! What a message of a batch costs the service: its processor time, as the kernel counts it. The
//! client's does not matter, though it is on the same machine.

use std::time::Duration;

use tokio::runtime::Runtime;

use super::asker::Load;
use super::talk::Turn;
use super::{BATCH, FEW, of, settle_up, warmed};
use crate::http::server::Server;
use crate::http::two_threads;
use crate::process;
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
    // A figure stays as it is, and its row is missed, if the kernel does not count.
    let (mut sends, mut cycles, mut sent_a_second) = (f64::NAN, f64::NAN, 0_f64);
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

/// A turn, and its messages per second of processor time; not a number if that is not known.
fn timed(runtime: &Runtime, ours: &Server, load: Load) -> (Turn, f64) {
    let before = process::cpu_time(ours.id());
    let turn = runtime.block_on(of(ours, load, FEW, TURN));
    (turn, per_second(turn.messages, before, process::cpu_time(ours.id())))
}

fn per_second(messages: u64, before: Option<Duration>, after: Option<Duration>) -> f64 {
    let used = after.zip(before).and_then(|(after, before)| after.checked_sub(before));
    let used = used.filter(|used| !used.is_zero());
    used.map_or(f64::NAN, |used| messages as f64 / used.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_figure_of_the_kernel_there_is_none() {
        let second = |count| Some(Duration::from_secs(count));
        assert_eq!(per_second(600, second(1), second(3)), 300.0);
        for (before, after) in [(None, None), (None, second(1)), (second(1), None)] {
            assert!(per_second(600, before, after).is_nan(), "{before:?} {after:?}");
        }
        for (before, after) in [(0, 0), (2, 2), (3, 2)] {
            assert!(per_second(600, second(before), second(after)).is_nan(), "{before} {after}");
        }
        assert!(Row::alone("", f64::NAN.max(f64::NAN), "/s").at_least(BOUND).is_missed());
    }
}
