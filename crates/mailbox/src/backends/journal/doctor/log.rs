//! Reading a whole log, damaged or not. Invariant: whatever keeps the journal from opening is a
//! problem here, because the same rules decide where a log ends and why.

use std::collections::BTreeMap;

use crate::backends::journal::doctor::files::{Folder, INDEX, SegmentFile, folder_name, is_newer};
use crate::backends::journal::doctor::findings::Findings;
use crate::backends::journal::doctor::rebuild::Rebuild;
use crate::backends::journal::doctor::report::{Lost, SegmentReport, SegmentState};
use crate::backends::journal::doctor::walk::{Step, Walk, flaw_of_letter};
use crate::backends::journal::format::fact::{Head, Trimmed};
use crate::backends::journal::format::index::IndexReader;
use crate::backends::journal::format::letter::EncodedLetter;
use crate::backends::journal::format::record::{Kind, Record};
use crate::backends::journal::format::segment::DATA_START;
use crate::backends::journal::format::{FORMAT_VERSION, Flaw, Place};
use crate::backends::journal::scan::{End, Expect, Scan};
use crate::backends::journal::shard::recover::unsupported;
use crate::backends::journal::shard::segment::file_name;
use crate::error::Result;

/// A log that was read.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) rebuild: Rebuild,
    pub(super) segments: BTreeMap<u32, SegmentReport>,
    pub(super) last_lsn: u64,
    /// Parts of segments that cannot be read: number, start, end.
    gaps: Vec<(u32, u32, u32)>,
}

/// What a first look at a segment tells.
#[derive(Debug, Clone, Copy)]
struct Survey {
    used: bool,
    /// The first segment that is needed, by its head, and by anything in it.
    needed_by_head: u32,
    needed: u32,
}

/// One segment that is being read.
struct Reading<'a> {
    file: &'a SegmentFile,
    findings: &'a mut Findings,
    log: &'a mut Log,
    report: SegmentReport,
    last_batch: u64,
}

impl Log {
    /// Reads all of it.
    pub(super) fn read(
        folder: &Folder,
        blank: EncodedLetter,
        findings: &mut Findings,
    ) -> Result<Self> {
        let mut log = Self {
            rebuild: Rebuild::new(blank),
            segments: BTreeMap::new(),
            last_lsn: 0,
            gaps: Vec::new(),
        };
        let surveys = survey_all(folder)?;
        let used = surveys.iter().filter(|(_, survey)| survey.used);
        let last = used.clone().map(|(number, _)| *number).max().unwrap_or(0);
        let needed = used.clone().map(|(_, survey)| survey.needed).max().unwrap_or(0).max(1);
        let by_heads = used.map(|(_, survey)| survey.needed_by_head).max().unwrap_or(0).max(1);
        let mut first = needed.min(last.max(1));
        while first > by_heads && folder.files.contains_key(&(first - 1)) {
            first -= 1;
        }
        for (number, file) in folder.files.range(..first) {
            let report = blank_report(folder, *number, file, SegmentState::NotNeeded);
            findings.remark(&report.file, None, "not needed; the next open removes it".to_owned());
            log.segments.insert(*number, report);
        }
        if last == 0 && !folder.files.is_empty() && !folder.files.contains_key(&1) {
            findings.problem(&folder.file(&file_name(1)), None, "is missing".to_owned());
            findings.lost_uncounted();
        }
        let mut sealed_by = Some(0);
        for number in first..=last {
            sealed_by = match folder.files.get(&number) {
                Some(file) => {
                    log.read_segment(folder, file, sealed_by, number == last, findings)?
                }
                None => {
                    log.rebuild.lose();
                    log.gaps.push((number, 0, u32::MAX));
                    findings.loss(&folder.file(&file_name(number)), None, MISSING.to_owned());
                    None
                }
            };
        }
        findings.goes_on_uncounted();
        log.read_spares(folder, last, sealed_by, findings)?;
        log.read_index(folder, findings)?;
        Ok(log)
    }

