//! OAP/1: requests side by side on one connection, answers in parts, streams, and how it ends.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mailbox_wire::call::{ConfigureRequest, Reply, Request, TopicRequest};
use mailbox_wire::json::{
    BatchMessage, Envelope, PolicyChange, ReceiveRequest, SendBatchRequest, SendRequest,
    SettleItem, SettleOp,
};
use mailbox_wire::oap::{APP_JSON, APP_PROTO, Flags, Frame, Header};
use mailbox_wire::payload::Payload;
use mailbox_wire::proto::{Asked, Streamed, read_streamed};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

use crate::rig::{OapClient, Rig, proto_reply, until};

fn send(topic: &str, payload: impl Into<Bytes>) -> Request {
    let payload_b64 = Payload(payload.into());
    Request::Send(SendRequest { topic: topic.to_owned(), payload_b64, ..SendRequest::default() })
}

fn receive(topic: &str, wait_ms: u64) -> Request {
    Request::Receive(question(topic, Some(wait_ms)))
}

fn question(topic: &str, wait_ms: Option<u64>) -> ReceiveRequest {
    let max_messages = Some(10);
    ReceiveRequest { topic: topic.to_owned(), max_messages, wait_ms, ..ReceiveRequest::default() }
}

fn ack(envelope: &Envelope) -> Request {
    let receipt_handle = envelope.receipt_handle.clone();
    Request::Settle(SettleItem { receipt_handle, ..SettleItem::new(SettleOp::Ack) })
}

fn received(reply: Reply) -> Vec<Envelope> {
    match reply {
        Reply::Received(received) => received.messages,
        other => panic!("{other:?}"),
    }
}

async fn waiters(client: &mut OapClient, topic: &str) -> u64 {
    stats(client, topic).await.waiters
}

async fn stats(client: &mut OapClient, topic: &str) -> mailbox_wire::json::Stats {
    let topic = TopicRequest { topic: topic.to_owned() };
    match client.ask(Request::Topic(topic)).await.unwrap() {
        Reply::Topic(topic) => topic.stats,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_message_is_sent_received_and_acknowledged() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    let Reply::Sent(sent) = client.ask(send("jobs", "hello")).await.unwrap() else { panic!() };
    let messages = received(client.ask(receive("jobs", 0)).await.unwrap());
    assert_eq!((messages.len(), &messages[0].msg_id), (1, &sent.msg_id));
    assert!(messages[0].is_whole() && messages[0].payload_b64.0 == "hello");
    assert!(matches!(client.ask(ack(&messages[0])).await, Ok(Reply::Done(_))));
    let (code, problem) = client.ask(ack(&messages[0])).await.unwrap_err();
    assert_eq!((code, problem.code.as_str()), (404, "E_RECEIPT"));
}

#[tokio::test]
async fn requests_do_not_wait_for_each_other() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    // Waits, and is answered last although it was asked first.
    let waiting = client.request(receive("jobs", 20_000));
    client.say(&waiting).await;
    let frames: Vec<Frame> = (0..20).map(|n| client.request(send("other", vec![n]))).collect();
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
    client.raw(&bytes).await;
    for _ in &frames {
        let answer = client.frame().await;
        assert!(frames.iter().any(|frame| frame.corr_id == answer.corr_id));
        assert!(matches!(proto_reply(&answer), Ok(Reply::Sent(_))));
    }
    let last = client.request(send("jobs", "now"));
    client.say(&last).await;
    let mut answers = [client.frame().await, client.frame().await];
    answers.sort_by_key(|it| it.corr_id);
    assert_eq!(answers[0].corr_id, waiting.corr_id);
    assert_eq!(received(proto_reply(&answers[0]).unwrap()).len(), 1);
}

