//! A sync of a worker fails, once, with EIO; the ones after it succeed, as they do on a real disk
//! that has just lost data. The worker must notice, say so with the right kind of error and answer
//! nothing from then on; what it answered before must survive a power cut.

use std::fs;
use std::path::Path;
use std::process::Command as StdCommand;
use std::time::Duration;

use tokio::process::Command;

use crate::child::{Orders, Role};
use crate::cutter::Cutter;
use crate::ledger::Ledger;
use crate::life::Life;
use crate::mount::Volume;
use crate::report::{NotRun, Outcome};
use crate::scene::{Folder, Scene};
use crate::subject::{Setup, Subject};
use crate::violation::Violation;
use crate::worker::{Crew, Said};

/// How long a worker has to come to the failure and to give up.
const GIVES_UP: Duration = Duration::from_secs(15);
/// Length of the journal's files.
const SEGMENT_LEN: u32 = 128 * 1024;
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
    let notes = Folder::new(&std::env::temp_dir()).map_err(not_run)?;
    let log = notes.path().join("strace");
    let mut life = Life::new(scene, Subject::Journal, number, volume.point());
    // One log: with two, each has a first sync.
    life.setup = Setup::journal(SEGMENT_LEN, 1, scene.bug());
    let orders = life.orders(Role::Everything);
    let mut crew = Crew::new(Ledger::strict());
    crew.start(traced(scene, &orders, &log, nth)).map_err(not_run)?;
    let (mut said, ended) = crew.finish(GIVES_UP).await.map_err(not_run)?;
    let was_injected = fs::read_to_string(&log).map_err(not_run)?.contains("(INJECTED)");
    outcome.faults += 1;
    blame(&mut said, nth, was_injected, ended);
    cutter.cut(volume.point()).await?;
    volume.unmount()?;
    volume.mount()?;
    life.audit(said, 0, outcome).await?;
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

fn blame(said: &mut Said, nth: u64, was_injected: bool, ended: bool) {
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
}

fn not_run(error: std::io::Error) -> NotRun {
    NotRun(error.to_string())
}
