//! Hashes that travel with a message: of its payload, and of everything the sender said.
//! Invariant: both are BLAKE3-256, written `b3:` and 64 hexadecimal digits in lower case (I4).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::attributes::Attributes;

/// A BLAKE3 hash, `b3:<hex>` on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

const PREFIX: &str = "b3:";
const TEXT_LEN: usize = PREFIX.len() + 64;
/// A length before each part.
const LEN_LEN: usize = 4;
/// Sets the chain apart from every other use of the hash.
const DOMAIN: &[u8] = b"ron.mailbox.hash-chain.v1\0";

impl Hash {
    /// The hash of a payload.
    #[must_use]
    pub fn of_payload(payload: &[u8]) -> Self {
        Self(*blake3::hash(payload).as_bytes())
    }

    /// As it was computed elsewhere.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The hash of what the sender said: mailbox, time, key, payload and attributes. `ts` is the
    /// exact text that is on the wire.
    #[must_use]
    pub fn of_chain(
        topic: &str,
        ts: &str,
        key: Option<&str>,
        payload: Self,
        attributes: &Attributes,
    ) -> Self {
        let key = key.unwrap_or_default();
        let len = attributes.iter().map(|(key, value)| 8 + key.len() + value.len()).sum();
        // All of it at once is quicker than in many small pieces.
        let fixed = DOMAIN.len() + 5 * LEN_LEN + payload.0.len();
        let mut all = Vec::with_capacity(fixed + topic.len() + ts.len() + key.len() + len);
        all.extend_from_slice(DOMAIN);
        for part in [topic.as_bytes(), ts.as_bytes(), key.as_bytes()] {
            add(&mut all, part);
        }
        add(&mut all, &payload.0);
        add_len(&mut all, len);
        // A sorted map of strings is in the order of their bytes.
        for (key, value) in attributes.iter() {
            add(&mut all, key.as_bytes());
            add(&mut all, value.as_bytes());
        }
        Self::of_payload(&all)
    }
}

/// Adds a part so that no two lists of parts look the same.
fn add(all: &mut Vec<u8>, part: &[u8]) {
    add_len(all, part.len());
    all.extend_from_slice(part);
}

fn add_len(all: &mut Vec<u8>, len: usize) {
    // Every part has a bound far below this.
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    all.extend_from_slice(&len.to_be_bytes());
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = blake3::Hash::from_bytes(self.0).to_hex();
        f.write_str(PREFIX)?;
        f.write_str(hex.as_str())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is no hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoHash;

impl fmt::Display for NoHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no hash: `b3:` and 64 hexadecimal digits in lower case are one")
    }
}

impl std::error::Error for NoHash {}

impl FromStr for Hash {
    type Err = NoHash;

    fn from_str(text: &str) -> Result<Self, NoHash> {
        let hex = text.strip_prefix(PREFIX).ok_or(NoHash)?;
        if hex.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(NoHash);
        }
        let hash = blake3::Hash::from_hex(hex).map_err(|_| NoHash)?;
        Ok(Self(*hash.as_bytes()))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = [0; TEXT_LEN];
        text[..PREFIX.len()].copy_from_slice(PREFIX.as_bytes());
        let hex = blake3::Hash::from_bytes(self.0).to_hex();
        text[PREFIX.len()..].copy_from_slice(hex.as_bytes());
        serializer.serialize_str(std::str::from_utf8(&text).expect("hexadecimal digits are text"))
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_format_comes_out_to_the_digit() {
        let payload = Hash::of_payload(b"Hi");
        let hex = "b3:714bcf6b6c94fcc1059eec24ca94083da1caa75326ea1c0a4a5e82b1c146f688";
        assert_eq!(payload.to_string(), hex);
        assert_eq!(hex.parse(), Ok(payload));
        let attributes = [("content-type".to_owned(), "text/plain".to_owned())].into();
        let ts = "2025-10-12T18:02:41.000Z";
        let chain = Hash::of_chain("user:42:inbox", ts, Some("demo-1"), payload, &attributes);
        let hex = "b3:721dc98e1260a2367080d0e263c408fa8f4c17af704cb5d9cfc36f118a9ef1a5";
        assert_eq!(chain.to_string(), hex);
    }

    #[test]
    fn whatever_a_sender_says_is_in_the_chain() {
        let one = Attributes::from([("a".to_owned(), "b".to_owned())]);
        let other = Attributes::from([("a".to_owned(), "c".to_owned())]);
        let payload = Hash::of_payload(b"x");
        let chains = [
            Hash::of_chain("t", "ts", Some("k"), payload, &one),
            Hash::of_chain("u", "ts", Some("k"), payload, &one),
            Hash::of_chain("t", "tt", Some("k"), payload, &one),
            Hash::of_chain("t", "ts", None, payload, &one),
            Hash::of_chain("t", "ts", Some("k"), Hash::of_payload(b"y"), &one),
            Hash::of_chain("t", "ts", Some("k"), payload, &other),
        ];
        for (at, chain) in chains.iter().enumerate() {
            assert!(!chains[..at].contains(chain), "{at}");
        }
    }

    #[test]
    fn other_text_is_no_hash() {
        let good = Hash::of_payload(b"").to_string();
        for text in ["", "b3:", &good[1..], &good.to_uppercase(), &format!("{good}0")] {
            assert_eq!(text.parse::<Hash>(), Err(NoHash), "{text}");
        }
    }
}
