//! What is left for a look when something was broken: the home as the fault left it and as the
//! audit left it, and what the workers said. Invariant: as long as nothing is broken, nothing is
//! written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::report::say;
use crate::scene::Folder;

/// Deepest folder that is copied; a home has fewer.
const DEPTH: u32 = 4;
/// Most bytes that are held of a home; of larger ones there are only names from there on.
const LEN_MAX: usize = 64 << 20;
/// A folder of which only the names are told: nobody reads the files in it again.
const NAMES_ONLY: &str = "done";

/// What may be needed.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    before: Copy,
    said: String,
}

/// Files, by their paths in the home.
#[derive(Debug, Default)]
struct Copy {
    files: Vec<(PathBuf, Vec<u8>)>,
    len: usize,
}

impl Evidence {
    /// Reads the home as it is before the audit, instead of an earlier one, and what was said.
    pub(crate) fn before_audit(&mut self, home: &Path, said: String) -> io::Result<()> {
        self.said = said;
        self.before = Copy::of(home)?;
        Ok(())
    }

    /// Something is broken: writes it down, with the home as it is now.
    pub(crate) fn keep(&self, home: &Path) -> io::Result<()> {
        let mut folder = Folder::new(&std::env::temp_dir())?;
        folder.keep();
        say(&format!("    kept for a look: {}", folder.path().display()));
        self.before.write(&folder.path().join("before"))?;
        Copy::of(home)?.write(&folder.path().join("after"))?;
        fs::write(folder.path().join("said"), &self.said)
    }
}

impl Copy {
    fn of(home: &Path) -> io::Result<Self> {
        let mut copy = Self::default();
        if home.is_dir() {
            copy.add(home, Path::new(""), DEPTH)?;
        }
        Ok(copy)
    }

    fn add(&mut self, from: &Path, path: &Path, depth: u32) -> io::Result<()> {
        let only_names = path.components().any(|part| part.as_os_str() == NAMES_ONLY);
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let path = path.join(entry.file_name());
            let is_read = !only_names && self.len < LEN_MAX;
            if entry.file_type()?.is_dir() {
                if depth > 0 {
                    self.add(&entry.path(), &path, depth - 1)?;
                }
                continue;
            }
            let bytes = if is_read { fs::read(entry.path())? } else { Vec::new() };
            self.len += bytes.len();
            self.files.push((path, bytes));
        }
        Ok(())
    }

    fn write(&self, to: &Path) -> io::Result<()> {
        fs::create_dir_all(to)?;
        for (path, bytes) in &self.files {
            let path = to.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_is_written_as_it_was_but_for_what_is_done() {
        let folder = Folder::new(&std::env::temp_dir()).unwrap();
        let (home, kept) = (folder.path().join("home"), folder.path().join("kept"));
        fs::create_dir_all(home.join("box/done")).unwrap();
        fs::write(home.join("box/waiting"), "text").unwrap();
        fs::write(home.join("box/done/old"), "text").unwrap();
        Copy::of(&home).unwrap().write(&kept).unwrap();
        assert_eq!(fs::read(kept.join("box/waiting")).unwrap(), b"text");
        assert_eq!(fs::read(kept.join("box/done/old")).unwrap(), b"");
        Copy::of(&home.join("nothing")).unwrap().write(&kept.join("empty")).unwrap();
        assert_eq!(fs::read_dir(kept.join("empty")).unwrap().count(), 0);
    }
}
