//! The list of experiments: which there are, how often each fault happens, and which bug each must
//! be able to notice.

use std::process::ExitCode;

use mailbox::backends::{directory, journal};

use crate::mount::Volume;
use crate::random::Random;
use crate::report::{NotRun, Outcome, heading, say};
use crate::scene::Scene;
use crate::subject::{Bug, Setup, Subject};
use crate::summary::Summary;
use crate::symptom::Symptom;
use crate::{full, kill, power, race, redis, sync_failure};

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
    if asked.has_disks() {
        heading();
    }
    for (experiment, subject, faults) in ALL {
        if asked.has(experiment.word(), subject.word()) {
            let title = format!("{}: {}", subject.word(), experiment.title());
            summary.judge(&title, experiment.run(&scene, subject, faults * scale).await);
        }
    }
    let tests = SELF_TESTS.iter().filter(|(_, bug, _)| asked.has(SELF_TEST, bug.subject().word()));
    for (place, (experiment, bug, symptom)) in tests.enumerate() {
        if place == 0 {
            say("with a planted bug, which must be noticed:");
        }
        let title = format!("{}: {}: {bug}", bug.subject().word(), experiment.word());
        let scene = Scene { planted: Some((*bug, *symptom)), ..scene.clone() };
        let outcome = experiment.run(&scene, bug.subject(), SELF_TEST_FAULTS).await;
        summary.judge_planted(&title, outcome, *symptom);
    }
    if asked.has_redis() {
        let asked = redis::Asked { words: asked.words(), seed, scale };
        redis::run(&scene.program, &asked, &mut summary).await;
    }
    summary.exit_code()
}

/// Which experiments were asked for: all, if nothing was said.
#[derive(Debug)]
struct Asked {
    experiments: Vec<&'static str>,
    homes: Vec<&'static str>,
}

/// What the experiments with planted bugs are called on the command line.
pub(crate) const SELF_TEST: &str = "self-test";

/// What experiments against disks are called on the command line.
const ON_DISK: [&str; 5] = ["kill", "power", "full", "sync", "race"];

/// What is tried.
const HOMES: [&str; 3] = [Subject::Journal.word(), Subject::Directory.word(), redis::WORD];

impl Asked {
    fn parse(words: &[String]) -> Result<Self, String> {
        let known = [&ON_DISK[..], &redis::WORDS, &[SELF_TEST]].concat();
        let mut asked = Self { experiments: Vec::new(), homes: Vec::new() };
        for word in words {
            if let Some(home) = HOMES.into_iter().find(|home| home == word) {
                asked.homes.push(home);
            } else if let Some(experiment) = known.iter().find(|known| *known == word) {
                asked.experiments.push(experiment);
            } else {
                let (known, homes) = (known.join(", "), HOMES.join(", "));
                return Err(format!("{word:?} is none of {known}, {homes}"));
            }
        }
        Ok(asked)
    }

    fn has(&self, experiment: &str, home: &str) -> bool {
        (self.experiments.is_empty() || self.experiments.contains(&experiment))
            && (self.homes.is_empty() || self.homes.contains(&home))
    }

    /// Whether there is anything to do to mailboxes on disk.
    fn has_disks(&self) -> bool {
        let has = |home: &str| ON_DISK.iter().chain([&SELF_TEST]).any(|word| self.has(word, home));
        HOMES.iter().any(|home| *home != redis::WORD && has(home))
    }

    /// Whether there is anything to do to mailboxes on Redis.
    fn has_redis(&self) -> bool {
        redis::WORDS.iter().chain([&SELF_TEST]).any(|word| self.has(word, redis::WORD))
    }

    fn words(&self) -> Vec<String> {
        self.experiments.iter().map(|word| (*word).to_owned()).collect()
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
