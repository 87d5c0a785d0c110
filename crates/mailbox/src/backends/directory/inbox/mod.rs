//! One mailbox in a folder, as one process sees it. Everything here blocks, for a few file
//! operations; whoever is async calls it elsewhere.
//!
//! Invariant: a message is in one folder under one name at a time, and whoever renames it has
//! decided about it. What this process remembers is a hint.

mod convert;
mod dead;
mod examine;
mod lobby;
mod manage;
mod scan;
mod send;
mod settle;
mod show;
mod sweep;
mod take;
mod twins;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use mailbox_core::{DeadReason, Time};
use parking_lot::Mutex;

use crate::backends::directory::DirectoryConfig;
use crate::backends::directory::file_name::{Fate, FileName, STAMP_MASK, Sort, Turn};
use crate::backends::directory::folders::{Folders, Moved, Shelf, Spot, bucket_of, is_full};
use crate::backends::directory::keys::Keys;
use crate::backends::directory::line::{Line, Seen};
use crate::backends::directory::lock::Lock;
use crate::backends::directory::notes;
use crate::backends::directory::settings::Settings;
use crate::backends::directory::times::InboxClock;
use crate::backends::directory::watch::{Hub, Watcher};
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::home::waiters::Waiters;
use crate::name::Name;

/// Odd files that are remembered until somebody sets them aside.
const ODD: usize = 256;
/// Events that are kept while somebody looks; with more it looks again.
const BACKLOG: usize = 1 << 16;

/// A mailbox in a folder.
pub(crate) struct Inbox {
    pub(crate) name: Name,
    folders: Folders,
    lock: Lock,
    time: InboxClock,
    config: Arc<DirectoryConfig>,
    settings: Mutex<manage::Known>,
    keys: Mutex<Keys>,
    /// File events, where there are any.
    hub: Option<Arc<Hub>>,
    state: Mutex<State>,
    /// Held while somebody looks: one look serves all.
    looking: Mutex<()>,
    last_order: AtomicU64,
    /// Not every folder could be watched: what happens there is seen by looking only.
    is_blind: AtomicBool,
    me: Weak<Self>,
}

/// What changes under the lock.
struct State {
    line: Line,
    waiters: Waiters,
    ended: Option<ErrorKind>,
    /// When somebody last looked, and whether everything since then was told.
    looked: Option<Instant>,
    look_took: Duration,
    is_sure: bool,
    /// What was told while somebody looks.
    backlog: Option<Vec<Told>>,
    odd: Vec<OddFile>,
    /// Acknowledgements since this process last cleared away, and when that was.
    done: u32,
    swept: Option<Instant>,
}

/// A file that is no message, and where it is.
type OddFile = (Spot, Vec<u8>);

/// A file event.
struct Told {
    spot: Spot,
    name: Box<str>,
    is_there: bool,
}

impl Inbox {
    /// The present, in inbox time.
    pub(crate) fn now(&self) -> Time {
        self.time.now()
    }

    /// Whether its folders are still those that are there by their names.
    pub(crate) fn is_intact(&self) -> Result<bool> {
        self.folders.is_intact().map_err(|error| self.refused("looking", error))
    }

    /// Where a message belongs.
    fn spot(&self, shelf: Shelf, base: &str, settings: &Settings) -> Spot {
        Spot { shelf, bucket: settings.is_sharded().then(|| bucket_of(base)) }
    }

    /// A turn from now on: behind everybody whose turn has come at the same time.
    fn turn(&self, due: Time) -> Turn {
        Turn { due, stamp: stamp() }
    }

    /// Moves a message; how it went, or why it cannot be done.
    fn rename(&self, from: Spot, old: &FileName, to: Spot, new: &FileName) -> Result<Moved> {
        let moved = self.making_room(|| self.folders.rename(from, old, to, new));
        moved.map_err(|error| self.refused("renaming", error))
    }

    /// Does something that may take space, as a folder that grows does. Where there is none, what
    /// is done makes some.
    fn making_room<T>(&self, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match act() {
            Err(error) if is_full(&error) && self.drop_done() => act(),
            acted => acted,
        }
    }

