//! Why a call gave no answer.

use std::error::Error as StdError;

use mailbox_wire::json::Problem;
use mailbox_wire::proto::Unreadable;
use tonic::{Code, Status};

use super::super::door::Failed;
use super::heard::Said;
use super::link::Unanswered;
use super::method::not_understood;
use crate::error::{Error, ErrorKind};

/// What is known of a call that ended so.
pub(super) fn failed(status: &Status, said: &Said) -> Failed {
    if let Some(problem) = problem(status) {
        return Failed::refused(problem);
    }
    let unanswered = status.source().and_then(|source| source.downcast_ref::<Unanswered>());
    if unanswered.is_some_and(|unanswered| unanswered.is_void) {
        let message = "the connection to the service broke before the request went out";
        return Failed::void(because(ErrorKind::Connection, message, status));
    }
    let is_unusable = is_unreadable(status) || is_too_large(status, said);
    let error = error(status, said);
    if is_unusable { Failed::unusable(error) } else { Failed::in_doubt(error) }
}

/// Whether the answer is larger than what is read of one.
fn is_too_large(status: &Status, said: &Said) -> bool {
    status.code() == Code::OutOfRange && !said.is_said()
}

/// Whether it is the answer that could not be read. The code alone would say that the request was
/// wrong; but the service has carried it out.
fn is_unreadable(status: &Status) -> bool {
    status.source().is_some_and(|source| source.is::<Unreadable>())
}

/// What the service says about it: in the details, the same as in the body of HTTP.
pub(super) fn problem(status: &Status) -> Option<Problem> {
    mailbox_wire::proto::problem(status.details())
}

/// What went wrong, where the service does not say: somebody in between does, or the connection.
pub(super) fn error(status: &Status, said: &Said) -> Error {
    match status.code() {
        _ if is_unreadable(status) => not_understood().with_source(text(status)),
        _ if is_too_large(status, said) => {
            because(ErrorKind::TooLarge, "the answer is too large: ask for fewer", status)
        }
        // Nobody has said that: it is how the end of the connection, or of the answer, looks here.
        _ if !said.is_said() => {
            because(ErrorKind::Connection, "the connection to the service broke", status)
        }
        // Nor do these say that nothing was done.
        Code::Unavailable
        | Code::Unknown
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal
        | Code::DataLoss => {
            let message = "the service, or something before it, does not say what became of a call";
            because(ErrorKind::Connection, message, status)
        }
        code => {
            let kind = match code {
                // Nothing about a message or a mailbox, of which whoever says so has none: the
                // address is wrong.
                Code::NotFound | Code::AlreadyExists => ErrorKind::InvalidParameter,
                code => ErrorKind::of_grpc(u8::try_from(i32::from(code)).unwrap_or(u8::MAX)),
            };
            let message = format!("something that is no mailbox service answers {code:?}");
            because(kind, &message, status)
        }
    }
}

fn because(kind: ErrorKind, message: &str, status: &Status) -> Error {
    Error::new(kind, message).with_source(text(status))
}

fn text(status: &Status) -> std::io::Error {
    // A stranger's text may be as long as a stranger likes.
    std::io::Error::other(format!("{:.200}", status.message()))
}
