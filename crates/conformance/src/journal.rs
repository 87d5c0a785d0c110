//! A journal that is closed and opened again whenever nobody is in the middle of a call: whoever
//! uses it must not notice. Without that, a journal that takes its directory away when it goes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::{
    Abilities, Backend, Delivery, Error, ErrorKind, Figure, Name, Outgoing, Peek, Policy,
    ReceiveOptions, Record, Result, Selection, Sent, Settlement, Stats,
};
use tempfile::TempDir;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, RwLockReadGuard};

/// A journal, reopened before every call where that is possible.
pub(crate) struct Reopening {
    journal: Arc<RwLock<Open>>,
    path: PathBuf,
    config: JournalConfig,
    abilities: Abilities,
    /// Before every call, not only when asked.
    always: bool,
    /// Goes with it.
    _dir: Option<Arc<TempDir>>,
}

struct Open {
    backend: Arc<JournalBackend>,
    closed: bool,
}

impl Reopening {
    /// A new journal in a directory of its own.
    pub(crate) async fn in_directory(dir: Arc<TempDir>, config: JournalConfig) -> Result<Self> {
        Self::new(dir.path().join("journal"), Some(dir), config, false).await
    }

    /// A new journal that is reopened all the time.
    pub(crate) async fn always(config: JournalConfig) -> Result<Self> {
        Self::new(PathBuf::from("journal"), None, config, true).await
    }

    async fn new(
        path: PathBuf,
        dir: Option<Arc<TempDir>>,
        config: JournalConfig,
        always: bool,
    ) -> Result<Self> {
        let backend = JournalBackend::open_with(&path, config.clone()).await?;
        let abilities = backend.abilities().clone();
        let journal = Arc::new(RwLock::new(Open { backend, closed: false }));
        Ok(Self { journal, path, config, abilities, always, _dir: dir })
    }

    /// Closes it and opens it again.
    pub(crate) async fn reopen(&self) -> Result<()> {
        self.renew(Arc::clone(&self.journal).write_owned().await).await
    }

    /// In a task of its own: whoever asked may be dropped in the middle of it.
    async fn renew(&self, mut open: OwnedRwLockWriteGuard<Open>) -> Result<()> {
        let (path, config) = (self.path.clone(), self.config.clone());
        let renewal = tokio::spawn(async move {
            open.backend.close().await?;
            open.backend = JournalBackend::open_with(path, config).await?;
            Ok(())
        });
        let joined = renewal.await;
        joined.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?
    }

    /// The journal, to be called once.
    async fn journal(&self) -> Result<RwLockReadGuard<'_, Open>> {
        if self.always
            && let Ok(open) = Arc::clone(&self.journal).try_write_owned()
            && !open.closed
        {
            self.renew(open).await?;
        }
        Ok(self.journal.read().await)
    }
}

impl fmt::Debug for Reopening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reopening").field("path", &self.path).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for Reopening {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn address(&self, mailbox: &Name) -> String {
        format!("journal:{}/{mailbox}", self.path.display())
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.journal().await?.backend.send(mailbox, batch).await
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        // Held while it waits, so that it is not closed under it.
        self.journal().await?.backend.receive(mailbox, options).await
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.journal().await?.backend.settle(mailbox, batch).await
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        self.journal().await?.backend.peek(mailbox, request).await
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        self.journal().await?.backend.stats(mailbox).await
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.journal().await?.backend.purge(mailbox).await
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.journal().await?.backend.redrive(mailbox, which).await
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.journal().await?.backend.delete_dead(mailbox, which).await
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.journal().await?.backend.configure(mailbox, policy).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.journal().await?.backend.policy(mailbox).await
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.journal().await?.backend.list(after, limit).await
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.journal().await?.backend.remove(mailbox).await
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        // Waiting receives hold it, and only this ends them.
        let backend = Arc::clone(&self.journal.read().await.backend);
        let closed = backend.close().await;
        self.journal.write().await.closed = true;
        closed
    }
}
