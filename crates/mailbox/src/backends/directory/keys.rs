//! Idempotency keys: the log `seen`, one line a key, read and written under the inbox's lock.
//!
//! A keyed message is written to `.tmp/` and synced, then its line is added and synced, then it is
//! renamed into `incoming/`. So a line whose message is still in `.tmp/` tells of a sender that
//! died in between: whoever comes upon it finishes the send. A line is never without a message.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use mailbox_core::{Policy, Refusal, Time};
use rustix::fs::{AtFlags, Mode, OFlags, openat2, renameat};

use crate::backends::directory::digits::{self, Digits};
use crate::backends::directory::file_name::{FileName, Sort};
use crate::backends::directory::folders::{Folders, PRIVATE_FILE, Side, create_file};
use crate::backends::directory::lock::Locked;
use crate::durability::Durability;

/// The log.
const FILE: &str = "seen";
/// Lines beyond those that are needed at which the log is written anew.
const SPARE: usize = 1024;
/// Longest line: digits, two hashes and a name.
const LINE_LEN: usize = 13 + 1 + 32 + 1 + 64 + 1 + 255 + 1;
/// Longest log: more keys than any policy allows.
const LOG_LEN: u64 = 1 << 30;

type KeyHash = [u8; 16];

/// The keys that are remembered, as this process last read them.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    known: HashMap<KeyHash, Entry>,
    /// Which file that was, and how far it was read.
    /// Held open: the number of a file that is open is given to no other.
    file: Option<(u64, File)>,
    read_to: u64,
    lines: usize,
}

#[derive(Debug, Clone)]
struct Entry {
    expires: Time,
    payload: blake3::Hash,
    /// What its message was called at first.
    name: FileName,
}

/// What a key says about a send.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nobody has used it.
    New,
    /// The same was sent before, under this name.
    Duplicate(FileName),
}

impl Keys {
    /// What is known about a key.
    ///
    /// # Errors
    /// As `Ok(Err(..))`: [`Refusal::KeyTaken`], [`Refusal::DedupFull`].
    pub(crate) fn check(
        &mut self,
        folders: &Folders,
        _alone: &Locked<'_>,
        now: Time,
        key: &str,
        payload: &blake3::Hash,
        policy: &Policy,
    ) -> io::Result<Result<Verdict, Refusal>> {
        self.refresh(folders)?;
        let hash = hash(key);
        if let Some(entry) = self.known.get(&hash).filter(|entry| entry.expires > now) {
            if entry.payload == *payload {
                return Ok(Ok(Verdict::Duplicate(entry.name.clone())));
            }
            let first = entry.name.id().as_ulid();
            return Ok(Err(Refusal::KeyTaken { first: mailbox_core::Id(first.unwrap_or(0)) }));
        }
        self.known.retain(|_, entry| entry.expires > now);
        let capacity = policy.dedup_capacity;
        if self.known.len() >= capacity {
            let first = self.known.values().map(|entry| entry.expires).min();
            let retry_after = first.map_or(Duration::ZERO, |first| first.since(now));
            return Ok(Err(Refusal::DedupFull { capacity, retry_after }));
        }
        Ok(Ok(Verdict::New))
    }

    /// Remembers a key. Its message must be in `.tmp/`, and on the disk.
    pub(crate) fn add(
        &mut self,
        folders: &Folders,
        _alone: &Locked<'_>,
        entry: New<'_>,
        durability: Durability,
    ) -> io::Result<()> {
        let New { now, key, payload, name, policy } = entry;
        let expires = now.after(policy.replay_window);
        let entry = Entry { expires, payload: *payload, name: name.clone() };
        if self.lines > 2 * self.known.len() + SPARE {
            self.rewrite(folders)?;
        }
        let mut file = open(folders, OFlags::CREATE)?;
        // Half of a line: its writer died, and its message is in `.tmp/`, sent by nobody.
        file.set_len(self.read_to)?;
        file.seek(SeekFrom::Start(self.read_to))?;
        let line = line(&hash(key), &entry);
        file.write_all(line.as_bytes())?;
        if durability == Durability::Fsync {
            file.sync_data()?;
            if self.read_to == 0 {
                // It may be new: then its name has to last too.
                rustix::fs::fsync(folders.root())?;
            }
        }
        self.read_to += line.len() as u64;
        self.lines += 1;
        self.known.insert(hash(key), entry);
        Ok(())
    }

    /// Which message had this key first, and whether it said the same; remembers this one if none
    /// had, and there is room. Not synced: it is about messages that nobody was promised anything
    /// about.
    pub(crate) fn first_with(
        &mut self,
        folders: &Folders,
        alone: &Locked<'_>,
        new: New<'_>,
    ) -> io::Result<Option<(Box<str>, bool)>> {
        self.refresh(folders)?;
        if let Some(entry) = self.known.get(&hash(new.key)).filter(|entry| entry.expires > new.now)
        {
            return Ok(Some((entry.name.base().into(), entry.payload == *new.payload)));
        }
        self.known.retain(|_, entry| entry.expires > new.now);
        if self.known.len() < new.policy.dedup_capacity {
            self.add(folders, alone, new, Durability::OsBuffered)?;
        }
        Ok(None)
    }

