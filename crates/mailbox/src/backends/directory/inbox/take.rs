//! Taking messages: whoever renames one into `processing/` under a claim of its own has it.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use mailbox_core::{DeadReason, LateSettle, Refusal, Time};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

use super::scan::age_of;
use super::{Inbox, stamp};
use crate::backend::{Delivery, Letter};
use crate::backends::directory::content::{self, Content};
use crate::backends::directory::file_name::{Claim, FileName, Held, SUFFIX, Turn};
use crate::backends::directory::folders::{Moved, Shelf, Spot, file_type, is_full, open_file};
use crate::backends::directory::line::Seen;
use crate::backends::directory::planted::{Bug, claim};
use crate::backends::directory::settings::Settings;
use crate::error::{Error, ErrorKind, Result};
use crate::id::ReceiptHandle;
use crate::timestamp::Timestamp;

/// Messages that one receive buries, or finds taken, before others have their turn.
const STEPS: usize = 256;
/// How long somebody may take to write a file in place: then it is no message.
const HALF_WRITTEN: Duration = Duration::from_secs(5);
/// How long somebody may take to remove the first name of a file that was linked to its place.
const HALF_LINKED: Duration = Duration::from_millis(500);
/// How long a file is left alone that may be being written.
const LATER: Duration = Duration::from_millis(500);

/// What a receive has taken. Gives it back if nobody takes it out.
#[derive(Debug)]
pub(crate) struct Catch {
    inbox: Arc<Inbox>,
    taken: Vec<Taken>,
}

#[derive(Debug)]
struct Taken {
    delivery: Delivery,
    seen: Seen,
}

/// Why a file gives no message.
pub(super) enum Unfit {
    /// It is gone.
    Gone,
    /// It may be being written.
    Young,
    /// It is none.
    Odd(String),
    /// It cannot be read now.
    Unreadable(Error),
}

impl Taken {
    /// Whether this is the same message: as it was taken, or as somebody has put it back since.
    /// Another one may have the same base, if a script chose it.
    fn is(&self, name: &FileName) -> bool {
        let Some(held) = self.seen.name.held else { return false };
        self.seen.name.base() == name.base()
            && (name.held.is_some_and(|other| other.claim == held.claim)
                || name.turn == Some(held.until))
    }
}

impl Catch {
    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Hands over what was taken.
    pub(crate) fn deliver(mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.taken).into_iter().map(|taken| taken.delivery).collect()
    }
}

impl Drop for Catch {
    fn drop(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        if taken.is_empty() {
            return;
        }
        let inbox = Arc::clone(&self.inbox);
        let give_back = move || {
            for Taken { seen, .. } in taken {
                // If that fails its deadline brings it back.
                let _ = inbox.undo(&seen);
            }
        };
        // Whoever drops it may be a task, which must not wait for a disk.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(give_back)),
            Err(_) => give_back(),
        }
    }
}

