//! Why a call did not do what was asked, in words that every protocol can carry.

use mailbox::{Error, ErrorKind, Retry};
use mailbox_wire::capability::Refused;
use mailbox_wire::json::Problem;

/// An error, and what it was about a capability if it was one.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// One word: why a capability was not enough.
    pub(crate) reason: Option<&'static str>,
    /// The message that was there already, where a duplicate is a conflict.
    pub(crate) msg_id: Option<String>,
}

/// What is said of a defect: what it is about is for the log, where the correlation id finds it.
const DEFECT: &str = "something is wrong with the service; its log says what, under this corr_id";

/// Most signs of what is said.
const LONGEST: usize = 1000;

/// What a call gives.
pub(crate) type Answer<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error::new(kind, message).into()
    }

    /// The store has said less than it was asked.
    pub(crate) fn no_answer() -> Self {
        Self::new(ErrorKind::Internal, "the store gave no answer")
    }

    /// There was no capability at all.
    pub(crate) fn no_capability() -> Self {
        let message = "no capability: send one as `Authorization: Bearer ...`";
        let reason = Some(Refused::Missing.as_str());
        Self { reason, ..Self::new(ErrorKind::Unauthorized, message) }
    }
}

impl Failure {
    /// What went wrong, in the shape of the wire. A defect goes to the log.
    pub(crate) fn problem(&self, corr_id: &str) -> Problem {
        let error = &self.error;
        let message = match error.kind() {
            ErrorKind::Internal => {
                tracing::error!(corr_id, ?error, "defect");
                DEFECT.to_owned()
            }
            _ => shortened(error.message()),
        };
        Problem {
            code: error.kind().status().code.to_owned(),
            message,
            corr_id: corr_id.to_owned(),
            kind: error.kind().as_str().to_owned(),
            retry_after_ms: match error.retry() {
                Retry::Never => None,
                Retry::Now => Some(0),
                Retry::After(time) => {
                    Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
                }
            },
            reason: self.reason.map(str::to_owned),
            field: error.field().map(str::to_owned),
            topic: error.mailbox().map(ToString::to_string),
            msg_id: self.msg_id.clone(),
        }
    }
}

/// Nobody's input is repeated at length: answers have to be small where requests are large.
fn shortened(message: &str) -> String {
    match message.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", &message[..at]),
        None => message.to_owned(),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, reason: None, msg_id: None }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let kind = match refused {
            Refused::Rate => ErrorKind::Saturated,
            _ if refused.is_authentication() => ErrorKind::Unauthorized,
            _ => ErrorKind::Forbidden,
        };
        let error = Error::new(kind, refused.to_string());
        Self { error, reason: Some(refused.as_str()), msg_id: None }
    }
}
