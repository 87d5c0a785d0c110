//! What is in a message, whichever way it came: decoded from a payload, or never encoded at all.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use crate::backend::Letter;
use crate::codec::Codec;
use crate::error::{Error, ErrorKind, Result};
use crate::mailbox::Mailbox;
use crate::name::Name;
use crate::resolver::shown;
use crate::timestamp::Timestamp;

/// Calls a codec. A body whose `Serialize` or `Deserialize` panics is that message's trouble alone:
/// others of its batch are in flight already, and a worker must be able to put it aside.
pub(crate) fn guarded<A>(doing: &str, call: impl FnOnce() -> Result<A>) -> Result<A> {
    // Nothing of ours is changed in there: what a panic leaves half done is the body's own.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Serialization, format!("{doing} the body panicked")))
    })
}

/// A body that stays in this process, with the mailbox itself to reply to.
pub(crate) struct LocalBody<T, R> {
    pub(crate) body: T,
    pub(crate) reply_to: Option<Mailbox<R>>,
}

/// A message's content.
pub(crate) enum Contents<T, R> {
    Decoded { letter: Arc<Letter>, body: Result<T> },
    Local(Arc<Letter<LocalBody<T, R>>>),
}

impl<T, R> Contents<T, R> {
    pub(crate) fn decode(letter: Arc<Letter>, codec: &dyn Codec<T>, name: &Name) -> Self
    where
        T: 'static,
    {
        let body = guarded("decoding", || codec.decode(&letter.payload));
        let body = body.map_err(|error| error.with_mailbox(name));
        Self::Decoded { letter, body }
    }

    pub(crate) fn body(&self) -> Result<&T> {
        match self {
            Self::Decoded { body, .. } => body.as_ref().map_err(Error::clone),
            Self::Local(letter) => Ok(&letter.payload.body),
        }
    }

    pub(crate) fn into_body(self) -> Result<T>
    where
        T: Clone,
    {
        match self {
            Self::Decoded { body, .. } => body,
            Self::Local(letter) => Ok(letter.payload.body.clone()),
        }
    }

    pub(crate) fn payload(&self) -> Option<&Bytes> {
        match self {
            Self::Decoded { letter, .. } => Some(&letter.payload),
            Self::Local(_) => None,
        }
    }

    /// The mailbox to reply to, if it came along itself.
    pub(crate) fn reply_mailbox(&self) -> Option<&Mailbox<R>> {
        match self {
            Self::Decoded { .. } => None,
            Self::Local(letter) => letter.payload.reply_to.as_ref(),
        }
    }

    pub(crate) fn reply_to(&self) -> Option<&str> {
        match self {
            Self::Decoded { letter, .. } => letter.reply_to.as_deref(),
            Self::Local(letter) => match &letter.payload.reply_to {
                Some(mailbox) => Some(mailbox.known_as()),
                None => letter.reply_to.as_deref(),
            },
        }
    }

    pub(crate) fn attributes(&self) -> &BTreeMap<String, String> {
        match self {
            Self::Decoded { letter, .. } => &letter.attributes,
            Self::Local(letter) => &letter.attributes,
        }
    }

    pub(crate) fn group(&self) -> Option<&str> {
        match self {
            Self::Decoded { letter, .. } => letter.group.as_deref(),
            Self::Local(letter) => letter.group.as_deref(),
        }
    }

    pub(crate) fn idempotency_key(&self) -> Option<&str> {
        match self {
            Self::Decoded { letter, .. } => letter.idempotency_key.as_deref(),
            Self::Local(letter) => letter.idempotency_key.as_deref(),
        }
    }

    pub(crate) fn enqueued_at(&self) -> Timestamp {
        match self {
            Self::Decoded { letter, .. } => letter.enqueued_at,
            Self::Local(letter) => letter.enqueued_at,
        }
    }
}

impl<T, R> fmt::Debug for Contents<T, R> {
    /// Never the body: it is nobody's business but the consumer's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents")
            .field("enqueued_at", &self.enqueued_at())
            .field("reply_to", &self.reply_to().map(shown))
            .finish_non_exhaustive()
    }
}

impl<T, R> fmt::Debug for LocalBody<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalBody")
    }
}
