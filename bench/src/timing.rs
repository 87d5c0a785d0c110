//! How things are timed. Contestants take turns, so that a disturbance hits all of them; the best
//! round of each counts, because disturbances only ever add time.

use std::time::Instant;

/// Rounds that each contestant runs.
const ROUNDS: usize = 15;

/// Something that can repeat its work.
pub(crate) trait Cycle {
    /// Does the work `times` times.
    fn run(&mut self, times: u32);
}

/// What the rounds of one contestant came to, in nanoseconds per cycle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    /// The best round: the cost of the code itself.
    pub(crate) best: f64,
    /// All rounds together: also pays for clean-ups that happen once in many cycles.
    pub(crate) mean: f64,
}

/// Lets all contestants take turns; their results are in the same order.
pub(crate) fn race<const N: usize>(times: u32, contestants: [&mut dyn Cycle; N]) -> [Timed; N] {
    let mut results = [Timed { best: f64::INFINITY, mean: 0.0 }; N];
    let mut contestants = contestants;
    for contestant in &mut contestants {
        contestant.run(times);
    }
    for _ in 0..ROUNDS {
        for (contestant, result) in contestants.iter_mut().zip(&mut results) {
            let start = Instant::now();
            contestant.run(times);
            let nanos = start.elapsed().as_secs_f64() * 1e9 / f64::from(times);
            result.best = result.best.min(nanos);
            result.mean += nanos / ROUNDS as f64;
        }
    }
    results
}

/// The longest of many single cycles, in microseconds: what a caller may have to wait for once.
pub(crate) fn longest(times: u32, contestant: &mut dyn Cycle) -> f64 {
    let one = |_| {
        let start = Instant::now();
        contestant.run(1);
        start.elapsed()
    };
    (0..times).map(one).max().unwrap_or_default().as_secs_f64() * 1e6
}
