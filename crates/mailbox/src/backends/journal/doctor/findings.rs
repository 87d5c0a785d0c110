//! What is wrong, as it is found. Invariant: however much is wrong, the list has an end; what is
//! not listed is counted.

use crate::backends::journal::doctor::report::{LISTED, Lost, Problem, Remark};

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    pub(super) further_problems: u64,
    pub(super) remarks: Vec<Remark>,
    lost_records: u64,
    /// More is lost than can be counted.
    is_uncounted: bool,
    /// Records are missing since this problem, as many as the next record will show.
    open: Option<Option<usize>>,
}

impl Findings {
    /// Something is damaged.
    pub(super) fn problem(&mut self, file: &str, offset: Option<u64>, what: String) {
        if self.problems.len() < LISTED {
            self.problems.push(Problem { file: file.to_owned(), offset, what, lost: None });
        } else {
            self.further_problems += 1;
        }
    }

    /// Something is damaged, and records are lost there.
    pub(super) fn loss(&mut self, file: &str, offset: Option<u64>, what: String) {
        let is_listed = self.problems.len() < LISTED;
        self.problem(file, offset, what);
        if self.open.is_none() {
            self.open = Some(is_listed.then(|| self.problems.len() - 1));
        }
    }

    /// These records are lost, from where the last loss was found.
    pub(super) fn lost(&mut self, lost: Lost) {
        self.lost_records = self.lost_records.saturating_add(lost.records());
        if let Some(Some(problem)) = self.open.take() {
            self.problems[problem].lost = Some(lost);
        }
    }

    /// Nothing is lost any more: the log goes on.
    pub(super) const fn goes_on(&mut self) {
        self.open = None;
    }

    /// Records may be lost, and nothing tells how many.
    pub(super) const fn lost_uncounted(&mut self) {
        self.is_uncounted = true;
    }

    /// The log ends, or goes on with a record that does not tell what was before it.
    pub(super) const fn goes_on_uncounted(&mut self) {
        self.is_uncounted |= self.open.is_some();
        self.goes_on();
    }

    /// How many records are lost; `None` if that is not known.
    pub(super) fn lost_records(&self) -> Option<u64> {
        (!self.is_uncounted).then_some(self.lost_records)
    }

    /// Whether it is said already why records are missing.
    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Something is worth knowing.
    pub(super) fn remark(&mut self, file: &str, offset: Option<u64>, what: String) {
        if self.remarks.len() < LISTED {
            self.remarks.push(Remark { file: file.to_owned(), offset, what });
        }
    }

    pub(super) const fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}
