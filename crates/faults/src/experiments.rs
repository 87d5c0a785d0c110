//! The list of experiments: which there are, how often each fault happens, and which bug each must
//! be able to notice.

use std::process::ExitCode;

use mailbox::backends::{directory, journal};

use crate::mount::Volume;
use crate::random::Random;
use crate::report::{NotRun, Outcome, heading, line, say};
use crate::scene::Scene;
use crate::subject::{Bug, Setup, Subject};
use crate::symptom::Symptom;
use crate::{full, kill, power, race, sync_failure};

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Experiment {
    Kill,
    Power,
    FullTmpfs,
    FullExt4,
    FullFolders,
    Sync,
    Race,
}

/// Every experiment, with the number of faults of an ordinary run. In a race, each message is one:
/// many want it, one may get it.
const ALL: [(Experiment, Subject, u64); 10] = [
    (Experiment::Kill, Subject::Journal, 300),
    (Experiment::Power, Subject::Journal, 150),
    (Experiment::FullTmpfs, Subject::Journal, 20),
    (Experiment::FullExt4, Subject::Journal, 5),
    (Experiment::Sync, Subject::Journal, 8),
    (Experiment::Kill, Subject::Directory, 300),
    (Experiment::Power, Subject::Directory, 150),
    (Experiment::FullTmpfs, Subject::Directory, 10),
    (Experiment::FullFolders, Subject::Directory, 2),
    (Experiment::Race, Subject::Directory, 50_000),
];

/// Length of the journal's files where disks are small.
const SEGMENT_LEN: u32 = 256 * 1024;

/// Faults until a planted bug must have been noticed. Each ends with the first notice, which takes
/// 1 to 60 of them: it depends on chance and on the machine, so there are plenty.
const SELF_TEST_FAULTS: u64 = 1000;

/// Which bug which experiment must notice, and by what.
/// A kill takes nothing away that the operating system has: bugs about the disk need power cuts.
/// Two bugs of the journal cannot be seen here, and are seen on the simulated disk: a directory
/// that is not synced, because ext4 writes the names of two spare segments before either is used;
/// and a failed sync that is ignored, because what `strace` fails was not lost, and the next sync
/// writes it.
const SELF_TESTS: [(Experiment, Bug, Symptom); 10] = [
    (Experiment::Kill, Bug::Journal(journal::Bug::AckNotWritten), Symptom::BackAgain),
    (Experiment::Power, Bug::Journal(journal::Bug::AckNotWritten), Symptom::BackAgain),
    (Experiment::Power, Bug::Journal(journal::Bug::AnswerBeforeSync), Symptom::BrokenPromise),
    (Experiment::FullTmpfs, Bug::Journal(journal::Bug::NoReserve), Symptom::Any),
    (Experiment::Kill, Bug::Directory(directory::Bug::AckNotWritten), Symptom::BackAgain),
    (Experiment::Kill, Bug::Directory(directory::Bug::CountForgotten), Symptom::Miscounted),
    (Experiment::Power, Bug::Directory(directory::Bug::FileNotSynced), Symptom::Lost),
    (Experiment::Power, Bug::Directory(directory::Bug::FolderNotSynced), Symptom::Lost),
    (Experiment::Power, Bug::Directory(directory::Bug::AckNotSynced), Symptom::BackAgain),
    (Experiment::Race, Bug::Directory(directory::Bug::ClaimByCopy), Symptom::Doubled),
];

