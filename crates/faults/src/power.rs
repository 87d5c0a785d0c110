//! The power goes at random moments: the file system forgets whatever was not synced, names too.
//! Only answers that came before the cut began count; later ones may be either.

use std::time::Duration;

use crate::cutter::Cutter;
use crate::life::Life;
use crate::mount::Volume;
use crate::report::{NotRun, Outcome};
use crate::scene::{Scene, wait};
use crate::subject::Subject;
use crate::violation::Violation;
use crate::worker::Said;

/// Cuts of one file system before the next one is made.
const CUTS_PER_VOLUME: u64 = 15;
/// Messages of each mailbox that stay after an audit.
const KEEP: usize = 40;
/// Size of the file system.
const SIZE_MIB: u64 = 64;

/// Runs it.
pub(crate) async fn run(scene: &Scene, subject: Subject, cuts: u64) -> Result<Outcome, NotRun> {
    let mut outcome = scene.outcome();
    let mut cutter = Cutter::start().await?;
    let mut home = 0;
    while outcome.goes_on(cuts) {
        let limit = CUTS_PER_VOLUME.min(cuts - outcome.faults);
        let lived = one_volume(scene, subject, &mut cutter, home, limit, &mut outcome).await;
        if let Err(why) = lived {
            return outcome.obstructed(why);
        }
        home += 1;
    }
    Ok(outcome.end())
}

/// The life of one file system, which ends early if what is on it is broken.
async fn one_volume(
    scene: &Scene,
    subject: Subject,
    cutter: &mut Cutter,
    home: u64,
    limit: u64,
    outcome: &mut Outcome,
) -> Result<(), NotRun> {
    let mut volume = Volume::ext4(SIZE_MIB)?;
    let mut life = Life::new(scene, subject, home, volume.point());
    let mut random = scene.random(&format!("power {} {home}", subject.word()));
    for _ in 0..limit {
        let mut crew = life.crew()?;
        let acked = crew.first_acks().await;
        // Some cuts come soon, while files are still being made.
        let most = if random.percent(30) { 8 } else { 90 };
        wait(random.millis(0, most)).await;
        crew.doubt();
        cutter.cut(volume.point()).await?;
        outcome.faults += 1;
        // What they do without a disk is part of the experiment, for a moment.
        wait(Duration::from_millis(5)).await;
        let mut said = crew.kill().await.map_err(not_run)?;
        if !acked {
            said.ledger.report(Violation::Stuck("a worker's first answer".to_owned()));
        }
        blame(&mut said, subject);
        volume.unmount()?;
        volume.mount()?;
        if life.audit(said, KEEP, outcome).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Nothing fails while there is power. Without it everything may, as what it is: what cannot be
/// read is a matter of the connection to the disk, what cannot be written ends the journal, and a
/// folder may turn out to be one that nobody can write to any more.
fn blame(said: &mut Said, subject: Subject) {
    for failure in std::mem::take(&mut said.failures) {
        let is_right = match failure.kind.as_str() {
            "Internal" | "Connection" => true,
            "Forbidden" => {
                subject == Subject::Directory && failure.text.contains("Read-only file system")
            }
            _ => false,
        };
        if failure.certain || !is_right {
            let when = if failure.certain { "before" } else { "after" };
            let what = format!("{when} the cut: {failure}");
            said.ledger.report(Violation::Failure(what));
        }
    }
}

fn not_run(error: std::io::Error) -> NotRun {
    NotRun(error.to_string())
}
