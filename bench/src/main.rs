//! Measurements with bounds. Absolute times say little about a shared machine, so each row is a
//! ratio to a peer that ran in the same process, in turns with ours. A missed bound makes the exit
//! code 1.
//!
//! `mailbox-bench` runs everything; `mailbox-bench WORD...` only the parts whose name has a word.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod core_cycle;
mod core_peer;
mod directory;
mod http;
mod journal;
mod memory;
mod oap;
mod process;
mod redis;
mod report;
mod round_trip;
mod timing;

use std::process::ExitCode;

use journal::place::Place;
use mailbox_allocator::Wiping;
use mimalloc::MiMalloc;
use report::Row;

/// The same as that of the `mailbox` program, for all contestants in this process.
#[global_allocator]
static ALLOCATOR: Wiping<MiMalloc> = Wiping::new(MiMalloc);

/// A part, by what it needs.
#[derive(Debug, Clone, Copy)]
enum Measurement {
    /// Nothing but the processor.
    Processor(fn() -> Vec<Row>),
    /// A file system too; all parts of one run have the same.
    Disk(fn(&Place) -> Vec<Row>),
}

use Measurement::{Disk, Processor};

/// The parts, in the order in which they run and print.
const MEASUREMENTS: &[(&str, Measurement)] = &[
    ("core backlog", Processor(core_cycle::backlog)),
    ("core in-flight", Processor(core_cycle::in_flight)),
    ("core memory", Processor(memory::index_bytes)),
    ("local cycle", Processor(round_trip::cycle)),
    ("local round-trip", Processor(round_trip::local)),
    ("local wake-up", Processor(round_trip::wake_up)),
    ("journal latency", Disk(journal::latency::single_send)),
    ("journal sends", Disk(journal::sends::against_bare_log)),
    ("journal databases", Disk(journal::sends::against_databases)),
    ("journal cycle", Disk(journal::cycle::whole)),
    ("journal memory", Disk(journal::resident::bytes_a_message)),
    ("journal opening", Disk(journal::opening::after_stop_and_kill)),
    ("journal disk", Disk(journal::disk::passed_through)),
    ("directory sends", Disk(directory::sends::against_bare_files)),
    ("directory backlog", Disk(directory::backlog::waiting_files)),
    ("directory waking", Disk(directory::waking::by_file_events)),
    ("redis", Processor(redis::measure)),
    ("http limit", Disk(http::against_constant)),
    ("http peers", Disk(http::peers::compared)),
    ("http paced", Disk(http::paced::sends)),
    ("http slow", Disk(http::slow::honest_beside_slow)),
    ("http overload", Disk(http::overload::at_three_times)),
    ("oap limit", Processor(oap::limit::against_echo)),
    ("oap http", Processor(oap::limit::against_http)),
    ("oap batches", Processor(oap::batches::by_processor_time)),
    ("oap peers", Disk(oap::peers::compared)),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if http::serve_as_child(&words) {
        return ExitCode::SUCCESS;
    }
    // Memory is measured in a process of its own, which is this program called again; and whoever
    // is to be killed is one too.
    let answer = memory::answer_as_child(&words)
        .or_else(|| journal::child::answer_as_child(&words))
        .or_else(|| directory::child::answer_as_child(&words));
    if let Some(answer) = answer {
        println!("{answer}");
        return ExitCode::SUCCESS;
    }

    let is_wanted =
        |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let wanted: Vec<_> = MEASUREMENTS.iter().filter(|(name, _)| is_wanted(name)).collect();
    println!("load average at the start: {}", report::load_average());
    let needs_place = wanted.iter().any(|(_, measurement)| matches!(measurement, Disk(_)));
    // Taken back when it is dropped, so it must not be moved into a static.
    let place = needs_place.then(Place::find);
    if let Some(place) = &place {
        println!("files of journals, inboxes and their peers: {place}");
    }
    println!("{}", report::heading());
    let (mut printed, mut missed) = (0, 0);
    for (_, measurement) in wanted {
        let rows = match (measurement, &place) {
            (Processor(measure), _) => measure(),
            (Disk(measure), Some(place)) => measure(place),
            (Disk(_), None) => unreachable!("a place was found for the first such part"),
        };
        for row in rows {
            println!("{row}");
            printed += 1;
            missed += usize::from(row.is_missed());
        }
    }
    println!("load average at the end: {}", report::load_average());
    println!("{printed} rows, {missed} missed");
    if missed == 0 && printed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
