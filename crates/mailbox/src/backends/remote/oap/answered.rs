//! What a service answers to a request.

use bytes::Bytes;
use mailbox_wire::call::Reply;
use mailbox_wire::json::Problem;
use mailbox_wire::proto::read_reply;

use super::super::door::Failed;
use crate::error::{Error, ErrorKind};

/// The code of success.
const OK: u16 = 200;

/// An answer, all of it.
pub(super) struct Answered {
    pub(super) code: u16,
    pub(super) payload: Bytes,
}

impl Answered {
    /// What was asked for, or why not.
    pub(super) fn payload(self) -> Result<Bytes, Failed> {
        match self.problem() {
            None => Ok(self.payload),
            Some(Ok(problem)) => Err(Failed::refused(problem)),
            Some(Err(failed)) => Err(failed),
        }
    }

    /// What was asked for, read.
    pub(super) fn reply(self) -> Result<Reply, Failed> {
        read_reply(self.payload()?)
            .map_err(|error| Failed::unusable(not_understood().with_source(error)))
    }

    /// What went wrong, if something did.
    pub(super) fn problem(&self) -> Option<Result<Problem, Failed>> {
        (self.code != OK).then(|| {
            serde_json::from_slice(&self.payload).map_err(|_| {
                let message = format!("the service answers {} and does not say why", self.code);
                // Not of the kind that the code would be: nobody says that nothing was done.
                Failed::in_doubt(Error::new(ErrorKind::Connection, message))
            })
        })
    }
}

pub(super) fn not_understood() -> Error {
    let message = "the service says something that this client does not understand";
    Error::new(ErrorKind::Internal, message)
}
