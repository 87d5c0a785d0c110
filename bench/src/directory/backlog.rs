//! A hundred thousand files that wait: how soon the first is received by a process that has just
//! started, and how fast one process takes the others.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::directory::child::Receiver;
use crate::directory::ours::{MAILBOX, Ours};
use crate::journal::place::Place;
use crate::journal::{count_from, median, runtime};
use crate::report::Row;

const STARTS: usize = 3;
/// From the start of the process to its first message, in milliseconds.
const FIRST: f64 = 1_000.0;
/// Messages a second, by one process.
const CLAIMS: f64 = 2_000.0;
/// No part of it takes longer, however slow the disk is.
const AT_MOST: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(5);

/// Flat, and spread over folders.
pub(crate) fn waiting_files(place: &Place) -> Vec<Row> {
    let runtime = runtime();
    let count = count_from("MAILBOX_BENCH_FILES", 100_000);
    let mut rows = Vec::new();
    for (how, is_sharded) in [("flat", false), ("sharded", true)] {
        let folder = place.folder(&format!("directory-{how}"));
        let inboxes = folder.path().join("inboxes");
        runtime.block_on(async {
            let ours = Ours::make(&inboxes, is_sharded).await;
            ours.fill(count).await;
            ours.close().await;
        });
        place.rest();
        rows.extend(first(&inboxes, count, how));
        rows.extend(all_others(place, &runtime, &inboxes, count, how));
    }
    rows
}

fn first(inboxes: &Path, count: u64, how: &str) -> [Row; 2] {
    let start_one = || {
        let start = Instant::now();
        let received = Receiver::first(inboxes).next_line();
        if received { start.elapsed().as_secs_f64() * 1e3 } else { f64::NAN }
    };
    let again = median((0..STARTS).map(|_| start_one()).collect());
    let after_boot = median(
        (0..STARTS)
            .map(|_| {
                forget_boot(inboxes);
                start_one()
            })
            .collect(),
    );
    let row = |when: &str, millis: f64| {
        let name = format!("directory first receive {when}, {count} waiting, {how}");
        Row::alone(name, millis, "ms").at_most(FIRST)
    };
    [row("of a process", again), row("after a boot", after_boot)]
}

/// As if the machine had been started since: nobody has set the inbox's clock.
fn forget_boot(inboxes: &Path) {
    let anchors = inboxes.join(MAILBOX).join(".clock");
    for anchor in std::fs::read_dir(anchors).into_iter().flatten().flatten() {
        std::fs::remove_file(anchor.path()).ok();
    }
}

/// What is measured with a share of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settles {
    /// They stay in flight.
    Never,
    /// Acknowledged without waiting for the disk.
    Lazily,
    /// Acknowledged when the disk has it, one sync for what was received together.
    Durably,
}

const SHARES: [(Settles, u32, &str); 5] = [
    (Settles::Lazily, 10, "claim + lazy ack, 10 at a time"),
    (Settles::Durably, 10, "claim + durable ack, 10 at a time"),
    (Settles::Durably, 256, "claim + durable ack, 256 at a time"),
    (Settles::Never, 256, "claims, 256 at a time"),
    (Settles::Never, 10, "claims, 10 at a time"),
];

fn all_others(place: &Place, runtime: &Runtime, inboxes: &Path, count: u64, how: &str) -> Vec<Row> {
    let share = count / SHARES.len() as u64 - 16;
    let rate = |(settles, at_a_time, what): (Settles, u32, &str)| {
        let rate = runtime.block_on(async {
            let ours = match settles {
                Settles::Lazily => Ours::open_lazy(inboxes).await,
                Settles::Never | Settles::Durably => Ours::open(inboxes).await,
            };
            let rate = work_off(&ours, share, at_a_time, settles).await;
            ours.close().await;
            rate
        });
        place.rest();
        let name = format!("directory {what}, one process, {count} waiting, {how}");
        let row = Row::alone(name, rate, "/s");
        // Few to a sync: then it is the disk that is measured.
        if (settles, at_a_time) == (Settles::Durably, 10) { row } else { row.at_least(CLAIMS) }
    };
    SHARES.into_iter().map(rate).collect()
}

/// Messages a second, from the first one on: opening is measured elsewhere.
async fn work_off(ours: &Arc<Ours>, count: u64, at_a_time: u32, settles: Settles) -> f64 {
    let first = ours.receive(1, SOON).await;
    assert!(!first.is_empty(), "messages wait");
    if settles != Settles::Never {
        ours.acknowledge(first).await;
    }
    let (start, mut done) = (Instant::now(), 0);
    while done < count && start.elapsed() < AT_MOST {
        let most = u32::try_from(count - done).map_or(at_a_time, |left| left.min(at_a_time));
        let received = ours.receive(most, SOON).await;
        assert!(!received.is_empty(), "messages wait");
        done += received.len() as u64;
        if settles != Settles::Never {
            ours.acknowledge(received).await;
        }
    }
    done as f64 / start.elapsed().as_secs_f64()
}
