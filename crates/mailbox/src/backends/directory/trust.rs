//! Whom an inbox is shared with. Invariant: unless it was said in so many words that a folder is
//! shared, nobody but its owner can have put anything into it.

use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, Mode, OFlags, Stat};
use rustix::process::{getegid, geteuid};

use crate::error::{Error, ErrorKind, Result};

/// Whom files may belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The user that this program runs as.
    Own,
    /// Everybody who can write there: whoever shares a folder can forge and delete.
    Shared,
}

impl Trust {
    /// Whether a folder can be used.
    pub(crate) fn check(self, found: &Stat, name: &str) -> io::Result<()> {
        match self.objection(found) {
            None => Ok(()),
            Some(why) => {
                let what = format!("{name} {why}");
                Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
            }
        }
    }

    fn objection(self, found: &Stat) -> Option<&'static str> {
        if self == Self::Shared {
            return None;
        }
        if found.st_uid != geteuid().as_raw() {
            return Some("belongs to another user");
        }
        if is_open(found) {
            let hint = "can be written to by others: `chmod go-w` closes it, `?shared=yes` \
                        trusts all who can";
            return Some(hint);
        }
        None
    }

    /// Opens a new file to those whom the folder is shared with.
    pub(crate) fn share(self, file: impl std::os::fd::AsFd) -> io::Result<()> {
        if self == Self::Shared {
            fs::fchmod(file, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP)?;
        }
        Ok(())
    }

    /// Whether a file can be what it says: written by somebody who is trusted.
    pub(crate) fn allows(self, found: &Stat) -> bool {
        self == Self::Shared || found.st_uid == geteuid().as_raw()
    }
}

/// Refuses a place that somebody else could exchange behind our back: every folder on the way to
/// it must belong to this user or to root, and must not be open to others unless it is sticky.
///
/// # Errors
/// `Forbidden`, naming the folder.
pub(crate) fn check_way(path: &Path) -> Result<()> {
    let mut way = PathBuf::new();
    for component in path.components() {
        way.push(component);
        if matches!(component, Component::Prefix(_)) {
            continue;
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = fs::open(&way, flags, Mode::empty()).and_then(fs::fstat);
        let found = found.map_err(|error| refused(&way, "cannot be looked at", error.into()))?;
        let is_sticky = Mode::from_raw_mode(found.st_mode).contains(Mode::SVTX);
        let is_open = is_open(&found) && !is_sticky;
        let is_strange = found.st_uid != 0 && found.st_uid != geteuid().as_raw();
        if is_open || is_strange {
            let closes = "can be written to by others: `chmod go-w` closes it";
            let why = if is_open { closes } else { "is another user's" };
            let error = io::Error::from(io::ErrorKind::PermissionDenied);
            return Err(refused(&way, why, error));
        }
    }
    Ok(())
}

/// Whether others can write to a folder. A group with the number of the user is the user's own, as
/// most systems set them up: there a folder is open to the group by default, and to nobody else.
fn is_open(found: &Stat) -> bool {
    let mode = Mode::from_raw_mode(found.st_mode);
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let is_private_group = user == group && found.st_gid == group;
    mode.contains(Mode::WOTH) || (mode.contains(Mode::WGRP) && !is_private_group)
}

fn refused(path: &Path, why: &str, error: io::Error) -> Error {
    let hint = "`?shared=yes` trusts everybody who can write there";
    let message = format!("{} {why}; {hint}", path.display());
    Error::new(ErrorKind::Forbidden, message).with_source(error)
}
