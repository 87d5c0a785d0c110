//! Reading numbers and texts off bytes, and writing texts. Invariant: a cursor never goes behind
//! the end of its bytes; what is not there is a [`Flaw::Length`].

use std::time::Duration;

use mailbox_core::limits::ERROR_TEXT_LEN;
use mailbox_core::{Id, LeaseId, Time};

use crate::backends::journal::format::Flaw;

/// In place of a length: there is no text.
pub(crate) const NO_TEXT: u16 = u16::MAX;

/// A position in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many bytes are left.
    pub(crate) const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Nothing may be left.
    pub(crate) const fn done(&self) -> Result<(), Flaw> {
        if self.rest.is_empty() { Ok(()) } else { Err(Flaw::Length) }
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], Flaw> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or(Flaw::Length)?;
        self.rest = rest;
        Ok(array)
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Flaw> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Flaw::Length)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Flaw> {
        self.array::<1>().map(|[byte]| *byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Flaw> {
        self.array().map(|bytes| u16::from_le_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Flaw> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Flaw> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn i64(&mut self) -> Result<i64, Flaw> {
        self.array().map(|bytes| i64::from_le_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn id(&mut self) -> Result<Id, Flaw> {
        self.array().map(|bytes| Id(u128::from_le_bytes(*bytes)))
    }

    #[inline]
    pub(crate) fn time(&mut self) -> Result<Time, Flaw> {
        self.u64().map(Time::from_nanos)
    }

    #[inline]
    pub(crate) fn duration(&mut self) -> Result<Duration, Flaw> {
        self.u64().map(Duration::from_nanos)
    }

    /// Zero or one.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, Flaw> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Flaw::Field(name)),
        }
    }

    #[inline]
    pub(crate) fn lease(&mut self) -> Result<LeaseId, Flaw> {
        LeaseId::from_bits(self.u64()?).ok_or(Flaw::Field("lease"))
    }

    /// A lease, or zero.
    #[inline]
    pub(crate) fn lease_or_none(&mut self) -> Result<Option<LeaseId>, Flaw> {
        match self.u64()? {
            0 => Ok(None),
            bits => LeaseId::from_bits(bits).map(Some).ok_or(Flaw::Field("lease")),
        }
    }

    /// `len` bytes that are UTF-8.
    pub(crate) fn text(&mut self, len: usize, name: &'static str) -> Result<&'a str, Flaw> {
        std::str::from_utf8(self.take(len)?).map_err(|_| Flaw::Field(name))
    }

    /// A length of 16 bits, and that much text; at most `most` bytes.
    pub(crate) fn short_text(&mut self, most: usize, name: &'static str) -> Result<&'a str, Flaw> {
        let len = usize::from(self.u16()?);
        if len > most {
            return Err(Flaw::Field(name));
        }
        self.text(len, name)
    }

    /// What somebody said about an error, if anything.
    pub(crate) fn error(&mut self) -> Result<Option<Box<str>>, Flaw> {
        match self.u16()? {
            NO_TEXT => Ok(None),
            len if usize::from(len) > ERROR_TEXT_LEN => Err(Flaw::Field("error")),
            len => self.text(usize::from(len), "error").map(|text| Some(text.into())),
        }
    }
}

/// A length of 16 bits, and the text.
///
/// # Panics
/// If it is longer than 65,534 bytes; the contract's limits are checked long before.
pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&text_len(text).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// What [`Cursor::error`] reads. A text that is longer than the contract allows loses its end: it
/// is for people, and must never make a record that cannot be read.
pub(crate) fn put_error(error: Option<&str>, out: &mut Vec<u8>) {
    match error {
        None => out.extend_from_slice(&NO_TEXT.to_le_bytes()),
        Some(text) => put_text(&text[..text.floor_char_boundary(ERROR_TEXT_LEN)], out),
    }
}

/// The length of a text, as it is written.
pub(crate) fn text_len(text: &str) -> u16 {
    let fits = u16::try_from(text.len()).ok().filter(|len| *len != NO_TEXT);
    fits.expect("texts are checked against the contract's limits before they are written")
}

/// A duration, as it is written; those above 584 years become that.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
