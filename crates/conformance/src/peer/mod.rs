//! The same inboxes used by two processes at once: this one, and this program started once more.
//!
//! The other process is asked over its standard input and answers on its standard output, in lines
//! of JSON. Its clock shows what the clock of this process does, so that hours pass in no time for
//! both. It ends with this process: nobody can ask it any more then.

mod child;
mod forms;
mod pair;
mod remote;
mod stress;
mod wire;

use std::process::ExitCode;

use mailbox::backends::directory::DirectoryConfig;
use mailbox::testing::ManualClock;

pub(crate) use pair::Pair;
pub use stress::both_at_once;
pub(crate) use wire::Opening;

/// What makes this program the other process: its first argument.
const FLAG: &str = "--peer";

/// Serves as the other process, if that is what this program was started for. To be asked before
/// anything else in a `main`.
#[must_use]
pub fn serve_if_asked() -> Option<ExitCode> {
    (std::env::args_os().nth(1)? == FLAG).then(child::serve)
}

impl Opening {
    /// What both processes use the inboxes with.
    pub(crate) fn config(&self, clock: Option<&ManualClock>) -> DirectoryConfig {
        let mut config = DirectoryConfig::default();
        if let Some(clock) = clock {
            config = config.with_clock(clock.clock());
        }
        config.policy = mailbox::Policy::default();
        config.sharded = self.sharded;
        config.max_mailboxes = self.max_mailboxes.unwrap_or(config.max_mailboxes);
        config.max_waiters = self.max_waiters.unwrap_or(config.max_waiters);
        config.max_payload = self.max_payload.unwrap_or(config.max_payload);
        config
    }
}
