//! One who gathers. Invariant: nobody is asked for who has left, and whoever leaves learns whether
//! they were asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::error::{Error, Result};

/// How it stands with a call.
#[derive(Clone, Default)]
pub(super) struct Standing(Arc<AtomicU8>);

/// It has not gone out, or was certainly not carried out.
const WAITING: u8 = 0;
/// It may have been carried out.
const OUT: u8 = 1;
/// Nobody waits for it.
const LEFT: u8 = 2;

impl Standing {
    /// It goes out, if somebody waits for it.
    fn go_out(&self) -> bool {
        self.change(WAITING, OUT)
    }

    /// It was certainly not carried out.
    fn come_back(&self) {
        // If nobody waits for it any more it does not go out again.
        self.change(OUT, WAITING);
    }

    /// It may have been carried out, and somebody still waits for it.
    fn is_out(&self) -> bool {
        self.0.load(Ordering::Acquire) == OUT
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Nobody waits any more. Whether it may have been carried out.
    pub(super) fn leave(&self) -> bool {
        self.0.swap(LEFT, Ordering::AcqRel) == OUT
    }
}

/// Whoever asked; with this nobody waits any more.
pub(super) struct Waiter(pub(super) Standing);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// What is asked for, and by whom.
pub(super) struct Entry<T, A> {
    pub(super) item: T,
    pub(super) asker: Asker<A>,
}

/// Who asks.
pub(super) struct Asker<A> {
    answer: oneshot::Sender<Result<A>>,
    standing: Standing,
    /// An earlier attempt may have been carried out, whatever comes of the next.
    is_in_doubt: bool,
    /// Since when.
    pub(super) since: Instant,
    _room: OwnedSemaphorePermit,
}

/// What whoever asks waits for.
pub(super) type Answered<A> = oneshot::Receiver<Result<A>>;

impl<A> Asker<A> {
    pub(super) fn new(room: OwnedSemaphorePermit) -> (Self, Answered<A>, Waiter) {
        let ((answer, answered), standing) = (oneshot::channel(), Standing::default());
        let waiter = Waiter(standing.clone());
        let since = Instant::now();
        (Self { answer, standing, is_in_doubt: false, since, _room: room }, answered, waiter)
    }

    /// They are asked for now, if they have not left.
    pub(super) fn go_out(&self) -> bool {
        if self.is_in_doubt { self.standing.is_out() } else { self.standing.go_out() }
    }

    /// What they asked for was not carried out; certainly, or as far as the last attempt goes.
    pub(super) fn come_back(&mut self, is_in_doubt: bool) {
        self.is_in_doubt |= is_in_doubt;
        if !self.is_in_doubt {
            self.standing.come_back();
        }
    }

    /// Whether nobody waits any more.
    pub(super) fn has_left(&self) -> bool {
        self.answer.is_closed()
    }

    pub(super) fn tell(self, result: Result<A>) {
        let doubted = |error: Error| if self.is_in_doubt { error.with_doubt() } else { error };
        // Whoever is gone needs no answer.
        let _ = self.answer.send(result.map_err(doubted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_leaves_is_not_asked_for_and_learns_whether_they_were() {
        let standing = Standing::default();
        assert!(standing.go_out() && standing.clone().leave());
        // Refused with others, it is not asked for once more.
        standing.come_back();
        assert!(!standing.go_out());
        let standing = Standing::default();
        assert!(standing.go_out());
        standing.come_back();
        assert!(!standing.leave() && !standing.go_out());
    }
}
