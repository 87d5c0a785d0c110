//! Inbox time: what deadlines are reckoned in. Every process of one boot of a machine reads the
//! same, because they share an anchor: the wall time that one of them saw, and how long the machine
//! had been up then. From there on it goes with the machine's own clock, so that stepping the wall
//! clock moves no deadline (V6).
//!
//! Invariant: inbox time never goes back, not even over boots: a new anchor lies behind everything
//! that the inbox has seen. What that is, the names of messages say, and a note that is written
//! once a second by whoever uses the inbox.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mailbox_core::Time;
use rustix::fs::{AtFlags, OFlags, ResolveFlags, Stat, openat2, statat};

use crate::backends::directory::file_name::ABSURD;
use crate::backends::directory::folders::{
    Folders, PRIVATE_FILE, Side, create_file, open_file, remove,
};
use crate::backends::directory::lock::Locked;
use crate::home::clock::{Clock, Mark};
use crate::timestamp::Timestamp;

/// Largest anchor that is read.
const LEN_MAX: usize = 64;
/// The latest moment that anybody has seen: twenty digits and a newline.
const NOTE: &str = "latest";
const NOTE_LEN: usize = 21;
/// How long nobody notes it again, in nanoseconds.
const NOTED_EVERY: u64 = 1_000_000_000;
/// Anchors of other boots that are kept: other machines may share the folder.
const KEPT: usize = 16;

/// The clock of an inbox.
#[derive(Debug, Clone)]
pub(crate) struct InboxClock {
    clock: Clock,
    anchor: Anchor,
    /// What was noted last, in nanoseconds of inbox time.
    noted: Arc<AtomicU64>,
}

/// A moment in inbox time, and in the time of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Anchor {
    time: u64,
    at: u64,
}

impl InboxClock {
    /// The clock of this inbox, as it was set by whoever came first in this boot. `seen` is the
    /// latest moment that there is any trace of; it is asked for if nobody came before.
    pub(crate) fn open(
        clock: &Clock,
        folders: &Folders,
        _alone: &Locked<'_>,
        seen: impl FnOnce() -> io::Result<Time>,
    ) -> io::Result<Self> {
        let mark = clock.mark();
        let file = boot_name(&mark);
        if let Some(anchor) = read(folders, &file)? {
            return Ok(Self::new(clock, anchor));
        }
        let wall = clock.wall_at(clock.now()).as_unix_millis();
        let wall = u64::try_from(wall).unwrap_or(0).saturating_mul(1_000_000);
        let seen = seen()?.as_nanos().max(read_note(folders));
        let anchor = Anchor { time: wall.max(seen), at: mark.at };
        write(folders, &file, anchor)?;
        Ok(Self::new(clock, anchor))
    }

    fn new(clock: &Clock, anchor: Anchor) -> Self {
        Self { clock: clock.clone(), anchor, noted: Arc::default() }
    }

    /// Notes the present; gives what the file system says about the note, and so its own time.
    pub(crate) fn touch(&self, folders: &Folders) -> Option<Stat> {
        write_note(folders, self.now().as_nanos()).ok()?;
        statat(folders.side(Side::Clock), NOTE, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Notes the present, if that was not done for a while. Not synced: a power cut forgets
    /// seconds, and names of messages tell most of them.
    pub(crate) fn note(&self, folders: &Folders) {
        let (now, noted) = (self.now().as_nanos(), self.noted.load(Ordering::Relaxed));
        if now < noted.saturating_add(NOTED_EVERY) {
            return;
        }
        self.noted.store(now, Ordering::Relaxed);
        if let Err(error) = write_note(folders, now) {
            tracing::debug!(%error, "the time was not noted");
        }
    }

    /// The present.
    pub(crate) fn now(&self) -> Time {
        let passed = self.clock.mark().at.saturating_sub(self.anchor.at);
        Time::from_nanos(self.anchor.time.saturating_add(passed))
    }

    /// The present, by the wall clock: for people.
    pub(crate) fn wall(&self) -> Timestamp {
        self.clock.wall_at(self.clock.now())
    }

    /// Where waiting is reckoned.
    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// What the anchor of this boot is called. In another time namespace the machine has been up for
/// another time, so it has an anchor of its own.
fn boot_name(mark: &Mark) -> String {
    let boot = u128::from_be_bytes(mark.boot);
    match rustix::fs::stat("/proc/self/ns/time") {
        Ok(namespace) => format!("{boot:032x}-{}", namespace.st_ino),
        Err(_) => format!("{boot:032x}"),
    }
}

fn read(folders: &Folders, file: &str) -> io::Result<Option<Anchor>> {
    let name = std::ffi::CString::new(file).expect("hex digits");
    let fd = match open_file(folders.side(Side::Clock), &name) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = [0; LEN_MAX];
    let len = rustix::io::read(&fd, &mut bytes[..])?;
    let text = std::str::from_utf8(&bytes[..len]).unwrap_or_default();
    let anchor = text
        .trim_end()
        .split_once(' ')
        .and_then(|(time, at)| Some(Anchor { time: time.parse().ok()?, at: at.parse().ok()? }));
    // Half of one: its writer died. Nobody has gone by it, because it is written under the lock.
    if anchor.is_none() {
        remove(folders.side(Side::Clock), file)?;
    }
    Ok(anchor)
}

fn write(folders: &Folders, file: &str, anchor: Anchor) -> io::Result<()> {
    forget_others(folders)?;
    let fd = create_file(folders.side(Side::Clock), file, folders.trust())?;
    // Not synced: after a power cut there is another boot, with an anchor of its own.
    let text = format!("{} {}\n", anchor.time, anchor.at);
    let written = rustix::io::write(&fd, text.as_bytes())?;
    if written == text.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// The latest moment that was noted; nothing if there is no note that makes sense.
fn read_note(folders: &Folders) -> u64 {
    let mut bytes = [0; NOTE_LEN];
    let len = open_file(folders.side(Side::Clock), c"latest")
        .and_then(|file| rustix::io::read(&file, &mut bytes[..]));
    let text = len.ok().and_then(|len| std::str::from_utf8(bytes.get(..len)?).ok());
    let noted = text.and_then(|text| text.trim_end().parse().ok());
    noted.filter(|time| *time < ABSURD).unwrap_or(0)
}

/// In one write of always the same length, so that nobody reads half of it.
fn write_note(folders: &Folders, now: u64) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = openat2(folders.side(Side::Clock), NOTE, flags, PRIVATE_FILE, resolve)?;
    // Only its owner can; whoever made it has done so.
    let _ = folders.trust().share(&file);
    rustix::io::write(&file, format!("{now:020}\n").as_bytes())?;
    Ok(())
}

/// Keeps the anchors few: the oldest go.
fn forget_others(folders: &Folders) -> io::Result<()> {
    let clock = folders.side(Side::Clock);
    let mut anchors = Vec::new();
    crate::backends::directory::folders::visit(clock, |name, _| {
        if let (Ok(text), Ok(found)) =
            (name.to_str(), statat(clock, name, AtFlags::SYMLINK_NOFOLLOW))
            && text != NOTE
        {
            anchors.push((found.st_mtime, text.to_owned()));
        }
        Ok(anchors.len() < 10 * KEPT)
    })?;
    anchors.sort_unstable();
    let most = anchors.len().saturating_sub(KEPT);
    for (_, name) in &anchors[..most] {
        remove(clock, name)?;
    }
    Ok(())
}
