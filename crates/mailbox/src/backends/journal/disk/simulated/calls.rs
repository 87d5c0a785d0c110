//! A simulated disk, called as a disk.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::{Disk, DiskFile, Lock};
use super::SimDisk;
use super::state::Inode;

impl Disk for SimDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.state.lock().create_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.state.lock().list(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        let inode = state.create(path)?;
        state.file_mut(inode)?.handles += 1;
        Ok(Arc::new(Handle { disk: self.clone(), inode }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.plan.look()?;
        let inode = state.find(path)?;
        state.file_mut(inode)?.handles += 1;
        Ok(Arc::new(Handle { disk: self.clone(), inode }))
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()> {
        self.state.lock().rename(from, to, replace)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state.lock().remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.state.lock().sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut state = self.state.lock();
        state.plan.look()?;
        let inode = match state.find(path) {
            Ok(inode) => inode,
            Err(_) => state.create(path)?,
        };
        state.file(inode)?;
        if !state.locks.insert(inode) {
            return Ok(None);
        }
        state.file_mut(inode)?.handles += 1;
        let handle = Handle { disk: self.clone(), inode };
        Ok(Some(Box::new(SimLock { handle })))
    }

    /// Whoever uses a disk in memory is this process.
    fn lock_holder(&self, path: &Path) -> Option<u32> {
        let state = self.state.lock();
        let inode = state.find(path).ok()?;
        state.locks.contains(&inode).then(std::process::id)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.state.lock().canonical(path)
    }
}

/// An open file. It is counted, so that a file without a name stays as long as it is open.
struct Handle {
    disk: SimDisk,
    inode: Inode,
}

impl DiskFile for Handle {
    fn len(&self) -> io::Result<u64> {
        let state = self.disk.state.lock();
        state.plan.look()?;
        Ok(state.file(self.inode)?.seen().len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.state.lock().read(self.inode, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.state.lock().write(self.inode, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.state.lock().sync(self.inode)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(file) = self.disk.state.lock().file_mut(self.inode) {
            file.handles -= 1;
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile").field("inode", &self.inode).finish()
    }
}

#[derive(Debug)]
struct SimLock {
    handle: Handle,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.handle.disk.state.lock().locks.remove(&self.handle.inode);
    }
}
