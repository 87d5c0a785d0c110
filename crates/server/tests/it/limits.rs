//! Bounds at the door: what is too large, too much or too often is refused at once, and says when
//! to come again.

use mailbox_wire::call::Request;
use mailbox_wire::json::{
    BatchMessage, BatchResult, PolicyChange, ReceiveRequest, Received, SendBatchRequest, Sent,
    SentBatch, SettleBatchRequest, SettleItem, SettleOp, SettleResult, SettledBatch,
};
use tokio::net::TcpSocket;

use crate::rig::{OapClient, PATIENCE, Rig, Served, head, message, receive, send, until};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn a_payload_of_one_mebibyte_gets_in_and_one_byte_more_does_not() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    client.send("jobs", vec![7; MIB]).await;
    let problem =
        client.try_send(&send("jobs", vec![7; MIB + 1])).await.bad(413, "E_FRAME_TOO_LARGE");
    assert_eq!(problem.kind, "too_large");
    let messages = vec![message("small"), message(vec![7; MIB + 1])];
    let question = SendBatchRequest { topic: Some("jobs".to_owned()), messages };
    let answer: SentBatch = client.post("/v1/send/batch", &question).await.good();
    assert!(matches!(&answer.results[0], BatchResult::Sent(Sent { duplicate: false, .. })));
    let BatchResult::Refused { error } = &answer.results[1] else { panic!("accepted") };
    assert_eq!(error.code, "E_FRAME_TOO_LARGE");
    let got = client.receive("jobs", 10, 30_000).await;
    assert_eq!(got[0].payload_b64.0.len(), MIB);
    assert_eq!(client.stats("jobs").await.totals.sent, 2);
}

#[tokio::test]
async fn a_body_that_is_announced_as_too_large_is_refused_before_it_comes() {
    let served = Rig::new().with(|config| config.limits.body = 2 * MIB).start().await;
    for path in ["/v1/send", "/v1/send/batch", "/v1/recv", "/v1/settle/batch", "/v1/ack/x"] {
        let mut connection = served.connection().await;
        let bearer = format!("Bearer {}", served.operator);
        let len = (2 * MIB + 1).to_string();
        let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
        // Not one byte of the body.
        connection.write(head("POST", path, &headers)).await.unwrap();
        connection.reply().await.unwrap().bad(413, "E_FRAME_TOO_LARGE");
    }
}

#[tokio::test]
async fn a_body_that_turns_out_too_large_is_refused() {
    let served = Rig::new().with(|config| config.limits.body = 2 * MIB).start().await;
    let mut connection = served.connection().await;
    let bearer = format!("Bearer {}", served.operator);
    let headers = [("authorization", bearer.as_str()), ("transfer-encoding", "chunked")];
    connection.write(head("POST", "/v1/send", &headers)).await.unwrap();
    let mut chunk = format!("{:x}\r\n", MIB / 4).into_bytes();
    chunk.resize(chunk.len() + MIB / 4, b' ');
    chunk.extend_from_slice(b"\r\n");
    // The end of it never comes.
    for _ in 0..9 {
        if connection.write(&chunk).await.is_err() {
            break;
        }
    }
    connection.reply().await.unwrap().bad(413, "E_FRAME_TOO_LARGE");
}

#[tokio::test]
async fn a_body_in_chunks_is_as_good_as_any() {
    let served = Rig::new().start().await;
    let mut connection = served.connection().await;
    let bearer = format!("Bearer {}", served.operator);
    let headers = [("authorization", bearer.as_str()), ("transfer-encoding", "chunked")];
    connection.write(head("POST", "/v1/send", &headers)).await.unwrap();
    let body = serde_json::to_string(&send("jobs", "in pieces")).unwrap();
    for piece in body.as_bytes().chunks(7) {
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        connection.write(&chunk).await.unwrap();
    }
    connection.write("0\r\n\r\n").await.unwrap();
    connection.reply().await.unwrap().good::<Sent>();
}

