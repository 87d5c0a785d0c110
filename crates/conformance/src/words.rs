//! The words of the contract, as other processes write them, and back.

use std::collections::BTreeSet;

use mailbox::{DeadReason, ErrorKind, Phase};
use parking_lot::Mutex;

/// The name of a kind of error.
pub(crate) fn of_kind(kind: ErrorKind) -> String {
    format!("{kind:?}")
}

/// The kind of error with this name.
pub(crate) fn kind(text: &str) -> Option<ErrorKind> {
    ErrorKind::ALL.into_iter().find(|kind| of_kind(*kind) == text)
}

/// The name of a phase.
pub(crate) fn of_phase(phase: Phase) -> String {
    format!("{phase:?}").to_lowercase()
}

/// The phase with this name.
pub(crate) fn phase(text: &str) -> Option<Phase> {
    let all = [Phase::Delayed, Phase::Ready, Phase::Invisible, Phase::Dead];
    all.into_iter().find(|phase| of_phase(*phase) == text)
}

/// The reason of this name.
pub(crate) fn reason(text: &str) -> Option<DeadReason> {
    DeadReason::ALL.into_iter().find(|reason| reason.as_str() == text)
}

/// Most names of fields: there are about thirty.
const FIELDS: usize = 100;

/// The same text for as long as the process runs: an error names its field so.
pub(crate) fn lasting(text: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock();
    match known.get(text) {
        Some(kept) => kept,
        None if known.len() >= FIELDS => "one of too many fields",
        None => {
            let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
            known.insert(kept);
            kept
        }
    }
}
