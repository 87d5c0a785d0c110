//! Payloads in JSON: base64, standard alphabet, with padding. Invariant: bytes that were read are
//! wiped when they are dropped.

use std::fmt;

use base64_simd::STANDARD;
use bytes::Bytes;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that are wiped when nobody has them any more.
#[must_use]
pub fn wiped(bytes: Vec<u8>) -> Bytes {
    Bytes::from_owner(Wiped(bytes))
}

/// Bytes that are wiped when this is dropped.
struct Wiped(Vec<u8>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        // All at once, where `zeroize` goes byte by byte, which took a tenth of a receive. The box
        // keeps the compiler from seeing that nobody reads it any more.
        self.0.fill(0);
        std::hint::black_box(&mut self.0);
    }
}

/// Bytes that are base64 in JSON.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Payload(pub Bytes);

impl fmt::Debug for Payload {
    /// Never what is in it: it is nobody's business but the consumer's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = Wiped(STANDARD.encode_to_string(&self.0).into_bytes());
        let text = std::str::from_utf8(&text.0).expect("base64 is text");
        serializer.serialize_str(text)
    }
}

impl Payload {
    /// Adds it as base64: the same as [`Serialize`], without looking for what has to be escaped.
    pub(crate) fn append_base64(&self, out: &mut Vec<u8>) {
        STANDARD.encode_append(&self.0, out);
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Payload;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64 with padding")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Payload, E> {
                let bytes = STANDARD.decode_to_vec(text);
                // What is wrong with it stays unsaid: the text is somebody's message.
                bytes.map(wiped).map(Payload).map_err(|_| E::custom("no base64"))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_base64_in_json_and_never_shown() {
        let payload = Payload(Bytes::from_static(b"\x00hello\xff"));
        let json = serde_json::to_string(&payload).unwrap();
        assert_eq!(json, "\"AGhlbGxv/w==\"");
        assert_eq!(serde_json::from_str::<Payload>(&json).unwrap(), payload);
        assert_eq!(format!("{payload:?}"), "Payload(7 bytes)");
        // No padding, no base64, no text, bits that say nothing, the other alphabet, a space.
        for bad in
            ["\"AGhlbGxv/w\"", "\"?\"", "7", "\"QR==\"", "\"-_==\"", "\"QQ= =\"", "\"QQ==\\n\""]
        {
            assert!(serde_json::from_str::<Payload>(bad).is_err(), "{bad}");
        }
        assert_eq!(&*serde_json::from_str::<Payload>("\"QQ==\"").unwrap().0, b"A");
    }
}
