//! Payloads, receipt handles and capabilities are never shown, nor what went wrong with a payload.

use std::collections::BTreeSet;
use std::fmt::Debug;

use bytes::Bytes;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json;
use mailbox_wire::payload::Payload;
use mailbox_wire::proto::v1;
use mailbox_wire::proto::v1::reply::Answer;
use mailbox_wire::proto::v1::request::Call;

use super::described::Described;

const CANARY: &str = "CANARY";

/// Fields that nobody but their owner may see.
const SECRET: [&str; 5] =
    ["payload", "receipt_handle", "capability", "operator_capability", "last_error"];

fn canary() -> Option<String> {
    Some(CANARY.to_owned())
}

fn payload() -> Bytes {
    Bytes::from_static(CANARY.as_bytes())
}

#[track_caller]
fn assert_hidden(message: &impl Debug) {
    // As text, as escaped bytes, as a list of numbers.
    for shown in [format!("{message:?}"), format!("{message:#?}")] {
        assert!(!shown.contains(CANARY), "{shown}");
        assert!(!shown.replace(char::is_whitespace, "").contains("67,65,78"), "{shown}");
    }
}

fn batch_message() -> v1::BatchMessage {
    v1::BatchMessage { payload: payload(), ..v1::BatchMessage::default() }
}

fn envelope() -> v1::Envelope {
    let receipt_handle = canary();
    v1::Envelope { payload: payload(), receipt_handle, ..v1::Envelope::default() }
}

fn item() -> v1::SettleItem {
    v1::SettleItem { receipt_handle: canary(), ..v1::SettleItem::default() }
}

/// Every question with something secret in it.
fn calls() -> Vec<Call> {
    let receipt_handle = canary();
    let ack = v1::AckRequest { receipt_handle: canary(), ..v1::AckRequest::default() };
    let nack = v1::NackRequest { receipt_handle: canary(), ..v1::NackRequest::default() };
    let extend = v1::ExtendRequest { receipt_handle, ..v1::ExtendRequest::default() };
    let revoke = v1::RevokeCapabilityRequest { token_id: None, capability: canary() };
    vec![
        Call::Send(v1::SendRequest { payload: payload(), ..v1::SendRequest::default() }),
        Call::SendBatch(v1::SendBatchRequest { topic: None, messages: vec![batch_message()] }),
        Call::Ack(ack),
        Call::Nack(nack),
        Call::Extend(extend),
        Call::Settle(item()),
        Call::SettleBatch(v1::SettleBatchRequest { items: vec![item()] }),
        Call::RevokeCapability(revoke),
    ]
}

/// Every answer with something secret in it.
fn answers() -> Vec<Answer> {
    let record = || {
        let (envelope, last_error) = (Some(envelope()), canary());
        v1::Record { envelope, last_error, ..v1::Record::default() }
    };
    let minted = v1::MintCapabilityResponse {
        capability: CANARY.to_owned(),
        ..v1::MintCapabilityResponse::default()
    };
    let rotated =
        v1::RotateKeyResponse { operator_capability: canary(), ..v1::RotateKeyResponse::default() };
    vec![
        Answer::Received(v1::RecvResponse { messages: vec![envelope()] }),
        Answer::Records(v1::Records { messages: vec![record()] }),
        Answer::Record(record()),
        Answer::Minted(minted),
        Answer::Rotated(rotated),
    ]
}

#[test]
fn no_message_shows_what_is_secret() {
    for call in calls() {
        assert_hidden(&call);
        assert_hidden(&v1::Request { call: Some(call) });
    }
    for answer in answers() {
        assert_hidden(&answer);
        assert_hidden(&v1::Reply { answer: Some(answer) });
    }
    // What a nack said comes back as what went wrong.
    let nack = v1::NackRequest { reason: canary(), ..v1::NackRequest::default() };
    assert_hidden(&Call::Nack(nack));
    assert_hidden(&v1::SettleItem { reason: canary(), ..v1::SettleItem::default() });
    assert_hidden(&v1::RecvStreamResponse { envelope: Some(envelope()) });
}

#[test]
fn no_shape_shows_what_is_secret() {
    let handle = canary();
    let envelope = json::Envelope {
        payload_b64: Payload(payload()),
        receipt_handle: handle,
        ..super::answers::envelope()
    };
    let record = || json::Record {
        envelope: envelope.clone(),
        state: "dead".to_owned(),
        receivable_in_ms: 7,
        last_error: canary(),
        death: None,
    };
    assert_hidden(&record());
    assert!(format!("{:?}", record()).contains("state: \"dead\", receivable_in_ms: 7"));
    assert_hidden(&Reply::Record(Box::new(record())));
    assert_hidden(&Reply::Records(json::Records { messages: vec![record()] }));
    let item = json::SettleItem { reason: canary(), ..json::SettleItem::new(json::SettleOp::Nack) };
    assert_hidden(&Request::Settle(item));
}

/// Those that are new have to be in the test above, and hidden.
#[test]
fn messages_with_secrets_are_these() {
    let described = Described::new();
    let has_secret = |message: &&super::described::Message| {
        message.fields.iter().any(|field| SECRET.contains(&&*field.name))
    };
    let found: BTreeSet<&str> =
        described.messages.values().filter(has_secret).map(|it| it.name.as_str()).collect();
    let known = [
        "SendRequest",
        "BatchMessage",
        "Envelope",
        "Record",
        "AckRequest",
        "NackRequest",
        "ExtendRequest",
        "SettleItem",
        "MintCapabilityResponse",
        "RevokeCapabilityRequest",
        "RotateKeyResponse",
    ];
    assert_eq!(found, BTreeSet::from(known));
}

#[test]
fn what_is_no_secret_is_still_shown() {
    let item = v1::SettleItem {
        op: v1::SettleOp::Nack.into(),
        msg_id: Some("01".to_owned()),
        ..v1::SettleItem::default()
    };
    assert_eq!(format!("{item:?}"), "SettleItem { op: Nack, msg_id: Some(\"01\"), .. }");
}
