//! Mailboxes in folders: one file a message, moved from folder to folder by atomic renames. For
//! shells, scripts and agents: `mv`, `ls` and `cat` work on them beside this library, and no server
//! is needed.
//!
//! * **Model**: a message file is written once; its name says everything that changes
//!   (`docs/directory-format.md`). Whoever renames it first has decided.
//! * **Durability**: `send` returns after the file and its folder are synced (D2); settling too,
//!   unless it is [`Settling::Lazy`](crate::Settling). Deliveries, nacks and extensions are not
//!   synced: a power cut may undo the last ones.
//! * **Ordering**: in order of becoming receivable (D7), as far as each process knows at that
//!   moment. No ordering groups.
//! * **Clock**: the machine's own, the same for all processes; another machine that shares the
//!   folder goes by its wall clock (V6).
//! * **Limits**: see [`DirectoryConfig`]. Names of files bound what a message can be called.
//! * **Cancel safety**: what a dropped receive has taken is given back; a dropped send or settle
//!   may have taken effect.
//! * **Operations notes**: any number of processes. Files that are no messages are set aside, never
//!   deleted. On network file systems there are no events: waiting receives look twice a second.

mod config;
mod content;
mod counts;
mod digits;
mod file_name;
mod folders;
mod inbox;
mod keys;
mod line;
mod lock;
mod notes;
mod place;
mod planted;
mod report;
mod settings;
mod times;
mod trust;
mod waiting;
mod watch;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use mailbox_core::Policy;

use crate::abilities::Abilities;
use crate::backend::{
    Backend, Delivery, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
use crate::error::{Error, ErrorKind, Result};
use crate::figure::Figure;
use crate::home::names::nothing_dead;
use crate::name::Name;
use crate::options::ReceiveOptions;

use inbox::Inbox;
use place::Place;

pub use config::DirectoryConfig;
#[cfg(feature = "planted")]
pub use planted::Bug;
pub use planted::Planted;
pub use report::{InboxProblem, InboxReport, InboxSettings, Prepared};

/// Keeps mailboxes in folders beside each other. A folder of inboxes is one namespace.
pub struct DirectoryBackend {
    place: Arc<Place>,
    abilities: Abilities,
}

impl DirectoryBackend {
    /// Uses the inboxes in this folder, which is made if it is not there.
    ///
    /// # Errors
    /// As [`DirectoryBackend::open_with`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        Self::open_with(path, DirectoryConfig::default()).await
    }

    /// Uses the inboxes in this folder, which is made if it is not there.
    ///
    /// # Errors
    /// `InvalidParameter` if the settings make no sense; `Forbidden` if the folder is open to other
    /// users, or on the way to it one is; `Saturated` or `Internal` if the file system refuses.
    ///
    /// # Cancel safety
    /// Safe: nothing is opened, or something that is dropped.
    pub async fn open_with(path: impl AsRef<Path>, config: DirectoryConfig) -> Result<Arc<Self>> {
        config.check()?;
        let abilities = config.abilities();
        let path = path.as_ref().to_owned();
        let place = off_the_runtime(move || Place::open(&path, config)).await??;
        Ok(Arc::new(Self { place: Arc::new(place), abilities }))
    }

    /// The folder that inboxes are in.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// Makes a mailbox what it is to be, while others use it: new, spread over folders or not, with
    /// these rules.
    ///
    /// # Errors
    /// `InvalidParameter` for rules that make no sense; as sending otherwise.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open how far it got; doing it again finishes it.
    pub async fn prepare(&self, mailbox: &Name, wanted: InboxSettings) -> Result<Prepared> {
        if let Some(policy) = &wanted.policy {
            self.abilities.check_policy(policy).map_err(|error| error.with_mailbox(mailbox))?;
        }
        let is_there = self.with_known(mailbox, |_| Ok(())).await?.is_some();
        let is_changed = self.with(mailbox, move |inbox| inbox.prepare(&wanted)).await?;
        Ok(match (is_there, is_changed) {
            (false, _) => Prepared::Made,
            (true, true) => Prepared::Changed,
            (true, false) => Prepared::Unchanged,
        })
    }

    /// Reads every message of a mailbox and says what is wrong. With `repair`, what is damaged
    /// becomes a dead letter, what is no message is set aside, and what a conversion that was cut
    /// short has left behind is moved to where it belongs. Others may use it meanwhile.
    ///
    /// # Errors
    /// `NotFound` if there is no such mailbox; as receiving otherwise.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open how far it got; doing it again finishes it.
    pub async fn examine(&self, mailbox: &Name, repair: bool) -> Result<InboxReport> {
        let report = self.with_known(mailbox, move |inbox| inbox.examine(repair)).await?;
        report.ok_or_else(|| {
            let message = format!("{}: there is no inbox of that name", self.path().display());
            Error::new(ErrorKind::NotFound, message).with_mailbox(mailbox)
        })
    }

    /// Does something with a mailbox that is there; `None` if it is not.
    async fn with_known<T: Send + 'static>(
        &self,
        mailbox: &Name,
        act: impl FnOnce(&Arc<Inbox>) -> Result<T> + Send + 'static,
    ) -> Result<Option<T>> {
        let (place, name) = (Arc::clone(&self.place), mailbox.clone());
        off_the_runtime(move || place.known(&name)?.as_ref().map(act).transpose()).await?
    }

    /// Does something with a mailbox, made if it is not there.
    async fn with<T: Send + 'static>(
        &self,
        mailbox: &Name,
        act: impl FnOnce(&Arc<Inbox>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (place, name) = (Arc::clone(&self.place), mailbox.clone());
        off_the_runtime(move || act(&place.inbox(&name)?)).await?
    }

    fn check_batch(&self, mailbox: &Name, size: usize) -> Result<()> {
        let checked = self.abilities.check_batch("batch", size);
        checked.map_err(|error| error.with_mailbox(mailbox))
    }
}

