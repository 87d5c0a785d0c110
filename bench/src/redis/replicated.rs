//! The same when a send and an acknowledgement wait for the replica: those that wait at the same
//! time wait together.

use std::time::{Duration, Instant};

use mailbox::Durability;
use mailbox_redis_servers::Node;

use crate::redis::batches::rate;
use crate::redis::ours::Ours;
use crate::redis::{TASKS, two_threads};
use crate::report::Row;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(300);
/// For the replica to have copied its master, which is empty.
const JOINING: Duration = Duration::from_secs(30);

/// A master with one replica.
pub(crate) fn to_one_replica() -> Vec<Row> {
    let name = |tasks: usize| {
        format!("redis messages, replicated, {tasks} at a time, 1 to a call : not replicated")
    };
    let Some((master, _replica)) = start() else {
        return vec![Row::alone(name(1), f64::NAN, "/s").at_least(0.0)];
    };
    let runtime = two_threads();
    let (replicated, not) = runtime.block_on(async {
        (
            Ours::open_with(&master, "replicated", Durability::Replicated).await,
            Ours::open(&master, "not").await,
        )
    });
    let row = |tasks: usize| {
        let (mut ours, mut peer) = (0.0_f64, 0.0_f64);
        for _ in 0..ROUNDS {
            ours = ours.max(rate(&runtime, &replicated, tasks, 1, ROUND));
            peer = peer.max(rate(&runtime, &not, tasks, 1, ROUND));
        }
        Row::compared(name(tasks), ours, peer).in_unit("/s")
    };
    let rows = [1, TASKS].map(row).into();
    runtime.block_on(async {
        replicated.close().await;
        not.close().await;
    });
    rows
}

/// Both, when the replica follows.
fn start() -> Option<(Node, Node)> {
    let master = Node::start(&[]).ok()?;
    let follow = format!("{} {}", master.host(), master.port());
    let replica = Node::start(&[("replicaof", &follow)]).ok()?;
    let mut connection = master.connect().ok()?;
    let start = Instant::now();
    while start.elapsed() < JOINING {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut connection).ok()?;
        if info.contains("state=online") {
            return Some((master, replica));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}
