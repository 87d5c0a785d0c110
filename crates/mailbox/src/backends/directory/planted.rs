//! Bugs that can be switched on, one at a time, to see whether the tests notice. Without the
//! feature `planted`, which no release has, there is nothing here to switch.

use std::io;

use crate::backends::directory::file_name::FileName;
use crate::backends::directory::folders::{Folders, Moved, Spot};

/// A bug.
#[cfg(feature = "planted")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A message is renamed to where everybody looks before its bytes are on the disk.
    FileNotSynced,
    /// A send is answered before its folder is on the disk.
    FolderNotSynced,
    /// An acknowledgement is answered before its folder is on the disk.
    AckNotSynced,
    /// An acknowledgement is answered, and nothing else is done.
    AckNotWritten,
    /// A delivery is not counted.
    CountForgotten,
    /// A message is taken by copying and removing it, which two can do at the same time.
    ClaimByCopy,
}

/// The bugs that are switched on: at most one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Planted {
    #[cfg(feature = "planted")]
    bug: Option<Bug>,
}

impl Planted {
    /// Switches a bug on.
    #[cfg(feature = "planted")]
    #[must_use]
    pub const fn bug(bug: Bug) -> Self {
        Self { bug: Some(bug) }
    }

    #[cfg(feature = "planted")]
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Takes a message: by a rename, unless that is the bug.
    pub(crate) fn claim(
        self,
        folders: &Folders,
        (from, old): (Spot, &FileName),
        (to, new): (Spot, &FileName),
    ) -> io::Result<Moved> {
        #[cfg(feature = "planted")]
        if self.has(Bug::ClaimByCopy) {
            return copy(folders, (from, old), (to, new));
        }
        folders.rename(from, old, to, new)
    }
}

/// Copies a message and removes it, as if nobody else did the same.
#[cfg(feature = "planted")]
fn copy(
    folders: &Folders,
    (from, old): (Spot, &FileName),
    (to, new): (Spot, &FileName),
) -> io::Result<Moved> {
    use std::os::fd::AsFd;

    use crate::backends::directory::folders::{create_file, open_file};

    let Some(source) = folders.at(from)? else { return Ok(Moved::Gone) };
    let target = folders.make(to)?;
    let name = std::ffi::CString::new(old.to_string()).expect("it was a name");
    let mut original = match open_file(source.as_fd(), &name) {
        Ok(fd) => std::fs::File::from(fd),
        Err(rustix::io::Errno::NOENT) => return Ok(Moved::Gone),
        Err(error) => return Err(error.into()),
    };
    let mut copy =
        std::fs::File::from(create_file(target.as_fd(), &new.to_string(), folders.trust())?);
    io::copy(&mut original, &mut copy)?;
    folders.remove(from, old)?;
    Ok(Moved::Yes)
}

/// Whether a bug is switched on; never, without the feature.
macro_rules! planted {
    ($planted:expr, $bug:ident) => {{
        #[cfg(feature = "planted")]
        let has = $planted.has($crate::backends::directory::planted::Bug::$bug);
        #[cfg(not(feature = "planted"))]
        let has = {
            let _ = $planted;
            false
        };
        has
    }};
}
pub(crate) use planted;
