//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args as Arguments, Parser, Subcommand};

/// What is shown when nothing was asked for.
const FIRST: &str = "\
Start here:
  mailbox doctor PATH    look at a journal that nobody has open, and say whether it is sound
  mailbox help           every command, with what it takes

Exit codes: 0 done, 1 a defect, 2 wrong arguments, 3 not there, 4 not allowed, 5 damaged,
6 busy or not reachable (try again).";

const DOCTOR: &str = "\
Examples:
  mailbox doctor data/journal              what is there, and what is damaged
  mailbox doctor data/journal --json       the same, as one JSON document
  mailbox doctor data/journal --repair     save what can be read; the damaged journal is kept
                                           beside it, as data/journal.damaged-1
  mailbox doctor data/journal --repair --into saved
                                           save it to another directory, and change nothing

Exit codes: 0 sound, or repaired; 5 damaged; 6 somebody has it open; 2 not a journal, or one of
another version; 3 nothing there.";

/// Message queues with at-least-once delivery and explicit acknowledgement.
#[derive(Debug, Parser)]
#[command(name = "mailbox", version, after_help = FIRST, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Whether a program reads what is printed.
    pub(crate) const fn is_json(&self) -> bool {
        match &self.command {
            Command::Doctor(args) => args.json,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Verify a journal that nobody has open; save what can be read of a damaged one.
    #[command(after_help = DOCTOR)]
    Doctor(Doctor),
}

/// `mailbox doctor`
#[derive(Debug, Arguments)]
pub(crate) struct Doctor {
    /// The directory of the journal, or the address of a mailbox in it: journal:PATH/NAME.
    pub(crate) path: PathBuf,
    /// Save what can be read, if it is damaged. The damaged journal is kept beside it.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Write the repaired journal to this directory instead, and leave the damaged one alone.
    #[arg(long, value_name = "DIR", requires = "repair")]
    pub(crate) into: Option<PathBuf>,
    /// Print one JSON document; errors go to stderr, as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
