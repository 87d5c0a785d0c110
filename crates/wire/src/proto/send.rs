//! Sending, one message or many.
//!
//! A map on the wire is a list of pairs, and the last pair of a key wins: attributes that are there
//! twice, which JSON refuses, cannot be told from others here.

use super::garbled::{all, each, needed};
use super::problem::converted;
use super::v1::batch_result;
use super::{Garbled, v1};
use crate::json;
use crate::payload::Payload;

/// The payload is `payload_b64` in the shape, and attributes are a type of their own there.
macro_rules! letter {
    ($($name:ident),*) => {$(
        impl From<v1::$name> for json::$name {
            fn from(it: v1::$name) -> Self {
                let v1::$name {
                    topic, payload, idem_key, attrs, delay_ms, reply_to, partition, group, corr_id,
                    sig, traceparent,
                } = it;
                Self {
                    topic,
                    payload_b64: Payload(payload),
                    idem_key,
                    attrs: attrs.into(),
                    delay_ms,
                    reply_to,
                    partition,
                    group,
                    corr_id,
                    sig,
                    traceparent,
                }
            }
        }

        impl From<json::$name> for v1::$name {
            fn from(it: json::$name) -> Self {
                let json::$name {
                    topic, payload_b64, idem_key, attrs, delay_ms, reply_to, partition, group,
                    corr_id, sig, traceparent,
                } = it;
                Self {
                    topic,
                    payload: payload_b64.0,
                    idem_key,
                    attrs: attrs.into_map(),
                    delay_ms,
                    reply_to,
                    partition,
                    group,
                    corr_id,
                    sig,
                    traceparent,
                }
            }
        }
    )*};
}

letter!(SendRequest, BatchMessage);

mirror! {
    json::Sent = SendResponse { msg_id, duplicate }
}

impl From<v1::SendBatchRequest> for json::SendBatchRequest {
    fn from(it: v1::SendBatchRequest) -> Self {
        let v1::SendBatchRequest { topic, messages } = it;
        Self { topic, messages: all(messages) }
    }
}

impl From<json::SendBatchRequest> for v1::SendBatchRequest {
    fn from(it: json::SendBatchRequest) -> Self {
        let json::SendBatchRequest { topic, messages } = it;
        Self { topic, messages: all(messages) }
    }
}

impl From<json::SentBatch> for v1::SendBatchResponse {
    fn from(it: json::SentBatch) -> Self {
        Self { results: all(it.results) }
    }
}

impl TryFrom<v1::SendBatchResponse> for json::SentBatch {
    type Error = Garbled;

    fn try_from(it: v1::SendBatchResponse) -> Result<Self, Garbled> {
        Ok(Self { results: each(it.results)? })
    }
}

impl From<json::BatchResult> for v1::BatchResult {
    fn from(it: json::BatchResult) -> Self {
        let result = match it {
            json::BatchResult::Sent(sent) => batch_result::Result::Sent(sent.into()),
            json::BatchResult::Refused { error } => batch_result::Result::Error(converted(error)),
        };
        Self { result: Some(result) }
    }
}

impl TryFrom<v1::BatchResult> for json::BatchResult {
    type Error = Garbled;

    fn try_from(it: v1::BatchResult) -> Result<Self, Garbled> {
        Ok(match needed(it.result, "result")? {
            batch_result::Result::Sent(sent) => Self::Sent(sent.into()),
            batch_result::Result::Error(error) => Self::Refused { error: converted(error) },
        })
    }
}
