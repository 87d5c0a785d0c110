//! One log, its files and its two threads. Invariant: nothing is said to be kept before the batch
//! that it is in is on the disk, and after a write or a sync has failed nothing is said to be kept
//! any more: the shard has failed until the journal is opened again.

mod caretaker;
mod closing;
mod committer;
pub(crate) mod compact;
pub(crate) mod log;
pub(crate) mod recover;
mod replay;
pub(crate) mod segment;
pub(crate) mod syncs;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;

use mailbox_core::Time;
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::sync::Notify;

use crate::backends::journal::config::JournalConfig;
use crate::backends::journal::disk::Lock;
use crate::backends::journal::format::Place;
use crate::backends::journal::format::fact::{Anchor, Head, Opened, Sealed};
use crate::backends::journal::format::record::{Kind, record_len};
use crate::backends::journal::format::segment::DATA_START;
use crate::backends::journal::keep::JournalKeep;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result, Retry};
use crate::home::clock::Clock;
use crate::home::room::Room;

use log::{Commit, Entry, Log, Resume, position};
use segment::{Segment, Workshop};
use syncs::Syncs;

pub(crate) type JournalRoom = Room<JournalKeep>;

/// Most bytes that may wait to be written.
const WAITING_MAX: usize = 64 << 20;
/// Spare segments that sends leave alone: one to settle with, one to move messages to, so that a
/// full disk can be drained.
const RESERVE: u32 = 2;

/// One log.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) workshop: Workshop,
    pub(crate) durability: Durability,
    pub(crate) clock: Clock,
    spare_segments: u32,
    log: Mutex<Log>,
    /// Tells the committer that there is something to write.
    work: Condvar,
    /// Everything before this place is on the disk.
    durable: AtomicU64,
    /// Segments that are in use, the one being filled included.
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    /// Bytes of sealed segments, and of messages that are there.
    sealed_bytes: AtomicU64,
    live_bytes: AtomicU64,
    /// How long syncs take.
    pub(crate) syncs: Syncs,
    /// The disk has no space for another segment.
    is_full: AtomicBool,
    /// The segment that could not be emptied; 0 if there is none.
    unmovable: AtomicU32,
    first_segment: AtomicU32,
    epoch: u32,
    next_mailbox: AtomicU32,
    /// Whose messages are here, by number.
    rooms: RwLock<BTreeMap<u32, Weak<JournalRoom>>>,
    care: Care,
    /// Space was made, or there is none: those who wait for it look again.
    space: Notify,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Nobody else opens the journal while somebody writes to it.
    lock: Mutex<Option<Arc<dyn Lock>>>,
    /// Why one of the journal's logs has failed: then none goes on.
    failure: Arc<OnceLock<Error>>,
}

/// How the caretaker is told that there is something to do.
#[derive(Debug, Default)]
struct Care {
    asked: AtomicBool,
    stop: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

/// What a record is for: decides which part of the space it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// A new message. Leaves the reserve alone.
    Send,
    /// Something about messages that are there; somebody waits for it.
    Settle,
    /// The same, and nobody waits: it rides on the next commit.
    Ride,
    /// Something that is there, written again so that its old place can go. Leaves some space for
    /// those who settle.
    Move,
    /// Something about the log itself. May use what every segment keeps back for it.
    Own,
}

/// Why a record was not appended.
#[derive(Debug)]
pub(crate) enum Denied {
    /// Space is being made: wait for it.
    NotYet,
    /// Not now, or never.
    Error(Error),
}

impl From<Error> for Denied {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Everything that a shard starts with.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) workshop: Workshop,
    pub(crate) resume: Resume,
    pub(crate) segments: BTreeMap<u32, Arc<Segment>>,
    pub(crate) first_segment: u32,
    pub(crate) epoch: u32,
    pub(crate) next_mailbox: u32,
    /// The last writer did not sync every batch.
    pub(crate) unsynced: bool,
}