#[tokio::test]
async fn more_than_can_be_in_flight_are_refused_and_the_rest_goes_on() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    let mut waiting = Vec::new();
    for _ in 0..64 {
        let frame = client.request(receive("jobs", 60_000));
        client.say(&frame).await;
        waiting.push(frame.corr_id);
    }
    let (code, problem) = client.ask(send("jobs", "too many")).await.unwrap_err();
    assert_eq!((code, problem.code.as_str()), (429, "E_SATURATED"));
    // There is always a way out.
    let cancel = client.asked(Asked::Cancel(waiting[0]));
    client.say(&cancel).await;
    let (given_up, done) = (client.frame().await, client.frame().await);
    assert_eq!((given_up.corr_id, done.corr_id), (waiting[0], cancel.corr_id));
    assert!(received(proto_reply(&given_up).unwrap()).is_empty());
    assert!(matches!(proto_reply(&done), Ok(Reply::Done(_))));
    // Another connection is not concerned.
    let mut other = served.oap_client().await;
    until("63 wait", async || waiters(&mut other, "jobs").await == 63).await;
    assert!(client.ask(send("elsewhere", "now there is")).await.is_ok());
}

#[tokio::test]
async fn a_connection_needs_a_capability_and_keeps_it() {
    let served = Rig::new().start().await;
    let mut client = OapClient::open(served.oap).await;
    let (code, problem) = client.ask(send("jobs", "x")).await.unwrap_err();
    assert_eq!((code, problem.reason.as_deref()), (401, Some("missing")));
    client.start("rubbish").await;
    let (code, _) = client.ask(send("jobs", "x")).await.unwrap_err();
    assert_eq!(code, 401);
    let narrow = served.mint(&["op = send", "topic = jobs"]);
    let mut client = served.oap_client_with(&narrow).await;
    assert!(client.ask(send("jobs", "x")).await.is_ok());
    let (code, problem) = client.ask(send("other", "x")).await.unwrap_err();
    assert_eq!((code, problem.reason.as_deref()), (403, Some("topic")));
    let (code, problem) = client.ask(receive("jobs", 0)).await.unwrap_err();
    assert_eq!((code, problem.reason.as_deref()), (403, Some("op")));
}

#[tokio::test]
async fn what_does_not_fit_into_a_frame_comes_in_parts_both_ways() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    let payload = Bytes::from(vec![7; 1 << 20]);
    let whole = client.request(send("jobs", payload.clone()));
    let mut rest = whole.payload.clone();
    while rest.len() > 300_000 {
        let header = Header::new(Flags::EVENT, APP_PROTO, whole.corr_id);
        client.say(&Frame::new(header, rest.split_to(300_000))).await;
    }
    // Others may come between.
    assert!(client.ask(send("other", "between")).await.is_ok());
    client.say(&Frame { payload: rest, ..whole.clone() }).await;
    assert!(matches!(proto_reply(&client.frame().await), Ok(Reply::Sent(_))));
    let messages = received(client.ask(receive("jobs", 0)).await.unwrap());
    assert_eq!(messages[0].payload_b64.0, payload);
}

#[tokio::test]
async fn a_request_in_parts_is_no_larger_than_a_body_may_be() {
    let served = Rig::new().with(|config| config.limits.body = 1 << 20).start().await;
    let mut client = served.oap_client().await;
    let part = Frame::new(Header::new(Flags::EVENT, APP_PROTO, 9), vec![0; 600_000].into());
    client.say(&part).await;
    client.say(&part).await;
    client.say(&part).await;
    // Others may come between, and come after it.
    assert!(client.ask(send("jobs", "between")).await.is_ok());
    client.say(&Frame { flags: Flags::REQ, ..part }).await;
    let answer = client.frame().await;
    assert_eq!((answer.code, answer.corr_id), (413, 9));
    assert!(client.ask(send("jobs", "after")).await.is_ok());
}

