//! What is left for a look when something was broken: the journal as the fault left it and as the
//! audit left it, and what the worker said. Invariant: as long as nothing is broken, nothing stays.

use std::fs;
use std::io;
use std::path::Path;

use crate::report::say;
use crate::scene::Folder;

/// Deepest folder that is copied; a journal has fewer.
const DEPTH: u32 = 4;

/// A folder for it.
#[derive(Debug)]
pub(crate) struct Evidence {
    folder: Folder,
}

impl Evidence {
    /// Nothing yet.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { folder: Folder::new(&std::env::temp_dir())? })
    }

    /// Copies the journal as it is before the audit, instead of an earlier copy, and what was said.
    pub(crate) fn before_audit(&self, journal: &Path, said: &str) -> io::Result<()> {
        let copy = self.folder.path().join("before");
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        copy_tree(journal, &copy, DEPTH)?;
        fs::write(self.folder.path().join("said"), said)
    }

    /// Something is broken: copies the journal as it is now, and keeps everything.
    pub(crate) fn keep(&mut self, journal: &Path) -> io::Result<()> {
        self.folder.keep();
        say(&format!("    kept for a look: {}", self.folder.path().display()));
        copy_tree(journal, &self.folder.path().join("after"), DEPTH)
    }
}

/// Copies a folder, if it is there.
fn copy_tree(from: &Path, to: &Path, depth: u32) -> io::Result<()> {
    if depth == 0 || !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target, depth - 1)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
