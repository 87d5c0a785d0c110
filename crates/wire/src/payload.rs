//! Payloads in JSON: base64, standard alphabet, with padding. Invariant: bytes that were read are
//! wiped when they are dropped.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// Bytes that are wiped when nobody has them any more.
#[must_use]
pub fn wiped(bytes: Vec<u8>) -> Bytes {
    Bytes::from_owner(Zeroizing::new(bytes))
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
        let text = Zeroizing::new(STANDARD.encode(&self.0));
        serializer.serialize_str(&text)
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
                let bytes = STANDARD.decode(text);
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
        for bad in ["\"AGhlbGxv/w\"", "\"?\"", "7"] {
            assert!(serde_json::from_str::<Payload>(bad).is_err(), "{bad}");
        }
    }
}
