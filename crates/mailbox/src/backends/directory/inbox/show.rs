//! Looking at messages without receiving them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mailbox_core::{DeadReason, Phase, Time, Totals};
use rustix::fs::FileType;

use super::scan::sort;
use super::{Inbox, died};
use crate::backend::{Death, Peek, Record, Stats};
use crate::backends::directory::counts;
use crate::backends::directory::file_name::Sort;
use crate::backends::directory::folders::{Shelf, Side, visit};
use crate::backends::directory::line::Seen;
use crate::backends::directory::notes;
use crate::error::Result;
use crate::timestamp::Timestamp;

impl Inbox {
    /// Counts: by looking, so that they are exact.
    pub(crate) fn stats(&self) -> Result<Stats> {
        self.check_open()?;
        self.retire()?;
        let now = self.now();
        let failed = |error| self.refused("counting", error);
        let mut stats = Stats { durability: self.config.durability, ..Stats::default() };
        // By number, and once more what others may have taken meanwhile: each is counted once.
        let mut live: HashMap<u64, (Phase, Time)> = HashMap::new();
        for shelf in [Shelf::Processing, Shelf::Incoming, Shelf::Processing] {
            let counted = self.visit_numbered_messages(shelf, |number, seen| {
                let since = seen.name.since().unwrap_or(seen.turn.due).min(now);
                live.insert(number, (phase(&seen, now), since));
                Ok(true)
            });
            counted.map_err(failed)?;
        }
        let of = |which: Phase| live.values().filter(|(phase, _)| *phase == which).count() as u64;
        (stats.delayed, stats.invisible) = (of(Phase::Delayed), of(Phase::Invisible));
        stats.ready = live.len() as u64 - stats.delayed - stats.invisible;
        let oldest = live.values().map(|(_, since)| *since).min();
        let counted = self.visit_messages(Shelf::DeadLetter, |_| {
            stats.dead += 1;
            Ok(true)
        });
        counted.map_err(failed)?;
        stats.set_aside = self.no_messages().map_err(failed)?;
        stats.oldest_age = oldest.map(|oldest| now.since(oldest));
        stats.waiters = self.state.lock().waiters.len() as u64;
        let alone = self.lock.take().map_err(failed)?;
        let keys = self.keys.lock().count(&self.folders, &alone, now);
        stats.dedup_entries = keys.map_err(failed)?;
        let (purged, retention_dropped) = counts::read(&self.folders).map_err(failed)?;
        stats.totals = Totals { purged, retention_dropped, ..Totals::default() };
        Ok(stats)
    }

    /// How many files are no messages: those that were set aside, and those that lie where
    /// messages come in and are called something else.
    fn no_messages(&self) -> io::Result<u64> {
        let mut count = 0;
        visit(self.folders.side(Side::Aside), |_, _| {
            count += 1;
            Ok(true)
        })?;
        for spot in self.folders.spots(Shelf::Incoming)? {
            self.visit(spot, |name, kind| {
                let is_hidden = name.to_bytes().starts_with(b".");
                let is_strange = kind != FileType::Directory && sort(name, kind) == Sort::Foreign;
                count += u64::from(is_strange && !is_hidden);
                Ok(true)
            })?;
        }
        Ok(count)
    }

    /// Shows messages without receiving them.
    pub(crate) fn peek(&self, request: &Peek) -> Result<Vec<Record>> {
        self.check_open()?;
        self.retire()?;
        let found = match request {
            Peek::Live { limit } => self.first_live(*limit as usize)?,
            Peek::Dead { after, limit } => {
                // Those that cannot be read must not fill the page: it would look like the last.
                let behind = |order: u64| after.is_none_or(|after| order > after);
                let all = self.dead()?.into_iter().filter(|((order, _), _)| behind(*order));
                let shown = all.filter_map(|(_, seen)| self.record(&seen));
                return Ok(shown.take(*limit as usize).collect());
            }
            Peek::These(ids) => {
                let mut by_id = BTreeMap::new();
                for shelf in [Shelf::Incoming, Shelf::Processing, Shelf::DeadLetter] {
                    let looked = self.visit_messages(shelf, |seen| {
                        let id = seen.name.id();
                        if ids.contains(&id) {
                            by_id.insert(id, seen);
                        }
                        Ok(true)
                    });
                    looked.map_err(|error| self.refused("looking", error))?;
                }
                ids.iter().filter_map(|id| by_id.get(id).cloned()).collect()
            }
        };
        Ok(found.iter().filter_map(|seen| self.record(seen)).collect())
    }

    /// The oldest that are alive, by when they came into the line.
    fn first_live(&self, limit: usize) -> Result<Vec<Seen>> {
        let mut first: BTreeMap<(Time, u64, Box<str>), Seen> = BTreeMap::new();
        for shelf in [Shelf::Incoming, Shelf::Processing] {
            let looked = self.visit_messages(shelf, |seen| {
                let since = seen.name.since().unwrap_or(Time::ZERO);
                let stamp = seen.name.stamp();
                first.insert((since, stamp, seen.name.to_string().into()), seen);
                if first.len() > limit {
                    first.pop_last();
                }
                Ok(true)
            });
            looked.map_err(|error| self.refused("looking", error))?;
        }
        Ok(first.into_values().collect())
    }

    /// A message as others see it; nothing if it is gone, or none.
    fn record(&self, seen: &Seen) -> Option<Record> {
        let (letter, attempts, damage) = self.letter(seen)?;
        let now = self.now();
        let phase = phase(seen, now);
        let death = (phase == Phase::Dead).then(|| {
            let fate = seen.name.fate;
            let order = self.order_of(seen);
            Death {
                // Somebody who puts a file there by hand rejects it.
                reason: fate.map_or(DeadReason::Rejected, |fate| fate.reason),
                // By inbox time, which began as wall time: every process says the same, every time.
                at: Timestamp::from_unix_millis(
                    i64::try_from(died(order).as_nanos() / 1_000_000).unwrap_or(i64::MAX),
                ),
                order,
            }
        });
        let receivable_in = match phase {
            Phase::Delayed | Phase::Invisible => seen.turn.due.since(now),
            _ => Duration::ZERO,
        };
        Some(Record {
            id: seen.name.id(),
            letter: Arc::new(letter),
            phase,
            delivery_count: seen.count().saturating_add(attempts),
            receivable_in,
            last_error: damage.or_else(|| notes::read(&self.folders, &seen.name)),
            death,
        })
    }
}

fn phase(seen: &Seen, now: Time) -> Phase {
    match seen.spot.shelf {
        Shelf::DeadLetter => Phase::Dead,
        Shelf::Processing if seen.turn.due > now => Phase::Invisible,
        Shelf::Incoming if seen.turn.due > now => Phase::Delayed,
        _ => Phase::Ready,
    }
}
