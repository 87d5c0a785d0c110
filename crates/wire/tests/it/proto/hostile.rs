//! What no honest client sends.

use bytes::{Bytes, BytesMut};
use mailbox_wire::bounds::{ATTRIBUTES, TEXTS};
use mailbox_wire::call::Request;
use mailbox_wire::proto::v1::request::Call;
use mailbox_wire::proto::{
    Asked, Garbled, MAX_FIELDS, Unreadable, read_reply, read_request, read_streamed, v1,
    write_reply, write_request,
};
use mailbox_wire::{call, json};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::answers::{answers, envelope};
use super::described::{Described, Field};
use super::questions::questions;

#[test]
fn a_hash_that_is_not_32_bytes_long_is_refused() {
    for len in [0, 31, 33, 64] {
        let hash = Bytes::from(vec![7; len]);
        let one = v1::Envelope { payload_hash: hash.clone(), ..envelope().into() };
        assert_eq!(json::Envelope::try_from(one), Err(Garbled("payload_hash")));
        let other = v1::Envelope { hash_chain: hash, ..envelope().into() };
        assert_eq!(json::Envelope::try_from(other), Err(Garbled("hash_chain")));
    }
}

#[test]
fn what_should_be_there_and_is_not_is_named() {
    let asked = |call| Asked::try_from(v1::Request { call });
    assert_eq!(asked(None), Err(Garbled("call")));
    for op in [0, 5, -1] {
        let item = v1::SettleItem { op, ..v1::SettleItem::default() };
        assert_eq!(asked(Some(Call::Settle(item.clone()))), Err(Garbled("op")));
        let batch = v1::SettleBatchRequest { items: vec![item] };
        assert_eq!(asked(Some(Call::SettleBatch(batch))), Err(Garbled("op")));
    }
    let configure = |policy| {
        let topic = "jobs".to_owned();
        call::ConfigureRequest::try_from(v1::ConfigureTopicRequest { topic, policy })
    };
    assert_eq!(configure(None), Err(Garbled("policy")));
    let too_much = Some(v1::Bound { value: Some(u64::from(u32::MAX) + 1) });
    let policy = v1::PolicyChange { max_attempts: too_much, ..v1::PolicyChange::default() };
    assert_eq!(configure(Some(policy)), Err(Garbled("max_attempts")));
    let retention =
        v1::RetentionChange { in_flight_factor: too_much, ..v1::RetentionChange::default() };
    let policy = v1::PolicyChange { retention: Some(retention), ..v1::PolicyChange::default() };
    assert_eq!(configure(Some(policy)), Err(Garbled("in_flight_factor")));
}

#[test]
fn what_should_be_there_in_an_answer_and_is_not_is_named() {
    let no_answer = v1::Reply { answer: None };
    assert_eq!(call::Reply::try_from(no_answer), Err(Garbled("answer")));
    let results = vec![v1::BatchResult { result: None }];
    let batch = v1::SendBatchResponse { results };
    assert_eq!(json::SentBatch::try_from(batch), Err(Garbled("result")));
    let batch = v1::SettleBatchResponse { results: vec![v1::SettleResult { result: None }] };
    assert_eq!(json::SettledBatch::try_from(batch), Err(Garbled("result")));
    assert_eq!(json::Record::try_from(v1::Record::default()), Err(Garbled("envelope")));
    let topic = |stats, policy| {
        json::Topic::try_from(v1::Topic { topic: "jobs".to_owned(), stats, policy })
    };
    let totals = Some(v1::Totals::default());
    let stats = Some(v1::Stats { totals, ..v1::Stats::default() });
    assert_eq!(topic(None, None), Err(Garbled("stats")));
    assert_eq!(topic(Some(v1::Stats::default()), None), Err(Garbled("totals")));
    assert_eq!(topic(stats.clone(), None), Err(Garbled("policy")));
    assert_eq!(topic(stats, Some(v1::Policy::default())), Err(Garbled("retention")));
    assert_eq!(Garbled("op").to_string(), "`op` is missing or out of range: see mailbox.proto");
}

/// A field that no message has: text, and a number.
fn unknown() -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::string::encode(1000, &"news".to_owned(), &mut bytes);
    prost::encoding::uint64::encode(1001, &7, &mut bytes);
    bytes
}

#[test]
fn fields_that_are_not_known_are_skipped() {
    let send = Request::Send(super::questions::send());
    let Some(Call::Send(message)) = v1::Request::from(send.clone()).call else { panic!("a send") };
    let message = [message.encode_to_vec(), unknown()].concat();
    let mut frame = unknown();
    encode_key(1, WireType::LengthDelimited, &mut frame);
    encode_varint(message.len() as u64, &mut frame);
    frame.extend(message);
    frame.extend(unknown());
    assert_eq!(read_request(frame.into()), Ok(Asked::Call(send)));
}

