//! What the process as a whole is set to: no core dumps, as many files as it may have, and panics
//! that say where but not what.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sets it.
pub(super) fn prepare() {
    // Keys and messages are in memory, and would be in the file.
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        tracing::warn!(%error, "core dumps cannot be forbidden");
    }
    let files = getrlimit(Resource::Nofile);
    let most = Rlimit { current: files.maximum, maximum: files.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::warn!(%error, "the number of open files cannot be raised");
    }
    std::panic::set_hook(Box::new(|panic| {
        // The words of a panic may hold a part of a message, or of a capability.
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "a defect: a task has panicked");
    }));
}
