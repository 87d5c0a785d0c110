//! A record of the log: a header, a fact, and for some facts a letter. Invariant: what was read
//! with [`read`] is, to the bit, what was written into this segment, padding left out.
//!
//! ```text
//!  0 salt u32   4 crc u32 (of the salt, bytes 8..40 and the fact)
//!  8 batch u64  16 lsn u64
//! 24 mailbox u32  28 kind u8  29 flags u8  30 fact_len u16
//! 32 letter_len u32  36 letter_crc u32  40 fact, letter, zeros up to a multiple of 8
//! ```
//!
//! The letter has a checksum of its own, so that it can be computed before the record has a place
//! in the order of the log.

use std::fmt;

use crc32c::{crc32c, crc32c_append};

use crate::backends::journal::format::Flaw;
use crate::backends::journal::format::cursor::Cursor;
use crate::backends::journal::format::letter::EncodedLetter;

/// Length of a record's header.
pub(crate) const RECORD_HEADER: usize = 40;
/// Records start at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;
/// The flag of the last record of a batch; there is no other.
const LAST: u8 = 1;
const FLAGS_AT: usize = 29;
const FACT_LEN_AT: usize = 30;

/// `len`, rounded up to where the next record can start.
pub(crate) const fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGNMENT)
}

/// Length of a record, padding included.
pub(crate) const fn record_len(fact_len: usize, letter_len: usize) -> usize {
    padded(RECORD_HEADER + fact_len + letter_len)
}

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The first record of a segment.
    Head = 1,
    /// The journal was opened.
    Opened = 2,
    /// The segment is full: its last record.
    Sealed = 3,
    /// Segments before a certain one are not needed any more.
    Trimmed = 4,
    /// The journal was closed in order.
    Closed = 5,
    /// A mailbox as it stands: its name, its rules, its counters.
    Room = 6,
    /// A mailbox was removed.
    Removed = 7,
    /// A message was accepted.
    Sent = 16,
    /// It was handed out.
    Delivered = 17,
    /// It was acknowledged, and is gone.
    Acknowledged = 18,
    /// It was nacked.
    Nacked = 19,
    /// Its delivery was extended.
    Extended = 20,
    /// Its delivery was undone before anybody saw it.
    Returned = 21,
    /// It became a dead letter.
    DeadLettered = 22,
    /// A dead letter is back in line.
    Redriven = 23,
    /// A dead letter was deleted.
    Discarded = 24,
    /// Every message that is not a dead letter was removed.
    Purged = 25,
    /// The rules of a mailbox changed.
    Configured = 26,
    /// A message as it stands, moved out of an old segment.
    Kept = 32,
    /// An idempotency key whose message is gone, moved out of an old segment.
    Remembered = 33,
}

impl Kind {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 20] = [
        Self::Head,
        Self::Opened,
        Self::Sealed,
        Self::Trimmed,
        Self::Closed,
        Self::Room,
        Self::Removed,
        Self::Sent,
        Self::Delivered,
        Self::Acknowledged,
        Self::Nacked,
        Self::Extended,
        Self::Returned,
        Self::DeadLettered,
        Self::Redriven,
        Self::Discarded,
        Self::Purged,
        Self::Configured,
        Self::Kept,
        Self::Remembered,
    ];

    /// The number it is written as.
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// The kind with this number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Head,
            2 => Self::Opened,
            3 => Self::Sealed,
            4 => Self::Trimmed,
            5 => Self::Closed,
            6 => Self::Room,
            7 => Self::Removed,
            16 => Self::Sent,
            17 => Self::Delivered,
            18 => Self::Acknowledged,
            19 => Self::Nacked,
            20 => Self::Extended,
            21 => Self::Returned,
            22 => Self::DeadLettered,
            23 => Self::Redriven,
            24 => Self::Discarded,
            25 => Self::Purged,
            26 => Self::Configured,
            32 => Self::Kept,
            33 => Self::Remembered,
            _ => return None,
        })
    }

    /// Its name, for people.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Opened => "opened",
            Self::Sealed => "sealed",
            Self::Trimmed => "trimmed",
            Self::Closed => "closed",
            Self::Room => "room",
            Self::Removed => "removed",
            Self::Sent => "sent",
            Self::Delivered => "delivered",
            Self::Acknowledged => "acknowledged",
            Self::Nacked => "nacked",
            Self::Extended => "extended",
            Self::Returned => "returned",
            Self::DeadLettered => "dead-lettered",
            Self::Redriven => "redriven",
            Self::Discarded => "discarded",
            Self::Purged => "purged",
            Self::Configured => "configured",
            Self::Kept => "kept",
            Self::Remembered => "remembered",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a record belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHead {
    /// Of its segment.
    pub(crate) salt: u32,
    /// What is written and synced together has one batch number.
    pub(crate) batch: u64,
    /// Its number in its log; rises by one.
    pub(crate) lsn: u64,
    /// The mailbox it is about; 0 if about none.
    pub(crate) mailbox: u32,
}

