//! Workers are killed (SIGKILL) at random moments, some of them while they recover from the kill
//! before. Whatever was answered must be there, whatever was deleted must not.

use crate::audit::Audit;
use crate::evidence::Evidence;
use crate::ledger::Ledger;
use crate::report::{NotRun, Outcome};
use crate::scene::{Folder, Scene, wait};
use crate::violation::Violation;
use crate::worker::{Said, Worker};

/// Kills of one journal before the next one begins.
const KILLS_PER_JOURNAL: u64 = 30;
/// Messages of each mailbox that stay after an audit.
const KEEP: usize = 40;

/// Runs it.
pub(crate) async fn run(scene: &Scene, kills: u64) -> Result<Outcome, NotRun> {
    let mut outcome = scene.outcome();
    let mut journal = 0;
    while outcome.goes_on(kills) {
        let limit = KILLS_PER_JOURNAL.min(kills - outcome.faults);
        if let Err(why) = one_journal(scene, journal, limit, &mut outcome).await {
            return outcome.obstructed(why);
        }
        journal += 1;
    }
    Ok(outcome.end())
}

/// The life of one journal, which ends early if it is broken.
async fn one_journal(
    scene: &Scene,
    journal: u64,
    limit: u64,
    outcome: &mut Outcome,
) -> Result<(), NotRun> {
    let folder = Folder::new(&std::env::temp_dir());
    let folder = folder.map_err(|error| NotRun(format!("no temporary folder: {error}")))?;
    let mut evidence = Evidence::new().map_err(not_run)?;
    let dir = folder.path().join("journal");
    let setup = scene.setup(journal);
    let mut random = scene.random(&format!("kill {journal}"));
    let mut ledger = Ledger::default();
    let mut worker = journal << 16;
    let last = outcome.faults + limit;
    while outcome.faults < last {
        let orders = scene.orders(&dir, worker, setup);
        let mut started = Worker::start(scene.command(&orders), ledger).map_err(not_run)?;
        let acked = started.first_ack().await;
        wait(random.millis(1, 60)).await;
        let mut said = started.kill().await.map_err(not_run)?;
        let lines = std::mem::take(&mut said.lines);
        ledger = blame(said);
        outcome.faults += 1;
        worker += 1;
        if !acked {
            ledger.report(Violation::Stuck("a worker's first answer".to_owned()));
        }
        // Some are killed again on their way up.
        if random.percent(30) && outcome.faults < last {
            let orders = scene.orders(&dir, worker, setup);
            let started = Worker::start(scene.command(&orders), ledger).map_err(not_run)?;
            wait(random.millis(2, 25)).await;
            ledger = blame(started.kill().await.map_err(not_run)?);
            outcome.faults += 1;
            worker += 1;
        }
        evidence.before_audit(&dir, &lines).map_err(not_run)?;
        let (letters, repeat_from) = (scene.letters(), orders.first);
        let audit = Audit { dir: dir.clone(), setup, letters, repeat_from, keep: KEEP };
        ledger = audit.run(ledger).await;
        if outcome.take(&mut ledger) {
            if scene.is_surprised() {
                evidence.keep(&dir).map_err(not_run)?;
            }
            return Ok(());
        }
    }
    Ok(())
}

/// Nothing fails in a worker that is only killed.
fn blame(mut said: Said) -> Ledger {
    for failure in said.failures {
        said.ledger.report(Violation::Failure(failure.to_string()));
    }
    said.ledger
}

fn not_run(error: std::io::Error) -> NotRun {
    NotRun(format!("a worker: {error}"))
}
