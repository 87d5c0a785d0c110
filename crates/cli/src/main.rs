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

fn main() -> ExitCode {
    let args = args::Args::parse();
    output::colour(args.color);
    local::use_data(args.data.clone());
    let is_json = args.is_json();
    let outcome = commands::run(args);
    exit::code(outcome, is_json)
}
