//! Opening a log. Invariant: it may be interrupted at any point and begun again, any number of
//! times, and comes to the same end; what it takes for granted afterwards is on the disk, whatever
//! the page cache showed.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use mailbox_core::{Event, LeaseId, Queue, Time};

use crate::backends::journal::format::fact::Head;
use crate::backends::journal::format::record::{self, Kind};
use crate::backends::journal::format::segment::{DATA_START, SEGMENT_HEADER, SegmentHeader};
use crate::backends::journal::format::{Flaw, Place};
use crate::backends::journal::planted::Bug;
use crate::backends::journal::scan::{End, Expect, Scan};
use crate::backends::journal::shard::Start;
use crate::backends::journal::shard::closing;
use crate::backends::journal::shard::log::Resume;
use crate::backends::journal::shard::replay::Replay;
use crate::backends::journal::shard::segment::{self, Segment, UNFINISHED, Workshop};
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Mark;
use crate::home::random;

/// Files with the bytes of torn batches that are kept.
const TORN_KEPT: usize = 8;

/// A log that can go on.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) start: Start,
    pub(crate) rooms: Vec<RecoveredRoom>,
    /// The highest number of a mailbox that anything was written about.
    pub(crate) highest_mailbox: u32,
    /// The queue time to go on with.
    pub(crate) now: Time,
}

/// A mailbox that was there.
#[derive(Debug)]
pub(crate) struct RecoveredRoom {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) queue: Queue<Place>,
    pub(crate) stated_in: u32,
}

/// Where the records end.
#[derive(Debug)]
pub(super) struct LogEnd {
    pub(super) segment: Arc<Segment>,
    pub(super) offset: u32,
    pub(super) records_in_segment: u64,
    pub(super) last_lsn: u64,
    pub(super) last_batch: u64,
    pub(super) sealed: bool,
    /// The last record, if its batch was torn behind it.
    pub(super) open_batch: Option<u32>,
    /// How many segments behind it were never written to.
    pub(super) spares: u32,
    /// It was closed properly, so there is nothing to mend.
    pub(super) clean: bool,
}

impl LogEnd {
    /// The start of a segment that has no records.
    const fn nowhere(segment: Arc<Segment>) -> Self {
        Self {
            segment,
            offset: DATA_START,
            records_in_segment: 0,
            last_lsn: 0,
            last_batch: 0,
            sealed: false,
            open_batch: None,
            spares: 0,
            clean: false,
        }
    }
}

/// Opens the log of a shard. The first segment was made when the journal was.
pub(crate) fn recover(workshop: Workshop, mark: Mark) -> Result<Recovered> {
    let mut files = Files::find(&workshop)?;
    let mut replay = Replay::new(u64::from_le_bytes(random()), workshop.planted);
    let (mut segments, end) = match closing::read_index(&workshop, &files, &mut replay)? {
        Some(end) => (files.used_until(end.segment.number), Some(end)),
        None => replay_all(&workshop, &files, &mut replay)?,
    };
    // Nothing was ever written: then it begins with the first.
    replay.first_segment = replay.first_segment.max(1);
    let last = end.as_ref().map_or(0, |end| end.segment.number);
    // Before anything is changed: a journal that is refused stays as it is.
    if let Some(missing) = (replay.first_segment..=last).find(|it| !segments.contains_key(it)) {
        return Err(missing_segment(&workshop, missing));
    }
    // A segment is sealed only when the next one is there, and from then on there always is one.
    let goes_on = end.as_ref().is_none_or(|end| end.sealed);
    if goes_on && !files.by_number.contains_key(&(last + 1)) {
        return Err(missing_segment(&workshop, last + 1));
    }
    let resume = resume(&workshop, &mut files, &mut segments, end)?;
    for (number, old) in segments.range(..replay.first_segment) {
        tracing::debug!(number, "a segment that was not needed any more");
        remove(&workshop, &old.path)?;
    }
    let kept = segments.split_off(&replay.first_segment);
    finish(workshop, replay, kept, resume, mark)
}