#[tokio::test]
async fn a_full_mailbox_says_when_to_come_again() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let change = PolicyChange { max_size: Some(Some(2)), ..PolicyChange::default() };
    client.configure("jobs", change).await;
    client.send("jobs", "one").await;
    client.send("jobs", "two").await;
    let problem = client.try_send(&send("jobs", "three")).await.bad(429, "E_SATURATED");
    assert_eq!(problem.kind, "mailbox_full");
    assert_eq!(problem.topic.as_deref(), Some("jobs"));
    // Others are not concerned, and room that is made is room.
    client.send("other", "one").await;
    let message = client.receive_one("jobs", 30_000).await;
    assert_eq!(client.ack_it(&message).await.status, 200);
    client.send("jobs", "three").await;
}

#[tokio::test]
async fn the_bound_on_deliveries_in_flight_holds_for_all_mailboxes_together() {
    let served = Rig::new().with(|config| config.global_inflight = 3).start().await;
    let mut client = served.client().await;
    for topic in ["a", "b"] {
        client.send_batch(topic, vec![message("one"), message("two")]).await;
    }
    let held = client.receive("a", 2, 30_000).await;
    assert_eq!(held.len(), 2);
    client.receive_one("b", 30_000).await;
    for topic in ["a", "b", "empty"] {
        let reply = client.try_receive(&receive(topic, 1, 30_000)).await;
        assert_eq!(reply.bad(429, "E_SATURATED").kind, "saturated");
    }
    // Sending and settling go on.
    client.send("a", "three").await;
    assert_eq!(client.ack_it(&held[0]).await.status, 200);
    client.receive_one("b", 30_000).await;
}

#[tokio::test]
async fn receives_that_wait_for_nothing_leave_room_for_others() {
    let served = Rig::new().with(|config| config.global_inflight = 256).start().await;
    let mut waiter = served.client().await;
    let question = ReceiveRequest { wait_ms: Some(20_000), ..receive("quiet", 256, 30_000) };
    let waiting = tokio::spawn(async move { waiter.try_receive(&question).await.status });
    let mut client = served.client().await;
    client.send("jobs", "one").await;
    until("somebody waits", async || client.stats("quiet").await.waiters == 1).await;
    // Nothing at all is in flight.
    client.receive_one("jobs", 30_000).await;
    waiting.abort();
}

#[tokio::test]
async fn a_capability_that_is_used_too_often_waits_its_turn() {
    let served = Rig::new().start().await;
    let capability = served.mint(&["op = send", "rate = 1/m"]);
    let mut client = served.client_with(&capability).await;
    for _ in 0..2 {
        client.send("jobs", "one").await;
    }
    let problem = client.try_send(&send("jobs", "one")).await.bad(429, "E_SATURATED");
    assert_eq!(problem.reason.as_deref(), Some("rate"));
    assert!(problem.retry_after_ms.is_some_and(|ms| ms > 1000 && ms <= 60_000));
    // Another one is not concerned, but one made from it is.
    served.client().await.send("jobs", "one").await;
    let parent = mailbox_wire::capability::Capability::decode(&capability).unwrap();
    let child = parent.attenuate(&"topic = jobs".parse().unwrap()).unwrap().encode();
    let reply = served.client_with(&child).await.try_send(&send("jobs", "one")).await;
    reply.bad(429, "E_SATURATED");
}

#[tokio::test]
async fn a_quota_is_used_up_once_and_for_all() {
    let served = Rig::new().start().await;
    let ops = served.mint(&["op = send", "quota_ops = 2"]);
    let bytes = served.mint(&["op = send", "quota_bytes = 10"]);
    let mut client = served.client_with(&ops).await;
    for _ in 0..2 {
        client.send("jobs", "one").await;
    }
    client.try_send(&send("jobs", "one")).await.refused(403, "quota");
    let mut client = served.client_with(&bytes).await;
    client.send("jobs", "12345678").await;
    client.try_send(&send("jobs", "123")).await.refused(403, "quota");
    client.send("jobs", "12").await;
    client.try_send(&send("jobs", "1")).await.refused(403, "quota");
    // What was refused was not sent.
    assert_eq!(served.client().await.stats("jobs").await.totals.sent, 4);
}