#[tokio::test]
async fn a_stream_has_no_more_in_flight_than_asked_for_and_gives_back_the_rest() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    for number in 0..5_u8 {
        client.ask(send("jobs", vec![number])).await.unwrap();
    }
    let mut streaming = served.oap_client().await;
    let asked = ReceiveRequest { max_messages: Some(2), ..question("jobs", None) };
    let frame = streaming.request(Request::ReceiveStream(asked));
    streaming.say(&frame).await;
    let begin = streaming.frame().await;
    assert!(begin.flags.contains(Flags::RESP | Flags::START) && begin.code == 200);
    let mut buffer = BytesMut::new();
    let mut messages = Vec::new();
    while messages.len() < 2 {
        let part = streaming.frame().await;
        buffer.extend_from_slice(&part.payload);
        while let Some(Streamed::Envelope(it)) = read_streamed(&mut buffer, 1 << 22).unwrap() {
            messages.push(it);
        }
    }
    assert_eq!(stats(&mut client, "jobs").await.invisible, 2, "that is all it can take");
    client.ask(ack(&messages[0])).await.unwrap();
    let part = streaming.frame().await;
    buffer.extend_from_slice(&part.payload);
    assert!(matches!(read_streamed(&mut buffer, 1 << 22), Ok(Some(Streamed::Envelope(_)))));
    // It can be ended, and the connection goes on.
    let cancel = streaming.asked(Asked::Cancel(frame.corr_id));
    streaming.say(&cancel).await;
    let end = streaming.frame().await;
    assert!(end.flags.contains(Flags::RESP | Flags::END) && end.code == 200);
    assert!(matches!(proto_reply(&streaming.frame().await), Ok(Reply::Done(_))));
    until("all are back", async || stats(&mut client, "jobs").await.ready == 4).await;
}

#[tokio::test]
async fn a_client_that_leaves_takes_nothing_with_it() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    let mut leaving = served.oap_client().await;
    let frame = leaving.request(receive("jobs", 60_000));
    leaving.say(&frame).await;
    until("1 wait", async || waiters(&mut client, "jobs").await == 1).await;
    drop(leaving);
    until("0 wait", async || waiters(&mut client, "jobs").await == 0).await;
    // One that only says that it asks nothing more is answered.
    let mut leaving = served.oap_client().await;
    let frame = leaving.request(receive("jobs", 60_000));
    leaving.say(&frame).await;
    leaving.stream.shutdown().await.unwrap();
    assert!(received(proto_reply(&leaving.frame().await).unwrap()).is_empty());
    assert!(leaving.next_frame().await.is_none());
    client.ask(send("jobs", "x")).await.unwrap();
    assert_eq!(received(client.ask(receive("jobs", 0)).await.unwrap())[0].attempt, 1);
}

#[tokio::test]
async fn the_last_request_is_answered_and_the_connection_ends() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    let frame = client.request(send("jobs", "last"));
    client.say(&Frame { flags: Flags::REQ | Flags::END, ..frame }).await;
    assert!(matches!(proto_reply(&client.frame().await), Ok(Reply::Sent(_))));
    assert!(client.next_frame().await.is_none());
}

#[tokio::test]
async fn a_service_that_stops_answers_what_it_was_asked() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    let frame = client.request(receive("jobs", 60_000));
    client.say(&frame).await;
    let mut other = served.oap_client().await;
    until("1 wait", async || waiters(&mut other, "jobs").await == 1).await;
    served.stop.cancel();
    assert!(received(proto_reply(&client.frame().await).unwrap()).is_empty());
    // What comes after that is not looked at, and its client knows.
    let last = client.frame().await;
    assert_eq!((last.corr_id, last.flags), (0, Flags::RESP));
    let (code, problem) = proto_reply(&last).unwrap_err();
    assert_eq!((code, problem.reason.as_deref()), (503, Some("stopping")));
    assert!(client.next_frame().await.is_none());
}

