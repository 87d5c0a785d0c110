//! A folder of inboxes: which there are, and those that this process has open.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, fsync, statat};
use rustix::io::Errno;

use crate::backends::directory::DirectoryConfig;
use crate::backends::directory::folders::{
    Identity, Moved, Shelf, file_type, identity_of, make_dir, open_dir, rename, visit,
};
use crate::backends::directory::inbox::{Inbox, refused};
use crate::backends::directory::settings;
use crate::backends::directory::trust::{Trust, check_way};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// Folders within folders that a removal goes down: an inbox has two.
const DEPTH: u32 = 4;
/// Mailboxes that are held open although nobody uses them: each takes a dozen descriptors.
const IDLE: usize = 32;

/// A folder of inboxes.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    root: OwnedFd,
    config: Arc<DirectoryConfig>,
    open: Mutex<Open>,
    /// Those that somebody is opening now.
    opening: Mutex<BTreeMap<Name, Arc<Mutex<()>>>>,
}

#[derive(Debug, Default)]
struct Open {
    by_name: BTreeMap<Name, (Arc<Inbox>, Identity)>,
    closed: bool,
}

impl Place {
    /// Opens the folder, made if it is not there.
    pub(crate) fn open(path: &Path, config: DirectoryConfig) -> Result<Self> {
        let failed = |error| refused("opening", path, error);
        if path.exists() && !path.is_dir() {
            let message = format!("{}: is a file, not a folder of inboxes", path.display());
            return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
        }
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        if config.trust() == Trust::Own {
            check_way(&path)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = fs::open(&path, flags, Mode::empty());
        let root = root.map_err(|error| refused("opening", &path, error.into()))?;
        Ok(Self {
            path,
            root,
            config: Arc::new(config),
            open: Mutex::default(),
            opening: Mutex::default(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn config(&self) -> &DirectoryConfig {
        &self.config
    }

    /// The mailbox, if there is one.
    pub(crate) fn known(&self, name: &Name) -> Result<Option<Arc<Inbox>>> {
        self.find(name, false)
    }

    /// The mailbox, made if it is not there.
    pub(crate) fn inbox(&self, name: &Name) -> Result<Arc<Inbox>> {
        let found = self.find(name, true)?;
        found.ok_or_else(|| Error::new(ErrorKind::Internal, "it was just made").with_mailbox(name))
    }

    fn find(&self, name: &Name, make: bool) -> Result<Option<Arc<Inbox>>> {
        let folder = folder_name(name);
        if let Some(inbox) = self.held(name, &folder)? {
            return Ok(Some(inbox));
        }
        // One at a time opens a mailbox; those who use others need not wait for a slow one.
        let slot = Arc::clone(self.opening.lock().entry(name.clone()).or_default());
        let opened = {
            let _alone = slot.lock();
            match self.held(name, &folder) {
                Ok(None) => self.open_new(name, &folder, make),
                held => held,
            }
        };
        let mut opening = self.opening.lock();
        // The map has one, and this is another: then nobody else waits for it.
        if Arc::strong_count(&slot) <= 2 {
            opening.remove(name);
        }
        opened
    }

    /// The mailbox, if it is open and still is what it was.
    fn held(&self, name: &Name, folder: &str) -> Result<Option<Arc<Inbox>>> {
        let (inbox, known) = {
            let open = self.open.lock();
            if open.closed {
                return Err(Error::closed(name));
            }
            let Some((inbox, known)) = open.by_name.get(name) else { return Ok(None) };
            (Arc::clone(inbox), *known)
        };
        // Not under the lock: everybody looks, before each call.
        if self.identity_of(name, folder)? == Some(known) && inbox.is_intact()? {
            return Ok(Some(inbox));
        }
        // Somebody has removed it, or put another one in its place.
        inbox.end(ErrorKind::NotFound);
        let mut open = self.open.lock();
        if open.by_name.get(name).is_some_and(|(held, _)| Arc::ptr_eq(held, &inbox)) {
            open.by_name.remove(name);
        }
        Ok(None)
    }

    /// Which folder has that name now.
    fn identity_of(&self, name: &Name, folder: &str) -> Result<Option<Identity>> {
        match statat(&self.root, folder, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(identity_of(&found))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => {
                let path = self.path.join(folder);
                Err(refused("opening", &path, error.into()).with_mailbox(name))
            }
        }
    }

    fn open_new(&self, name: &Name, folder: &str, make: bool) -> Result<Option<Arc<Inbox>>> {
        let there = self.identity_of(name, folder)?;
        if there.is_none() && !make {
            return Ok(None);
        }
        if there.is_none() {
            self.check_room(name)?;
        }
        {
            let mut open = self.open.lock();
            if let Some(other) = there.and_then(|there| open.also(there)) {
                let other = other.clone();
                if self.identity_of(&other, &folder_name(&other))? == there {
                    // Where upper and lower case are the same, or a folder has two names.
                    let message = format!("it is the same folder as the mailbox {other}");
                    return Err(Error::new(ErrorKind::InvalidParameter, message).with_mailbox(name));
                }
                // It was called so before.
                if let Some((renamed, _)) = open.by_name.remove(&other) {
                    renamed.end(ErrorKind::NotFound);
                }
            }
            open.let_go();
        }
        let Some((inbox, identity)) = self.open_inbox(name, folder, make)? else {
            return Ok(None);
        };
        let mut open = self.open.lock();
        if open.closed {
            return Err(Error::closed(name));
        }
        open.by_name.insert(name.clone(), (Arc::clone(&inbox), identity));
        Ok(Some(inbox))
    }

    /// Whether there may be one more mailbox.
    fn check_room(&self, name: &Name) -> Result<()> {
        let most = self.config.max_mailboxes;
        if self.names(None, most)?.len() < most {
            return Ok(());
        }
        let message = format!("there are {most} mailboxes, the most there may be");
        Err(Error::new(ErrorKind::Saturated, message).with_mailbox(name))
    }

    fn open_inbox(
        &self,
        name: &Name,
        folder: &str,
        make: bool,
    ) -> Result<Option<(Arc<Inbox>, Identity)>> {
        let path = self.path.join(folder);
        let failed = |error| refused("opening", &path, error).with_mailbox(name);
        let (root, is_new) = if make {
            make_dir(self.root.as_fd(), folder, self.config.trust()).map_err(failed)?
        } else {
            match open_dir(self.root.as_fd(), folder) {
                Ok(root) => (root, false),
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
                Err(error) => return Err(failed(error.into())),
            }
        };
        // In this order: `incoming` is what is made first, perhaps by another process just now.
        let is_empty = is_empty(&root).map_err(failed)?;
        let is_inbox = is_inbox(&root);
        if is_new {
            fsync(&self.root).map_err(|error| failed(error.into()))?;
        } else if !is_inbox && !is_empty {
            if !make {
                return Ok(None);
            }
            let message = format!(
                "{}: holds other things, and no inbox; an inbox has a folder `incoming`",
                path.display()
            );
            return Err(Error::new(ErrorKind::InvalidParameter, message).with_mailbox(name));
        } else if !is_inbox && !make {
            return Ok(None);
        }
        let found = fs::fstat(&root).map_err(|error| failed(error.into()))?;
        self.config.trust().check(&found, "the inbox").map_err(failed)?;
        let inbox = Inbox::open(name.clone(), &path, root, Arc::clone(&self.config));
        let inbox = inbox.map_err(|error| error.with_mailbox(name))?;
        Ok(Some((inbox, identity_of(&found))))
    }

    /// The mailboxes there are, sorted.
    pub(crate) fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        if self.open.lock().closed {
            return Err(Error::new(ErrorKind::Closed, "the folder of inboxes is closed"));
        }
        self.names(after, limit)
    }

    fn names(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let mut names = std::collections::BTreeSet::new();
        let looked = visit(self.root.as_fd(), |entry, kind| {
            let is_folder = matches!(kind, FileType::Directory | FileType::Unknown);
            if is_folder
                && let Some(name) = entry.to_str().ok().and_then(name_of)
                && after.is_none_or(|after| name > *after)
                && open_dir(self.root.as_fd(), &folder_name(&name))
                    .is_ok_and(|root| is_inbox(&root))
            {
                names.insert(name);
                if names.len() > limit {
                    names.pop_last();
                }
            }
            Ok(true)
        });
        looked.map_err(|error| refused("listing", &self.path, error))?;
        Ok(names.into_iter().collect())
    }

    /// Removes a mailbox with everything in it; false if there was none.
    pub(crate) fn remove(&self, name: &Name) -> Result<bool> {
        let Some(inbox) = self.known(name)? else { return Ok(false) };
        let failed =
            |error: std::io::Error| refused("removing", &self.path, error).with_mailbox(name);
        let random = u128::from_be_bytes(crate::home::random());
        let (folder, trash) = (folder_name(name), format!(".removed-{random:032x}"));
        // First out of the way as a whole: whoever is faster with a message has it.
        let root = self.root.as_fd();
        if rename(root, &*folder, root, &*trash).map_err(failed)? != Moved::Yes {
            return Ok(false);
        }
        inbox.end(ErrorKind::NotFound);
        self.open.lock().by_name.remove(name);
        fsync(&self.root).map_err(|error| failed(error.into()))?;
        remove_tree(&self.root, &trash, DEPTH).map_err(failed)?;
        Ok(true)
    }

    /// Ends it: every waiter, and every later call, gets `Closed`.
    pub(crate) fn close(&self) {
        let inboxes = {
            let mut open = self.open.lock();
            open.closed = true;
            std::mem::take(&mut open.by_name)
        };
        for (inbox, _) in inboxes.into_values() {
            inbox.end(ErrorKind::Closed);
        }
    }
}

impl Open {
    /// The mailbox that this folder is open as.
    fn also(&self, there: Identity) -> Option<&Name> {
        self.by_name.iter().find(|(_, (_, known))| *known == there).map(|(name, _)| name)
    }

    /// Lets go of mailboxes that nobody uses, if there are many: all they know is in the folders.
    fn let_go(&mut self) {
        if self.by_name.len() >= IDLE {
            // One whose disk has failed must not be taken for sound by being opened again.
            let is_needed =
                |inbox: &Arc<Inbox>| Arc::strong_count(inbox) > 1 || inbox.check_open().is_err();
            self.by_name.retain(|_, (inbox, _)| is_needed(inbox));
        }
    }
}

/// Removes a folder and everything in it, by descriptor: no link is followed.
fn remove_tree(parent: &OwnedFd, name: &str, depth: u32) -> std::io::Result<()> {
    let folder = open_dir(parent.as_fd(), name)?;
    let mut inner = Vec::new();
    visit(folder.as_fd(), |entry, kind| {
        if kind == FileType::Directory {
            inner.extend(entry.to_str().map(str::to_owned));
        } else {
            fs::unlinkat(&folder, entry, AtFlags::empty())?;
        }
        Ok(true)
    })?;
    for name in inner.iter().filter(|_| depth > 0) {
        remove_tree(&folder, name, depth - 1)?;
    }
    Ok(fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Whether a folder is an inbox, of ours or one that a shell has made.
fn is_inbox(root: &OwnedFd) -> bool {
    let is_there = |name: &str, kind: FileType| {
        statat(root, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| file_type(&found) == kind)
    };
    is_there(settings::FILE, FileType::RegularFile)
        || is_there(Shelf::Incoming.name(), FileType::Directory)
}

fn is_empty(root: &OwnedFd) -> std::io::Result<bool> {
    let mut is_empty = true;
    visit(root.as_fd(), |_, _| {
        is_empty = false;
        Ok(false)
    })?;
    Ok(is_empty)
}

/// What the folder of a mailbox is called. A name that begins with a dot would be hidden.
fn folder_name(name: &Name) -> String {
    match name.as_str().strip_prefix('.') {
        Some(rest) => format!("%2E{rest}"),
        None => name.as_str().to_owned(),
    }
}

/// The mailbox that a folder is, if it can be one.
fn name_of(folder: &str) -> Option<Name> {
    match folder.strip_prefix("%2E") {
        Some(rest) => Name::parse(&format!(".{rest}")).ok(),
        None if folder.starts_with('.') => None,
        None => Name::parse(folder).ok(),
    }
}
