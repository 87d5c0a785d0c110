//! Everything that can be asked of a service, and what it answers: the same for every protocol.
//! Protocols differ in how they write these down, and in nothing else.

use serde::{Deserialize, Serialize};

use crate::capability::Op;
use crate::json::{
    Abilities, DeadRequest, Deleted, LookUpRequest, MintRequest, Minted, Ok, PolicyChange, Purged,
    ReceiveRequest, Received, Record, Records, Removed, Reprocessed, RevokeRequest, Revoked,
    RotateRequest, Rotated, SendBatchRequest, SendRequest, Sent, SentBatch, SettleBatchRequest,
    SettleItem, SettleOp, SettledBatch, Topic, Topics,
};

/// What is asked of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Send one message.
    Send(SendRequest),
    /// Send several.
    SendBatch(SendBatchRequest),
    /// Receive.
    Receive(ReceiveRequest),
    /// Receive until the client leaves.
    ReceiveStream(ReceiveRequest),
    /// Settle one delivery.
    Settle(SettleItem),
    /// Settle several.
    SettleBatch(SettleBatchRequest),
    /// List mailboxes.
    Topics(TopicsRequest),
    /// What is in a mailbox, and its rules.
    Topic(TopicRequest),
    /// Change the rules of a mailbox.
    Configure(ConfigureRequest),
    /// Remove a mailbox with everything in it.
    Remove(TopicRequest),
    /// Remove every message that is not a dead letter.
    Purge(TopicRequest),
    /// Show messages that are not dead.
    Peek(PeekRequest),
    /// Show messages by their ids.
    LookUp(String, LookUpRequest),
    /// Show one message.
    Message(MessageRequest),
    /// Show dead letters.
    Dead(DeadListRequest),
    /// Put dead letters back in line.
    Reprocess(DeadRequest),
    /// Delete dead letters.
    DeleteDead(DeadRequest),
    /// What the store can do.
    Abilities,
    /// Make a capability.
    Mint(MintRequest),
    /// Take a capability back.
    Revoke(RevokeRequest),
    /// Replace the root key.
    Rotate(RotateRequest),
}

/// What is asked on a connection that has many requests at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "hardly any of them is not a call")]
pub enum Asked {
    /// Something of the service.
    Call(Request),
    /// The end of a receive or stream that is in flight under this correlation id.
    Cancel(u64),
}

impl From<Request> for Asked {
    fn from(request: Request) -> Self {
        Self::Call(request)
    }
}

impl Request {
    /// Its name, in protocols that call it by one.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Send(_) => "send",
            Self::SendBatch(_) => "send_batch",
            Self::Receive(_) => "recv",
            Self::ReceiveStream(_) => "recv_stream",
            Self::Settle(item) => match item.op {
                SettleOp::Ack => "ack",
                SettleOp::Nack => "nack",
                SettleOp::Extend => "extend",
                SettleOp::Return => "return",
            },
            Self::SettleBatch(_) => "settle_batch",
            Self::Topics(_) => "topics",
            Self::Topic(_) => "topic",
            Self::Configure(_) => "configure",
            Self::Remove(_) => "remove",
            Self::Purge(_) => "purge",
            Self::Peek(_) => "peek",
            Self::LookUp(..) => "lookup",
            Self::Message(_) => "message",
            Self::Dead(_) => "dead",
            Self::Reprocess(_) => "reprocess",
            Self::DeleteDead(_) => "delete_dead",
            Self::Abilities => "abilities",
            Self::Mint(_) => "mint",
            Self::Revoke(_) => "revoke",
            Self::Rotate(_) => "rotate",
        }
    }

    /// What a capability has to allow for it; of a batch, what most of it takes.
    #[must_use]
    pub const fn op(&self) -> Op {
        match self {
            Self::Send(_) | Self::SendBatch(_) => Op::Send,
            Self::Receive(_) | Self::ReceiveStream(_) => Op::Receive,
            Self::Settle(item) if matches!(item.op, SettleOp::Nack) => Op::Nack,
            Self::Settle(_) | Self::SettleBatch(_) => Op::Acknowledge,
            _ => Op::Admin,
        }
    }
}

/// What a service answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "each is the answer to what is asked with the same name")]
#[expect(clippy::large_enum_variant, reason = "the large one is rare, and there is one at a time")]
pub enum Reply {
    Sent(Sent),
    SentBatch(SentBatch),
    Received(Received),
    Done(Ok),
    SettledBatch(SettledBatch),
    Topics(Topics),
    Topic(Topic),
    Removed(Removed),
    Purged(Purged),
    Records(Records),
    Record(Box<Record>),
    Reprocessed(Reprocessed),
    Deleted(Deleted),
    Abilities(Abilities),
    Minted(Minted),
    Revoked(Revoked),
    Rotated(Rotated),
}

/// Which mailboxes to list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicsRequest {
    /// From behind this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// With what is in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<bool>,
}

/// A mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicRequest {
    /// Its name.
    pub topic: String,
}

/// Rules of a mailbox to change.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigureRequest {
    /// Its name.
    pub topic: String,
    /// What is left out stays as it is.
    pub policy: PolicyChange,
}

/// Messages to show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeekRequest {
    /// The mailbox.
    pub topic: String,
    /// At most so many; 10 if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A message to show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageRequest {
    /// Its identity.
    pub msg_id: String,
    /// The mailbox; all are looked through if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
}

/// Dead letters to show.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadListRequest {
    /// The mailbox.
    pub topic: String,
    /// From behind the one with this order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// At most so many; 100 if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
