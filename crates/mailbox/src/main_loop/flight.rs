//! One request, from its delivery to its settlement. Invariants: a reply comes before the
//! acknowledgement (P1); after the lease is lost nothing is replied and nothing settled.

use std::sync::Arc;
use std::time::Duration;

use mailbox_core::{DeadReason, Verdict};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use super::context::Context;
use super::handler::AnyHandler;
use super::health::{Count, Meter, Present};
use super::keep_alive::{KeepAlive, Received};
use super::options::LoopOptions;
use super::request::MainLoopRequest;
use super::result::{FailureKind, HandlerFailure, MainLoopResult, shortened};
use crate::error::{Error, ErrorKind, Result};
use crate::mailbox::Mailbox;
use crate::message::Message;
use crate::timestamp::Timestamp;

type Request<Q, O> = Message<MainLoopRequest<Q>, MainLoopResult<O>>;
type Lease<'a, Q, O> = KeepAlive<'a, MainLoopRequest<Q>, MainLoopResult<O>>;

/// What all flights of a loop share.
pub(crate) struct Equipment<Q, O> {
    pub(crate) handler: AnyHandler<Q, O>,
    pub(crate) responses: Option<Mailbox<MainLoopResult<O>>>,
    pub(crate) options: LoopOptions,
    pub(crate) meter: Arc<Meter>,
}

pub(crate) struct Flight<Q, O> {
    pub(crate) message: Request<Q, O>,
    pub(crate) received: Received,
    pub(crate) equipment: Arc<Equipment<Q, O>>,
    /// The loop stops and its drain time is over.
    pub(crate) drained: CancellationToken,
    pub(crate) present: Present,
}

/// How handling ended.
enum Ended<O> {
    /// There is something to answer.
    With(Result<O, HandlerFailure>),
    /// The loop must end: somebody else shall do it.
    Stopped,
    /// Somebody else will do it, or has done it.
    LeaseLost(Error),
}

/// What became of a reply.
enum Reply {
    Sent,
    NotWanted,
    NotSent(Error),
    LeaseLost(Error),
}

impl<Q, O> Flight<Q, O>
where
    Q: Clone + Send + Sync + 'static,
    O: Send + Sync + 'static,
{
    pub(crate) async fn run(self) {
        let Self { message, received, equipment, drained, present: _present } = self;
        let timeout = equipment.options.visibility_timeout;
        let mut lease = KeepAlive::new(&message, timeout, received);
        let request = match message.body() {
            Ok(request) => request,
            Err(error) => return reject(&lease, &message, &equipment.meter, &error).await,
        };
        let context = Context::new(
            request,
            message.delivery_count(),
            message.attributes().clone(),
            drained.child_token(),
        );
        // The handler has a task of its own: if it blocks its thread the lease is kept all the
        // same, and if it panics only it is gone. Dropping the set ends it.
        let mut handlers = JoinSet::new();
        let ended = match overdue(request) {
            Some(failure) => Ended::With(Err(failure)),
            None => {
                handlers.spawn((equipment.handler)(request.request.clone(), context.clone()));
                equipment.watch(&mut handlers, &mut lease, &context, &drained).await
            }
        };
        // Cuts off a handler that has not ended; does nothing to one that has.
        handlers.abort_all();
        equipment.conclude(ended, &message, &mut lease, &context).await;
        // A handler that cannot be cut off keeps its place: never more than N run at once.
        while handlers.join_next().await.is_some() {}
    }
}