fn finish(
    workshop: Workshop,
    replay: Replay,
    segments: BTreeMap<u32, Arc<Segment>>,
    resume: Resume,
    mark: Mark,
) -> Result<Recovered> {
    let reuse = workshop.planted.has(Bug::ReusedLease);
    let epoch = if reuse { replay.epoch } else { replay.epoch + 1 };
    if epoch > LeaseId::MAX_EPOCH {
        let message = format!("{}: opened too many times", workshop.dir.display());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let mut now = replay.anchor.map_or(Time::ZERO, |anchor| {
        let same_boot = anchor.boot == mark.boot && mark.boot != [0; 16];
        let passed = if same_boot { mark.at.saturating_sub(anchor.at) } else { 0 };
        anchor.time.after(std::time::Duration::from_nanos(passed))
    });
    let mut rooms = Vec::with_capacity(replay.rooms.len());
    for (number, mut replica) in replay.rooms {
        let Some(name) = replica.name else {
            let message = format!("{}: mailbox {number} has no name", workshop.dir.display());
            return Err(Error::new(ErrorKind::Integrity, message));
        };
        let queue = &mut replica.queue;
        queue.put_in_order();
        let at = queue.standing().latest;
        now = now.max(at);
        let _ = queue.replay(queue.next_stamp(), Event::Opened { at, epoch });
        for kept in queue.keepsakes() {
            if let Some(segment) = segments.get(&kept.payload.segment) {
                segment.add_live(kept.payload.len);
            }
        }
        rooms.push(RecoveredRoom {
            number,
            name,
            queue: replica.queue,
            stated_in: replica.stated_in,
        });
    }
    let (first_segment, next_mailbox) = (replay.first_segment, replay.next_mailbox);
    let highest_mailbox = replay.highest_mailbox;
    let unsynced = !replay.synced;
    let start = Start { workshop, resume, segments, first_segment, epoch, next_mailbox, unsynced };
    Ok(Recovered { start, rooms, highest_mailbox, now })
}

/// The segments that are there.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) by_number: BTreeMap<u32, (SegmentHeader, Arc<Segment>)>,
}

impl Files {
    fn find(workshop: &Workshop) -> Result<Self> {
        let mut by_number = BTreeMap::new();
        let names = workshop.disk.list(&workshop.dir).map_err(|e| io_error(&workshop.dir, e))?;
        for name in names {
            let path = workshop.dir.join(&name);
            if name.ends_with(UNFINISHED) {
                remove(workshop, &path)?;
            }
            let Some(number) = segment::number_in(&name) else { continue };
            let (header, segment) = open_segment(workshop, &path, number)?;
            by_number.insert(number, (header, Arc::new(segment)));
        }
        if by_number.is_empty() {
            let message = format!("{}: all segments are missing", workshop.dir.display());
            return Err(Error::new(ErrorKind::Integrity, message));
        }
        Ok(Self { by_number })
    }

    pub(super) fn used_until(&self, last: u32) -> BTreeMap<u32, Arc<Segment>> {
        let used = self.by_number.range(..=last);
        used.map(|(number, (_, segment))| (*number, Arc::clone(segment))).collect()
    }
}

/// Opens a segment and checks that it is the one that its name says.
pub(crate) fn open_segment(
    workshop: &Workshop,
    path: &Path,
    number: u32,
) -> Result<(SegmentHeader, Segment)> {
    let file = workshop.disk.open(path).map_err(|error| io_error(path, error))?;
    let len = file.len().map_err(|error| io_error(path, error))?;
    let mut bytes = vec![0; SEGMENT_HEADER.min(usize::try_from(len).unwrap_or(usize::MAX))];
    file.read_at(&mut bytes, 0).map_err(|error| io_error(path, error))?;
    let header = SegmentHeader::decode(&bytes).map_err(|flaw| match flaw {
        Flaw::Version(_) => unsupported(path, &flaw),
        _ => damaged(path, 0, 0, &flaw),
    })?;
    if header.journal != workshop.journal || header.shard != workshop.shard {
        return Err(damaged(path, 0, 0, &Flaw::Field("journal id: it is another journal's")));
    }
    if header.number != number {
        return Err(damaged(path, 0, 0, &Flaw::Field("number: it was renamed")));
    }
    if len < u64::from(header.len) {
        let message = format!(
            "{}: cut off at {len} of {} bytes; what was behind is lost; {ADVICE}",
            path.display(),
            header.len
        );
        return Err(Error::new(ErrorKind::Integrity, message));
    }
    let segment = Segment::new(&header, path.to_owned(), file);
    Ok((header, segment))
}

