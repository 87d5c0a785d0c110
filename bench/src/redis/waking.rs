//! How soon a receive that waits has a message that was just sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox_redis_servers::Node;

use crate::journal::load::Bodies;
use crate::journal::quantile;
use crate::redis::ours::Ours;
use crate::redis::two_threads;
use crate::report::Row;

const MESSAGES: usize = 300;
/// Between two messages, so that whoever waits is asleep.
const PAUSE: Duration = Duration::from_millis(7);

/// From the call of `send` by one client to the moment that another one has the message.
pub(crate) fn of_a_waiting_receive(node: &Node) -> Vec<Row> {
    let runtime = two_threads();
    let mut micros = runtime.block_on(async {
        let sender = Ours::open(node, "waking").await;
        let receiver = Ours::open(node, "waking").await;
        let (arrived, mut arrivals) = tokio::sync::mpsc::channel(1);
        let waiting = Arc::clone(&receiver);
        let task = tokio::spawn(async move {
            for _ in 0..MESSAGES {
                let received = waiting.receive(1).await;
                arrived.send(Instant::now()).await.expect("it is waited for");
                waiting.acknowledge(received).await;
            }
        });
        let (mut bodies, mut micros) = (Bodies::new(), Vec::with_capacity(MESSAGES));
        for _ in 0..MESSAGES {
            tokio::time::sleep(PAUSE).await;
            let start = Instant::now();
            sender.send_one(bodies.next()).await;
            let arrival = arrivals.recv().await.expect("the receiver runs");
            micros.push((arrival - start).as_nanos() as f64 / 1e3);
        }
        task.await.expect("no panic");
        sender.close().await;
        receiver.close().await;
        micros
    });
    let name = "redis wake-up of a waiting receive by another client";
    vec![
        Row::alone(format!("{name}, p50"), quantile(&mut micros, 0.5), "us"),
        Row::alone(format!("{name}, p95"), quantile(&mut micros, 0.95), "us"),
    ]
}
