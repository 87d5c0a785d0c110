//! Writing a new journal from what was found in an old one. Invariant: all of it is on the disk
//! before the file `meta` is, without which there is no journal.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mailbox_core::{DeadReason, Keepsake, LeaseId, Time};

use crate::backends::journal::config::{SEGMENT_LEN_MAX, SEGMENT_LEN_MIN};
use crate::backends::journal::disk::Disk;
use crate::backends::journal::doctor::files::{Folder, folder_name};
use crate::backends::journal::doctor::log::Log;
use crate::backends::journal::doctor::loose::die;
use crate::backends::journal::doctor::rebuild::{NOWHERE, Ward};
use crate::backends::journal::doctor::report::Repaired;
use crate::backends::journal::doctor::walk::flaw_of_letter;
use crate::backends::journal::format::event::{Remembered, encode_kept, key_of};
use crate::backends::journal::format::fact::{Anchor, Head, Opened, Sealed, encode_room};
use crate::backends::journal::format::letter::EncodedLetter;
use crate::backends::journal::format::meta::Meta;
use crate::backends::journal::format::record::{self, Kind, RecordHead, record_len};
use crate::backends::journal::format::segment::DATA_START;
use crate::backends::journal::format::{Flaw, Place};
use crate::backends::journal::opening::META;
use crate::backends::journal::planted::Planted;
use crate::backends::journal::shard::log::SEAL_LEN;
use crate::backends::journal::shard::recover::io_error;
use crate::backends::journal::shard::segment::{Segment, UNFINISHED, Workshop, file_name};
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;

/// What a record may grow by when its message is written as it stands.
const GROWTH: u32 = 16 << 10;
/// Opens, and mailboxes, that may have been among what is lost: their numbers are not used again.
const SKIPPED: u32 = 1000;

/// Writes the log of one shard.
pub(super) fn write_log(
    root: &Path,
    meta: &Meta,
    folder: &Folder,
    mut log: Log,
    repaired: &mut Repaired,
) -> Result<()> {
    let dir = root.join(folder_name(folder.shard));
    folder.disk.create_dir(&dir).map_err(|error| io_error(&dir, error))?;
    let mark = Clock::system().mark();
    let now = log.rebuild.now(mark);
    let workshop = Workshop {
        disk: Arc::clone(&folder.disk),
        dir,
        journal: meta.journal,
        shard: folder.shard,
        segment_len: segment_len(folder, &mut log),
        planted: Planted::default(),
    };
    let mut writer = Writer::new(workshop, head(meta, &log, now))?;
    let mut letters = Letters { folder, cached: None };
    let lossy = log.rebuild.lossy;
    for (number, ward) in std::mem::take(&mut log.rebuild.wards) {
        write_ward(&mut writer, &mut letters, number, ward, lossy, now, repaired)?;
    }
    writer.finish()
}

/// As long as those that were there, and long enough for the longest record.
fn segment_len(folder: &Folder, log: &mut Log) -> u32 {
    let longest = folder.files.values().map(|file| file.header.len).max();
    let longest = longest.unwrap_or(16 << 20).clamp(SEGMENT_LEN_MIN, SEGMENT_LEN_MAX);
    let wards = log.rebuild.wards.values_mut();
    let records = wards.flat_map(|ward| ward.loosen().messages.values().map(|it| it.payload.len));
    let needed = records.max().unwrap_or(0).saturating_add(DATA_START + 2 * GROWTH);
    longest.max(needed).next_multiple_of(8)
}

fn head(meta: &Meta, log: &Log, now: Time) -> Head {
    let rebuild = &log.rebuild;
    let skipped = if rebuild.lossy { SKIPPED } else { 0 };
    let shards = u32::from(meta.shards);
    // The highest number there is tells how many were given out at least.
    let given = rebuild.wards.keys().map(|number| (number - 1) / shards + 1).max().unwrap_or(0);
    Head {
        previous: 0,
        previous_lsn: 0,
        first_segment: 1,
        opened: Opened {
            epoch: rebuild.epoch.saturating_add(skipped).min(LeaseId::MAX_EPOCH - 1),
            next_mailbox: rebuild.next_mailbox.max(given).saturating_add(skipped),
            synced: true,
            anchor: rebuild.anchor.unwrap_or(Anchor { time: now, boot: [0; 16], at: 0 }),
        },
    }
}