type Replayed = (BTreeMap<u32, Arc<Segment>>, Option<LogEnd>);

/// Reads every record there is. `None` as the end: nothing was ever written.
fn replay_all(workshop: &Workshop, files: &Files, replay: &mut Replay) -> Result<Replayed> {
    let Some((first, last)) = used_run(files)? else {
        check_unused(workshop, files, 0, Some(0), replay)?;
        return Ok((BTreeMap::new(), None));
    };
    let mut expect = Expect::default();
    let mut end: Option<LogEnd> = None;
    for number in first..=last {
        let (header, segment) = &files.by_number[&number];
        let bytes = segment.read_all().map_err(|error| io_error(&segment.path, error))?;
        let is_last = number == last;
        let found = replay_segment(workshop, header, segment, &bytes, expect, is_last, replay)?;
        expect = Expect { lsn: Some(found.last_lsn + 1), batch_above: found.last_batch };
        end = Some(found);
    }
    let sealed_by = end.as_ref().filter(|end| end.sealed).map(|end| end.last_batch);
    let spares = check_unused(workshop, files, last, sealed_by, replay)?;
    if let Some(end) = &mut end {
        end.spares = spares;
    }
    Ok((files.used_until(last), end))
}

/// The segments that hold the log, which follow each other without a gap.
fn used_run(files: &Files) -> Result<Option<(u32, u32)>> {
    let (mut last, mut needed) = (None, 0);
    for (number, (header, segment)) in &files.by_number {
        if let Some(head) = read_head(header, segment)? {
            last = Some(*number);
            needed = needed.max(head.first_segment);
        }
    }
    let Some(last) = last else { return Ok(None) };
    let mut first = last;
    while first > needed.max(1) && files.by_number.contains_key(&(first - 1)) {
        first -= 1;
    }
    Ok(Some((first, last)))
}

/// The first record of a segment, if it was ever used.
fn read_head(header: &SegmentHeader, segment: &Segment) -> Result<Option<Head>> {
    let mut bytes = vec![0; (header.len - DATA_START).min(256) as usize];
    let read = segment.file.read_at(&mut bytes, u64::from(DATA_START));
    read.map_err(|error| io_error(&segment.path, error))?;
    let first = record::read(&bytes, header.salt).ok();
    let head = first.filter(|record| record.kind == Kind::Head);
    Ok(head.and_then(|record| Head::decode(record.fact).ok()))
}

/// Segments behind the last one that is used are spares: a record in one of them means that the
/// log before it is lost. Only the first batch in the next one may have been torn, if the last was
/// sealed by batch `sealed_by`.
/// Gives how many of them were never written to.
fn check_unused(
    workshop: &Workshop,
    files: &Files,
    last: u32,
    sealed_by: Option<u64>,
    replay: &Replay,
) -> Result<u32> {
    let mut untouched = 0;
    for (number, (header, segment)) in files.by_number.range(last + 1..) {
        let bytes = segment.read_all().map_err(|error| io_error(&segment.path, error))?;
        // In all others not even a batch numbered 1 can be.
        let batch_above = sealed_by.filter(|_| *number == last + 1).unwrap_or(0);
        let scan = Scan::new(&bytes, header, Expect { lsn: None, batch_above });
        let scan = if replay.synced { scan } else { scan.lenient() };
        match scan.end() {
            End::Clean { offset: DATA_START } if *number == last + 1 + untouched => untouched += 1,
            End::Damaged { offset, lost_lsn, flaw, .. } => {
                return Err(damaged(&segment.path, offset, lost_lsn, &flaw));
            }
            End::Torn { offset, until } => {
                save_torn(workshop, segment, offset, &bytes[offset as usize..until as usize])?;
            }
            _ => {}
        }
    }
    Ok(untouched)
}