/// Appends a whole record.
///
/// # Panics
/// If the fact is longer than 65,535 bytes, or the letter than 4 GiB.
pub(crate) fn append(
    buffer: &mut Vec<u8>,
    head: RecordHead,
    kind: Kind,
    fact: &[u8],
    letter: Option<&EncodedLetter>,
) {
    let letter_bytes = letter.map_or(&[][..], |letter| &letter.bytes);
    let len = record_len(fact.len(), letter_bytes.len());
    buffer.reserve(len);
    let end = buffer.len() + len;
    append_head(buffer, head, kind, fact, letter);
    buffer.extend_from_slice(letter_bytes);
    buffer.resize(end, 0);
}

/// Appends header and fact only; the letter, and the zeros behind it, are written by themselves.
///
/// # Panics
/// As [`append`].
pub(crate) fn append_head(
    buffer: &mut Vec<u8>,
    head: RecordHead,
    kind: Kind,
    fact: &[u8],
    letter: Option<&EncodedLetter>,
) {
    let fact_len = u16::try_from(fact.len()).expect("facts are short: their texts are limited");
    let letter_len = letter.map_or(0, |letter| letter.bytes.len());
    let letter_len = u32::try_from(letter_len).expect("a letter fits into a segment");
    let mut header = [0; RECORD_HEADER];
    header[..4].copy_from_slice(&head.salt.to_le_bytes());
    header[8..16].copy_from_slice(&head.batch.to_le_bytes());
    header[16..24].copy_from_slice(&head.lsn.to_le_bytes());
    header[24..28].copy_from_slice(&head.mailbox.to_le_bytes());
    header[28] = kind.number();
    header[FACT_LEN_AT..32].copy_from_slice(&fact_len.to_le_bytes());
    header[32..36].copy_from_slice(&letter_len.to_le_bytes());
    header[36..].copy_from_slice(&letter.map_or(0, |letter| letter.crc).to_le_bytes());
    let crc = checksum(&header, fact);
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    buffer.extend_from_slice(&header);
    buffer.extend_from_slice(fact);
}