#[test]
fn a_list_that_would_take_too_much_memory_is_refused_before_it_is_read() {
    let described = Described::new();
    let mut names = Vec::new();
    for (message, read) in [
        (".mailbox.v1.Request", (|it| read_request(it).map(drop)) as Read),
        (".mailbox.v1.Reply", |it| read_reply(it).map(drop)),
    ] {
        for path in described.lists(message) {
            let name = path.iter().map(|field| &*field.name).collect::<Vec<_>>().join(".");
            let most = most(path.last().unwrap());
            // What is in it may be garbled, which is found out after it was read.
            assert_ne!(read(list(&path, most)), Err(Unreadable::TooManyFields), "{name}");
            assert_eq!(read(list(&path, most + 1)), Err(Unreadable::TooManyFields), "{name}");
            // The same message again is added to the first, so it counts with it.
            let again = list(&path, most / 2 + 1).repeat(2);
            let is_one = !path[..path.len() - 1].iter().any(|field| field.is_list());
            if is_one && most != ATTRIBUTES {
                assert_eq!(read(again.into()), Err(Unreadable::TooManyFields), "{name}");
            }
            names.push(name);
        }
    }
    for nested in [
        "send.attrs",
        "send_batch.messages",
        "send_batch.messages.attrs",
        "look_up.msg_ids",
        "reprocess.msg_ids.msg_ids",
        "delete_dead.msg_ids.msg_ids",
        "mint_capability.caveats",
        "records.messages.envelope.attrs",
    ] {
        assert!(names.iter().any(|name| name == nested), "{nested}: {names:?}");
    }
}

type Read = fn(Bytes) -> Result<(), Unreadable>;

/// How long a list may be.
fn most(field: &Field) -> usize {
    match (&*field.type_name, field.type_name.ends_with("AttrsEntry")) {
        ("", _) => TEXTS,
        (_, true) => ATTRIBUTES,
        (_, false) => MAX_FIELDS,
    }
}

/// A message with a list of so many elements of two bytes each.
fn list(path: &[&Field], count: usize) -> Bytes {
    let (list, way) = path.split_last().unwrap();
    let mut message = Vec::new();
    encode_key(list.number, WireType::LengthDelimited, &mut message);
    message.push(0);
    message = message.repeat(count);
    for field in way.iter().rev() {
        message = field_of(field.number, &message);
    }
    message.into()
}

fn field_of(number: u32, inside: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    encode_key(number, WireType::LengthDelimited, &mut message);
    encode_varint(inside.len() as u64, &mut message);
    message.extend(inside);
    message
}

#[test]
fn attributes_of_a_batch_are_counted_together() {
    let batch = |attributes: usize| {
        let with = |count| {
            let attrs = (0..count).map(|key: usize| (key.to_string(), String::new())).collect();
            v1::BatchMessage { attrs, ..v1::BatchMessage::default() }
        };
        let full = attributes / ATTRIBUTES;
        let mut messages = vec![with(ATTRIBUTES); full];
        messages.push(with(attributes % ATTRIBUTES));
        let batch = v1::SendBatchRequest { topic: None, messages };
        let frame = v1::Request { call: Some(Call::SendBatch(batch)) }.encode_to_vec();
        read_request(frame.into())
    };
    let Ok(Asked::Call(Request::SendBatch(read))) = batch(TEXTS) else { panic!("a batch") };
    assert_eq!(read.messages.iter().map(|it| it.attrs.len()).sum::<usize>(), TEXTS);
    assert_eq!(batch(TEXTS + 1), Err(Unreadable::TooManyFields));
}

#[test]
fn a_part_that_is_longer_than_what_it_is_in_is_refused_before_it_is_read() {
    // `reprocess` with two bytes, in which `msg_ids` begins that has all the rest.
    let ids = list(&[Described::new().message("MessageIds").fields.first().unwrap()], TEXTS + 1);
    let inside = field_of(3, &ids);
    let mut frame = Vec::new();
    encode_key(25, WireType::LengthDelimited, &mut frame);
    encode_varint(2, &mut frame);
    frame.extend(inside);
    let read = read_request(frame.into());
    assert!(matches!(read, Err(Unreadable::NoProtobuf(_))), "{read:?}");
}

#[test]
fn bytes_that_were_cut_off_are_never_read_past_their_end() {
    for request in questions() {
        let frame = Bytes::from(write_request(request.into()));
        for len in 0..frame.len() {
            drop(read_request(frame.slice(..len)));
        }
    }
    for reply in answers() {
        let mut frame = Vec::new();
        write_reply(reply, &mut frame);
        let frame = Bytes::from(frame);
        for len in 0..frame.len() {
            drop(read_reply(frame.slice(..len)));
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in vec(any::<u8>(), 0..200)) {
        drop(read_request(bytes.clone().into()));
        drop(read_reply(bytes.clone().into()));
        drop(read_streamed(&mut BytesMut::from(&bytes[..]), 100));
    }
}
