//! A capability in a file, which may be replaced while it is used: whoever mints the next one
//! before this one ends need not start anything again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

use crate::error::{Error, ErrorKind, Result};

/// Largest capability file.
const LEN: u64 = 16 * 1024;

/// Where a capability is, and what it was.
pub(super) struct CapabilityFile {
    path: PathBuf,
    known: Mutex<String>,
    /// How often it was replaced.
    replaced: AtomicU64,
}

impl CapabilityFile {
    /// The file, and what is in it.
    pub(super) fn open(path: &Path) -> Result<(Self, String)> {
        let text = read(path).map_err(|error| {
            let message = format!("the capability in {} cannot be read", path.display());
            Error::new(ErrorKind::InvalidParameter, message)
                .with_field("cap_file")
                .with_source(error)
        })?;
        let known = Mutex::new(text.clone());
        Ok((Self { path: path.into(), known, replaced: AtomicU64::new(0) }, text))
    }

    /// Which of those it was, one after the other, is used now.
    pub(super) fn edition(&self) -> u64 {
        self.replaced.load(Ordering::Acquire)
    }

    /// The one that is used is not good any more: takes what is in the file now, if it is another.
    /// Whether there is another since that `edition`.
    pub(super) async fn renew(&self, edition: u64, take: impl FnOnce(&str) -> Result<()>) -> bool {
        let mut known = self.known.lock().await;
        if self.edition() != edition {
            return true;
        }
        let path = self.path.clone();
        let Ok(Ok(text)) = tokio::task::spawn_blocking(move || read(&path)).await else {
            return false;
        };
        if text == *known || take(&text).is_err() {
            return false;
        }
        *known = text;
        self.replaced.fetch_add(1, Ordering::Release);
        true
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read;

    let mut text = String::new();
    std::fs::File::open(path)?.take(LEN).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

impl fmt::Debug for CapabilityFile {
    /// Whoever has the capability may use it: it does not go into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CapabilityFile").field("path", &self.path).finish_non_exhaustive()
    }
}