fn replay_segment(
    workshop: &Workshop,
    header: &SegmentHeader,
    segment: &Arc<Segment>,
    bytes: &[u8],
    expect: Expect,
    is_last: bool,
    replay: &mut Replay,
) -> Result<LogEnd> {
    let trust = workshop.planted.has(Bug::DamageIsEnd);
    let mut scan = Scan::new(bytes, header, expect);
    if workshop.planted.has(Bug::NoChecksum) {
        scan = scan.unchecked();
    }
    if !is_last && !trust {
        scan = scan.strict();
    }
    for (offset, record) in scan.by_ref() {
        let len = u32::try_from(record.len).unwrap_or(u32::MAX);
        let place = Place { segment: header.number, offset, len };
        let noted = replay
            .apply(place, &record)
            .map_err(|flaw| damaged(&segment.path, offset, record.lsn, &flaw))?;
        if let Some(until) = noted.key_until {
            segment.note_key(until.as_nanos());
        }
    }
    let mut found = LogEnd {
        segment: Arc::clone(segment),
        offset: scan.offset(),
        records_in_segment: scan.records(),
        last_lsn: scan.last_lsn(),
        last_batch: scan.last_batch(),
        sealed: false,
        open_batch: scan.last_offset().filter(|_| !scan.is_batch_complete()),
        spares: 0,
        clean: false,
    };
    if trust || is_last && !replay.synced {
        scan = scan.lenient();
    }
    match scan.end() {
        End::Sealed { .. } => found.sealed = true,
        End::Clean { .. } => {}
        End::Torn { offset, until } => {
            save_torn(workshop, segment, offset, &bytes[offset as usize..until as usize])?;
        }
        End::Damaged { offset, lost_lsn, flaw, .. } => {
            return Err(damaged(&segment.path, offset, lost_lsn, &flaw));
        }
    }
    Ok(found)
}

/// Keeps the bytes of a batch that was being written when the power went.
fn save_torn(workshop: &Workshop, segment: &Segment, offset: u32, bytes: &[u8]) -> Result<()> {
    tracing::warn!(
        path = %segment.path.display(), offset, bytes = bytes.len(),
        "what was being written at a crash is cut off; its bytes are saved"
    );
    let name = |count: usize| format!("torn-{:08x}-{offset:08x}-{count}", segment.number);
    let listed = workshop.disk.list(&workshop.dir).map_err(|e| io_error(&workshop.dir, e))?;
    let mut torn: Vec<String> =
        listed.into_iter().filter(|name| name.starts_with("torn-")).collect();
    torn.sort();
    let free = (0..=TORN_KEPT).map(name).find(|name| !torn.contains(name));
    for old in torn.iter().take((torn.len() + 1).saturating_sub(TORN_KEPT)) {
        remove(workshop, &workshop.dir.join(old))?;
    }
    let Some(name) = free else { return Ok(()) };
    let path = workshop.dir.join(name);
    let saved = workshop.disk.create(&path).and_then(|file| {
        file.write_at(bytes, 0)?;
        file.sync()
    });
    if let Err(error) = saved {
        // A disk that is full must not keep the journal from opening.
        tracing::warn!(path = %path.display(), %error, "cannot save the bytes of a torn batch");
        let _ = workshop.disk.remove(&path);
    }
    Ok(())
}

