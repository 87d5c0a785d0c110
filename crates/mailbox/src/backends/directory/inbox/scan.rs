//! Looking into the folders: the truth, where events are a hint.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsFd;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mailbox_core::Time;
use rustix::fs::{AtFlags, FileType, Mode, Stat, fchmod, fstat, statat};
use rustix::io::Errno;

use super::{Inbox, ODD, OddFile, State, stamp};
use crate::backends::directory::file_name::{FileName, SUFFIX, Sort, Turn};
use crate::backends::directory::folders::{
    Handle, Moved, Shelf, Side, Spot, file_type, open_file, rename, visit, visit_numbered,
};
use crate::backends::directory::line::{Line, Seen};
use crate::backends::directory::watch::Watcher;
use crate::error::Result;

/// How long a look is good where events say what happens since.
const RESCAN: Duration = Duration::from_millis(750);
/// How long a look takes at most of the time of those who wait: a huge folder is looked at less.
const SHARE: u32 = 20;
/// Names that a file that was set aside may get, if there are others of its own.
const SPELLINGS: u32 = 1000;

impl Inbox {
    /// Brings the line up to date: what was told, and a look if that is not enough.
    pub(super) fn refresh(&self) -> Result<()> {
        if let Some(hub) = &self.hub {
            hub.tell();
        }
        if self.needs_look() {
            self.look()?;
        }
        self.set_odd_aside();
        Ok(())
    }

    /// How long until somebody has to look again, events or not.
    pub(crate) fn look_again_in(&self) -> Duration {
        let state = self.state.lock();
        match state.looked {
            Some(looked) => (RESCAN.max(state.look_took * SHARE)).saturating_sub(looked.elapsed()),
            None => Duration::ZERO,
        }
    }

    fn needs_look(&self) -> bool {
        let state = self.state.lock();
        let is_old = state
            .looked
            .is_none_or(|looked| looked.elapsed() >= RESCAN.max(state.look_took * SHARE));
        let is_blind = !self.sees_events() && state.line.next_turn().is_none();
        !state.is_sure || is_old || is_blind || state.line.is_used_up()
    }

    /// Looks at every file that waits, or that somebody has.
    pub(super) fn look(&self) -> Result<()> {
        let asked = Instant::now();
        let _looking = self.looking.lock();
        // Somebody may have looked in the meantime.
        if self.state.lock().looked.is_some_and(|looked| looked >= asked) {
            return Ok(());
        }
        {
            let mut state = self.state.lock();
            state.backlog = Some(Vec::new());
            state.is_sure = true;
        }
        let looked = self.read_line();
        let mut state = self.state.lock();
        let backlog = state.backlog.take().unwrap_or_default();
        let (line, odd) = match looked {
            Ok(found) => found,
            Err(error) => {
                state.is_sure = false;
                drop(state);
                return Err(self.refused("looking", error));
            }
        };
        state.line = line;
        state.looked = Some(asked);
        state.look_took = asked.elapsed();
        let (now, lease) = (self.now(), self.lease());
        for told in backlog {
            state.apply(told.spot, &told.name, told.is_there, now, lease);
        }
        let space = ODD.saturating_sub(state.odd.len());
        state.odd.extend(odd.into_iter().take(space));
        Ok(())
    }

    fn read_line(&self) -> io::Result<(Line, Vec<OddFile>)> {
        let (mut line, mut odd) = (Line::default(), Vec::new());
        for shelf in [Shelf::Incoming, Shelf::Processing] {
            for spot in self.folders.spots(shelf)? {
                self.watch(spot)?;
                self.visit(spot, |name, kind| {
                    match sort(name, kind) {
                        Sort::Message(message) => {
                            let turn = self.turn_of(spot, name, &message)?;
                            line.appear(Seen { spot, name: message, turn });
                        }
                        Sort::Odd if odd.len() < ODD => odd.push((spot, name.to_bytes().to_vec())),
                        Sort::Odd | Sort::Foreign => {}
                    }
                    Ok(true)
                })?;
            }
        }
        Ok((line, odd))
    }