impl<Q, O> Equipment<Q, O>
where
    Q: Send + Sync + 'static,
    O: Send + Sync + 'static,
{
    /// Waits for the handler, keeping the lease.
    async fn watch(
        &self,
        handlers: &mut JoinSet<Result<O, HandlerFailure>>,
        lease: &mut Lease<'_, Q, O>,
        context: &Context,
        drained: &CancellationToken,
    ) -> Ended<O> {
        let grace = self.options.grace;
        let error = tokio::select! {
            biased;
            done = handlers.join_next() => return ended(done, drained),
            failure = cut_off(context) => return Ended::With(Err(failure)),
            () = after(drained, grace) => return Ended::Stopped,
            error = lease.run() => error,
        };
        context.tell_to_stop();
        // What it still gives is of no use: somebody else does it again.
        let _ = timeout(grace, handlers.join_next()).await;
        Ended::LeaseLost(error)
    }

    /// Answers and settles, or does neither.
    async fn conclude(
        &self,
        ended: Ended<O>,
        message: &Request<Q, O>,
        lease: &mut Lease<'_, Q, O>,
        context: &Context,
    ) {
        let request_id = context.request_id();
        let outcome = match ended {
            Ended::With(_) if !lease.is_held().await => {
                let why = "the lease was over before the handler was done";
                let error = Error::new(ErrorKind::ReceiptHandleExpired, why);
                return self.lost(message, request_id, &error);
            }
            Ended::LeaseLost(error) => return self.lost(message, request_id, &error),
            Ended::Stopped => {
                let why = "the loop was stopped before the handler was done";
                return self.give_back(message, lease, Duration::ZERO, why.to_owned()).await;
            }
            Ended::With(outcome) => outcome,
        };
        let done = if outcome.is_ok() { Count::Handled } else { Count::Failed };
        let mut result = MainLoopResult::new(request_id, outcome);
        result.session_id = context.session_id();
        match self.reply(message, lease, result).await {
            Reply::Sent => self.acknowledge(message, lease, request_id, done).await,
            Reply::NotWanted => {
                warn!(mailbox = %message.mailbox().name(), %request_id, "nobody to reply to");
                self.meter.count(Count::Unanswered);
                self.acknowledge(message, lease, request_id, done).await;
            }
            Reply::LeaseLost(error) => self.lost(message, request_id, &error),
            Reply::NotSent(error) => {
                let delay = self.options.reply_backoff.delay(message.delivery_count());
                let why = format!("the reply could not be sent: {error}");
                self.give_back(message, lease, delay, why).await;
            }
        }
    }

    /// Sends the result; an output that can never be sent is replaced by an error that can.
    async fn reply(
        &self,
        message: &Request<Q, O>,
        lease: &mut Lease<'_, Q, O>,
        result: MainLoopResult<O>,
    ) -> Reply {
        let MainLoopResult { request_id, session_id, .. } = &result;
        let failed = result.outcome.is_err();
        let (request_id, session_id) = (*request_id, session_id.clone());
        let error = match self.reply_once(message, lease, result).await {
            Reply::NotSent(error) if !failed && is_unsendable(&error) => error,
            other => return other,
        };
        let text = format!("the output could not be sent: {error}");
        let failure = HandlerFailure::new(FailureKind::Unsendable, text);
        let mut result = MainLoopResult::new(request_id, Err(failure));
        result.session_id = session_id;
        self.reply_once(message, lease, result).await
    }

    async fn reply_once(
        &self,
        message: &Request<Q, O>,
        lease: &mut Lease<'_, Q, O>,
        result: MainLoopResult<O>,
    ) -> Reply {
        let send = async {
            match &self.responses {
                _ if message.reply_to().is_some() => message.reply(result).await.map(Some),
                Some(responses) => responses.send(result).await.map(Some),
                None => Ok(None),
            }
        };
        tokio::select! {
            biased;
            sent = send => match sent {
                Ok(Some(_)) => Reply::Sent,
                Ok(None) => Reply::NotWanted,
                Err(error) => Reply::NotSent(error),
            },
            error = lease.run() => Reply::LeaseLost(error),
        }
    }

    async fn acknowledge(
        &self,
        message: &Request<Q, O>,
        lease: &Lease<'_, Q, O>,
        request_id: Uuid,
        done: Count,
    ) {
        self.meter.count(done);
        if let Err(error) = lease.settle(Verdict::Acknowledge).await {
            let mailbox = message.mailbox().name();
            warn!(%mailbox, %request_id, %error, "answered, not acknowledged: it will come again");
            self.meter.not_settled(&error);
        }
    }

    async fn give_back(
        &self,
        message: &Request<Q, O>,
        lease: &Lease<'_, Q, O>,
        delay: Duration,
        why: String,
    ) {
        let mailbox = message.mailbox().name();
        warn!(%mailbox, id = %message.id(), ?delay, why, "a request is given back");
        let error = Some(shortened(why).into_boxed_str());
        match lease.settle(Verdict::Nack { delay, error }).await {
            Ok(()) => self.meter.count(Count::GivenBack),
            Err(error) => {
                let id = message.id();
                warn!(%mailbox, %id, %error, "not nacked: its deadline brings it back");
                self.meter.not_settled(&error);
            }
        }
    }

    fn lost(&self, message: &Request<Q, O>, request_id: Uuid, error: &Error) {
        self.meter.count(Count::LeaseLost);
        let mailbox = message.mailbox().name();
        warn!(%mailbox, %request_id, %error, "lease lost: the result is dropped");
    }
}

