//! What waits to be taken by the other end of a connection that has several answers at a time. Each
//! of them has a window of its own: one can be stuck while others, or pings, go on. Invariant: an
//! answer of which something waits does not stay if the connection as a whole is too slow, nor if
//! its turn has come and nothing of it was taken; one that waits for its turn, or has nothing to
//! say, is not stuck.
//!
//! Windows are not seen from here. But answers that can go out do so in turns: what comes before
//! one that waits is at most what of all others waits as well. If more than that was taken, it is
//! its own window that has no room.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::cut::Ending;
use super::pace::Pace;

/// Which of the answers of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswerId(pub(super) u64);

/// Answers of which something waits. Never more than there are streams.
#[derive(Debug)]
pub(crate) struct Untaken {
    patience: Duration,
    all: Mutex<Vec<Waiting>>,
}

/// What waits of one answer.
#[derive(Debug)]
struct Waiting {
    answer: AnswerId,
    bytes: usize,
    /// How fast the connection as a whole takes what waits, since something of this does.
    pace: Pace,
    /// When something of this was taken, or began to wait.
    last: Instant,
    /// How much of others may go out after that, before it is its turn.
    ahead: usize,
    /// More than that did.
    is_overtaken: bool,
    /// Whoever makes more of it when this is taken.
    maker: Option<Waker>,
    /// Ends it alone.
    ending: Option<Ending>,
    /// When that was done.
    ended: Option<Instant>,
}

impl Waiting {
    fn is_late(&self, now: Instant, patience: Duration) -> bool {
        now >= self.pace.deadline() || (self.is_overtaken && now >= self.last + patience)
    }

    /// So much of others has gone out instead.
    fn pass(&mut self, bytes: usize) {
        self.is_overtaken |= bytes > self.ahead;
        self.ahead = self.ahead.saturating_sub(bytes);
    }
}

