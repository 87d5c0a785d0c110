//! A fixed map.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::mailbox::Mailbox;
use crate::resolver::Resolver;

/// Resolves the identifiers it was made with, and no others. For programs that know all their
/// mailboxes beforehand.
///
/// The map is fixed: a registered mailbox that somebody closes is still what its identifier leads
/// to. Any text can be an identifier.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use mailbox::resolver::RegistryResolver;
/// use mailbox::{ErrorKind, Mailbox, Resolver};
///
/// let replies: Mailbox<String> = Mailbox::memory("replies")?;
/// let resolver = RegistryResolver::new([("replies", replies)]);
///
/// resolver.resolve("replies").await?.send("done".into()).await?;
/// let error = resolver.resolve("elsewhere").await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::MailboxResolution);
/// assert_eq!(error.identifier(), Some("elsewhere"));
/// # Ok(()) }
/// ```
pub struct RegistryResolver<R> {
    mailboxes: BTreeMap<String, Mailbox<R>>,
}

impl<R> RegistryResolver<R> {
    /// Resolves these. Of two with the same identifier the later one counts.
    pub fn new<I: Into<String>>(mailboxes: impl IntoIterator<Item = (I, Mailbox<R>)>) -> Self {
        let entry = |(identifier, mailbox): (I, _)| (identifier.into(), mailbox);
        Self { mailboxes: mailboxes.into_iter().map(entry).collect() }
    }

    /// The mailbox registered as `identifier`.
    #[must_use]
    pub fn get(&self, identifier: &str) -> Option<&Mailbox<R>> {
        self.mailboxes.get(identifier)
    }
}

#[async_trait]
impl<R: Send + Sync + 'static> Resolver<R> for RegistryResolver<R> {
    async fn resolve(&self, identifier: &str) -> Result<Mailbox<R>> {
        match self.get(identifier) {
            Some(mailbox) => Ok(mailbox.clone()),
            None => Err(Error::resolution(identifier, "no mailbox is registered as that")),
        }
    }
}

impl<R> Default for RegistryResolver<R> {
    /// Resolves nothing.
    fn default() -> Self {
        Self { mailboxes: BTreeMap::new() }
    }
}

impl<R> Clone for RegistryResolver<R> {
    fn clone(&self) -> Self {
        Self { mailboxes: self.mailboxes.clone() }
    }
}

impl<R> fmt::Debug for RegistryResolver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Identifiers may be addresses with passwords.
        f.debug_struct("RegistryResolver").field("mailboxes", &self.mailboxes.len()).finish()
    }
}
