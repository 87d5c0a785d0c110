//! Waiting for something that a server does. Invariant: there is always a deadline.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// For everything that a server does within a second unless the machine is very busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks until `look` is content, or says what it missed at the end.
pub(crate) fn until<T>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, String>,
) -> io::Result<T> {
    let start = Instant::now();
    loop {
        let missing = match look() {
            Ok(value) => return Ok(value),
            Err(missing) => missing,
        };
        if start.elapsed() >= limit {
            let text = format!("{what}: not after {limit:?}: {missing}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_what_was_missing() {
        let limit = Duration::from_millis(30);
        let error = until::<()>(limit, "spring", || Err("still snow".to_owned())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("spring"), "{error}");
        assert!(error.to_string().contains("still snow"), "{error}");
    }
}
