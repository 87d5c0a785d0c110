//! Being told to end: Ctrl-C and SIGTERM. Invariant: from the first moment on none of them ends the
//! process by itself, so that what is held can be given back.

use mailbox::{Error, ErrorKind, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears when the process is told to end.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on.
    pub(crate) fn new() -> Result<Self> {
        let hear = |kind| {
            signal(kind).map_err(|error| {
                Error::new(ErrorKind::Internal, "cannot listen for signals").with_source(error)
            })
        };
        Ok(Self {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
        })
    }

    /// The next time. Dropping the future misses none.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
