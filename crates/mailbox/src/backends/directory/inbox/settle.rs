//! Settling: whoever knows the claim in a message's name decides about it, until its deadline.

use mailbox_core::{LateSettle, Refusal, Stale, Time, Verdict};

use super::{Inbox, stamp};
use crate::backend::Settlement;
use crate::backends::directory::file_name::{Claim, Held, Turn};
use crate::backends::directory::folders::{Moved, Shelf, Side, Spot, create_file};
use crate::backends::directory::line::Seen;
use crate::backends::directory::notes;
use crate::backends::directory::planted::Bug;
use crate::backends::directory::settings::Settings;
use crate::durability::{Durability, Settling};
use crate::error::{Error, ErrorKind, Result};

/// How often a message is looked for that was renamed while it was being settled.
const TRIES: u32 = 3;

impl Inbox {
    /// Settles a batch; one sync of each folder for all of it.
    pub(crate) fn settle(&self, batch: Vec<Result<Settlement>>) -> Result<Vec<Result<()>>> {
        self.check_open()?;
        let settings = self.settings()?;
        self.time.note(&self.folders);
        if let Some(hub) = &self.hub {
            hub.tell();
        }
        let mut spots = Vec::new();
        let mut results: Vec<Result<()>> = batch
            .into_iter()
            .map(|settlement| {
                settlement.and_then(|settlement| self.settle_one(settlement, &settings, &mut spots))
            })
            .collect();
        if self.config.settle == Settling::Durable
            && !self.config.planted.has(Bug::AckNotSynced)
            && let Err(error) = self.sync(&mut spots)
        {
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = Err(error.clone());
            }
        }
        self.tell_own();
        self.sweep_sometimes(&settings);
        Ok(results)
    }

    fn settle_one(
        &self,
        settlement: Settlement,
        settings: &Settings,
        spots: &mut Vec<Spot>,
    ) -> Result<()> {
        let stale = |why| Error::refused(Refusal::Stale(why), &self.name);
        let text = settlement.receipt_handle.to_string();
        let claim = Claim::parse(&text).ok_or_else(|| stale(Stale::Superseded))?;
        for attempt in 0..TRIES {
            let hint = if attempt == 0 { self.hint(claim, settings) } else { None };
            let found = match hint {
                Some(found) => found,
                None => match self.find(claim)? {
                    Some(found) => found,
                    // Whoever is renamed while a folder is read may be passed over.
                    None if attempt == 0 => continue,
                    None => break,
                },
            };
            let (Some(held), now) = (found.name.held, self.now()) else { break };
            if is_over(held, now, settings) {
                return Err(stale(Stale::Expired));
            }
            if self.carry_out(&found, held, &settlement.verdict, now, settings, spots)? {
                return Ok(());
            }
        }
        Err(stale(Stale::Superseded))
    }

    /// The delivery with this claim, if it is known and not over. Nothing is refused because of
    /// what is only known: somebody may have extended it.
    fn hint(&self, claim: Claim, settings: &Settings) -> Option<Seen> {
        let state = self.state.lock();
        let known = state.line.claimed(claim).filter(|_| state.is_sure);
        known.filter(|seen| seen.name.held.is_some_and(|held| !is_over(held, self.now(), settings)))
    }

    /// Looks for the delivery with this claim.
    fn find(&self, claim: Claim) -> Result<Option<Seen>> {
        let mut found = None;
        let looked = self.visit_messages(Shelf::Processing, |seen| {
            if seen.name.held.is_some_and(|held| held.claim == claim) {
                found = Some(seen);
            }
            Ok(found.is_none())
        });
        looked.map_err(|error| self.refused("looking", error))?;
        Ok(found)
    }

    /// Does what was decided; false if the message has another name by now, or is gone.
    fn carry_out(
        &self,
        seen: &Seen,
        held: Held,
        verdict: &Verdict,
        now: Time,
        settings: &Settings,
        spots: &mut Vec<Spot>,
    ) -> Result<bool> {
        match verdict {
            Verdict::Acknowledge => self.acknowledge(seen, now, settings, spots),
            Verdict::Nack { delay, error } => {
                let turn = Turn { due: now.after(*delay), stamp: stamp() };
                self.nack(seen, turn, error.as_deref(), settings)
            }
            Verdict::Extend { timeout } => {
                let until = Turn { due: now.after(*timeout), stamp: stamp() };
                if let Some(hold_until) = held.hold_until.filter(|hold| until.due > *hold) {
                    let refusal = Refusal::HeldTooLong { at_most: hold_until.since(now) };
                    return Err(Error::refused(refusal, &self.name));
                }
                let mut name = seen.name.clone();
                name.held = Some(Held { until, timeout: *timeout, ..held });
                Ok(self.rename(seen.spot, &seen.name, seen.spot, &name)? == Moved::Yes)
            }
            Verdict::Reject { reason, error } => {
                self.bury(seen, *reason, error.as_deref(), settings)
            }
            Verdict::Return => self.undo(seen),
        }
    }

    fn acknowledge(
        &self,
        seen: &Seen,
        now: Time,
        settings: &Settings,
        spots: &mut Vec<Spot>,
    ) -> Result<bool> {
        if self.config.planted.has(Bug::AckNotWritten) {
            return Ok(true);
        }
        let mut is_kept = !settings.done_age.0.is_zero() && settings.done_count > 0;
        let mut is_ours = false;
        if is_kept {
            let mut done = seen.name.at_rest();
            done.finished = Some(now);
            let to = self.spot(Shelf::Done, done.base(), settings);
            match self.rename(seen.spot, &seen.name, to, &done) {
                // There is no space to keep it; without it there is more.
                Err(error) if error.kind() == ErrorKind::Saturated => is_kept = false,
                moved => is_ours = moved? == Moved::Yes,
            }
        }
        if !is_kept {
            let removed = self.folders.remove(seen.spot, &seen.name);
            is_ours = removed.map_err(|error| self.refused("removing", error))?;
        }
        if !is_ours {
            return Ok(false);
        }
        spots.push(seen.spot);
        if !is_kept {
            notes::remove(&self.folders, &seen.name);
        }
        if settings.acks {
            self.confirm(seen);
        }
        self.state.lock().done += 1;
        Ok(true)
    }

    /// Leaves a sign for a sender who looks for it.
    fn confirm(&self, seen: &Seen) {
        let id = seen.name.id().to_string();
        match create_file(self.folders.side(Side::Acks), &id, self.folders.trust()) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                tracing::warn!(mailbox = %self.name, message = id, %error, "no file in acks/");
            }
            _ => {}
        }
    }

    fn nack(
        &self,
        seen: &Seen,
        turn: Turn,
        error: Option<&str>,
        settings: &Settings,
    ) -> Result<bool> {
        let mut name = seen.name.at_rest();
        name.turn = Some(turn);
        if let Some(error) = error {
            let note = notes::write(&self.folders, name.base(), error, Durability::OsBuffered);
            name.note = note.map_err(|error| self.refused("writing a note", error))?;
        }
        let to = self.spot(Shelf::Incoming, name.base(), settings);
        let is_ours = self.rename(seen.spot, &seen.name, to, &name)? == Moved::Yes;
        if error.is_some() {
            notes::remove(&self.folders, if is_ours { &seen.name } else { &name });
        }
        Ok(is_ours)
    }
}

/// Whether it is too late to settle a delivery (V4).
fn is_over(held: Held, now: Time, settings: &Settings) -> bool {
    held.until.due <= now && settings.policy.late_settle == LateSettle::Refuse
}
