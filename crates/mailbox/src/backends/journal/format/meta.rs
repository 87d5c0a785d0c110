//! The file `meta`: what a journal is as a whole. Written once, when the journal is made, and never
//! changed. Invariant: nothing but the file shows the secret.
//!
//! ```text
//!  0 magic  8 version u32  12 shards u16  14 zero  16 journal [16]  32 secret [32]
//! 64 created_ms i64  72 crc u32 (of all before)  76 end
//! ```

use std::fmt;

use crc32c::crc32c;

use crate::backends::journal::format::cursor::Cursor;
use crate::backends::journal::format::{FORMAT_VERSION, Flaw, versioned};

const MAGIC: &[u8; 8] = b"MBXMETA\0";
const LEN: usize = 76;

/// What a journal is as a whole.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Tells this journal's files from another's.
    pub(crate) journal: [u8; 16],
    /// What receipt handles are made unguessable with.
    pub(crate) secret: [u8; 32],
    /// Logs that mailboxes are spread over.
    pub(crate) shards: u16,
    /// When it was made, in wall time.
    pub(crate) created_ms: i64,
}

impl Meta {
    /// The whole file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEN);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&self.shards.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.journal);
        out.extend_from_slice(&self.secret);
        out.extend_from_slice(&self.created_ms.to_le_bytes());
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// The whole file, read.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let rest = versioned(bytes, MAGIC)?;
        if bytes.len() != LEN {
            return Err(Flaw::Length);
        }
        let (protected, crc) = bytes.split_last_chunk::<4>().ok_or(Flaw::Length)?;
        if crc32c(protected) != u32::from_le_bytes(*crc) {
            return Err(Flaw::Checksum);
        }
        let mut cursor = Cursor::new(rest);
        let shards = cursor.u16()?;
        if shards == 0 {
            return Err(Flaw::Field("shards"));
        }
        cursor.take(2)?;
        let (journal, secret) = (*cursor.array()?, *cursor.array()?);
        Ok(Self { journal, secret, shards, created_ms: cursor.i64()? })
    }
}

impl fmt::Debug for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meta")
            .field("journal", &self.journal)
            .field("shards", &self.shards)
            .field("created_ms", &self.created_ms)
            .finish_non_exhaustive()
    }
}
