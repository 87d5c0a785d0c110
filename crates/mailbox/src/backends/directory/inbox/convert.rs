//! Changing how an inbox is laid out while it is in use. Messages are looked for in every folder
//! there may be, so one that has not been moved yet is not lost, and a conversion that was cut
//! short is finished by the next one.

use std::sync::Arc;

use super::Inbox;
use crate::backends::directory::folders::{BUCKETS, Moved, Shelf, Spot};
use crate::backends::directory::line::Seen;
use crate::backends::directory::report::InboxSettings;
use crate::backends::directory::settings::{Settings, Span};
use crate::error::Result;

/// How often the folders are looked through: others may put back what they took before.
const PASSES: u32 = 3;
/// Messages that are moved between two syncs.
const STEPS: usize = 4096;

impl Inbox {
    /// Makes it what it is to be; whether it was different.
    pub(crate) fn prepare(&self, wanted: &InboxSettings) -> Result<bool> {
        self.check_open()?;
        if wanted.sharded == Some(true) {
            let made = self.folders.make_buckets();
            made.map_err(|error| self.refused("making folders", error))?;
        }
        let is_different = self.change_settings(|settings| change(settings, wanted))?;
        let moved = if wanted.sharded.is_some() { self.reshard(&self.settings()?)? } else { 0 };
        if wanted.sharded == Some(false) {
            // Those that are not empty stay, and are looked into.
            self.folders.remove_buckets();
        }
        Ok(is_different || moved > 0)
    }

    /// Moves every message to the folder where it belongs; how many were elsewhere.
    pub(super) fn reshard(&self, settings: &Arc<Settings>) -> Result<u64> {
        let mut moved = 0;
        for _ in 0..PASSES {
            let before = moved;
            for shelf in Shelf::ALL {
                moved += self.reshard_shelf(shelf, settings)?;
            }
            if moved == before {
                break;
            }
        }
        Ok(moved)
    }

    fn reshard_shelf(&self, shelf: Shelf, settings: &Settings) -> Result<u64> {
        let mut all = 0;
        loop {
            let strays = self.strays(shelf, settings)?;
            let mut moved = 0;
            let mut spots: Vec<Spot> = Vec::new();
            for Seen { spot, name, .. } in &strays {
                let to = self.spot(shelf, name.base(), settings);
                // Whoever took it in the meantime puts it where it belongs.
                moved += u64::from(self.rename(*spot, name, to, name)? == Moved::Yes);
                spots.extend([*spot, to]);
            }
            self.sync(&mut spots)?;
            all += moved;
            if strays.len() < STEPS || moved == 0 {
                return Ok(all);
            }
        }
    }

    /// Messages of a shelf that are not where they belong: the first of them.
    fn strays(&self, shelf: Shelf, settings: &Settings) -> Result<Vec<Seen>> {
        let mut strays = Vec::new();
        let looked = self.visit_messages(shelf, |seen| {
            // What a shell has stays where that looks for it.
            let is_shells = shelf == Shelf::Processing
                && seen.name.held.is_none()
                && seen.turn.due > self.now();
            if !is_shells && seen.spot != self.spot(shelf, seen.name.base(), settings) {
                strays.push(seen);
            }
            Ok(strays.len() < STEPS)
        });
        looked.map_err(|error| self.refused("looking", error))?;
        Ok(strays)
    }
}

fn change(settings: &mut Settings, wanted: &InboxSettings) {
    let InboxSettings { sharded, shell_lease, done_age, done_count, acks, policy } = wanted;
    if let Some(sharded) = sharded {
        settings.shards = if *sharded { BUCKETS } else { 0 };
    }
    settings.shell_lease = shell_lease.map_or(settings.shell_lease, Span);
    settings.done_age = done_age.map_or(settings.done_age, Span);
    settings.done_count = done_count.unwrap_or(settings.done_count);
    settings.acks = acks.unwrap_or(settings.acks);
    if let Some(policy) = policy {
        settings.policy = policy.clone();
    }
}
