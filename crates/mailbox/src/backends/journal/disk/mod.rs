//! The seam between the journal and the machine: every file that the journal touches, it touches
//! through here, so that tests can cut the power between any two steps, tear writes, fail a sync or
//! fill the disk. Calls block; the journal makes them on threads of its own.
//!
//! What a disk promises is little, and the journal relies on no more: what was written is there
//! after a power cut only if `sync` of that file returned `Ok` after it; a name made, changed or
//! removed only if `sync_dir` of its directory did. Until then any part of it may be there. A sync
//! that failed is worse than none: what it should have made durable may still be read, and no later
//! sync makes it durable.

mod real;
mod simulated;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use real::RealDisk;
pub use simulated::SimDisk;

/// A file system.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Makes a directory, and those above it that are missing; private to its owner. No error if it
    /// is there. When this returns its name is durable.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// The names of the files in a directory, in no order. `NotFound` if there is no such
    /// directory.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Makes a new, empty file, private to its owner. `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file that is there, for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file, or a directory with all that is in it, another name in the same file system.
    /// `AlreadyExists` if that one is taken, unless `replace`, which is for files only. From one
    /// directory to another it is two changes: sync the new one first.
    fn rename(&self, from: &Path, to: &Path, replace: bool) -> io::Result<()>;

    /// Takes a name away; whoever has the file open keeps it.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Locks a file, which is made if it is not there, until the guard is dropped. `None` if
    /// somebody else has it locked, in this process or another.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;

    /// The process that locked a file last, if it could say so: for the message of whoever finds it
    /// locked, and for nothing else.
    fn lock_holder(&self, path: &Path) -> Option<u32>;

    /// The same path for the same directory, however it is written; the directory must exist.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;
}

/// An open file.
pub trait DiskFile: fmt::Debug + Send + Sync + 'static {
    /// How long it is.
    fn len(&self) -> io::Result<u64>;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `offset` on. `UnexpectedEof` if the file ends before that.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. After an error any part of them may be there.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes what was written durable, and the length too.
    fn sync(&self) -> io::Result<()>;
}

/// A lock that is held until it is dropped.
pub trait Lock: fmt::Debug + Send + Sync + 'static {}
