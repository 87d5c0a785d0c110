//! What a planted bug must lead to. Anything else may be an accident of the machine, and shows
//! nothing about the experiment.

use crate::violation::Tally;

/// What must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symptom {
    /// Deleted messages are there again, or in the way of others, so that the journal refuses.
    BackAgain,
    /// An answer was not kept: messages are lost, deleted ones are back, or nothing opens.
    BrokenPromise,
    /// Anything that is not as it should be.
    Any,
}

impl Symptom {
    /// Whether it is among what was found.
    pub(crate) fn is_in(self, tally: &Tally) -> bool {
        match self {
            Self::BackAgain => tally.back_again + tally.refused_opens > 0,
            Self::BrokenPromise => tally.lost + tally.back_again + tally.refused_opens > 0,
            Self::Any => *tally != Tally::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symptom_is_what_it_says_and_no_accident() {
        let lost = Tally { lost: 1, ..Tally::default() };
        let back = Tally { back_again: 1, ..Tally::default() };
        let refused = Tally { refused_opens: 1, ..Tally::default() };
        let other = Tally { other: 1, ..Tally::default() };
        let seen = |symptom: Symptom| {
            [&lost, &back, &refused, &other, &Tally::default()].map(|tally| symptom.is_in(tally))
        };
        assert_eq!(seen(Symptom::BackAgain), [false, true, true, false, false]);
        assert_eq!(seen(Symptom::BrokenPromise), [true, true, true, false, false]);
        assert_eq!(seen(Symptom::Any), [true, true, true, true, false]);
    }
}
