//! A disk in memory that knows what a power cut would leave. It is as unkind as a real one may be:
//! whatever was not synced can be lost in any part that a disk writes at once, names can be lost
//! with all that they lead to, and what was removed can come back.

mod calls;
mod directory;
mod fate;
mod file;
mod pages;
mod plan;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use pages::Pages;
use plan::Plan;
use state::State;

/// A disk in memory, on which power cuts, failing syncs and a lack of space can be tried out.
///
/// Clones are the same disk. [`crash`](Self::crash) and [`fork`](Self::fork) make another one, and
/// leave this one as it is; they are cheap, for they share what is the same.
///
/// Paths begin at a root that is always there; there are no links, and no directory is removed.
/// Every call that changes something is an operation, and operations are counted from one: to make
/// a name, to rename or remove one, to write, to sync a file or a directory. To make a directory is
/// two, the second of them a sync. A call that fails counts too.
/// Writes are remembered one by one until they are synced: a file that is never synced takes as
/// much memory as was ever written to it.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # use std::path::Path;
/// # use mailbox::backends::journal::disk::{Disk, SimDisk};
/// let disk = SimDisk::new();
/// disk.create_dir(Path::new("/journal"))?;
/// let file = disk.create(Path::new("/journal/a"))?;
/// file.write_at(b"not synced", 0)?;
/// disk.sync_dir(Path::new("/journal"))?;
/// assert_eq!(disk.crash(SimDisk::NOTHING_KEPT).read_file("/journal/a"), b"");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// The seed of the power cut after which nothing is left that was not synced.
    pub const NOTHING_KEPT: u64 = 0;
    /// The seed of the power cut before which everything just came through, other than what a
    /// failed sync lost.
    pub const EVERYTHING_KEPT: u64 = 1;

    /// An empty disk without an end.
    #[must_use]
    pub fn new() -> Self {
        Self::with(State::new())
    }

    fn with(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// This disk as a power cut now could leave it. What it leaves is decided by the seed, and is
    /// durable. Of what was not synced, a file keeps any of the 512-byte sectors; a sector that was
    /// written several times is as it was after any of the writes. A directory keeps the first of
    /// its changes, up to any of them, and no directory waits for another.
    ///
    /// Nothing is open or locked on it, and nothing is planned; it is as large as this one.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        Self::with(self.state.lock().crash(seed))
    }

    /// This disk as the end of the process leaves it: all that can be read now can still be read,
    /// and what is not durable is still not durable.
    ///
    /// Nothing is open or locked on it, and nothing is planned; it is as large as this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::with(self.state.lock().fork())
    }

    /// How many operations there were. After a power cut there are no more.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state.lock().plan.operations
    }

    /// How many of the operations were syncs, of files and directories.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state.lock().plan.syncs
    }

    /// Cuts the power instead of this operation: it and every call after it fails, and changes
    /// nothing. If there was that operation already, the power is cut now.
    pub fn power_cut_at(&self, operation: u64) {
        self.state.lock().plan.cut_at(operation);
    }

    /// Whether the power is cut.
    #[must_use]
    pub fn power_is_cut(&self) -> bool {
        self.state.lock().plan.is_cut
    }

    /// Lets the k-th sync fail, counted from one, of a file or a directory. As on real machines,
    /// what it should have made durable can still be read, no later sync makes it durable, and a
    /// power cut takes it away.
    pub fn fail_sync_at(&self, k: u64, kind: io::ErrorKind) {
        self.state.lock().plan.failing_syncs.insert(k, kind);
    }

    /// Lets an operation fail. It does nothing, unless it is a sync, which then fails as
    /// [`fail_sync_at`](Self::fail_sync_at) says.
    pub fn fail_operation_at(&self, operation: u64, kind: io::ErrorKind) {
        self.state.lock().plan.failing_operations.insert(operation, kind);
    }

    /// Makes the disk this large. Whatever would make the files that have a name or are open longer
    /// than that altogether is refused; a write does as much of it as there is room for. On a full
    /// disk no name can be made.
    pub fn capacity(&self, bytes: u64) {
        self.state.lock().plan.capacity = Some(bytes);
    }

    /// Lets reads of files fail whose path has this in it.
    pub fn fail_reads(&self, part: impl Into<String>) {
        self.state.lock().plan.unreadable.push(part.into());
    }

    /// All files, in the order of their paths.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.state.lock().files().into_iter().map(|(path, _)| path).collect()
    }

    /// What is in a file, whatever is planned.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    #[must_use]
    pub fn read_file(&self, path: impl AsRef<Path>) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.edit(path.as_ref(), |pages| bytes = pages.to_vec(), false);
        bytes
    }

    /// Puts this in the place of what is in a file, durably and whatever is planned. If there is no
    /// such file it is made, and all names in its directory become durable.
    ///
    /// # Panics
    ///
    /// If a directory has that name.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        let mut state = self.state.lock();
        let plan = std::mem::take(&mut state.plan);
        let result = state.put(path.as_ref(), bytes.as_ref());
        state.plan = plan;
        drop(state);
        result.expect("there is no directory of that name");
    }

    /// Turns a bit of a file around, counted from its start and in each byte from the lowest.
    /// Everything in the file becomes durable.
    ///
    /// # Panics
    ///
    /// If there is no such file, or it ends before that.
    pub fn flip_bit(&self, path: impl AsRef<Path>, bit: u64) {
        let flip = |pages: &mut Pages| {
            let mut byte = [0];
            assert!(pages.read(&mut byte, bit / 8), "the file ends before bit {bit}");
            pages.write(&[byte[0] ^ (1 << (bit % 8))], bit / 8);
        };
        self.edit(path.as_ref(), flip, true);
    }

    /// Cuts a file short, or makes it longer with zeros. Everything in the file becomes durable.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) {
        self.edit(path.as_ref(), |pages| pages.set_len(len), true);
    }

    fn edit(&self, path: &Path, edit: impl FnOnce(&mut Pages), is_kept: bool) {
        let mut state = self.state.lock();
        let inode = state.find(path).expect("there is such a file");
        let file = state.file_mut(inode).expect("it is not a directory");
        let mut pages = file.seen().clone();
        edit(&mut pages);
        if is_kept {
            file.replace(pages);
        }
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let Plan { operations, syncs, is_cut, .. } = &state.plan;
        f.debug_struct("SimDisk")
            .field("operations", operations)
            .field("syncs", syncs)
            .field("power_is_cut", is_cut)
            .field("files", &state.files().len())
            .finish()
    }
}