/// Makes sure that what was read is on the disk, and finds where to go on.
fn resume(
    workshop: &Workshop,
    files: &mut Files,
    segments: &mut BTreeMap<u32, Arc<Segment>>,
    end: Option<LogEnd>,
) -> Result<Resume> {
    let clean = end.as_ref().is_some_and(|end| end.clean);
    let last = end.as_ref().map_or(0, |end| end.segment.number);
    let untouched = end.as_ref().map_or(0, |end| end.spares);
    let goes_on = end.as_ref().is_none_or(|end| end.sealed);
    let (mut spares, mut next) = (VecDeque::new(), None);
    for (number, (header, spare)) in files.by_number.split_off(&(last + 1)) {
        let count = u32::try_from(spares.len()).unwrap_or(u32::MAX);
        let is_spare = number == last + 1 + count && count < untouched;
        if is_spare && header.len == workshop.segment_len {
            spares.push_back(spare);
        } else if goes_on && number == last + 1 {
            next = Some(spare);
        } else {
            remove(workshop, &spare.path)?;
            // As long as it is open, its space is not free: what comes next may need it.
            drop(spare);
        }
    }
    let (mut last_lsn, mut last_batch) = (0, 0);
    if let Some(mut end) = end {
        if !clean && !workshop.planted.has(Bug::PageCacheTrusted) {
            end.segment = renew(workshop, &end)?;
            segments.insert(last, Arc::clone(&end.segment));
        }
        (last_lsn, last_batch) = (end.last_lsn, end.last_batch);
        if !end.sealed {
            let LogEnd { segment, offset, records_in_segment, .. } = end;
            return Ok(Resume {
                segment,
                offset,
                records_in_segment,
                last_lsn,
                last_batch,
                spares,
            });
        }
    }
    let next = match (spares.pop_front(), next) {
        (Some(spare), _) => spare,
        // It may hold remains of a first batch that was torn.
        (None, Some(torn)) => renew(workshop, &LogEnd::nowhere(torn))?,
        (None, None) => return Err(missing_segment(workshop, last + 1)),
    };
    segments.insert(next.number, Arc::clone(&next));
    Ok(Resume {
        segment: next,
        offset: DATA_START,
        records_in_segment: 0,
        last_lsn,
        last_batch,
        spares,
    })
}

fn renew(workshop: &Workshop, end: &LogEnd) -> Result<Arc<Segment>> {
    let old = &end.segment;
    let renewed = old.read_all().and_then(|mut bytes| {
        bytes.truncate(end.offset as usize);
        if let Some(last) = end.open_batch {
            // The batch ends here from now on, or what is torn next would look like damage.
            record::mark_last(&mut bytes[last as usize..]);
        }
        workshop.renew(old, &bytes)
    });
    let renewed = renewed.map_err(|error| io_error(&old.path, error))?;
    renewed.note_key(old.keys_until());
    Ok(Arc::new(renewed))
}

fn remove(workshop: &Workshop, path: &Path) -> Result<()> {
    workshop.disk.remove(path).map_err(|error| io_error(path, error))
}

/// What an operator can do about damage.
pub(crate) const ADVICE: &str = "`mailbox doctor` shows what can be read, and saves it on request";

/// A file is not what was written.
pub(crate) fn damaged(path: &Path, offset: u32, lost_lsn: u64, flaw: &Flaw) -> Error {
    let lost = match lost_lsn {
        0 => String::new(),
        lsn => format!("; the first lost record is number {lsn}"),
    };
    let message = format!("{}: damaged at offset {offset}: {flaw}{lost}; {ADVICE}", path.display());
    Error::new(ErrorKind::Integrity, message)
}

pub(crate) fn unsupported(path: &Path, flaw: &Flaw) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{}: {flaw}", path.display()))
}

pub(super) fn missing_segment(workshop: &Workshop, number: u32) -> Error {
    let path = workshop.dir.join(segment::file_name(number));
    let message =
        format!("{}: is missing, and segments behind it are there; {ADVICE}", path.display());
    Error::new(ErrorKind::Integrity, message)
}

/// The file system said no.
pub(crate) fn io_error(path: &Path, error: std::io::Error) -> Error {
    let message = format!("{}: {error}", path.display());
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Error::new(ErrorKind::Saturated, message).with_field("storage")
        }
        std::io::ErrorKind::NotADirectory => {
            Error::new(ErrorKind::InvalidParameter, message).with_field("path")
        }
        std::io::ErrorKind::NotFound => Error::new(ErrorKind::NotFound, message),
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            Error::new(ErrorKind::Forbidden, message)
        }
        _ => Error::new(ErrorKind::Internal, message),
    }
}