impl Inbox {
    /// Takes up to `most` messages, without waiting.
    pub(crate) fn take(self: &Arc<Self>, most: usize, timeout: Duration) -> Result<Catch> {
        self.check_open()?;
        if !self.is_intact()? {
            // Whoever waits here would wait in vain.
            self.end(ErrorKind::NotFound);
            self.check_open()?;
        }
        self.refresh()?;
        self.time.note(&self.folders);
        let settings = self.settings()?;
        let mut catch = Catch { inbox: Arc::clone(self), taken: Vec::new() };
        let now = self.now();
        for _ in 0..STEPS + most {
            if catch.taken.len() == most {
                break;
            }
            let next = self.state.lock().line.next(now);
            let Some(next) = next else { break };
            // With a zero timeout it is receivable again at once, but not twice in one receive.
            if catch.taken.iter().any(|taken| taken.is(&next.name)) {
                self.state.lock().line.appear(next);
                break;
            }
            match self.take_one(next, now, timeout, &settings) {
                Ok(taken) => catch.taken.extend(taken),
                Err(_) if !catch.taken.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        if settings.policy.late_settle == LateSettle::Refuse {
            self.put_back_expired(now, &settings)?;
        }
        self.sweep_sometimes(&settings);
        Ok(catch)
    }

    /// Takes one; nothing if it was gone, had to be buried, or is no message.
    fn take_one(
        &self,
        next: Seen,
        now: Time,
        timeout: Duration,
        settings: &Settings,
    ) -> Result<Option<Taken>> {
        let policy = &settings.policy;
        let count = next.count();
        let is_old = |age: Duration| next.name.since().is_some_and(|since| since.after(age) <= now);
        let doom = match policy.max_attempts {
            _ if policy.retention.ready_age.is_some_and(is_old) => Some(DeadReason::Expired),
            Some(most) if count >= most => Some(DeadReason::MaxAttempts),
            _ => None,
        };
        if let Some(reason) = doom {
            self.bury(&next, reason, None, settings)?;
            return Ok(None);
        }
        if !timeout.is_zero() && self.too_many(now, policy.max_in_flight) {
            self.state.lock().line.appear(next);
            let refusal = Refusal::TooManyInFlight {
                max_in_flight: policy.max_in_flight,
                retry_after: Duration::from_secs(1),
            };
            return Err(Error::refused(refusal, &self.name));
        }
        if self.is_unfit(&next, now) {
            return Ok(None);
        }
        let Some(claimed) = self.claim(&next, now, timeout, settings)? else { return Ok(None) };
        match self.read(&claimed) {
            Ok(content) => self.judge(claimed, content, settings),
            Err(Unfit::Gone) => Ok(None),
            Err(Unfit::Young) => {
                let mut later = claimed.name.at_rest();
                later.count -= 1;
                later.turn = Some(self.turn(now.after(LATER)));
                let to = self.spot(Shelf::Incoming, later.base(), settings);
                self.rename(claimed.spot, &claimed.name, to, &later)?;
                Ok(None)
            }
            Err(Unfit::Odd(why)) => {
                self.set_message_aside(&claimed, &why);
                Ok(None)
            }
            Err(Unfit::Unreadable(error)) if error.kind() == ErrorKind::Internal => {
                self.undo_later(&claimed, now, settings);
                Err(error)
            }
            // Not for want of the message: it has not been tried.
            Err(Unfit::Unreadable(error)) => {
                self.undo(&claimed)?;
                Err(error)
            }
        }
    }

    /// Whether a file that a stranger has put there is no message, or none yet. It is read before
    /// its name changes: somebody may be writing to it by that name.
    fn is_unfit(&self, next: &Seen, now: Time) -> bool {
        if next.spot.shelf != Shelf::Incoming || next.name.is_ours() {
            return false;
        }
        match self.read(next) {
            Err(Unfit::Young) => {
                let turn = self.turn(now.after(LATER));
                self.state.lock().line.appear(Seen { turn, ..next.clone() });
                true
            }
            Err(Unfit::Odd(why)) => {
                self.set_message_aside(next, &why);
                true
            }
            _ => false,
        }
    }

    /// Moves what is called like a message and is none out of the way.
    pub(super) fn set_message_aside(&self, seen: &Seen, why: &str) {
        let name = CString::new(seen.name.to_string()).expect("it was a name");
        let plain = format!("{}{SUFFIX}", seen.name.base());
        self.set_aside(seen.spot, &name, plain.as_bytes(), why);
    }

    /// Whether it can be handed out, now that it was read.
    fn judge(&self, claimed: Seen, content: Content, settings: &Settings) -> Result<Option<Taken>> {
        if let Some(damage) = content.damage {
            let id = claimed.name.id();
            tracing::error!(mailbox = %self.name, message = %id, damage, "integrity");
            self.bury(&claimed, DeadReason::Integrity, Some(&damage), settings)?;
            return Ok(None);
        }
        if let Some(own_id) = &content.own_id
            && self.was_twin(&claimed, own_id, &content.letter.payload, settings)
        {
            return Ok(None);
        }
        let count = claimed.name.count.saturating_add(content.attempts_of(&claimed.name));
        if settings.policy.max_attempts.is_some_and(|most| count > most) {
            self.bury(&claimed, DeadReason::MaxAttempts, None, settings)?;
            return Ok(None);
        }
        let claim = claimed.name.held.map_or(Claim(0), |held| held.claim);
        let delivery = Delivery {
            id: claimed.name.id(),
            letter: Arc::new(content.letter),
            receipt_handle: ReceiptHandle::from_text(&claim.to_string()),
            delivery_count: count,
        };
        Ok(Some(Taken { delivery, seen: claimed }))
    }

    fn too_many(&self, now: Time, most: u64) -> bool {
        self.state.lock().line.held(now, most) >= most
    }

    /// Renames a message into `processing/` under a new claim; nothing if somebody was faster.
    fn claim(
        &self,
        next: &Seen,
        now: Time,
        timeout: Duration,
        settings: &Settings,
    ) -> Result<Option<Seen>> {
        let mut name = next.name.at_rest();
        let one_more = u32::from(!self.config.planted.has(Bug::CountForgotten));
        name.count = next.count().saturating_add(one_more);
        if next.spot.shelf == Shelf::Processing {
            name.turn = Some(next.turn);
        }
        if next.is_back() {
            name.entered = Some(now);
        }
        let factor = settings.policy.retention.in_flight_factor;
        let until = Turn { due: now.after(timeout), stamp: stamp() };
        name.held = Some(Held {
            claim: Claim(u128::from_be_bytes(crate::home::random())),
            until,
            timeout,
            hold_until: factor.map(|factor| now.after(timeout.saturating_mul(factor))),
            owner: std::process::id(),
        });
        let mut spot = self.spot(Shelf::Processing, name.base(), settings);
        let claim = |to: Spot| {
            let (from, to) = ((next.spot, &next.name), (to, &name));
            claim(self.config.planted, &self.folders, from, to)
        };
        let mut moved = self.making_room(|| claim(spot));
        if spot.bucket.is_some() && moved.as_ref().is_err_and(is_full) {
            // A new bucket takes more space than a name in the shelf itself.
            spot.bucket = None;
            moved = claim(spot);
        }
        match moved.map_err(|error| self.refused("claiming", error))? {
            Moved::Yes => {
                let claimed = Seen { spot, name, turn: until };
                // Events tell it too, but perhaps not before the next one is taken.
                self.state.lock().line.appear(claimed.clone());
                Ok(Some(claimed))
            }
            Moved::Gone | Moved::Taken => Ok(None),
        }
    }

    /// Reads a message file that is ours to read.
    pub(super) fn read(&self, seen: &Seen) -> std::result::Result<Content, Unfit> {
        read_file(self, seen.spot, &seen.name)
    }

    /// What is in a message's file; `None` if it is gone, or is no message.
    pub(super) fn letter(&self, seen: &Seen) -> Option<(Letter, u32, Option<String>)> {
        let content = self.read(seen).ok()?;
        let attempts = content.attempts_of(&seen.name);
        Some((content.letter, attempts, content.damage))
    }

    /// Gives back what nobody has got: as if it had not been taken (D3, W2).
    pub(super) fn undo(&self, seen: &Seen) -> Result<bool> {
        let settings = self.settings()?;
        let mut name = seen.name.at_rest();
        name.count = name.count.saturating_sub(1);
        let to = self.spot(Shelf::Incoming, name.base(), &settings);
        Ok(self.rename(seen.spot, &seen.name, to, &name)? == Moved::Yes)
    }

    /// Puts a message that cannot be read now behind the others, and counts the attempt: it must
    /// not be in their way for ever.
    fn undo_later(&self, seen: &Seen, now: Time, settings: &Settings) {
        let mut name = seen.name.at_rest();
        name.turn = Some(self.turn(now.after(LATER)));
        let to = self.spot(Shelf::Incoming, name.base(), settings);
        // If that fails its deadline brings it back.
        let _ = self.rename(seen.spot, &seen.name, to, &name);
    }

    /// Puts messages that somebody had for too long back into `incoming/`, where shells see them.
    fn put_back_expired(&self, now: Time, settings: &Settings) -> Result<()> {
        for _ in 0..STEPS {
            let Some(expired) = self.state.lock().line.next_expired(now) else { break };
            let mut name = expired.name.at_rest();
            name.count = expired.count();
            name.turn = Some(expired.turn);
            let to = self.spot(Shelf::Incoming, name.base(), settings);
            self.rename(expired.spot, &expired.name, to, &name)?;
        }
        Ok(())
    }
}

impl Content {
    /// Deliveries that the file speaks of. Who redrives a message has it start anew.
    pub(super) fn attempts_of(&self, name: &FileName) -> u32 {
        if name.entered.is_some() { 0 } else { self.attempts }
    }
}

impl Seen {
    /// Whether somebody has put it into `incoming/` again by hand: then it starts anew.
    fn is_back(&self) -> bool {
        let has_ended = self.name.fate.is_some() || self.name.finished.is_some();
        self.spot.shelf == Shelf::Incoming && has_ended
    }

    /// Deliveries so far: one that a shell took has no mark of it.
    pub(crate) fn count(&self) -> u32 {
        if self.is_back() {
            return 0;
        }
        let by_shell = self.spot.shelf == Shelf::Processing && self.name.held.is_none();
        self.name.count.saturating_add(u32::from(by_shell))
    }
}

fn read_file(inbox: &Inbox, spot: Spot, name: &FileName) -> std::result::Result<Content, Unfit> {
    let unreadable = |error: std::io::Error| Unfit::Unreadable(inbox.refused("reading", error));
    let folder = inbox.folders.at(spot).map_err(unreadable)?.ok_or(Unfit::Gone)?;
    let text = CString::new(name.to_string()).expect("it was a name");
    let fd = match open_file(folder.as_fd(), &text) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Err(Unfit::Gone),
        Err(Errno::LOOP) => return Err(Unfit::Odd("it is a link".to_owned())),
        Err(Errno::ACCESS | Errno::PERM) => {
            return Err(Unfit::Odd("it must not be read by this user".to_owned()));
        }
        Err(Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP) => {
            return Err(Unfit::Odd("it is no file".to_owned()));
        }
        Err(error) => return Err(unreadable(error.into())),
    };
    let found = fstat(&fd).map_err(|error| unreadable(error.into()))?;
    let len_max = content::longest(inbox.config.max_payload);
    let len = u64::try_from(found.st_size).unwrap_or(u64::MAX);
    if file_type(&found) != FileType::RegularFile {
        return Err(Unfit::Odd("it is no file".to_owned()));
    }
    if found.st_nlink > 1 {
        // Some writers link a file to where it belongs, and then remove its first name.
        let is_new = age_of(found.st_ctime, found.st_ctime_nsec) < HALF_LINKED;
        let why = || Unfit::Odd("it has other names too".to_owned());
        return Err(if is_new { Unfit::Young } else { why() });
    }
    if !inbox.folders.trust().allows(&found) {
        return Err(Unfit::Odd("it belongs to another user".to_owned()));
    }
    if len > len_max {
        return Err(Unfit::Odd(format!("it has {len} bytes, at most {len_max} are read")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0).saturating_add(1));
    let mut file = File::from(fd).take(len_max + 1);
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    let sent = match name.sent() {
        Some(sent) => Timestamp::from_unix_millis(
            i64::try_from(sent.as_nanos() / 1_000_000).unwrap_or(i64::MAX),
        ),
        None => Timestamp::from_unix_millis(found.st_mtime.saturating_mul(1000)),
    };
    // While somebody writes to it its time is the present: one from the future was set.
    let is_young = || {
        let ahead = found.st_mtime.saturating_sub(Timestamp::now().as_unix_millis() / 1000);
        let is_past = ahead <= HALF_WRITTEN.as_secs().cast_signed();
        is_past && age_of(found.st_mtime, found.st_mtime_nsec) < HALF_WRITTEN
    };
    match content::read(&bytes, sent) {
        Ok(content) if content.letter.payload.len() > inbox.config.max_payload => {
            let len = content.letter.payload.len();
            Err(Unfit::Odd(format!("its payload has {len} bytes, too many here")))
        }
        Ok(content) => Ok(content),
        Err(_) if is_young() => Err(Unfit::Young),
        Err(why) => Err(Unfit::Odd(why)),
    }
}
