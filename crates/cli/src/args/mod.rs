//! What can be said on the command line: one file a family of commands, and how values are read.

mod capabilities;
mod deliveries;
mod flags;
mod looking;
mod managing;
mod serving;
mod values;
mod working;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

pub(crate) use capabilities::{Attenuate, Cap, CapCommand, Caveats, Inspect, Mint, Revoke, Rotate};
pub(crate) use deliveries::{Ack, Extend, Handles, Nack, Receive, Reject, Send};
pub(crate) use looking::{Count, Explain, List, Peek, Stats};
pub(crate) use managing::{
    Completions, Dead, DeadCommand, DeadDelete, DeadList, DeadRedrive, DeadShow, Doctor, Init,
    Move, Purge, Remove, Which,
};
pub(crate) use serving::{Config, ConfigCommand, Said, Serve, Show};
pub(crate) use working::{Bench, Call, Work, Working};

/// What is shown when nothing was asked for.
const FIRST: &str = "\
Start here:
  mailbox serve                               start the service of this machine
  mailbox send jobs 'hello'                   put a message into its mailbox jobs
  mailbox receive jobs --ack                  take it out again

Or without a service:
  mailbox send dir:./inbox/jobs 'hello'       put a message into the folder ./inbox/jobs
  mailbox receive dir:./inbox/jobs --ack      take it out again
  mailbox work dir:./inbox/jobs -- ./job.sh   run a command for every message
  mailbox stats dir:./inbox/jobs              what is there
  mailbox help                                every command; `mailbox help send` for one

Addresses:
  NAME                a mailbox of the service of this machine, or of that at MAILBOX_URL
  http://HOST:PORT/NAME
                      a mailbox of another service; MAILBOX_CAP has the capability. The same by
                      grpc: (port 7600 if none is named) and oap: (7601), which is the quickest;
                      with TLS by https:, grpcs: and oaps:, with an own CA by ?ca=FILE behind it
  dir:PATH/NAME       a folder of files: for shells, scripts and agents; any number of processes
  journal:PATH/NAME   an embedded log, fast and durable; one process at a time
  memory://NAME       gone when the command ends: for trying things out
  redis://HOST/NAME   a Redis or Valkey, USER:PASSWORD@ before the host if it wants one; also
                      rediss:, redis+cluster:, redis+sentinel:; for options see the README

Times are written 500ms, 5s, 2m, 1h or 1d; a bare number is seconds.
Exit codes: 0 done, 1 a defect, 2 wrong arguments, 3 not there, 4 not allowed, 5 damaged,
6 busy, full or not reachable in time (try again), 130 interrupted.";

/// Message queues with at-least-once delivery and explicit acknowledgement.
#[derive(Debug, Parser)]
#[command(name = "mailbox", version, after_help = FIRST, arg_required_else_help = true)]
pub(crate) struct Args {
    /// When to use colours: auto, always or never; NO_COLOR in the environment means never.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    pub(crate) color: Color,
    /// The data directory of the service; MAILBOX_DATA in the environment.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal.
    Auto,
    /// Also in pipes and files.
    Always,
    /// Nowhere.
    Never,
}

impl Args {
    /// Whether a program reads what is printed.
    pub(crate) const fn is_json(&self) -> bool {
        match &self.command {
            Command::Send(args) => args.json,
            Command::Receive(args) => args.json,
            Command::Ack(args) => args.handles.json,
            Command::Nack(args) => args.handles.json,
            Command::Extend(args) => args.handles.json,
            Command::Reject(args) => args.handles.json,
            Command::Peek(args) => args.json,
            Command::Count(args) => args.json,
            Command::Stats(args) => args.json,
            Command::List(args) => args.json,
            Command::Explain(args) => args.json,
            Command::Purge(args) => args.json,
            Command::Remove(args) => args.json,
            Command::Work(args) => args.json,
            Command::Call(args) => args.json,
            Command::Dead(args) => args.is_json(),
            Command::Move(args) => args.json,
            Command::Bench(args) => args.json,
            Command::Init(args) => args.json,
            Command::Doctor(args) => args.json,
            Command::Cap(args) => args.is_json(),
            Command::Config(args) => args.is_json(),
            Command::Serve(_) | Command::Completions(_) => false,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the service: mailboxes over HTTP, gRPC and OAP/1.
    #[command(after_help = serving::SERVE)]
    Serve(Box<Serve>),
    /// Make an inbox in a folder, or change how one is laid out.
    #[command(after_help = managing::INIT)]
    Init(Init),
    /// Put messages into a mailbox; prints their ids.
    #[command(after_help = deliveries::SEND)]
    Send(Send),
    /// Take messages out of a mailbox, and print them.
    #[command(after_help = deliveries::RECEIVE)]
    Receive(Receive),
    /// Acknowledge deliveries: done, the messages are deleted.
    #[command(after_help = deliveries::ACK)]
    Ack(Ack),
    /// Give deliveries back: they are delivered again.
    #[command(after_help = deliveries::NACK)]
    Nack(Nack),
    /// Keep deliveries invisible to others for longer.
    #[command(after_help = deliveries::EXTEND)]
    Extend(Extend),
    /// Make dead letters of deliveries that nobody can use.
    #[command(after_help = deliveries::REJECT)]
    Reject(Reject),
    /// Run a command for every message: a worker.
    #[command(after_help = working::WORK)]
    Work(Work),
    /// Send a request, wait for its reply, and print it.
    #[command(after_help = working::CALL)]
    Call(Call),
    /// Show messages without receiving them.
    #[command(after_help = looking::PEEK)]
    Peek(Peek),
    /// Print how many messages there are, dead letters not counted.
    #[command(after_help = looking::COUNT)]
    Count(Count),
    /// Show how many messages are in which state, and what has happened so far.
    #[command(after_help = looking::STATS)]
    Stats(Stats),
    /// Name the mailboxes of a place.
    #[command(after_help = looking::LIST)]
    List(List),
    /// Tell the life story of one message, and what to do next.
    #[command(after_help = looking::EXPLAIN)]
    Explain(Explain),
    /// List, show, redrive or delete dead letters.
    #[command(after_help = managing::DEAD)]
    Dead(Dead),
    /// Delete every message but dead letters, in flight too.
    #[command(after_help = managing::PURGE)]
    Purge(Purge),
    /// Remove a mailbox with all its messages, dead letters and rules.
    #[command(after_help = managing::REMOVE)]
    Remove(Remove),
    /// Move messages from one mailbox to another, of whatever kind; none is lost on the way.
    #[command(after_help = managing::MOVE)]
    Move(Move),
    /// Make, narrow, look at and take back capabilities: who may do what on a service.
    #[command(after_help = capabilities::CAP)]
    Cap(Cap),
    /// Check or show the settings of the service.
    #[command(after_help = serving::CONFIG)]
    Config(Box<Config>),
    /// Measure how quickly messages go in and out.
    #[command(after_help = working::BENCH)]
    Bench(Bench),
    /// Verify an inbox or a journal; put right or save what can be of a damaged one.
    #[command(after_help = managing::DOCTOR)]
    Doctor(Doctor),
    /// Print a script that completes these commands in a shell.
    #[command(after_help = managing::COMPLETIONS)]
    Completions(Completions),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_fit_together() {
        Args::command().debug_assert();
    }
}
