//! The folders of an inbox, held by descriptor. Invariant: after an inbox is open no path is ever
//! followed again: every access begins at a descriptor, stays beneath it and on its file system,
//! and goes through no link.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    self, AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, openat2,
};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::backends::directory::file_name::FileName;
use crate::backends::directory::trust::Trust;

/// Buckets of a sharded inbox.
pub(crate) const BUCKETS: u8 = 64;

/// Where messages are, by what is to become of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Shelf {
    /// Waiting.
    Incoming,
    /// Somebody has it.
    Processing,
    /// Acknowledged, and kept for a while.
    Done,
    /// Dead.
    DeadLetter,
}

impl Shelf {
    pub(crate) const ALL: [Self; 4] =
        [Self::Incoming, Self::Processing, Self::Done, Self::DeadLetter];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Incoming => "incoming",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::DeadLetter => "dead-letter",
        }
    }
}

/// A folder that messages are in: a shelf, or a bucket of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) shelf: Shelf,
    pub(crate) bucket: Option<u8>,
}

/// Other folders of an inbox, with things that are no messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Messages that are being written.
    Tmp,
    /// Files that are no messages.
    Aside,
    /// What went wrong with a delivery, in somebody's words.
    Notes,
    /// Which messages were acknowledged, for senders who look.
    Acks,
    /// How inbox time is reckoned.
    Clock,
}

impl Side {
    const ALL: [Self; 5] = [Self::Tmp, Self::Aside, Self::Notes, Self::Acks, Self::Clock];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tmp => ".tmp",
            Self::Aside => "aside",
            Self::Notes => "notes",
            Self::Acks => "acks",
            Self::Clock => ".clock",
        }
    }
}

/// What became of a rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It was done, by us.
    Yes,
    /// Somebody else was faster.
    Gone,
    /// There is something of that name already.
    Taken,
}

/// The folders of one inbox.
#[derive(Debug)]
pub(crate) struct Folders {
    path: PathBuf,
    root: OwnedFd,
    shelves: [OwnedFd; Shelf::ALL.len()],
    sides: [OwnedFd; Side::ALL.len()],
    /// Which folders these are: the inbox, its shelves, and where messages are written.
    identities: [Identity; 2 + Shelf::ALL.len()],
    trust: Trust,
}

/// Which folder it is, whatever it is called: device and number.
pub(crate) type Identity = (u64, u64);

