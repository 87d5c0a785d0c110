//! What a sender said, as it is kept: never changed, and copied as it is when it moves to another
//! segment. Invariant: the hash in front is that of the payload when it was sent, so that damage
//! is found however it came about (I4).
//!
//! ```text
//!  0 hash [32] (BLAKE3 of the payload)  32 enqueued_at i64 (ms)  40 payload_len u32
//! 44 reply_to_len u16  46 key_len u16  48 group_len u16 (0xFFFF: none)  50 attributes u16
//! 52 reply_to, key, group, attributes (key_len u16, value_len u16, key, value), payload
//! ```

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use crate::backend::Letter;
use crate::backends::journal::format::Flaw;
use crate::backends::journal::format::cursor::{Cursor, NO_TEXT, text_len};
use crate::backends::journal::format::record::letter_checksum;
use crate::timestamp::Timestamp;

/// Length of the part that every letter has.
const FIXED: usize = 52;
/// Length of the two lengths in front of every attribute.
const ATTRIBUTE_LENGTHS: usize = 4;

/// A letter, ready to be written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EncodedLetter {
    /// What is written.
    pub(crate) bytes: Vec<u8>,
    /// Their checksum.
    pub(crate) crc: u32,
}

impl fmt::Debug for EncodedLetter {
    /// Never the bytes: the payload is nobody's business but the consumer's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedLetter")
            .field("len", &self.bytes.len())
            .field("crc", &self.crc)
            .finish_non_exhaustive()
    }
}

/// Encodes a letter; `hash` is the BLAKE3 hash of its payload.
///
/// # Panics
/// If a text is longer than 65,534 bytes, or the payload than 4 GiB; the contract's limits are
/// checked long before.
pub(crate) fn encode_letter(letter: &Letter<Bytes>, hash: &[u8; 32]) -> EncodedLetter {
    let Letter { payload, attributes, reply_to, idempotency_key, group, enqueued_at } = letter;
    let texts = [reply_to.as_deref(), idempotency_key.as_deref(), group.as_deref()];
    let payload_len = u32::try_from(payload.len()).expect("a payload has at most 256 MiB");
    let count = u16::try_from(attributes.len()).expect("there are at most 64 attributes");
    let mut bytes = Vec::with_capacity(encoded_len(letter));
    bytes.extend_from_slice(hash);
    bytes.extend_from_slice(&enqueued_at.as_unix_millis().to_le_bytes());
    bytes.extend_from_slice(&payload_len.to_le_bytes());
    for text in texts {
        bytes.extend_from_slice(&text.map_or(NO_TEXT, text_len).to_le_bytes());
    }
    bytes.extend_from_slice(&count.to_le_bytes());
    for text in texts.into_iter().flatten() {
        bytes.extend_from_slice(text.as_bytes());
    }
    for (key, value) in attributes {
        bytes.extend_from_slice(&text_len(key).to_le_bytes());
        bytes.extend_from_slice(&text_len(value).to_le_bytes());
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(value.as_bytes());
    }
    bytes.extend_from_slice(payload);
    let crc = letter_checksum(&bytes);
    EncodedLetter { bytes, crc }
}

/// How long a letter is when it is encoded.
pub(crate) fn encoded_len(letter: &Letter<Bytes>) -> usize {
    let texts = [&letter.reply_to, &letter.idempotency_key, &letter.group];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    let attribute = |(key, value): (&String, &String)| ATTRIBUTE_LENGTHS + key.len() + value.len();
    let attributes: usize = letter.attributes.iter().map(attribute).sum();
    FIXED + texts + attributes + letter.payload.len()
}

/// A letter, seen in the bytes it was read from.
#[derive(Clone, Copy)]
pub(crate) struct LetterParts<'a> {
    /// BLAKE3 hash that the payload should have.
    pub(crate) hash: &'a [u8; 32],
    /// When it was first sent, in wall time.
    pub(crate) enqueued_at_ms: i64,
    /// Name or address of the mailbox for replies.
    pub(crate) reply_to: Option<&'a str>,
    /// The idempotency key it was sent with.
    pub(crate) key: Option<&'a str>,
    /// Ordering group.
    pub(crate) group: Option<&'a str>,
    /// The payload.
    pub(crate) payload: &'a [u8],
    /// The attributes, as many as `count`, not looked at yet but for their lengths.
    attributes: &'a [u8],
    count: u16,
}