impl Experiment {
    /// What it is called on the command line.
    const fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Power => "power",
            Self::FullTmpfs | Self::FullExt4 | Self::FullFolders => "full",
            Self::Sync => "sync",
            Self::Race => "race",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Power => "power cut, ext4",
            Self::FullTmpfs => "fill and drain, 8 MiB tmpfs",
            Self::FullExt4 => "fill and drain, 32 MiB ext4",
            Self::FullFolders => "fill and drain, 8 MiB ext4",
            Self::Sync => "failing sync",
            Self::Race => "race for files",
        }
    }

    async fn run(self, scene: &Scene, subject: Subject, faults: u64) -> Result<Outcome, NotRun> {
        match self {
            Self::Kill => kill::run(scene, subject, faults).await,
            Self::Power => power::run(scene, subject, faults).await,
            Self::FullTmpfs => {
                let setup = match subject {
                    Subject::Journal => Setup::journal(SEGMENT_LEN, 1, scene.bug()),
                    Subject::Directory => Setup::directory(false, false, scene.bug()),
                };
                full::run(scene, setup, Volume::tmpfs(8)?, 8, faults).await
            }
            Self::FullExt4 => {
                let setup = Setup::journal(SEGMENT_LEN, 1, scene.bug());
                full::run(scene, setup, Volume::ext4(32)?, 32, faults).await
            }
            // With buckets: new folders take space, and so do names in folders that are full.
            Self::FullFolders => {
                let setup = Setup::directory(true, false, scene.bug());
                full::run(scene, setup, Volume::ext4_of_small_files(8)?, 4, faults).await
            }
            Self::Sync => sync_failure::run(scene, faults).await,
            Self::Race => race::run(scene, faults).await,
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
    let asked = match Asked::parse(words) {
        Ok(asked) => asked,
        Err(why) => {
            say(&why);
            return ExitCode::from(crate::USAGE);
        }
    };
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
    for (experiment, subject, faults) in ALL {
        if asked.has(experiment.word(), subject) {
            summary.experiment(&scene, experiment, subject, faults * scale).await;
        }
    }
    let tests = SELF_TESTS.iter().filter(|(_, bug, _)| asked.has(SELF_TEST, bug.subject()));
    for (place, (experiment, bug, symptom)) in tests.enumerate() {
        if place == 0 {
            say("with a planted bug, which must be noticed:");
        }
        summary.self_test(&scene, *experiment, *bug, *symptom).await;
    }
    summary.exit_code()
}

/// Which experiments were asked for: all, if nothing was said.
#[derive(Debug)]
struct Asked {
    experiments: Vec<&'static str>,
    subjects: Vec<Subject>,
}

/// What the experiments with planted bugs are called on the command line.
const SELF_TEST: &str = "self-test";

impl Asked {
    fn parse(words: &[String]) -> Result<Self, String> {
        let known = ["kill", "power", "full", "sync", "race", SELF_TEST];
        let mut asked = Self { experiments: Vec::new(), subjects: Vec::new() };
        for word in words {
            let subject = [Subject::Journal, Subject::Directory];
            if let Some(subject) = subject.into_iter().find(|subject| subject.word() == word) {
                asked.subjects.push(subject);
            } else if let Some(experiment) = known.iter().find(|known| *known == word) {
                asked.experiments.push(experiment);
            } else {
                let known = known.join(", ");
                return Err(format!("{word:?} is none of {known}, journal, dir"));
            }
        }
        Ok(asked)
    }

    fn has(&self, experiment: &str, subject: Subject) -> bool {
        (self.experiments.is_empty() || self.experiments.contains(&experiment))
            && (self.subjects.is_empty() || self.subjects.contains(&subject))
    }
}

impl Summary {
    async fn experiment(
        &mut self,
        scene: &Scene,
        experiment: Experiment,
        subject: Subject,
        faults: u64,
    ) {
        let title = format!("{}: {}", subject.word(), experiment.title());
        match experiment.run(scene, subject, faults).await {
            Ok(outcome) => {
                line(&title, &outcome);
                self.failed += u32::from(!outcome.is_clean());
            }
            Err(why) => self.did_not_run(&title, &why),
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
        let title = format!("{}: {}: {bug}", bug.subject().word(), experiment.word());
        let scene = Scene { planted: Some((bug, symptom)), ..scene.clone() };
        match experiment.run(&scene, bug.subject(), SELF_TEST_FAULTS).await {
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
        say(&format!("{title:<40}NOT RUN: {why}"));
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
