//! What a planted bug must lead to. Anything else may be an accident of the machine, and shows
//! nothing about the experiment.

use crate::violation::Tally;

/// What must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symptom {
    /// Deleted messages are there again, or in the way of others, so that it does not open.
    BackAgain,
    /// An answer was not kept: messages are lost, deleted ones are back, or nothing opens.
    BrokenPromise,
    /// Messages are lost.
    Lost,
    /// Two have the same message.
    Doubled,
    /// Deliveries are not counted.
    Miscounted,
    /// Anything that is not as it should be.
    Any,
}

impl Symptom {
    /// Whether it is among what was found.
    pub(crate) fn is_in(self, tally: &Tally) -> bool {
        match self {
            Self::BackAgain => tally.back_again + tally.refused_opens > 0,
            Self::BrokenPromise => tally.lost + tally.back_again + tally.refused_opens > 0,
            Self::Lost => tally.lost > 0,
            Self::Doubled => tally.doubled > 0,
            Self::Miscounted => tally.miscounted > 0,
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
        let doubled = Tally { doubled: 1, ..Tally::default() };
        let miscounted = Tally { miscounted: 1, ..Tally::default() };
        let all = [lost, back, refused, doubled, miscounted, other, Tally::default()];
        let seen = |symptom: Symptom| {
            let seen = all.iter().map(|tally| if symptom.is_in(tally) { 'x' } else { '.' });
            seen.collect::<String>()
        };
        assert_eq!(seen(Symptom::BackAgain), ".xx....");
        assert_eq!(seen(Symptom::BrokenPromise), "xxx....");
        assert_eq!(seen(Symptom::Lost), "x......");
        assert_eq!(seen(Symptom::Doubled), "...x...");
        assert_eq!(seen(Symptom::Miscounted), "....x..");
        assert_eq!(seen(Symptom::Any), "xxxxxx.");
    }
}