impl Shard {
    /// Bytes of the segments that are in use.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.segments.read().len() as u64 * u64::from(self.workshop.segment_len)
    }

    /// Starts the epoch of this open, which is on the disk when this returns. Its threads wait for
    /// [`Shard::run`].
    pub(crate) fn start(
        start: Start,
        config: &JournalConfig,
        clock: Clock,
        lock: Option<Arc<dyn Lock>>,
        failure: Arc<OnceLock<Error>>,
    ) -> Result<Arc<Self>> {
        let active = start.resume.segment.number;
        let bytes = |(_, segment): (&u32, &Arc<Segment>)| u64::from(segment.len);
        let sealed: u64 = start.segments.iter().filter(|it| *it.0 != active).map(bytes).sum();
        let live: u64 = start.segments.values().map(|segment| segment.live_bytes()).sum();
        let end = position(active, start.resume.offset);
        let unsynced = start.unsynced;
        let shard = Arc::new(Self {
            workshop: start.workshop,
            durability: config.durability,
            clock,
            spare_segments: config.spare_segments.max(1),
            log: Mutex::new(Log::new(start.resume)),
            work: Condvar::new(),
            durable: AtomicU64::new(end),
            segments: RwLock::new(start.segments),
            sealed_bytes: AtomicU64::new(sealed),
            live_bytes: AtomicU64::new(live),
            syncs: Syncs::default(),
            is_full: AtomicBool::new(false),
            unmovable: AtomicU32::new(0),
            first_segment: AtomicU32::new(start.first_segment),
            epoch: start.epoch,
            next_mailbox: AtomicU32::new(start.next_mailbox),
            rooms: RwLock::default(),
            care: Care::default(),
            space: Notify::new(),
            threads: Mutex::default(),
            lock: Mutex::new(lock),
            failure,
        });
        shard.begin(unsynced && config.durability == Durability::Fsync)?;
        Ok(shard)
    }

    /// Starts its threads. Its rooms are all there: what belongs to none is not kept when an old
    /// segment goes.
    pub(crate) fn run(self: &Arc<Self>) -> Result<()> {
        let threads = [self.spawn("commit", committer::run)?, self.spawn("care", caretaker::run)?];
        self.threads.lock().extend(threads);
        Ok(())
    }

    fn spawn(
        self: &Arc<Self>,
        task: &str,
        run: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        let shard = Arc::clone(self);
        let name = format!("mailbox-{task}-{}", self.workshop.shard);
        let spawned = std::thread::Builder::new().name(name).spawn(move || run(&shard));
        spawned.map_err(|error| {
            Error::new(ErrorKind::Internal, "cannot start a thread").with_source(error)
        })
    }

    /// Writes the record that begins the epoch, before anybody else can write anything.
    fn begin(&self, anew: bool) -> Result<()> {
        if anew && self.log.lock().records_in_segment > 0 {
            // From here on a gap is damage; in what was written before, it is not. A segment is
            // read by one rule.
            caretaker::make_spares(self, &mut Vec::new());
            self.roll(&mut self.log.lock()).map_err(no_space)?;
        }
        {
            let mut log = self.log.lock();
            if log.records_in_segment == 0 {
                let previous = if log.next_lsn == 1 { 0 } else { log.segment.number - 1 };
                let head = self.head(previous, log.next_lsn - 1);
                log.push(Entry { mailbox: 0, kind: Kind::Head, fact: &head, letter: None });
            }
        }
        let fact = self.opened_fact();
        if !self.log.lock().fits_own(record_len(fact.len(), 0)) {
            caretaker::make_spares(self, &mut Vec::new());
        }
        let (place, _) = self.append_own(Kind::Opened, &fact).map_err(no_space)?;
        while committer::write_next(self).is_some() {}
        // Whatever is promised otherwise: a handle of this epoch must never be given out again.
        self.sync_segment(place.segment)?;
        match &self.log.lock().failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// What goes with an open, with a clean stop, and with every segment.
    fn opened(&self) -> Opened {
        Opened {
            epoch: self.epoch,
            next_mailbox: self.next_mailbox.load(Ordering::Relaxed),
            synced: self.durability == Durability::Fsync,
            anchor: self.anchor(),
        }
    }

    fn opened_fact(&self) -> Vec<u8> {
        let mut fact = Vec::new();
        self.opened().encode(&mut fact);
        fact
    }

    /// The fact that a segment begins with.
    fn head(&self, previous: u32, previous_lsn: u64) -> Vec<u8> {
        let mut fact = Vec::new();
        let first_segment = self.first_segment.load(Ordering::Relaxed);
        Head { previous, previous_lsn, first_segment, opened: self.opened() }.encode(&mut fact);
        fact
    }

    /// Which queue time it is by the machine's clock.
    fn anchor(&self) -> Anchor {
        let mark = self.clock.mark();
        Anchor { time: self.clock.now(), boot: mark.boot, at: mark.at }
    }

    /// Appends a record about the log itself.
    fn append_own(&self, kind: Kind, fact: &[u8]) -> Result<(Place, Arc<Commit>), Denied> {
        self.append(Entry { mailbox: 0, kind, fact, letter: None }, Use::Own)
    }

    /// Appends a record. It is in the log from now on; what is returned tells when it is durable.
    pub(crate) fn append(
        &self,
        entry: Entry<'_>,
        purpose: Use,
    ) -> Result<(Place, Arc<Commit>), Denied> {
        let mut log = self.log.lock();
        if let Some(error) = log.failed.as_ref().or_else(|| self.failure.get()) {
            return Err(error.clone().into());
        }
        if log.stop {
            return Err(Error::new(ErrorKind::Closed, "the journal is closed").into());
        }
        match purpose {
            Use::Send => self.check_reserve(&log, entry.len(), RESERVE as usize)?,
            Use::Move if log.room() < entry.len() as u64 + self.settling_room() => {
                return Err(Denied::NotYet);
            }
            Use::Settle | Use::Ride if self.makes_way(&log, entry.len()) => {
                self.ask_for_care();
                return Err(Denied::NotYet);
            }
            Use::Move | Use::Settle | Use::Ride | Use::Own => {}
        }
        let fits = |log: &Log| match purpose {
            Use::Own => log.fits_own(entry.len()),
            _ => log.fits(entry.len()),
        };
        if !fits(&log) {
            if entry.len() > log::largest_record(self.workshop.segment_len) {
                let most = log::largest_record(self.workshop.segment_len);
                return Err(Error::too_large("message", entry.len(), most).into());
            }
            self.roll(&mut log)?;
        }
        if !fits(&log) {
            let most = log.segment.len as usize / 2;
            return Err(Error::too_large("message", entry.len(), most).into());
        }
        let had_enough = !log.is_running_out();
        let (place, commit) = log.push(entry);
        if entry.letter.is_some() {
            log.segment.add_live(place.len);
            self.live_bytes.fetch_add(u64::from(place.len), Ordering::Relaxed);
        }
        if had_enough && log.is_running_out() {
            self.ask_for_care();
        }
        let was_urgent = log.urgent;
        log.urgent |= purpose != Use::Ride;
        log.awaited += u32::from(purpose != Use::Ride);
        if log.urgent && !was_urgent || log.has_closed_batch() || log.waiting == place.len as usize
        {
            self.work.notify_one();
        }
        Ok((place, commit))
    }

    /// Whether so many spare segments are left after a record of this length.
    fn check_reserve(&self, log: &Log, len: usize, reserve: usize) -> Result<(), Denied> {
        if log.waiting > WAITING_MAX {
            let message = "too much is waiting to be written";
            return Err(Error::new(ErrorKind::Saturated, message).into());
        }
        let needed = reserve + usize::from(!log.fits(len));
        if log.spares.len() >= needed || self.ignores_reserve(log, len) {
            return Ok(());
        }
        self.ask_for_care();
        match &log.full {
            Some(why) => Err(full(why).into()),
            None => Err(Denied::NotYet),
        }
    }

    /// When space is short those who settle wait for those who make some, as long as these get on
    /// with it: otherwise there soon would be none to make space with.
    fn makes_way(&self, log: &Log, len: usize) -> bool {
        let needed = u64::from(self.workshop.segment_len) * 3 / 2 + len as u64;
        !log.stuck && log.room() < needed && (log.full.is_none() || self.is_wasteful())
    }

    /// What moving messages leaves for those who settle.
    fn settling_room(&self) -> u64 {
        u64::from(self.workshop.segment_len / 8)
    }

    fn ignores_reserve(&self, log: &Log, len: usize) -> bool {
        use crate::backends::journal::planted::Bug;
        self.workshop.planted.has(Bug::NoReserve) && (log.fits(len) || !log.spares.is_empty())
    }

    /// Seals the present segment and begins the next.
    fn roll(&self, log: &mut Log) -> Result<(), Denied> {
        let Some(next) = log.spares.pop_front() else {
            self.ask_for_care();
            return match &log.full {
                Some(why) if log.stuck || !self.is_wasteful() => Err(full(why).into()),
                _ => Err(Denied::NotYet),
            };
        };
        let previous = Arc::clone(&log.segment);
        let mut fact = Vec::new();
        Sealed { records: log.records_in_segment + 1 }.encode(&mut fact);
        let seal = Entry { mailbox: 0, kind: Kind::Sealed, fact: &fact, letter: None };
        self.segments.write().insert(next.number, Arc::clone(&next));
        log.roll(seal, next, DATA_START);
        self.sealed_bytes.fetch_add(u64::from(previous.len), Ordering::Relaxed);
        let fact = self.head(previous.number, log.next_lsn - 1);
        log.push(Entry { mailbox: 0, kind: Kind::Head, fact: &fact, letter: None });
        self.ask_for_care();
        Ok(())
    }

    /// Ends when there may be space again, or it is known that there is none.
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub(crate) async fn wait_for_space(&self, purpose: Use, len: usize) {
        loop {
            let space = self.space.notified();
            if !self.is_short_of_space(purpose, len) {
                return;
            }
            space.await;
        }
    }

    fn is_short_of_space(&self, purpose: Use, len: usize) -> bool {
        let log = self.log.lock();
        let failed = log.failed.is_some() || self.failure.get().is_some();
        if failed || log.stop || self.care.stop.load(Ordering::Acquire) {
            return false;
        }
        match purpose {
            Use::Send | Use::Move => {
                matches!(self.check_reserve(&log, len, RESERVE as usize), Err(Denied::NotYet))
            }
            Use::Settle | Use::Ride | Use::Own => {
                let hopeless = log.full.is_some() && (log.stuck || !self.is_wasteful());
                let nowhere = !hopeless && !log.fits(len) && log.spares.is_empty();
                nowhere || self.makes_way(&log, len)
            }
        }
    }

    /// Whether a message can be handed out: its record is on the disk. If not, what to wait for.
    pub(crate) fn not_before(&self, place: Place) -> Option<Arc<Commit>> {
        let end = position(place.segment, place.offset) + u64::from(place.len);
        if end <= self.durable.load(Ordering::Acquire) {
            return None;
        }
        self.log.lock().commit_of(end)
    }

    /// What to wait for so that everything appended so far is durable.
    pub(crate) fn so_far(&self) -> Option<Arc<Commit>> {
        let mut log = self.log.lock();
        if !log.is_empty() && !log.urgent {
            log.urgent = true;
            self.work.notify_one();
        }
        log.commit_of(u64::MAX)
    }

    /// The segment that a message is in. It stays readable as long as somebody has this.
    pub(crate) fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        self.segments.read().get(&number).map(Arc::clone)
    }

    /// The messages at these places are gone.
    pub(crate) fn release(&self, places: impl IntoIterator<Item = Place>) {
        let segments = self.segments.read();
        for place in places {
            if let Some(segment) = segments.get(&place.segment) {
                segment.sub_live(place.len);
                self.live_bytes.fetch_sub(u64::from(place.len), Ordering::Relaxed);
            }
        }
        drop(segments);
        if self.is_wasteful() {
            self.ask_for_care();
        }
    }

    /// Whether there is more on the disk than there has to be: sealed segments are to hold at most
    /// half as much again as what is kept, so that with the segment being filled and the spares
    /// all of it stays below twice.
    fn is_wasteful(&self) -> bool {
        let sealed = self.sealed_bytes.load(Ordering::Relaxed);
        let live = self.live_bytes.load(Ordering::Relaxed);
        let gain = sealed.saturating_sub(live);
        // On a full disk, whatever gives back a segment.
        let is_full = self.is_full.load(Ordering::Relaxed);
        gain > live / 2 || is_full && gain > u64::from(self.workshop.segment_len)
    }

    pub(crate) fn new_mailbox_number(&self, shards: u16) -> u32 {
        let count = self.next_mailbox.fetch_add(1, Ordering::Relaxed);
        // Different in every shard, so that ids of messages differ.
        count.wrapping_mul(u32::from(shards)).wrapping_add(u32::from(self.workshop.shard)) + 1
    }

    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) fn add_room(&self, room: &Arc<JournalRoom>) {
        self.rooms.write().insert(room.number(), Arc::downgrade(room));
    }

    /// Whether a mailbox was not removed. Ask under its lock, or the answer may be old.
    pub(crate) fn has_room(&self, number: u32) -> bool {
        self.rooms.read().contains_key(&number)
    }

    pub(crate) fn remove_room(&self, number: u32) {
        self.rooms.write().remove(&number);
    }

    /// An idempotency key was written there, and is remembered until then.
    pub(crate) fn note_key(&self, place: Place, until: Option<Time>) {
        if let (Some(until), Some(segment)) = (until, self.segment(place.segment)) {
            segment.note_key(until.as_nanos());
        }
    }

    /// A key by itself is kept too, as long as it is remembered: if it did not count, a log of keys
    /// would be rewritten for ever.
    fn count_key(&self, place: Place) {
        if let Some(segment) = self.segment(place.segment) {
            segment.add_key(place.len);
            self.live_bytes.fetch_add(u64::from(place.len), Ordering::Relaxed);
        }
    }

    /// So is what a mailbox is called.
    fn count_statement(&self, place: Place) {
        if let Some(segment) = self.segment(place.segment) {
            segment.add_statement(place.len);
            self.live_bytes.fetch_add(u64::from(place.len), Ordering::Relaxed);
        }
    }

    /// Keys that are not remembered any more do not count.
    fn forget_keys(&self) {
        let now = self.clock.now().as_nanos();
        let expired: u64 =
            self.segments.read().values().map(|segment| segment.take_expired_keys(now)).sum();
        self.live_bytes.fetch_sub(expired, Ordering::Relaxed);
    }

    /// Makes a segment durable where batches are not synced one by one. All before it are sealed,
    /// and durable already.
    fn sync_segment(&self, number: u32) -> Result<()> {
        if self.durability == Durability::Fsync {
            return Ok(());
        }
        let Some(segment) = self.segment(number) else { return Ok(()) };
        segment.file.sync().map_err(|error| {
            self.fail("syncing", &segment.path, error);
            Error::new(ErrorKind::Internal, "the journal has failed")
        })
    }

    fn ask_for_care(&self) {
        if !self.care.asked.swap(true, Ordering::AcqRel) {
            let _guard = self.care.lock.lock();
            self.care.wake.notify_one();
        }
    }

    /// Nothing more can be written.
    fn fail(&self, what: &str, path: &Path, error: io::Error) {
        let message = format!(
            "the journal has failed: {what} {} gave an error; what was being written is in doubt, \
             close it and open it again",
            path.display()
        );
        tracing::error!(%error, "{message}");
        let error = Error::new(ErrorKind::Internal, message).with_source(error);
        self.failure.get_or_init(|| error.clone());
        let abandoned = {
            let mut log = self.log.lock();
            log.failed.get_or_insert(error.clone());
            log.abandon()
        };
        for commit in abandoned {
            commit.finish(Err(error.clone()));
        }
        self.space.notify_waiters();
    }
}

fn no_space(denied: Denied) -> Error {
    match denied {
        Denied::Error(error) => error,
        Denied::NotYet => full("there is no space for the record of this open"),
    }
}

/// The disk has no space for it.
pub(crate) fn full(why: &str) -> Error {
    let message = format!(
        "storage full: {why}; receiving and acknowledging go on, and make space for new messages"
    );
    Error::new(ErrorKind::Saturated, message)
        .with_field("storage")
        .with_retry(Retry::After(std::time::Duration::from_secs(1)))
}
