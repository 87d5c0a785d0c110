//! What can go wrong, in a closed list of kinds that every protocol can carry (contract, E).

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mailbox_core::Refusal;

use crate::name::Name;
use crate::resolver::shown;

/// The result of everything that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, one pointer wide and cheap to clone.
///
/// Decide by [`Error::kind`] and [`Error::retry`]; the text is for people. `{:#}` adds what lies
/// behind it, as [`source`](StdError::source) does for those who print the chain themselves.
///
/// Before a send is repeated because [`Error::retry`] says that it can help, look at
/// [`Error::is_in_doubt`]: if it may have taken effect, and had no idempotency key, a second one
/// may make a second message.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    retry: Retry,
    is_in_doubt: bool,
    mailbox: Option<Name>,
    field: Option<&'static str>,
    identifier: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What kind of error: named after what the caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The delivery this handle stood for is over: expired, settled, delivered again, purged.
    ReceiptHandleExpired,
    /// The mailbox holds as many messages as it may.
    MailboxFull,
    /// A body could not be encoded or decoded.
    Serialization,
    /// The backend cannot be reached, or the outcome is in doubt: [`Error::is_in_doubt`].
    Connection,
    /// The message names no mailbox to reply to.
    ReplyNotAvailable,
    /// The message was settled before.
    MessageFinalized,
    /// A mailbox identifier leads nowhere; see [`Error::identifier`].
    MailboxResolution,
    /// An argument is outside its bounds; see [`Error::field`].
    InvalidParameter,
    /// A payload, or a part of a message, is larger than allowed.
    TooLarge,
    /// The idempotency key was used for another payload.
    Duplicate,
    /// A bound is reached; try again after the time in [`Error::retry`].
    Saturated,
    /// No capability, or not a valid one.
    Unauthorized,
    /// The capability does not cover this.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// A payload is not what was sent.
    Integrity,
    /// The mailbox was closed.
    Closed,
    /// This backend cannot do that; its `Abilities` say so.
    Unsupported,
    /// A defect, here or below.
    Internal,
}

impl ErrorKind {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::ReceiptHandleExpired,
        Self::MailboxFull,
        Self::Serialization,
        Self::Connection,
        Self::ReplyNotAvailable,
        Self::MessageFinalized,
        Self::MailboxResolution,
        Self::InvalidParameter,
        Self::TooLarge,
        Self::Duplicate,
        Self::Saturated,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Integrity,
        Self::Closed,
        Self::Unsupported,
        Self::Internal,
    ];

    /// What to do unless the error says better.
    const fn default_retry(self) -> Retry {
        match self {
            Self::Connection => Retry::After(Duration::from_millis(100)),
            Self::MailboxFull | Self::Saturated => Retry::After(Duration::from_secs(1)),
            _ => Retry::Never,
        }
    }
}

/// Whether the same call can succeed later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Not without changing something.
    Never,
    /// At once.
    Now,
    /// After this long.
    After(Duration),
}

