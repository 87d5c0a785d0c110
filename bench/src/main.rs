//! Measurements with bounds. Absolute times say little about a shared machine, so each row is a
//! ratio to a peer that ran in the same process, in turns with ours. A missed bound makes the exit
//! code 1.
//!
//! `mailbox-bench` runs everything; `mailbox-bench WORD...` only the parts whose name has a word.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod core_cycle;
mod core_peer;
mod memory;
mod report;
mod round_trip;
mod timing;

use std::process::ExitCode;

use report::Row;

type Measurement = fn() -> Vec<Row>;

/// The parts, in the order in which they run and print.
const MEASUREMENTS: &[(&str, Measurement)] = &[
    ("core backlog", core_cycle::backlog),
    ("core in-flight", core_cycle::in_flight),
    ("core memory", memory::index_bytes),
    ("local cycle", round_trip::cycle),
    ("local round-trip", round_trip::local),
    ("local wake-up", round_trip::wake_up),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Memory is measured in a process of its own, which is this program called again.
    if let Some(answer) = memory::answer_as_child(&words) {
        println!("{answer}");
        return ExitCode::SUCCESS;
    }

    println!("load average at the start: {}", report::load_average());
    println!("{}", report::heading());
    let (mut printed, mut missed) = (0, 0);
    for (name, measure) in MEASUREMENTS {
        if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        for row in measure() {
            println!("{row}");
            printed += 1;
            missed += usize::from(row.is_missed());
        }
    }
    println!("load average at the end: {}", report::load_average());
    println!("{printed} rows, {missed} missed");
    if missed == 0 && printed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
