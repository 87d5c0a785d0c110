//! Hashes as bytes.

use bytes::Bytes;

use super::Garbled;
use crate::hash::Hash;

const LEN: usize = 32;

/// Two hashes, in one allocation for both.
pub(super) fn to_bytes(one: Hash, other: Hash) -> (Bytes, Bytes) {
    let mut both = [0; 2 * LEN];
    both[..LEN].copy_from_slice(one.as_bytes());
    both[LEN..].copy_from_slice(other.as_bytes());
    let mut one = Bytes::from_owner(both);
    let other = one.split_off(LEN);
    (one, other)
}

pub(super) fn from_bytes(bytes: &Bytes, name: &'static str) -> Result<Hash, Garbled> {
    bytes[..].try_into().map(Hash::from_bytes).map_err(|_| Garbled(name))
}