#[tokio::test]
async fn one_who_says_nothing_or_says_it_slowly_is_cut_off() {
    let quick = |config: &mut mailbox_server::Config| {
        config.timeouts.read = Duration::from_millis(200);
        config.timeouts.idle = Duration::from_millis(400);
        config.timeouts.heartbeat = Duration::from_millis(100);
    };
    let served = Rig::new().with(quick).start().await;
    let mut silent = OapClient::open(served.oap).await;
    let mut idle = served.oap_client().await;
    let mut slow = served.oap_client().await;
    let frame = slow.request(send("jobs", vec![0; 1000]));
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes).unwrap();
    slow.raw(&bytes[..100]).await;
    let mut waiting = served.oap_client().await;
    let frame = waiting.request(receive("jobs", 1500));
    waiting.say(&frame).await;
    assert!(silent.next_frame().await.is_none());
    // A request may have been on its way: whoever made it knows that nobody looks at it.
    let last = idle.frame().await;
    assert_eq!((last.corr_id, last.flags), (0, Flags::RESP));
    let (code, problem) = proto_reply(&last).unwrap_err();
    assert_eq!((code, problem.reason.as_deref()), (503, Some("idle")));
    assert!(idle.next_frame().await.is_none());
    assert!(slow.next_frame().await.is_none());
    // One that waits for an answer is not idle.
    assert_eq!(waiting.frame().await.code, 200);
}

/// Whoever had only connected kept its place for as long as one who had shown a capability.
#[tokio::test]
async fn one_who_connects_and_says_nothing_has_no_longer_than_for_a_frame() {
    let quick = |config: &mut mailbox_server::Config| {
        config.timeouts.read = Duration::from_millis(200);
        config.timeouts.idle = Duration::from_secs(3600);
    };
    let served = Rig::new().with(quick).start().await;
    let mut idle = served.oap_client().await;
    let mut silent = OapClient::open(served.oap).await;
    assert!(silent.next_frame().await.is_none());
    assert!(idle.ask(send("jobs", vec![0; 10])).await.is_ok());
}

/// Of what strangers say next to nothing is kept.
#[tokio::test]
async fn a_frame_that_is_not_small_is_kept_of_nobody_whom_nobody_knows() {
    let served = Rig::new().start().await;
    let mut stranger = OapClient::open(served.oap).await;
    let frame = stranger.request(send("jobs", vec![0; 30_000]));
    let mut bytes = BytesMut::new();
    frame.encode(&mut bytes).unwrap();
    // Of a small one all has to come first.
    stranger.raw(&bytes[..10_000]).await;
    assert_eq!(stranger.frame().await.code, 401);
    stranger.raw(&bytes[10_000..]).await;
    stranger.start(&served.operator).await;
    assert!(stranger.ask(send("jobs", vec![0; 30_000])).await.is_ok());
    // Nor of a capability that is too long to be one.
    let mut stranger = OapClient::open(served.oap).await;
    let frame = stranger.request(send("jobs", vec![0; 30_000]));
    let cap = vec![b'x'; 60_000].into();
    let mut bytes = BytesMut::new();
    Frame { flags: frame.flags | Flags::START, cap, ..frame }.encode(&mut bytes).unwrap();
    stranger.raw(&bytes[..10_000]).await;
    assert_eq!(stranger.frame().await.code, 401);
}

#[tokio::test]
async fn batches_tell_of_each_message() {
    let served = Rig::new().start().await;
    let mut client = served.oap_client().await;
    let message = |topic: &str| BatchMessage {
        topic: Some(topic.to_owned()),
        payload_b64: Payload(Bytes::from_static(b"x")),
        ..BatchMessage::default()
    };
    let messages = vec![message("jobs"), message("no name"), message("other")];
    let batch = SendBatchRequest { topic: None, messages };
    let Ok(Reply::SentBatch(sent)) = client.ask(Request::SendBatch(batch)).await else { panic!() };
    let is_sent =
        sent.results.iter().map(|it| matches!(it, mailbox_wire::json::BatchResult::Sent(_)));
    assert_eq!(is_sent.collect::<Vec<_>>(), [true, false, true]);
}

