//! The way into a service: what each protocol does in its own manner. Everything else (what is
//! tried again, for how long, what becomes of a receive that is given up) is written once, above.

use std::fmt;

use async_trait::async_trait;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Envelope, Problem, ReceiveRequest, Received};
use tokio_util::sync::CancellationToken;

use super::convert;
use crate::error::{Error, ErrorKind, Result};

/// A protocol that a service is spoken to in. Whoever drops what it is asked may leave a call in
/// doubt, and nothing else behind.
#[async_trait]
pub(super) trait Door: fmt::Debug + Send + Sync {
    /// What addresses of its mailboxes begin with.
    fn base(&self) -> String;

    /// Largest request with several things in it that gets through, to a service that takes them up
    /// to `max_body`.
    fn most(&self, max_body: usize) -> usize {
        max_body
    }

    /// Shows another capability from now on.
    fn authorize(&self, capability: &str) -> Result<()>;

    /// Whether it is worth while to put together what is asked for one by one.
    fn gathers(&self) -> bool {
        false
    }

    /// Asks once.
    async fn ask(&self, request: &Request) -> Result<Reply, Failed>;

    /// Receives once. When `stop` is cancelled, the service learns that nobody waits; what it has
    /// handed out by then still comes.
    async fn receive(
        &self,
        request: &ReceiveRequest,
        stop: &CancellationToken,
    ) -> Result<Received, Failed>;

    /// Receives until what is given is dropped.
    async fn stream(&self, request: &ReceiveRequest) -> Result<Box<dyn Coming>, Failed>;
}

/// Messages as they come.
#[async_trait]
pub(super) trait Coming: Send + Sync {
    /// What comes next. Nothing is lost if it is dropped.
    async fn next(&mut self) -> Result<Event>;
}

/// What comes on a stream.
pub(super) enum Event {
    Message(Box<Envelope>),
    /// The service is there, and has nothing to say or has not said all of it.
    SignOfLife,
    /// The service ends it.
    Ended(Option<Problem>),
}

/// How one attempt ended that gave no answer.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) outcome: Outcome,
    /// An attempt before this one, at the same call, may have been carried out.
    pub(super) is_open_before: bool,
    /// The service itself has said so, so it was reached.
    pub(super) is_said: bool,
}

/// What is known of an attempt that gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was certainly not carried out, whatever it was.
    Void,
    /// The service itself says why not.
    Refused,
    /// It says that the capability is not good: nothing was done.
    Unauthorized,
    /// There is an answer, and it is of no use: the call was probably carried out.
    Unusable,
    /// It may have been carried out.
    InDoubt,
}

impl Failed {
    const fn new(error: Error, outcome: Outcome) -> Self {
        Self { error, outcome, is_open_before: false, is_said: false }
    }

    /// It was certainly not carried out.
    pub(super) const fn void(error: Error) -> Self {
        Self::new(error, Outcome::Void)
    }

    /// It may have been carried out.
    pub(super) const fn in_doubt(error: Error) -> Self {
        Self::new(error, Outcome::InDoubt)
    }

    /// The answer is of no use.
    pub(super) const fn unusable(error: Error) -> Self {
        Self::new(error, Outcome::Unusable)
    }

    /// The service has said why not.
    pub(super) fn refused(problem: Problem) -> Self {
        // Whoever says that it is stopping, has no place for the connection, or closes it because
        // nothing was asked on it, has done nothing.
        let is_void = matches!(problem.reason.as_deref(), Some("stopping" | "no_place" | "idle"));
        let error = convert::error(problem);
        let outcome = match error.kind() {
            _ if is_void => Outcome::Void,
            ErrorKind::Unauthorized => Outcome::Unauthorized,
            _ => Outcome::Refused,
        };
        Self { is_said: true, ..Self::new(error, outcome) }
    }

    /// Nobody waited any more when it was to be made.
    pub(super) fn given_up() -> Self {
        Self::void(Error::new(ErrorKind::Connection, "the receive was given up"))
    }

    /// Whether this attempt was certainly not carried out.
    pub(super) fn is_void(&self) -> bool {
        self.outcome == Outcome::Void
    }

    /// Whether this attempt may have been carried out, as far as that is known.
    pub(super) fn is_open(&self) -> bool {
        match self.outcome {
            Outcome::Void | Outcome::Unauthorized => false,
            Outcome::Unusable => true,
            // The service itself does not know: it has not reached its store, or not in time; or
            // something broke there, which a disk does after it has written as well as before.
            Outcome::Refused => {
                matches!(self.error.kind(), ErrorKind::Connection | ErrorKind::Internal)
            }
            // Somebody in between who says no has passed nothing on.
            Outcome::InDoubt => self.error.kind() == ErrorKind::Connection,
        }
    }
}
