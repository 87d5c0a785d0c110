//! Results of several things, where some of them never came to the store.

use crate::failure::{Answer, Failure};

/// One answer each, in order: why not, for what was refused before, and for the others what is
/// said of those.
pub(super) fn joined<T>(
    let_in: Vec<Answer<()>>,
    mut answers: impl Iterator<Item = Answer<T>>,
) -> Vec<Answer<T>> {
    let mut next = || answers.next().unwrap_or_else(|| Err(Failure::no_answer()));
    let_in.into_iter().map(|it| it.and_then(|()| next())).collect()
}

#[cfg(test)]
mod tests {
    use mailbox::ErrorKind;

    use super::*;

    #[test]
    fn everybody_gets_an_answer_of_its_own() {
        let refused = Failure::new(ErrorKind::TooLarge, "too large");
        let let_in = vec![Ok(()), Err(refused.clone()), Ok(()), Ok(())];
        let answers = joined(let_in, [Ok(1), Err(refused)].into_iter());
        let kinds: Vec<_> =
            answers.into_iter().map(|it| it.map_err(|failure| failure.error.kind())).collect();
        let (too_large, internal) = (Err(ErrorKind::TooLarge), Err(ErrorKind::Internal));
        assert_eq!(kinds, [Ok(1), too_large, too_large, internal]);
    }
}
