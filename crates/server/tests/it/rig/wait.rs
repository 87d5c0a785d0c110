//! Waiting for something to become true, but not for ever.

use std::time::{Duration, Instant};

/// Longest that anything may take that is not measured: a busy machine is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Asks until the answer is yes; fails after a while.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
