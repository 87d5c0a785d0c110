//! The list of experiments: which there are, how often each fault happens, and which bug each must
//! be able to notice.

use std::process::ExitCode;

use mailbox::backends::journal::Bug;

use crate::mount::Volume;
use crate::random::Random;
use crate::report::{NotRun, Outcome, heading, line, say};
use crate::scene::Scene;
use crate::symptom::Symptom;
use crate::{full, kill, power, sync_failure};

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Experiment {
    Kill,
    Power,
    FullTmpfs,
    FullExt4,
    Sync,
}

/// Every experiment, with the number of faults of an ordinary run.
const ALL: [(Experiment, u64); 5] = [
    (Experiment::Kill, 300),
    (Experiment::Power, 150),
    (Experiment::FullTmpfs, 20),
    (Experiment::FullExt4, 5),
    (Experiment::Sync, 8),
];

/// Faults until a planted bug must have been noticed. Each ends with the first notice, which takes
/// 1 to 60 of them: it depends on chance and on the machine, so there are plenty.
const SELF_TEST_FAULTS: u64 = 1000;

/// Which bug which experiment must notice, and by what.
/// A kill takes nothing away that the operating system has: bugs about the disk need power cuts.
/// Two bugs cannot be seen here, and are seen on the simulated disk: a directory that is not
/// synced, because ext4 writes the names of two spare segments before either is used; and a failed
/// sync that is ignored, because what `strace` fails was not lost, and the next sync writes it.
const SELF_TESTS: [(Experiment, Bug, Symptom); 4] = [
    (Experiment::Kill, Bug::AckNotWritten, Symptom::BackAgain),
    (Experiment::Power, Bug::AckNotWritten, Symptom::BackAgain),
    (Experiment::Power, Bug::AnswerBeforeSync, Symptom::BrokenPromise),
    (Experiment::FullTmpfs, Bug::NoReserve, Symptom::Any),
];

impl Experiment {
    /// What it is called on the command line.
    const fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Power => "power",
            Self::FullTmpfs | Self::FullExt4 => "full",
            Self::Sync => "sync",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Power => "power cut, ext4",
            Self::FullTmpfs => "fill and drain, 8 MiB tmpfs",
            Self::FullExt4 => "fill and drain, 32 MiB ext4",
            Self::Sync => "failing sync",
        }
    }

    async fn run(self, scene: &Scene, faults: u64) -> Result<Outcome, NotRun> {
        match self {
            Self::Kill => kill::run(scene, faults).await,
            Self::Power => power::run(scene, faults).await,
            Self::FullTmpfs => full::run(scene, Volume::tmpfs(8)?, 8, faults).await,
            Self::FullExt4 => full::run(scene, Volume::ext4(32)?, 32, faults).await,
            Self::Sync => sync_failure::run(scene, faults).await,
        }
    }
}

/// What has come of all of them.
#[derive(Debug, Default)]
struct Summary {
    failed: u32,
    not_run: u32,
}

/// Runs those that were asked for, or all.
pub(crate) async fn run(words: &[String]) -> ExitCode {
    let is_asked = |word: &str| words.is_empty() || words.iter().any(|asked| asked == word);
    let known = |word: &String| {
        word == "self-test" || ALL.iter().any(|(experiment, _)| experiment.word() == word)
    };
    if let Some(unknown) = words.iter().find(|word| !known(word)) {
        say(&format!("{unknown:?} is none of kill, power, full, sync, self-test"));
        return ExitCode::from(crate::USAGE);
    }
    let scale = number("FAULTS_SCALE").unwrap_or(1).max(1);
    let seed = number("FAULTS_SEED").unwrap_or_else(Random::fresh_seed);
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            say(&format!("cannot find this program: {error}"));
            return ExitCode::FAILURE;
        }
    };
    say(&format!("FAULTS_SEED={seed} FAULTS_SCALE={scale}"));
    let scene = Scene { program, seed, planted: None };
    let mut summary = Summary::default();
    heading();
    for (experiment, faults) in ALL {
        if is_asked(experiment.word()) {
            summary.experiment(&scene, experiment, faults * scale).await;
        }
    }
    if is_asked("self-test") {
        say("with a planted bug, which must be noticed:");
        for (experiment, bug, symptom) in SELF_TESTS {
            summary.self_test(&scene, experiment, bug, symptom).await;
        }
    }
    summary.exit_code()
}

impl Summary {
    async fn experiment(&mut self, scene: &Scene, experiment: Experiment, faults: u64) {
        match experiment.run(scene, faults).await {
            Ok(outcome) => {
                line(experiment.title(), &outcome);
                self.failed += u32::from(!outcome.is_clean());
            }
            Err(why) => self.did_not_run(experiment.title(), &why),
        }
    }

    /// Switches a bug on; `symptom` is what it must lead to.
    async fn self_test(
        &mut self,
        scene: &Scene,
        experiment: Experiment,
        bug: Bug,
        symptom: Symptom,
    ) {
        let title = format!("{}: {bug:?}", experiment.word());
        let scene = Scene { planted: Some((bug, symptom)), ..scene.clone() };
        match experiment.run(&scene, SELF_TEST_FAULTS).await {
            Ok(mut outcome) => {
                outcome.violations.truncate(1);
                line(&title, &outcome);
                if !symptom.is_in(&outcome.tally) {
                    say("    NOT NOTICED: an experiment that cannot fail shows nothing");
                    self.failed += 1;
                }
            }
            Err(why) => self.did_not_run(&title, &why),
        }
    }

    fn did_not_run(&mut self, title: &str, NotRun(why): &NotRun) {
        say(&format!("{title:<34}NOT RUN: {why}"));
        self.not_run += 1;
    }

    fn exit_code(&self) -> ExitCode {
        let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        if self.not_run > 0 {
            say(&format!("{} experiments could not run here", self.not_run));
        }
        if self.failed > 0 {
            say(&format!("{} experiments FAILED", self.failed));
        }
        if self.failed > 0 || (is_ci && self.not_run > 0) {
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
