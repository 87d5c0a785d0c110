//! A receive that waits in another process: how soon it has a file that was just renamed into the
//! inbox, and what it costs while nothing comes.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::directory::child::Receiver;
use crate::directory::ours::{MAILBOX, Ours};
use crate::journal::place::Place;
use crate::journal::{quantile, runtime};
use crate::report::Row;

const MESSAGES: u32 = 200;
/// Between two messages, so that whoever waits is asleep. Not a whole fraction of how often it
/// looks by itself.
const PAUSE: Duration = Duration::from_millis(23);
const IDLE: Duration = Duration::from_secs(6);
/// In milliseconds, 95 of 100.
const WOKEN: f64 = 50.0;
/// Percent of a processor.
const IDLE_CPU: f64 = 1.0;

/// By the library, and by the command line, which has to be built beside this program.
pub(crate) fn by_file_events(place: &Place) -> Vec<Row> {
    let mut rows = rows(place, "library", Receiver::follow);
    rows.extend(command_line(place).unwrap_or_else(|| {
        // A figure that is missing is one that is missed.
        let name = "directory wake-up: `mailbox` is not built beside this program";
        vec![Row::alone(name, f64::NAN, "ms").at_most(WOKEN)]
    }));
    rows
}

fn command_line(place: &Place) -> Option<Vec<Row>> {
    let folder = place.folder("directory-probe");
    make(folder.path());
    drop(Receiver::command_line(folder.path())?);
    Some(rows(place, "`receive --follow`", |inboxes| {
        Receiver::command_line(inboxes).expect("it was there a moment ago")
    }))
}

fn rows(place: &Place, who: &str, start: impl Fn(&Path) -> Receiver) -> Vec<Row> {
    let folder = place.folder("directory-waking");
    make(folder.path());
    let inbox = folder.path().join(MAILBOX);
    let mut receiver = start(folder.path());
    // The first one also waits for the process to start.
    send(&inbox, 0);
    let is_there = receiver.next_line();
    let idle = idle_percent(&receiver);
    let mut millis: Vec<f64> = (1..=MESSAGES)
        .map(|number| {
            std::thread::sleep(PAUSE);
            let sent = send(&inbox, number);
            if is_there && receiver.next_line() {
                sent.elapsed().as_secs_f64() * 1e3
            } else {
                f64::NAN
            }
        })
        .collect();
    // One that never came is later than all others.
    for late in millis.iter_mut().filter(|millis| millis.is_nan()) {
        *late = f64::INFINITY;
    }
    let lost = millis.iter().filter(|millis| millis.is_infinite()).count();
    let name = format!("directory wake-up of another process by a file, {who}");
    vec![
        Row::alone(format!("{name}, p50"), quantile(&mut millis, 0.5), "ms"),
        Row::alone(format!("{name}, p95"), quantile(&mut millis, 0.95), "ms").at_most(WOKEN),
        Row::alone(format!("{name}, never seen"), lost as f64, "messages").at_most(0.0),
        Row::alone(format!("directory idle waiting receive, {who}"), idle, "% CPU")
            .at_most(IDLE_CPU),
    ]
}

fn make(inboxes: &Path) {
    runtime().block_on(async {
        let ours = Ours::make(inboxes, false).await;
        // Naming a mailbox makes it.
        ours.receive(1, Duration::ZERO).await;
        ours.close().await;
    });
}

/// As a shell does it: written elsewhere, renamed. Returns the moment before the rename.
fn send(inbox: &Path, number: u32) -> Instant {
    let written = inbox.join("incoming/.tmp").join(format!("bench-{number}"));
    let text = format!("{{\"id\":\"bench-{number}\",\"type\":\"result\",\"content\":{number}}}\n");
    std::fs::write(&written, text).expect("there is room for a file");
    let name = format!("{}-bench-{number}.json", 1_765_135_800 + number);
    let start = Instant::now();
    std::fs::rename(&written, inbox.join("incoming").join(name)).expect("a new name");
    start
}

/// What it uses of a processor while nothing comes.
fn idle_percent(receiver: &Receiver) -> f64 {
    let (start, before) = (Instant::now(), receiver.cpu_time());
    std::thread::sleep(IDLE);
    match (before, receiver.cpu_time()) {
        (Some(before), Some(after)) => {
            after.saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0
        }
        _ => f64::NAN,
    }
}
