//! Why a call did not do what was asked, in words that every protocol can carry.

use mailbox::{Error, ErrorKind};
use mailbox_wire::capability::Refused;

/// An error, and what it was about a capability if it was one.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// One word: why a capability was not enough.
    pub(crate) reason: Option<&'static str>,
    /// The message that was there already, where a duplicate is a conflict.
    pub(crate) msg_id: Option<String>,
}

/// What a call gives.
pub(crate) type Answer<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error::new(kind, message).into()
    }

    /// There was no capability at all.
    pub(crate) fn no_capability() -> Self {
        let message = "no capability: send one as `Authorization: Bearer ...`";
        let reason = Some(Refused::Missing.as_str());
        Self { reason, ..Self::new(ErrorKind::Unauthorized, message) }
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
