//! A single send when nothing else is going on: nearly all of it should be the disk's.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use crate::journal::load::{BODY_LEN, Bodies, Sink};
use crate::journal::ours::Ours;
use crate::journal::place::{Place, zeros};
use crate::journal::{quantile, runtime};
use crate::report::Row;

/// Each side's turns, and what it does in one.
const TURNS: usize = 100;
const IN_A_TURN: usize = 20;
const FILE_LEN: u64 = 4 * 1024 * 1024;
const BOUND: f64 = 1.3;

/// One producer, one message at a time, against one write and one `fdatasync`.
pub(crate) fn single_send(place: &Place) -> Vec<Row> {
    let folder = place.folder("latency");
    let runtime = runtime();
    let ours = runtime.block_on(Ours::open(&folder.path().join("journal")));
    let file = zeros(&folder.path().join("synced"), FILE_LEN).expect("there is room for a file");
    let mut bodies = Bodies::new();
    let mut at = 0;
    let mut write_and_sync = || {
        let body = bodies.next();
        let start = Instant::now();
        file.write_all_at(&body, at).expect("the file can be written");
        file.sync_data().expect("the file can be synced");
        at = (at + BODY_LEN as u64) % FILE_LEN;
        start.elapsed().as_secs_f64() * 1e6
    };
    let sends = || {
        let ours = Arc::clone(&ours);
        async move {
            let mut bodies = Bodies::new();
            let mut micros = Vec::with_capacity(IN_A_TURN);
            for _ in 0..IN_A_TURN {
                let start = Instant::now();
                ours.send(bodies.next()).await;
                micros.push(start.elapsed().as_secs_f64() * 1e6);
            }
            micros
        }
    };

    let (mut sent, mut synced) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let turn = runtime.spawn(sends());
        sent.extend(runtime.block_on(turn).expect("a producer does not panic"));
        synced.extend((0..IN_A_TURN).map(|_| write_and_sync()));
    }
    runtime.block_on(ours.close());
    let name = "journal send, one at a time : write + fdatasync";
    let p50 =
        Row::compared(format!("{name}, p50"), quantile(&mut sent, 0.5), quantile(&mut synced, 0.5));
    let p99 = Row::compared(
        format!("{name}, p99"),
        quantile(&mut sent, 0.99),
        quantile(&mut synced, 0.99),
    );
    vec![p50.in_unit("us").at_most(BOUND), p99.in_unit("us")]
}
