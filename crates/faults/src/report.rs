//! What an experiment gives, and how it is shown: one line each, in columns.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::ledger::Ledger;
use crate::symptom::Symptom;
use crate::violation::{Tally, Violation};

/// Violations that are shown in full; the others are counted.
const SHOWN: usize = 10;

/// An experiment ends when it has found something this often: it will not get better.
const BROKEN: u64 = 5;

/// The result of an experiment.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How often the fault happened.
    pub(crate) faults: u64,
    /// Sends that were answered.
    pub(crate) acked_sends: u64,
    /// Deletions that were answered.
    pub(crate) acked_deletes: u64,
    /// What was broken.
    pub(crate) tally: Tally,
    /// The first of them.
    pub(crate) violations: Vec<Violation>,
    /// What else is worth knowing.
    pub(crate) remark: Option<String>,
    /// What a planted bug must lead to: the experiment goes on until it does.
    until: Option<Symptom>,
    /// How often something was found to be broken.
    broken: u64,
    started: Instant,
    time: Duration,
}

/// Why an experiment could not run on this machine.
#[derive(Debug)]
pub(crate) struct NotRun(pub(crate) String);

impl Outcome {
    /// Nothing yet; with a planted bug, `until` is what it must lead to.
    pub(crate) fn start(until: Option<Symptom>) -> Self {
        Self {
            faults: 0,
            acked_sends: 0,
            acked_deletes: 0,
            tally: Tally::default(),
            violations: Vec::new(),
            remark: None,
            until,
            broken: 0,
            started: Instant::now(),
            time: Duration::ZERO,
        }
    }

    /// Takes what a ledger has counted and found since the last time; returns whether anything was
    /// broken.
    pub(crate) fn take(&mut self, ledger: &mut Ledger) -> bool {
        let counts = ledger.take_counts();
        self.acked_sends += counts.sends;
        self.acked_deletes += counts.deletes;
        self.take_all(ledger.take_violations())
    }

    /// Takes what was found since the last time; returns whether anything was broken.
    pub(crate) fn take_all(&mut self, found: Vec<Violation>) -> bool {
        let any = !found.is_empty();
        self.broken += u64::from(any);
        for violation in found {
            self.add(violation);
        }
        any
    }

    /// Adds a violation.
    pub(crate) fn add(&mut self, violation: Violation) {
        self.tally.add(&violation);
        if self.violations.len() < SHOWN {
            self.violations.push(violation);
        }
    }

    /// Something is in the way. An experiment that has not begun could not run here; one that has
    /// is over, and has failed: whatever it was, it worked before.
    pub(crate) fn obstructed(mut self, why: NotRun) -> Result<Self, NotRun> {
        if self.faults == 0 {
            return Err(why);
        }
        self.broken += 1;
        self.add(Violation::Failure(why.0));
        Ok(self.end())
    }

    /// The end. An experiment in which nothing was ever answered shows nothing, and fails.
    pub(crate) fn end(mut self) -> Self {
        if self.broken == 0 && (self.acked_sends == 0 || self.acked_deletes == 0) {
            self.add(Violation::Failure("no send or no deletion was ever answered".to_owned()));
        }
        self.time = self.started.elapsed();
        self
    }

    /// Whether there is more to do: there are faults left, and what was looked for was not found,
    /// or not too much is broken already.
    pub(crate) fn goes_on(&self, faults: u64) -> bool {
        let is_enough = match self.until {
            Some(symptom) => symptom.is_in(&self.tally),
            None => self.broken >= BROKEN,
        };
        self.faults < faults && !is_enough
    }

    /// Whether every promise was kept.
    pub(crate) fn is_clean(&self) -> bool {
        self.tally == Tally::default()
    }
}

/// Writes the heading of the columns.
pub(crate) fn heading() {
    say(&format!(
        "{:<40}{:>7}{:>13}{:>15}{:>7}{:>12}{:>9}{:>15}{:>7}{:>9}",
        "experiment",
        "faults",
        "acked sends",
        "acked deletes",
        "lost",
        "back again",
        "phantom",
        "refused opens",
        "other",
        "time"
    ));
}

/// Writes the line of an experiment, and what was broken.
pub(crate) fn line(name: &str, outcome: &Outcome) {
    let tally = &outcome.tally;
    say(&format!(
        "{name:<40}{:>7}{:>13}{:>15}{:>7}{:>12}{:>9}{:>15}{:>7}{:>7.1} s",
        outcome.faults,
        outcome.acked_sends,
        outcome.acked_deletes,
        tally.lost,
        tally.back_again,
        tally.phantom,
        tally.refused_opens,
        tally.doubled + tally.miscounted + tally.other,
        outcome.time.as_secs_f64()
    ));
    if let Some(remark) = &outcome.remark {
        say(&format!("    {remark}"));
    }
    for violation in &outcome.violations {
        say(&format!("    {violation}"));
    }
}

/// Writes a line of text. That nobody reads it is no reason to stop.
pub(crate) fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{text}").and_then(|()| output.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Outcome {
        Outcome { faults: 1, acked_sends: 1, acked_deletes: 1, ..Outcome::start(None) }
    }

    #[test]
    fn an_experiment_without_answers_is_not_clean() {
        assert!(busy().end().is_clean());
        assert!(!Outcome { acked_sends: 0, ..busy() }.end().is_clean());
        assert!(!Outcome { acked_deletes: 0, ..busy() }.end().is_clean());
    }

    #[test]
    fn an_obstacle_before_the_first_fault_is_no_failure_and_after_it_is_one() {
        let obstacle = || NotRun("no such tool".to_owned());
        assert!(Outcome::start(None).obstructed(obstacle()).is_err());
        assert!(!busy().obstructed(obstacle()).unwrap().is_clean());
    }

    #[test]
    fn an_experiment_goes_on_until_it_has_its_faults_or_has_found_enough() {
        let mut outcome = busy();
        assert!(outcome.goes_on(2));
        assert!(!outcome.goes_on(1));
        let mut ledger = Ledger::default();
        for _ in 0..BROKEN {
            assert!(outcome.goes_on(2));
            ledger.report(Violation::Lost(1));
            assert!(outcome.take(&mut ledger));
        }
        assert!(!outcome.goes_on(2));
        assert_eq!(outcome.tally.lost, BROKEN);
    }

    #[test]
    fn an_experiment_with_a_planted_bug_goes_on_until_that_is_what_it_has_found() {
        let mut outcome = Outcome { until: Some(Symptom::BackAgain), ..busy() };
        for _ in 0..2 * BROKEN {
            outcome.add(Violation::Lost(1));
            assert!(outcome.goes_on(2));
        }
        outcome.add(Violation::BackAgain(1));
        assert!(!outcome.goes_on(2));
        assert!(!Outcome { until: Some(Symptom::Any), ..busy() }.goes_on(1));
    }
}
