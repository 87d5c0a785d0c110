//! Opening a journal: whose it is, whether it is one, and what is in it. Invariant: the file `meta`
//! is written last when a journal is made; without it there is no journal, and with it there is
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::abilities::Abilities;
use crate::backends::journal::config::JournalConfig;
use crate::backends::journal::disk::Lock;
use crate::backends::journal::format::Flaw;
use crate::backends::journal::format::meta::Meta;
use crate::backends::journal::format::record::{self, Kind};
use crate::backends::journal::format::segment::{DATA_START, SegmentHeader};
use crate::backends::journal::keep::JournalKeep;
use crate::backends::journal::planted::Bug;
use crate::backends::journal::shard::recover::{
    Recovered, damaged, io_error, recover, unsupported,
};
use crate::backends::journal::shard::segment::{UNFINISHED, Workshop, number_in, read_all};
use crate::backends::journal::shard::{JournalRoom, Shard};
use crate::backends::journal::{JournalBackend, Rooms};
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;
use crate::home::random;
use crate::home::room::{Fittings, Room};
use crate::name::Name;
use crate::timestamp::Timestamp;

pub(super) const META: &str = "meta";
const LOCK: &str = "lock";
/// How long to wait for a journal of this process that is being let go of.
const LETTING_GO: Duration = Duration::from_secs(5);
/// How often a lock that is taken, and by nobody, is tried again.
const NOBODY_MAX: u32 = 20;
/// Longest a `meta` file can be.
pub(super) const META_LEN_MAX: u64 = 4096;

/// Journals that are open in this process, and not being let go of.
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
/// Journals that were opened by address. Holds none of them open.
static SHARED: tokio::sync::Mutex<BTreeMap<PathBuf, Weak<JournalBackend>>> =
    tokio::sync::Mutex::const_new(BTreeMap::new());

/// The journal at this path, shared by everybody who asks in this way.
pub(super) async fn shared(path: &Path, config: JournalConfig) -> Result<Arc<JournalBackend>> {
    let mut shared = SHARED.lock().await;
    if let Ok(canonical) = config.disk.canonical(path)
        && let Some(open) = shared.get(&canonical).and_then(Weak::upgrade)
        && !open.rooms.read().closed
    {
        if (open.config.durability, open.config.settle) != (config.durability, config.settle) {
            let message = format!("{} is open with other options", path.display());
            return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("address"));
        }
        // Not if the last one is closing it at this moment.
        let join = |users: usize| (users > 0).then_some(users + 1);
        if open.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, join).is_ok() {
            return Ok(open);
        }
    }
    let backend = JournalBackend::open_with(path, config).await?;
    backend.users.store(1, Ordering::Release);
    shared.retain(|_, open| open.strong_count() > 0);
    shared.insert(backend.path.clone(), Arc::downgrade(&backend));
    Ok(backend)
}

/// A journal was closed, or dropped: the next one who wants it need only wait for its lock.
pub(super) fn is_gone(path: &Path) {
    LIVE.lock().remove(path);
}

/// Opens the journal at this path. Blocks.
pub(super) fn open(path: &Path, config: JournalConfig) -> Result<JournalBackend> {
    config.check()?;
    let disk = Arc::clone(&config.disk);
    disk.create_dir(path).map_err(|error| io_error(path, error))?;
    let path = disk.canonical(path).map_err(|error| io_error(path, error))?;
    refuse_foreign(&path, &config)?;
    let lock = take_lock(&path, &config)?;
    let meta = match read_meta(&path, &config)? {
        Some(meta) => meta,
        None => create(&path, &config)?,
    };
    let mark = config.clock.mark();
    let mut recovered = Vec::new();
    for shard in 0..meta.shards {
        let mut shard = recover(workshop(&path, &config, &meta, shard), mark)?;
        // The records of an open and of a segment say it only for the time before them.
        let used = shard.highest_mailbox.div_ceil(u32::from(meta.shards));
        shard.start.next_mailbox = shard.start.next_mailbox.max(used);
        recovered.push(shard);
    }
    let now = recovered.iter().map(|shard| shard.now).max().unwrap_or_default();
    let clock = config.clock.set_to(now);
    let abilities = Abilities { max_payload: config.max_payload, ..Abilities::full("journal") };
    let mut backend = JournalBackend {
        path: path.clone(),
        abilities,
        secret: meta.secret,
        clock,
        shards: Vec::new(),
        rooms: RwLock::new(Rooms {
            by_name: BTreeMap::new(),
            closed: false,
            unclosed: Arc::default(),
        }),
        users: AtomicUsize::new(0),
        config,
    };
    let failure = Arc::default();
    for shard in recovered {
        start(&mut backend, shard, lock.as_ref(), &failure)?;
    }
    LIVE.lock().insert(path);
    Ok(backend)
}

fn start(
    backend: &mut JournalBackend,
    recovered: Recovered,
    lock: Option<&Arc<dyn Lock>>,
    failure: &Arc<OnceLock<Error>>,
) -> Result<()> {
    let Recovered { start, rooms, .. } = recovered;
    let clock: Clock = backend.clock.clone();
    let shard =
        Shard::start(start, &backend.config, clock, lock.map(Arc::clone), Arc::clone(failure))?;
    backend.shards.push(Arc::clone(&shard));
    for old in rooms {
        let name = Name::parse(&old.name)?;
        let fittings: Fittings = backend.fittings(old.number);
        let keep = JournalKeep::new(&shard, old.number, backend.config.settle, old.stated_in);
        let room: Arc<JournalRoom> =
            Arc::new(Room::with_queue(name.clone(), fittings, keep, old.queue));
        shard.add_room(&room);
        if backend.rooms.get_mut().by_name.insert(name.clone(), room).is_some() {
            let message = "it is there twice: files of two journals were mixed";
            return Err(Error::new(ErrorKind::Integrity, message).with_mailbox(&name));
        }
    }
    shard.run()
}

