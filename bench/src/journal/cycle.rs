//! The whole life of a message, durable at every step: sent, received, acknowledged. A task waits
//! for the disk twice, so half of what the bare log sends would be perfect.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::journal::bare_log::BareLog;
use crate::journal::grouped::Grouped;
use crate::journal::load::{Sink, drive};
use crate::journal::ours::Ours;
use crate::journal::place::Place;
use crate::journal::{median, runtime};
use crate::report::Row;

const TASKS: usize = 64;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(1);
const SHARE_OF_BARE: f64 = 0.35;

/// Cycles a second against sends a second.
pub(crate) fn whole(place: &Place) -> Vec<Row> {
    let folder = place.folder("cycle");
    let runtime = runtime();
    let ours = runtime.block_on(Ours::open(&folder.path().join("journal")));
    let cycled = Arc::new(Cycled(Arc::clone(&ours)));
    let bare = Grouped::start(BareLog::new(folder.path()));

    drive(&runtime, &cycled, TASKS, ROUND);
    let (mut cycles, mut sends) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        cycles.push(drive(&runtime, &cycled, TASKS, ROUND));
        sends.push(drive(&runtime, &bare, TASKS, ROUND).per_second);
    }
    assert_eq!(runtime.block_on(ours.live()), 0, "as many were acknowledged as were sent");
    runtime.block_on(ours.close());

    let rate = median(cycles.iter().map(|load| load.per_second).collect());
    let cpu = median(cycles.iter().map(|load| load.cpu_micros).collect());
    let name = "journal send + receive + acknowledge, 64 tasks : sends of the bare log";
    vec![
        Row::compared(name, rate, median(sends)).in_unit("/s").at_least(SHARE_OF_BARE),
        Row::alone("  processor time of a cycle, 64 tasks", cpu, "us"),
    ]
}

/// A send here is a whole cycle: the body goes in, some message comes out and is done with.
struct Cycled(Arc<Ours>);

impl Sink for Cycled {
    async fn send(&self, body: Bytes) {
        self.0.send(body).await;
        let received = self.0.receive(1).await;
        self.0.acknowledge(received).await;
    }
}
