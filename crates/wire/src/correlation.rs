//! Correlation ids of messages whose sender gave none. Invariant: the same whenever it is asked
//! for, because it comes from the message's identity; so nothing has to be kept.

use uuid::Uuid;

use crate::hash::Hash;

/// The correlation id of a message with this identity: the number if it is a ULID, otherwise its
/// text and when it was sent.
#[must_use]
pub fn made(ulid: Option<u128>, id: &str, sent_unix_ms: i64) -> Uuid {
    let bits = ulid.unwrap_or_else(|| {
        let hash = Hash::of_payload(id.as_bytes()).to_string();
        let digits = hash.get(3..23).unwrap_or_default();
        let random = u128::from_str_radix(digits, 16).unwrap_or_default();
        u128::from(sent_unix_ms.unsigned_abs()) << 80 | random & ((1 << 80) - 1)
    });
    // Both begin with 48 bits of milliseconds; a version 7 UUID has its marks in what follows.
    Uuid::from_u128(bits & !(0xF << 76) & !(0x3 << 62) | 0x7 << 76 | 0x2 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_made_once_and_for_all_and_is_a_uuid_of_version_7() {
        let ulid = 0x0192_9C2F_7B66_F83F_21E8_FC2B_4C38_5AA8;
        for ulid in [Some(ulid), None] {
            let id = made(ulid, "something", 1_728_756_161_000);
            assert_eq!(id, made(ulid, "something", 1_728_756_161_000));
            assert_eq!(id.get_version_num(), 7);
            assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
        }
        assert_ne!(made(None, "a", 1), made(None, "b", 1));
    }
}