    /// Reads a segment that is used. Returns the batch that sealed it.
    fn read_segment(
        &mut self,
        folder: &Folder,
        file: &SegmentFile,
        sealed_by: Option<u64>,
        is_last: bool,
        findings: &mut Findings,
    ) -> Result<Option<u64>> {
        let bytes = folder.read(file)?;
        let number = file.header.number;
        let report = blank_report(folder, number, file, SegmentState::Open);
        let last_batch = sealed_by.unwrap_or(0);
        let reading = Reading { file, findings, log: self, report, last_batch };
        let (report, sealed_by) = reading.read(&bytes, is_last);
        self.segments.insert(number, report);
        Ok(sealed_by)
    }

    /// Segments behind the last one that is used have no records.
    fn read_spares(
        &mut self,
        folder: &Folder,
        last: u32,
        sealed_by: Option<u64>,
        findings: &mut Findings,
    ) -> Result<()> {
        for (number, file) in folder.files.range(last + 1..) {
            let bytes = folder.read(file)?;
            let batch_above = sealed_by.filter(|_| *number == last + 1).unwrap_or(0);
            let scan = Scan::new(&bytes, &file.header, Expect { lsn: None, batch_above });
            let scan = if self.rebuild.synced { scan } else { scan.lenient() };
            let mut report = blank_report(folder, *number, file, SegmentState::Spare);
            if sealed_by.is_some() && (file.is_guess || file.blind_until > 0) {
                // The log went on in the next one, so that this one need not have been a spare.
                findings.lost_uncounted();
            }
            match scan.end() {
                End::Damaged { offset, flaw, .. } => {
                    report.state = SegmentState::Damaged;
                    findings.problem(&report.file, Some(offset.into()), flaw.to_string());
                    findings.lost_uncounted();
                }
                End::Torn { offset, until } => {
                    report.state = SegmentState::Torn;
                    let bytes_left = until.saturating_sub(offset);
                    let what = if self.rebuild.synced {
                        torn(bytes_left)
                    } else {
                        let walk = Walk::new(&bytes, file.header.salt, offset, self.last_lsn);
                        torn_unsynced(bytes_left, walk)
                    };
                    findings.remark(&report.file, Some(offset.into()), what);
                }
                _ => {}
            }
            self.segments.insert(*number, report);
        }
        Ok(())
    }

    /// Checks the index of a clean stop, and makes use of it if something is lost.
    fn read_index(&mut self, folder: &Folder, findings: &mut Findings) -> Result<()> {
        if !folder.has_index {
            return Ok(());
        }
        let file = folder.file(INDEX);
        let Some(bytes) = folder.read_index() else {
            let what = "cannot be read; opening reads the whole log instead".to_owned();
            findings.remark(&file, None, what);
            return Ok(());
        };
        if let Err(flaw) = check_index(&bytes) {
            if is_newer(&flaw) && !is_mended_index(bytes) {
                return Err(unsupported(&folder.dir.join(INDEX), &flaw));
            }
            let what = format!("{flaw}; opening reads the whole log instead");
            findings.remark(&file, None, what);
            return Ok(());
        }
        if !self.rebuild.lossy || !self.rebuild.take_index(&bytes, self.last_lsn) {
            return Ok(());
        }
        let what = "is whole: the state of every message is taken from it".to_owned();
        findings.remark(&file, None, what);
        let unreadable = |place: &Place| {
            let is_in = |(segment, from, to): &(u32, u32, u32)| {
                *segment == place.segment && (*from..*to).contains(&place.offset)
            };
            self.gaps.iter().any(is_in)
        };
        let wards = self.rebuild.wards.values_mut();
        let places = wards.flat_map(|ward| ward.loosen().messages.values().map(|it| it.payload));
        let lost: Vec<Place> = places.filter(unreadable).collect();
        self.rebuild.unreadable.extend(lost);
        Ok(())
    }
}

const MISSING: &str = "is missing, and segments behind it are there";

fn check_index(bytes: &[u8]) -> Result<(), Flaw> {
    let (mut reader, _) = IndexReader::new(bytes)?;
    while reader.next()?.is_some() {}
    Ok(())
}

/// Whether only the version is damaged: the checksum of the head, which covers it, proves that.
fn is_mended_index(mut bytes: Vec<u8>) -> bool {
    let Some(version) = bytes.get_mut(8..12) else { return false };
    version.copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    IndexReader::new(&bytes).is_ok()
}