#[tokio::test]
async fn what_comes_too_often_costs_nothing_of_a_quota() {
    let served = Rig::new().start().await;
    let capability = served.mint(&["op = send", "rate = 1/s", "quota_ops = 3"]);
    let mut client = served.client_with(&capability).await;
    for _ in 0..2 {
        client.send("jobs", "one").await;
    }
    client.try_send(&send("jobs", "one")).await.bad(429, "E_SATURATED");
    // One is left: it gets in as soon as the rate allows.
    until("the third is sent", async || {
        let reply = client.try_send(&send("jobs", "one")).await;
        assert_ne!(reply.status, 403, "{}", reply.text());
        reply.status == 200
    })
    .await;
}

#[tokio::test]
async fn receives_that_wait_are_bounded_in_all_and_for_each_capability() {
    let served = Rig::new()
        .with(|config| (config.limits.waiting, config.limits.waiting_per_capability) = (3, 2))
        .start()
        .await;
    let question = ReceiveRequest { wait_ms: Some(20_000), ..receive("quiet", 1, 30_000) };
    let ours = served.mint(&["op = recv"]);
    let mut waiting = Vec::new();
    for capability in [&ours, &ours, &served.operator] {
        let (mut client, question) = (served.client_with(capability).await, question.clone());
        waiting.push(tokio::spawn(async move { client.try_receive(&question).await }));
    }
    let mut client = served.client().await;
    until("all wait", async || client.stats("quiet").await.waiters == 3).await;
    served.client_with(&ours).await.try_receive(&question).await.bad(429, "E_SATURATED");
    client.try_receive(&question).await.bad(429, "E_SATURATED");
    // Those who do not wait get in, and each place that becomes free is a place.
    assert!(client.receive("quiet", 1, 30_000).await.is_empty());
    client.send("quiet", "one").await;
    until("one has it", async || client.stats("quiet").await.waiters == 2).await;
    let mut late = served.client().await;
    let waiter = tokio::spawn(async move { late.try_receive(&question).await });
    until("another waits", async || client.stats("quiet").await.waiters == 3).await;
    for _ in 0..3 {
        client.send("quiet", "one").await;
    }
    waiting.push(waiter);
    for waiter in waiting {
        let reply = tokio::time::timeout(PATIENCE, waiter).await.unwrap().unwrap();
        assert_eq!(reply.good::<Received>().messages.len(), 1);
    }
}

#[tokio::test]
async fn connections_are_bounded_in_all_and_for_each_address() {
    for per_ip in [true, false] {
        let served = Rig::new()
            .with(|config| {
                let limits = &mut config.limits;
                let limit =
                    if per_ip { &mut limits.connections_per_ip } else { &mut limits.connections };
                *limit = 4;
            })
            .start()
            .await;
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut client = served.client().await;
            client.stats("jobs").await;
            held.push(client);
        }
        for _ in 0..3 {
            let mut one_more = served.connection().await;
            let reply = one_more.reply().await.expect("told that there is no place");
            let problem = reply.bad(503, "E_UNAVAILABLE");
            assert_eq!(problem.reason.as_deref(), Some("no_place"));
            assert!(one_more.ends_within(PATIENCE).await);
        }
        // Those that are in are served, and a place that becomes free is a place.
        held[0].stats("jobs").await;
        held.pop();
        until("there is a place", async || {
            let mut connection = served.connection().await;
            let wanted = head("GET", "/healthz", &[]);
            connection.write(wanted).await.is_ok()
                && connection.reply().await.is_ok_and(|reply| reply.status == 200)
        })
        .await;
    }
}

/// Many requests of a connection over HTTP/2 may have a head at a time, and no budget counts them.
#[tokio::test]
async fn a_head_over_http2_is_at_most_16_kib() {
    let served = Rig::new().start().await;
    let reader = served.h2_client(1 << 16).await;
    let get = |len: usize| {
        http::Request::get("http://localhost/healthz")
            .header("authorization", format!("Bearer {}", served.operator))
            // As long as a capability may be, and what else is said beside it.
            .header("x-long", "a".repeat(len))
            .body(())
            .unwrap()
    };
    for (len, status) in [(4 << 10, 200), (12 << 10, 200), (16 << 10, 431), (60 << 10, 431)] {
        let call = reader.try_ask(get(len), bytes::Bytes::new(), true).await;
        match call {
            Ok(call) => assert_eq!(call.answer.status().as_u16(), status, "{len}"),
            Err(error) => assert!(status == 431 && error.is_reset(), "{len}: {error}"),
        }
        assert!(!reader.is_over());
    }
    // Others that share the connection go on.
    let call = reader.try_ask(get(1), bytes::Bytes::new(), true).await.unwrap();
    assert_eq!(call.answer.status(), http::StatusCode::OK);
}

