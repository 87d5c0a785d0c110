//! Mailboxes on disk, in a journal of this process's own: what `send` has answered survives a power
//! cut.
//!
//! * **Model**: one [`core::Queue`](mailbox_core::Queue) per mailbox in memory, less than 200 bytes
//!   a message; payloads stay on disk. What happens to a queue is written as a record to a log of
//!   fixed-length segments, and replayed when the journal is opened.
//! * **Durability**: `send` and settling return after `fdatasync`; everybody who waits shares one
//!   (D2). [`Durability::OsBuffered`](crate::Durability) leaves that to the operating system.
//!   A delivery is written, not waited for: a crash may forget the last few milliseconds of them,
//!   and deliver those messages again.
//! * **Ordering**: strict, in order of becoming receivable (D7).
//! * **Clock**: monotonic; goes on over restarts by the machine's own clock, and stands still while
//!   the machine is off. Wall time decides nothing (V6, V7).
//! * **Limits**: see [`JournalConfig`].
//! * **Cancel safety**: a dropped receive holds nothing; a dropped send or settle may have taken
//!   effect.
//! * **Layout**: `docs/journal-format.md`. One process has a journal open at a time.
//! * **Operations notes**: after an error of the disk the journal has failed, says so in every
//!   answer, and recovers when it is opened again. A full disk refuses sends, and can be drained.
//!   `mailbox doctor` looks at a journal that does not open.

mod config;
pub mod disk;
pub mod doctor;
mod format;
mod keep;
mod opening;
mod planted;
mod scan;
mod shard;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use mailbox_core::{Event, Fingerprint, Key, Policy};
use parking_lot::RwLock;

