//! Every call as a document, and documents that are none.

use super::*;
use crate::call::{
    ConfigureRequest, DeadListRequest, MessageRequest, PeekRequest, TopicRequest, TopicsRequest,
};
use crate::json::{
    BatchMessage, DeadRequest, LookUpRequest, MintRequest, PolicyChange, ReceiveRequest,
    RetentionChange, RevokeRequest, RotateRequest, SendBatchRequest, SendRequest,
    SettleBatchRequest, SettleItem, SettleOp,
};
use crate::payload::Payload;

fn payload(bytes: &'static [u8]) -> Payload {
    Payload(bytes.into())
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn call(document: &str) -> Request {
    match read(document.as_bytes()) {
        Ok(Asked::Call(request)) => request,
        other => panic!("{document}: {other:?}"),
    }
}

fn refused(document: &str) -> BadOp {
    read(document.as_bytes()).map(|op| panic!("{document}: {op:?}")).unwrap_err()
}

fn topic() -> TopicRequest {
    TopicRequest { topic: "jobs".to_owned() }
}

fn settled(op: SettleOp) -> SettleItem {
    SettleItem {
        op,
        msg_id: text("01"),
        receipt_handle: None,
        reason: None,
        delay_ms: None,
        dead: None,
        dead_reason: None,
        visibility_ms: None,
    }
}

#[test]
fn a_message_is_sent_as_text_or_as_base64() {
    let plain = SendRequest {
        topic: "jobs".to_owned(),
        payload_b64: payload(b"hi \"\xc3\xa9\""),
        ..SendRequest::default()
    };
    for document in [
        r#"{"op":"send","topic":"jobs","text":"hi \"é\""}"#,
        r#"{"text":"hi \"\u00e9\"","op":"send","topic":"jobs"}"#,
        r#"{"topic":"jobs","op":"send","payload_b64":"aGkgIsOpIg=="}"#,
        r#"{"topic":"jobs","op":"send","payload_b64":"aGkgIsOpIg==","text":null}"#,
    ] {
        assert_eq!(call(document), Request::Send(plain.clone()), "{document}");
    }
    let whole = SendRequest {
        topic: "jobs".to_owned(),
        payload_b64: payload(b""),
        idem_key: text("k"),
        attrs: [("a".to_owned(), "b".to_owned())].into(),
        delay_ms: Some(5),
        reply_to: text("r"),
        partition: text("p"),
        group: text("g"),
        corr_id: text("c"),
        sig: text("s"),
        traceparent: text("t"),
    };
    for key in ["idem_key", "idempotency_key"] {
        let document = format!(
            r#"{{"op":"send","topic":"jobs","text":"","{key}":"k","attrs":{{"a":"b"}},
                "delay_ms":5,"reply_to":"r","partition":"p","group":"g","corr_id":"c","sig":"s",
                "traceparent":"t"}}"#
        );
        assert_eq!(call(&document), Request::Send(whole.clone()));
    }
}

#[test]
fn a_message_has_one_payload_one_key_and_a_mailbox() {
    for document in [
        r#"{"op":"send","topic":"jobs"}"#,
        r#"{"op":"send","topic":"jobs","text":"a","payload_b64":"QQ=="}"#,
        r#"{"op":"send_batch","messages":[{"text":"a"},{}]}"#,
        r#"{"op":"send_batch","messages":[{"text":"a","payload_b64":"QQ=="}]}"#,
    ] {
        assert_eq!(refused(document).which(), Some("text"), "{document}");
    }
    assert_eq!(refused(r#"{"op":"send","text":"a"}"#).which(), Some("topic"));
    for document in [
        r#"{"op":"send","topic":"jobs","text":"a","text":"b"}"#,
        r#"{"op":"send","topic":"jobs","text":"a","idem_key":"a","idempotency_key":"a"}"#,
        r#"{"op":"send","topic":"jobs","text":7}"#,
        r#"{"op":"send","topic":"jobs","payload_b64":"QQ"}"#,
        r#"{"op":"send","topic":"jobs","text":"a","attrs":{"a":"1","a":"2"}}"#,
    ] {
        assert_eq!(refused(document).which(), None, "{document}");
    }
}

#[test]
fn batches_are_lists_of_messages_and_of_deliveries() {
    let messages = vec![
        BatchMessage { payload_b64: payload(b"a"), ..BatchMessage::default() },
        BatchMessage {
            topic: text("other"),
            payload_b64: payload(b"A"),
            idem_key: text("k"),
            ..BatchMessage::default()
        },
    ];
    let document = r#"{"op":"send_batch","topic":"jobs","messages":[{"text":"a"},
        {"topic":"other","payload_b64":"QQ==","idempotency_key":"k"}]}"#;
    let expected = SendBatchRequest { topic: text("jobs"), messages };
    assert_eq!(call(document), Request::SendBatch(expected));

    let items = vec![
        settled(SettleOp::Return),
        SettleItem { dead_reason: text("decode"), ..settled(SettleOp::Nack) },
    ];
    let document = r#"{"op":"settle_batch","items":[{"op":"return","msg_id":"01"},
        {"op":"nack","msg_id":"01","dead_reason":"decode"}]}"#;
    assert_eq!(call(document), Request::SettleBatch(SettleBatchRequest { items }));

    let many = |count| format!(r#"{{"op":"send_batch","messages":[{}]}}"#, many_messages(count));
    assert!(read(many(1024).as_bytes()).is_ok());
    assert!(refused(&many(1025)).to_string().contains("at most 1024 objects"));
}

