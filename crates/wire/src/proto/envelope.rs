//! Receiving, and looking at messages.

use super::garbled::{all, each, needed};
use super::{Garbled, hash, v1};
use crate::payload::Payload;
use crate::{call, json};

mirror! {
    json::ReceiveRequest = RecvRequest { topic, visibility_ms, max_messages, max_bytes, wait_ms }
    json::Death = Death { reason, at, order }
    call::PeekRequest = PeekRequest { topic, limit }
    call::MessageRequest = GetMessageRequest { msg_id, topic }
}

// Literals name every field, so one that is new in either is not forgotten here.
impl From<json::Envelope> for v1::Envelope {
    fn from(it: json::Envelope) -> Self {
        let (payload_hash, hash_chain) = hash::to_bytes(it.payload_hash, it.hash_chain);
        Self {
            msg_id: it.msg_id,
            topic: it.topic,
            ts: it.ts,
            idem_key: it.idem_key,
            payload_hash,
            attrs: it.attrs.into_map(),
            corr_id: it.corr_id,
            shard: it.shard,
            attempt: it.attempt,
            hash_chain,
            sig: it.sig,
            receipt_handle: it.receipt_handle,
            visible_until_ms: it.visible_until_ms,
            reply_to: it.reply_to,
            payload: it.payload_b64.0,
            group: it.group,
            partition: it.partition,
            traceparent: it.traceparent,
        }
    }
}

impl TryFrom<v1::Envelope> for json::Envelope {
    type Error = Garbled;

    fn try_from(it: v1::Envelope) -> Result<Self, Garbled> {
        Ok(Self {
            msg_id: it.msg_id,
            topic: it.topic,
            ts: it.ts,
            idem_key: it.idem_key,
            payload_hash: hash::from_bytes(&it.payload_hash, "payload_hash")?,
            attrs: it.attrs.into(),
            corr_id: it.corr_id,
            shard: it.shard,
            attempt: it.attempt,
            hash_chain: hash::from_bytes(&it.hash_chain, "hash_chain")?,
            sig: it.sig,
            receipt_handle: it.receipt_handle,
            visible_until_ms: it.visible_until_ms,
            reply_to: it.reply_to,
            group: it.group,
            partition: it.partition,
            traceparent: it.traceparent,
            payload_b64: Payload(it.payload),
        })
    }
}

impl From<json::Received> for v1::RecvResponse {
    fn from(it: json::Received) -> Self {
        Self { messages: all(it.messages) }
    }
}

impl TryFrom<v1::RecvResponse> for json::Received {
    type Error = Garbled;

    fn try_from(it: v1::RecvResponse) -> Result<Self, Garbled> {
        Ok(Self { messages: each(it.messages)? })
    }
}

impl From<Option<json::Envelope>> for v1::RecvStreamResponse {
    /// Without an envelope, a sign of life.
    fn from(it: Option<json::Envelope>) -> Self {
        Self { envelope: it.map(Into::into) }
    }
}

impl TryFrom<v1::RecvStreamResponse> for Option<json::Envelope> {
    type Error = Garbled;

    fn try_from(it: v1::RecvStreamResponse) -> Result<Self, Garbled> {
        it.envelope.map(TryInto::try_into).transpose()
    }
}

impl From<(String, json::LookUpRequest)> for v1::LookUpRequest {
    fn from((topic, it): (String, json::LookUpRequest)) -> Self {
        Self { topic, msg_ids: it.msg_ids }
    }
}

impl From<v1::LookUpRequest> for (String, json::LookUpRequest) {
    fn from(it: v1::LookUpRequest) -> Self {
        let v1::LookUpRequest { topic, msg_ids } = it;
        (topic, json::LookUpRequest { msg_ids })
    }
}

impl From<json::Record> for v1::Record {
    fn from(it: json::Record) -> Self {
        let json::Record { envelope, state, receivable_in_ms, last_error, death } = it;
        Self {
            envelope: Some(envelope.into()),
            state,
            receivable_in_ms,
            last_error,
            death: death.map(Into::into),
        }
    }
}

impl TryFrom<v1::Record> for json::Record {
    type Error = Garbled;

    fn try_from(it: v1::Record) -> Result<Self, Garbled> {
        let v1::Record { envelope, state, receivable_in_ms, last_error, death } = it;
        Ok(Self {
            envelope: needed(envelope, "envelope")?.try_into()?,
            state,
            receivable_in_ms,
            last_error,
            death: death.map(Into::into),
        })
    }
}

impl From<Box<json::Record>> for v1::Record {
    fn from(it: Box<json::Record>) -> Self {
        (*it).into()
    }
}

impl TryFrom<v1::Record> for Box<json::Record> {
    type Error = Garbled;

    fn try_from(it: v1::Record) -> Result<Self, Garbled> {
        it.try_into().map(Self::new)
    }
}

impl From<json::Records> for v1::Records {
    fn from(it: json::Records) -> Self {
        Self { messages: all(it.messages) }
    }
}

impl TryFrom<v1::Records> for json::Records {
    type Error = Garbled;

    fn try_from(it: v1::Records) -> Result<Self, Garbled> {
        Ok(Self { messages: each(it.messages)? })
    }
}
