//! Sending, one message or many.

use serde::{Deserialize, Serialize};

use super::Problem;
use crate::attributes::Attributes;
use crate::object::{Listed, objects};
use crate::payload::Payload;

/// `POST /v1/send`
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SendRequest {
    /// The mailbox.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 80))]
    pub topic: String,
    /// The payload, base64.
    #[cfg_attr(feature = "openapi", schema(value_type = String, content_encoding = "base64"))]
    pub payload_b64: Payload,
    /// Recognises a second send of the same payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub idem_key: Option<String>,
    /// Kept with the message.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    #[cfg_attr(feature = "openapi",
        schema(value_type = std::collections::BTreeMap<String, String>))]
    pub attrs: Attributes,
    /// How long it stays invisible at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 43_200_000))]
    pub delay_ms: Option<u64>,
    /// Name or address of the mailbox for replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Which shard of the mailbox it is counted under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Ordering group: at most one message of a group is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub group: Option<String>,
    /// Correlation id, a UUID; made if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corr_id: Option<String>,
    /// The sender's own signature; kept, not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sig: Option<String>,
    /// W3C trace context; the header of that name is taken if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// One message of a batch. The bounds are those of a single send; what is wrong with one message is
/// said in its result.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchMessage {
    /// The mailbox, if not that of the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The payload, base64.
    #[cfg_attr(feature = "openapi", schema(value_type = String, content_encoding = "base64"))]
    pub payload_b64: Payload,
    /// Recognises a second send of the same payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idem_key: Option<String>,
    /// Kept with the message.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    #[cfg_attr(feature = "openapi",
        schema(value_type = std::collections::BTreeMap<String, String>))]
    pub attrs: Attributes,
    /// How long it stays invisible at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(format = "uint64"))]
    pub delay_ms: Option<u64>,
    /// Name or address of the mailbox for replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Which shard of the mailbox it is counted under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Ordering group: at most one message of a group is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Correlation id, a UUID; made if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corr_id: Option<String>,
    /// The sender's own signature; kept, not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sig: Option<String>,
    /// W3C trace context; the header of that name is taken if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl Listed for BatchMessage {
    fn attributes(&self) -> usize {
        self.attrs.len()
    }
}

impl From<SendRequest> for BatchMessage {
    fn from(it: SendRequest) -> Self {
        Self {
            topic: Some(it.topic),
            payload_b64: it.payload_b64,
            idem_key: it.idem_key,
            attrs: it.attrs,
            delay_ms: it.delay_ms,
            reply_to: it.reply_to,
            partition: it.partition,
            group: it.group,
            corr_id: it.corr_id,
            sig: it.sig,
            traceparent: it.traceparent,
        }
    }
}

/// A message that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sent {
    /// Its identity; of the first one, if this was a duplicate.
    pub msg_id: String,
    /// The key was known: nothing new was put in line.
    pub duplicate: bool,
}

/// `POST /v1/send/batch`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SendBatchRequest {
    /// The mailbox of messages that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 80))]
    pub topic: Option<String>,
    /// The messages, sent in this order.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 256))]
    pub messages: Vec<BatchMessage>,
}

/// What became of each message of a batch, in the same order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SentBatch {
    /// One for each message.
    #[serde(deserialize_with = "objects")]
    pub results: Vec<BatchResult>,
}

/// What became of one message of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BatchResult {
    /// It was accepted.
    Sent(Sent),
    /// It was not.
    Refused {
        /// Why.
        error: Box<Problem>,
    },
}

impl Listed for BatchResult {}

hide_secrets!(SendRequest, topic);

hide_secrets!(BatchMessage, topic);