impl Error {
    /// An error of `kind`. `message` is lowercase, without a final period, and names the thing.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            retry: kind.default_retry(),
            is_in_doubt: false,
            mailbox: None,
            field: None,
            identifier: None,
            source: None,
        }))
    }

    /// What kind it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call can succeed later.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// Whether the call may have taken effect all the same: it went out, and nobody knows what
    /// became of it. To repeat a send without an idempotency key may make a second message, and a
    /// second acknowledgement may find the delivery gone.
    ///
    /// Mailboxes of a service (`http:`, `grpc:`, `oap:`) say so of everything that changes
    /// something, but for receives, whose messages come back by their deadline. A
    /// [`Connection`](ErrorKind::Connection) of theirs that is not in doubt has changed nothing. Of
    /// other backends `false` is no promise.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.0.is_in_doubt
    }

    /// The mailbox it happened to.
    #[must_use]
    pub fn mailbox(&self) -> Option<&Name> {
        self.0.mailbox.as_ref()
    }

    /// The argument that was out of bounds.
    #[must_use]
    pub fn field(&self) -> Option<&'static str> {
        self.0.field
    }

    /// The identifier that could not be resolved.
    #[must_use]
    pub fn identifier(&self) -> Option<&str> {
        self.0.identifier.as_deref()
    }

    /// The message without mailbox and source.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Sets what to do about it.
    #[must_use]
    pub fn with_retry(self, retry: Retry) -> Self {
        self.change(|inner| inner.retry = retry)
    }

    /// Says that the call may have taken effect all the same: see [`Error::is_in_doubt`].
    #[must_use]
    pub fn with_doubt(self) -> Self {
        self.change(|inner| inner.is_in_doubt = true)
    }

    /// Sets the mailbox it happened to.
    #[must_use]
    pub fn with_mailbox(self, mailbox: &Name) -> Self {
        self.change(|inner| inner.mailbox = Some(mailbox.clone()))
    }

    /// Sets the argument that was out of bounds.
    #[must_use]
    pub fn with_field(self, field: &'static str) -> Self {
        self.change(|inner| inner.field = Some(field))
    }

    /// Sets what lies behind it.
    #[must_use]
    pub fn with_source(self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.change(|inner| inner.source = Some(Arc::new(source)))
    }

    /// `identifier` leads nowhere, because of `why`. It is kept and shown without user, password
    /// and options, should it be an address.
    #[must_use]
    pub fn resolution(identifier: &str, why: impl fmt::Display) -> Self {
        let shown = shown(identifier);
        // An identifier may be a stranger's, and as long as a stranger likes.
        let short = format!("{shown:.200}");
        Self::new(ErrorKind::MailboxResolution, format!("cannot resolve {short:?}: {why}"))
            .change(|inner| inner.identifier = Some(shown.into_owned()))
    }

    /// `field` is `value`, which is not within `bound`.
    #[must_use]
    pub fn invalid(
        field: &'static str,
        value: impl fmt::Display,
        bound: impl fmt::Display,
    ) -> Self {
        Self::new(ErrorKind::InvalidParameter, format!("{field} is {value}, allowed is {bound}"))
            .with_field(field)
    }

    /// `field` has `size` bytes, more than `most`.
    #[must_use]
    pub fn too_large(field: &'static str, size: usize, most: usize) -> Self {
        let message = format!("{field} has {size} bytes, allowed are at most {most}");
        Self::new(ErrorKind::TooLarge, message).with_field(field)
    }

    /// The mailbox was closed.
    #[must_use]
    pub fn closed(mailbox: &Name) -> Self {
        Self::new(ErrorKind::Closed, "closed").with_mailbox(mailbox)
    }

    /// What core refused, at `mailbox`.
    #[must_use]
    pub fn refused(refusal: Refusal, mailbox: &Name) -> Self {
        let kind = match refusal {
            Refusal::Full { .. } => ErrorKind::MailboxFull,
            Refusal::KeyTaken { .. } => ErrorKind::Duplicate,
            Refusal::DedupFull { .. } | Refusal::TooManyInFlight { .. } => ErrorKind::Saturated,
            Refusal::Stale(_) => ErrorKind::ReceiptHandleExpired,
            Refusal::HeldTooLong { .. } => ErrorKind::InvalidParameter,
            Refusal::NotDead => ErrorKind::NotFound,
        };
        let error = Self::new(kind, refusal.to_string()).with_mailbox(mailbox);
        match refusal {
            Refusal::DedupFull { retry_after, .. }
            | Refusal::TooManyInFlight { retry_after, .. } => {
                error.with_retry(Retry::After(retry_after))
            }
            Refusal::HeldTooLong { .. } => error.with_field("visibility_timeout"),
            _ => error,
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mailbox) = &self.0.mailbox {
            write!(f, "mailbox `{mailbox}`: ")?;
        }
        f.write_str(&self.0.message)?;
        match &self.0.source {
            Some(source) if f.alternate() => write!(f, ": {source:#}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self:#} (retry: {:?})", self.0.kind, self.0.retry)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer_wide_and_names_its_mailbox() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        let error = Error::refused(Refusal::Full { max_size: 3 }, &Name::parse("orders").unwrap());
        assert_eq!(error.to_string(), "mailbox `orders`: full: it holds max_size = 3 messages");
        assert_eq!(error.kind(), ErrorKind::MailboxFull);
        assert!(matches!(error.retry(), Retry::After(_)));
        assert!(!error.is_in_doubt());
        assert!(error.with_doubt().with_field("x").is_in_doubt());
    }
}
