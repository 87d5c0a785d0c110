//! What is left on the disk after many messages have passed through a mailbox that always holds a
//! number of them: what is dead must go.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::journal::load::Bodies;
use crate::journal::ours::{BATCH, BATCH_TASKS, Ours, SEGMENT_LEN, share};
use crate::journal::place::{Place, files};
use crate::journal::{count_from, runtime};
use crate::report::Row;

const HELD: u64 = 100_000;
/// A payload of 1 KiB and what a record has beside it.
const MESSAGE_LEN: u64 = 1_160;
const LOOK_EVERY: Duration = Duration::from_millis(100);
const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Bytes on the disk against what the live messages allow.
pub(crate) fn passed_through(place: &Place) -> Vec<Row> {
    let count = count_from("MAILBOX_BENCH_PASSED", 10_000_000);
    let folder = place.folder("disk");
    let journal = folder.path().join("journal");
    let runtime = runtime();
    let (most, rate) = runtime.block_on(async {
        let ours = Ours::open(&journal).await;
        ours.fill(HELD).await;
        let start = Instant::now();
        let most = pass(&ours, &journal, count).await;
        let rate = count as f64 / start.elapsed().as_secs_f64();
        ours.in_order().await;
        assert_eq!(ours.live().await, HELD, "as many were acknowledged as were sent");
        // Not closed before it is measured: what counts is a journal at work.
        let left = used(&journal);
        ours.close().await;
        ((left, most), rate)
    });
    let (left, most) = most;
    let allowed = 2 * HELD * MESSAGE_LEN + 2 * u64::from(SEGMENT_LEN);
    let name = format!("journal on disk after {count} messages, {HELD} held : 2 x live + 2");
    let mebibytes = |bytes: u64| bytes as f64 / MEBIBYTE;
    vec![
        Row::compared(name, mebibytes(left), mebibytes(allowed)).in_unit("MiB").at_most(1.0),
        Row::compared("  the most there was at any time", mebibytes(most), mebibytes(allowed))
            .in_unit("MiB"),
        Row::alone("  messages passed through, in batches of 64", rate, "/s"),
    ]
}

/// Sends and works off `count` messages; returns the most bytes there were on the way.
async fn pass(ours: &Arc<Ours>, journal: &Path, count: u64) -> u64 {
    let started = Arc::new(AtomicU64::new(0));
    let bodies = Bodies::new();
    let task = |number: usize| {
        let (ours, started) = (Arc::clone(ours), Arc::clone(&started));
        let mut bodies = bodies.starting_at(number);
        tokio::spawn(async move {
            while let Some(size) = share(&started, count) {
                ours.send_batch((0..size).map(|_| bodies.next())).await;
                let mut left = size;
                while left > 0 {
                    let received = ours.receive(left as u32).await;
                    left -= received.len() as u64;
                    ours.acknowledge(received).await;
                }
            }
        })
    };
    let tasks: Vec<_> = (0..BATCH_TASKS).map(task).collect();
    let most = Arc::new(AtomicU64::new(0));
    let (journal, seen) = (journal.to_owned(), Arc::clone(&most));
    let looking = tokio::spawn(async move {
        loop {
            seen.fetch_max(used(&journal), Ordering::Relaxed);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    for task in tasks {
        task.await.expect("nothing fails on the way");
    }
    looking.abort();
    const { assert!(HELD > BATCH * BATCH_TASKS as u64, "a receive always finds a full batch") };
    most.load(Ordering::Relaxed)
}

/// Bytes that files take, holes not counted.
fn used(folder: &Path) -> u64 {
    let blocks = |path| std::fs::metadata(path).map_or(0, |found| found.blocks());
    files(folder).into_iter().map(blocks).sum::<u64>() * 512
}
