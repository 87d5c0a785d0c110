//! Against tests that hang. A loop that waits for ever is met by tokio's time, which runs ahead; a
//! loop that spins keeps that time from moving, and only a clock on the wall meets it.

use std::future::Future;
use std::io::{Write, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::time::timeout;

/// Longer than anything here takes by tokio's time.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// Much longer than any of these tests takes, also on a busy machine.
const REAL_PATIENCE: Duration = Duration::from_secs(120);

/// Waits for `what`, but not for ever.
pub(super) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    let _watchdog = Watchdog::new();
    timeout(PATIENCE, what).await.expect("done within a day")
}

/// Ends the process if it lives for too long: nothing else ends a thread that spins.
#[derive(Debug)]
pub(super) struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub(super) fn new() -> Self {
        let (alive, watched) = channel::<()>();
        let test = thread::current().name().unwrap_or("a test").to_owned();
        thread::spawn(move || {
            if watched.recv_timeout(REAL_PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // Not by the macro: what that prints is kept for a report that never comes.
                let _ = writeln!(stderr(), "{test} hangs: not done after {REAL_PATIENCE:?}");
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}
