//! Receiving.

use serde::{Deserialize, Serialize};

use super::Envelope;
use crate::object::objects;

/// `POST /v1/recv` and `POST /v1/recv/stream`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReceiveRequest {
    /// The mailbox.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 80))]
    pub topic: String,
    /// How long others do not see what is received; the service's default if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 43_200_000))]
    pub visibility_ms: Option<u64>,
    /// Receive up to this many; a stream has up to this many in flight. 1 if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 256))]
    pub max_messages: Option<u32>,
    /// Stop before payloads are larger than this together; the first one always comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 1_073_741_824))]
    pub max_bytes: Option<u64>,
    /// Wait up to this long for the first one. Refused for a stream, which always waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// What was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Received {
    /// In order.
    #[serde(deserialize_with = "objects")]
    pub messages: Vec<Envelope>,
}

impl Received {
    /// As JSON, the same as [`Serialize`] does; see [`Envelope::append_json`].
    #[must_use]
    pub fn into_json(self) -> Vec<u8> {
        // Room for all of it at once: what is copied when it grows would not be wiped.
        let room = self.messages.iter().map(Envelope::json_len).sum::<usize>();
        let mut out = Vec::with_capacity(room + 16);
        out.extend_from_slice(b"{\"messages\":[");
        for (place, envelope) in self.messages.into_iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            envelope.append_json(&mut out);
        }
        out.extend_from_slice(b"]}");
        out
    }
}
