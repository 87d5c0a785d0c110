//! There and back: what comes out is what went in.

use bytes::Bytes;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{self, SettleItem, SettleOp};
use mailbox_wire::payload::Payload;
use mailbox_wire::proto::{
    Asked, Garbled, read_reply, read_request, v1, write_received, write_reply, write_request,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use prost::Message as _;

use super::answers::{answers, envelope};
use super::questions::{empty_item, item, questions};

#[test]
fn whatever_is_asked_arrives_as_it_was_asked() {
    for request in questions() {
        let bytes = write_request(Asked::Call(request.clone()));
        assert_eq!(read_request(bytes.into()), Ok(Asked::Call(request)));
    }
    for corr_id in [0, 1, u64::MAX] {
        let bytes = write_request(Asked::Cancel(corr_id));
        assert_eq!(read_request(bytes.into()), Ok(Asked::Cancel(corr_id)));
    }
}

#[test]
fn whatever_is_answered_arrives_as_it_was_answered() {
    for reply in answers() {
        let mut bytes = b"before".to_vec();
        write_reply(reply.clone(), &mut bytes);
        let bytes = Bytes::from(bytes).split_off(6);
        assert_eq!(read_reply(bytes), Ok(reply));
    }
    let mut received = Vec::new();
    write_received(vec![envelope()], &mut received);
    let messages = vec![envelope()];
    assert_eq!(read_reply(received.into()), Ok(Reply::Received(json::Received { messages })));
}

/// Through the messages of single calls, as gRPC does it.
fn by_call<M>(request: Request, message: M) -> M
where
    M: prost::Message + Default + Clone,
    Request: TryFrom<M>,
    <Request as TryFrom<M>>::Error: Into<Garbled>,
{
    let message = M::decode(Bytes::from(message.encode_to_vec())).unwrap();
    let back = Request::try_from(message.clone()).map_err(Into::into);
    assert_eq!(back, Ok(request));
    message
}

#[test]
fn whatever_is_asked_arrives_through_its_own_call_too() {
    for request in questions() {
        let again = request.clone();
        match request {
            Request::Send(it) => drop(by_call(again, v1::SendRequest::from(it))),
            Request::SendBatch(it) => drop(by_call(again, v1::SendBatchRequest::from(it))),
            Request::Receive(it) => drop(by_call(again, v1::RecvRequest::from(it))),
            Request::ReceiveStream(it) => {
                let message = by_call(Request::Receive(it.clone()), v1::RecvRequest::from(it));
                assert_eq!(Request::ReceiveStream(message.into()), again);
            }
            Request::Settle(it) => drop(by_call(again, v1::SettleItem::from(it))),
            Request::SettleBatch(it) => drop(by_call(again, v1::SettleBatchRequest::from(it))),
            Request::Topics(it) => drop(by_call(again, v1::ListTopicsRequest::from(it))),
            Request::Topic(it) => drop(by_call(again, v1::GetTopicRequest::from(it))),
            Request::Configure(it) => drop(by_call(again, v1::ConfigureTopicRequest::from(it))),
            Request::Remove(it) => drop(by_call(again, v1::RemoveTopicRequest::from(it))),
            Request::Purge(it) => drop(by_call(again, v1::PurgeTopicRequest::from(it))),
            Request::Peek(it) => drop(by_call(again, v1::PeekRequest::from(it))),
            Request::LookUp(topic, it) => {
                drop(by_call(again, v1::LookUpRequest::from((topic, it))));
            }
            Request::Message(it) => drop(by_call(again, v1::GetMessageRequest::from(it))),
            Request::Dead(it) => drop(by_call(again, v1::ListDeadRequest::from(it))),
            Request::Reprocess(it) => drop(by_call(again, v1::ReprocessRequest::from(it))),
            Request::DeleteDead(it) => drop(by_call(again, v1::DeleteDeadRequest::from(it))),
            Request::Abilities => {
                by_call(again, v1::GetAbilitiesRequest {});
            }
            Request::Mint(it) => drop(by_call(again, v1::MintCapabilityRequest::from(it))),
            Request::Revoke(it) => drop(by_call(again, v1::RevokeCapabilityRequest::from(it))),
            Request::Rotate(it) => {
                by_call(again, v1::RotateKeyRequest::from(it));
            }
        }
    }
}

#[test]
fn one_delivery_is_settled_by_the_call_of_its_operation() {
    let full = |op| SettleItem { op, ..item(op) };
    let ack = SettleItem {
        msg_id: full(SettleOp::Ack).msg_id,
        receipt_handle: full(SettleOp::Ack).receipt_handle,
        ..empty_item(SettleOp::Ack)
    };
    let nack = SettleItem { visibility_ms: None, ..full(SettleOp::Nack) };
    let extend = SettleItem { visibility_ms: Some(2), op: SettleOp::Extend, ..ack.clone() };
    for it in [ack.clone(), empty_item(SettleOp::Ack)] {
        let message = v1::AckRequest::try_from(it.clone()).unwrap();
        let call = v1::request::Call::Ack(by_call(Request::Settle(it.clone()), message));
        assert_eq!(asked(call), Asked::Call(Request::Settle(it)));
    }
    for it in [nack.clone(), empty_item(SettleOp::Nack)] {
        let message = v1::NackRequest::try_from(it.clone()).unwrap();
        let call = v1::request::Call::Nack(by_call(Request::Settle(it.clone()), message));
        assert_eq!(asked(call), Asked::Call(Request::Settle(it)));
    }
    for it in [extend.clone(), empty_item(SettleOp::Extend)] {
        let message = v1::ExtendRequest::try_from(it.clone()).unwrap();
        let call = v1::request::Call::Extend(by_call(Request::Settle(it.clone()), message));
        assert_eq!(asked(call), Asked::Call(Request::Settle(it)));
    }
    // What has no place in a message is not lost in silence.
    assert_eq!(v1::AckRequest::try_from(nack.clone()), Err(Garbled("op")));
    assert_eq!(v1::AckRequest::try_from(full(SettleOp::Ack)), Err(Garbled("reason")));
    let until = SettleItem { visibility_ms: Some(0), ..nack };
    assert_eq!(v1::NackRequest::try_from(until), Err(Garbled("visibility_ms")));
    let dead = SettleItem { dead: Some(false), ..extend };
    assert_eq!(v1::ExtendRequest::try_from(dead), Err(Garbled("dead")));
    let back = empty_item(SettleOp::Return);
    assert_eq!(v1::NackRequest::try_from(back), Err(Garbled("op")));
}

fn asked(call: v1::request::Call) -> Asked {
    let bytes = v1::Request { call: Some(call) }.encode_to_vec();
    read_request(bytes.into()).unwrap()
}

/// As a gRPC service and its client do it.
fn by_answer<M>(reply: Reply) -> bool
where
    M: prost::Message + Default + TryFrom<Reply, Error = Garbled>,
    Reply: TryFrom<M, Error = Garbled>,
{
    let Ok(message) = M::try_from(reply.clone()) else { return false };
    let message = M::decode(Bytes::from(message.encode_to_vec())).unwrap();
    assert_eq!(Reply::try_from(message), Ok(reply));
    true
}

#[test]
fn whatever_is_answered_is_the_answer_of_one_message() {
    for reply in answers() {
        let kinds = [
            by_answer::<v1::SendResponse>,
            by_answer::<v1::SendBatchResponse>,
            by_answer::<v1::RecvResponse>,
            by_answer::<v1::Done>,
            by_answer::<v1::SettleBatchResponse>,
            by_answer::<v1::ListTopicsResponse>,
            by_answer::<v1::Topic>,
            by_answer::<v1::RemoveTopicResponse>,
            by_answer::<v1::PurgeTopicResponse>,
            by_answer::<v1::Records>,
            by_answer::<v1::Record>,
            by_answer::<v1::ReprocessResponse>,
            by_answer::<v1::DeleteDeadResponse>,
            by_answer::<v1::Abilities>,
            by_answer::<v1::MintCapabilityResponse>,
            by_answer::<v1::RevokeCapabilityResponse>,
            by_answer::<v1::RotateKeyResponse>,
        ];
        let fitting = kinds.iter().filter(|fits| fits(reply.clone())).count();
        assert_eq!(fitting, 1, "{reply:?}");
    }
    let stream = v1::RecvStreamResponse::from(Some(envelope()));
    assert_eq!(Option::<json::Envelope>::try_from(stream), Ok(Some(envelope())));
    let sign_of_life = v1::RecvStreamResponse::from(None);
    assert_eq!(sign_of_life.encoded_len(), 0);
    assert_eq!(Option::<json::Envelope>::try_from(sign_of_life), Ok(None));
}

prop_compose! {
    fn message()(
        topic in any::<Option<String>>(),
        payload in vec(any::<u8>(), 0..300),
        idem_key in any::<Option<String>>(),
        attrs in btree_map(any::<String>(), any::<String>(), 0..4),
        delay_ms in any::<Option<u64>>(),
        rest in any::<[Option<String>; 6]>(),
    ) -> json::BatchMessage {
        let [reply_to, partition, group, corr_id, sig, traceparent] = rest;
        json::BatchMessage {
            topic,
            payload_b64: Payload(payload.into()),
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

proptest! {
    #[test]
    fn whatever_is_in_a_batch_arrives_as_it_was_sent(
        topic in any::<Option<String>>(),
        messages in vec(message(), 0..8),
    ) {
        let asked = Asked::Call(Request::SendBatch(json::SendBatchRequest { topic, messages }));
        let bytes = write_request(asked.clone());
        prop_assert_eq!(read_request(bytes.into()), Ok(asked));
    }
}
