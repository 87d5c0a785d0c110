//! Sending: a file is written where nobody looks, synced, and renamed to where everybody does.
//! Without the first sync a power cut would leave an empty message; without the one of the folder,
//! none at all.

use std::fs::File;
use std::io::Write;

use mailbox_core::{Refusal, Time};

use super::{Inbox, stamp};
use crate::backend::{Outgoing, Sent};
use crate::backends::directory::content::{self, Postmark};
use crate::backends::directory::file_name::{FileName, Turn, compose_ulid};
use crate::backends::directory::folders::{Moved, Shelf, Side, Spot, create_file, rename};
use crate::backends::directory::keys::{self, New, Verdict};
use crate::backends::directory::lock::Locked;
use crate::backends::directory::planted::Bug;
use crate::backends::directory::settings::Settings;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::id::MessageId;

use std::os::fd::AsFd;

/// How often a message is renamed to a folder that goes away.
const TRIES: u32 = 3;

/// A message that is ready to be renamed.
struct Draft {
    name: FileName,
    id: MessageId,
    bytes: Vec<u8>,
    at: Time,
}

impl Inbox {
    /// Sends a batch, in order; one sync of each folder for all of it.
    pub(crate) fn send(&self, batch: Vec<Result<Outgoing>>) -> Result<Vec<Result<Sent>>> {
        self.check_open()?;
        let settings = self.settings()?;
        let mut spots = Vec::new();
        let mut results: Vec<Result<Sent>> = batch
            .into_iter()
            .map(|message| {
                message.and_then(|message| self.send_one(&message, &settings, &mut spots))
            })
            .collect();
        if let Err(error) = self.sync_sent(&mut spots) {
            // Whether they are kept is open: nobody was told that they are.
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = Err(error.clone());
            }
        }
        self.tell_own();
        Ok(results)
    }

    fn send_one(
        &self,
        message: &Outgoing,
        settings: &Settings,
        spots: &mut Vec<Spot>,
    ) -> Result<Sent> {
        let draft = self.draft(message)?;
        let failed = |error| self.sending_failed(error);
        if message.idempotency_key.is_none() && settings.policy.max_size.is_none() {
            self.write(&draft).map_err(failed)?;
            return self.put_in_line_or_not(&draft, settings, spots);
        }
        let alone = self.lock.take().map_err(failed)?;
        let Some(key) = message.idempotency_key.as_deref() else {
            self.check_room(settings, &alone)?;
            self.write(&draft).map_err(failed)?;
            return self.put_in_line_or_not(&draft, settings, spots);
        };
        self.send_keyed(key, &draft, message, settings, spots, &alone)
    }

    fn send_keyed(
        &self,
        key: &str,
        draft: &Draft,
        message: &Outgoing,
        settings: &Settings,
        spots: &mut Vec<Spot>,
        alone: &Locked<'_>,
    ) -> Result<Sent> {
        let failed = |error| self.sending_failed(error);
        let payload = blake3::hash(&message.payload);
        let policy = &settings.policy;
        let mut keys = self.keys.lock();
        let known = keys.check(&self.folders, alone, draft.at, key, &payload, policy);
        match known.map_err(failed)?.map_err(|refusal| Error::refused(refusal, &self.name))? {
            Verdict::Duplicate(first) => {
                self.finish(&first, settings, spots)?;
                Ok(Sent::new(first.id(), true))
            }
            Verdict::New => {
                self.check_room(settings, alone)?;
                self.write(draft).map_err(failed)?;
                if self.config.durability == Durability::Fsync {
                    let tmp = self.folders.side(Side::Tmp);
                    rustix::fs::fsync(tmp).map_err(|error| failed(error.into()))?;
                }
                let name = &draft.name;
                let new = New { now: draft.at, key, payload: &payload, name, policy };
                let added = keys.add(&self.folders, alone, new, self.config.durability);
                // Its line may be there or not: the draft stays for whoever finds it.
                added.map_err(failed)?;
                self.put_in_line(draft, settings, spots)
            }
        }
    }

    /// Does the last step of a send whose sender died before it.
    fn finish(&self, name: &FileName, settings: &Settings, spots: &mut Vec<Spot>) -> Result<()> {
        let base = name.base();
        if !keys::is_unfinished(&self.folders, base) {
            // Whoever did it may not have synced the folder yet, or have died before.
            spots.push(self.spot(Shelf::Incoming, base, settings));
            return Ok(());
        }
        self.rename_in(base, name, settings, spots).map(|_| ())
    }

    fn draft(&self, message: &Outgoing) -> Result<Draft> {
        let (now, wall, stamp) = (self.now(), self.time.wall(), stamp());
        let millis = u64::try_from(wall.as_unix_millis()).unwrap_or(0);
        let random = u64::from_be_bytes(crate::home::random());
        let id = MessageId::from(mailbox_core::Id(compose_ulid(millis, stamp, random)));
        let (seconds, nanos) = (now.as_nanos() / 1_000_000_000, now.as_nanos() % 1_000_000_000);
        let base = format!("{seconds}.{nanos:09}-{}-{id}", self.config.sender);
        let mut name = FileName::new(&base).expect("the sender was checked");
        if !message.delay.is_zero() {
            name.turn = Some(Turn { due: now.after(message.delay), stamp });
        }
        let text = id.to_string();
        let mark = Postmark { id: &text, topic: &self.name, sender: &self.config.sender, at: wall };
        let bytes = content::write(message, mark)?;
        Ok(Draft { name, id, bytes, at: now })
    }

    /// Writes a message where nobody looks.
    fn write(&self, draft: &Draft) -> std::io::Result<()> {
        self.making_room(|| self.try_write(draft))
    }

    fn try_write(&self, draft: &Draft) -> std::io::Result<()> {
        let mut file = File::from(create_file(
            self.folders.side(Side::Tmp),
            draft.name.base(),
            self.folders.trust(),
        )?);
        let written = file.write_all(&draft.bytes).and_then(|()| {
            let is_synced = self.config.durability == Durability::Fsync
                && !self.config.planted.has(Bug::FileNotSynced);
            if is_synced { file.sync_data() } else { Ok(()) }
        });
        if written.is_err() {
            // A full disk must not fill further with halves of messages.
            let tmp = self.folders.side(Side::Tmp);
            let _ = crate::backends::directory::folders::remove(tmp, draft.name.base());
        }
        written
    }

    fn put_in_line(
        &self,
        draft: &Draft,
        settings: &Settings,
        spots: &mut Vec<Spot>,
    ) -> Result<Sent> {
        self.rename_in(draft.name.base(), &draft.name, settings, spots)?;
        Ok(Sent::new(draft.id.clone(), false))
    }

    /// The same; a draft that cannot be put there is removed, so that a full disk gets no fuller.
    fn put_in_line_or_not(
        &self,
        draft: &Draft,
        settings: &Settings,
        spots: &mut Vec<Spot>,
    ) -> Result<Sent> {
        let sent = self.put_in_line(draft, settings, spots);
        if sent.is_err() {
            let tmp = self.folders.side(Side::Tmp);
            let _ = crate::backends::directory::folders::remove(tmp, draft.name.base());
        }
        sent
    }

    /// After an error of the disk itself nobody can tell what is on it.
    fn sending_failed(&self, error: std::io::Error) -> Error {
        match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
            Some(rustix::io::Errno::IO) => self.sync_failed(error),
            _ => self.refused("sending", error),
        }
    }

    fn rename_in(
        &self,
        written: &str,
        name: &FileName,
        settings: &Settings,
        spots: &mut Vec<Spot>,
    ) -> Result<()> {
        let failed = |error| self.sending_failed(error);
        let spot = self.spot(Shelf::Incoming, name.base(), settings);
        let tmp = self.folders.side(Side::Tmp);
        let text = name.to_string();
        // A bucket may go away between the two steps, if the inbox is being gathered.
        for _ in 0..TRIES {
            let renamed = self.making_room(|| {
                let folder = self.folders.make(spot)?;
                rename(tmp, written, folder.as_fd(), &*text)
            });
            match renamed.map_err(failed)? {
                Moved::Yes => {
                    spots.push(spot);
                    return Ok(());
                }
                Moved::Gone if keys::is_unfinished(&self.folders, written) => {}
                Moved::Gone | Moved::Taken => break,
            }
        }
        let message = format!("{written}: somebody else has moved it, or has its name");
        Err(Error::new(ErrorKind::Internal, message).with_mailbox(&self.name))
    }

    /// Whether there is room for one more (M4). Under the lock, so that two do not share a place.
    pub(super) fn check_room(&self, settings: &Settings, _alone: &Locked<'_>) -> Result<()> {
        let Some(max_size) = settings.policy.max_size else { return Ok(()) };
        let mut count = 0;
        for shelf in [Shelf::Incoming, Shelf::Processing] {
            let counted = self.visit_messages(shelf, |_| {
                count += 1;
                Ok(count < max_size)
            });
            counted.map_err(|error| self.refused("counting", error))?;
        }
        if count >= max_size {
            return Err(Error::refused(Refusal::Full { max_size }, &self.name));
        }
        Ok(())
    }

    /// Makes what was sent last. Syncs that come together the file system makes one of: waiting for
    /// company here would only make them later.
    fn sync_sent(&self, spots: &mut Vec<Spot>) -> Result<()> {
        if self.config.durability != Durability::Fsync || spots.is_empty() {
            return Ok(());
        }
        if self.config.planted.has(Bug::FolderNotSynced) {
            return Ok(());
        }
        self.sync(spots)
    }

    /// Where there are no events, own messages would be seen at the next look only.
    pub(super) fn tell_own(&self) {
        if self.hub.is_some() {
            return;
        }
        let now = self.now();
        let wakers = {
            let mut state = self.state.lock();
            state.is_sure = false;
            state.after_change(now)
        };
        wakers.wake();
    }
}
