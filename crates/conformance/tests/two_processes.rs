//! Two processes on the same inboxes, beyond the cases: at the same time in real time, and against
//! the specification. `SEED` gives other sequences, `SEQUENCES` more of them. It has a `main` of
//! its own because it is also the other process.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use mailbox_conformance::model::{Plan, check};
use mailbox_conformance::{Subject, peer, subjects};

/// Messages of a run of both at once.
const MESSAGES: u64 = 400;

fn main() -> ExitCode {
    if let Some(served) = peer::serve_if_asked() {
        return served;
    }
    let trials = vec![
        Trial::test("both_at_once_lose_nothing_and_share_nothing", || both_at_once(0)),
        Trial::test("both_at_once_lose_nothing_and_share_nothing_over_64_folders", || {
            both_at_once(1)
        }),
        Trial::test("dir_agrees_with_the_specification", || agrees(&subjects::dir(), 100)),
        Trial::test("dir_two_agrees_with_the_specification", || agrees(&subjects::dir_two(), 60)),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

fn both_at_once(seed: u64) -> Result<(), Failed> {
    let seed = number("SEED").map_or(seed, |given| 2 * given + seed);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(peer::both_at_once(MESSAGES, seed));
    Ok(outcome.map_err(|error| error.to_string())?)
}

/// Less than elsewhere: there is a disk behind it, and perhaps a process for each sequence.
fn agrees(subject: &Subject, sequences: u32) -> Result<(), Failed> {
    let mut plan = Plan { sequences, late_stays: true, ..Plan::default() };
    plan.seed = number("SEED").unwrap_or(plan.seed);
    plan.sequences = number("SEQUENCES").map_or(plan.sequences, |many| many as u32);
    Ok(check(subject, plan)?)
}
