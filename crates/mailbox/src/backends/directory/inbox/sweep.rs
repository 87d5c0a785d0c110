//! Clearing away what has to go: what retention is over for, what is done, what was given up. Done
//! by whoever receives or settles, now and then; several who do it at once are harmless, because
//! every step is one rename or removal that only one of them makes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mailbox_core::{DeadReason, Time};
use rustix::fs::{
    AtFlags, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW, futimens, openat2, statat,
};

use super::scan::age_of;
use super::{Inbox, died};
use crate::backends::directory::folders::{PRIVATE_FILE, Shelf, Side, remove, visit};
use crate::backends::directory::line::Seen;
use crate::backends::directory::notes;
use crate::backends::directory::settings::Settings;
use crate::error::Result;

/// How long nobody clears away again, unless much has happened.
const REST: Duration = Duration::from_secs(10);
/// Acknowledgements after which `done/` is tidied in any case.
const DONE: u32 = 1000;
/// What is in `.tmp/` for so long was given up by its writer.
const ABANDONED: Duration = Duration::from_secs(36 * 3600);
/// How long senders have at least to look for an acknowledgement.
const ACKS: Duration = Duration::from_secs(24 * 3600);
/// Its age is when somebody last cleared away.
const FILE: &str = ".swept";

impl Inbox {
    /// Clears away, if it is time. What fails is tried again next time: nobody waits for it.
    pub(super) fn sweep_sometimes(&self, settings: &Settings) {
        let is_much = {
            let mut state = self.state.lock();
            let is_much = state.done >= DONE;
            if !is_much && state.swept.is_some_and(|swept| swept.elapsed() < REST) {
                return;
            }
            state.swept = Some(Instant::now());
            state.done = 0;
            is_much
        };
        if !is_much && !self.is_unswept() {
            return;
        }
        let swept = self.retire().and_then(|()| self.tidy_done(settings));
        if let Err(error) = swept {
            tracing::warn!(mailbox = %self.name, %error, "cannot clear away");
        }
        // A key may lead to what is there for as long as it is remembered.
        self.clear_old(Side::Tmp, ABANDONED.max(settings.policy.replay_window * 2));
        self.clear_old(Side::Acks, settings.done_age.0.max(ACKS));
    }

    /// Whether it is some time since any process has cleared away; if so, it is this one's turn.
    fn is_unswept(&self) -> bool {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let root = self.folders.root();
        if let Ok(found) = statat(root, FILE, AtFlags::SYMLINK_NOFOLLOW) {
            let age = age_of(found.st_mtime, found.st_mtime_nsec);
            // A time in the future was written by another clock.
            if age < REST && !age.is_zero() {
                return false;
            }
        }
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let marked = openat2(root, FILE, flags, PRIVATE_FILE, resolve).and_then(|file| {
            // Only its owner can; whoever made it has done so.
            let _ = self.folders.trust().share(&file);
            futimens(file, &times)
        });
        if let Err(error) = marked {
            tracing::debug!(mailbox = %self.name, %error, "no mark of clearing away");
        }
        true
    }