    /// Waits until what was renamed is on the disk, if that is what was asked for.
    fn sync(&self, spots: &mut Vec<Spot>) -> Result<()> {
        if self.config.durability != Durability::Fsync {
            return Ok(());
        }
        spots.sort_unstable();
        spots.dedup();
        for spot in spots.drain(..) {
            self.folders.sync(spot).map_err(|error| self.sync_failed(error))?;
        }
        Ok(())
    }

    /// What a failed sync means: nobody can tell what is on the disk, and a second one may say that
    /// all is well although it is not. So nothing is promised any more until it is opened again.
    fn sync_failed(&self, error: io::Error) -> Error {
        let is_full =
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if !is_full {
            tracing::error!(mailbox = %self.name, %error, "a sync failed");
            self.end(ErrorKind::Internal);
        }
        self.refused("syncing", error)
    }

    /// Makes a message a dead letter; false if somebody else was faster.
    fn bury(
        &self,
        seen: &Seen,
        reason: DeadReason,
        error: Option<&str>,
        settings: &Settings,
    ) -> Result<bool> {
        let mut dead = seen.name.at_rest();
        dead.count = seen.count();
        dead.fate = Some(Fate { reason, order: self.next_order() });
        if let Some(error) = error {
            let note = notes::write(&self.folders, dead.base(), error, self.config.durability);
            dead.note = note.map_err(|error| self.refused("writing a note", error))?;
        }
        let mut to = self.spot(Shelf::DeadLetter, dead.base(), settings);
        let mut moved = self.rename(seen.spot, &seen.name, to, &dead);
        if to.bucket.is_some()
            && moved.as_ref().is_err_and(|error| error.kind() == ErrorKind::Saturated)
        {
            // A new bucket takes more space than a name in the shelf itself.
            to.bucket = None;
            moved = self.rename(seen.spot, &seen.name, to, &dead);
        }
        let is_ours = moved? == Moved::Yes;
        if error.is_some() {
            notes::remove(&self.folders, if is_ours { &seen.name } else { &dead });
        }
        if !is_ours {
            return Ok(false);
        }
        tracing::info!(
            mailbox = %self.name, message = %dead.id(), reason = reason.as_str(), "dead letter"
        );
        // First where it is, then where it was: between the two it is in both, not in neither.
        self.sync(&mut vec![to])?;
        self.sync(&mut vec![seen.spot])?;
        Ok(true)
    }

    /// A number for a dead letter: later ones have higher ones. Milliseconds since 2020, then what
    /// tells those of one millisecond apart, also between processes.
    fn next_order(&self) -> u64 {
        let order = order(self.now().as_nanos() / 1_000_000, stamp() >> 15);
        let update = |last: u64| Some(order.max(last + 1));
        let last = self.last_order.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        last.map_or(order, |last| order.max(last + 1))
    }

    /// Ends it: whoever waits, and whoever comes, gets this kind of error.
    pub(crate) fn end(&self, kind: ErrorKind) {
        let woken = {
            let mut state = self.state.lock();
            state.ended.get_or_insert(kind);
            state.waiters.notify_all(self.now())
        };
        woken.into_iter().for_each(std::task::Waker::wake);
    }

    /// Why it has ended, if it has.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.state.lock().ended {
            None => Ok(()),
            Some(kind) => Err(self.ended(kind)),
        }
    }

    fn ended(&self, kind: ErrorKind) -> Error {
        let message = match kind {
            ErrorKind::NotFound => "the mailbox was removed",
            ErrorKind::Internal => "the disk failed: a sync did not succeed; open it again",
            _ => "closed",
        };
        Error::new(kind, message).with_mailbox(&self.name)
    }

    /// An error of the file system, as what it is to a user of mailboxes.
    fn refused(&self, doing: &str, error: io::Error) -> Error {
        refused(doing, self.folders.path(), error).with_mailbox(&self.name)
    }
}

/// 2020-01-01T00:00:00Z.
const ORDER_ORIGIN: u64 = 1_577_836_800_000;

/// The number of what died then; `rest` tells it from others of the same millisecond.
const fn order(unix_millis: u64, rest: u64) -> u64 {
    let millis = unix_millis.saturating_sub(ORDER_ORIGIN);
    (millis & ((1 << 40) - 1)) << 24 | rest & ((1 << 24) - 1)
}

/// When a dead letter with this number died.
pub(crate) const fn died(order: u64) -> Time {
    Time::from_nanos(((order >> 24) + ORDER_ORIGIN) * 1_000_000)
}