/// Messages that made no sense were counted nowhere: any number of them was answered, one by one,
/// to somebody who could not even send.
#[tokio::test]
async fn a_batch_of_nonsense_is_bounded_allowed_and_counted_as_any_other() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let answer: SentBatch = client.post("/v1/send/batch", &nonsense(256)).await.good();
    assert_eq!(answer.results.len(), 256);
    let problem = client.post("/v1/send/batch", &nonsense(257)).await.bad(400, "E_SCHEMA");
    assert_eq!(problem.field.as_deref(), Some("messages"), "{problem:?}");
    let mut receiver = served.client_with(&served.mint(&["op = recv"])).await;
    receiver.post("/v1/send/batch", &nonsense(1)).await.refused(403, "op");
    receiver.post("/v1/send", &send("no name", "one")).await.refused(403, "op");
    let mut rare = served.client_with(&served.mint(&["op = send", "rate = 10/h"])).await;
    let answer: SentBatch = rare.post("/v1/send/batch", &nonsense(256)).await.good();
    assert_eq!(answer.results.len(), 256);
    assert_eq!(rare.post("/v1/send/batch", &nonsense(1)).await.status, 429);
    // What makes sense is not held for what does not: it would never get through.
    let mut often = served.client_with(&served.mint(&["op = send", "rate = 100/s"])).await;
    let mut mixed = nonsense(1);
    mixed.topic = Some("jobs".to_owned());
    mixed.messages.extend(vec![message("one"); 255]);
    let answer: SentBatch = often.post("/v1/send/batch", &mixed).await.good();
    let is_sent = |it: &&BatchResult| matches!(it, BatchResult::Sent(_));
    assert_eq!(answer.results.iter().filter(is_sent).count(), 255);
    assert_eq!(often.post("/v1/send/batch", &nonsense(1)).await.status, 429);
}

/// A key of some megabytes came back in an error of many more.
#[tokio::test]
async fn what_is_refused_is_not_repeated_at_length() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let long = format!("mailbox.{}", "\u{80}".repeat(1 << 20));
    let attrs = serde_json::json!({ "topic": "jobs", "payload_b64": "", "attrs": { long: "x" } });
    let reply = client.post("/v1/send", &attrs).await;
    assert!(reply.bad(400, "E_SCHEMA").message.contains("the service's own"));
    assert!(reply.body.len() < 4096, "{}", reply.body.len());
}

/// Answers of a batch are as many as its messages: unread, they were counted nowhere.
#[tokio::test]
async fn answers_of_batches_that_nobody_reads_take_room() {
    let served = Rig::new().with(little_room_for_long).start().await;
    let mut client = served.client().await;
    client.send_batch("work", vec![message("one"); 100]).await;
    let work = client.receive("work", 100, 30_000).await;
    let ids: Vec<_> = work.into_iter().map(|it| it.receipt_handle).collect();
    let nonsense = Request::SendBatch(nonsense(256));
    let mut slow = Vec::new();
    for _ in 0..16 {
        slow.push(deaf(&served, &nonsense, 8).await);
    }
    let good =
        SendBatchRequest { topic: Some("jobs".to_owned()), messages: vec![message("1"); 256] };
    let (mut sent, mut asked) = (0, 0);
    until("there is no room", async || {
        ask_once_more(&served, &mut slow, &mut asked, &nonsense).await;
        let reply = client.post("/v1/send/batch", &good).await;
        sent += if reply.status == 200 { 256 } else { 0 };
        reply.status == 429 && reply.bad(429, "E_SATURATED").message.contains("answers")
    })
    .await;
    assert_eq!(client.stats("jobs").await.totals.sent, sent, "what was refused was not done");
    // Settling is not held: messages are done, whoever reads what.
    let items = ids.into_iter().map(|handle| {
        let item = SettleItem::new(SettleOp::Ack);
        SettleItem { receipt_handle: handle, ..item }
    });
    let question = SettleBatchRequest { items: items.collect() };
    let settled: SettledBatch = client.post("/v1/settle/batch", &question).await.good();
    let is_done = |it: &SettleResult| matches!(it, SettleResult::Settled { .. });
    assert!(settled.results.len() == 100 && settled.results.iter().all(is_done));
    drop(slow);
    until("there is room again", async || client.post("/v1/send/batch", &good).await.status == 200)
        .await;
}

