//! A message on its way out: received, or only looked at.

use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;
use crate::hash::Hash;
use crate::payload::Payload;

/// One delivery of a message, or a message that is looked at.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Envelope {
    /// Its identity.
    pub msg_id: String,
    /// The mailbox.
    pub topic: String,
    /// When it was first sent: RFC 3339, UTC, milliseconds.
    pub ts: String,
    /// The key it was sent with.
    pub idem_key: Option<String>,
    /// BLAKE3 of the payload.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub payload_hash: Hash,
    /// What was kept with it.
    #[cfg_attr(feature = "openapi",
        schema(value_type = std::collections::BTreeMap<String, String>))]
    pub attrs: Attributes,
    /// Correlation id, a UUID.
    pub corr_id: String,
    /// Which shard it is counted under.
    pub shard: u32,
    /// Which delivery this is; of one that is looked at, how many there were.
    pub attempt: u32,
    /// BLAKE3 of what the sender said.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub hash_chain: Hash,
    /// The sender's own signature.
    pub sig: Option<String>,
    /// The payload, base64.
    #[cfg_attr(feature = "openapi", schema(value_type = String, content_encoding = "base64"))]
    pub payload_b64: Payload,
    /// Settles this delivery; not there if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt_handle: Option<String>,
    /// When others see it again, in milliseconds since 1970 by the service's wall clock: for
    /// people, and as a hint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_until_ms: Option<i64>,
    /// Name or address of the mailbox for replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Its ordering group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Which shard the sender asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// W3C trace context of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl Envelope {
    /// Whether payload and hashes fit together.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let payload = Hash::of_payload(&self.payload_b64.0);
        let key = self.idem_key.as_deref();
        payload == self.payload_hash
            && Hash::of_chain(&self.topic, &self.ts, key, payload, &self.attrs) == self.hash_chain
    }
}

/// A message that is looked at, with where it is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Record {
    /// The message.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// `delayed`, `ready`, `invisible` or `dead`.
    pub state: String,
    /// How long until it can be received.
    pub receivable_in_ms: u64,
    /// What the last nack or rejection said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How it died, if it is a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death: Option<Death>,
}

/// How a message died.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Death {
    /// `max_attempts`, `expired`, `rejected`, `integrity` or `decode`.
    pub reason: String,
    /// When: RFC 3339, UTC, milliseconds.
    pub at: String,
    /// Higher for those that died later; list from behind one with `after`.
    pub order: u64,
}

/// Messages that are looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Records {
    /// In order.
    pub messages: Vec<Record>,
}

hide_secrets!(Envelope, msg_id, topic, ts, attempt);
