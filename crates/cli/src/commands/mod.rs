//! The commands, one file each. Each takes its arguments and says how it ended.

mod doctor;

use mailbox::Result;

use crate::args::{Args, Command};
use crate::exit::Outcome;

/// Does what the arguments ask for.
pub(crate) fn run(args: Args) -> Result<Outcome> {
    match args.command {
        Command::Doctor(args) => doctor::run(&args),
    }
}