fn torn(bytes: u32) -> String {
    format!(
        "the last batch was torn by a crash: {bytes} bytes that nobody was told are kept; the \
         next open cuts them off, and saves them"
    )
}

/// The same where senders were told before anything was synced. `walk` starts at the gap.
fn torn_unsynced(bytes: u32, walk: Walk<'_>) -> String {
    let is_whole =
        |step: &Step<'_>| matches!(step, Step::Record(_, it) if flaw_of_letter(it).is_none());
    let whole = walk.filter(is_whole).count();
    format!(
        "the end was torn by a crash: {bytes} bytes, with {whole} whole records behind the gap; \
         sends with os-buffered durability may be among them; the next open cuts them off, and \
         saves them"
    )
}

fn blank_report(
    folder: &Folder,
    number: u32,
    file: &SegmentFile,
    state: SegmentState,
) -> SegmentReport {
    let name = folder.file(&file.name);
    SegmentReport {
        number,
        file: name,
        bytes: file.len,
        records: 0,
        batches: 0,
        live_bytes: 0,
        state,
    }
}

/// Looks which segments are used, and which are needed.
fn survey_all(folder: &Folder) -> Result<BTreeMap<u32, Survey>> {
    let mut surveys = BTreeMap::new();
    let mut last_lsn = 0;
    for (number, file) in &folder.files {
        let bytes = folder.read(file)?;
        let mut survey = Survey { used: false, needed_by_head: 0, needed: 0 };
        // What a file held before it was made a new one is below what is in use.
        let above = if file.is_guess { last_lsn } else { 0 };
        for step in Walk::new(&bytes, file.header.salt, DATA_START, above) {
            let Step::Record(offset, record) = step else { continue };
            survey.used = true;
            last_lsn = last_lsn.max(record.lsn);
            let needed = match record.kind {
                Kind::Head => Head::decode(record.fact).map_or(0, |head| head.first_segment),
                Kind::Trimmed => Trimmed::decode(record.fact).map_or(0, |it| it.first_segment),
                _ => 0,
            };
            survey.needed = survey.needed.max(needed);
            if offset == DATA_START && record.kind == Kind::Head {
                survey.needed_by_head = needed;
            }
        }
        surveys.insert(*number, survey);
    }
    Ok(surveys)
}