pub(super) fn take_lock(path: &Path, config: &JournalConfig) -> Result<Option<Arc<dyn Lock>>> {
    let file = path.join(LOCK);
    let own = std::process::id();
    let until = Instant::now() + LETTING_GO;
    let mut nobody = 0;
    loop {
        let lock = config.disk.lock(&file).map_err(|error| io_error(&file, error))?;
        if let Some(lock) = lock {
            return Ok(Some(Arc::from(lock)));
        }
        if config.planted.has(Bug::NoLock) {
            return Ok(None);
        }
        let holder = config.disk.lock_holder(&file);
        // Whoever had it may have let go between the two questions.
        nobody += u32::from(holder.is_none());
        let letting_go = match holder {
            Some(pid) => pid == own && !LIVE.lock().contains(path),
            None => nobody <= NOBODY_MAX,
        };
        if !letting_go || Instant::now() > until {
            let who = match holder {
                Some(pid) if pid == own => "this process".to_owned(),
                Some(pid) => format!("process {pid}"),
                None => "another process".to_owned(),
            };
            let message = format!(
                "{} is open in {who}; one process has a journal open at a time",
                path.display()
            );
            return Err(Error::new(ErrorKind::Connection, message));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read_meta(path: &Path, config: &JournalConfig) -> Result<Option<Meta>> {
    let file = path.join(META);
    let bytes = match config.disk.open(&file).and_then(|file| read_all(&*file, META_LEN_MAX)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(&file, error)),
    };
    let meta = Meta::decode(&bytes).map_err(|flaw| match flaw {
        Flaw::Version(_) => unsupported(&file, &flaw),
        _ => damaged(&file, 0, 0, &flaw),
    })?;
    Ok(Some(meta))
}

fn workshop(path: &Path, config: &JournalConfig, meta: &Meta, shard: u16) -> Workshop {
    Workshop {
        disk: Arc::clone(&config.disk),
        dir: path.join(format!("shard-{shard:02}")),
        journal: meta.journal,
        shard,
        segment_len: config.segment_len,
        planted: config.planted,
    }
}

/// Refuses a directory that holds something else, before anything is put into it.
fn refuse_foreign(path: &Path, config: &JournalConfig) -> Result<()> {
    let names = config.disk.list(path).map_err(|error| io_error(path, error))?;
    let is_own = |name: &String| name == LOCK || name.ends_with(UNFINISHED);
    match names.iter().find(|name| !is_own(name)) {
        Some(other) if !names.iter().any(|name| name == META) => {
            let message = format!(
                "{} is not a journal, and not empty: there is {other:?} in it",
                path.display()
            );
            Err(Error::new(ErrorKind::InvalidParameter, message).with_field("path"))
        }
        _ => Ok(()),
    }
}

/// Makes a new journal. If this is cut short, the next open begins anew.
fn create(path: &Path, config: &JournalConfig) -> Result<Meta> {
    let disk = &config.disk;
    let meta = Meta {
        journal: random(),
        secret: random(),
        shards: config.shards,
        created_ms: Timestamp::now().as_unix_millis(),
    };
    for shard in 0..meta.shards {
        let workshop = workshop(path, config, &meta, shard);
        disk.create_dir(&workshop.dir).map_err(|error| io_error(&workshop.dir, error))?;
        clear(&workshop)?;
        workshop.make(1).map_err(|error| io_error(&workshop.dir, error))?;
    }
    let (file, unfinished) = (path.join(META), path.join(format!("{META}{UNFINISHED}")));
    // Left behind by an attempt that was cut short.
    let _ = disk.remove(&unfinished);
    let written = disk.create(&unfinished).and_then(|new| {
        new.write_at(&meta.encode(), 0)?;
        new.sync()?;
        disk.rename(&unfinished, &file, false)?;
        disk.sync_dir(path)
    });
    written.map_err(|error| io_error(&file, error))?;
    Ok(meta)
}

/// Removes what an attempt to make a journal has left behind, and nothing else.
fn clear(workshop: &Workshop) -> Result<()> {
    let dir = &workshop.dir;
    for name in workshop.disk.list(dir).map_err(|error| io_error(dir, error))? {
        let path = dir.join(&name);
        if number_in(&name).is_some() && is_used(workshop, &path)? {
            let message = format!("{} has messages, but the file `meta` is missing", dir.display());
            return Err(Error::new(ErrorKind::Integrity, message));
        }
        if number_in(&name).is_some() || name.ends_with(UNFINISHED) {
            workshop.disk.remove(&path).map_err(|error| io_error(&path, error))?;
        }
    }
    Ok(())
}

/// Whether a segment has a first record.
fn is_used(workshop: &Workshop, path: &Path) -> Result<bool> {
    let read =
        workshop.disk.open(path).and_then(|file| read_all(&*file, u64::from(DATA_START) * 2));
    let bytes = read.map_err(|error| io_error(path, error))?;
    let Ok(header) = SegmentHeader::decode(&bytes) else { return Ok(false) };
    let first = bytes.get(DATA_START as usize..).unwrap_or_default();
    Ok(record::read(first, header.salt).is_ok_and(|first| first.kind == Kind::Head))
}