/// Puts aside what is no request: nobody could be answered, and no delivery would change that.
async fn reject<Q, O>(
    lease: &Lease<'_, Q, O>,
    message: &Request<Q, O>,
    meter: &Meter,
    error: &Error,
) where
    Q: Send + Sync + 'static,
    O: Send + Sync + 'static,
{
    let mailbox = message.mailbox().name();
    warn!(%mailbox, id = %message.id(), %error, "not a request: it becomes a dead letter");
    let text = Some(shortened(error.to_string()).into_boxed_str());
    let verdict = Verdict::Reject { reason: DeadReason::Decode, error: text };
    match lease.settle(verdict).await {
        Ok(()) => meter.count(Count::Undecodable),
        Err(error) => {
            let id = message.id();
            warn!(%mailbox, %id, %error, "not rejected: its deadline brings it back");
            meter.not_settled(&error);
        }
    }
}

/// What to answer to a request that came too late (P3).
fn overdue<Q>(request: &MainLoopRequest<Q>) -> Option<HandlerFailure> {
    let deadline = request.deadline.filter(|deadline| *deadline <= Timestamp::now())?;
    let text = format!("not run: the deadline {deadline} has passed");
    Some(HandlerFailure::new(FailureKind::DeadlineExceeded, text))
}

/// Ends when the request's time is over; says what to answer.
async fn cut_off(context: &Context) -> HandlerFailure {
    let Some(cut_off) = context.cut_off() else { return std::future::pending().await };
    sleep_until(cut_off.at).await;
    let text = match cut_off.kind {
        FailureKind::DeadlineExceeded => "cut off: the deadline has passed",
        _ => "cut off: the budget of time is used up",
    };
    HandlerFailure::new(cut_off.kind, text)
}

/// Ends `grace` after the handler was told that the loop stops.
async fn after(drained: &CancellationToken, grace: Duration) {
    drained.cancelled().await;
    sleep(grace).await;
}

fn ended<O>(
    done: Option<Result<Result<O, HandlerFailure>, JoinError>>,
    drained: &CancellationToken,
) -> Ended<O> {
    match done {
        Some(Ok(Ok(output))) => Ended::With(Ok(output)),
        // It was told to stop and did: that is no answer.
        Some(Ok(Err(_))) if drained.is_cancelled() => Ended::Stopped,
        Some(Ok(Err(failure))) => Ended::With(Err(failure)),
        Some(Err(error)) => match error.try_into_panic() {
            Ok(payload) => Ended::With(Err(HandlerFailure::panicked(&*payload))),
            Err(_) => Ended::Stopped,
        },
        None => Ended::Stopped,
    }
}

/// Whether sending the same again can never succeed.
fn is_unsendable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Serialization)
}
