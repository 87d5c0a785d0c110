//! Workers are killed (SIGKILL) at random moments: where there are several, first some alone, while
//! the others go on, then all; some while they recover from the kill before. Whatever was answered
//! must be there, whatever was deleted must not.

use crate::ledger::Ledger;
use crate::life::Life;
use crate::random::Random;
use crate::report::{NotRun, Outcome};
use crate::scene::{Folder, Scene, wait};
use crate::subject::Subject;
use crate::violation::Violation;
use crate::worker::{Crew, Said};

/// Kills of one home before the next one begins.
const KILLS_PER_HOME: u64 = 30;
/// Most kills of one of several workers before all are killed.
const KILLS_ALONE: u64 = 7;
/// Messages of each mailbox that stay after an audit.
const KEEP: usize = 40;

/// Runs it.
pub(crate) async fn run(scene: &Scene, subject: Subject, kills: u64) -> Result<Outcome, NotRun> {
    let mut outcome = scene.outcome();
    let mut home = 0;
    while outcome.goes_on(kills) {
        let limit = KILLS_PER_HOME.min(kills - outcome.faults);
        if let Err(why) = one_home(scene, subject, home, limit, &mut outcome).await {
            return outcome.obstructed(why);
        }
        home += 1;
    }
    Ok(outcome.end())
}

/// The life of one home, which ends early if it is broken.
async fn one_home(
    scene: &Scene,
    subject: Subject,
    home: u64,
    limit: u64,
    outcome: &mut Outcome,
) -> Result<(), NotRun> {
    let folder = Folder::new(&std::env::temp_dir());
    let folder = folder.map_err(|error| NotRun(format!("no temporary folder: {error}")))?;
    let mut life = Life::new(scene, subject, home, folder.path());
    if subject.keeps_counts() {
        life.ledger = Ledger::counting();
    }
    let mut random = scene.random(&format!("kill {} {home}", subject.word()));
    let last = outcome.faults + limit;
    while outcome.faults < last {
        let mut crew = life.crew()?;
        let acked = crew.first_acks().await;
        let alone = if crew.len() > 1 { random.below(KILLS_ALONE + 1) } else { 0 };
        for _ in 0..alone {
            if crew.len() > 1 && outcome.faults + 1 < last {
                kill_one(&mut life, &mut crew, &mut random).await?;
                outcome.faults += 1;
            }
        }
        wait(random.millis(1, 60)).await;
        let mut said = crew.kill().await.map_err(not_run)?;
        outcome.faults += 1;
        if !acked {
            said.ledger.report(Violation::Stuck("a worker's first answer".to_owned()));
        }
        // Some are killed again on their way up.
        if random.percent(30) && outcome.faults < last {
            blame(&mut said);
            life.ledger = said.ledger;
            let again = life.crew()?;
            wait(random.millis(2, 25)).await;
            let lines = said.lines;
            said = again.kill().await.map_err(not_run)?;
            said.lines.insert_str(0, &lines);
            outcome.faults += 1;
        }
        blame(&mut said);
        if life.audit(said, KEEP, outcome).await? {
            return Ok(());
        }
    }
    Ok(())
}

/// Kills one of several. Mostly another one takes its place.
async fn kill_one(life: &mut Life<'_>, crew: &mut Crew, random: &mut Random) -> Result<(), NotRun> {
    wait(random.millis(1, 40)).await;
    crew.kill_one(random.below(crew.len() as u64) as usize).await.map_err(not_run)?;
    if random.percent(75) {
        let roles = life.setup.subject().crew();
        life.join(crew, roles[random.below(roles.len() as u64) as usize])?;
    }
    Ok(())
}

/// Nothing fails in a worker that is only killed.
fn blame(said: &mut Said) {
    for failure in std::mem::take(&mut said.failures) {
        said.ledger.report(Violation::Failure(failure.to_string()));
    }
}

fn not_run(error: std::io::Error) -> NotRun {
    NotRun(format!("a worker: {error}"))
}
