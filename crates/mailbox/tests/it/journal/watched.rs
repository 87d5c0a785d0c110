//! A simulated disk on which somebody looks before every step that changes it, after a sync that
//! failed, and after a lock that was refused.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mailbox::backends::journal::disk::{Disk, DiskFile, Lock, SimDisk};

/// What is about to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Something is written, made, renamed or removed.
    Change,
    /// What was changed becomes durable.
    Sync,
    /// That has just failed.
    SyncFailed,
    /// Somebody else has the lock.
    LockRefused,
}

type Look = dyn Fn(Step, &Path, &SimDisk) + Send + Sync;

/// The disk, and who looks. Looking may block: the journal waits.
#[derive(Clone)]
pub(super) struct Watched {
    disk: SimDisk,
    look: Arc<Look>,
}

impl Watched {
    pub(super) fn new(
        disk: &SimDisk,
        look: impl Fn(Step, &Path, &SimDisk) + Send + Sync + 'static,
    ) -> Self {
        Self { disk: disk.clone(), look: Arc::new(look) }
    }

    fn look(&self, step: Step, path: &Path) {
        (self.look)(step, path, &self.disk);
    }

    fn file(&self, path: &Path, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(WatchedFile { path: path.to_owned(), file, disk: self.clone() })
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.fmt(f)
    }
}

impl Disk for Watched {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.look(Step::Change, path);
        self.disk.create_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.look(Step::Change, path);
        self.disk.create(path).map(|file| self.file(path, file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path).map(|file| self.file(path, file))
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        self.look(Step::Change, to);
        self.disk.rename(from, to, replace)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.look(Step::Change, path);
        self.disk.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.look(Step::Sync, path);
        self.disk.sync_dir(path).inspect_err(|_| self.look(Step::SyncFailed, path))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let lock = self.disk.lock(path)?;
        if lock.is_none() {
            self.look(Step::LockRefused, path);
        }
        Ok(lock)
    }

    fn lock_holder(&self, path: &Path) -> Option<u32> {
        self.disk.lock_holder(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.disk.canonical(path)
    }
}

struct WatchedFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    disk: Watched,
}

impl fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl DiskFile for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.look(Step::Change, &self.path);
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.look(Step::Sync, &self.path);
        self.file.sync().inspect_err(|_| self.disk.look(Step::SyncFailed, &self.path))
    }
}
