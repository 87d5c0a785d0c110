//! Where replies come in and are handed to the calls that wait for them. One receive for all.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mailbox_core::{DeadReason, Verdict};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;
use tracing::{debug, warn};
use uuid::Uuid;

use super::super::pace::pause;
use super::super::result::{MainLoopResult, shortened};
use super::options::ClientOptions;
use crate::backend::Settlement;
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::mailbox::Mailbox;
use crate::message::Message;
use crate::options::ReceiveOptions;
use crate::timestamp::Timestamp;

/// Replies taken at a time.
const BATCH: u32 = 64;
/// Calls remembered after they are over, to recognise late answers on a shared mailbox.
const REMEMBERED: usize = 4_096;
/// Pauses after finding nothing but others' answers: the first, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Who receives from the reply mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// This client alone.
    Private,
    /// Others too.
    Shared,
}

impl Strategy {
    /// How long one receive waits. On a shared mailbox a receive that outlives the last call takes
    /// what others wait for, so it is short.
    const fn wait(self) -> Duration {
        match self {
            Self::Private => Duration::from_secs(20),
            Self::Shared => Duration::from_secs(1),
        }
    }
}

/// What a client's calls have met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ClientStats {
    /// Calls that wait now.
    pub waiting: u64,
    /// Answers handed to a call.
    pub answered: u64,
    /// Answers to calls that were over: late, or doubled by a second delivery of the request.
    pub late: u64,
    /// Deliveries of others' answers, given back. Only on a shared mailbox.
    pub given_back: u64,
    /// Answers that nobody has taken for too long, made dead letters. Only on a shared mailbox.
    pub orphaned: u64,
    /// Messages that are no results, made dead letters.
    pub undecodable: u64,
}

pub(super) struct Desk<O> {
    replies: Mailbox<MainLoopResult<O>>,
    strategy: Strategy,
    options: ClientOptions,
    /// A lock that is never held over an await.
    state: Mutex<State<O>>,
    called: Notify,
}

struct State<O> {
    waiting: HashMap<Uuid, oneshot::Sender<Result<MainLoopResult<O>>>>,
    over: Past,
    stats: ClientStats,
}

/// The calls that ended last.
#[derive(Default)]
struct Past {
    known: HashSet<Uuid>,
    in_order: VecDeque<Uuid>,
}

impl Past {
    fn remember(&mut self, call: Uuid) {
        if self.in_order.len() == REMEMBERED
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(call);
        self.in_order.push_back(call);
    }
}

