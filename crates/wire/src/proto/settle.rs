//! Settling deliveries: acknowledge, nack, extend, give back.

use super::garbled::{all, each, needed};
use super::problem::converted;
use super::v1::settle_result;
use super::{Garbled, v1};
use crate::json;

impl From<json::SettleOp> for v1::SettleOp {
    fn from(it: json::SettleOp) -> Self {
        match it {
            json::SettleOp::Ack => Self::Ack,
            json::SettleOp::Nack => Self::Nack,
            json::SettleOp::Extend => Self::Extend,
            json::SettleOp::Return => Self::Return,
        }
    }
}

impl TryFrom<v1::SettleOp> for json::SettleOp {
    type Error = Garbled;

    fn try_from(it: v1::SettleOp) -> Result<Self, Garbled> {
        match it {
            v1::SettleOp::Unspecified => Err(Garbled("op")),
            v1::SettleOp::Ack => Ok(Self::Ack),
            v1::SettleOp::Nack => Ok(Self::Nack),
            v1::SettleOp::Extend => Ok(Self::Extend),
            v1::SettleOp::Return => Ok(Self::Return),
        }
    }
}

impl From<json::SettleItem> for v1::SettleItem {
    fn from(it: json::SettleItem) -> Self {
        let json::SettleItem {
            op,
            msg_id,
            receipt_handle,
            reason,
            delay_ms,
            dead,
            dead_reason,
            visibility_ms,
        } = it;
        let op = v1::SettleOp::from(op).into();
        Self { op, msg_id, receipt_handle, reason, delay_ms, dead, dead_reason, visibility_ms }
    }
}

impl TryFrom<v1::SettleItem> for json::SettleItem {
    type Error = Garbled;

    fn try_from(it: v1::SettleItem) -> Result<Self, Garbled> {
        let v1::SettleItem {
            op,
            msg_id,
            receipt_handle,
            reason,
            delay_ms,
            dead,
            dead_reason,
            visibility_ms,
        } = it;
        let op = v1::SettleOp::try_from(op).map_err(|_| Garbled("op"))?.try_into()?;
        Ok(Self { op, msg_id, receipt_handle, reason, delay_ms, dead, dead_reason, visibility_ms })
    }
}

/// With nothing but which delivery it is about.
fn item(
    op: json::SettleOp,
    msg_id: Option<String>,
    receipt_handle: Option<String>,
) -> json::SettleItem {
    json::SettleItem {
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

impl From<v1::AckRequest> for json::SettleItem {
    fn from(it: v1::AckRequest) -> Self {
        let v1::AckRequest { msg_id, receipt_handle } = it;
        item(json::SettleOp::Ack, msg_id, receipt_handle)
    }
}

impl From<v1::NackRequest> for json::SettleItem {
    fn from(it: v1::NackRequest) -> Self {
        let v1::NackRequest { msg_id, receipt_handle, reason, delay_ms, dead, dead_reason } = it;
        let item = item(json::SettleOp::Nack, msg_id, receipt_handle);
        Self { reason, delay_ms, dead, dead_reason, ..item }
    }
}

impl From<v1::ExtendRequest> for json::SettleItem {
    fn from(it: v1::ExtendRequest) -> Self {
        let v1::ExtendRequest { msg_id, receipt_handle, visibility_ms } = it;
        Self { visibility_ms, ..item(json::SettleOp::Extend, msg_id, receipt_handle) }
    }
}

/// The way back, for clients: a message of one operation has no place for what belongs to another,
/// so an item that has such a thing is refused, as the service would.
macro_rules! only {
    ($($op:ident: $message:ident { $($own:ident),* } without $($other:ident),*;)*) => {$(
        impl TryFrom<json::SettleItem> for v1::$message {
            type Error = Garbled;

            fn try_from(it: json::SettleItem) -> Result<Self, Garbled> {
                let json::SettleItem { op, msg_id, receipt_handle, $($own,)* $($other),* } = it;
                if op != json::SettleOp::$op {
                    return Err(Garbled("op"));
                }
                $(if $other.is_some() {
                    return Err(Garbled(stringify!($other)));
                })*
                Ok(Self { msg_id, receipt_handle, $($own),* })
            }
        }
    )*};
}

only! {
    Ack: AckRequest {} without reason, delay_ms, dead, dead_reason, visibility_ms;
    Nack: NackRequest { reason, delay_ms, dead, dead_reason } without visibility_ms;
    Extend: ExtendRequest { visibility_ms } without reason, delay_ms, dead, dead_reason;
}

impl From<json::Ok> for v1::Done {
    /// It is always true.
    fn from(_: json::Ok) -> Self {
        Self {}
    }
}

impl From<v1::Done> for json::Ok {
    fn from(_: v1::Done) -> Self {
        Self { ok: true }
    }
}

impl From<json::SettleBatchRequest> for v1::SettleBatchRequest {
    fn from(it: json::SettleBatchRequest) -> Self {
        Self { items: all(it.items) }
    }
}

impl TryFrom<v1::SettleBatchRequest> for json::SettleBatchRequest {
    type Error = Garbled;

    fn try_from(it: v1::SettleBatchRequest) -> Result<Self, Garbled> {
        Ok(Self { items: each(it.items)? })
    }
}

impl From<json::SettledBatch> for v1::SettleBatchResponse {
    fn from(it: json::SettledBatch) -> Self {
        Self { results: all(it.results) }
    }
}

impl TryFrom<v1::SettleBatchResponse> for json::SettledBatch {
    type Error = Garbled;

    fn try_from(it: v1::SettleBatchResponse) -> Result<Self, Garbled> {
        Ok(Self { results: each(it.results)? })
    }
}

impl From<json::SettleResult> for v1::SettleResult {
    fn from(it: json::SettleResult) -> Self {
        let result = match it {
            json::SettleResult::Settled { ok } => settle_result::Result::Ok(json::Ok { ok }.into()),
            json::SettleResult::Refused { error } => settle_result::Result::Error(converted(error)),
        };
        Self { result: Some(result) }
    }
}

impl TryFrom<v1::SettleResult> for json::SettleResult {
    type Error = Garbled;

    fn try_from(it: v1::SettleResult) -> Result<Self, Garbled> {
        Ok(match needed(it.result, "result")? {
            settle_result::Result::Ok(v1::Done {}) => Self::Settled { ok: true },
            settle_result::Result::Error(error) => Self::Refused { error: converted(error) },
        })
    }
}
