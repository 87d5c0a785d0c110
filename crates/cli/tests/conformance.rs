//! The contract, through the command line: every call is a run of the real binary.

use std::process::ExitCode;

use mailbox_conformance::{cases, run, subjects};

fn main() -> ExitCode {
    run::main(&[subjects::cli(env!("CARGO_BIN_EXE_mailbox"))], &cases::all())
}