impl<O> Desk<O>
where
    O: Clone + Send + Sync + 'static,
{
    pub(super) fn new(
        replies: Mailbox<MainLoopResult<O>>,
        strategy: Strategy,
        options: ClientOptions,
    ) -> Self {
        let state =
            State { waiting: HashMap::new(), over: Past::default(), stats: ClientStats::default() };
        Self { replies, strategy, options, state: Mutex::new(state), called: Notify::new() }
    }

    pub(super) fn with_options(&self, options: ClientOptions) -> Self {
        Self::new(self.replies.clone(), self.strategy, options)
    }

    pub(super) const fn replies(&self) -> &Mailbox<MainLoopResult<O>> {
        &self.replies
    }

    pub(super) fn stats(&self) -> ClientStats {
        let state = self.state.lock();
        ClientStats { waiting: state.waiting.len() as u64, ..state.stats }
    }

    /// Waits for the answer to `request_id` from now on.
    pub(super) fn register(desk: &Arc<Self>, request_id: Uuid) -> Result<Ticket<O>> {
        let (sender, answer) = oneshot::channel();
        {
            let mut state = desk.state.lock();
            let most = desk.options.max_calls;
            if state.waiting.len() >= most {
                let message = format!("{most} calls are waiting, the most there may be");
                return Err(
                    Error::new(ErrorKind::Saturated, message).with_mailbox(desk.replies.name())
                );
            }
            state.waiting.insert(request_id, sender);
        }
        desk.called.notify_one();
        Ok(Ticket { desk: Arc::clone(desk), request_id, answer: Some(answer) })
    }

    /// Receives while anybody waits, for ever.
    pub(super) async fn run(&self) {
        let max_messages = BATCH.min(self.replies.abilities().max_messages);
        let options = ReceiveOptions::default()
            .with_max_messages(max_messages)
            .with_wait(self.strategy.wait());
        let mut failures = 0;
        let mut fruitless = 0;
        loop {
            while self.state.lock().waiting.is_empty() {
                self.called.notified().await;
            }
            match self.replies.receive_with(options.clone()).await {
                Ok(messages) => {
                    failures = 0;
                    let is_full = messages.len() == max_messages as usize;
                    let only_others = self.sort_out(messages, is_full).await;
                    fruitless = if only_others { fruitless + 1 } else { 0 };
                    if fruitless > 0 {
                        sleep(pause_between(fruitless)).await;
                    }
                }
                Err(error) if error.retry() == Retry::Never => self.fail(&error),
                Err(error) => {
                    failures += 1;
                    debug!(%error, failures, "cannot receive replies");
                    sleep(pause(&error, failures)).await;
                }
            }
        }
    }

    /// Hands out what is waited for and settles everything; whether there were only others'.
    async fn sort_out(&self, messages: Vec<Message<MainLoopResult<O>>>, is_full: bool) -> bool {
        if messages.is_empty() {
            return false;
        }
        let count = messages.len();
        let mut others = Vec::new();
        let mut batch = Vec::new();
        for message in messages {
            let receipt_handle = message.receipt_handle().clone();
            match self.sort(message) {
                Some(verdict) => batch.push(Settlement { receipt_handle, verdict }),
                None => others.push(receipt_handle),
            }
        }
        let only_others = others.len() == count;
        // Undone, an answer is first in line again: of a full batch of others' that would be all
        // that we ever see. Then they go to the end of the line, as delivered once more.
        let undo = self.replies.abilities().undo && !(is_full && only_others);
        let nack = Verdict::Nack { delay: Duration::ZERO, error: None };
        let verdict = if undo { Verdict::Return } else { nack };
        let back = |receipt_handle| Settlement { receipt_handle, verdict: verdict.clone() };
        // In reverse, so that what is put in front again keeps its order.
        batch.extend(others.into_iter().rev().map(back));
        let settled = self.replies.settle_batch(batch).await;
        let failed = settled.map(|results| results.into_iter().find_map(Result::err));
        if let Some(error) = failed.unwrap_or_else(Some) {
            debug!(%error, "a reply was not settled: it comes again");
        }
        only_others
    }

    /// What becomes of a reply, which is handed out if somebody waits for it. None: it is
    /// somebody else's.
    fn sort(&self, message: Message<MainLoopResult<O>>) -> Option<Verdict> {
        let mailbox = self.replies.name();
        let mut state = self.state.lock();
        let (request_id, completed_at) = match message.body() {
            Ok(result) => (result.request_id, result.completed_at),
            Err(error) => {
                let id = message.id();
                warn!(%mailbox, %id, %error, "not a result: it becomes a dead letter");
                state.stats.undecodable += 1;
                let error = Some(shortened(error.to_string()).into_boxed_str());
                return Some(Verdict::Reject { reason: DeadReason::Decode, error });
            }
        };
        if let Some(call) = state.waiting.remove(&request_id) {
            state.stats.answered += 1;
            state.over.remember(request_id);
            drop(state);
            // Nobody there any more: then the call has just given up.
            let _ = call.send(message.into_body());
            return Some(Verdict::Acknowledge);
        }
        if self.strategy == Strategy::Private || state.over.known.contains(&request_id) {
            debug!(%mailbox, %request_id, "an answer to a call that is over");
            state.stats.late += 1;
            return Some(Verdict::Acknowledge);
        }
        if Timestamp::now().since(completed_at) >= self.options.orphan_after {
            warn!(%mailbox, %request_id, "an answer that nobody takes: it becomes a dead letter");
            state.stats.orphaned += 1;
            let error = Some("nobody waits for this answer".into());
            return Some(Verdict::Reject { reason: DeadReason::Rejected, error });
        }
        state.stats.given_back += 1;
        None
    }

    /// No call can be answered: tells all that wait.
    fn fail(&self, error: &Error) {
        let calls = {
            let mut state = self.state.lock();
            let calls = std::mem::take(&mut state.waiting);
            calls.keys().for_each(|call| state.over.remember(*call));
            calls
        };
        for call in calls.into_values() {
            let _ = call.send(Err(error.clone()));
        }
    }
}

fn pause_between(fruitless: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << (fruitless - 1).min(8)).min(LONGEST_PAUSE)
}

impl<O> fmt::Debug for Desk<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("replies", &self.replies)
            .field("strategy", &self.strategy)
            .finish_non_exhaustive()
    }
}

/// A call that waits. Dropping it gives up.
pub(super) struct Ticket<O> {
    desk: Arc<Desk<O>>,
    request_id: Uuid,
    answer: Option<oneshot::Receiver<Result<MainLoopResult<O>>>>,
}

impl<O> Ticket<O> {
    /// The answer.
    ///
    /// # Errors
    /// Whatever receiving replies gave, if that will not get better.
    pub(super) async fn answer(mut self) -> Result<MainLoopResult<O>> {
        let lost = || Err(Error::new(ErrorKind::Internal, "the call was forgotten"));
        match self.answer.take() {
            Some(answer) => answer.await.unwrap_or_else(|_| lost()),
            None => lost(),
        }
    }
}

impl<O> Drop for Ticket<O> {
    fn drop(&mut self) {
        let mut state = self.desk.state.lock();
        if state.waiting.remove(&self.request_id).is_some() {
            state.over.remember(self.request_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_calls_are_remembered() {
        let mut past = Past::default();
        let calls: Vec<_> = (0..REMEMBERED + 1).map(|_| Uuid::now_v7()).collect();
        calls.iter().for_each(|call| past.remember(*call));
        assert!(!past.known.contains(&calls[0]));
        assert!(past.known.contains(&calls[1]));
        assert_eq!((past.known.len(), past.in_order.len()), (REMEMBERED, REMEMBERED));
    }

    #[test]
    fn pauses_between_fruitless_receives_grow_to_a_bound() {
        assert_eq!(pause_between(1), FIRST_PAUSE);
        assert_eq!(pause_between(2), 2 * FIRST_PAUSE);
        assert_eq!(pause_between(u32::MAX), LONGEST_PAUSE);
    }
}
