//! The other end of a loop: sends a request and awaits its own reply (P6).

mod desk;
mod options;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

use self::desk::{Desk, Strategy};
use super::request::MainLoopRequest;
use super::result::{HandlerFailure, MainLoopResult};
use crate::error::Error;
use crate::mailbox::Mailbox;
use crate::options::SendOptions;

pub use desk::ClientStats;
pub use options::{CallOptions, ClientOptions};

/// Calls a loop: sends requests, and hands each reply to the call that waits for it.
///
/// A cheap handle: clone it, and call from as many tasks as you like. All calls share one receive
/// on the reply mailbox, in a task that lives in the client and receives only while somebody
/// waits. There are two strategies for replies:
///
/// - [`Client::private`]: a reply mailbox that nobody else receives from. Nothing to sort out;
///   prefer it.
/// - [`Client::shared`]: one mailbox of responses for many clients. Each takes its own and gives
///   back the others', undoing the delivery where the backend can, so that counts do not rise.
///   When it finds nothing but others' it pauses, up to 100 ms: that is the price.
///
/// An answer that comes late, or twice, to a call that is over confuses nobody: it is acknowledged
/// and counted. On a shared mailbox only the client that made the call can know that; the answers
/// to a client that has died are nobody's, and become dead letters after
/// [`ClientOptions::orphan_after`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use mailbox::main_loop::{CallError, Client, Context, MainLoop};
/// use mailbox::Mailbox;
///
/// let requests = Mailbox::local("requests")?;
/// let worker = MainLoop::new(requests.clone(), |text: String, _: Context| async move {
///     text.parse::<u32>()
/// });
/// tokio::spawn(worker.run());
///
/// let client = Client::private(requests, Mailbox::local("replies")?);
/// assert_eq!(client.call("42".to_owned(), Duration::from_secs(5)).await?, 42);
/// let refused = client.call("forty-two".to_owned(), Duration::from_secs(5)).await;
/// assert!(matches!(refused, Err(CallError::Failed(_))));
/// # worker.stop_handle().stop();
/// # Ok(()) }
/// ```
pub struct Client<Q, O> {
    requests: Mailbox<MainLoopRequest<Q>, MainLoopResult<O>>,
    attended: Arc<Attended<O>>,
}

/// A desk and the task that attends to it. Dropping this ends the task.
struct Attended<O> {
    desk: Arc<Desk<O>>,
    /// At most one task. A lock that is never held over an await.
    task: Mutex<JoinSet<()>>,
}

impl<Q, O> Client<Q, O>
where
    Q: Send + Sync + 'static,
    O: Clone + Send + Sync + 'static,
{
    /// A client whose replies come to `replies`, from which nobody else receives: whatever is in
    /// there and no call waits for is discarded. The loop must be able to find it: a
    /// mailbox in memory of the same process, one on the same backend, or an address that the
    /// loop's resolver follows. A local reply mailbox needs a local requests mailbox. In another
    /// process than the loop, say the types: `let client: Client<Request, Output> = ..`.
    #[must_use]
    pub fn private(
        requests: Mailbox<MainLoopRequest<Q>, MainLoopResult<O>>,
        replies: Mailbox<MainLoopResult<O>>,
    ) -> Self {
        Self::new(requests, Desk::new(replies, Strategy::Private, ClientOptions::default()))
    }

    /// A client that shares `responses` with others.
    #[must_use]
    pub fn shared(
        requests: Mailbox<MainLoopRequest<Q>, MainLoopResult<O>>,
        responses: Mailbox<MainLoopResult<O>>,
    ) -> Self {
        Self::new(requests, Desk::new(responses, Strategy::Shared, ClientOptions::default()))
    }

    /// A new client like this one, with these options.
    #[must_use]
    pub fn with_options(self, options: ClientOptions) -> Self {
        Self::new(self.requests, self.attended.desk.with_options(options))
    }

    fn new(requests: Mailbox<MainLoopRequest<Q>, MainLoopResult<O>>, desk: Desk<O>) -> Self {
        let task = Mutex::new(JoinSet::new());
        Self { requests, attended: Arc::new(Attended { desk: Arc::new(desk), task }) }
    }

    /// Sends `request` and gives the output of its handler.
    ///
    /// The request carries a deadline, so that no loop begins what nobody waits for any more.
    ///
    /// # Errors
    /// [`CallError`]: no answer in time, an error for an answer, or trouble with a mailbox.
    ///
    /// # Cancel safety
    /// Dropping the future gives up: the request may still be handled, its answer is discarded.
    pub async fn call(&self, request: Q, timeout: Duration) -> Result<O, CallError> {
        let options = CallOptions::default().with_timeout(timeout);
        let result = self.call_with(request, options).await?;
        result.outcome.map_err(CallError::Failed)
    }

    /// Sends `request` as `options` say; gives the whole result, be it an output or an error.
    ///
    /// # Errors
    /// [`CallError::Timeout`] and [`CallError::Mailbox`].
    ///
    /// # Cancel safety
    /// As [`call`](Self::call).
    pub async fn call_with(
        &self,
        request: Q,
        options: CallOptions,
    ) -> Result<MainLoopResult<O>, CallError> {
        let mut request = MainLoopRequest::new(request);
        request.budget = options.budget;
        request.deadline = options.send_deadline.then(|| request.created_at.after(options.timeout));
        let request_id = request.request_id;

        let desk = &self.attended.desk;
        // Before sending: the answer may be quicker than we are.
        let ticket = Desk::register(desk, request_id)?;
        self.attended.attend();
        let mut send = SendOptions::default().with_reply_to(desk.replies());
        send.attributes = options.attributes;
        send.group = options.group;
        let answered = async {
            self.requests.send_with(request, send).await?;
            ticket.answer().await
        };
        match timeout(options.timeout, answered).await {
            Ok(answer) => answer.map_err(CallError::Mailbox),
            Err(_) => Err(CallError::Timeout { request_id, after: options.timeout }),
        }
    }

    /// What its calls have met so far.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.attended.desk.stats()
    }
}

impl<O> Attended<O>
where
    O: Clone + Send + Sync + 'static,
{
    /// Sees to it that there is a task: the first one, or another if the runtime that ran the last
    /// one has ended.
    fn attend(&self) {
        let mut task = self.task.lock();
        while task.try_join_next().is_some() {}
        if task.is_empty() {
            let desk = Arc::clone(&self.desk);
            task.spawn(async move { desk.run().await });
        }
    }
}

impl<Q, O> Clone for Client<Q, O> {
    fn clone(&self) -> Self {
        Self { requests: self.requests.clone(), attended: Arc::clone(&self.attended) }
    }
}

impl<Q, O> fmt::Debug for Client<Q, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("requests", &self.requests)
            .field("desk", &self.attended.desk)
            .finish_non_exhaustive()
    }
}

/// Why a call gave no output.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CallError {
    /// There was no answer in time. The request may still be handled.
    Timeout {
        /// The id of the request.
        request_id: Uuid,
        /// How long it was waited for.
        after: Duration,
    },
    /// The answer is an error.
    Failed(HandlerFailure),
    /// The request could not be sent, or no replies received.
    Mailbox(Error),
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self::Mailbox(error)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout { request_id, after } => {
                write!(f, "no answer to request {request_id} within {} s", after.as_secs_f64())
            }
            Self::Failed(failure) => write!(f, "the request failed: {failure}"),
            Self::Mailbox(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Its text is already all there is to see; what lies behind it is the next source.
            Self::Mailbox(error) => std::error::Error::source(error),
            Self::Timeout { .. } | Self::Failed(_) => None,
        }
    }
}
