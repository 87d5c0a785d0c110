//! What messages and deliveries are called by their users. Both are opaque text to everybody but
//! the backend that made them; in-process they are numbers until somebody wants to see the text.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mailbox_core::{Id, Key, LeaseId, Receipt};

/// The identity of a message: opaque text, never changes (D4). Ours are ULIDs; other backends may
/// have other forms.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(IdForm);

// Text that is the canonical form of a ULID is always kept as the number, so that the derived
// comparisons agree with those of the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum IdForm {
    Ulid(u128),
    Text(Arc<str>),
}

/// The alphabet of ULIDs.
const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const ULID_LEN: usize = 26;

impl MessageId {
    /// The id with this text.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(parse_ulid(text).map_or_else(|| IdForm::Text(text.into()), IdForm::Ulid))
    }

    /// The id as a ULID, if it is one.
    #[must_use]
    pub const fn as_ulid(&self) -> Option<u128> {
        match self.0 {
            IdForm::Ulid(ulid) => Some(ulid),
            IdForm::Text(_) => None,
        }
    }
}

impl From<Id> for MessageId {
    fn from(id: Id) -> Self {
        Self(IdForm::Ulid(id.0))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            IdForm::Text(text) => f.write_str(text),
            IdForm::Ulid(ulid) => {
                let digit = |place| CROCKFORD[(ulid >> (5 * (ULID_LEN - 1 - place))) as usize & 31];
                let digits: [u8; ULID_LEN] = std::array::from_fn(digit);
                f.write_str(std::str::from_utf8(&digits).expect("digits are text"))
            }
        }
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn parse_ulid(text: &str) -> Option<u128> {
    // 26 digits of 5 bits are 130: the first digit of a ULID is at most 7.
    if text.len() != ULID_LEN || !text.starts_with(|first| matches!(first, '0'..='7')) {
        return None;
    }
    text.bytes().try_fold(0_u128, |ulid, byte| {
        let digit = CROCKFORD.iter().position(|letter| *letter == byte)?;
        Some(ulid << 5 | digit as u128)
    })
}

/// Builds and reads the ULIDs of our own queues: milliseconds, mailbox number, slot, sequence. The
/// slot in it finds the message again without an index.
pub(crate) mod ulid {
    use super::{Id, Key};

    /// The id for the message that will get `key`. Within one backend ids differ by construction;
    /// `salt`, which is random, makes those of different backends differ too.
    pub(crate) fn compose(unix_millis: i64, mailbox: u32, key: Key, salt: u64) -> Id {
        let millis = u128::from(unix_millis.unsigned_abs() & ((1 << 48) - 1));
        let mailbox = u128::from(mailbox) ^ u128::from(salt >> 32);
        // A slot is not used 65,536 times within a millisecond.
        let seq = u128::from(key.seq.wrapping_add(salt) & 0xFFFF);
        Id(millis << 80 | mailbox << 48 | u128::from(key.slot) << 16 | seq)
    }

    /// The slot in an id.
    pub(crate) fn slot(id: Id) -> u32 {
        u32::try_from(id.0 >> 16 & 0xFFFF_FFFF).expect("masked to 32 bits")
    }
}

/// Stands for one delivery: opaque text, unguessable, never reused (V3).
#[derive(Clone)]
pub struct ReceiptHandle(HandleForm);

#[derive(Clone)]
enum HandleForm {
    Sealed { receipt: Receipt, sealer: Arc<Sealer> },
    Text(Arc<str>),
}

impl ReceiptHandle {
    /// The handle with this text, as it came over a wire. Whether it is any good shows when it is
    /// used.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(HandleForm::Text(text.into()))
    }

    /// A handle of ours.
    pub(crate) fn sealed(receipt: Receipt, sealer: &Arc<Sealer>) -> Self {
        Self(HandleForm::Sealed { receipt, sealer: Arc::clone(sealer) })
    }