impl Untaken {
    /// Nothing waits; and what will does so for so long.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, all: Mutex::default() }
    }

    /// So many more bytes of an answer wait. What ends it, if it can be ended alone.
    pub(crate) fn add(&self, answer: AnswerId, bytes: usize, ending: Option<&Ending>) {
        self.add_at(Instant::now(), answer, bytes, ending);
    }

    fn add_at(&self, now: Instant, answer: AnswerId, bytes: usize, ending: Option<&Ending>) {
        let mut all = self.all.lock();
        if let Some(waiting) = all.iter_mut().find(|it| it.answer == answer) {
            waiting.bytes += bytes;
            return;
        }
        let ahead = all.iter().map(|it| it.bytes).sum();
        all.push(Waiting {
            answer,
            bytes,
            pace: Pace::new(now, self.patience),
            last: now,
            ahead,
            is_overtaken: false,
            maker: None,
            ending: ending.cloned(),
            ended: None,
        });
    }

    /// So many bytes of it were taken.
    pub(crate) fn taken(&self, answer: AnswerId, bytes: usize) {
        self.taken_at(Instant::now(), answer, bytes);
    }

    fn taken_at(&self, now: Instant, answer: AnswerId, bytes: usize) {
        let mut all = self.all.lock();
        let done = subtract(&mut all, answer, bytes);
        let waiting: usize = all.iter().map(|it| it.bytes).sum();
        for it in all.iter_mut() {
            it.pace.taken(now, bytes);
            if it.answer == answer {
                (it.last, it.ahead, it.is_overtaken) = (now, waiting - it.bytes, false);
            } else {
                it.pass(bytes);
            }
        }
        drop(all);
        done.into_iter().for_each(Waker::wake);
    }

    /// So many bytes of it will never be.
    pub(crate) fn dropped(&self, answer: AnswerId, bytes: usize) {
        let done = subtract(&mut self.all.lock(), answer, bytes);
        done.into_iter().for_each(Waker::wake);
    }

    /// Ready when nothing waits of an answer.
    pub(crate) fn poll_taken(&self, answer: AnswerId, context: &Context<'_>) -> Poll<()> {
        let mut all = self.all.lock();
        match all.iter_mut().find(|it| it.answer == answer) {
            None => Poll::Ready(()),
            Some(waiting) => {
                waiting.maker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Ends answers that are late. One that nobody can end alone, or that is there after as long
    /// again, has to end with its connection: that is what true means.
    pub(super) fn look(&self, now: Instant) -> bool {
        let mut endings = Vec::new();
        let mut is_stuck = false;
        for waiting in self.all.lock().iter_mut() {
            if let Some(ended) = waiting.ended {
                is_stuck |= now >= ended + self.patience;
            } else if waiting.is_late(now, self.patience) {
                match waiting.ending.take() {
                    Some(ending) => {
                        waiting.ended = Some(now);
                        endings.push(ending);
                    }
                    None => is_stuck = true,
                }
            }
        }
        endings.iter().for_each(Ending::end);
        is_stuck
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.lock().is_empty()
    }
}

/// So much less of an answer waits. Whoever makes more of it, if nothing of it is left.
fn subtract(all: &mut Vec<Waiting>, answer: AnswerId, bytes: usize) -> Option<Waker> {
    let at = all.iter().position(|it| it.answer == answer)?;
    all[at].bytes = all[at].bytes.saturating_sub(bytes);
    if all[at].bytes > 0 { None } else { all.swap_remove(at).maker }
}

#[cfg(test)]
mod tests {
    use futures_util::future::AbortHandle;

    use super::*;
    use crate::listen::Cut;

    const PATIENCE: Duration = Duration::from_secs(5);
    const FRAME: usize = 16 * 1024;

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    fn ending() -> Ending {
        Ending::new(AbortHandle::new_pair().0, Cut::default())
    }

    /// The share of each was measured against what is asked of a connection: all of them were
    /// given up, and so was the stream beside them.
    #[test]
    fn answers_that_share_a_fast_connection_wait_for_their_turn() {
        let (start, untaken) = (Instant::now(), Untaken::new(PATIENCE));
        let mut left = [31 * FRAME; 60];
        for (answer, left) in (0..).zip(&left) {
            untaken.add_at(start, AnswerId(answer), *left, None);
        }
        let (beside, ending) = (AnswerId(60), ending());
        untaken.add_at(start, beside, 1000, Some(&ending));
        let mut ms = 0;
        // One after the other, which is what takes longest until the last has anything.
        for (answer, left) in (0..).zip(&mut left) {
            while *left > 0 {
                ms += 13;
                *left -= FRAME;
                untaken.taken_at(after(start, ms), AnswerId(answer), FRAME);
                assert!(!untaken.look(after(start, ms)), "{answer} after {ms} ms");
            }
        }
        assert!(ms > 4 * 5000 && !ending.is_ended());
        untaken.taken_at(after(start, ms), beside, 1000);
        assert!(untaken.is_empty());
    }

    #[test]
    fn whoever_does_not_take_its_turn_is_late_although_others_go_on() {
        let (start, untaken) = (Instant::now(), Untaken::new(PATIENCE));
        let (stuck, ending) = (AnswerId(1000), ending());
        untaken.add_at(start, AnswerId(0), FRAME, None);
        untaken.add_at(start, stuck, 1000, Some(&ending));
        for answer in 0..100 {
            let now = after(start, 60 * answer);
            // It was there before the next one.
            untaken.add_at(now, AnswerId(answer + 1), FRAME, None);
            untaken.taken_at(now, AnswerId(answer), FRAME);
            assert!(!untaken.look(now));
            assert_eq!(ending.is_ended(), 60 * answer >= 5000, "{answer}");
        }
        // It is there although it was ended: nothing else helps.
        assert!(untaken.look(after(start, 5040 + 5000)));
    }

    /// It was given a second for each 64 KiB that it had taken before.
    #[test]
    fn whoever_has_taken_much_and_then_nothing_is_late_soon() {
        let (start, untaken) = (Instant::now(), Untaken::new(PATIENCE));
        untaken.add_at(start, AnswerId(1), 24 << 20, None);
        untaken.taken_at(after(start, 1000), AnswerId(1), 20 << 20);
        untaken.taken_at(after(start, 9000), AnswerId(1), 1);
        assert!(!untaken.look(after(start, 9000)));
        assert!(untaken.look(after(start, 11_100)));
    }
}