/// Marks an encoded record as the last of its batch. Its header and its fact are at the start of
/// `record`; what follows does not matter.
///
/// # Panics
/// If they are not.
pub(crate) fn mark_last(record: &mut [u8]) {
    let (header, rest) =
        record.split_first_chunk_mut::<RECORD_HEADER>().expect("a record starts with its header");
    header[FLAGS_AT] |= LAST;
    let fact_len = u16::from_le_bytes([header[FACT_LEN_AT], header[FACT_LEN_AT + 1]]);
    let crc = checksum(header, &rest[..usize::from(fact_len)]);
    header[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(header: &[u8; RECORD_HEADER], fact: &[u8]) -> u32 {
    crc32c_append(crc32c_append(crc32c(&header[..4]), &header[8..]), fact)
}

/// A record that was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// The batch it was written in.
    pub(crate) batch: u64,
    /// Its number in its log.
    pub(crate) lsn: u64,
    /// The mailbox it is about; 0 if about none.
    pub(crate) mailbox: u32,
    /// What it says.
    pub(crate) kind: Kind,
    /// The last of its batch.
    pub(crate) last: bool,
    /// What it says, in detail.
    pub(crate) fact: &'a [u8],
    /// The letter; empty if there is none.
    pub(crate) letter: &'a [u8],
    /// The checksum that the letter should have.
    pub(crate) letter_crc: u32,
    /// Length of the record, padding included.
    pub(crate) len: usize,
}

impl fmt::Debug for Record<'_> {
    /// Never the letter: it is nobody's business but the consumer's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("batch", &self.batch)
            .field("lsn", &self.lsn)
            .field("mailbox", &self.mailbox)
            .field("kind", &self.kind)
            .field("last", &self.last)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Reads the record at the start of `bytes`, which may go on behind it.
#[inline]
pub(crate) fn read(bytes: &[u8], salt: u32) -> Result<Record<'_>, Flaw> {
    let record = read_but_letter(bytes, salt)?;
    if record.letter_crc != letter_checksum(record.letter) {
        return Err(Flaw::Checksum);
    }
    Ok(record)
}

/// As [`read`], but does not compare the letter with its checksum. That the record was begun in
/// this place, in this batch and with these lengths is as sure as there.
#[inline]
pub(crate) fn read_but_letter(bytes: &[u8], salt: u32) -> Result<Record<'_>, Flaw> {
    let (header, fact, letter) = split(bytes, salt)?;
    if checksum(header, fact).to_le_bytes() != header[4..8] {
        return Err(Flaw::Checksum);
    }
    interpret(header, fact, letter)
}

/// As [`read`], but compares no checksum: to look at what is damaged.
pub(crate) fn read_unchecked(bytes: &[u8], salt: u32) -> Result<Record<'_>, Flaw> {
    let (header, fact, letter) = split(bytes, salt)?;
    interpret(header, fact, letter)
}

type Parts<'a> = (&'a [u8; RECORD_HEADER], &'a [u8], &'a [u8]);

/// Header, fact and letter; nothing but the salt and the lengths has been looked at.
#[inline]
fn split(bytes: &[u8], salt: u32) -> Result<Parts<'_>, Flaw> {
    let (header, rest) = bytes.split_first_chunk::<RECORD_HEADER>().ok_or(Flaw::Length)?;
    if header[..4] != salt.to_le_bytes() {
        return Err(Flaw::Salt);
    }
    let mut lengths = Cursor::new(&header[FACT_LEN_AT..36]);
    let fact_len = usize::from(lengths.u16()?);
    let letter_len = usize::try_from(lengths.u32()?).map_err(|_| Flaw::Length)?;
    let mut rest = Cursor::new(rest);
    Ok((header, rest.take(fact_len)?, rest.take(letter_len)?))
}

#[inline]
fn interpret<'a>(
    header: &[u8; RECORD_HEADER],
    fact: &'a [u8],
    letter: &'a [u8],
) -> Result<Record<'a>, Flaw> {
    let mut fields = Cursor::new(&header[8..]);
    let (batch, lsn, mailbox) = (fields.u64()?, fields.u64()?, fields.u32()?);
    let (kind, flags) = (fields.u8()?, fields.u8()?);
    let kind = Kind::from_number(kind).ok_or(Flaw::Kind(kind))?;
    if flags & !LAST != 0 {
        return Err(Flaw::Field("flags"));
    }
    let letter_crc = u32::from_le_bytes([header[36], header[37], header[38], header[39]]);
    let len = record_len(fact.len(), letter.len());
    let last = flags & LAST != 0;
    Ok(Record { batch, lsn, mailbox, kind, last, fact, letter, letter_crc, len })
}

/// The checksum of a letter; that of none is 0, which is also what CRC32C gives for no bytes.
#[inline]
pub(crate) fn letter_checksum(letter: &[u8]) -> u32 {
    crc32c(letter)
}
