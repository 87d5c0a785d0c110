//! The header of a segment: its first 64 bytes; records start a block later. Invariant: a segment
//! that is used again gets another salt, so that what it held before is no record any more.
//!
//! ```text
//!  0 magic   8 version u32  12 crc u32 (of the other 60 bytes)  16 journal [16]
//! 32 shard u16  34 zero  36 number u32  40 salt u32  44 len u32  48 created_ms i64  56 zero
//! ```

use crc32c::{crc32c, crc32c_append};

use crate::backends::journal::format::cursor::Cursor;
use crate::backends::journal::format::{FORMAT_VERSION, Flaw, versioned};

const MAGIC: &[u8; 8] = b"MBXJRNL\0";
/// Bytes of the header that are used.
pub(crate) const SEGMENT_HEADER: usize = 64;
/// Where the first record is.
pub(crate) const DATA_START: u32 = 4096;

/// What a segment says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The journal it belongs to.
    pub(crate) journal: [u8; 16],
    /// The log it belongs to.
    pub(crate) shard: u16,
    /// Its number there, from 1 on.
    pub(crate) number: u32,
    /// What every record in it starts with. Random, and not zero: fresh space is zeros.
    pub(crate) salt: u32,
    /// Length of the whole file.
    pub(crate) len: u32,
    /// When it was made, in wall time.
    pub(crate) created_ms: i64,
}

impl SegmentHeader {
    /// The used part of the header block.
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut out = [0; SEGMENT_HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.journal);
        out[32..34].copy_from_slice(&self.shard.to_le_bytes());
        out[36..40].copy_from_slice(&self.number.to_le_bytes());
        out[40..44].copy_from_slice(&self.salt.to_le_bytes());
        out[44..48].copy_from_slice(&self.len.to_le_bytes());
        out[48..56].copy_from_slice(&self.created_ms.to_le_bytes());
        let crc = checksum(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the header off the start of a segment.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        versioned(bytes, MAGIC)?;
        let header = bytes.first_chunk::<SEGMENT_HEADER>().ok_or(Flaw::Length)?;
        let mut cursor = Cursor::new(&header[12..]);
        if cursor.u32()? != checksum(header) {
            return Err(Flaw::Checksum);
        }
        let journal = *cursor.array()?;
        let shard = cursor.u16()?;
        cursor.take(2)?;
        let number = cursor.u32()?;
        if number == 0 {
            return Err(Flaw::Field("segment number"));
        }
        let (salt, len) = (cursor.u32()?, cursor.u32()?);
        if len < DATA_START {
            return Err(Flaw::Field("segment length"));
        }
        Ok(Self { journal, shard, number, salt, len, created_ms: cursor.i64()? })
    }
}

fn checksum(header: &[u8; SEGMENT_HEADER]) -> u32 {
    crc32c_append(crc32c(&header[..12]), &header[16..])
}