#[tokio::test]
async fn large_frames_need_room_and_somebody_to_answer_for_them() {
    let served = Rig::new().with(|config| config.limits.bodies = 1 << 20).start().await;
    let mut stranger = OapClient::open(served.oap).await;
    let frame = stranger.request(send("jobs", vec![0; 500_000]));
    stranger.say(&frame).await;
    assert_eq!(stranger.frame().await.code, 401);
    stranger.start(&served.operator).await;
    assert!(stranger.ask(send("jobs", vec![0; 500_000])).await.is_ok(), "it was read past");
    // Others have what there is: half of a frame that does not go on.
    let mut other = served.oap_client().await;
    let mut bytes = BytesMut::new();
    other.request(send("jobs", vec![0; 800_000])).encode(&mut bytes).unwrap();
    other.raw(&bytes[..400_000]).await;
    let mut codes = Vec::new();
    until("there is no room", async || {
        let part = Header::new(Flags::EVENT, APP_PROTO, 5000 + codes.len() as u64);
        stranger.say(&Frame::new(part, vec![0; 100].into())).await;
        let last = Header { flags: Flags::REQ, ..part };
        stranger.say(&Frame::new(last, vec![0; 500_000].into())).await;
        codes.push(stranger.frame().await.code);
        codes.last() == Some(&429)
    })
    .await;
    // Nothing of it is in what comes next.
    let whole = stranger.request(send("parts", "whole"));
    let mut rest = whole.payload.clone();
    let first = Header::new(Flags::EVENT, APP_PROTO, whole.corr_id);
    stranger.say(&Frame::new(first, rest.split_to(3))).await;
    stranger.say(&Frame { payload: rest, ..whole }).await;
    assert!(matches!(proto_reply(&stranger.frame().await), Ok(Reply::Sent(_))));
    drop(other);
}

/// One was asked for no more than the service has, in words it had not used.
#[tokio::test]
async fn a_receive_in_json_that_does_not_say_how_many_gets_what_there_may_be() {
    for (most, expected) in [(5, 5), (256, 10)] {
        let served = Rig::new().with(|config| config.max_messages = most).start().await;
        let mut client = served.oap_client().await;
        for _ in 0..12 {
            client.ask(send("jobs", "x")).await.unwrap();
        }
        let header = Header::new(Flags::REQ, APP_JSON, 77);
        let question = Bytes::from_static(br#"{"op":"recv","topic":"jobs"}"#);
        client.say(&Frame::new(header, question)).await;
        let answer = client.answer().await;
        assert_eq!(answer.code, 200, "{answer:?}");
        let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
        assert_eq!(answer["messages"].as_array().unwrap().len(), expected);
    }
}

/// A stream that was cancelled gave back what lay in front of its end as if its client had had it:
/// an attempt was used up, and with one attempt all were dead letters.
#[tokio::test]
async fn what_a_cancelled_stream_has_not_got_out_was_not_delivered() {
    /// More than fits between the two, and less than keeps the service from reading on.
    const COUNT: usize = 20;

    let served = Rig::new().start().await;
    let mut other = served.oap_client().await;
    let policy = PolicyChange { max_attempts: Some(Some(1)), ..PolicyChange::default() };
    let rules = ConfigureRequest { topic: "jobs".to_owned(), policy };
    other.ask(Request::Configure(rules)).await.unwrap();
    for _ in 0..COUNT {
        other.ask(send("jobs", vec![7; 10_000])).await.unwrap();
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut client = OapClient::over(socket.connect(served.tight).await.unwrap());
    client.start(&served.operator).await;
    let all = ReceiveRequest { max_messages: Some(COUNT as u32), ..question("jobs", None) };
    let stream = client.request(Request::ReceiveStream(all));
    client.say(&stream).await;
    until("all are on their way", async || {
        stats(&mut other, "jobs").await.invisible == COUNT as u64
    })
    .await;
    let cancel = client.asked(Asked::Cancel(stream.corr_id));
    client.say(&cancel).await;
    // What comes behind it has been looked at when it has.
    let behind = client.request(send("behind", "x"));
    client.say(&behind).await;
    until("it was cancelled", async || stats(&mut other, "behind").await.ready == 1).await;
    drop(client);
    until("all are back", async || stats(&mut other, "jobs").await.invisible == 0).await;
    let again = ReceiveRequest { max_messages: Some(256), ..question("jobs", None) };
    let again = ReceiveRequest { max_bytes: Some(1 << 20), ..again };
    let again = received(other.ask(Request::Receive(again)).await.unwrap());
    assert_eq!(again.len(), COUNT);
    assert!(again.iter().all(|it| it.attempt == 1));
}