    /// Does what retention asks for (X5), where it asks for anything.
    pub(super) fn retire(&self) -> Result<()> {
        let settings = self.settings()?;
        let retention = &settings.policy.retention;
        let now = self.now();
        // First, because these become dead letters.
        if retention.ready_age.is_some() || retention.ready_count.is_some() {
            self.retire_live(now, &settings)?;
        }
        if retention.dead_age.is_some() || retention.dead_count.is_some() {
            let dead = self.dead()?;
            let over = retention.dead_count.map_or(0, |most| {
                dead.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX))
            });
            let mut dropped = 0;
            for (place, ((order, _), seen)) in dead.iter().enumerate() {
                let is_old = retention.dead_age.is_some_and(|age| died(*order).after(age) <= now);
                if place < over || is_old {
                    dropped += u64::from(self.forget(seen)?);
                }
            }
            self.count(0, dropped)?;
        }
        Ok(())
    }

    fn retire_live(&self, now: Time, settings: &Settings) -> Result<()> {
        let retention = &settings.policy.retention;
        let mut live = BTreeMap::new();
        for shelf in [Shelf::Incoming, Shelf::Processing] {
            let looked = self.visit_messages(shelf, |seen| {
                let since = seen.name.since().unwrap_or(seen.turn.due);
                live.insert((since, seen.name.stamp(), Box::<str>::from(seen.name.base())), seen);
                Ok(true)
            });
            looked.map_err(|error| self.refused("looking", error))?;
        }
        let mut over = retention.ready_count.map_or(0, |most| {
            live.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX))
        });
        for ((since, ..), seen) in live {
            // Retention waits for one that somebody has, also for those behind it.
            if seen.spot.shelf == Shelf::Processing && seen.turn.due > now {
                break;
            }
            let is_old = retention.ready_age.is_some_and(|age| since.after(age) <= now);
            if over == 0 && !is_old {
                break;
            }
            over = over.saturating_sub(1);
            self.bury(&seen, DeadReason::Expired, None, settings)?;
        }
        Ok(())
    }

    /// Removes a dead letter, or one that is done, with its note; false if it was not there.
    pub(super) fn forget(&self, seen: &Seen) -> Result<bool> {
        let removed = self.folders.remove(seen.spot, &seen.name);
        let is_ours = removed.map_err(|error| self.refused("deleting", error))?;
        if is_ours {
            notes::remove(&self.folders, &seen.name);
        }
        Ok(is_ours)
    }

    /// Removes the older half of what is done, because the space is needed; false if there is none.
    pub(super) fn drop_done(&self) -> bool {
        let dropped = self.done().and_then(|done| {
            let half = done.len().div_ceil(2);
            let dropped: Result<Vec<bool>> =
                done.values().take(half).map(|seen| self.forget(seen)).collect();
            dropped.map(|dropped| !dropped.is_empty())
        });
        dropped.unwrap_or_else(|error| {
            tracing::warn!(mailbox = %self.name, %error, "cannot make space");
            false
        })
    }

    fn tidy_done(&self, settings: &Settings) -> Result<()> {
        let (now, done) = (self.now(), self.done()?);
        let most = usize::try_from(settings.done_count).unwrap_or(usize::MAX);
        let over = done.len().saturating_sub(most);
        for (place, ((finished, _), seen)) in done.iter().enumerate() {
            if place < over || finished.after(settings.done_age.0) <= now {
                self.forget(seen)?;
            }
        }
        Ok(())
    }

    /// What is done, in order of its end.
    fn done(&self) -> Result<BTreeMap<(Time, Box<str>), Seen>> {
        let now = self.now();
        let mut done = BTreeMap::new();
        let looked = self.visit_messages(Shelf::Done, |seen| {
            // One that a shell put there has the age of its message, or none.
            let finished = seen.name.finished.or_else(|| seen.name.sent()).unwrap_or(now);
            done.insert((finished, Box::<str>::from(seen.name.base())), seen);
            Ok(true)
        });
        looked.map_err(|error| self.refused("looking", error))?;
        Ok(done)
    }

    /// Removes what nobody can need any more.
    fn clear_old(&self, side: Side, most: Duration) {
        let folder = self.folders.side(side);
        let cleared = visit(folder, |name, _| {
            if let Ok(found) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                && age_of(found.st_mtime, found.st_mtime_nsec) > most
                && age_of(found.st_ctime, found.st_ctime_nsec) > most
                && let Ok(text) = name.to_str()
                && let Err(error) = remove(folder, text)
            {
                tracing::debug!(mailbox = %self.name, %error, file = text, "stays");
            }
            Ok(true)
        });
        if let Err(error) = cleared {
            let folder = side.name();
            tracing::debug!(mailbox = %self.name, %error, folder, "cannot be cleared");
        }
    }
}
