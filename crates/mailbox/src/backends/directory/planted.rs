//! The bugs of inboxes that can be switched on, to see whether the tests notice.

use std::io;

use crate::backends::directory::file_name::FileName;
use crate::backends::directory::folders::{Folders, Moved, Spot};

/// A bug.
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

/// The bug that is switched on: at most one.
pub type Planted = crate::backends::planted::Planted<Bug>;

/// Takes a message: by a rename, unless that is the bug.
pub(crate) fn claim(
    planted: Planted,
    folders: &Folders,
    (from, old): (Spot, &FileName),
    (to, new): (Spot, &FileName),
) -> io::Result<Moved> {
    if planted.has(Bug::ClaimByCopy) {
        return copy(folders, (from, old), (to, new));
    }
    folders.rename(from, old, to, new)
}

/// Copies a message and removes it, as if nobody else did the same.
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
