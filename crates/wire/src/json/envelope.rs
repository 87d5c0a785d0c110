//! A message on its way out: received, or only looked at.

use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;
use crate::hash::Hash;
use crate::object::{Listed, objects};
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
    /// The payload, base64. Last, for [`Envelope::append_json`].
    #[cfg_attr(feature = "openapi", schema(value_type = String, content_encoding = "base64"))]
    pub payload_b64: Payload,
}

/// How an envelope without a payload ends.
const NO_PAYLOAD: &[u8] = b"\"payload_b64\":\"\"}";

impl Envelope {
    /// About as long as it is as JSON, rather more than less.
    #[must_use]
    pub fn json_len(&self) -> usize {
        let attributes: usize =
            self.attrs.iter().map(|(key, value)| 2 * (key.len() + value.len()) + 6).sum();
        self.payload_b64.0.len().div_ceil(3) * 4 + attributes + REST
    }

    /// Adds it as JSON, the same as [`Serialize`] does. Most of an envelope is its payload, in
    /// which nothing ever has to be escaped: to look for that would take longer than all the rest.
    pub fn append_json(mut self, out: &mut Vec<u8>) {
        out.reserve(self.json_len());
        let payload = std::mem::take(&mut self.payload_b64);
        serde_json::to_writer(&mut *out, &self).expect("text and numbers can be written");
        debug_assert!(out.ends_with(NO_PAYLOAD), "the payload is last");
        out.truncate(out.len() - 2);
        payload.append_base64(out);
        out.extend_from_slice(b"\"}");
    }

    /// Whether payload and hashes fit together.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let payload = Hash::of_payload(&self.payload_b64.0);
        let key = self.idem_key.as_deref();
        payload == self.payload_hash
            && Hash::of_chain(&self.topic, &self.ts, key, payload, &self.attrs) == self.hash_chain
    }
}

/// About as long as an envelope is beside payload and attributes.
const REST: usize = 1024;

/// A message that is looked at, with where it is in its life.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(deserialize_with = "objects")]
    pub messages: Vec<Record>,
}

impl Listed for Envelope {
    fn attributes(&self) -> usize {
        self.attrs.len()
    }
}

impl Listed for Record {
    fn attributes(&self) -> usize {
        self.envelope.attributes()
    }
}

hide_secrets!(Envelope, msg_id, topic, ts, attempt);

// What a consumer said went wrong may have some of the message in it.
hide_secrets!(Record, envelope, state, receivable_in_ms, death);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_written_as_it_is_serialized() {
        let hash = Hash::of_payload(b"x");
        let text = |text: &str| Some(text.to_owned());
        for len in [0, 1, 2, 3, 1000] {
            let envelope = Envelope {
                msg_id: "01".to_owned(),
                topic: "jobs".to_owned(),
                ts: "2025-10-12T18:02:41.000Z".to_owned(),
                idem_key: text("a\"b"),
                payload_hash: hash,
                attrs: [("k".to_owned(), "\u{1}\\".to_owned())].into(),
                corr_id: "c".to_owned(),
                shard: 1,
                attempt: 2,
                hash_chain: hash,
                sig: None,
                receipt_handle: text("h"),
                visible_until_ms: Some(-1),
                reply_to: None,
                group: text("g"),
                partition: None,
                traceparent: text("t"),
                payload_b64: Payload(vec![0xFB; len].into()),
            };
            let expected = serde_json::to_vec(&envelope).unwrap();
            let mut written = b"before".to_vec();
            envelope.append_json(&mut written);
            assert_eq!(written, [b"before", &expected[..]].concat());
        }
    }
}
