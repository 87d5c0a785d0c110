//! Opening, the rules, and purging.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mailbox_core::{Policy, Time};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, fstat, fsync, renameat, statat};
use rustix::io::Errno;

use super::scan::age_of;
use super::{Inbox, State, refused};
use crate::backends::directory::DirectoryConfig;
use crate::backends::directory::counts;
use crate::backends::directory::folders::{
    Folders, Shelf, Spot, create_file, open_file, remove, visit,
};
use crate::backends::directory::keys::Keys;
use crate::backends::directory::lock::{Lock, Locked};
use crate::backends::directory::notes;
use crate::backends::directory::settings::{self, Settings};
use crate::backends::directory::times::InboxClock;
use crate::backends::directory::watch::Hub;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// How long somebody may take to write `inbox.json`.
const WRITING: Duration = Duration::from_secs(5);

/// The settings as this process last read them, and which file that was.
#[derive(Debug)]
pub(super) struct Known {
    settings: Arc<Settings>,
    version: Option<(u64, i64, u64)>,
}

impl Inbox {
    /// Opens the mailbox in this folder; what is missing in it is made.
    pub(crate) fn open(
        name: Name,
        path: &Path,
        root: OwnedFd,
        config: Arc<DirectoryConfig>,
    ) -> Result<Arc<Self>> {
        let failed = |error| refused("opening", path, error);
        let folders = Folders::open(path, root, config.trust()).map_err(failed)?;
        let lock = Lock::open(&folders).map_err(failed)?;
        let (settings, time) = {
            let alone = lock.take().map_err(failed)?;
            let settings = read_or_make(&folders, &alone, &config)?;
            let seen = || latest(&folders);
            let time = InboxClock::open(&config.clock, &folders, &alone, seen).map_err(failed)?;
            (settings, time)
        };
        let hub = if config.events && !is_remote(&folders) { Hub::get().ok() } else { None };
        let inbox = Arc::new_cyclic(|me| Self {
            name,
            folders,
            lock,
            time,
            config,
            settings: Mutex::new(Known { settings: Arc::new(settings), version: None }),
            keys: Mutex::new(Keys::default()),
            hub,
            state: Mutex::new(State::new()),
            looking: Mutex::new(()),
            last_order: AtomicU64::new(0),
            is_blind: AtomicBool::new(false),
            me: Weak::clone(me),
        });
        Ok(inbox)
    }

    /// The settings, read again if somebody has changed them.
    pub(super) fn settings(&self) -> Result<Arc<Settings>> {
        let found = statat(self.folders.root(), settings::FILE, AtFlags::SYMLINK_NOFOLLOW);
        let found = found.map_err(|error| self.no_settings(error))?;
        let version = (found.st_ino, found.st_ctime, found.st_ctime_nsec as u64);
        let mut known = self.settings.lock();
        if known.version != Some(version) {
            match read(&self.folders, &self.config) {
                Ok(Some(settings)) => known.settings = Arc::new(settings),
                Ok(None) => {
                    drop(known);
                    return Err(self.no_settings(Errno::NOENT));
                }
                // Some editors write in place: what is there may be half of it.
                Err(error) if age_of(found.st_mtime, found.st_mtime_nsec) < WRITING => {
                    tracing::warn!(mailbox = %self.name, %error, "going by what was there before");
                    return Ok(Arc::clone(&known.settings));
                }
                Err(error) => return Err(error),
            }
            known.version = Some(version);
        }
        Ok(Arc::clone(&known.settings))
    }

    /// Why there are no settings: another process has removed the mailbox, or something is wrong.
    fn no_settings(&self, error: Errno) -> Error {
        let root = fstat(self.folders.root());
        let in_place = statat(CWD, self.folders.path(), AtFlags::SYMLINK_NOFOLLOW);
        let is_removed = match (root, in_place) {
            (Ok(root), Ok(there)) => (root.st_dev, root.st_ino) != (there.st_dev, there.st_ino),
            (_, Err(gone)) => gone == Errno::NOENT,
            (Err(_), Ok(_)) => false,
        };
        if error == Errno::NOENT && is_removed {
            self.end(ErrorKind::NotFound);
            return self.ended(ErrorKind::NotFound);
        }
        self.refused("reading inbox.json", error.into())
    }

    /// How long a shell that took a message has it, as last read.
    pub(super) fn lease(&self) -> Duration {
        self.settings.lock().settings.shell_lease.0
    }

    /// Sets the rules.
    pub(crate) fn configure(&self, policy: Policy) -> Result<()> {
        self.check_open()?;
        self.change_settings(|settings| settings.policy = policy).map(|_| ())
    }

    /// Changes the settings as a whole; false if they were so before.
    pub(super) fn change_settings(&self, change: impl FnOnce(&mut Settings)) -> Result<bool> {
        let failed = |error| self.refused("writing inbox.json", error);
        let alone = self.lock.take().map_err(failed)?;
        let known = self.settings()?;
        let mut settings = Settings::clone(&known);
        change(&mut settings);
        if settings == *known {
            return Ok(false);
        }
        write(&self.folders, &alone, &settings).map_err(failed)?;
        Ok(true)
    }