/// What tells who was first among those of one moment: how long this machine has been up, which all
/// its processes agree on. Not inbox time, which a test may hold still.
fn stamp() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos) & STAMP_MASK
}

/// An error of the file system, as what it is to a user of mailboxes.
pub(crate) fn refused(doing: &str, path: &std::path::Path, error: io::Error) -> Error {
    use io::ErrorKind as Io;
    let place = path.display();
    let (kind, hint) = match error.kind() {
        Io::StorageFull | Io::QuotaExceeded => {
            (ErrorKind::Saturated, "no space; receiving and acknowledging make some")
        }
        Io::PermissionDenied | Io::ReadOnlyFilesystem => (ErrorKind::Forbidden, "not allowed"),
        Io::CrossesDevices => {
            (ErrorKind::Unsupported, "an inbox must be on one file system as a whole")
        }
        Io::TimedOut => (ErrorKind::Connection, "not available"),
        _ => match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
                (ErrorKind::Saturated, "too many files are open")
            }
            // A link is no folder: nobody follows it to see whether it leads to one.
            Some(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                (ErrorKind::Forbidden, "a link or a file is where a folder should be")
            }
            _ => (ErrorKind::Internal, "the file system failed"),
        },
    };
    let refused = match error.raw_os_error() {
        Some(_) => Error::new(kind, format!("{place}: {doing}: {hint}")).with_source(error),
        // What is said in our own words is said once.
        None => Error::new(kind, format!("{place}: {doing}: {hint}: {error}")),
    };
    if kind == ErrorKind::Saturated { refused.with_field("storage") } else { refused }
}

impl Watcher for Inbox {
    fn appeared(&self, spot: Spot, name: &[u8]) {
        self.note(spot, name, true);
    }

    fn vanished(&self, spot: Spot, name: &[u8]) {
        self.note(spot, name, false);
    }

    fn missed(&self) {
        self.state.lock().is_sure = false;
    }

    fn told(&self) {
        let now = self.now();
        let wakers = self.state.lock().after_change(now);
        wakers.wake();
    }
}

impl Inbox {
    /// Takes note of a file event.
    fn note(&self, spot: Spot, name: &[u8], is_there: bool) {
        let Ok(text) = std::str::from_utf8(name) else {
            return self.note_odd(spot, name, is_there);
        };
        let mut state = self.state.lock();
        if let Some(backlog) = &mut state.backlog {
            if backlog.len() < BACKLOG {
                backlog.push(Told { spot, name: text.into(), is_there });
            } else {
                state.is_sure = false;
            }
        }
        let is_odd = state.apply(spot, text, is_there, self.now(), self.lease());
        drop(state);
        if is_odd {
            self.note_odd(spot, name, is_there);
        }
    }

    fn note_odd(&self, spot: Spot, name: &[u8], is_there: bool) {
        let mut state = self.state.lock();
        if is_there && state.odd.len() < ODD && name.ends_with(b".json") {
            state.odd.push((spot, name.to_vec()));
        }
    }
}

impl State {
    /// Applies a file event; true if it is about a file that is no message.
    fn apply(
        &mut self,
        spot: Spot,
        text: &str,
        is_there: bool,
        now: Time,
        lease: Duration,
    ) -> bool {
        if !is_there {
            self.line.vanish(spot.shelf, text);
            return false;
        }
        match FileName::sort(text) {
            Sort::Message(name) => {
                let turn = match (spot.shelf, name.held) {
                    (Shelf::Processing, Some(held)) => held.until,
                    // A shell took it, just now.
                    (Shelf::Processing, None) => Turn { due: now.after(lease), stamp: stamp() },
                    _ => name.turn_at(now),
                };
                self.line.appear(Seen { spot, name, turn });
                false
            }
            Sort::Foreign => false,
            Sort::Odd => true,
        }
    }

    /// After a change: whom to wake.
    fn after_change(&mut self, now: Time) -> crate::home::waiters::Wakers {
        let next = self.line.next_turn();
        let receivable = !self.is_sure || next.is_some_and(|next| next <= now);
        self.waiters.after_change(now, receivable, next)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if let Some(hub) = &self.hub {
            hub.tidy();
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("path", &self.folders.path()).finish_non_exhaustive()
    }
}