fn many_messages(count: usize) -> String {
    vec![r#"{"text":""}"#; count].join(",")
}

#[test]
fn a_receive_says_how_many_in_two_ways() {
    let request = |max_messages| ReceiveRequest {
        topic: "jobs".to_owned(),
        max_messages,
        ..ReceiveRequest::default()
    };
    for (fields, count) in [
        // How many that are is for whoever knows how many there may be.
        ("", None),
        (r#","max":1"#, Some(1)),
        (r#","max":100"#, Some(100)),
        (r#","max_messages":256"#, Some(256)),
        (r#","max_messages":0"#, Some(0)),
    ] {
        let document = format!(r#"{{"op":"recv","topic":"jobs"{fields}}}"#);
        assert_eq!(call(&document), Request::Receive(request(count)), "{document}");
    }
    for fields in [r#""max":101"#, r#""max":0"#, r#""max":1,"max_messages":1"#] {
        let bad = refused(&format!(r#"{{"op":"recv","topic":"jobs",{fields}}}"#));
        assert_eq!(bad.which(), Some("max"));
        assert!(bad.to_string().contains("`max`"), "{bad}");
    }
    let document = r#"{"op":"recv","topic":"jobs","visibility_ms":1,"max_bytes":2,"wait_ms":3}"#;
    let all = ReceiveRequest {
        visibility_ms: Some(1),
        max_bytes: Some(2),
        wait_ms: Some(3),
        ..request(None)
    };
    assert_eq!(call(document), Request::Receive(all));
    let document = r#"{"op":"recv_stream","topic":"jobs"}"#;
    assert_eq!(call(document), Request::ReceiveStream(request(None)));
    refused(r#"{"op":"recv_stream","topic":"jobs","max":1}"#);
}

#[test]
fn a_delivery_is_settled_with_what_belongs_to_that() {
    let handle = text("h");
    for (document, item) in [
        (r#"{"op":"ack","msg_id":"01"}"#, settled(SettleOp::Ack)),
        (
            r#"{"op":"ack","receipt_handle":"h"}"#,
            SettleItem { receipt_handle: handle.clone(), ..SettleItem::new(SettleOp::Ack) },
        ),
        (
            r#"{"op":"ack","msg_id":"01","receipt_handle":"h"}"#,
            SettleItem { receipt_handle: handle.clone(), ..settled(SettleOp::Ack) },
        ),
        (
            r#"{"op":"nack","msg_id":"01","receipt_handle":"h","reason":"r","delay_ms":1,
                "dead":true}"#,
            SettleItem {
                receipt_handle: handle.clone(),
                reason: text("r"),
                delay_ms: Some(1),
                dead: Some(true),
                ..settled(SettleOp::Nack)
            },
        ),
        (
            r#"{"op":"extend","msg_id":"01","receipt_handle":"h","visibility_ms":9}"#,
            SettleItem {
                receipt_handle: handle.clone(),
                visibility_ms: Some(9),
                ..settled(SettleOp::Extend)
            },
        ),
    ] {
        assert_eq!(call(document), Request::Settle(item));
    }
    for document in [
        r#"{"op":"ack","msg_id":"01","delay_ms":1}"#,
        r#"{"op":"nack","msg_id":"01","visibility_ms":1}"#,
        r#"{"op":"extend","msg_id":"01"}"#,
    ] {
        refused(document);
    }
}

#[test]
fn mailboxes_are_managed() {
    let topics = TopicsRequest { after: text("a"), limit: Some(3), stats: Some(true) };
    let retention = RetentionChange { dead_count: Some(None), ..RetentionChange::default() };
    let policy = PolicyChange {
        max_size: Some(None),
        max_in_flight: Some(5),
        retention: Some(retention),
        ..PolicyChange::default()
    };
    for (document, request) in [
        (r#"{"op":"topics"}"#, Request::Topics(TopicsRequest::default())),
        (r#"{"op":"topics","after":"a","limit":3,"stats":true}"#, Request::Topics(topics)),
        (r#"{"op":"topic","topic":"jobs"}"#, Request::Topic(topic())),
        (r#"{"op":"remove","topic":"jobs"}"#, Request::Remove(topic())),
        (r#"{"op":"purge","topic":"jobs"}"#, Request::Purge(topic())),
        (
            r#"{"op":"configure","topic":"jobs","policy":{"max_size":null,"max_in_flight":5,
                "retention":{"dead_count":null}}}"#,
            Request::Configure(ConfigureRequest { topic: "jobs".to_owned(), policy }),
        ),
        (r#"{"op":"abilities"}"#, Request::Abilities),
    ] {
        assert_eq!(call(document), request);
    }
    for document in [
        r#"{"op":"abilities","topic":"jobs"}"#,
        r#"{"op":"configure","topic":"jobs"}"#,
        r#"{"op":"configure","topic":"jobs","policy":[]}"#,
        r#"{"op":"configure","topic":"jobs","policy":{"retention":[]}}"#,
        r#"{"op":"purge"}"#,
    ] {
        refused(document);
    }
}

#[test]
fn messages_and_dead_letters_are_looked_at() {
    let (jobs, ids) = ("jobs".to_owned(), vec!["01".to_owned()]);
    let dead = DeadRequest { topic: jobs.clone(), limit: Some(5), ..DeadRequest::default() };
    let some = DeadRequest { limit: None, msg_ids: Some(ids.clone()), ..dead.clone() };
    for (document, request) in [
        (
            r#"{"op":"peek","topic":"jobs","limit":5}"#,
            Request::Peek(PeekRequest { topic: jobs.clone(), limit: Some(5) }),
        ),
        (
            r#"{"op":"lookup","topic":"jobs","msg_ids":["01"]}"#,
            Request::LookUp(jobs.clone(), LookUpRequest { msg_ids: ids }),
        ),
        (
            r#"{"op":"message","msg_id":"01"}"#,
            Request::Message(MessageRequest { msg_id: "01".to_owned(), topic: None }),
        ),
        (
            r#"{"op":"message","msg_id":"01","topic":"jobs"}"#,
            Request::Message(MessageRequest { msg_id: "01".to_owned(), topic: text("jobs") }),
        ),
        (
            r#"{"op":"dead","topic":"jobs","after":7,"limit":1}"#,
            Request::Dead(DeadListRequest { topic: jobs, after: Some(7), limit: Some(1) }),
        ),
        (r#"{"op":"reprocess","topic":"jobs","limit":5}"#, Request::Reprocess(dead.clone())),
        (r#"{"op":"delete_dead","topic":"jobs","msg_ids":["01"]}"#, Request::DeleteDead(some)),
    ] {
        assert_eq!(call(document), request);
    }
}

#[test]
fn capabilities_are_made_and_taken_back() {
    let mint = MintRequest {
        ops: vec!["send".to_owned()],
        topics: vec!["jobs".to_owned()],
        ttl_s: Some(60),
        caveats: vec!["rate = 1/s".to_owned()],
    };
    for (document, request) in [
        (
            r#"{"op":"mint","ops":["send"],"topics":["jobs"],"ttl_s":60,"caveats":["rate = 1/s"]}"#,
            Request::Mint(mint),
        ),
        (
            r#"{"op":"revoke","token_id":"t"}"#,
            Request::Revoke(RevokeRequest { token_id: text("t"), capability: None }),
        ),
        (r#"{"op":"rotate","grace_s":5}"#, Request::Rotate(RotateRequest { grace_s: Some(5) })),
    ] {
        assert_eq!(call(document), request);
    }
}

#[test]
fn a_receive_is_cancelled_by_its_corr_id() {
    let document = format!(r#"{{"op":"cancel","corr_id":{}}}"#, u64::MAX);
    assert_eq!(read(document.as_bytes()), Ok(Asked::Cancel(u64::MAX)));
    for document in [r#"{"op":"cancel"}"#, r#"{"op":"cancel","corr_id":-1}"#] {
        refused(document);
    }
}

#[test]
fn every_name_is_an_op_and_refuses_what_it_does_not_know() {
    for name in NAMES {
        let bad = refused(&format!(r#"{{"op":"{name}","surprise":1}}"#));
        assert_ne!(bad.which(), Some("op"), "{name}");
        assert!(bad.to_string().contains("unknown field `surprise`"), "{name}: {bad}");
        let bad = refused(&format!(r#"{{"op":"{name}","op":"{name}"}}"#));
        assert!(bad.to_string().contains("duplicate field `op`"), "{name}: {bad}");
        refused(&format!(r#"["{name}"]"#));
        refused(&format!(r#"{{"op":"{name}""#));
        refused(&format!(r#"{{"op":"{name}"}} x"#));
    }
}

#[test]
fn what_is_no_op_is_refused_without_repeating_it() {
    for document in [
        r#"{"op":"my secret"}"#,
        r#"{"op":7,"text":"my secret"}"#,
        r#"{"topic":"my secret"}"#,
        r#"{"my secret":1}"#,
        r#"{"op":"send","topic":"jobs","text":["my secret"]}"#,
        r#"{"op":"send","topic":"jobs","delay_ms":"my secret"}"#,
        r#"{"op":"send","topic":"jobs","payload_b64":"my secret"}"#,
        r#"{"op":"settle_batch","items":[{"op":"my secret"}]}"#,
        r#"my secret"#,
        r#""my secret""#,
        "",
        "{}",
    ] {
        let bad = refused(document);
        assert!(!bad.to_string().contains("secret"), "{bad}");
        assert!(!format!("{bad:?}").contains("secret"), "{bad:?}");
    }
    for document in [r#"{"op":"x"}"#, "{}", r#"{"topic":"jobs"}"#, r#"{"op":null}"#] {
        assert_eq!(refused(document).which(), Some("op"), "{document}");
    }
}