use crate::abilities::Abilities;
use crate::backend::{
    Backend, Delivery, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
use crate::error::{Error, ErrorKind, Result};
use crate::figure::Figure;
use crate::home::clock::Clock;
use crate::home::keep::Keep;
use crate::home::names::{names, nothing_dead};
use crate::home::room::{Fittings, Room};
use crate::name::Name;
use crate::options::ReceiveOptions;

use keep::{JournalKeep, is_not_yet};
use shard::log::{Commit, Entry};
use shard::syncs::Syncs;
use shard::{JournalRoom, Shard, Use, compact};

pub use config::JournalConfig;
#[cfg(feature = "planted")]
pub use planted::Bug;
pub use planted::Planted;

/// Keeps mailboxes in a directory on disk. One journal is one namespace.
pub struct JournalBackend {
    path: PathBuf,
    config: JournalConfig,
    abilities: Abilities,
    secret: [u8; 32],
    clock: Clock,
    shards: Vec<Arc<Shard>>,
    rooms: RwLock<Rooms>,
    /// How many opened it by address, and have not closed it; the last one closes it for all. 0 if
    /// it was not opened so.
    users: AtomicUsize,
}

struct Rooms {
    by_name: BTreeMap<Name, Arc<JournalRoom>>,
    closed: bool,
    /// Why it could not be closed in order, if it could not.
    unclosed: Arc<OnceLock<Error>>,
}

impl JournalBackend {
    /// Opens the journal in this directory, which is made if it is not there.
    ///
    /// # Errors
    /// As [`JournalBackend::open_with`].
    ///
    /// # Cancel safety
    /// Safe: what was being opened is given up.
    pub async fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        Self::open_with(path, JournalConfig::default()).await
    }

    /// Opens the journal in this directory, which is made if it is not there.
    ///
    /// # Errors
    /// `Connection` if somebody else has it open; `Integrity` if it is damaged, with the place;
    /// `Unsupported` if it was written by another version; `InvalidParameter` if the settings make
    /// no sense, or the directory holds something else; `Saturated` if the disk is full;
    /// `Forbidden` or `Internal` if the file system refuses.
    ///
    /// # Cancel safety
    /// Safe: what was being opened is given up.
    pub async fn open_with(path: impl AsRef<Path>, config: JournalConfig) -> Result<Arc<Self>> {
        let path = path.as_ref().to_owned();
        off_the_runtime(move || opening::open(&path, config).map(Arc::new)).await?
    }

    /// The journal in this directory, shared with everybody in this process who asked for it by
    /// address and has not let go of it.
    pub(crate) async fn shared(path: &Path, config: JournalConfig) -> Result<Arc<Self>> {
        opening::shared(path, config).await
    }

    /// The directory it is in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn check_batch(&self, mailbox: &Name, size: usize) -> Result<()> {
        let checked = self.abilities.check_batch("batch", size);
        checked.map_err(|error| error.with_mailbox(mailbox))
    }

    /// The mailbox, if there is one.
    fn known(&self, mailbox: &Name) -> Result<Option<Arc<JournalRoom>>> {
        let rooms = self.rooms.read();
        if rooms.closed {
            return Err(Error::closed(mailbox));
        }
        Ok(rooms.by_name.get(mailbox).map(Arc::clone))
    }

    /// The mailbox, made if it is not there.
    async fn room(&self, mailbox: &Name) -> Result<Arc<JournalRoom>> {
        if let Some(room) = self.known(mailbox)? {
            return Ok(room);
        }
        let shard = &self.shards[shard_of(mailbox, self.shards.len())];
        with_space(shard, Use::Send, CHANGE_LEN, || self.make_room(mailbox, shard)).await
    }

    fn make_room(&self, mailbox: &Name, shard: &Arc<Shard>) -> Result<Arc<JournalRoom>> {
        let mut rooms = self.rooms.write();
        if rooms.closed {
            return Err(Error::closed(mailbox));
        }
        if let Some(room) = rooms.by_name.get(mailbox) {
            return Ok(Arc::clone(room));
        }
        if rooms.by_name.len() >= self.config.max_mailboxes {
            let most = self.config.max_mailboxes;
            let message = format!("there are {most} mailboxes, the most there may be");
            return Err(Error::new(ErrorKind::Saturated, message).with_mailbox(mailbox));
        }
        let shards = u16::try_from(self.shards.len()).unwrap_or(u16::MAX);
        let fittings = self.fittings(shard.new_mailbox_number(shards));
        let keep = JournalKeep::new(shard, fittings.number, self.config.settle, 0);
        let policy = self.config.policy.clone();
        let room = Arc::new(Room::new(mailbox.clone(), fittings, keep, policy));
        room.with_queue_of(|queue| {
            let opened = Event::Opened { at: self.clock.now(), epoch: shard.epoch() };
            let _ = queue.replay(queue.next_stamp(), opened);
        });
        // First where compaction finds it: what is written of it next may have to be moved.
        shard.add_room(&room);
        if let Err(denied) = compact::state_room(shard, &room, Use::Send) {
            shard.remove_room(room.number());
            return Err(Error::from(denied).with_mailbox(mailbox));
        }
        rooms.by_name.insert(mailbox.clone(), Arc::clone(&room));
        Ok(room)
    }

    /// Ends when everything that was noted so far is on the disk.
    async fn write_out(&self) -> Result<()> {
        for shard in &self.shards {
            if let Some(commit) = shard.so_far() {
                commit.wait().await?;
            }
        }
        Ok(())
    }

    /// Takes a mailbox away, and notes it, in one step: whoever asked may be gone before the next.
    fn remove_room(&self, mailbox: &Name) -> Result<Option<(Arc<JournalRoom>, Arc<Commit>)>> {
        let mut rooms = self.rooms.write();
        if rooms.closed {
            return Err(Error::closed(mailbox));
        }
        let Some(room) = rooms.by_name.get(mailbox).map(Arc::clone) else { return Ok(None) };
        let (number, shard) = (room.number(), &room.keep.shard);
        let kind = format::record::Kind::Removed;
        let entry = Entry { mailbox: number, kind, fact: &[], letter: None };
        // Under its lock: nothing may be written about it behind this record.
        let commit = room.end_after(ErrorKind::NotFound, |_| {
            let (_, commit) = shard.append(entry, Use::Settle)?;
            shard.remove_room(number);
            Ok(commit)
        })?;
        rooms.by_name.remove(mailbox);
        Ok(Some((room, commit)))
    }

    fn fittings(&self, number: u32) -> Fittings {
        Fittings {
            clock: self.clock.clone(),
            number,
            secret: self.secret,
            max_waiters: self.config.max_waiters,
        }
    }

    /// Puts one message into the log; durable when what is returned says so.
    async fn send_one(
        &self,
        room: &JournalRoom,
        message: Outgoing,
    ) -> Result<(Sent, <JournalKeep as Keep>::Written)> {
        self.abilities
            .check_send(&message, message.payload.len())
            .map_err(|error| error.with_mailbox(&room.name))?;
        let hash = Fingerprint(*blake3::hash(&message.payload).as_bytes());
        let packed =
            room.pack(message, Some(hash)).map_err(|error| error.with_mailbox(&room.name))?;
        let len = packed.parcel().bytes.len() + keep::RECORD_OVERHEAD;
        let send = || room.send(&packed, room.clock.now());
        with_space(&room.keep.shard, Use::Send, len, send).await
    }

    async fn each_dead(&self, room: &JournalRoom, which: &Selection, act: ToDead) -> Result<u64> {
        let keys = room.dead_keys(which)?;
        let (mut left, mut done) = (&*keys, 0);
        while !left.is_empty() {
            let some = || act(room, &mut left);
            match with_space(&room.keep.shard, Use::Settle, CHANGE_LEN, some).await {
                Ok(some) => done += some,
                // The count tells how far it got; the rest is still there.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        wait_for((done, room.keep.so_far()), &room.name).await
    }

    async fn settle_one(
        &self,
        room: Option<&Arc<JournalRoom>>,
        mailbox: &Name,
        settlement: Settlement,
    ) -> Result<<JournalKeep as Keep>::Written> {
        self.abilities
            .check_verdict(&settlement.verdict)
            .map_err(|error| error.with_mailbox(mailbox))?;
        let Some(room) = room else {
            let message = "receipt handle expired: nothing was ever received here";
            return Err(Error::new(ErrorKind::ReceiptHandleExpired, message).with_mailbox(mailbox));
        };
        with_space(&room.keep.shard, Use::Settle, CHANGE_LEN, || room.settle(settlement.clone()))
            .await
    }
}

/// Does something to as many dead letters as are given.
type ToDead = fn(&JournalRoom, &mut &[Key]) -> Result<u64>;

/// More than the record of any change takes.
const CHANGE_LEN: usize = 16 << 10;

/// Does something as often as it takes until there is space for it, or none can be made.
async fn with_space<T>(
    shard: &Shard,
    purpose: Use,
    len: usize,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    loop {
        match attempt() {
            Err(error) if is_not_yet(&error) => shard.wait_for_space(purpose, len).await,
            done => return done,
        }
    }
}

/// Runs something that blocks where it blocks nobody.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        Error::new(ErrorKind::Internal, "work of the journal was cut short").with_source(error)
    })
}

