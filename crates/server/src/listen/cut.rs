//! Who has ended a connection, or one answer of it. Invariant: what the service ends because the
//! other end takes nothing is marked before it is ended, so that whoever is dropped with it knows
//! that the client has not left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::AbortHandle;

/// Whether it was the service. Clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cut {
    own: Arc<AtomicBool>,
    /// What it is a part of.
    whole: Option<Arc<AtomicBool>>,
}

impl Cut {
    /// For a part, which ends with the whole, but may also end alone.
    pub(crate) fn part(&self) -> Self {
        Self { own: Arc::default(), whole: Some(Arc::clone(&self.own)) }
    }

    /// It was.
    pub(crate) fn mark(&self) {
        self.own.store(true, Ordering::Release);
    }

    pub(crate) fn is_marked(&self) -> bool {
        let is_marked = |it: &Arc<AtomicBool>| it.load(Ordering::Acquire);
        is_marked(&self.own) || self.whole.as_ref().is_some_and(is_marked)
    }
}

/// Ends one answer of a connection that has several.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    task: AbortHandle,
    cut: Cut,
}

impl Ending {
    /// Of an answer that this task makes.
    pub(crate) const fn new(task: AbortHandle, cut: Cut) -> Self {
        Self { task, cut }
    }

    /// Ends it, because nothing of it is taken.
    pub(super) fn end(&self) {
        self.cut.mark();
        self.task.abort();
    }

    #[cfg(test)]
    pub(super) fn is_ended(&self) -> bool {
        self.cut.is_marked() && self.task.is_aborted()
    }
}
