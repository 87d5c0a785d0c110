//! The commands, one file each. Each takes its arguments and says how it ended.

mod bench;
mod call;
mod cap;
mod completions;
mod config;
mod confirm;
mod count;
mod dead;
mod doctor;
mod explain;
mod inbox_doctor;
mod init;
mod list;
mod peek;
mod purge;
mod receive;
mod remove;
mod send;
mod serve;
mod server_doctor;
mod settle;
mod stats;
mod transfer;
mod work;

use std::future::Future;

use mailbox::{Error, ErrorKind, Result};
use tokio::runtime::Builder;

use crate::args::{Args, Command};
use crate::exit::Outcome;

/// Does what the arguments ask for.
pub(crate) fn run(args: Args) -> Result<Outcome> {
    match args.command {
        Command::Serve(args) => serve::run(&args.said),
        Command::Config(args) => config::run(&args),
        Command::Cap(args) => wait_for(cap::run(&args)),
        Command::Send(args) => wait_for(send::run(&args)),
        Command::Receive(args) => wait_for(receive::run(&args)),
        Command::Ack(args) => wait_for(settle::acknowledge(&args)),
        Command::Nack(args) => wait_for(settle::nack(&args)),
        Command::Extend(args) => wait_for(settle::extend(&args)),
        Command::Reject(args) => wait_for(settle::reject(&args)),
        Command::Work(args) => wait_for(work::run(args)),
        Command::Call(args) => wait_for(call::run(&args)),
        Command::Peek(args) => wait_for(peek::run(&args)),
        Command::Count(args) => wait_for(count::run(&args)),
        Command::Stats(args) => wait_for(stats::run(&args)),
        Command::List(args) => wait_for(list::run(&args)),
        Command::Explain(args) => wait_for(explain::run(&args)),
        Command::Dead(args) => wait_for(dead::run(&args)),
        Command::Purge(args) => wait_for(purge::run(&args)),
        Command::Remove(args) => wait_for(remove::run(&args)),
        Command::Move(args) => wait_for(transfer::run(&args)),
        Command::Bench(args) => wait_for(bench::run(&args)),
        Command::Init(args) => wait_for(init::run(&args)),
        Command::Doctor(args) => match inbox_doctor::meant(&args)? {
            Some(inbox) => wait_for(inbox_doctor::run(&args, &inbox)),
            None => match server_doctor::meant(&args)? {
                Some(servers) => wait_for(server_doctor::run(&args, &servers)),
                None => doctor::run(&args),
            },
        },
        Command::Completions(args) => completions::run(&args),
    }
}

/// Runs a command that waits for things, on this thread.
fn wait_for(command: impl Future<Output = Result<Outcome>>) -> Result<Outcome> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot start the runtime").with_source(error)
    })?;
    let outcome = runtime.block_on(command);
    // What still blocks, a read from a terminal for example, must not hold up the end.
    runtime.shutdown_background();
    outcome
}
