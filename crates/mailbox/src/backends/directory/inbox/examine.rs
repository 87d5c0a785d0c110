//! What a doctor does: reads every message of an inbox and says what is wrong with it; puts right
//! what can be put right, if asked. Nothing is deleted but what belongs to nobody.

use std::collections::BTreeSet;
use std::io;

use mailbox_core::DeadReason;
use rustix::fs::FileType;

use super::scan::sort;
use super::take::Unfit;
use super::{Inbox, ODD};
use crate::backends::directory::file_name::{SUFFIX, Sort};
use crate::backends::directory::folders::{Shelf, Side, Spot, remove, visit};
use crate::backends::directory::line::Seen;
use crate::backends::directory::notes;
use crate::backends::directory::report::InboxReport;
use crate::backends::directory::settings::Settings;
use crate::error::Result;

impl Inbox {
    /// Looks at everything; puts right what it can if that `is_wanted`, and says what is left.
    pub(crate) fn examine(&self, is_wanted: bool) -> Result<InboxReport> {
        self.check_open()?;
        let found = self.look_at_all(is_wanted)?;
        if !is_wanted || found.sound {
            return Ok(found);
        }
        let repaired = found.repaired;
        Ok(InboxReport { repaired, ..self.look_at_all(false)? })
    }

    fn look_at_all(&self, is_wanted: bool) -> Result<InboxReport> {
        let failed = |error| self.refused("looking", error);
        let settings = self.settings()?;
        let path = self.folders.path().to_owned();
        let mut report =
            InboxReport { path, sound: true, shards: settings.shards, ..InboxReport::default() };
        // Notes first: whoever is dying now writes its note before it changes its name.
        let mut orphans = self.all_notes().map_err(failed)?;
        let mut strays = 0_u64;
        for shelf in Shelf::ALL {
            let mut all = Vec::new();
            let looked = self.visit_messages(shelf, |seen| {
                all.push(seen);
                Ok(true)
            });
            looked.map_err(failed)?;
            for seen in &all {
                if let Some(note) = notes::name_of(&seen.name) {
                    orphans.remove(&note);
                }
                // In a sharded inbox a shell may have put it there; in a flat one none sees it.
                strays += u64::from(seen.spot.bucket.is_some() && !settings.is_sharded());
                self.examine_one(seen, is_wanted, &settings, &mut report)?;
            }
            *count_of(&mut report, shelf) = all.len() as u64;
        }
        self.examine_odd(is_wanted, &mut report).map_err(failed)?;
        self.count_others(&mut report).map_err(failed)?;
        self.examine_notes(&orphans, is_wanted, &mut report).map_err(failed)?;
        if strays > 0 {
            let what = format!("{strays} messages are in buckets, and there should be none");
            report.add("inbox.json".to_owned(), what);
            if is_wanted {
                report.repaired += self.reshard(&settings)?;
            }
        }
        Ok(report)
    }

    fn examine_one(
        &self,
        seen: &Seen,
        is_wanted: bool,
        settings: &Settings,
        report: &mut InboxReport,
    ) -> Result<()> {
        let (is_message, why) = match self.read(seen) {
            Ok(content) => match content.damage {
                // A dead letter that died of it has been told of.
                Some(_) if seen.spot.shelf == Shelf::DeadLetter => return Ok(()),
                Some(damage) => (true, damage),
                None => return Ok(()),
            },
            Err(Unfit::Gone | Unfit::Young) => return Ok(()),
            Err(Unfit::Odd(why)) => (false, why),
            Err(Unfit::Unreadable(error)) => {
                report.add(shown(seen), error.to_string());
                return Ok(());
            }
        };
        report.add(shown(seen), why.clone());
        let is_held = seen.spot.shelf == Shelf::Processing && seen.turn.due > self.now();
        if !is_wanted || is_held {
            return Ok(());
        }
        if is_message {
            report.repaired +=
                u64::from(self.bury(seen, DeadReason::Integrity, Some(&why), settings)?);
        } else {
            self.set_message_aside(seen, &why);
            report.repaired += 1;
        }
        Ok(())
    }

    /// Files that are called like messages and cannot be any: links, pipes, odd names, folders.
    fn examine_odd(&self, is_wanted: bool, report: &mut InboxReport) -> io::Result<()> {
        for shelf in [Shelf::Incoming, Shelf::Processing] {
            for spot in self.folders.spots(shelf)? {
                let mut odd = Vec::new();
                self.visit(spot, |name, kind| {
                    let is_message = name.to_bytes().ends_with(SUFFIX.as_bytes());
                    let is_folder = kind == FileType::Directory && is_message;
                    if is_folder || sort(name, kind) == Sort::Odd {
                        odd.push(name.to_owned());
                    }
                    Ok(odd.len() < ODD)
                })?;
                for name in odd {
                    let shown = name.to_string_lossy();
                    let why = "its name or kind is not one that a message has";
                    report.add(format!("{}/{shown}", shelf.name()), why);
                    if is_wanted {
                        self.set_aside(spot, &name, name.to_bytes(), why);
                        report.repaired += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn all_notes(&self) -> io::Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        visit(self.folders.side(Side::Notes), |name, kind| {
            if kind != FileType::Directory {
                all.extend(name.to_str().map(str::to_owned));
            }
            Ok(true)
        })?;
        Ok(all)
    }

    fn count_others(&self, report: &mut InboxReport) -> io::Result<()> {
        visit(self.folders.side(Side::Aside), |_, _| {
            report.set_aside += 1;
            Ok(true)
        })?;
        visit(self.folders.side(Side::Tmp), |_, _| {
            report.unfinished += 1;
            Ok(true)
        })?;
        let mut foreign = Vec::new();
        for spot in self.folders.spots(Shelf::Incoming)? {
            self.visit(spot, |name, kind| {
                let is_hidden = name.to_bytes().starts_with(b".");
                let is_foreign = kind != FileType::Directory && sort(name, kind) == Sort::Foreign;
                if is_foreign && !is_hidden {
                    report.foreign += 1;
                    foreign.push(name.to_string_lossy().into_owned());
                    foreign.truncate(10);
                }
                Ok(true)
            })?;
        }
        for name in foreign {
            let what = "is not called .json, so it is no message; rename it, or take it away";
            report.add(format!("incoming/{name}"), what);
        }
        Ok(())
    }

    fn examine_notes(
        &self,
        orphans: &BTreeSet<String>,
        is_wanted: bool,
        report: &mut InboxReport,
    ) -> io::Result<()> {
        if orphans.is_empty() {
            return Ok(());
        }
        let what = format!("{} notes belong to no message", orphans.len());
        report.add("notes".to_owned(), what);
        for name in orphans.iter().filter(|_| is_wanted) {
            report.repaired += u64::from(remove(self.folders.side(Side::Notes), name)?);
        }
        Ok(())
    }
}

const fn count_of(report: &mut InboxReport, shelf: Shelf) -> &mut u64 {
    match shelf {
        Shelf::Incoming => &mut report.incoming,
        Shelf::Processing => &mut report.processing,
        Shelf::Done => &mut report.done,
        Shelf::DeadLetter => &mut report.dead,
    }
}

fn shown(seen: &Seen) -> String {
    let Spot { shelf, bucket } = seen.spot;
    match bucket {
        Some(bucket) => format!("{}/{bucket:02x}/{}", shelf.name(), seen.name),
        None => format!("{}/{}", shelf.name(), seen.name),
    }
}
