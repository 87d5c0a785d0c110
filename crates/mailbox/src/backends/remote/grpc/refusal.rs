//! Why a call gave no answer.

use std::error::Error as StdError;

use mailbox_wire::json::Problem;
use mailbox_wire::proto::Unreadable;
use tonic::{Code, Status};

use super::super::door::Failed;
use super::link::Unanswered;
use super::method::not_understood;
use crate::error::{Error, ErrorKind};

/// What is known of a call that ended so.
pub(super) fn failed(status: &Status) -> Failed {
    if let Some(problem) = problem(status) {
        return Failed::refused(problem);
    }
    let unanswered = status.source().and_then(|source| source.downcast_ref::<Unanswered>());
    if unanswered.is_some_and(|unanswered| unanswered.is_void) {
        let message = "the connection to the service broke before the request went out";
        return Failed::void(because(ErrorKind::Connection, message, status));
    }
    match status.code() {
        _ if is_unreadable(status) => Failed::unusable(error(status)),
        Code::OutOfRange => Failed::unusable(error(status)),
        _ => Failed::in_doubt(error(status)),
    }
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
pub(super) fn error(status: &Status) -> Error {
    match status.code() {
        _ if is_unreadable(status) => not_understood().with_source(said(status)),
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => {
            because(ErrorKind::Connection, "the connection to the service broke", status)
        }
        Code::OutOfRange => {
            because(ErrorKind::TooLarge, "the answer is too large: ask for fewer", status)
        }
        code => {
            let kind = ErrorKind::of_grpc(u8::try_from(i32::from(code)).unwrap_or(u8::MAX));
            let message = format!("something that is no mailbox service answers {code:?}");
            because(kind, &message, status)
        }
    }
}

fn because(kind: ErrorKind, message: &str, status: &Status) -> Error {
    Error::new(kind, message).with_source(said(status))
}

fn said(status: &Status) -> std::io::Error {
    // A stranger's text may be as long as a stranger likes.
    std::io::Error::other(format!("{:.200}", status.message()))
}
