//! The `mailbox` binary: reads the arguments, runs one command, and ends with its exit code.
//! Invariant: what was asked for goes to stdout, everything else to stderr.

mod args;
mod commands;
mod exit;
mod local;
mod output;
mod place;
mod progress;
mod reading;
mod shown;
mod signals;
mod worker;

use std::process::ExitCode;

use clap::Parser;
use mailbox_allocator::Wiping;
use mimalloc::MiMalloc;

/// A message is often sent on one thread and received on another: the system's allocator makes
/// threads wait for each other then. Measured with `mailbox-bench http`: receive + ack 1.25 times
/// as many, batches 1.3 times. A service that keeps nothing has it wipe what is freed.
#[global_allocator]
static ALLOCATOR: Wiping<MiMalloc> = Wiping::new(MiMalloc);

fn main() -> ExitCode {
    let args = args::Args::parse();
    output::colour(args.color);
    local::use_data(args.data.clone());
    let is_json = args.is_json();
    let outcome = commands::run(args);
    exit::code(outcome, is_json)
}
