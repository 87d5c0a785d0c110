//! Real faults against what keeps messages. On disk (the journal, folders of inboxes): kills, power
//! cuts, full disks, failing syncs and races. On Redis: masters that die, stand still or are cut
//! off, slots that move. Each is followed by an audit of every message. One line per experiment;
//! the exit code says whether every promise was kept.
//!
//! Then the experiments are put to the test themselves: with a bug switched on each must report a
//! violation. Those that cannot run on this machine say so; with `CI=true` that is a failure.
//!
//! `FAULTS_SCALE` makes everything longer, `FAULTS_SEED` repeats the choices of an earlier run (not
//! its timing). Arguments are names of experiments (`kill`, `power`, `full`, `sync`, `race`,
//! `failover`, `reshard`, `self-test`) and of homes (`journal`, `dir`, `redis`). `failover` stands
//! for `kill`, `pause`, `partition` and `stall`.

mod audit;
mod child;
mod cutter;
mod event;
mod evidence;
mod experiments;
mod full;
mod kill;
mod ledger;
mod letters;
mod life;
mod mount;
mod power;
mod race;
mod random;
mod redis;
mod report;
mod scene;
mod subject;
mod summary;
mod symptom;
mod sync_failure;
mod violation;
mod worker;

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::child::Orders;
use crate::report::say;

/// Exit code of a wrong command line.
const USAGE: u8 = 2;
/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("child", rest)) = arguments.split_first().map(|(first, rest)| (&**first, rest)) {
        let Some(orders) = Orders::parse(rest) else { return ExitCode::from(USAGE) };
        return child::run(orders).await;
    }
    // Everything that must be undone is undone by dropping the experiments.
    tokio::select! {
        code = run(&arguments) => code,
        () = told_to_stop() => {
            say("interrupted");
            ExitCode::from(INTERRUPTED)
        }
    }
}

async fn run(arguments: &[String]) -> ExitCode {
    match arguments.split_first() {
        Some((first, rest)) if first == redis::INSIDE => redis::inside(rest).await,
        _ => experiments::run(arguments).await,
    }
}

/// Waits for Ctrl-C or SIGTERM.
async fn told_to_stop() {
    let mut interrupt = signal(SignalKind::interrupt()).expect("the signal can be watched");
    let mut terminate = signal(SignalKind::terminate()).expect("the signal can be watched");
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
