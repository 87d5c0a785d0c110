//! How to send, receive and settle. Plain data with defaults; checked once, against the backend's
//! `Abilities`, by the backend.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::mailbox::Mailbox;
use crate::resolver::shown;

/// What a sender may say beside the body. By default: no delay, no attributes, no reply address.
#[derive(Debug)]
#[non_exhaustive]
pub struct SendOptions<R = ()> {
    /// How long the message stays invisible at first (D8).
    pub delay: Duration,
    /// Kept with the message (D9).
    pub attributes: BTreeMap<String, String>,
    /// Where replies go (R1).
    pub reply_to: Option<ReplyTo<R>>,
    /// A second send with the same key and body within the replay window is recognised (I1).
    pub idempotency_key: Option<String>,
    /// At most one message of a group is in flight, in order of sending.
    pub group: Option<String>,
}

impl<R> Default for SendOptions<R> {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            attributes: BTreeMap::new(),
            reply_to: None,
            idempotency_key: None,
            group: None,
        }
    }
}

impl<R> Clone for SendOptions<R> {
    fn clone(&self) -> Self {
        Self {
            delay: self.delay,
            attributes: self.attributes.clone(),
            reply_to: self.reply_to.clone(),
            idempotency_key: self.idempotency_key.clone(),
            group: self.group.clone(),
        }
    }
}

impl<R> SendOptions<R> {
    /// No delay, no attributes, no reply address, no key, no group.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The message stays invisible for `delay`.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with_attribute(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.insert(key.into(), value.into());
        self
    }

    /// Replies go there.
    #[must_use]
    pub fn with_reply_to(mut self, reply_to: impl Into<ReplyTo<R>>) -> Self {
        self.reply_to = Some(reply_to.into());
        self
    }

    /// A second send with this key and the same body is recognised.
    #[must_use]
    pub fn with_idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// The message belongs to this ordering group.
    #[must_use]
    pub fn with_group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }
}

/// Where a reply goes: a mailbox at hand, or the identifier of one that the receiver resolves.
pub enum ReplyTo<R> {
    /// This one.
    Mailbox(Mailbox<R>),
    /// The one with this name or address.
    Identifier(String),
}

impl<R> Clone for ReplyTo<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Mailbox(mailbox) => Self::Mailbox(mailbox.clone()),
            Self::Identifier(identifier) => Self::Identifier(identifier.clone()),
        }
    }
}

impl<R> fmt::Debug for ReplyTo<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mailbox(mailbox) => mailbox.fmt(f),
            Self::Identifier(identifier) => {
                f.debug_tuple("Identifier").field(&shown(identifier)).finish()
            }
        }
    }
}

impl<R> From<&Mailbox<R>> for ReplyTo<R> {
    fn from(mailbox: &Mailbox<R>) -> Self {
        Self::Mailbox(mailbox.clone())
    }
}

impl<R> From<Mailbox<R>> for ReplyTo<R> {
    fn from(mailbox: Mailbox<R>) -> Self {
        Self::Mailbox(mailbox)
    }
}

impl<R> From<&str> for ReplyTo<R> {
    fn from(identifier: &str) -> Self {
        Self::Identifier(identifier.to_owned())
    }
}

impl<R> From<String> for ReplyTo<R> {
    fn from(identifier: String) -> Self {
        Self::Identifier(identifier)
    }
}

/// How to receive. `Default` waits for nothing, takes one message, hides it for 30 s.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveOptions {
    /// Take up to this many (D6).
    pub max_messages: u32,
    /// Hide them for this long (V1).
    pub visibility_timeout: Duration,
    /// Wait up to this long for the first one (W1).
    pub wait: Duration,
}

impl Default for ReceiveOptions {
    fn default() -> Self {
        Self { max_messages: 1, visibility_timeout: Duration::from_secs(30), wait: Duration::ZERO }
    }
}

impl ReceiveOptions {
    /// One message, 30 s, no waiting.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Take up to this many.
    #[must_use]
    pub fn with_max_messages(mut self, max_messages: u32) -> Self {
        self.max_messages = max_messages;
        self
    }

    /// Hide them for this long.
    #[must_use]
    pub fn with_visibility_timeout(mut self, visibility_timeout: Duration) -> Self {
        self.visibility_timeout = visibility_timeout;
        self
    }

    /// Wait up to this long for the first one.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

/// How to nack. `Default`: receivable again at once, nothing said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NackOptions {
    /// Receivable again after this long (V5).
    pub delay: Duration,
    /// What went wrong; kept as `last_error` and shown with the dead letter (X1).
    pub error: Option<String>,
}

impl NackOptions {
    /// At once, nothing said.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Receivable again after this long.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn with_error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }
}
