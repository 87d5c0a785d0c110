//! `mailbox completions`: a script that completes the commands in a shell.

use clap::CommandFactory;
use mailbox::Result;

use crate::args::{Args, Completions};
use crate::exit::Outcome;
use crate::output;

pub(super) fn run(args: &Completions) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "mailbox", &mut script);
    output::write(&script).map(|_| Outcome::Done)
}