impl fmt::Debug for LetterParts<'_> {
    /// Never the payload: it is nobody's business but the consumer's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LetterParts")
            .field("enqueued_at_ms", &self.enqueued_at_ms)
            .field("attributes", &self.count)
            .field("payload_len", &self.payload.len())
            .finish_non_exhaustive()
    }
}

impl<'a> LetterParts<'a> {
    /// Finds the parts. Allocates nothing; attributes are looked at only for their lengths.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Flaw> {
        let mut cursor = Cursor::new(bytes);
        let hash = cursor.array()?;
        let enqueued_at_ms = cursor.i64()?;
        let payload_len = usize::try_from(cursor.u32()?).map_err(|_| Flaw::Length)?;
        let (reply_to, key, group) = (cursor.u16()?, cursor.u16()?, cursor.u16()?);
        let count = cursor.u16()?;
        let reply_to = optional_text(&mut cursor, reply_to, "reply address")?;
        let key = optional_text(&mut cursor, key, "idempotency key")?;
        let group = optional_text(&mut cursor, group, "group")?;
        let attributes_len = cursor.left().checked_sub(payload_len).ok_or(Flaw::Length)?;
        let attributes = cursor.take(attributes_len)?;
        let mut walk = Cursor::new(attributes);
        for _ in 0..count {
            let lengths = usize::from(walk.u16()?) + usize::from(walk.u16()?);
            walk.take(lengths)?;
        }
        walk.done()?;
        let payload = cursor.take(payload_len)?;
        Ok(Self { hash, enqueued_at_ms, reply_to, key, group, payload, attributes, count })
    }

    /// The letter, with a copy of the payload.
    pub(crate) fn to_letter(self) -> Result<Letter<Bytes>, Flaw> {
        self.with_payload(Bytes::copy_from_slice(self.payload))
    }

    fn with_payload(self, payload: Bytes) -> Result<Letter<Bytes>, Flaw> {
        Ok(Letter {
            payload,
            attributes: self.attributes()?,
            reply_to: self.reply_to.map(str::to_owned),
            idempotency_key: self.key.map(str::to_owned),
            group: self.group.map(str::to_owned),
            enqueued_at: Timestamp::from_unix_millis(self.enqueued_at_ms),
        })
    }

    /// The attributes. They are written in the order of their keys, none twice.
    fn attributes(&self) -> Result<BTreeMap<String, String>, Flaw> {
        let mut cursor = Cursor::new(self.attributes);
        let mut attributes = BTreeMap::new();
        let mut previous = None;
        for _ in 0..self.count {
            let (key_len, value_len) = (cursor.u16()?, cursor.u16()?);
            let key = cursor.text(usize::from(key_len), "attributes")?;
            let value = cursor.text(usize::from(value_len), "attributes")?;
            if previous.is_some_and(|previous| previous >= key) {
                return Err(Flaw::Field("attributes"));
            }
            previous = Some(key);
            attributes.insert(key.to_owned(), value.to_owned());
        }
        Ok(attributes)
    }

    /// Whether the payload is what was sent (I4).
    pub(crate) fn verify(&self) -> bool {
        blake3::hash(self.payload) == *self.hash
    }
}

fn optional_text<'a>(
    cursor: &mut Cursor<'a>,
    len: u16,
    name: &'static str,
) -> Result<Option<&'a str>, Flaw> {
    if len == NO_TEXT { Ok(None) } else { cursor.text(usize::from(len), name).map(Some) }
}

/// The letter in `bytes`; its payload is a slice of them, not a copy.
pub(crate) fn decode_letter(bytes: Bytes) -> Result<Letter<Bytes>, Flaw> {
    let parts = LetterParts::parse(&bytes)?;
    let payload = bytes.slice(bytes.len() - parts.payload.len()..);
    parts.with_payload(payload)
}
