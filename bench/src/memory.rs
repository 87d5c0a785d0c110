//! How much memory the index takes, as the operating system sees it.
//!
//! Resident memory before and after, in a child process, so that nothing freed earlier is reused
//! unseen. A counting allocator would be exact but would slow down every other measurement of this
//! program. All messages share one payload, so payload bytes are not in the figure; the handle of
//! the payload (32 bytes of `Bytes`) is.

use std::process::Command;
use std::time::Duration;

use crate::core_cycle::Driven;
use crate::report::Row;

/// The first argument of a child.
const CHILD: &str = "resident-bytes-of";
/// At most so many bytes a message.
const BOUND: f64 = 200.0;
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes a message. The second count is just above a power of two, where what grows by doubling
/// has most to spare.
pub(crate) fn index_bytes() -> Vec<Row> {
    let mut rows = Vec::new();
    for count in [1_000_000, 1_100_000] {
        for state in ["waiting", "in-flight"] {
            let bytes = ask_child(state, count) / f64::from(count);
            let name = format!("index bytes a message, {count} {state}");
            rows.push(Row::alone(name, bytes, "B").at_most(BOUND));
        }
    }
    rows
}

/// What a child was asked for, if this process is one.
pub(crate) fn answer_as_child(words: &[String]) -> Option<u64> {
    let [command, state, count] = words else { return None };
    if command != CHILD {
        return None;
    }
    let count = count.parse().expect("a parent passes a number");
    let mut driven = Driven::empty();
    let before = resident_bytes();
    driven.send_many(count, Duration::ZERO);
    if state == "in-flight" {
        driven.receive_many(count, VISIBILITY_TIMEOUT);
    }
    let after = resident_bytes();
    drop(std::hint::black_box(driven));
    Some(after - before)
}

fn ask_child(state: &str, count: u32) -> f64 {
    let program = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(program)
        .args([CHILD, state, &count.to_string()])
        .output()
        .expect("this program can be started again");
    let answer = String::from_utf8_lossy(&output.stdout);
    // Not a number if the child failed; the row then counts as missed.
    answer.trim().parse().unwrap_or(f64::NAN)
}

/// From `/proc`, or where there is none from `ps`.
pub(crate) fn resident_bytes() -> u64 {
    let kibibytes = std::fs::read_to_string("/proc/self/status").map_or_else(
        |_| {
            let pid = std::process::id().to_string();
            let output = Command::new("ps").args(["-o", "rss=", "-p", &pid]).output();
            String::from_utf8_lossy(&output.expect("there is /proc or ps").stdout).into_owned()
        },
        |status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            line.unwrap_or_default().trim_end_matches("kB").to_owned()
        },
    );
    kibibytes.trim().parse::<u64>().expect("resident memory is a number of KiB") * 1_024
}