/// A descriptor that is ours for one call, or for longer.
pub(crate) enum Handle<'a> {
    Held(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for Handle<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Held(fd) => fd.as_fd(),
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

/// How directories are opened: nothing but what is really there.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Only for whoever runs this.
const PRIVATE_DIR: Mode = Mode::RWXU;
pub(crate) const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Folders {
    /// Makes whatever is missing of an inbox, and holds it. `root` is the inbox itself.
    pub(crate) fn open(path: &Path, root: OwnedFd, trust: Trust) -> io::Result<Self> {
        let mut made = false;
        let mut hold = |at: BorrowedFd<'_>, name: &str| -> io::Result<OwnedFd> {
            let (fd, is_new) = make_dir(at, name, trust)?;
            trust.check(&fs::fstat(&fd)?, name)?;
            made |= is_new;
            Ok(fd)
        };
        let [incoming, processing, done, dead] =
            Shelf::ALL.map(|shelf| hold(root.as_fd(), shelf.name()));
        let shelves = [incoming?, processing?, done?, dead?];
        // The one that is not beside the others: where a shell that follows the plan writes to.
        let tmp = hold(shelves[0].as_fd(), Side::Tmp.name())?;
        let [aside, notes, acks, clock] = [Side::Aside, Side::Notes, Side::Acks, Side::Clock]
            .map(|side| hold(root.as_fd(), side.name()));
        let sides = [tmp, aside?, notes?, acks?, clock?];
        if made {
            fs::fsync(&shelves[0])?;
            fs::fsync(&root)?;
        }
        let [incoming, processing, done, dead] = &shelves;
        let mut identities = [Identity::default(); 2 + Shelf::ALL.len()];
        let held = [&root, incoming, processing, done, dead, &sides[0]];
        for (identity, held) in identities.iter_mut().zip(held) {
            *identity = identity_of(&fs::fstat(held)?);
        }
        Ok(Self { path: path.to_owned(), root, shelves, sides, identities, trust })
    }

    /// Where it is, for people.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The inbox itself.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// A side folder.
    pub(crate) fn side(&self, side: Side) -> BorrowedFd<'_> {
        self.sides[side as usize].as_fd()
    }

    /// Whom files may belong to.
    pub(crate) const fn trust(&self) -> Trust {
        self.trust
    }

    /// Whether the inbox, and the folders that messages are in, are still those that are there by
    /// their names.
    ///
    /// # Errors
    /// It cannot be told.
    pub(crate) fn is_intact(&self) -> io::Result<bool> {
        let [root, shelves @ .., tmp] = self.identities;
        if !is_at(fs::CWD, &*self.path, root)? {
            return Ok(false);
        }
        for (shelf, held) in Shelf::ALL.iter().zip(shelves) {
            if !is_at(self.root.as_fd(), shelf.name(), held)? {
                return Ok(false);
            }
        }
        is_at(self.shelves[0].as_fd(), Side::Tmp.name(), tmp)
    }

    /// Makes every bucket, so that nobody has to who is in a hurry.
    pub(crate) fn make_buckets(&self) -> io::Result<()> {
        for shelf in &self.shelves {
            for bucket in 0..BUCKETS {
                make_dir(shelf.as_fd(), &bucket_name(bucket), self.trust)?;
            }
            fs::fsync(shelf)?;
        }
        Ok(())
    }

    /// Removes every bucket that is empty.
    pub(crate) fn remove_buckets(&self) {
        for (shelf, bucket) in
            self.shelves.iter().flat_map(|shelf| (0..BUCKETS).map(move |it| (shelf, it)))
        {
            // One that is not empty, or not there, stays as it is.
            let _ = fs::unlinkat(shelf, bucket_name(bucket), AtFlags::REMOVEDIR);
        }
    }

    /// The folder of a spot; `None` if it is a bucket that nobody has needed yet.
    pub(crate) fn at(&self, spot: Spot) -> io::Result<Option<Handle<'_>>> {
        let shelf = self.shelves[spot.shelf as usize].as_fd();
        let Some(bucket) = spot.bucket else { return Ok(Some(Handle::Held(shelf))) };
        match open_dir(shelf, &bucket_name(bucket)) {
            Ok(fd) => Ok(Some(Handle::Opened(fd))),
            Err(error) if error == Errno::NOENT => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The folder of a spot, made if it is not there.
    pub(crate) fn make(&self, spot: Spot) -> io::Result<Handle<'_>> {
        if let Some(handle) = self.at(spot)? {
            return Ok(handle);
        }
        let shelf = self.shelves[spot.shelf as usize].as_fd();
        let bucket = spot.bucket.expect("a shelf itself is always there");
        let (fd, _) = make_dir(shelf, &bucket_name(bucket), self.trust)?;
        self.trust.check(&fs::fstat(&fd)?, &bucket_name(bucket))?;
        fs::fsync(shelf)?;
        Ok(Handle::Opened(fd))
    }

    /// Moves a message, unless somebody was faster or something is in the way.
    pub(crate) fn rename(
        &self,
        from: Spot,
        old: &FileName,
        to: Spot,
        new: &FileName,
    ) -> io::Result<Moved> {
        let Some(source) = self.at(from)? else { return Ok(Moved::Gone) };
        let target = self.make(to)?;
        rename(source.as_fd(), &*old.to_string(), target.as_fd(), &*new.to_string())
    }

    /// Removes a message; false if it was not there.
    pub(crate) fn remove(&self, spot: Spot, name: &FileName) -> io::Result<bool> {
        let Some(folder) = self.at(spot)? else { return Ok(false) };
        remove(folder.as_fd(), &name.to_string())
    }

    /// Makes what was renamed into and out of a folder last.
    pub(crate) fn sync(&self, spot: Spot) -> io::Result<()> {
        match self.at(spot)? {
            Some(folder) => Ok(fs::fsync(folder)?),
            None => Ok(()),
        }
    }

    /// Every folder of a shelf that there is: the shelf itself, and its buckets. Also where an
    /// inbox has no buckets any more: whatever is there is a message.
    pub(crate) fn spots(&self, shelf: Shelf) -> io::Result<Vec<Spot>> {
        let mut spots = vec![Spot { shelf, bucket: None }];
        for bucket in 0..BUCKETS {
            let name = bucket_name(bucket);
            match fs::statat(&self.shelves[shelf as usize], &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) if file_type(&found) == FileType::Directory => {
                    spots.push(Spot { shelf, bucket: Some(bucket) });
                }
                Ok(_) => {}
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(spots)
    }
}

