//! The power goes at random moments: the file system forgets whatever was not synced, names too.
//! Only answers that came before the cut began count; later ones may be either.

use std::time::Duration;

use crate::audit::Audit;
use crate::cutter::Cutter;
use crate::evidence::Evidence;
use crate::ledger::Ledger;
use crate::mount::Volume;
use crate::report::{NotRun, Outcome};
use crate::scene::{Scene, wait};
use crate::violation::Violation;
use crate::worker::{Said, Worker};

/// Cuts of one file system before the next one is made.
const CUTS_PER_VOLUME: u64 = 15;
/// Messages of each mailbox that stay after an audit.
const KEEP: usize = 40;
/// Size of the file system.
const SIZE_MIB: u64 = 64;

/// Runs it.
pub(crate) async fn run(scene: &Scene, cuts: u64) -> Result<Outcome, NotRun> {
    let mut outcome = scene.outcome();
    let mut cutter = Cutter::start().await?;
    let mut journal = 0;
    while outcome.goes_on(cuts) {
        let limit = CUTS_PER_VOLUME.min(cuts - outcome.faults);
        if let Err(why) = one_volume(scene, &mut cutter, journal, limit, &mut outcome).await {
            return outcome.obstructed(why);
        }
        journal += 1;
    }
    Ok(outcome.end())
}

/// The life of one file system, which ends early if its journal is broken.
async fn one_volume(
    scene: &Scene,
    cutter: &mut Cutter,
    journal: u64,
    limit: u64,
    outcome: &mut Outcome,
) -> Result<(), NotRun> {
    let mut volume = Volume::ext4(SIZE_MIB)?;
    let mut evidence = Evidence::new().map_err(not_run)?;
    let setup = scene.setup(journal);
    let mut random = scene.random(&format!("power {journal}"));
    let mut ledger = Ledger::default();
    for cut in 0..limit {
        let dir = volume.point().join("journal");
        let orders = scene.orders(&dir, (journal << 16) + cut, setup);
        let mut worker = Worker::start(scene.command(&orders), ledger).map_err(not_run)?;
        let acked = worker.first_ack().await;
        // Some cuts come soon, while the journal is still making its files.
        let most = if random.percent(30) { 8 } else { 90 };
        wait(random.millis(0, most)).await;
        worker.doubt();
        cutter.cut(volume.point()).await?;
        outcome.faults += 1;
        // What it does without a disk is part of the experiment, for a moment.
        wait(Duration::from_millis(5)).await;
        let mut said = worker.kill().await.map_err(not_run)?;
        if !acked {
            said.ledger.report(Violation::Stuck("a worker's first answer".to_owned()));
        }
        let lines = std::mem::take(&mut said.lines);
        ledger = blame(said);
        volume.unmount()?;
        volume.mount()?;
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

/// Nothing fails while there is power. Without it everything may, as what it is: what cannot be
/// read is a matter of the connection to the disk, what cannot be written ends the journal.
fn blame(mut said: Said) -> Ledger {
    for failure in said.failures {
        let is_right = matches!(failure.kind.as_str(), "Internal" | "Connection");
        if failure.certain || !is_right {
            let when = if failure.certain { "before" } else { "after" };
            let what = format!("{when} the cut: {failure}");
            said.ledger.report(Violation::Failure(what));
        }
    }
    said.ledger
}

fn not_run(error: std::io::Error) -> NotRun {
    NotRun(error.to_string())
}