    /// Visits every file of a spot.
    pub(super) fn visit(
        &self,
        spot: Spot,
        each: impl FnMut(&CStr, FileType) -> io::Result<bool>,
    ) -> io::Result<()> {
        match self.folders.at(spot)? {
            Some(folder) => visit(folder.as_fd(), each),
            None => Ok(()),
        }
    }

    /// Visits every message of a shelf, until it is told to stop.
    pub(super) fn visit_messages(
        &self,
        shelf: Shelf,
        mut each: impl FnMut(Seen) -> io::Result<bool>,
    ) -> io::Result<()> {
        self.visit_numbered_messages(shelf, |_, seen| each(seen))
    }

    /// The same, with the number of each file: a rename does not change it.
    pub(super) fn visit_numbered_messages(
        &self,
        shelf: Shelf,
        mut each: impl FnMut(u64, Seen) -> io::Result<bool>,
    ) -> io::Result<()> {
        let mut goes_on = true;
        for spot in self.folders.spots(shelf)? {
            let Some(folder) = self.folders.at(spot)? else { continue };
            visit_numbered(folder.as_fd(), |name, kind, number| {
                if let Sort::Message(message) = sort(name, kind) {
                    let turn = self.turn_of(spot, name, &message)?;
                    goes_on = each(number, Seen { spot, name: message, turn })?;
                }
                Ok(goes_on)
            })?;
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// The turn of a message that was found.
    fn turn_of(&self, spot: Spot, name: &CStr, message: &FileName) -> io::Result<Turn> {
        let now = self.now();
        let known = || self.state.lock().line.turn_of(spot.shelf, &message.to_string());
        match (spot.shelf, message.held) {
            (Shelf::Processing, Some(held)) => Ok(held.until),
            // Whoever saw the shell take it knows better than a clock that may have been set.
            (Shelf::Processing, None) if self.sees_events() => match known() {
                Some(turn) => Ok(turn),
                None => self.shell_lease(spot, name, now),
            },
            (Shelf::Processing, None) => self.shell_lease(spot, name, now),
            _ if message.turn.is_some() || message.sent().is_some() => Ok(message.turn_at(now)),
            // Without a time in its name it keeps the place it got when it was first seen.
            _ => Ok(known().unwrap_or_else(|| message.turn_at(now))),
        }
    }

    /// When a shell that took a message with `mv` has had it for long enough: a rename changes the
    /// file's ctime, which nobody can set but to the present.
    fn shell_lease(&self, spot: Spot, name: &CStr, now: Time) -> io::Result<Turn> {
        let Some(folder) = self.folders.at(spot)? else {
            return Ok(Turn { due: now, stamp: 0 });
        };
        let age = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => {
                match age_of(found.st_ctime, found.st_ctime_nsec) {
                    // It lies ahead: this machine's clock was set back, or is not the one that the
                    // file system goes by.
                    Duration::ZERO => self.age_there(&folder, name, &found),
                    age => age,
                }
            }
            Err(Errno::NOENT) => Duration::ZERO,
            Err(error) => return Err(error.into()),
        };
        let taken = Time::from_nanos(now.as_nanos().saturating_sub(nanos(age)));
        Ok(Turn { due: taken.after(self.lease()), stamp: stamp() })
    }

    /// The age of a claim by the clock of the file system. Where even that was set back, the claim
    /// becomes one of now: it lasts for one more lease, and not until the clock is there again.
    fn age_there(&self, folder: &Handle<'_>, name: &CStr, found: &Stat) -> Duration {
        let since = |found: &Stat| {
            let seconds = u64::try_from(found.st_ctime).unwrap_or(0);
            Duration::new(seconds, u32::try_from(found.st_ctime_nsec).unwrap_or(0).min(999_999_999))
        };
        let Some(now) = self.time.touch(&self.folders) else { return Duration::ZERO };
        if since(&now) >= since(found) {
            return since(&now) - since(found);
        }
        // By descriptor, so that no link is followed. The mode stays what it was.
        if let Ok(file) = open_file(folder.as_fd(), name)
            && let Ok(there) = fstat(&file)
            && file_type(&there) == FileType::RegularFile
        {
            let _ = fchmod(&file, Mode::from_raw_mode(there.st_mode));
        }
        Duration::ZERO
    }

    /// Has itself told what happens in a folder, where there are events.
    fn watch(&self, spot: Spot) -> io::Result<()> {
        let (Some(hub), Some(folder)) = (&self.hub, self.folders.at(spot)?) else { return Ok(()) };
        let me: Weak<dyn Watcher> = Weak::<Self>::clone(&self.me);
        if let Err(error) = hub.watch(folder.as_fd(), spot, me)
            && !self.is_blind.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(mailbox = %self.name, %error, "no file events: looking instead");
        }
        Ok(())
    }

