//! One at a time, over all processes: for what a rename alone cannot decide. Held for a few file
//! operations, never while waiting for anything else; the system frees it when its holder dies.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FlockOperation, OFlags, ResolveFlags, flock, openat2};
use rustix::io::Errno;

use crate::backends::directory::folders::{Folders, PRIVATE_FILE};

/// The file that is locked.
const FILE: &str = ".lock";
/// How long a holder may take: it may have been stopped.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// The lock of an inbox.
#[derive(Debug)]
pub(crate) struct Lock {
    file: OwnedFd,
    // The file's lock is the process's: threads need one of their own.
    threads: Mutex<()>,
}

/// Lets go when it is dropped.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    lock: &'a Lock,
    _threads: MutexGuard<'a, ()>,
}

impl Lock {
    /// The lock of this inbox; not taken.
    pub(crate) fn open(folders: &Folders) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let file = openat2(folders.root(), FILE, flags, PRIVATE_FILE, resolve)?;
        // Only its owner can; whoever made it has done so.
        let _ = folders.trust().share(&file);
        Ok(Self { file, threads: Mutex::new(()) })
    }

    /// Takes it.
    ///
    /// # Errors
    /// `TimedOut` if somebody has it for longer than anybody should.
    pub(crate) fn take(&self) -> io::Result<Locked<'_>> {
        let deadline = Instant::now() + PATIENCE;
        let held_too_long = || {
            let why = "another process holds the inbox's lock for too long; is it stopped?";
            io::Error::new(io::ErrorKind::TimedOut, why)
        };
        let threads = self.threads.try_lock_for(PATIENCE).ok_or_else(held_too_long)?;
        let mut pause = Duration::from_micros(100);
        loop {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Locked { lock: self, _threads: threads }),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE);
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(held_too_long()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It fails only for a descriptor that is none.
        let _ = flock(&self.lock.file, FlockOperation::Unlock);
    }
}
