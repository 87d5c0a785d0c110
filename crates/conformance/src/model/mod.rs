//! Differential testing: random sequences of commands run on a subject's mailbox and on
//! [`mailbox_core::Queue`], the executable specification, at the same virtual times. After every
//! command both must show the same: what the command gave, every message in its state and order,
//! every count.
//!
//! A subject is driven through its `Mailbox` alone, so whatever takes its time from the case's
//! clock can be checked; what its `Abilities` lack is left out of the commands. Sequences come from
//! a seed and are shrunk: a difference is reported with the shortest story that shows it.

mod command;
mod drive;
mod oracle;
mod sight;

use mailbox::Result;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::subject::{Setup, Subject};

pub use command::{Choice, Command, Rules, Which};
use drive::Driven;
use oracle::Oracle;
pub use sight::Sight;

/// How much to try.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How many sequences.
    pub sequences: u32,
    /// Most commands of one.
    pub commands: usize,
    /// Where the sequences come from: the same seed gives the same.
    pub seed: u64,
    /// Whether late settling stays allowed or refused, as it was at first. A home that does not
    /// keep what it would have to refuse cannot allow it afterwards.
    pub late_stays: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self { sequences: 1_000, commands: 40, seed: 20_250_101, late_stays: false }
    }
}

/// Looks for a sequence of commands on which a subject and the specification differ.
///
/// # Errors
/// The shortest such sequence that could be found, and what was seen.
pub fn check(subject: &Subject, plan: Plan) -> Result<(), String> {
    let config = Config {
        cases: plan.sequences,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&plan.seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let stories = command::stories(plan.commands);
    TestRunner::new_with_rng(config, rng)
        .run(&stories, |(rules, mut commands)| {
            for command in commands.iter_mut().filter(|_| plan.late_stays) {
                if let Command::Configure(next) = command {
                    next.late = rules.late;
                }
            }
            let differs = runtime.block_on(first_difference(subject, &rules, &commands));
            match differs.map_err(|error| TestCaseError::fail(error.to_string()))? {
                None => Ok(()),
                Some(difference) => Err(TestCaseError::fail(difference)),
            }
        })
        .map_err(|error| error.to_string())
}

/// Where a subject and the specification differ first, if they do.
///
/// # Errors
/// What the subject gave where nothing can be refused.
pub async fn first_difference(
    subject: &Subject,
    rules: &Rules,
    commands: &[Command],
) -> Result<Option<String>> {
    let world = subject.open(Setup::default()).await?;
    let mut driven = Driven::new(&world)?;
    let mut oracle = Oracle::new(world.unit());
    let start = Command::Configure(rules.clone());
    for (step, command) in [&start].into_iter().chain(commands).enumerate() {
        let command = command.within(world.abilities());
        let gave = driven.run(&command).await?;
        let expected = oracle.run(&command);
        if gave != expected {
            let what = format!("step {step}, {command:?}: gave {gave:?}, expected {expected:?}");
            return Ok(Some(what));
        }
        let (shows, expected) = (driven.look().await?, oracle.look());
        if shows != expected {
            let what = format!("after step {step}, {command:?}: {}", shows.against(&expected));
            return Ok(Some(what));
        }
    }
    world.end().await;
    Ok(None)
}