    /// Whether everything that happens in the folders is told.
    pub(super) fn sees_events(&self) -> bool {
        self.hub.is_some() && !self.is_blind.load(Ordering::Relaxed)
    }

    /// Moves files that are no messages out of the way: never followed, never deleted.
    fn set_odd_aside(&self) {
        let odd = std::mem::take(&mut self.state.lock().odd);
        for (spot, name) in odd {
            let Ok(name) = CString::new(name) else { continue };
            let why = "its name or kind is not one that a message has";
            self.set_aside(spot, &name, name.to_bytes(), why);
        }
    }

    /// Moves a file that is no message out of the way, to `aside/` under its plain name.
    pub(super) fn set_aside(&self, spot: Spot, name: &CStr, plain: &[u8], why: &str) {
        let shown = name.to_string_lossy();
        match self.try_set_aside(spot, name, plain) {
            Ok(()) => {
                tracing::warn!(mailbox = %self.name, file = %shown, why, "set aside");
            }
            Err(error) => {
                tracing::warn!(mailbox = %self.name, file = %shown, why, %error, "not set aside");
            }
        }
    }

    fn try_set_aside(&self, spot: Spot, name: &CStr, plain: &[u8]) -> io::Result<()> {
        let Some(folder) = self.folders.at(spot)? else { return Ok(()) };
        let aside = self.folders.side(Side::Aside);
        for spelling in 0..SPELLINGS {
            let mut target = plain.to_vec();
            if spelling > 0 {
                // As long as a name may be, and told apart at its end.
                target.truncate(240);
                target.extend(format!(".{spelling}").into_bytes());
            }
            let target = CString::new(target).expect("it was a name");
            match rename(folder.as_fd(), name, aside, &*target)? {
                Moved::Yes | Moved::Gone => return Ok(()),
                Moved::Taken => {}
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// What a directory entry is: only regular files are messages.
pub(super) fn sort(name: &CStr, kind: FileType) -> Sort {
    let is_file = matches!(kind, FileType::RegularFile | FileType::Unknown);
    match name.to_str() {
        Ok(text) if is_file => FileName::sort(text),
        Ok(text) if kind == FileType::Directory || !text.ends_with(SUFFIX) => Sort::Foreign,
        Err(_) if kind == FileType::Directory => Sort::Foreign,
        Err(_) if !name.to_bytes().ends_with(SUFFIX.as_bytes()) => Sort::Foreign,
        Ok(_) | Err(_) => Sort::Odd,
    }
}

/// How long ago that was by the wall clock; nothing if it lies in the future.
pub(super) fn age_of(seconds: i64, nanos: impl TryInto<u32>) -> Duration {
    let since = Duration::new(
        u64::try_from(seconds).unwrap_or(0),
        nanos.try_into().unwrap_or(0).min(999_999_999),
    );
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().saturating_sub(since)
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl State {
    /// Nothing known yet.
    pub(super) fn new() -> Self {
        Self {
            line: Line::default(),
            waiters: crate::home::waiters::Waiters::default(),
            ended: None,
            looked: None,
            look_took: Duration::ZERO,
            is_sure: false,
            backlog: None,
            odd: Vec::new(),
            done: 0,
            swept: None,
        }
    }
}
