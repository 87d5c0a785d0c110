//! Real faults against mailboxes on Redis, Cluster and Sentinel, with `durability=replicated`:
//! masters that die, stand still or are cut off, slots that move, servers that forget. Invariant:
//! whatever was answered holds, and service is back soon.
//!
//! All of it happens in a network namespace, in which this program runs itself once more.

mod book;
mod failover;
mod load;
mod namespace;
mod reshard;
mod sentinel;
mod stage;

use std::path::Path;
use std::process::ExitCode;

pub(crate) use mailbox::backends::redis::Bug;

use crate::report::{NotRun, Outcome, heading, say};
use crate::summary::Summary;
use crate::symptom::Symptom;

use failover::Fault;
pub(crate) use namespace::INSIDE;
use stage::Stage;

/// What it is called on the command line.
pub(crate) const WORD: &str = "redis";

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Experiment {
    Failover(Fault),
    Reshard,
    Sentinel,
}

/// Every experiment, with the number of faults of an ordinary run.
const ALL: [(Experiment, u64); 6] = [
    (Experiment::Failover(Fault::Kill), 3),
    (Experiment::Failover(Fault::Pause), 3),
    (Experiment::Failover(Fault::Partition), 3),
    (Experiment::Failover(Fault::Stall), 1),
    (Experiment::Reshard, 4),
    (Experiment::Sentinel, 2),
];

/// Faults until a planted bug must have been noticed: the first should do.
const SELF_TEST_FAULTS: u64 = 5;

/// Which bug which fault must bring to light, and by what.
const SELF_TESTS: [(Fault, Bug, Symptom); 3] = [
    (Fault::Partition, Bug::NotWaited, Symptom::Lost),
    // Acknowledgements are confirmed as sends are: either may be undone.
    (Fault::Partition, Bug::ShortCountIsEnough, Symptom::BrokenPromise),
    (Fault::Stall, Bug::NewIdOnRetry, Symptom::Doubled),
];

impl Experiment {
    /// What it is called on the command line, alone and together with others.
    const fn words(self) -> [&'static str; 2] {
        match self {
            Self::Failover(fault) => [fault.word(), "failover"],
            Self::Reshard => ["reshard", "reshard"],
            Self::Sentinel => ["sentinel", "failover"],
        }
    }

    fn title(self) -> String {
        match self {
            Self::Failover(fault) => format!("{WORD}: {fault}"),
            Self::Reshard => format!("{WORD}: moving slots, lost scripts"),
            Self::Sentinel => format!("{WORD}: kill -9 and pause of a master under sentinels"),
        }
    }

    async fn run(self, stage: &mut Stage, faults: u64) -> Result<Outcome, NotRun> {
        match self {
            Self::Failover(fault) => failover::run(stage, fault, faults, None).await,
            Self::Reshard => reshard::run(stage, faults).await,
            Self::Sentinel => sentinel::run(stage.seed, faults).await,
        }
    }
}

/// The words for [`Experiment`]s.
pub(crate) const WORDS: [&str; 7] =
    ["failover", "kill", "pause", "partition", "stall", "reshard", "sentinel"];

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The words that were said; none: everything.
    pub(crate) words: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) scale: u64,
}

/// Runs everything that was asked for in a namespace.
pub(crate) async fn run(program: &Path, asked: &Asked, summary: &mut Summary) {
    let command = match namespace::enter(program) {
        Ok(command) => command,
        Err(why) => return summary.did_not_run(WORD, &why),
    };
    let mut command = tokio::process::Command::from(command);
    command.args([asked.seed.to_string(), asked.scale.to_string()]).args(&asked.words);
    match command.kill_on_drop(true).status().await {
        Ok(status) => match status.code().and_then(Summary::decode) {
            Some(inside) => summary.add(&inside),
            None => {
                say(&format!("{WORD}: the experiments ended with {status}"));
                summary.failed += 1;
            }
        },
        Err(error) => summary.did_not_run(WORD, &NotRun(format!("unshare: {error}"))),
    }
}

/// The same program, inside.
pub(crate) async fn inside(arguments: &[String]) -> ExitCode {
    let Some(asked) = Asked::parse(arguments) else { return ExitCode::from(crate::USAGE) };
    let mut summary = Summary::default();
    let stage = namespace::set_up().and_then(|()| Stage::start(asked.seed));
    match stage {
        Ok(mut stage) => asked.run(&mut stage, &mut summary).await,
        Err(why) => summary.did_not_run(WORD, &why),
    }
    summary.encode()
}

impl Asked {
    fn parse(arguments: &[String]) -> Option<Self> {
        let [seed, scale, words @ ..] = arguments else { return None };
        Some(Self { words: words.to_vec(), seed: seed.parse().ok()?, scale: scale.parse().ok()? })
    }

    fn has(&self, word: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|said| said == word)
    }

    async fn run(&self, stage: &mut Stage, summary: &mut Summary) {
        heading();
        for (experiment, faults) in ALL {
            if experiment.words().into_iter().any(|word| self.has(word)) {
                let outcome = experiment.run(stage, faults * self.scale).await;
                summary.judge(&experiment.title(), outcome);
            }
        }
        if !self.has(crate::experiments::SELF_TEST) {
            return;
        }
        say("with a planted bug, which must be noticed:");
        for (fault, bug, symptom) in SELF_TESTS {
            let planted = Some((bug, symptom));
            let outcome = failover::run(stage, fault, SELF_TEST_FAULTS, planted).await;
            summary.judge_planted(&format!("{WORD}: {}: {bug:?}", fault.word()), outcome, symptom);
        }
    }
}