/// Whether what has that name is what is held.
fn is_at(at: BorrowedFd<'_>, name: impl Arg, held: Identity) -> io::Result<bool> {
    match fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok(identity_of(&there) == held),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Which folder that is.
pub(crate) const fn identity_of(found: &Stat) -> Identity {
    (found.st_dev, found.st_ino)
}

/// The bucket of a message, by what its sender called it: the same for ever.
pub(crate) fn bucket_of(base: &str) -> u8 {
    blake3::hash(base.as_bytes()).as_bytes()[0] % BUCKETS
}

fn bucket_name(bucket: u8) -> String {
    format!("{bucket:02x}")
}

/// Opens a directory that is really there.
pub(crate) fn open_dir(at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    openat2(at, name, DIRECTORY, Mode::empty(), BENEATH)
}

/// Opens a directory, made if it is not there; true if it was made.
pub(crate) fn make_dir(
    at: BorrowedFd<'_>,
    name: &str,
    trust: Trust,
) -> io::Result<(OwnedFd, bool)> {
    let made = match fs::mkdirat(at, name, PRIVATE_DIR) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let fd = open_dir(at, name)?;
    if made && trust == Trust::Shared {
        // Whatever the mask says: whoever shares it must get in.
        fs::fchmod(&fd, Mode::RWXU | Mode::RWXG | Mode::SGID)?;
    }
    Ok((fd, made))
}

/// Opens a file for reading that is really there, whatever it is; a pipe does not block.
pub(crate) fn open_file(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    openat2(at, name, flags | OFlags::CLOEXEC, Mode::empty(), BENEATH)
}

/// Makes a new file; whatever has that name already, even a link, is an error.
pub(crate) fn create_file(at: BorrowedFd<'_>, name: &str, trust: Trust) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat2(at, name, flags, PRIVATE_FILE, BENEATH)?;
    trust.share(&fd)?;
    Ok(fd)
}

/// Renames a file, unless somebody was faster or something is in the way.
pub(crate) fn rename(
    source: BorrowedFd<'_>,
    old: impl Arg + Copy,
    target: BorrowedFd<'_>,
    new: impl Arg + Copy,
) -> io::Result<Moved> {
    match fs::renameat_with(source, old, target, new, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(Moved::Yes),
        Err(Errno::NOENT) => Ok(Moved::Gone),
        Err(Errno::EXIST) => Ok(Moved::Taken),
        Err(Errno::INVAL | Errno::NOSYS) => rename_anyhow(source, old, target, new),
        Err(error) => Err(error.into()),
    }
}

/// The same where the file system cannot promise to replace nothing, as network file systems
/// cannot. Names that are given here have random or unique parts; a plain one may be lost only if
/// somebody takes it in the very moment after the look.
fn rename_anyhow(
    source: BorrowedFd<'_>,
    old: impl Arg,
    target: BorrowedFd<'_>,
    new: impl Arg + Copy,
) -> io::Result<Moved> {
    match fs::statat(target, new, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => return Ok(Moved::Taken),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    match fs::renameat(source, old, target, new) {
        Ok(()) => Ok(Moved::Yes),
        Err(Errno::NOENT) => Ok(Moved::Gone),
        Err(error) => Err(error.into()),
    }
}

/// Whether there was no space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Removes a file; false if it was not there.
pub(crate) fn remove(folder: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    match fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Visits every entry of a folder but itself and its parent, until it is told to stop.
pub(crate) fn visit(
    folder: BorrowedFd<'_>,
    mut each: impl FnMut(&CStr, FileType) -> io::Result<bool>,
) -> io::Result<()> {
    visit_numbered(folder, |name, kind, _| each(name, kind))
}

/// The same, with the number of each file: a rename does not change it.
pub(crate) fn visit_numbered(
    folder: BorrowedFd<'_>,
    mut each: impl FnMut(&CStr, FileType, u64) -> io::Result<bool>,
) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if !each(name, entry.file_type(), entry.ino())? {
            break;
        }
    }
    Ok(())
}

/// What kind of file that is.
pub(crate) fn file_type(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}
