//! Requests at work. Each is a future of its own, so that none waits for another; those that are
//! alike and came together are one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mailbox_wire::call::{Reply, Request};
use mailbox_wire::capability::Op;
use tokio_util::sync::CancellationToken;

use super::output::To;
use super::question::{Tongue, nothing};
use crate::admission::{Purpose, Room};
use crate::auth::Caller;
use crate::calls::{Answered, Asking, Facts, Next, Stream, purpose};
use crate::failure::Answer;
use crate::service::Service;

/// A request at work.
pub(super) type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// One request, and how to answer.
pub(super) struct One {
    pub(super) to: To,
    pub(super) tongue: Tongue,
    /// What a capability has to allow for it.
    pub(super) op: &'static str,
    /// What it takes.
    pub(super) room: Room,
    /// What it has of the connection's own room instead.
    pub(super) own: usize,
    /// How large it is.
    pub(super) len: usize,
}

/// What has become of work.
#[expect(clippy::large_enum_variant, reason = "most of them are the large one")]
pub(super) enum Done {
    /// Of a request by itself, or the next of its answers.
    One(Ended),
    /// Of requests that were done together.
    Alike(Vec<(One, Answer<Reply>)>),
}

/// What has become of one.
pub(super) struct Ended {
    pub(super) to: To,
    pub(super) tongue: Tongue,
    pub(super) caller: Caller,
    pub(super) op: &'static str,
    pub(super) own: usize,
    pub(super) result: Outcome,
}

/// What has become of a request.
#[expect(clippy::large_enum_variant, reason = "most of them are the large one")]
pub(super) enum Outcome {
    /// Its answer.
    Answer(Answer<Answered>),
    /// What comes next on a stream.
    Next(Box<Stream>, Answer<Next>),
    /// A stream was cancelled.
    Left(Box<Stream>),
    /// A stream was cancelled before it had begun.
    NotBegun,
}

/// Whether a request may take long, so that its client may want to leave before.
pub(super) fn may_wait(request: &Request) -> bool {
    match request {
        Request::Receive(question) => question.wait_ms.is_some_and(|wait| wait > 0),
        Request::ReceiveStream(_) => true,
        _ => false,
    }
}

/// Does what is asked by one who was verified in that epoch.
pub(super) fn ask(
    service: Arc<Service>,
    one: One,
    caller: Caller,
    epoch: u64,
    request: Request,
    stop: Option<CancellationToken>,
) -> Work {
    Box::pin(async move {
        let One { to, tongue, op, room, own, len: _ } = one;
        let asking = caller.clone();
        let is_stream = matches!(request, Request::ReceiveStream(_));
        let answer = async {
            let purpose = purpose(&request);
            asking.may_come(purpose)?;
            let place = service.place_for(&asking, purpose, epoch).await?;
            let asking = Asking { caller: asking, facts: Facts::default(), place, room };
            service.answer(asking, request).await
        };
        let result = match stop {
            None => Outcome::Answer(answer.await),
            Some(stop) => tokio::select! {
                biased;
                answered = answer => Outcome::Answer(answered),
                () = stop.cancelled() => match is_stream {
                    true => Outcome::NotBegun,
                    false => Outcome::Answer(Ok(Answered::Reply(nothing()))),
                },
            },
        };
        Done::One(Ended { to, tongue, caller, op, own, result })
    })
}

/// The same for several that are alike, by one caller: they have one place.
pub(super) fn ask_alike(
    service: Arc<Service>,
    each: Vec<One>,
    caller: Caller,
    epoch: u64,
    purpose: Purpose,
    alike: Vec<Request>,
) -> Work {
    Box::pin(async move {
        let place = async {
            caller.may_come(purpose)?;
            service.place_for(&caller, purpose, epoch).await
        };
        let answers = match place.await {
            Ok(_place) => service.answer_alike(&caller, alike).await,
            Err(failure) => vec![Err(failure); each.len()],
        };
        Done::Alike(each.into_iter().zip(answers).collect())
    })
}

/// Waits for what comes next on a stream.
pub(super) fn go_on(
    mut stream: Box<Stream>,
    to: To,
    tongue: Tongue,
    caller: Caller,
    stop: CancellationToken,
) -> Work {
    Box::pin(async move {
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            next = stream.next() => Some(next),
        };
        let result = match next {
            Some(next) => Outcome::Next(stream, next),
            None => Outcome::Left(stream),
        };
        Done::One(Ended { to, tongue, caller, op: Op::Receive.as_str(), own: 0, result })
    })
}
