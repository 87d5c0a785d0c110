//! Everything that can be asked: with every field, each with a value of its own, and with none.

use mailbox_wire::call::{
    ConfigureRequest, DeadListRequest, MessageRequest, PeekRequest, Request, TopicRequest,
    TopicsRequest,
};
use mailbox_wire::json::{
    BatchMessage, DeadRequest, LookUpRequest, MintRequest, PolicyChange, ReceiveRequest,
    RetentionChange, RevokeRequest, RotateRequest, SendBatchRequest, SendRequest,
    SettleBatchRequest, SettleItem, SettleOp,
};
use mailbox_wire::payload::Payload;

use super::{some, text};

pub(crate) fn send() -> SendRequest {
    SendRequest {
        topic: text("topic"),
        payload_b64: Payload(text("payload").into()),
        idem_key: some("idem_key"),
        attrs: [(text("key"), text("value")), (text("other key"), String::new())].into(),
        delay_ms: Some(1),
        reply_to: some("reply_to"),
        partition: some("partition"),
        group: some("group"),
        corr_id: some("corr_id"),
        sig: some("sig"),
        traceparent: some("traceparent"),
    }
}

fn receive() -> ReceiveRequest {
    ReceiveRequest {
        topic: text("topic"),
        visibility_ms: Some(1),
        max_messages: Some(2),
        max_bytes: Some(3),
        wait_ms: Some(u64::MAX),
    }
}

pub(crate) fn item(op: SettleOp) -> SettleItem {
    SettleItem {
        op,
        msg_id: some("msg_id"),
        receipt_handle: some("receipt_handle"),
        reason: some("reason"),
        delay_ms: Some(1),
        dead: Some(true),
        dead_reason: some("dead_reason"),
        visibility_ms: Some(2),
    }
}

pub(crate) fn empty_item(op: SettleOp) -> SettleItem {
    SettleItem {
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

const OPS: [SettleOp; 4] = [SettleOp::Ack, SettleOp::Nack, SettleOp::Extend, SettleOp::Return];

fn dead() -> Vec<DeadRequest> {
    let all = DeadRequest { topic: text("topic"), ..DeadRequest::default() };
    vec![
        DeadRequest { msg_ids: Some(Vec::new()), ..all.clone() },
        DeadRequest {
            limit: Some(0),
            msg_ids: Some(vec![text("1"), text("2")]),
            reason: some("reason"),
            ..all.clone()
        },
        all,
    ]
}

fn changes() -> Vec<PolicyChange> {
    let set = PolicyChange {
        max_size: Some(Some(1)),
        max_in_flight: Some(2),
        max_attempts: Some(Some(u32::MAX)),
        replay_window_ms: Some(4),
        dedup_capacity: Some(5),
        late_settle: some("late_settle"),
        retention: Some(RetentionChange {
            ready_age_ms: Some(Some(6)),
            ready_count: Some(Some(u64::MAX)),
            in_flight_factor: Some(Some(u32::MAX)),
            dead_age_ms: Some(Some(9)),
            dead_count: Some(Some(10)),
        }),
    };
    let taken_away = PolicyChange {
        max_size: Some(None),
        max_in_flight: Some(0),
        max_attempts: Some(None),
        replay_window_ms: Some(0),
        dedup_capacity: Some(0),
        late_settle: Some(String::new()),
        retention: Some(RetentionChange {
            ready_age_ms: Some(None),
            ready_count: Some(None),
            in_flight_factor: Some(None),
            dead_age_ms: Some(None),
            dead_count: Some(None),
        }),
    };
    let zero = PolicyChange {
        max_size: Some(Some(0)),
        max_attempts: Some(Some(0)),
        retention: Some(RetentionChange::default()),
        ..PolicyChange::default()
    };
    vec![set, taken_away, zero, PolicyChange::default()]
}

/// Each of them at least once.
pub(crate) fn questions() -> Vec<Request> {
    let topic = || TopicRequest { topic: text("topic") };
    let batch = SendBatchRequest {
        topic: some("batch"),
        messages: vec![BatchMessage::from(send()), BatchMessage::default()],
    };
    let items = OPS.into_iter().flat_map(|op| [item(op), empty_item(op)]);
    let mint = MintRequest {
        ops: vec![text("op"), text("other op")],
        topics: vec![text("topic")],
        ttl_s: Some(1),
        caveats: vec![text("caveat")],
    };
    let revoke = RevokeRequest { token_id: some("token_id"), capability: some("capability") };
    let topics = TopicsRequest { after: some("after"), limit: Some(1), stats: Some(false) };
    let mut all = vec![
        Request::Send(send()),
        Request::Send(SendRequest::default()),
        Request::SendBatch(batch),
        Request::SendBatch(SendBatchRequest::default()),
        Request::Receive(receive()),
        Request::Receive(ReceiveRequest::default()),
        Request::ReceiveStream(receive()),
        Request::ReceiveStream(ReceiveRequest::default()),
        Request::SettleBatch(SettleBatchRequest { items: items.clone().collect() }),
        Request::SettleBatch(SettleBatchRequest::default()),
        Request::Topics(topics),
        Request::Topics(TopicsRequest::default()),
        Request::Topic(topic()),
        Request::Remove(topic()),
        Request::Purge(topic()),
        Request::Peek(PeekRequest { topic: text("topic"), limit: Some(0) }),
        Request::Peek(PeekRequest::default()),
        Request::LookUp(text("topic"), LookUpRequest { msg_ids: vec![text("1"), text("2")] }),
        Request::LookUp(String::new(), LookUpRequest::default()),
        Request::Message(MessageRequest { msg_id: text("msg_id"), topic: some("topic") }),
        Request::Message(MessageRequest::default()),
        Request::Dead(DeadListRequest { topic: text("topic"), after: Some(1), limit: Some(2) }),
        Request::Dead(DeadListRequest::default()),
        Request::Abilities,
        Request::Mint(mint),
        Request::Mint(MintRequest::default()),
        Request::Revoke(revoke),
        Request::Revoke(RevokeRequest::default()),
        Request::Rotate(RotateRequest { grace_s: Some(0) }),
        Request::Rotate(RotateRequest::default()),
    ];
    all.extend(items.map(Request::Settle));
    all.extend(dead().into_iter().map(Request::Reprocess));
    all.extend(dead().into_iter().map(Request::DeleteDead));
    let configure = |policy| Request::Configure(ConfigureRequest { topic: text("topic"), policy });
    all.extend(changes().into_iter().map(configure));
    all
}
