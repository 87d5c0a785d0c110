//! Reading the records of a segment, and deciding why they end. Invariant: what is cut off as torn
//! was never waited for by anybody; whatever cannot be explained by a power cut is damage.
//!
//! A batch is written only after the one before it is synced. So if the log cannot be read from
//! some place on, and behind it there is a record of a batch later than the one that was being
//! written, then that place was on the disk once: it has been damaged. If there is none, the batch
//! was torn, and nobody was told that it is kept. Parts of a torn batch may well be there behind a
//! gap, because a disk writes in any order.

use crate::backends::journal::format::Flaw;
use crate::backends::journal::format::fact::Sealed;
use crate::backends::journal::format::record::{
    ALIGNMENT, Kind, RECORD_HEADER, Record, read, read_but_letter, read_unchecked,
};
use crate::backends::journal::format::segment::{DATA_START, SegmentHeader};

/// What the first record of a segment has to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Expect {
    /// Its number, if known.
    pub(crate) lsn: Option<u64>,
    /// Its batch comes later than this one.
    pub(crate) batch_above: u64,
}

/// Why the records of a segment end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The segment is full, and complete.
    Sealed {
        /// Behind the seal.
        offset: u32,
    },
    /// Nothing of this segment follows.
    Clean {
        /// Where the next record would be.
        offset: u32,
    },
    /// The rest is what is left of a batch that was being written.
    Torn {
        /// Where the first record is missing.
        offset: u32,
        /// Behind the last byte of the remains.
        until: u32,
    },
    /// Something that was on the disk cannot be read.
    Damaged {
        /// Where.
        offset: u32,
        /// Number of the record that should be there; 0 if that is not known.
        lost_lsn: u64,
        /// Where the next record is that can be read; 0 if there is none.
        found: u32,
        /// What is wrong there.
        flaw: Flaw,
    },
}

/// What an end that a power cut does not explain is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Damage, if there are later batches behind it.
    Ordinary,
    /// Damage, unless it is a seal.
    Strict,
    /// Torn, whatever comes behind it.
    Lenient,
}

/// Reads the records of one segment. Iterate first, then ask for the [`Scan::end`].
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    data: &'a [u8],
    salt: u32,
    #[cfg(test)]
    is_short: bool,
    mode: Mode,
    checked: bool,
    /// Where the next record is.
    offset: usize,
    /// Where the last one was.
    last_offset: Option<u32>,
    next_lsn: Option<u64>,
    batch: u64,
    batch_complete: bool,
    records: u64,
    sealed: bool,
    /// Why the record at `offset` is not one.
    flaw: Option<Flaw>,
}

impl<'a> Scan<'a> {
    /// Starts at the first record of a segment; `bytes` is the whole file.
    pub(crate) fn new(bytes: &'a [u8], header: &SegmentHeader, expect: Expect) -> Self {
        let len = usize::try_from(header.len).unwrap_or(usize::MAX);
        Self {
            data: &bytes[..bytes.len().min(len)],
            salt: header.salt,
            #[cfg(test)]
            is_short: bytes.len() < len,
            mode: Mode::Ordinary,
            checked: true,
            offset: DATA_START as usize,
            last_offset: None,
            next_lsn: expect.lsn,
            batch: expect.batch_above,
            batch_complete: true,
            records: 0,
            sealed: false,
            flaw: None,
        }
    }

    /// For a segment that must be complete, because another follows it: every end but a seal is
    /// damage.
    pub(crate) const fn strict(mut self) -> Self {
        self.mode = Mode::Strict;
        self
    }

    /// For a log whose batches were not synced one by one, so that a power cut explains any gap:
    /// nothing is damage.
    pub(crate) const fn lenient(mut self) -> Self {
        self.mode = Mode::Lenient;
        self
    }

    /// Compares no checksums.
    pub(crate) const fn unchecked(mut self) -> Self {
        self.checked = false;
        self
    }

    /// The file is shorter than its header says.
    #[cfg(test)]
    pub(crate) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Where the next record is, or would be.
    pub(crate) fn offset(&self) -> u32 {
        short(self.offset)
    }

    /// The last record so far; one before the expected one if there is none, 0 if that is unknown.
    pub(crate) fn last_lsn(&self) -> u64 {
        self.next_lsn.map_or(0, |next| next.saturating_sub(1))
    }

    /// The batch of the last record so far; the one to be above if there is none.
    pub(crate) const fn last_batch(&self) -> u64 {
        self.batch
    }

    /// Where the last record so far is; `None` if there is none.
    pub(crate) const fn last_offset(&self) -> Option<u32> {
        self.last_offset
    }