fn write_ward(
    writer: &mut Writer,
    letters: &mut Letters<'_>,
    number: u32,
    mut ward: Ward,
    lossy: bool,
    now: Time,
    repaired: &mut Repaired,
) -> Result<()> {
    if lossy {
        let wall_ms = crate::timestamp::Timestamp::now().as_unix_millis();
        let why = format!("its message was in a part of {} that is lost", letters.folder_name());
        ward.take_ghosts(number, now, wall_ms, &why);
    }
    let name = ward.name.clone().unwrap_or_default();
    let loose = ward.loosen();
    let mut next_stamp = loose.free_stamp();
    let mut messages: Vec<_> = loose.messages.values().cloned().collect();
    messages.sort_by_key(|kept| kept.payload);
    // Before its messages, with numbers above those that they may still get.
    let mut standing = loose.standing.clone();
    standing.next_stamp = next_stamp.saturating_add(messages.len() as u64);
    // Those that die of this repair. Messages known only by their events are counted already.
    let dies = |kept: &&Keepsake<Place>| kept.death.is_none() && kept.payload != NOWHERE;
    let dying = messages.iter().filter(dies).filter(|kept| letters.find(number, kept).is_err());
    standing.totals.dead_lettered += dying.count() as u64;
    let mut fact = Vec::new();
    encode_room(&name, &standing, &mut fact);
    writer.push(number, Kind::Room, &fact, None)?;
    for mut kept in messages {
        let letter = letters.read(number, &kept);
        let letter = match letter {
            Ok(letter) => {
                repaired.messages += 1;
                letter
            }
            Err(why) => {
                repaired.unreadable += 1;
                if kept.payload != NOWHERE {
                    let why = Some(why.into());
                    die(&mut kept, next_stamp, now, DeadReason::Integrity, why);
                    next_stamp += 1;
                }
                super::blank(None, millis_of(&kept))
            }
        };
        fact.clear();
        encode_kept(&kept, None, &mut fact);
        writer.push(number, Kind::Kept, &fact, Some(&letter))?;
    }
    for (key, (fingerprint, expires, id)) in std::mem::take(&mut loose.keys) {
        if expires > now {
            fact.clear();
            Remembered { id, key, fingerprint, expires }.encode(&mut fact);
            writer.push(number, Kind::Remembered, &fact, None)?;
            repaired.keys += 1;
        }
    }
    repaired.mailboxes += 1;
    Ok(())
}

/// When a message was sent: its id begins with that.
fn millis_of(kept: &Keepsake<Place>) -> i64 {
    i64::try_from(kept.id.0 >> 80).unwrap_or(0)
}

/// Reads letters out of the old segments.
struct Letters<'a> {
    folder: &'a Folder,
    /// The segment that was read last.
    cached: Option<(u32, Vec<u8>)>,
}

impl Letters<'_> {
    fn folder_name(&self) -> String {
        folder_name(self.folder.shard)
    }

    /// The letter of a message, exactly as it was written; or why it cannot be read.
    fn read(&mut self, mailbox: u32, kept: &Keepsake<Place>) -> Result<EncodedLetter, String> {
        let Place { segment, offset, .. } = kept.payload;
        let file = self.folder.file(&file_name(segment));
        self.find(mailbox, kept)
            .map_err(|flaw| format!("unreadable in {file} at offset {offset}: {flaw}"))
    }

    fn find(&mut self, mailbox: u32, kept: &Keepsake<Place>) -> Result<EncodedLetter, Flaw> {
        let place = kept.payload;
        let file = self.folder.files.get(&place.segment).ok_or(Flaw::Length)?;
        if self.cached.as_ref().is_none_or(|(number, _)| *number != place.segment) {
            let bytes = self.folder.read(file).map_err(|_| Flaw::Length)?;
            self.cached = Some((place.segment, bytes));
        }
        let bytes = self.cached.as_ref().map(|(_, bytes)| &bytes[..]).unwrap_or_default();
        let bytes = bytes.get(place.offset as usize..).ok_or(Flaw::Length)?;
        let record = record::read(bytes, file.header.salt)?;
        if record.mailbox != mailbox
            || key_of(record.kind, record.fact)? != (kept.key.seq, kept.key.slot)
        {
            return Err(Flaw::Order);
        }
        match flaw_of_letter(&record) {
            Some(flaw) => Err(flaw),
            None if record.letter.is_empty() => Err(Flaw::Order),
            None => Ok(EncodedLetter { bytes: record.letter.to_vec(), crc: record.letter_crc }),
        }
    }
}

/// Writes records into new segments, one batch each.
struct Writer {
    workshop: Workshop,
    segment: Segment,
    buffer: Vec<u8>,
    head: Head,
    next_lsn: u64,
    batch: u64,
    records: u64,
    /// Where in the buffer the last record starts.
    last_at: usize,
}

impl Writer {
    fn new(workshop: Workshop, head: Head) -> Result<Self> {
        let segment = workshop.make(1).map_err(|error| io_error(&workshop.dir, error))?;
        let mut writer = Self {
            workshop,
            segment,
            buffer: Vec::new(),
            head,
            next_lsn: 1,
            batch: 1,
            records: 0,
            last_at: 0,
        };
        writer.begin();
        Ok(writer)
    }

