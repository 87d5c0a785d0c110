//! What waits to be taken by the other end of a connection that has several answers at a time. Each
//! of them has a window of its own: one can be stuck while others, or pings, go on. Invariant: an
//! answer of which something waits, and nothing is taken for too long, does not stay; one that has
//! nothing to say is not stuck.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::timed::earned;

/// Which of the answers of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswerId(pub(super) u64);

/// Answers of which something waits. Never more than there are streams.
#[derive(Debug, Default)]
pub(crate) struct Untaken(Mutex<Vec<Waiting>>);

/// What waits of one answer.
#[derive(Debug)]
struct Waiting {
    answer: AnswerId,
    bytes: usize,
    /// Since when something has been waiting, and how much was taken since then.
    since: Instant,
    taken: usize,
    /// Whoever makes more of it when this is taken, and can end it alone.
    maker: Option<Waker>,
    is_late: bool,
}

impl Untaken {
    /// So many more bytes of an answer wait.
    pub(crate) fn add(&self, answer: AnswerId, bytes: usize) {
        let mut all = self.0.lock();
        match all.iter_mut().find(|it| it.answer == answer) {
            Some(waiting) => waiting.bytes += bytes,
            None => all.push(Waiting {
                answer,
                bytes,
                since: Instant::now(),
                taken: 0,
                maker: None,
                is_late: false,
            }),
        }
    }

    /// So many bytes of it were taken.
    pub(crate) fn taken(&self, answer: AnswerId, bytes: usize) {
        self.subtract(answer, bytes, bytes);
    }

    /// So many bytes of it will never be.
    pub(crate) fn dropped(&self, answer: AnswerId, bytes: usize) {
        self.subtract(answer, bytes, 0);
    }

    fn subtract(&self, answer: AnswerId, bytes: usize, taken: usize) {
        let mut all = self.0.lock();
        let Some(at) = all.iter().position(|it| it.answer == answer) else { return };
        let waiting = &mut all[at];
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        waiting.taken += taken;
        if waiting.bytes == 0 {
            let done = all.swap_remove(at);
            drop(all);
            done.maker.into_iter().for_each(Waker::wake);
        }
    }

    /// Ready when nothing waits of an answer; false if that takes too long.
    pub(crate) fn poll_taken(&self, answer: AnswerId, context: &Context<'_>) -> Poll<bool> {
        let mut all = self.0.lock();
        match all.iter_mut().find(|it| it.answer == answer) {
            None => Poll::Ready(true),
            Some(waiting) if waiting.is_late => Poll::Ready(false),
            Some(waiting) => {
                waiting.maker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Ends answers that have waited for too long. One that nobody can end alone, and is not taken
    /// after as long again, has to end with its connection: that is what true means.
    pub(super) fn look(&self, now: Instant, patience: Duration) -> bool {
        let mut late = Vec::new();
        let mut all = self.0.lock();
        let mut is_stuck = false;
        for waiting in all.iter_mut() {
            let deadline = waiting.since + patience + earned(waiting.taken as u64);
            if now < deadline {
                continue;
            }
            waiting.is_late = true;
            late.extend(waiting.maker.take());
            is_stuck |= now >= deadline + patience;
        }
        drop(all);
        late.into_iter().for_each(Waker::wake);
        is_stuck
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