impl Reading<'_> {
    fn read(mut self, bytes: &[u8], is_last: bool) -> (SegmentReport, Option<u64>) {
        let header = &self.file.header;
        let rebuild = &self.log.rebuild;
        let known = self.log.last_lsn > 0 && !rebuild.lossy;
        let expect = Expect {
            lsn: known.then(|| self.log.last_lsn.saturating_add(1)),
            batch_above: self.last_batch,
        };
        let mut scan = Scan::new(bytes, header, expect);
        if !is_last {
            scan = scan.strict();
        }
        for (offset, record) in scan.by_ref() {
            self.take(offset, &record);
        }
        let offset = scan.offset();
        if is_last && !self.log.rebuild.synced {
            scan = scan.lenient();
        }
        let is_whole = self.report.state != SegmentState::Damaged;
        match scan.end() {
            End::Sealed { .. } => {
                self.report.state =
                    if is_whole { SegmentState::Sealed } else { SegmentState::Damaged };
                let sealed_by = Some(self.last_batch);
                (self.report, sealed_by)
            }
            End::Clean { offset } => {
                self.doubt(offset);
                (self.report, None)
            }
            End::Torn { offset, until } => {
                self.doubt(offset);
                if is_whole {
                    self.report.state = SegmentState::Torn;
                }
                let bytes_left = until.saturating_sub(offset);
                let what = if self.log.rebuild.synced {
                    torn(bytes_left)
                } else {
                    let salt = self.file.header.salt;
                    torn_unsynced(bytes_left, Walk::new(bytes, salt, offset, self.log.last_lsn))
                };
                self.findings.remark(&self.report.file, Some(offset.into()), what);
                (self.report, None)
            }
            End::Damaged { flaw, .. } => self.walk(bytes, offset, &flaw, is_last),
        }
    }

    /// Goes on behind damage.
    fn walk(
        mut self,
        bytes: &[u8],
        offset: u32,
        flaw: &Flaw,
        is_last: bool,
    ) -> (SegmentReport, Option<u64>) {
        self.report.state = SegmentState::Damaged;
        let problems = self.findings.problems.len();
        let mut walk = Walk::new(bytes, self.file.header.salt, offset, self.log.last_lsn);
        for step in walk.by_ref() {
            match step {
                Step::Record(offset, record) => self.take(offset, &record),
                Step::Gap { from, to, flaw } => self.lose(from, to, &flaw),
            }
        }
        let end = walk.offset();
        if walk.is_sealed() {
            if self.findings.problems.len() == problems {
                // The seal does not fit what it seals, or the records before this segment.
                self.findings.problem(&self.report.file, Some(offset.into()), flaw.to_string());
            }
            return (self.report, Some(self.last_batch));
        }
        if is_last {
            self.doubt(end);
        }
        if !is_last || self.findings.problems.len() == problems {
            let flaw = if walk.has_remains() { walk.flaw() } else { Flaw::Unsealed };
            self.lose(end, u32::MAX, &flaw);
        } else if walk.has_remains() {
            let what = "what follows cannot be read: a torn batch, or damage".to_owned();
            self.findings.remark(&self.report.file, Some(end.into()), what);
        }
        (self.report, None)
    }

    /// The log ends here. Records may have been behind that, where nothing can be read.
    fn doubt(&mut self, end: u32) {
        if self.file.blind_until > u64::from(end) {
            self.findings.lost_uncounted();
        }
    }

    fn lose(&mut self, from: u32, to: u32, flaw: &Flaw) {
        self.log.rebuild.lose();
        self.log.gaps.push((self.file.header.number, from, to));
        self.findings.loss(&self.report.file, Some(from.into()), flaw.to_string());
    }

    /// A record that can be read.
    fn take(&mut self, offset: u32, record: &Record<'_>) {
        let flaw = flaw_of_letter(record);
        let expected = self.log.last_lsn.saturating_add(1);
        let is_known = self.log.last_lsn > 0;
        if is_known && record.lsn > expected {
            if !self.findings.is_open() {
                self.lose(offset, offset, &Flaw::Order);
            }
            self.findings.lost(Lost { from: expected, to: record.lsn - 1 });
        } else if let (false, Kind::Head, Ok(head)) =
            (is_known, record.kind, Head::decode(record.fact))
            && self.findings.is_open()
            && head.first_segment == 1
            && head.previous_lsn > 0
        {
            self.findings.lost(Lost { from: 1, to: head.previous_lsn });
        }
        if is_known {
            self.findings.goes_on();
        } else {
            self.findings.goes_on_uncounted();
        }
        self.log.last_lsn = record.lsn;
        self.report.batches += u64::from(record.batch > self.last_batch);
        self.report.records += 1;
        self.last_batch = record.batch;
        if let Some(flaw) = &flaw {
            self.report.state = SegmentState::Damaged;
            let what = format!("the letter of record {} ({}): {flaw}", record.lsn, record.kind);
            self.findings.problem(&self.report.file, Some(offset.into()), what);
        }
        let len = u32::try_from(record.len).unwrap_or(u32::MAX);
        let place = Place { segment: self.file.header.number, offset, len };
        if let Err(flaw) = self.log.rebuild.apply(place, record, flaw.is_none()) {
            self.report.state = SegmentState::Damaged;
            let what = format!("record {} ({}): {flaw}", record.lsn, record.kind);
            self.findings.problem(&self.report.file, Some(offset.into()), what);
        }
    }
}

/// What is wrong with the mailboxes of a log as they stand.
pub(super) fn check_names(log: &Log, folder: &Folder, findings: &mut Findings) {
    for (number, ward) in &log.rebuild.wards {
        let file = folder_name(folder.shard);
        match ward.name.as_deref().map(crate::name::Name::parse) {
            None => findings.problem(&file, None, format!("mailbox {number} has no name")),
            Some(Err(error)) => {
                findings.problem(&file, None, format!("mailbox {number}: {}", error.message()));
            }
            Some(Ok(_)) => {}
        }
    }
}