    /// The rules.
    pub(crate) fn policy(&self) -> Result<Policy> {
        self.check_open()?;
        Ok(self.settings()?.policy.clone())
    }

    /// Removes every message that is not dead; how many (M1).
    pub(crate) fn purge(&self) -> Result<u64> {
        self.check_open()?;
        let mut count = 0;
        let mut spots = Vec::new();
        // The first once more: whoever was nacked in the meantime was passed over.
        for shelf in [Shelf::Incoming, Shelf::Processing, Shelf::Incoming] {
            let purged = self.visit_messages(shelf, |seen| {
                if self.folders.remove(seen.spot, &seen.name)? {
                    count += 1;
                    spots.push(seen.spot);
                    spots.dedup();
                    notes::remove(&self.folders, &seen.name);
                }
                Ok(true)
            });
            purged.map_err(|error| self.refused("purging", error))?;
        }
        self.sync(&mut spots)?;
        self.count(count, 0)?;
        self.tell_own();
        Ok(count)
    }

    /// Counts what has gone without being acknowledged.
    pub(super) fn count(&self, purged: u64, dropped: u64) -> Result<()> {
        if purged + dropped == 0 {
            return Ok(());
        }
        let failed = |error| self.refused("counting", error);
        let alone = self.lock.take().map_err(failed)?;
        counts::add(&self.folders, &alone, purged, dropped).map_err(failed)
    }
}

fn read(folders: &Folders, config: &DirectoryConfig) -> Result<Option<Settings>> {
    let failed = |error: io::Error| refused("reading inbox.json", folders.path(), error);
    let name = std::ffi::CString::new(settings::FILE).expect("no zero in it");
    let fd = match open_file(folders.root(), &name) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(failed(error.into())),
    };
    let mut bytes = Vec::new();
    let file = File::from(fd);
    file.take(settings::LEN_MAX).read_to_end(&mut bytes).map_err(failed)?;
    let sensible = |settings: Settings| match config.abilities().check_policy(&settings.policy) {
        Ok(()) => Ok(settings),
        Err(error) => Err(error.to_string()),
    };
    let parsed = Settings::parse(&bytes).and_then(sensible);
    parsed.map(Some).map_err(|why| {
        let mend = "mend it, or remove it to have the default settings";
        let message = format!("{}: inbox.json: {why}; {mend}", folders.path().display());
        let kind =
            if why.starts_with("version") { ErrorKind::Unsupported } else { ErrorKind::Integrity };
        Error::new(kind, message)
    })
}

fn read_or_make(
    folders: &Folders,
    alone: &Locked<'_>,
    config: &DirectoryConfig,
) -> Result<Settings> {
    if let Some(settings) = read(folders, config)? {
        return Ok(settings);
    }
    let settings = Settings::new(config.sharded, config.policy.clone());
    let made = if config.sharded { folders.make_buckets() } else { Ok(()) };
    made.and_then(|()| write(folders, alone, &settings))
        .map_err(|error| refused("writing inbox.json", folders.path(), error))?;
    Ok(settings)
}

/// Writes the settings as a whole.
fn write(folders: &Folders, _alone: &Locked<'_>, settings: &Settings) -> io::Result<()> {
    const NEW: &str = ".inbox.json";
    remove(folders.root(), NEW)?;
    let mut file = File::from(create_file(folders.root(), NEW, folders.trust())?);
    file.write_all(&settings.to_bytes())?;
    file.sync_all()?;
    renameat(folders.root(), NEW, folders.root(), settings::FILE)?;
    Ok(fsync(folders.root())?)
}

/// The latest moment that any name speaks of as past. Only names of ours: others may say anything.
fn latest(folders: &Folders) -> io::Result<Time> {
    let mut latest = Time::ZERO;
    for shelf in Shelf::ALL {
        for spot in folders.spots(shelf)? {
            latest = latest.max(latest_in(folders, spot)?);
        }
    }
    Ok(latest)
}

fn latest_in(folders: &Folders, spot: Spot) -> io::Result<Time> {
    use std::os::fd::AsFd;
    let mut latest = Time::ZERO;
    let Some(folder) = folders.at(spot)? else { return Ok(latest) };
    visit(folder.as_fd(), |name, kind| {
        if let crate::backends::directory::file_name::Sort::Message(name) =
            super::scan::sort(name, kind)
            && let Some(past) = name.past()
        {
            latest = latest.max(past);
        }
        Ok(true)
    })?;
    Ok(latest)
}

/// Whether events of other machines would be missed there.
fn is_remote(folders: &Folders) -> bool {
    // NFS, CIFS, SMB, SMB2, 9P, FUSE, AFS, Ceph, Lustre, GFS2, OCFS2.
    const REMOTE: [u32; 11] = [
        0x6969,
        0xFF53_4D42,
        0x517B,
        0xFE53_4D42,
        0x0102_1997,
        0x6573_5546,
        0x5346_414F,
        0x00C3_6400,
        0x0BD0_0BD0,
        0x0116_1970,
        0x7461_636F,
    ];
    match rustix::fs::fstatfs(folders.root()) {
        Ok(found) => REMOTE.contains(&(found.f_type as u32)),
        Err(_) => true,
    }
}
