//! How long to wait after an error before trying again. Invariant: never nothing for long, never
//! longer than a bound.

use std::time::Duration;

use crate::error::{Error, Retry};

/// First wait; doubled with every failure in a row.
const FIRST: Duration = Duration::from_millis(50);
/// Least wait when the error says that trying again will not help: somebody may repair it.
const HOPELESS: Duration = Duration::from_secs(1);
/// Longest wait, whatever the error says.
const LONGEST: Duration = Duration::from_secs(30);

/// How long to wait after `error`, the `failures`-th in a row (from 1).
pub(crate) fn pause(error: &Error, failures: u32) -> Duration {
    let advised = match error.retry() {
        Retry::Now => Duration::ZERO,
        Retry::After(advised) => advised,
        Retry::Never => HOPELESS,
    };
    let doubled = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    advised.max(doubled).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn pauses_follow_the_advice_grow_and_are_bounded() {
        let connection = Error::new(ErrorKind::Connection, "gone");
        assert_eq!(pause(&connection, 1), Duration::from_millis(100));
        assert_eq!(pause(&connection, 4), Duration::from_millis(400));
        assert_eq!(pause(&connection, u32::MAX), LONGEST);
        assert_eq!(pause(&connection.clone().with_retry(Retry::Now), 1), FIRST);
        let far = connection.clone().with_retry(Retry::After(Duration::MAX));
        assert_eq!(pause(&far, 1), LONGEST);
        assert_eq!(pause(&connection.with_retry(Retry::Never), 1), HOPELESS);
    }
}