/// Which log a mailbox is in: the same for ever.
fn shard_of(mailbox: &Name, shards: usize) -> usize {
    crc32c::crc32c(mailbox.as_str().as_bytes()) as usize % shards
}

impl Drop for JournalBackend {
    /// Threads write what waits, and end by themselves.
    fn drop(&mut self) {
        self.shards.iter().for_each(|shard| shard.abandon());
        // Somebody else may have it open by now, if it was closed.
        if !self.rooms.get_mut().closed {
            opening::is_gone(&self.path);
        }
    }
}

impl fmt::Debug for JournalBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalBackend").field("path", &self.path).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for JournalBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn address(&self, mailbox: &Name) -> String {
        format!("journal://{}/{mailbox}", self.path.display())
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.check_batch(mailbox, batch.len())?;
        let room = self.room(mailbox).await?;
        let mut sent = Vec::with_capacity(batch.len());
        for message in batch {
            sent.push(self.send_one(&room, message).await);
        }
        wait_for_each(sent, mailbox).await
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        self.abilities.check_receive(options).map_err(|error| error.with_mailbox(mailbox))?;
        let room = self.room(mailbox).await?;
        loop {
            match room.receive(options).await {
                Err(error) if is_not_yet(&error) => {
                    room.keep.shard.wait_for_space(Use::Ride, CHANGE_LEN).await;
                }
                done => return done,
            }
        }
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.check_batch(mailbox, batch.len())?;
        let room = self.known(mailbox)?;
        let mut settled = Vec::with_capacity(batch.len());
        for settlement in batch {
            let written = self.settle_one(room.as_ref(), mailbox, settlement).await;
            settled.push(written.map(|written| ((), written)));
        }
        wait_for_each(settled, mailbox).await
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        super::memory::check_peek(&self.abilities, request)
            .map_err(|error| error.with_mailbox(mailbox))?;
        let Some(room) = self.known(mailbox)? else { return Ok(Vec::new()) };
        // Letters are read from the disk, up to 256 of them.
        let request = request.clone();
        off_the_runtime(move || room.peek(&request)).await?
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        match self.known(mailbox)? {
            Some(room) => room.stats(),
            None => Ok(Stats { durability: self.config.durability, ..Stats::default() }),
        }
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        let Some(room) = self.known(mailbox)? else { return Ok(0) };
        let purged = with_space(&room.keep.shard, Use::Settle, CHANGE_LEN, || room.purge()).await?;
        wait_for(purged, mailbox).await
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        let Some(room) = self.known(mailbox)? else {
            return nothing_dead(mailbox, which);
        };
        self.each_dead(&room, which, JournalRoom::redrive).await
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        let Some(room) = self.known(mailbox)? else {
            return nothing_dead(mailbox, which);
        };
        self.each_dead(&room, which, JournalRoom::delete_dead).await
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.abilities.check_policy(&policy).map_err(|error| error.with_mailbox(mailbox))?;
        let room = self.room(mailbox).await?;
        let configure = || room.configure(policy.clone()).map(|written| ((), written));
        let configured = with_space(&room.keep.shard, Use::Settle, CHANGE_LEN, configure).await?;
        wait_for(configured, mailbox).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.known(mailbox)?.map_or_else(|| Ok(self.config.policy.clone()), |room| room.policy())
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let rooms = self.rooms.read();
        if rooms.closed {
            return Err(Error::new(ErrorKind::Closed, "the journal is closed"));
        }
        Ok(names(&rooms.by_name, after, limit))
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        let shard = &self.shards[shard_of(mailbox, self.shards.len())];
        let remove = || self.remove_room(mailbox);
        let Some((room, commit)) = with_space(shard, Use::Settle, CHANGE_LEN, remove).await? else {
            return Ok(false);
        };
        let places: Vec<_> =
            room.with_queue_of(|queue| queue.keepsakes().map(|kept| *kept.payload).collect());
        shard.release(places);
        wait_for((true, Some(commit)), mailbox).await
    }

    fn figures(&self) -> Vec<Figure> {
        let (sum, count, buckets) = Syncs::sum(self.shards.iter().map(|shard| &shard.syncs));
        let bytes = self.shards.iter().map(|shard| shard.disk_bytes()).sum();
        vec![
            Figure::Histogram {
                name: "journal_fsync_seconds",
                help: "Syncs of the journal",
                sum,
                count,
                buckets,
            },
            Figure::Gauge {
                name: "journal_bytes",
                help: "Bytes of the journal's segments",
                value: bytes,
            },
        ]
    }

    async fn close(&self) -> Result<()> {
        let leave = |users: usize| users.checked_sub(1);
        let users = self.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, leave);
        if users.is_ok_and(|users| users > 1) {
            return self.write_out().await;
        }
        let unclosed;
        let rooms: Vec<_> = {
            let mut rooms = self.rooms.write();
            if std::mem::replace(&mut rooms.closed, true) {
                return rooms.unclosed.get().map_or(Ok(()), |error| Err(error.clone()));
            }
            unclosed = Arc::clone(&rooms.unclosed);
            rooms.by_name.values().map(Arc::clone).collect()
        };
        rooms.iter().for_each(|room| room.end(ErrorKind::Closed));
        let (shards, path) = (self.shards.clone(), self.path.clone());
        let close = move || {
            let closed: Vec<Result<()>> = shards.iter().map(|shard| shard.close()).collect();
            // They are needed until the index is written, whoever is gone by then.
            drop(rooms);
            opening::is_gone(&path);
            let closed = closed.into_iter().collect::<Result<()>>();
            closed.inspect_err(|error| {
                unclosed.get_or_init(|| error.clone());
            })
        };
        off_the_runtime(close).await?
    }
}

type Written<T> = (T, <JournalKeep as Keep>::Written);

async fn wait_for<T>((value, written): Written<T>, mailbox: &Name) -> Result<T> {
    let waited = JournalKeep::wait(written).await;
    waited.map_err(|error| error.with_mailbox(mailbox))?;
    Ok(value)
}

/// Waits until all of a batch is durable; what is not is an error, whatever was thought before.
async fn wait_for_each<T>(
    items: Vec<Result<Written<T>>>,
    mailbox: &Name,
) -> Result<Vec<Result<T>>> {
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        answers.push(match item {
            Ok(written) => wait_for(written, mailbox).await,
            Err(error) => Err(error),
        });
    }
    Ok(answers)
}