    /// The delivery it stands for, if it was sealed by `sealer`.
    pub(crate) fn open(&self, sealer: &Arc<Sealer>) -> Option<Receipt> {
        match &self.0 {
            HandleForm::Sealed { receipt, sealer: by } => {
                (Arc::ptr_eq(by, sealer) || by.key == sealer.key).then_some(*receipt)
            }
            HandleForm::Text(text) => sealer.unseal(text),
        }
    }
}

impl fmt::Display for ReceiptHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            HandleForm::Sealed { receipt, sealer } => f.write_str(&sealer.seal(*receipt)),
            HandleForm::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for ReceiptHandle {
    /// Whoever has a handle can settle the delivery: it does not go into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReceiptHandle(***)")
    }
}

impl PartialEq for ReceiptHandle {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for ReceiptHandle {}

impl Hash for ReceiptHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_string().hash(state);
    }
}

/// Turns receipts into text that nobody else can make: the numbers, and a keyed hash over them.
/// One per mailbox, so that a handle of one mailbox means nothing to another.
pub(crate) struct Sealer {
    key: [u8; 32],
}

/// seq, slot, lease.
const RECEIPT_LEN: usize = 8 + 4 + 8;
const TAG_LEN: usize = 16;

impl Sealer {
    pub(crate) const fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    fn seal(&self, receipt: Receipt) -> String {
        let mut bytes = Vec::with_capacity(RECEIPT_LEN + TAG_LEN);
        bytes.extend(receipt.key.seq.to_be_bytes());
        bytes.extend(receipt.key.slot.to_be_bytes());
        bytes.extend(receipt.lease.to_bits().to_be_bytes());
        let tag = blake3::keyed_hash(&self.key, &bytes);
        bytes.extend(&tag.as_bytes()[..TAG_LEN]);
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let digits = digits.map(|nibble| b"0123456789abcdef"[usize::from(nibble)]);
        String::from_utf8(digits.collect()).expect("digits are text")
    }

    fn unseal(&self, text: &str) -> Option<Receipt> {
        if text.len() != 2 * (RECEIPT_LEN + TAG_LEN) {
            return None;
        }
        let nibble = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; RECEIPT_LEN + TAG_LEN];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        let (body, tag) = bytes.split_at(RECEIPT_LEN);
        let expected = blake3::keyed_hash(&self.key, body);
        // `blake3::Hash` compares in constant time; give both sides the same tail.
        let mut given = *expected.as_bytes();
        given[..TAG_LEN].copy_from_slice(tag);
        if blake3::Hash::from_bytes(given) != expected {
            return None;
        }
        let seq = u64::from_be_bytes(body[..8].try_into().ok()?);
        let slot = u32::from_be_bytes(body[8..12].try_into().ok()?);
        let lease = LeaseId::from_bits(u64::from_be_bytes(body[12..].try_into().ok()?))?;
        Some(Receipt { key: Key { seq, slot }, lease })
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ulid_reads_back_and_other_text_stays_as_it_is() {
        let id = ulid::compose(1_700_000_000_000, 5, Key { seq: 99, slot: 77 }, 0xABCD_EF01_2345);
        assert_eq!(ulid::slot(id), 77);
        let shown = MessageId::from(id).to_string();
        assert_eq!(shown.len(), 26);
        assert_eq!(MessageId::from_text(&shown), MessageId::from(id));
        for text in ["", "hello", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", &shown.to_lowercase()] {
            assert_eq!(MessageId::from_text(text).to_string(), text);
        }
    }

    #[test]
    fn a_changed_or_foreign_handle_does_not_open() {
        let sealer = Arc::new(Sealer::new([7; 32]));
        let other = Arc::new(Sealer::new([8; 32]));
        let receipt = Receipt { key: Key { seq: 1, slot: 2 }, lease: LeaseId::first_of(3) };
        let text = ReceiptHandle::sealed(receipt, &sealer).to_string();
        assert_eq!(ReceiptHandle::from_text(&text).open(&sealer), Some(receipt));
        assert_eq!(ReceiptHandle::from_text(&text).open(&other), None);
        assert_eq!(ReceiptHandle::sealed(receipt, &sealer).open(&other), None);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(ReceiptHandle::from_text(&changed).open(&sealer), None, "byte {at}");
        }
    }
}
