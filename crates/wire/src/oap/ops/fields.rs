//! The fields of calls that are not as in the neutral list of calls: what is a part of a path
//! elsewhere is a field here, and some have a second way to be said.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::BadOp;
use crate::attributes::Attributes;
use crate::call::{ConfigureRequest, Request};
use crate::json::{
    BatchMessage, LookUpRequest, PolicyChange, ReceiveRequest, SendBatchRequest, SendRequest,
    SettleItem, SettleOp,
};
use crate::object::{Listed, Object, objects};
use crate::payload::{Payload, wiped};
use crate::texts::texts;

/// Most messages of a receive that does not say how many, if it may have so many.
pub const USUAL: u32 = 10;
/// Most that `max` may say.
const MOST: u32 = 100;

/// None at all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// A payload as text.
struct Text(Payload);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Utf8;

        impl Visitor<'_> for Utf8 {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(Payload(wiped(text.as_bytes().to_vec()))))
            }
        }

        deserializer.deserialize_str(Utf8)
    }
}

/// A message to send, alone or in a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageFields {
    topic: Option<String>,
    text: Option<Text>,
    payload_b64: Option<Payload>,
    #[serde(alias = "idempotency_key")]
    idem_key: Option<String>,
    #[serde(default)]
    attrs: Attributes,
    delay_ms: Option<u64>,
    reply_to: Option<String>,
    partition: Option<String>,
    group: Option<String>,
    corr_id: Option<String>,
    sig: Option<String>,
    traceparent: Option<String>,
}

impl Listed for MessageFields {
    fn attributes(&self) -> usize {
        self.attrs.len()
    }
}

impl MessageFields {
    fn into_message(self) -> Result<BatchMessage, BadOp> {
        let payload_b64 = match (self.text, self.payload_b64) {
            (Some(Text(payload)), None) | (None, Some(payload)) => payload,
            _ => {
                let message = "a message has exactly one of `text` and `payload_b64`";
                return Err(BadOp::field("text", message));
            }
        };
        Ok(BatchMessage {
            topic: self.topic,
            payload_b64,
            idem_key: self.idem_key,
            attrs: self.attrs,
            delay_ms: self.delay_ms,
            reply_to: self.reply_to,
            partition: self.partition,
            group: self.group,
            corr_id: self.corr_id,
            sig: self.sig,
            traceparent: self.traceparent,
        })
    }

    /// As a message of its own.
    pub(super) fn into_request(self) -> Result<SendRequest, BadOp> {
        let it = self.into_message()?;
        let topic = it.topic.ok_or_else(|| BadOp::field("topic", "missing field `topic`"))?;
        Ok(SendRequest {
            topic,
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
        })
    }
}

/// `send_batch`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchFields {
    topic: Option<String>,
    #[serde(deserialize_with = "objects")]
    messages: Vec<MessageFields>,
}

impl BatchFields {
    pub(super) fn into_request(self) -> Result<SendBatchRequest, BadOp> {
        let messages = self.messages.into_iter().map(MessageFields::into_message);
        Ok(SendBatchRequest { topic: self.topic, messages: messages.collect::<Result<_, _>>()? })
    }
}

/// `recv`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiveFields {
    topic: String,
    visibility_ms: Option<u64>,
    max_messages: Option<u32>,
    max: Option<u32>,
    max_bytes: Option<u64>,
    wait_ms: Option<u64>,
}

impl ReceiveFields {
    pub(super) fn into_request(self) -> Result<ReceiveRequest, BadOp> {
        if let Some(max) = self.max.filter(|max| !(1..=MOST).contains(max)) {
            let message = format!("`max` is {max}: it may be from 1 to {MOST}");
            return Err(BadOp::field("max", message));
        }
        if self.max.is_some() && self.max_messages.is_some() {
            return Err(BadOp::field("max", "`max` and `max_messages` say the same: use one"));
        }
        Ok(ReceiveRequest {
            topic: self.topic,
            visibility_ms: self.visibility_ms,
            max_messages: self.max.or(self.max_messages),
            max_bytes: self.max_bytes,
            wait_ms: self.wait_ms,
        })
    }
}

/// `ack`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AckFields {
    msg_id: Option<String>,
    receipt_handle: Option<String>,
}

/// `nack`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NackFields {
    msg_id: Option<String>,
    receipt_handle: Option<String>,
    reason: Option<String>,
    delay_ms: Option<u64>,
    dead: Option<bool>,
}

/// `extend`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtendFields {
    msg_id: Option<String>,
    receipt_handle: Option<String>,
    visibility_ms: u64,
}

impl From<AckFields> for SettleItem {
    fn from(it: AckFields) -> Self {
        item(SettleOp::Ack, it.msg_id, it.receipt_handle)
    }
}

impl From<NackFields> for SettleItem {
    fn from(it: NackFields) -> Self {
        let NackFields { msg_id, receipt_handle, reason, delay_ms, dead } = it;
        Self { reason, delay_ms, dead, ..item(SettleOp::Nack, msg_id, receipt_handle) }
    }
}

impl From<ExtendFields> for SettleItem {
    fn from(it: ExtendFields) -> Self {
        let visibility_ms = Some(it.visibility_ms);
        Self { visibility_ms, ..item(SettleOp::Extend, it.msg_id, it.receipt_handle) }
    }
}

fn item(op: SettleOp, msg_id: Option<String>, receipt_handle: Option<String>) -> SettleItem {
    SettleItem {
        op,
        msg_id,
        receipt_handle,
        reason: None,
        delay_ms: None,
        dead: None,
        dead_reason: None,
        visibility_ms: None,
    }
}

/// `configure`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigureFields {
    topic: String,
    policy: Object<PolicyChange>,
}

impl From<ConfigureFields> for ConfigureRequest {
    fn from(it: ConfigureFields) -> Self {
        Self { topic: it.topic, policy: it.policy.0 }
    }
}

/// `lookup`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LookUpFields {
    topic: String,
    #[serde(deserialize_with = "texts")]
    msg_ids: Vec<String>,
}

impl From<LookUpFields> for Request {
    fn from(it: LookUpFields) -> Self {
        Self::LookUp(it.topic, LookUpRequest { msg_ids: it.msg_ids })
    }
}

/// `cancel`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelFields {
    pub(super) corr_id: u64,
}
