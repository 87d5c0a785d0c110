//! What can be done about dead letters.

use std::collections::BTreeMap;

use mailbox_core::DeadReason;
use rustix::fs::{AtFlags, statat};

use super::{Inbox, order};
use crate::backend::Selection;
use crate::backends::directory::folders::{Moved, Shelf};
use crate::backends::directory::line::Seen;
use crate::backends::directory::notes;
use crate::error::{Error, ErrorKind, Result};

/// Dead letters that are handled between two syncs.
const STEPS: usize = 256;

impl Inbox {
    /// Puts dead letters back in line; how many (X3).
    pub(crate) fn redrive(&self, which: &Selection) -> Result<u64> {
        self.check_open()?;
        self.each_dead(which, |inbox, seen| inbox.redrive_one(seen))
    }

    /// Deletes dead letters; how many (X3).
    pub(crate) fn delete_dead(&self, which: &Selection) -> Result<u64> {
        self.check_open()?;
        self.each_dead(which, |inbox, seen| inbox.forget(seen))
    }

    fn each_dead(
        &self,
        which: &Selection,
        act: impl Fn(&Self, &Seen) -> Result<bool>,
    ) -> Result<u64> {
        let (mut done, mut stopped) = (0, None);
        let mut spots = Vec::new();
        for seen in self.select(which)? {
            match act(self, &seen) {
                Ok(is_ours) => {
                    done += u64::from(is_ours);
                    spots.extend([seen.spot]);
                    if spots.len() >= STEPS {
                        self.sync(&mut spots)?;
                    }
                }
                Err(error) => {
                    stopped = Some(error);
                    break;
                }
            }
        }
        self.sync(&mut spots)?;
        self.tell_own();
        match stopped {
            // The count tells how far it got; the rest is still there.
            Some(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }

    fn redrive_one(&self, seen: &Seen) -> Result<bool> {
        let settings = self.settings()?;
        let _alone = match settings.policy.max_size {
            None => None,
            Some(_) => {
                let alone = self.lock.take();
                let alone = alone.map_err(|error| self.refused("redriving", error))?;
                self.check_room(&settings, &alone)?;
                Some(alone)
            }
        };
        let now = self.now();
        let mut name = seen.name.at_rest();
        name.note = None;
        (name.count, name.entered, name.turn) = (0, Some(now), Some(self.turn(now)));
        let to = self.spot(Shelf::Incoming, name.base(), &settings);
        let is_ours = self.rename(seen.spot, &seen.name, to, &name)? == Moved::Yes;
        if is_ours {
            notes::remove(&self.folders, &seen.name);
            self.sync(&mut vec![to])?;
        }
        Ok(is_ours)
    }

    /// Every dead letter, in order of dying.
    pub(super) fn dead(&self) -> Result<BTreeMap<(u64, Box<str>), Seen>> {
        let mut all = BTreeMap::new();
        let looked = self.visit_messages(Shelf::DeadLetter, |seen| {
            all.insert((self.order_of(&seen), seen.name.base().into()), seen);
            Ok(true)
        });
        looked.map_err(|error| self.refused("looking", error))?;
        Ok(all)
    }

    /// Its number among the dead letters. One that somebody put there by hand died when it was put
    /// there.
    pub(super) fn order_of(&self, seen: &Seen) -> u64 {
        if let Some(fate) = seen.name.fate {
            return fate.order;
        }
        let name = seen.name.to_string();
        let found = match self.folders.at(seen.spot) {
            Ok(Some(folder)) => statat(&folder, &*name, AtFlags::SYMLINK_NOFOLLOW).ok(),
            _ => None,
        };
        let millis = found.map_or(0, |found| {
            u64::try_from(found.st_ctime).unwrap_or(0) * 1000 + found.st_ctime_nsec / 1_000_000
        });
        let hash = u64::from_le_bytes(
            blake3::hash(name.as_bytes()).as_bytes()[..8].try_into().expect("eight bytes"),
        );
        order(millis, hash)
    }

    fn select(&self, which: &Selection) -> Result<Vec<Seen>> {
        let all = self.dead()?.into_values();
        Ok(match which {
            Selection::All => all.collect(),
            Selection::Oldest(most) => {
                all.take(usize::try_from(*most).unwrap_or(usize::MAX)).collect()
            }
            Selection::Reason(reason) => all
                // Somebody who puts a file there by hand rejects it.
                .filter(|seen| {
                    let fate = seen.name.fate;
                    fate.map_or(DeadReason::Rejected, |fate| fate.reason) == *reason
                })
                .collect(),
            Selection::These(ids) => {
                let mut by_id: BTreeMap<_, _> = all.map(|seen| (seen.name.id(), seen)).collect();
                let missing = ids.iter().find(|id| !by_id.contains_key(*id));
                if let Some(id) = missing {
                    let message = format!("no dead letter {id:.100}");
                    return Err(Error::new(ErrorKind::NotFound, message).with_mailbox(&self.name));
                }
                ids.iter().filter_map(|id| by_id.remove(id)).collect()
            }
        })
    }
}
