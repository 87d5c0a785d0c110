//! What the journal's files look like, byte for byte; `docs/journal-format.md` has the tables.
//! Invariant: whatever the bytes are, reading them gives what was written or a [`Flaw`]; it never
//! panics, and never allocates more than there are bytes.
//!
//! All numbers are little-endian.

mod cursor;
mod entry;
pub(crate) mod event;
pub(crate) mod fact;
pub(crate) mod index;
pub(crate) mod letter;
pub(crate) mod meta;
pub(crate) mod record;
pub(crate) mod segment;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;

/// The version of the format that is written, and the only one that is read.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Where a message's record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The number of the segment.
    pub(crate) segment: u32,
    /// Where in the file it starts.
    pub(crate) offset: u32,
    /// How long it is, padding included.
    pub(crate) len: u32,
}

/// Why bytes cannot be read. Reads well behind "FILE at OFFSET: ".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// They are of another version of the format.
    Version(u32),
    /// They are not of a journal.
    Magic,
    /// They are not the bytes that were written.
    Checksum,
    /// There are fewer, or more, than there should be.
    Length,
    /// They are from before the segment got its present salt, or were never written.
    Salt,
    /// A record of a kind that this version does not have.
    Kind(u8),
    /// This field has a value that it cannot have.
    Field(&'static str),
    /// The record is whole, but is not the one that comes next.
    Order,
    /// The segment ends without the record that seals it.
    Unsealed,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(found) => {
                write!(f, "format version {found}, of which only {FORMAT_VERSION} is understood")
            }
            Self::Magic => f.write_str("not a file of a journal: its first bytes are others"),
            Self::Checksum => f.write_str("the checksum does not fit the bytes"),
            Self::Length => f.write_str("cut short, or a length is wrong"),
            Self::Salt => f.write_str("no record of this segment: the salt is another"),
            Self::Kind(number) => write!(f, "a record of the unknown kind {number}"),
            Self::Field(name) => write!(f, "an impossible value as {name}"),
            Self::Order => f.write_str("a record that does not follow the one before it"),
            Self::Unsealed => f.write_str("the segment ends without its seal"),
        }
    }
}

impl Error for Flaw {}

/// Checks the magic and the version at the start of a file, in this order, so that a file of a
/// later version is reported as that, whatever else it looks like. Returns what follows them.
fn versioned<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Result<&'a [u8], Flaw> {
    let (start, rest) = bytes.split_first_chunk::<8>().ok_or(Flaw::Length)?;
    if start != magic {
        return Err(Flaw::Magic);
    }
    let (version, rest) = rest.split_first_chunk::<4>().ok_or(Flaw::Length)?;
    match u32::from_le_bytes(*version) {
        FORMAT_VERSION => Ok(rest),
        other => Err(Flaw::Version(other)),
    }
}
