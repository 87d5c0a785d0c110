//! One request at work. Each is a future of its own, so that none waits for another.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mailbox_wire::call::Request;
use mailbox_wire::capability::Op;
use tokio_util::sync::CancellationToken;

use super::output::To;
use super::question::{Tongue, nothing};
use crate::admission::Room;
use crate::auth::Caller;
use crate::calls::{Answered, Asking, Facts, Next, Stream, purpose};
use crate::failure::Answer;
use crate::service::Service;

/// A request at work.
pub(super) type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What has become of one.
pub(super) struct Done {
    pub(super) to: To,
    pub(super) tongue: Tongue,
    pub(super) caller: Caller,
    /// What a capability has to allow for it.
    pub(super) op: &'static str,
    /// What it had of the connection's own room.
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

/// Does what is asked.
pub(super) fn ask(
    service: Arc<Service>,
    asks: Asks,
    request: Request,
    stop: Option<CancellationToken>,
) -> Work {
    Box::pin(async move {
        let Asks { to, tongue, caller, op, epoch, room, own } = asks;
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
        Done { to, tongue, caller, op, own, result }
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
        Done { to, tongue, caller, op: Op::Receive.as_str(), own: 0, result }
    })
}

/// Who asks, and how to answer.
pub(super) struct Asks {
    pub(super) to: To,
    pub(super) tongue: Tongue,
    pub(super) caller: Caller,
    /// What it has to allow.
    pub(super) op: &'static str,
    /// When it was verified.
    pub(super) epoch: u64,
    pub(super) room: Room,
    /// What it has of the connection's own.
    pub(super) own: usize,
}
