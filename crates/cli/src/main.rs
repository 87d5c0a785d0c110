//! The `mailbox` binary: reads the arguments, runs one command, and ends with its exit code.
//! Invariant: what was asked for goes to stdout, everything else to stderr.

mod args;
mod commands;
mod exit;
mod output;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    let outcome = commands::run(args);
    exit::code(outcome)
}
