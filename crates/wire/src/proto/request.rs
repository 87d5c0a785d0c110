//! Everything that can be asked.

use super::garbled::needed;
use super::v1::request::Call;
use super::{Garbled, v1};
use crate::call::{Asked, Request};

/// Calls whose message is the shape of a variant. That of a receive is also that of a stream, for
/// which [`Request::ReceiveStream`] has to be said.
macro_rules! calls {
    ($($message:ident => $variant:ident,)*) => {$(
        impl From<v1::$message> for Request {
            fn from(it: v1::$message) -> Self {
                Self::$variant(it.into())
            }
        }
    )*};
}

calls! {
    SendRequest => Send,
    SendBatchRequest => SendBatch,
    RecvRequest => Receive,
    AckRequest => Settle,
    NackRequest => Settle,
    ExtendRequest => Settle,
    ListTopicsRequest => Topics,
    GetTopicRequest => Topic,
    RemoveTopicRequest => Remove,
    PurgeTopicRequest => Purge,
    PeekRequest => Peek,
    GetMessageRequest => Message,
    ListDeadRequest => Dead,
    ReprocessRequest => Reprocess,
    DeleteDeadRequest => DeleteDead,
    MintCapabilityRequest => Mint,
    RevokeCapabilityRequest => Revoke,
    RotateKeyRequest => Rotate,
}

impl From<v1::LookUpRequest> for Request {
    fn from(it: v1::LookUpRequest) -> Self {
        let (topic, request) = it.into();
        Self::LookUp(topic, request)
    }
}

impl From<v1::GetAbilitiesRequest> for Request {
    fn from(_: v1::GetAbilitiesRequest) -> Self {
        Self::Abilities
    }
}

/// The same for messages that can be garbled.
macro_rules! garbled_calls {
    ($($message:ident => $variant:ident,)*) => {$(
        impl TryFrom<v1::$message> for Request {
            type Error = Garbled;

            fn try_from(it: v1::$message) -> Result<Self, Garbled> {
                Ok(Self::$variant(it.try_into()?))
            }
        }
    )*};
}

garbled_calls! {
    SettleItem => Settle,
    SettleBatchRequest => SettleBatch,
    ConfigureTopicRequest => Configure,
}

impl TryFrom<v1::Request> for Asked {
    type Error = Garbled;

    fn try_from(it: v1::Request) -> Result<Self, Garbled> {
        let request = match needed(it.call, "call")? {
            Call::Send(it) => it.into(),
            Call::SendBatch(it) => it.into(),
            Call::Recv(it) => it.into(),
            Call::RecvStream(it) => Request::ReceiveStream(it.into()),
            Call::Ack(it) => it.into(),
            Call::Nack(it) => it.into(),
            Call::Extend(it) => it.into(),
            Call::SettleBatch(it) => it.try_into()?,
            Call::Settle(it) => it.try_into()?,
            Call::Cancel(it) => return Ok(Self::Cancel(it.corr_id)),
            Call::ListTopics(it) => it.into(),
            Call::GetTopic(it) => it.into(),
            Call::ConfigureTopic(it) => it.try_into()?,
            Call::RemoveTopic(it) => it.into(),
            Call::PurgeTopic(it) => it.into(),
            Call::Peek(it) => it.into(),
            Call::LookUp(it) => it.into(),
            Call::GetMessage(it) => it.into(),
            Call::ListDead(it) => it.into(),
            Call::Reprocess(it) => it.into(),
            Call::DeleteDead(it) => it.into(),
            Call::GetAbilities(it) => it.into(),
            Call::MintCapability(it) => it.into(),
            Call::RevokeCapability(it) => it.into(),
            Call::RotateKey(it) => it.into(),
        };
        Ok(Self::Call(request))
    }
}

impl From<Request> for v1::Request {
    fn from(request: Request) -> Self {
        let call = match request {
            Request::Send(it) => Call::Send(it.into()),
            Request::SendBatch(it) => Call::SendBatch(it.into()),
            Request::Receive(it) => Call::Recv(it.into()),
            Request::ReceiveStream(it) => Call::RecvStream(it.into()),
            // Whichever of the four it is, with whatever is said about it.
            Request::Settle(it) => Call::Settle(it.into()),
            Request::SettleBatch(it) => Call::SettleBatch(it.into()),
            Request::Topics(it) => Call::ListTopics(it.into()),
            Request::Topic(it) => Call::GetTopic(it.into()),
            Request::Configure(it) => Call::ConfigureTopic(it.into()),
            Request::Remove(it) => Call::RemoveTopic(it.into()),
            Request::Purge(it) => Call::PurgeTopic(it.into()),
            Request::Peek(it) => Call::Peek(it.into()),
            Request::LookUp(topic, it) => Call::LookUp((topic, it).into()),
            Request::Message(it) => Call::GetMessage(it.into()),
            Request::Dead(it) => Call::ListDead(it.into()),
            Request::Reprocess(it) => Call::Reprocess(it.into()),
            Request::DeleteDead(it) => Call::DeleteDead(it.into()),
            Request::Abilities => Call::GetAbilities(v1::GetAbilitiesRequest {}),
            Request::Mint(it) => Call::MintCapability(it.into()),
            Request::Revoke(it) => Call::RevokeCapability(it.into()),
            Request::Rotate(it) => Call::RotateKey(it.into()),
        };
        Self { call: Some(call) }
    }
}

impl From<Asked> for v1::Request {
    fn from(asked: Asked) -> Self {
        match asked {
            Asked::Call(request) => request.into(),
            Asked::Cancel(corr_id) => Self { call: Some(Call::Cancel(v1::Cancel { corr_id })) },
        }
    }
}
