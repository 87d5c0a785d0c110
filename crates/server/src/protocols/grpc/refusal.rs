//! Why a call did not do what was asked, as gRPC says it: a code, a message, and in the details the
//! problem, the same as in the body of HTTP.

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use mailbox::ErrorKind;
use mailbox_wire::proto::{Garbled, details};
use tonic::{Code, Status};

use crate::failure::Failure;

/// Why a call is refused that gRPC knows and this service does not.
const NO_METHOD: &str = "method";
const NO_ENCODING: &str = "encoding";

/// How a call ended, for those who count: what HTTP would have said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) kind: ErrorKind,
}

/// The status of a call that failed.
pub(super) fn status(failure: &Failure, corr_id: &str) -> Status {
    let problem = failure.problem(corr_id);
    let code = match failure.reason {
        // What every client of gRPC understands: it is not asked for again.
        Some(NO_METHOD | NO_ENCODING) => Code::Unimplemented,
        _ => Code::from_i32(failure.error.kind().status().grpc.into()),
    };
    let message = problem.message.clone();
    Status::with_details(code, message, details(code.into(), problem))
}

/// The answer to a call that failed before there was one.
pub(super) fn refused(failure: &Failure, corr_id: &str) -> Response {
    let mut response = status(failure, corr_id).into_http::<Body>();
    if failure.reason == Some(NO_ENCODING) {
        let encodings = HeaderValue::from_static("identity");
        response.headers_mut().insert("grpc-accept-encoding", encodings);
    }
    response.extensions_mut().insert(Counted { kind: failure.error.kind() });
    response
}

/// There is no such call.
pub(super) fn no_method() -> Failure {
    let failure = Failure::new(ErrorKind::Unsupported, "there is no such method");
    Failure { reason: Some(NO_METHOD), ..failure }
}

/// Messages are compressed in a way that is not known here.
pub(super) fn no_encoding() -> Failure {
    let message = "messages are taken as they are: no grpc-encoding but identity";
    Failure { reason: Some(NO_ENCODING), ..Failure::new(ErrorKind::Unsupported, message) }
}

/// A message that does not say what it has to.
pub(super) fn garbled(garbled: Garbled) -> Failure {
    Failure::new(ErrorKind::InvalidParameter, format!("the message cannot be read: {garbled}"))
}

/// What the library refuses before a method sees it: a message that is too large, or cannot be
/// read, which it calls an error of its own.
pub(super) fn by_the_library(status: &Status) -> Failure {
    match status.code() {
        Code::OutOfRange | Code::ResourceExhausted => {
            Failure::new(ErrorKind::TooLarge, "the message is too large")
        }
        _ => Failure::new(ErrorKind::InvalidParameter, "the message cannot be read"),
    }
}
