//! Settling deliveries: acknowledge, nack, extend, give back.

use serde::{Deserialize, Serialize};

use super::Problem;
use crate::object::{Listed, objects};

/// `POST /v1/ack/{msg_id}`
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AckRequest {
    /// Which delivery; without it, the last one that this service handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt_handle: Option<String>,
}

/// `POST /v1/nack/{msg_id}`
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NackRequest {
    /// Which delivery; without it, the last one that this service handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt_handle: Option<String>,
    /// What went wrong, for people; kept with the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Receivable again after this long; without it, after a random time that grows with attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 43_200_000))]
    pub delay_ms: Option<u64>,
    /// Never again: make it a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead: Option<bool>,
}

/// `POST /v1/extend/{msg_id}`
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExtendRequest {
    /// Which delivery; without it, the last one that this service handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt_handle: Option<String>,
    /// Others do not see it for this long, from now.
    #[cfg_attr(feature = "openapi", schema(maximum = 43_200_000))]
    pub visibility_ms: u64,
}

/// Done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ok {
    /// Always true: what went wrong is an error.
    pub ok: bool,
}

/// What shall become of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum SettleOp {
    /// Done: delete the message.
    Ack,
    /// Not done: receivable again, or a dead letter.
    Nack,
    /// Others do not see it for `visibility_ms`, from now.
    Extend,
    /// It never reached its consumer: undo the delivery.
    Return,
}

/// One delivery of a batch.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleItem {
    /// What shall become of it.
    pub op: SettleOp,
    /// The message; may be left out if there is a receipt handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msg_id: Option<String>,
    /// Which delivery; without it, the last one that this service handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt_handle: Option<String>,
    /// What went wrong, for people; kept with the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a nack: receivable again after this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(format = "uint64"))]
    pub delay_ms: Option<u64>,
    /// Of a nack: make it a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead: Option<bool>,
    /// Of a nack that makes it one: `rejected`, which is the default, `integrity` or `decode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_reason: Option<String>,
    /// Of an extension: how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(format = "uint64"))]
    pub visibility_ms: Option<u64>,
}

impl SettleItem {
    /// One that says nothing but this.
    #[must_use]
    pub const fn new(op: SettleOp) -> Self {
        Self {
            op,
            msg_id: None,
            receipt_handle: None,
            reason: None,
            delay_ms: None,
            dead: None,
            dead_reason: None,
            visibility_ms: None,
        }
    }
}

/// `POST /v1/settle/batch`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettleBatchRequest {
    /// The deliveries.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 256))]
    pub items: Vec<SettleItem>,
}

/// What became of each delivery of a batch, in the same order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettledBatch {
    /// One for each delivery.
    #[serde(deserialize_with = "objects")]
    pub results: Vec<SettleResult>,
}

/// What became of one delivery of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum SettleResult {
    /// It was settled.
    Settled {
        /// Always true.
        ok: bool,
    },
    /// It was not.
    Refused {
        /// Why.
        error: Box<Problem>,
    },
}

impl Listed for SettleItem {}

impl Listed for SettleResult {}

hide_secrets!(AckRequest,);

hide_secrets!(NackRequest, delay_ms, dead);

hide_secrets!(ExtendRequest, visibility_ms);

hide_secrets!(SettleItem, op, msg_id);
