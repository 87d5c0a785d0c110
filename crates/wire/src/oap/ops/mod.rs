//! Calls in JSON: `{"op": "send", ...}`. Invariants: a document that says something that is not
//! understood, or says it twice, is refused; and what is said about it repeats nothing of it.

mod fields;
mod named;
mod write;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;

use self::fields::{
    AckFields, BatchFields, CancelFields, ConfigureFields, ExtendFields, LookUpFields,
    MessageFields, NackFields, Nothing, ReceiveFields,
};
use crate::call::{Asked, Request};
use crate::unreadable::unreadable;

pub use fields::USUAL;
pub use write::{write, write_envelope};

/// A document that asks for nothing that can be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOp {
    message: String,
    field: Option<&'static str>,
}

impl BadOp {
    /// A field that cannot be as it is.
    pub(super) fn field(field: &'static str, message: impl Into<String>) -> Self {
        Self { message: message.into(), field: Some(field) }
    }

    /// Something that could not be read at all.
    pub(super) fn unreadable(error: &serde_json::Error) -> Self {
        let message = format!("the request cannot be read: {}", unreadable(error));
        Self { message, field: None }
    }

    /// The field that is out of bounds, if it is one.
    #[must_use]
    pub const fn which(&self) -> Option<&'static str> {
        self.field
    }
}

impl fmt::Display for BadOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BadOp {}

/// What a document asks for.
///
/// # Errors
/// It is no JSON object, has no `op` that is known, or fields that do not belong to it.
pub fn read(document: &[u8]) -> Result<Asked, BadOp> {
    let Some(name) = named::op_of(document) else {
        let IgnoredAny = fields(document)?;
        return Err(BadOp::field("op", format!("no `op`: one of {}", NAMES.join(", "))));
    };
    Ok(Asked::Call(match &*name {
        "send" => Request::Send(fields::<MessageFields>(document)?.into_request()?),
        "send_batch" => Request::SendBatch(fields::<BatchFields>(document)?.into_request()?),
        "recv" => Request::Receive(fields::<ReceiveFields>(document)?.into_request()?),
        "recv_stream" => Request::ReceiveStream(fields(document)?),
        "ack" => Request::Settle(fields::<AckFields>(document)?.into()),
        "nack" => Request::Settle(fields::<NackFields>(document)?.into()),
        "extend" => Request::Settle(fields::<ExtendFields>(document)?.into()),
        "settle_batch" => Request::SettleBatch(fields(document)?),
        "topics" => Request::Topics(fields(document)?),
        "topic" => Request::Topic(fields(document)?),
        "configure" => Request::Configure(fields::<ConfigureFields>(document)?.into()),
        "remove" => Request::Remove(fields(document)?),
        "purge" => Request::Purge(fields(document)?),
        "peek" => Request::Peek(fields(document)?),
        "lookup" => fields::<LookUpFields>(document)?.into(),
        "message" => Request::Message(fields(document)?),
        "dead" => Request::Dead(fields(document)?),
        "reprocess" => Request::Reprocess(fields(document)?),
        "delete_dead" => Request::DeleteDead(fields(document)?),
        "abilities" => {
            let Nothing {} = fields(document)?;
            Request::Abilities
        }
        "mint" => Request::Mint(fields(document)?),
        "revoke" => Request::Revoke(fields(document)?),
        "rotate" => Request::Rotate(fields(document)?),
        "cancel" => return Ok(Asked::Cancel(fields::<CancelFields>(document)?.corr_id)),
        _ => {
            let known = NAMES.join(", ");
            return Err(BadOp::field("op", format!("this `op` is not known: one of {known}")));
        }
    }))
}

/// Everything that can be asked for.
const NAMES: [&str; 24] = [
    "send",
    "send_batch",
    "recv",
    "recv_stream",
    "ack",
    "nack",
    "extend",
    "settle_batch",
    "topics",
    "topic",
    "configure",
    "remove",
    "purge",
    "peek",
    "lookup",
    "message",
    "dead",
    "reprocess",
    "delete_dead",
    "abilities",
    "mint",
    "revoke",
    "rotate",
    "cancel",
];

/// The fields beside `op`.
fn fields<T: for<'de> Deserialize<'de>>(document: &[u8]) -> Result<T, BadOp> {
    let read = serde_json::from_slice::<named::BesideOp<T>>(document);
    read.map(|named::BesideOp(fields)| fields).map_err(|error| BadOp::unreadable(&error))
}
