//! A sync of a worker fails, once, with EIO; the ones after it succeed, as they do on a real disk
//! that has just lost data. The worker must notice, say so with the right kind of error and answer
//! nothing from then on; what it answered before must survive a power cut.

use std::fs;
use std::path::Path;
use std::process::Command as StdCommand;
use std::time::Duration;

use tokio::process::Command;

use crate::audit::Audit;
use crate::child::Orders;
use crate::cutter::Cutter;
use crate::evidence::Evidence;
use crate::ledger::Ledger;
use crate::mount::Volume;
use crate::report::{NotRun, Outcome};
use crate::scene::{Folder, Scene};
use crate::violation::Violation;
use crate::worker::{Said, Worker};

/// How long a worker has to come to the failure and to give up.
const GIVES_UP: Duration = Duration::from_secs(15);
/// Size of the file system.
const SIZE_MIB: u64 = 64;

/// Runs it, with another sync failing each time.
pub(crate) async fn run(scene: &Scene, runs: u64) -> Result<Outcome, NotRun> {
    let found = StdCommand::new("strace").arg("--version").output();
    found.map_err(|error| NotRun(format!("strace: {error}")))?;
    let mut outcome = scene.outcome();
    let mut cutter = Cutter::start().await?;
    let mut number = 0;
    while outcome.goes_on(runs) {
        // The first ones are in opening a new journal; the later, the more has been answered.
        let nth = 1 + number * (number + 1) / 2;
        if let Err(why) = one_run(scene, &mut cutter, number, nth, &mut outcome).await {
            return outcome.obstructed(why);
        }
        number += 1;
    }
    Ok(outcome.end())
}

async fn one_run(
    scene: &Scene,
    cutter: &mut Cutter,
    number: u64,
    nth: u64,
    outcome: &mut Outcome,
) -> Result<(), NotRun> {
    let mut volume = Volume::ext4(SIZE_MIB)?;
    let mut evidence = Evidence::new().map_err(not_run)?;
    let notes = Folder::new(&std::env::temp_dir()).map_err(not_run)?;
    let log = notes.path().join("strace");
    let dir = volume.point().join("journal");
    let setup = crate::subject::Setup { shards: 1, ..scene.setup(number) };
    let orders = scene.orders(&dir, number, setup);
    let command = traced(scene, &orders, &log, nth);
    let worker = Worker::start(command, Ledger::strict()).map_err(not_run)?;
    let (mut said, ended) = worker.finish(GIVES_UP).await.map_err(not_run)?;
    let was_injected = fs::read_to_string(&log).map_err(not_run)?.contains("(INJECTED)");
    outcome.faults += 1;
    let lines = std::mem::take(&mut said.lines);
    let ledger = blame(said, nth, was_injected, ended);
    cutter.cut(volume.point()).await?;
    volume.unmount()?;
    volume.mount()?;
    evidence.before_audit(&dir, &lines).map_err(not_run)?;
    let (letters, repeat_from) = (scene.letters(), orders.first);
    let audit = Audit { dir: dir.clone(), setup, letters, repeat_from, keep: 0 };
    let mut ledger = audit.run(ledger).await;
    if outcome.take(&mut ledger) && scene.is_surprised() {
        evidence.keep(&dir).map_err(not_run)?;
    }
    Ok(())
}

/// A worker whose `nth` sync of each thread and kind fails.
fn traced(scene: &Scene, orders: &Orders, log: &Path, nth: u64) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "--seccomp-bpf", "-e", "trace=fdatasync,fsync", "-e"]);
    command.arg(format!("inject=fdatasync,fsync:error=EIO:when={nth}"));
    command.arg("-o").arg(log).arg(&scene.program).args(orders.arguments());
    command
}

fn blame(mut said: Said, nth: u64, was_injected: bool, ended: bool) -> Ledger {
    let mut wrong = Vec::new();
    if !was_injected {
        wrong.push(format!("sync number {nth} never came"));
    } else if !said.ledger.has_failed() {
        wrong.push(format!("nobody noticed that sync number {nth} failed"));
    } else if !ended {
        wrong.push(format!("after sync number {nth} failed, calls went on succeeding"));
    }
    for failure in said.failures.iter().filter(|failure| failure.kind != "Internal") {
        wrong.push(failure.to_string());
    }
    for what in wrong {
        said.ledger.report(Violation::Failure(what));
    }
    said.ledger
}

fn not_run(error: std::io::Error) -> NotRun {
    NotRun(error.to_string())
}
