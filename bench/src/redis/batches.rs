//! Several messages to a call and several tasks at a time, against one task with one message at a
//! time; and how fast one task receives ten at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox_redis_servers::Node;
use tokio::runtime::Runtime;

use crate::journal::load::Bodies;
use crate::redis::ours::Ours;
use crate::redis::{BATCH, TASKS, two_threads};
use crate::report::Row;

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(300);
const TIMES_ONE_BY_ONE: f64 = 5.0;
/// Messages of a round of receives.
const BACKLOG: usize = 2_000;

/// Tasks, and messages to a call.
const WAYS: [(usize, usize); 4] = [(1, 1), (1, BATCH), (TASKS, 1), (TASKS, BATCH)];

/// All ways take turns.
pub(crate) fn against_one_by_one(node: &Node) -> Vec<Row> {
    let runtime = two_threads();
    let ours = runtime.block_on(Ours::open(node, "batches"));
    let mut best = [0.0_f64; WAYS.len()];
    let mut received = 0.0_f64;
    for _ in 0..ROUNDS {
        for ((tasks, batch), best) in WAYS.into_iter().zip(&mut best) {
            *best = best.max(rate(&runtime, &ours, tasks, batch, ROUND));
        }
        received = received.max(receives(&runtime, &ours));
    }
    runtime.block_on(ours.close());
    let [one_by_one, ..] = best;
    let row = |(tasks, batch): (usize, usize), rate: f64| {
        let name = format!("redis messages, {tasks} at a time, {batch} to a call : one by one");
        Row::compared(name, rate, one_by_one).in_unit("/s")
    };
    let [_, in_one_call, at_a_time, both] = [0, 1, 2, 3].map(|way| row(WAYS[way], best[way]));
    let name = format!("redis receives, {BATCH} to a call, by one task");
    vec![both.at_least(TIMES_ONE_BY_ONE), in_one_call, at_a_time, Row::alone(name, received, "/s")]
}

/// Messages a second that are sent, received and acknowledged.
pub(crate) fn rate(
    runtime: &Runtime,
    ours: &Arc<Ours>,
    tasks: usize,
    batch: usize,
    lasting: Duration,
) -> f64 {
    let bodies = Bodies::new();
    let start = Instant::now();
    let work = |number: usize| {
        let (ours, mut bodies) = (Arc::clone(ours), bodies.starting_at(number));
        runtime.spawn(async move {
            let mut done = 0;
            while start.elapsed() < lasting {
                ours.cycle(&mut bodies, batch).await;
                done += batch;
            }
            done
        })
    };
    let tasks: Vec<_> = (0..tasks).map(work).collect();
    let done: usize = runtime.block_on(async {
        let mut done = 0;
        for task in tasks {
            done += task.await.expect("no panic");
        }
        done
    });
    done as f64 / start.elapsed().as_secs_f64()
}

/// Messages a second that are received, and not acknowledged.
fn receives(runtime: &Runtime, ours: &Arc<Ours>) -> f64 {
    let ours = Arc::clone(ours);
    let task = runtime.spawn(async move {
        let mut bodies = Bodies::new();
        for _ in 0..BACKLOG / BATCH {
            ours.send(&mut bodies, BATCH).await;
        }
        let (start, mut received) = (Instant::now(), 0);
        while received < BACKLOG {
            received += ours.receive(BATCH).await.len();
        }
        let rate = received as f64 / start.elapsed().as_secs_f64();
        ours.clear().await;
        rate
    });
    runtime.block_on(task).expect("no panic")
}