    /// Remembers a key for this message instead.
    pub(crate) fn replace(
        &mut self,
        folders: &Folders,
        alone: &Locked<'_>,
        new: New<'_>,
    ) -> io::Result<()> {
        self.add(folders, alone, new, Durability::OsBuffered)
    }

    /// How many are remembered.
    pub(crate) fn count(
        &mut self,
        folders: &Folders,
        _alone: &Locked<'_>,
        now: Time,
    ) -> io::Result<u64> {
        self.refresh(folders)?;
        Ok(self.known.values().filter(|entry| entry.expires > now).count() as u64)
    }

    /// Reads what others have added.
    fn refresh(&mut self, folders: &Folders) -> io::Result<()> {
        // Whoever only looks makes no file: there may be no space for one.
        let mut file = match open(folders, OFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                *self = Self::default();
                return Ok(());
            }
            opened => opened?,
        };
        let found = file.metadata()?;
        if !found.is_file() || found.len() > LOG_LEN {
            let why = "`seen` is no log of keys; move it away";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let known = self.file.as_ref().map(|(number, _)| *number);
        if known != Some(found.ino()) || found.len() < self.read_to {
            let held = Some((found.ino(), file.try_clone()?));
            *self = Self { file: held, ..Self::default() };
        }
        file.seek(SeekFrom::Start(self.read_to))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.lines += 1;
            // A line that makes no sense was damaged, or written by hand: the others count.
            if let Some((hash, entry)) = parse(line) {
                self.known.insert(hash, entry);
            }
        }
        self.read_to += whole as u64;
        Ok(())
    }

    /// Writes the log anew, with those that are needed.
    fn rewrite(&mut self, folders: &Folders) -> io::Result<()> {
        const NEW: &str = ".seen";
        let _ = rustix::fs::unlinkat(folders.root(), NEW, AtFlags::empty());
        let mut file = File::from(create_file(folders.root(), NEW, folders.trust())?);
        let lines: String = self.known.iter().map(|(hash, entry)| line(hash, entry)).collect();
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        renameat(folders.root(), NEW, folders.root(), FILE)?;
        rustix::fs::fsync(folders.root())?;
        self.file = Some((file.metadata()?.ino(), file));
        self.read_to = lines.len() as u64;
        self.lines = self.known.len();
        Ok(())
    }
}

/// A key to be remembered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct New<'a> {
    pub(crate) now: Time,
    pub(crate) key: &'a str,
    pub(crate) payload: &'a blake3::Hash,
    pub(crate) name: &'a FileName,
    pub(crate) policy: &'a Policy,
}

/// Finishes a send whose sender died before its last step; false if there was nothing to finish.
pub(crate) fn is_unfinished(folders: &Folders, base: &str) -> bool {
    rustix::fs::statat(folders.side(Side::Tmp), base, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

fn open(folders: &Folders, create: OFlags) -> io::Result<File> {
    let flags = OFlags::RDWR | create | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // What is no file must not keep anybody waiting.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = rustix::fs::ResolveFlags::BENEATH | rustix::fs::ResolveFlags::NO_SYMLINKS;
    let mode = if create.is_empty() { Mode::empty() } else { PRIVATE_FILE };
    let file = File::from(openat2(folders.root(), FILE, flags, mode, resolve)?);
    if !create.is_empty() {
        // Only its owner can; whoever made it has done so.
        let _ = folders.trust().share(&file);
    }
    Ok(file)
}

fn hash(key: &str) -> KeyHash {
    let hash = blake3::hash(key.as_bytes());
    hash.as_bytes()[..16].try_into().expect("sixteen bytes")
}

fn line(hash: &KeyHash, entry: &Entry) -> String {
    let key = u128::from_be_bytes(*hash);
    let expires = Digits(entry.expires.as_nanos());
    format!("{expires} {key:032x} {} {}\n", entry.payload.to_hex(), entry.name)
}

fn parse(line: &[u8]) -> Option<(KeyHash, Entry)> {
    if line.len() >= LINE_LEN {
        return None;
    }
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let expires = Time::from_nanos(digits::parse(words.next()?)?);
    let hash = u128::from_str_radix(words.next()?, 16).ok()?.to_be_bytes();
    let payload = blake3::Hash::from_hex(words.next()?).ok()?;
    let Sort::Message(name) = FileName::sort(words.next()?) else { return None };
    words.next().is_none().then_some((hash, Entry { expires, payload, name }))
}
