//! The service and what can be asked are the same list.

use std::collections::BTreeSet;

use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::SettleOp;
use mailbox_wire::proto::{Asked, v1};
use prost::Message as _;

use super::answers::{answers, envelope};
use super::described::{Call, Described};
use super::questions::questions;

/// Which calls of the service ask this. A new kind of question does not compile until it is here.
fn calls_of(request: &Request) -> &'static [&'static str] {
    match request {
        Request::Send(_) => &["Send"],
        Request::SendBatch(_) => &["SendBatch"],
        Request::Receive(_) => &["Recv", "RecvWhileOpen"],
        Request::ReceiveStream(_) => &["RecvStream"],
        Request::Settle(it) => match it.op {
            SettleOp::Ack => &["Ack"],
            SettleOp::Nack => &["Nack"],
            SettleOp::Extend => &["Extend"],
            SettleOp::Return => &["SettleBatch"],
        },
        Request::SettleBatch(_) => &["SettleBatch"],
        Request::Topics(_) => &["ListTopics"],
        Request::Topic(_) => &["GetTopic"],
        Request::Configure(_) => &["ConfigureTopic"],
        Request::Remove(_) => &["RemoveTopic"],
        Request::Purge(_) => &["PurgeTopic"],
        Request::Peek(_) => &["Peek"],
        Request::LookUp(..) => &["LookUp"],
        Request::Message(_) => &["GetMessage"],
        Request::Dead(_) => &["ListDead"],
        Request::Reprocess(_) => &["Reprocess"],
        Request::DeleteDead(_) => &["DeleteDead"],
        Request::Abilities => &["GetAbilities"],
        Request::Mint(_) => &["MintCapability"],
        Request::Revoke(_) => &["RevokeCapability"],
        Request::Rotate(_) => &["RotateKey"],
    }
}

/// Under which name it is answered. A new kind of answer does not compile until it is here.
fn name_of(reply: &Reply) -> &'static str {
    match reply {
        Reply::Sent(_) => "sent",
        Reply::SentBatch(_) => "sent_batch",
        Reply::Received(_) => "received",
        Reply::Done(_) => "done",
        Reply::SettledBatch(_) => "settled_batch",
        Reply::Topics(_) => "topics",
        Reply::Topic(_) => "topic",
        Reply::Removed(_) => "removed",
        Reply::Purged(_) => "purged",
        Reply::Records(_) => "records",
        Reply::Record(_) => "record",
        Reply::Reprocessed(_) => "reprocessed",
        Reply::Deleted(_) => "deleted",
        Reply::Abilities(_) => "abilities",
        Reply::Minted(_) => "minted",
        Reply::Revoked(_) => "revoked",
        Reply::Rotated(_) => "rotated",
    }
}

#[test]
fn the_service_has_a_call_for_whatever_can_be_asked_and_no_other() {
    let described = Described::new();
    let [service] = &described.services[..] else { panic!("one service") };
    assert_eq!(service.name, "Mailbox");
    let has: BTreeSet<&str> = service.calls.iter().map(|call| call.name.as_str()).collect();
    let questions = questions();
    let asked: BTreeSet<&str> = questions.iter().flat_map(calls_of).copied().collect();
    assert_eq!(has, asked);
    let streams = |is_streaming: fn(&Call) -> bool| -> Vec<&str> {
        service.calls.iter().filter(|it| is_streaming(it)).map(|it| it.name.as_str()).collect()
    };
    assert_eq!(streams(|call| call.is_client_streaming), ["RecvWhileOpen"]);
    assert_eq!(streams(|call| call.is_server_streaming), ["RecvStream"]);
}

/// `SendBatch` is `send_batch`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[test]
fn frames_ask_and_answer_with_the_same_messages_as_the_service() {
    let described = Described::new();
    let request = described.message("Request");
    let reply = described.message("Reply");
    let mut rest: BTreeSet<&str> = request.fields.iter().map(|it| it.name.as_str()).collect();
    for call in &described.services[0].calls {
        // It ends when the client closes its side; in a frame that is `cancel`.
        if call.name != "RecvWhileOpen" {
            let name = snake_case(&call.name);
            let field = request.fields.iter().find(|field| field.name == name);
            assert_eq!(field.map(|field| &field.type_name), Some(&call.input), "{name}");
            rest.remove(&*name);
        }
        // Frames have a way of their own for streams.
        if call.name != "RecvStream" {
            assert!(reply.fields.iter().any(|it| it.type_name == call.output), "{}", call.name);
        }
    }
    assert_eq!(rest, BTreeSet::from(["cancel", "settle"]));
    let answers: BTreeSet<&str> = answers().iter().map(name_of).collect();
    assert_eq!(answers, reply.fields.iter().map(|field| field.name.as_str()).collect());
}

/// What both directions of a conversion forget, no round trip would miss.
#[test]
fn no_field_of_any_message_is_left_out() {
    let described = Described::new();
    let mut seen = BTreeSet::new();
    let mut note = |message: &str, bytes: &[u8]| {
        described.note(&format!(".mailbox.v1.{message}"), bytes, &mut seen);
    };
    for request in questions() {
        note("Request", &v1::Request::from(request).encode_to_vec());
    }
    note("Request", &v1::Request::from(Asked::Cancel(1)).encode_to_vec());
    for reply in answers() {
        note("Reply", &v1::Reply::from(reply).encode_to_vec());
    }
    let stream = v1::RecvStreamResponse::from(Some(envelope()));
    note("RecvStreamResponse", &stream.encode_to_vec());
    let all = described.messages.iter().flat_map(|(name, message)| {
        message.fields.iter().map(move |field| format!("{name}.{}", field.name))
    });
    let missed: BTreeSet<String> = all.filter(|field| !seen.contains(field)).collect();
    // One delivery can be settled in two ways, of which one is written here; `round_trip.rs` has
    // the other.
    let other_way =
        ["AckRequest.", "NackRequest.", "ExtendRequest.", "Request.ack", "Request.nack"];
    let is_other_way = |field: &String| {
        let field = field.trim_start_matches(".mailbox.v1.");
        field == "Request.extend" || other_way.iter().any(|way| field.starts_with(way))
    };
    let missed: Vec<&String> = missed.iter().filter(|field| !is_other_way(field)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
