//! Runs cases as named tests: one per subject and case, through libtest-mimic, so that they can be
//! listed, filtered and run in parallel like any others.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::case::{Case, Outcome};
use crate::peer;
use crate::report::{self, Sheet};
use crate::subject::{Setup, Subject};

/// Longest a case may take: one that waits for what never comes must fail, not hang.
const LONGEST_CASE: Duration = Duration::from_secs(60);

/// Cases at a time where time is real: most of them sleep.
const SLEEPERS: usize = 12;

/// Runs what the command line asks for, and says at the end how much ran on each subject.
#[must_use]
pub fn main(subjects: &[Subject], cases: &[Case]) -> ExitCode {
    if let Some(served) = peer::serve_if_asked() {
        return served;
    }
    let mut arguments = Arguments::from_args();
    let sheets: Vec<Sheet> = subjects.iter().map(|subject| Sheet::new(subject, cases)).collect();
    let ran: Vec<Arc<AtomicUsize>> = sheets.iter().map(|_| Arc::default()).collect();
    let mut trials = report::checks(&sheets, cases);
    let is_real = subjects.iter().all(|subject| !subject.info.virtual_time);
    if is_real && arguments.test_threads.is_none() {
        arguments.test_threads = Some(SLEEPERS);
    }
    for ((subject, sheet), ran) in subjects.iter().zip(&sheets).zip(&ran) {
        trials.extend(sheet.applicable.iter().map(|case| trial(subject, *case, ran)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    // A tool that lists tests, or runs one, reads what is printed.
    if !arguments.list && !arguments.exact {
        let mut out = std::io::stdout().lock();
        for (sheet, ran) in sheets.iter().zip(&ran) {
            // Nobody is there to read it if this fails.
            let _ = writeln!(out, "{}", sheet.summary(ran.load(Ordering::Relaxed)));
        }
    }
    conclusion.exit_code()
}

fn trial(subject: &Subject, case: Case, ran: &Arc<AtomicUsize>) -> Trial {
    let (subject, ran) = (subject.clone(), Arc::clone(ran));
    Trial::test(format!("{}::{}::{}", subject.info.name, case.id, case.name), move || {
        ran.fetch_add(1, Ordering::Relaxed);
        run(&subject, &case).map_err(|error| Failed::from(error.to_string()))
    })
}

/// Runs one case on one subject, in a runtime of its own.
///
/// # Errors
/// What went wrong, unless an assertion did: that panics.
pub fn run(subject: &Subject, case: &Case) -> Outcome {
    run_within(LONGEST_CASE, subject, case)
}

fn run_within(longest: Duration, subject: &Subject, case: &Case) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let world = subject.open(Setup::default()).await?;
        let done = tokio::time::timeout(longest, (case.run)(world.clone())).await;
        world.end().await;
        done.unwrap_or_else(|_| Err(format!("not done after {longest:?}").into()))
    });
    // Threads that a failed case has left waiting are left behind.
    runtime.shutdown_background();
    outcome
}

/// Whether a case fails on a subject, or hangs: for tests of the suite itself.
#[must_use]
pub fn notices(subject: &Subject, case: &Case) -> bool {
    let run = || run_within(LONGEST_CASE / 20, subject, case);
    // What a panic leaves behind belongs to the case's own world, which is gone with it.
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    !matches!(ran, Ok(Ok(())))
}
