//! Waiting with a deadline.

use std::thread;
use std::time::{Duration, Instant};

/// Waits until `look` is true, at most 20 seconds.
pub(crate) fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is there and not just waiting to be reaped.
pub(crate) fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
}