/// Runs something that blocks where it blocks nobody.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        Error::new(ErrorKind::Internal, "work on an inbox was cut short").with_source(error)
    })
}

impl fmt::Debug for DirectoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectoryBackend").field("path", &self.path()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for DirectoryBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn address(&self, mailbox: &Name) -> String {
        format!("dir://{}/{mailbox}", self.path().display())
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.check_batch(mailbox, batch.len())?;
        let check = |message: Outgoing| {
            let checked = self.abilities.check_send(&message, message.payload.len());
            checked.map(|()| message).map_err(|error| error.with_mailbox(mailbox))
        };
        let batch: Vec<Result<Outgoing>> = batch.into_iter().map(check).collect();
        self.with(mailbox, move |inbox| inbox.send(batch)).await
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        self.abilities.check_receive(options).map_err(|error| error.with_mailbox(mailbox))?;
        let inbox = self.with(mailbox, |inbox| Ok(Arc::clone(inbox))).await?;
        waiting::receive(&inbox, options).await
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.check_batch(mailbox, batch.len())?;
        let check = |settlement: Settlement| {
            let checked = self.abilities.check_verdict(&settlement.verdict);
            checked.map(|()| settlement).map_err(|error| error.with_mailbox(mailbox))
        };
        let batch: Vec<Result<Settlement>> = batch.into_iter().map(check).collect();
        let kept: Vec<Result<()>> =
            batch.iter().map(|one| one.as_ref().map(|_| ()).map_err(Error::clone)).collect();
        let settled = self.with_known(mailbox, move |inbox| inbox.settle(batch)).await?;
        Ok(settled.unwrap_or_else(|| {
            let message = "receipt handle expired: nothing was ever received here";
            let expired =
                || Error::new(ErrorKind::ReceiptHandleExpired, message).with_mailbox(mailbox);
            kept.into_iter().map(|one| one.and_then(|()| Err(expired()))).collect()
        }))
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        super::memory::check_peek(&self.abilities, request)
            .map_err(|error| error.with_mailbox(mailbox))?;
        let request = request.clone();
        let found = self.with_known(mailbox, move |inbox| inbox.peek(&request)).await?;
        Ok(found.unwrap_or_default())
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        let stats = self.with_known(mailbox, |inbox| inbox.stats()).await?;
        let durability = self.place.config().durability;
        Ok(stats.unwrap_or(Stats { durability, ..Stats::default() }))
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        Ok(self.with_known(mailbox, |inbox| inbox.purge()).await?.unwrap_or(0))
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        let selection = which.clone();
        match self.with_known(mailbox, move |inbox| inbox.redrive(&selection)).await? {
            Some(count) => Ok(count),
            None => nothing_dead(mailbox, which),
        }
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        let selection = which.clone();
        match self.with_known(mailbox, move |inbox| inbox.delete_dead(&selection)).await? {
            Some(count) => Ok(count),
            None => nothing_dead(mailbox, which),
        }
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.abilities.check_policy(&policy).map_err(|error| error.with_mailbox(mailbox))?;
        self.with(mailbox, move |inbox| inbox.configure(policy)).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        let policy = self.with_known(mailbox, |inbox| inbox.policy()).await?;
        Ok(policy.unwrap_or_else(|| self.place.config().policy.clone()))
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let (place, after) = (Arc::clone(&self.place), after.cloned());
        off_the_runtime(move || place.list(after.as_ref(), limit)).await?
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        let (place, name) = (Arc::clone(&self.place), mailbox.clone());
        off_the_runtime(move || place.remove(&name)).await?
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        self.place.close();
        Ok(())
    }
}
