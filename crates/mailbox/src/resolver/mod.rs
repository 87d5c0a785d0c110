//! From identifiers to mailboxes: how a worker finds the mailbox that a message wants its reply in
//! (R1 to R5).

mod same_backend;

use std::fmt;

use async_trait::async_trait;

use crate::error::{ErrorKind, Result};
use crate::mailbox::Mailbox;

pub use same_backend::SameBackendResolver;

/// Finds mailboxes by identifier: a name, an address, or a key of its own. A plain shareable value.
#[async_trait]
pub trait Resolver<R>: fmt::Debug + Send + Sync + 'static {
    /// The mailbox for `identifier`.
    ///
    /// # Errors
    /// `MailboxResolution` if it leads nowhere or may not be followed; whatever opening it gave.
    async fn resolve(&self, identifier: &str) -> Result<Mailbox<R>>;
}

/// The mailbox for `identifier`, or none if it leads nowhere.
///
/// # Errors
/// Everything but `MailboxResolution`.
pub async fn resolve_optional<R: 'static>(
    resolver: &dyn Resolver<R>,
    identifier: &str,
) -> Result<Option<Mailbox<R>>> {
    match resolver.resolve(identifier).await {
        Ok(mailbox) => Ok(Some(mailbox)),
        Err(error) if error.kind() == ErrorKind::MailboxResolution => Ok(None),
        Err(error) => Err(error),
    }
}