    /// The last record so far was the last of its batch. If not, and the log goes on behind it
    /// with another batch, it has to be marked as that first: otherwise, when the other batch is
    /// torn, its remains prove that this one was not complete and yet something followed it.
    pub(crate) const fn is_batch_complete(&self) -> bool {
        self.batch_complete
    }

    /// How many records there were so far.
    pub(crate) const fn records(&self) -> u64 {
        self.records
    }

    /// Why the records end here. Reads those that have not been read.
    pub(crate) fn end(mut self) -> End {
        while self.next().is_some() {}
        let offset = short(self.offset);
        if self.sealed {
            return End::Sealed { offset };
        }
        let remains = self.search();
        // A record that is whole and yet impossible is no work of a power cut either.
        let is_whole = matches!(self.flaw, Some(Flaw::Kind(_) | Flaw::Field(_)));
        let found = match self.mode {
            Mode::Ordinary if is_whole => Some(remains.later.or(remains.first).unwrap_or(0)),
            Mode::Ordinary => remains.later,
            Mode::Strict => Some(remains.later.or(remains.first).unwrap_or(0)),
            Mode::Lenient => None,
        };
        if let Some(found) = found {
            let nothing_there = remains.until.is_none();
            let flaw = self.flaw.filter(|_| !nothing_there).unwrap_or(Flaw::Unsealed);
            let lost_lsn = self.next_lsn.unwrap_or(0);
            return End::Damaged { offset, lost_lsn, found: short(found), flaw };
        }
        match remains.until {
            Some(until) => End::Torn { offset, until: short(until) },
            None => End::Clean { offset },
        }
    }

    /// The record at the present place, if it is one that can be there.
    #[inline]
    fn read_next(&self) -> Result<Record<'a>, Flaw> {
        let rest = self.data.get(self.offset..).ok_or(Flaw::Length)?;
        let record =
            if self.checked { read(rest, self.salt) } else { read_unchecked(rest, self.salt) }?;
        let lsn_fits = self.next_lsn.is_none_or(|lsn| record.lsn == lsn);
        let batch_fits =
            if self.records == 0 { record.batch > self.batch } else { record.batch >= self.batch };
        if !lsn_fits || !batch_fits {
            return Err(Flaw::Order);
        }
        if record.kind == Kind::Sealed && Sealed::decode(record.fact)?.records != self.records + 1 {
            return Err(Flaw::Field("count of records"));
        }
        Ok(record)
    }

    /// Looks for what belongs to this segment from the present place on.
    fn search(&self) -> Remains {
        let torn = self.batch.saturating_add(u64::from(self.batch_complete));
        let mut remains = Remains::default();
        let mut at = self.offset;
        while let Some(place) = self.find_salt(at) {
            // A record that was begun is passed over as a whole: its letter is somebody else's
            // words, and must not be taken for records.
            let Ok(record) = read_but_letter(&self.data[place..], self.salt) else {
                remains.extend(place + RECORD_HEADER);
                at = place + ALIGNMENT;
                continue;
            };
            at = place + record.len;
            remains.extend(at);
            remains.first = remains.first.or(Some(place));
            if record.batch > torn {
                remains.later = Some(place);
                if self.mode == Mode::Ordinary {
                    break;
                }
            }
        }
        remains.until = remains.until.map(|until| until.min(self.data.len()));
        remains
    }

    /// Where, from `at` on, the salt is next.
    fn find_salt(&self, at: usize) -> Option<usize> {
        let rest = self.data.get(at..)?;
        let salt = self.salt.to_le_bytes();
        let steps = rest.chunks_exact(ALIGNMENT).position(|step| step[..4] == salt)?;
        Some(at + steps * ALIGNMENT)
    }
}

impl<'a> Iterator for Scan<'a> {
    /// Where a record is, and the record.
    type Item = (u32, Record<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.sealed || self.flaw.is_some() {
            return None;
        }
        match self.read_next() {
            Ok(record) => {
                let offset = short(self.offset);
                self.last_offset = Some(offset);
                self.offset += record.len;
                self.next_lsn = record.lsn.checked_add(1);
                self.batch = record.batch;
                self.batch_complete = record.last;
                self.records += 1;
                self.sealed = record.kind == Kind::Sealed;
                Some((offset, record))
            }
            Err(flaw) => {
                self.flaw = Some(flaw);
                None
            }
        }
    }
}

/// What was found behind the last record that fits.
#[derive(Debug, Default)]
struct Remains {
    /// Behind the last byte that belongs to this segment.
    until: Option<usize>,
    /// The first record that was begun.
    first: Option<usize>,
    /// A record of a batch that was written when the torn one was on the disk.
    later: Option<usize>,
}

impl Remains {
    fn extend(&mut self, end: usize) {
        self.until = self.until.max(Some(end));
    }
}

/// Offsets are below the length of a segment, which has 32 bits.
fn short(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}
