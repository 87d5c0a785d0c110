//! What has come of all experiments: how many kept their promises, how many could not run, and what
//! this program ends with.

use std::process::ExitCode;

use crate::report::{NotRun, Outcome, line, say};
use crate::symptom::Symptom;

/// Exit codes of a part of the experiments: this, and what happened in the two lowest bits.
const CODE: u8 = 64;
const FAILED: u8 = 1;
const NOT_RUN: u8 = 2;

/// What has come of all of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Experiments that found what must not be, or did not find what was planted.
    pub(crate) failed: u32,
    /// Experiments that could not run here.
    pub(crate) not_run: u32,
}

impl Summary {
    /// Shows what came of an experiment.
    pub(crate) fn judge(&mut self, title: &str, outcome: Result<Outcome, NotRun>) {
        match outcome {
            Ok(outcome) => {
                line(title, &outcome);
                self.failed += u32::from(!outcome.is_clean());
            }
            Err(why) => self.did_not_run(title, &why),
        }
    }

    /// Shows what came of an experiment with a planted bug, which must lead to `symptom`.
    pub(crate) fn judge_planted(
        &mut self,
        title: &str,
        outcome: Result<Outcome, NotRun>,
        symptom: Symptom,
    ) {
        match outcome {
            Ok(mut outcome) => {
                outcome.violations.truncate(1);
                line(title, &outcome);
                if !symptom.is_in(&outcome.tally) {
                    say("    NOT NOTICED: an experiment that cannot fail shows nothing");
                    self.failed += 1;
                }
            }
            Err(why) => self.did_not_run(title, &why),
        }
    }

    /// Shows why an experiment could not run.
    pub(crate) fn did_not_run(&mut self, title: &str, NotRun(why): &NotRun) {
        say(&format!("{title:<40}NOT RUN: {why}"));
        self.not_run += 1;
    }

    /// Adds another one.
    pub(crate) fn add(&mut self, other: &Self) {
        self.failed += other.failed;
        self.not_run += other.not_run;
    }

    /// Shows how many failed, and says what this program ends with. On CI everything must run.
    pub(crate) fn exit_code(&self) -> ExitCode {
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

    /// As the exit code of a part of the experiments; at most one of each kind is told.
    pub(crate) fn encode(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        let bit = |count: u32, bit: u8| if count > 0 { bit } else { 0 };
        CODE | bit(self.failed, FAILED) | bit(self.not_run, NOT_RUN)
    }

    /// Reads such an exit code; none if it is another, as after a panic.
    pub(crate) fn decode(code: i32) -> Option<Self> {
        let bits = u8::try_from(code).ok()?.checked_sub(CODE)?;
        let count = |bit: u8| u32::from(bits & bit != 0);
        (bits <= (FAILED | NOT_RUN))
            .then(|| Self { failed: count(FAILED), not_run: count(NOT_RUN) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_tells_by_its_exit_code_whether_it_failed_and_whether_it_ran() {
        for (failed, not_run) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let summary = Summary { failed, not_run };
            assert_eq!(Summary::decode(i32::from(summary.code())), Some(summary));
        }
        let many = Summary { failed: 7, not_run: 0 };
        assert_eq!(Summary::decode(many.code().into()), Some(Summary { failed: 1, not_run: 0 }));
        for other in [0, 1, 2, 63, 68, 101, 130, -1] {
            assert_eq!(Summary::decode(other), None, "{other}");
        }
    }
}