/// What was said of settlements was bounded by nothing, once there was no room for other answers.
#[tokio::test]
async fn answers_of_settlements_that_nobody_reads_are_bounded_too() {
    let served = Rig::new().with(little_room_for_long).start().await;
    let mut client = served.client().await;
    let item = SettleItem { msg_id: Some("1".to_owned()), ..SettleItem::new(SettleOp::Ack) };
    let question = SettleBatchRequest { items: vec![item; 256] };
    let nonsense = Request::SettleBatch(question.clone());
    let mut slow = Vec::new();
    // What is said at length needs more room than what is refused without any.
    let mut is_brief = false;
    for _ in 0..40 {
        slow.push(deaf(&served, &nonsense, 16).await);
        let reply = client.post("/v1/settle/batch", &question).await;
        if reply.status == 200 {
            let settled: SettledBatch = reply.good();
            let SettleResult::Refused { error } = &settled.results[255] else { panic!() };
            assert_eq!(error.kind, "receipt_handle_expired");
            is_brief = error.message == "no room to say more";
        }
        if is_brief {
            break;
        }
    }
    assert!(is_brief, "everything is said at length");
    let mut asked = 0;
    until("there is no room", async || {
        ask_once_more(&served, &mut slow, &mut asked, &nonsense).await;
        let reply = client.post("/v1/settle/batch", &question).await;
        reply.status == 429 && reply.bad(429, "E_SATURATED").message.contains("answers")
    })
    .await;
    // It is in nobody's way but its own.
    let mut other = served.client_with(&served.mint(&["op = ack"])).await;
    let settled: SettledBatch = other.post("/v1/settle/batch", &question).await.good();
    assert_eq!(settled.results.len(), 256);
    drop(slow);
    let settles = async || client.post("/v1/settle/batch", &question).await.status == 200;
    until("there is room again", settles).await;
}

/// Little room for answers, and nobody is cut off who makes room by that.
fn little_room_for_long(config: &mut mailbox_server::Config) {
    config.limits.answers = MIB;
    config.timeouts.write = 2 * PATIENCE;
}

/// One who asks so many times, and does not look at the answers.
async fn deaf(served: &Served, request: &Request, times: usize) -> OapClient {
    // With little room for what it does not look at.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut deaf = OapClient::over(socket.connect(served.tight).await.unwrap());
    deaf.start(&served.operator).await;
    for _ in 0..times {
        let batch = deaf.request(request.clone());
        deaf.say(&batch).await;
    }
    deaf
}

/// One request more that nobody wants the answer of. One by one: where several ask at once for what
/// room is left, it may be for one whose answer just fits between the two ends, and is left again.
async fn ask_once_more(
    served: &Served,
    slow: &mut Vec<OapClient>,
    asked: &mut usize,
    request: &Request,
) {
    if asked.is_multiple_of(8) {
        slow.push(deaf(served, request, 0).await);
    }
    *asked += 1;
    if let Some(last) = slow.last_mut() {
        let batch = last.request(request.clone());
        last.say(&batch).await;
    }
}

/// So many messages whose mailbox cannot be.
fn nonsense(count: usize) -> SendBatchRequest {
    let bad = BatchMessage { topic: Some("no name".to_owned()), ..message("one") };
    SendBatchRequest { topic: None, messages: vec![bad; count] }
}
