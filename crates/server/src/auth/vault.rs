//! Where root keys, revocations and the operator's capability are kept: a directory that only its
//! owner can read, or memory. Invariant: a file is replaced whole or not at all, and is on disk
//! when that is said.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use mailbox::{Error, ErrorKind, Result};
use zeroize::Zeroizing;

/// The file with the operator's capability, in the data directory.
pub const OPERATOR_FILE: &str = "operator.cap";
/// Largest file that is read.
const MOST: u64 = 16 * 1024 * 1024;

/// Where secrets are kept.
#[derive(Debug, Clone)]
pub struct Vault(Option<PathBuf>);

/// How a file looked when it was read: another look means other contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Looks {
    inode: u64,
    len: u64,
    modified: Option<SystemTime>,
}

impl Vault {
    /// In this directory, which is made if it is not there.
    ///
    /// # Errors
    /// `Forbidden` if others may write there; whatever the file system says.
    pub fn directory(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let make = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        make.map_err(|error| failed("make", &path, error))?;
        let metadata = fs::metadata(&path).map_err(|error| failed("look at", &path, error))?;
        if metadata.mode() & 0o022 != 0 {
            let message = format!(
                "{}: others may write here, and so make themselves capabilities; \
                 `chmod go-w` forbids it",
                path.display()
            );
            return Err(Error::new(ErrorKind::Forbidden, message));
        }
        Ok(Self(Some(path)))
    }

    /// In memory: everything ends with the process, and nothing is ever on disk.
    #[must_use]
    pub const fn memory() -> Self {
        Self(None)
    }

    /// The directory, if it is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }

    /// What is in the file with the operator's capability; nothing if it is not there.
    pub(super) fn operator(&self) -> Result<Option<Zeroizing<String>>> {
        self.read(OPERATOR_FILE)
    }

    /// How a file looks now; nothing if it is not there.
    pub(super) fn looks(&self, name: &str) -> Result<Option<Looks>> {
        let Some(path) = self.0.as_ref().map(|path| path.join(name)) else { return Ok(None) };
        match fs::symlink_metadata(&path) {
            Ok(it) => {
                let modified = it.modified().ok();
                Ok(Some(Looks { inode: it.ino(), len: it.len(), modified }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("look at", &path, error)),
        }
    }

    /// What is in a file; nothing if it is not there.
    pub(super) fn read(&self, name: &str) -> Result<Option<Zeroizing<String>>> {
        let Some(path) = self.0.as_ref().map(|path| path.join(name)) else { return Ok(None) };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open", &path, error)),
        };
        let metadata = file.metadata().map_err(|error| failed("look at", &path, error))?;
        if metadata.mode() & 0o077 != 0 {
            let message = format!(
                "{}: others may read this, and it is secret; `chmod 600` forbids it, and \
                 `mailbox cap rotate` makes what they may have read worthless",
                path.display()
            );
            return Err(Error::new(ErrorKind::Forbidden, message));
        }
        // Room for all of it at once, so that no copy is left behind.
        let room = usize::try_from(metadata.len().min(MOST)).unwrap_or(0) + 1;
        let mut text = Zeroizing::new(String::with_capacity(room));
        let read = file.take(MOST).read_to_string(&mut text);
        read.map_err(|error| failed("read", &path, error))?;
        Ok(Some(text))
    }

    /// Replaces a file.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let Some(directory) = &self.0 else { return Ok(()) };
        let (path, new) = (directory.join(name), directory.join(format!("{name}.new")));
        let write = || {
            let mut file = create(&new, true)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(directory)?.sync_all()
        };
        write().map_err(|error| failed("write", &path, error))
    }

    /// Adds a line to a file.
    pub(super) fn append(&self, name: &str, line: &str) -> Result<()> {
        let Some(directory) = &self.0 else { return Ok(()) };
        let path = directory.join(name);
        let append = || {
            let is_new = !path.exists();
            let mut file = create(&path, false)?;
            // A power cut may have torn the last line: what is added must not become part of it.
            let line = if ends_with_line(&path)? { line.to_owned() } else { format!("\n{line}") };
            // One write: another process may be adding a line too.
            file.write_all(line.as_bytes())?;
            file.sync_all()?;
            if is_new { File::open(directory)?.sync_all() } else { Ok(()) }
        };
        append().map_err(|error| failed("write", &path, error))
    }
}

/// Whether a file is empty, or ends with the end of a line.
fn ends_with_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    if len == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(io::SeekFrom::Start(len - 1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// A file that only its owner can read.
fn create(path: &Path, whole: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    if whole {
        options.write(true).truncate(true)
    } else {
        options.append(true)
    };
    options.open(path)
}

fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => ErrorKind::Forbidden,
        io::ErrorKind::StorageFull => ErrorKind::Saturated,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, format!("cannot {what} {}", path.display())).with_source(error)
}
