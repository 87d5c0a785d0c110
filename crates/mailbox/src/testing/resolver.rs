//! A resolver that knows everybody, and remembers who was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::mailbox::Mailbox;
use crate::name::Name;
use crate::resolver::Resolver;
use crate::testing::collecting::CollectingMailbox;

/// Resolves every identifier to a [`CollectingMailbox`], made when it is first asked for, unless
/// told to fail on it.
///
/// Clones share everything: give one to the code under test and keep one. It remembers at most
/// 10,000 resolutions and makes at most 1,000 mailboxes; a resolution beyond that is refused with
/// `Saturated`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use std::sync::Arc;
/// use mailbox::testing::FakeResolver;
/// use mailbox::{Mailbox, SendOptions};
///
/// let resolver: FakeResolver<String> = FakeResolver::new();
/// let questions: Mailbox<String, String> =
///     Mailbox::memory("questions")?.with_resolver(Arc::new(resolver.clone()));
///
/// let options = SendOptions::new().with_reply_to("client-7");
/// questions.send_with("2 + 2".to_owned(), options).await?;
/// questions.receive().await?[0].reply("4".to_owned()).await?;
///
/// assert_eq!(resolver.resolution_log(), ["client-7"]);
/// assert_eq!(resolver.mailbox("client-7").expect("it was resolved").sent()?, ["4"]);
/// # Ok(()) }
/// ```
pub struct FakeResolver<R> {
    state: Arc<Mutex<State<R>>>,
}

struct State<R> {
    log: Vec<String>,
    fail_on: BTreeSet<String>,
    mailboxes: BTreeMap<String, CollectingMailbox<R>>,
}

const MAX_LOG: usize = 10_000;
const MAX_MAILBOXES: usize = 1_000;

impl<R> FakeResolver<R> {
    /// Resolves everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was asked for, in order, failures included.
    #[must_use]
    pub fn resolution_log(&self) -> Vec<String> {
        self.state.lock().log.clone()
    }

    /// From now on `identifier` leads nowhere: resolving it gives `MailboxResolution`.
    pub fn fail_on(&self, identifier: impl Into<String>) {
        self.state.lock().fail_on.insert(identifier.into());
    }

    /// From now on `identifier` is resolved again.
    pub fn stop_failing_on(&self, identifier: &str) {
        self.state.lock().fail_on.remove(identifier);
    }

    /// The mailbox that `identifier` was resolved to, if it was.
    #[must_use]
    pub fn mailbox(&self, identifier: &str) -> Option<CollectingMailbox<R>> {
        self.state.lock().mailboxes.get(identifier).cloned()
    }
}

#[async_trait]
impl<R> Resolver<R> for FakeResolver<R>
where
    R: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    async fn resolve(&self, identifier: &str) -> Result<Mailbox<R>> {
        let mut state = self.state.lock();
        if state.log.len() >= MAX_LOG {
            return Err(saturated("resolutions", MAX_LOG));
        }
        state.log.push(identifier.to_owned());
        if state.fail_on.contains(identifier) {
            return Err(Error::resolution(identifier, "the test wants it to fail"));
        }
        if let Some(known) = state.mailboxes.get(identifier) {
            return Ok(known.mailbox().clone());
        }
        if state.mailboxes.len() >= MAX_MAILBOXES {
            return Err(saturated("mailboxes", MAX_MAILBOXES));
        }
        // An identifier need not be a name; an address, for example, is none.
        let name = Name::parse(identifier).or_else(|_| Name::parse("resolved"))?;
        let made = CollectingMailbox::new(name)?.with_identifier(identifier);
        let mailbox = made.mailbox().clone();
        state.mailboxes.insert(identifier.to_owned(), made);
        Ok(mailbox)
    }
}

fn saturated(what: &str, most: usize) -> Error {
    let message = format!("the fake resolver has had {most} {what}, the most it remembers");
    Error::new(ErrorKind::Saturated, message)
}

impl<R> Default for FakeResolver<R> {
    fn default() -> Self {
        let state = State { log: Vec::new(), fail_on: BTreeSet::new(), mailboxes: BTreeMap::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }
}

impl<R> Clone for FakeResolver<R> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<R> fmt::Debug for FakeResolver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("FakeResolver")
            .field("resolutions", &state.log.len())
            .field("fail_on", &state.fail_on)
            .field("mailboxes", &state.mailboxes.len())
            .finish()
    }
}
