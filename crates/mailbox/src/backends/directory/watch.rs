//! File events: one inotify descriptor and one thread for the whole process. A hint, never the
//! truth: whoever depends on it is told when something may have been missed, and looks.
//!
//! Events are also read by whoever is about to take a message, before it does: the kernel puts an
//! event in line before the rename that caused it returns, so what was sent before is seen.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::backends::directory::folders::Spot;

/// Bytes of events that are read at a time.
const BUFFER_LEN: usize = 64 * 1024;
/// Events that are told at a time; others are told next time.
const MOST: usize = 1 << 16;
/// How long the thread waits until it looks whether anybody needs it.
const REST: Duration = Duration::from_secs(1);

/// Who wants to know.
pub(crate) trait Watcher: Send + Sync {
    /// Something with this name is there now.
    fn appeared(&self, spot: Spot, name: &[u8]);
    /// Nothing with this name is there any more.
    fn vanished(&self, spot: Spot, name: &[u8]);
    /// Anything may have happened.
    fn missed(&self);
    /// Everything that was read has been told.
    fn told(&self);
}

/// The process's events.
pub(crate) struct Hub {
    inotify: OwnedFd,
    // Held while reading and telling, so that events are told in their order.
    routes: Mutex<HashMap<i32, Vec<Route>>>,
}

struct Route {
    watcher: Weak<dyn Watcher>,
    spot: Spot,
}

/// What happens in a folder that says anything about messages, and what says that it is gone.
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

static HUB: Mutex<Weak<Hub>> = Mutex::new(Weak::new());

impl Hub {
    /// The hub of this process, started if it is not there.
    ///
    /// # Errors
    /// The system has no more descriptors for events, or no threads.
    pub(crate) fn get() -> io::Result<Arc<Self>> {
        let mut hub = HUB.lock();
        if let Some(hub) = hub.upgrade() {
            return Ok(hub);
        }
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let new = Arc::new(Self { inotify, routes: Mutex::default() });
        let weak = Arc::downgrade(&new);
        std::thread::Builder::new()
            .name("mailbox-events".to_owned())
            .spawn(move || keep_telling(&weak))?;
        *hub = Arc::downgrade(&new);
        Ok(new)
    }

    /// Tells `watcher` what happens in a folder from now on.
    ///
    /// # Errors
    /// The system watches as many folders as it can.
    pub(crate) fn watch(
        &self,
        folder: BorrowedFd<'_>,
        spot: Spot,
        watcher: Weak<dyn Watcher>,
    ) -> io::Result<()> {
        // A folder is watched by path; this one leads to the descriptor and nowhere else.
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        let mut routes = self.routes.lock();
        let number = inotify::add_watch(&self.inotify, path, EVENTS)?;
        // Two inboxes of this process may be the same folder: then they share a number.
        let here = routes.entry(number).or_default();
        here.retain(|route| route.watcher.strong_count() > 0);
        if !here.iter().any(|route| Weak::ptr_eq(&route.watcher, &watcher) && route.spot == spot) {
            here.push(Route { watcher, spot });
        }
        Ok(())
    }

    /// Forgets watchers that are gone.
    pub(crate) fn tidy(&self) {
        let mut routes = self.routes.lock();
        routes.retain(|number, here| {
            here.retain(|route| route.watcher.strong_count() > 0);
            if here.is_empty() {
                // It may be gone by itself, with its folder.
                let _ = inotify::remove_watch(&self.inotify, *number);
            }
            !here.is_empty()
        });
    }

    /// Tells everybody what has happened so far.
    pub(crate) fn tell(&self) {
        let mut told: Vec<Arc<dyn Watcher>> = Vec::new();
        {
            let routes = self.routes.lock();
            let mut buffer = vec![MaybeUninit::uninit(); BUFFER_LEN];
            let mut events = Reader::new(&self.inotify, &mut buffer);
            for _ in 0..MOST {
                let event = match events.next() {
                    Ok(event) => event,
                    Err(Errno::INTR) => continue,
                    Err(Errno::WOULDBLOCK) => break,
                    Err(_) => {
                        each(&routes, None, &mut told, |watcher, _| watcher.missed());
                        break;
                    }
                };
                tell_one(&routes, &event, &mut told);
            }
        }
        for watcher in told {
            watcher.told();
        }
    }
}

fn tell_one(
    routes: &HashMap<i32, Vec<Route>>,
    event: &inotify::Event<'_>,
    told: &mut Vec<Arc<dyn Watcher>>,
) {
    let flags = event.events();
    if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
        return each(routes, None, told, |watcher, _| watcher.missed());
    }
    let number = Some(event.wd());
    let unsure = ReadFlags::DELETE_SELF
        | ReadFlags::MOVE_SELF
        | ReadFlags::UNMOUNT
        | ReadFlags::IGNORED
        | ReadFlags::ISDIR;
    let Some(name) = event.file_name().filter(|_| !flags.intersects(unsure)) else {
        // A new bucket, or a folder that is gone.
        return each(routes, number, told, |watcher, _| watcher.missed());
    };
    let is_there = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
    each(routes, number, told, |watcher, spot| match is_there {
        true => watcher.appeared(spot, name.to_bytes()),
        false => watcher.vanished(spot, name.to_bytes()),
    });
}

/// Tells all that a folder has, or all there are, and notes whom.
fn each(
    routes: &HashMap<i32, Vec<Route>>,
    number: Option<i32>,
    told: &mut Vec<Arc<dyn Watcher>>,
    tell: impl Fn(&dyn Watcher, Spot),
) {
    let all = routes.iter().filter(|(here, _)| number.is_none_or(|number| number == **here));
    for route in all.flat_map(|(_, routes)| routes) {
        let Some(watcher) = route.watcher.upgrade() else { continue };
        tell(&*watcher, route.spot);
        if !told.iter().any(|known| Arc::ptr_eq(known, &watcher)) {
            told.push(watcher);
        }
    }
}

/// The thread: waits for events as long as anybody has the hub.
fn keep_telling(hub: &Weak<Hub>) {
    let rest = Timespec { tv_sec: REST.as_secs().cast_signed(), tv_nsec: 0 };
    while let Some(hub) = hub.upgrade() {
        let mut fds = [PollFd::new(&hub.inotify, PollFlags::IN)];
        match poll(&mut fds, Some(&rest)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => hub.tell(),
            // It cannot be waited for: those who depend on it look by themselves.
            Err(_) => return,
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("inotify", &self.inotify.as_fd()).finish_non_exhaustive()
    }
}
