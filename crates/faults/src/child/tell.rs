//! The worker's voice. Invariant: lines are whole and in order, and each is with the operating
//! system before `say` returns.

use std::io::Write;
use std::sync::Mutex;

use mailbox::Error;

use crate::event::Event;

/// Writes events to standard output.
#[derive(Debug, Default)]
pub(crate) struct Tell {
    // Held while writing: an event that happened first is written first.
    order: Mutex<()>,
}

impl Tell {
    /// Writes events, in order.
    pub(crate) fn say(&self, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        let _held = self.order.lock().expect("nobody panics while writing");
        let mut output = std::io::stdout().lock();
        if output.write_all(lines.as_bytes()).and_then(|()| output.flush()).is_err() {
            // Nobody listens: whatever happens from here on would be unknown.
            std::process::exit(1);
        }
    }

    /// Writes that a call failed.
    pub(crate) fn failed(&self, call: &str, error: &Error) {
        self.say(&[Event::Failed {
            call: call.to_owned(),
            kind: format!("{:?}", error.kind()),
            text: format!("{error:#}"),
        }]);
    }
}