    /// The first record of a segment.
    fn begin(&mut self) {
        let mut fact = Vec::new();
        self.head.encode(&mut fact);
        self.append(0, Kind::Head, &fact, None);
    }

    fn push(
        &mut self,
        mailbox: u32,
        kind: Kind,
        fact: &[u8],
        letter: Option<&EncodedLetter>,
    ) -> Result<()> {
        let len = record_len(fact.len(), letter.map_or(0, |letter| letter.bytes.len()));
        if !self.fits(len) {
            self.roll()?;
        }
        if !self.fits(len) {
            let message = format!("a record of {len} bytes does not fit into a segment");
            return Err(Error::new(ErrorKind::Internal, message));
        }
        self.append(mailbox, kind, fact, letter);
        Ok(())
    }

    fn fits(&self, len: usize) -> bool {
        let used = DATA_START as usize + self.buffer.len() + len + SEAL_LEN as usize;
        used <= self.segment.len as usize
    }

    fn append(&mut self, mailbox: u32, kind: Kind, fact: &[u8], letter: Option<&EncodedLetter>) {
        let (salt, batch, lsn) = (self.segment.salt, self.batch, self.next_lsn);
        self.last_at = self.buffer.len();
        let head = RecordHead { salt, batch, lsn, mailbox };
        record::append(&mut self.buffer, head, kind, fact, letter);
        self.next_lsn += 1;
        self.records += 1;
    }

    /// Ends the present batch.
    fn end_batch(&mut self) {
        record::mark_last(&mut self.buffer[self.last_at..]);
        self.batch += 1;
    }

    /// Seals the present segment, and begins the next.
    fn roll(&mut self) -> Result<()> {
        let mut fact = Vec::new();
        Sealed { records: self.records + 1 }.encode(&mut fact);
        self.append(0, Kind::Sealed, &fact, None);
        self.end_batch();
        self.flush()?;
        let number = self.segment.number + 1;
        let next = self.workshop.make(number);
        self.segment = next.map_err(|error| io_error(&self.workshop.dir, error))?;
        (self.head.previous, self.head.previous_lsn) = (number - 1, self.next_lsn - 1);
        self.records = 0;
        self.begin();
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let file = &self.segment.file;
        let written = file.write_at(&self.buffer, u64::from(DATA_START)).and_then(|()| file.sync());
        self.buffer.clear();
        written.map_err(|error| io_error(&self.segment.path, error))
    }

    /// Everything is written: a clean stop, in a batch of its own.
    fn finish(mut self) -> Result<()> {
        let mut fact = Vec::new();
        self.head.opened.encode(&mut fact);
        if !self.fits(record_len(fact.len(), 0)) {
            self.roll()?;
        }
        self.end_batch();
        self.append(0, Kind::Closed, &fact, None);
        self.end_batch();
        self.flush()
    }
}

/// Writes the file that makes a directory a journal.
pub(super) fn write_meta(disk: &Arc<dyn Disk>, root: &Path, meta: &Meta) -> Result<()> {
    let (file, unfinished) = (root.join(META), root.join(format!("{META}{UNFINISHED}")));
    let written = disk.create(&unfinished).and_then(|new| {
        new.write_at(&meta.encode(), 0)?;
        new.sync()?;
        disk.rename(&unfinished, &file, false)?;
        disk.sync_dir(root)
    });
    written.map_err(|error| io_error(&file, error))
}

/// Gives every mailbox a name that only it has. Of two with the same name the one that was made
/// first is gone: the name was free when the other was made.
pub(super) fn settle_names(shards: &mut [(Folder, Log)], repaired: &mut Repaired) {
    let mut holders: BTreeMap<String, (usize, u32)> = BTreeMap::new();
    let mut gone = Vec::new();
    for (index, (_, log)) in shards.iter().enumerate() {
        for (number, ward) in &log.rebuild.wards {
            let Some(name) = &ward.name else { continue };
            if let Some(former) = holders.insert(name.clone(), (index, *number)) {
                gone.push(former);
            }
        }
    }
    for (index, number) in gone {
        shards[index].1.rebuild.wards.remove(&number);
    }
    for (folder, log) in shards {
        let shard = folder.shard;
        for (number, ward) in &mut log.rebuild.wards {
            let is_fine =
                ward.name.as_deref().is_some_and(|name| crate::name::Name::parse(name).is_ok());
            if is_fine {
                continue;
            }
            let plain = format!("lost-{shard}-{number}");
            let others = (2..).map(|count| format!("{plain}-{count}"));
            let free = std::iter::once(plain.clone())
                .chain(others)
                .find(|name| !holders.contains_key(name))
                .unwrap_or(plain);
            holders.insert(free.clone(), (usize::from(shard), *number));
            repaired.renamed.push(free.clone());
            ward.name = Some(free);
        }
    }
}
