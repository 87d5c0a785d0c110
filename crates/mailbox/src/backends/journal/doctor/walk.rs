//! Going through a segment that is damaged. Invariant: what is given out as a record was written
//! into this segment, behind everything that was given out before; a record whose letter alone is
//! damaged is still a record.

use crate::backends::journal::format::Flaw;
use crate::backends::journal::format::letter::LetterParts;
use crate::backends::journal::format::record::{
    ALIGNMENT, Kind, Record, read_but_letter, read_unchecked,
};
use crate::backends::journal::format::segment::DATA_START;

/// What comes next.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A record. Its letter has not been looked at.
    Record(u32, Record<'a>),
    /// Bytes that are no record.
    Gap {
        /// Where they start.
        from: u32,
        /// Where the next record is.
        to: u32,
        /// What is wrong at their start.
        flaw: Flaw,
    },
}

/// Finds every record that can be read, whatever is between them.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    data: &'a [u8],
    salt: u32,
    offset: usize,
    /// Records up to this one do not count: they are from another life of the file.
    last_lsn: u64,
    sealed: bool,
    flaw: Option<Flaw>,
}

impl<'a> Walk<'a> {
    /// Starts at `offset`, behind the record with this number.
    pub(super) const fn new(data: &'a [u8], salt: u32, offset: u32, last_lsn: u64) -> Self {
        Self { data, salt, offset: offset as usize, last_lsn, sealed: false, flaw: None }
    }

    /// Where the records end.
    pub(super) fn offset(&self) -> u32 {
        short(self.offset)
    }

    pub(super) const fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Why the records end, if not by a seal.
    pub(super) fn flaw(&self) -> Flaw {
        self.flaw.clone().unwrap_or(Flaw::Unsealed)
    }

    /// Whether anything behind the end belongs to this segment.
    pub(super) fn has_remains(&self) -> bool {
        !self.sealed && find_salt(self.data, self.salt, self.offset).is_some()
    }

    fn record_at(&self, place: usize) -> Result<Record<'a>, Flaw> {
        let rest = self.data.get(place..).ok_or(Flaw::Length)?;
        let record = read_but_letter(rest, self.salt)?;
        if record.lsn <= self.last_lsn { Err(Flaw::Order) } else { Ok(record) }
    }

    fn next_record_from(&self, mut at: usize) -> Option<usize> {
        while let Some(place) = find_salt(self.data, self.salt, at) {
            if self.record_at(place).is_ok() {
                return Some(place);
            }
            at = place + ALIGNMENT;
        }
        None
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        if self.sealed {
            return None;
        }
        match self.record_at(self.offset) {
            Ok(record) => {
                let offset = short(self.offset);
                self.offset += record.len;
                self.last_lsn = record.lsn;
                self.sealed = record.kind == Kind::Sealed;
                Some(Step::Record(offset, record))
            }
            Err(flaw) => {
                let Some(to) = self.next_record_from(self.offset.saturating_add(ALIGNMENT)) else {
                    self.flaw = Some(flaw);
                    return None;
                };
                let from = short(self.offset);
                self.offset = to;
                Some(Step::Gap { from, to: short(to), flaw })
            }
        }
    }
}

/// What is wrong with the letter of a record: its checksum, its form, or the hash of the payload.
pub(super) fn flaw_of_letter(record: &Record<'_>) -> Option<Flaw> {
    if !matches!(record.kind, Kind::Sent | Kind::Kept) {
        return None;
    }
    if crc32c::crc32c(record.letter) != record.letter_crc {
        return Some(Flaw::Checksum);
    }
    let parts = match LetterParts::parse(record.letter) {
        Ok(parts) => parts,
        Err(flaw) => return Some(flaw),
    };
    if !parts.verify() {
        return Some(Flaw::Field("payload: its hash is another"));
    }
    parts.to_letter().err()
}

fn find_salt(data: &[u8], salt: u32, at: usize) -> Option<usize> {
    let rest = data.get(at..)?;
    let salt = salt.to_le_bytes();
    let steps = rest.chunks_exact(ALIGNMENT).position(|step| step[..4] == salt)?;
    Some(at + steps * ALIGNMENT)
}

/// The salt of a segment whose header cannot be read, and the highest record with it: the salt of
/// the latest records there are, because a file that is used again may hold earlier ones too.
pub(super) fn guess_salt(data: &[u8]) -> Option<(u32, u64)> {
    let mut best: Option<(u32, u64)> = None;
    let mut at = DATA_START as usize;
    while let Some(rest) = data.get(at..).filter(|rest| rest.len() >= ALIGNMENT) {
        let salt = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]);
        // The first look is cheap, and nearly always enough to see that there is no record.
        let is_likely = salt != 0 && read_unchecked(rest, salt).is_ok();
        match is_likely.then(|| read_but_letter(rest, salt)) {
            Some(Ok(record)) => {
                if best.is_none_or(|(_, lsn)| lsn < record.lsn) {
                    best = Some((salt, record.lsn));
                }
                at += record.len;
            }
            _ => at += ALIGNMENT,
        }
    }
    best
}

/// Offsets are below the length of a segment, which has 32 bits.
fn short(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}
