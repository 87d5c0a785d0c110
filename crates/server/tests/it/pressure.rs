//! Under pressure: who is refused first, what is kept for those who take work away, and what one
//! capability can take from all others.

use std::time::Duration;

use mailbox::backends::journal::JournalConfig;
use mailbox::backends::remote::{RemoteBackend, RemoteConfig};
use mailbox::{Backend, Name, ReceiptHandle, Settlement, Verdict};
use mailbox_wire::json::{PolicyChange, ReceiveRequest, RevokeRequest, SendBatchRequest};
use serde_json::Value;

use crate::rig::{Rig, head, journal, message, receive, send, soon, until};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn when_there_is_no_place_to_send_messages_are_still_taken_away() {
    let served = Rig::new()
        .with(|config| {
            config.limits.requests = 0;
            config.limits.refusal_pause = Duration::from_millis(1);
        })
        .start()
        .await;
    let mut client = served.client().await;
    let problem = client.try_send(&send("jobs", "one")).await.bad(429, "E_SATURATED");
    assert_eq!(problem.kind, "saturated");
    let messages = vec![message("one")];
    let batch = SendBatchRequest { topic: Some("jobs".to_owned()), messages };
    client.post("/v1/send/batch", &batch).await.bad(429, "E_SATURATED");
    assert!(client.receive("jobs", 1, 30_000).await.is_empty());
    assert_eq!(client.stats("jobs").await.ready, 0);
    // And that is what it says of itself.
    let reply = client.get("/readyz").await;
    assert_eq!(reply.status, 503);
    let health: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!((&health["reads"], &health["writes"]), (&true.into(), &false.into()), "{health}");
    assert_eq!(health["reasons"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn bodies_that_come_slowly_take_nobodys_place() {
    let served = Rig::new()
        .with(|config| {
            config.limits.requests = 2;
            config.timeouts.read = Duration::from_secs(20);
        })
        .start()
        .await;
    let bearer = format!("Bearer {}", served.operator);
    let headers = [("authorization", bearer.as_str()), ("content-length", "100")];
    let mut slow = Vec::new();
    for path in ["/v1/send", "/v1/recv", "/v1/settle/batch"].into_iter().cycle().take(60) {
        let mut connection = served.connection().await;
        connection.write(head("POST", path, &headers) + "{").await.unwrap();
        slow.push(connection);
    }
    for _ in 0..20 {
        let mut client = served.client().await;
        client.send("jobs", "one").await;
        let message = client.receive_one("jobs", 30_000).await;
        assert_eq!(client.ack_it(&message).await.status, 200);
    }
    drop(slow);
}

#[tokio::test]
async fn whoever_may_not_come_is_told_so_before_a_body_is_read() {
    let served = Rig::new().start().await;
    let elsewhere = served.mint(&["op = send", "ip = 10.0.0.0/8"]);
    let often = served.mint(&["op = send", "rate = 1/h"]);
    let mut client = served.client_with(&often).await;
    for _ in 0..2 {
        client.send("jobs", "one").await;
    }
    for (capability, status) in [(&elsewhere, 403), (&often, 429)] {
        let mut connection = served.connection().await;
        let bearer = format!("Bearer {capability}");
        let headers = [("authorization", bearer.as_str()), ("content-length", "100000")];
        // Not one byte of the body.
        connection.write(head("POST", "/v1/send", &headers)).await.unwrap();
        let reply = connection.reply().await.unwrap();
        assert_eq!(reply.status, status, "{}", reply.text());
    }
}

#[tokio::test]
async fn large_bodies_and_answers_are_bounded_together() {
    let served = Rig::new()
        .with(|config| {
            (config.limits.bodies, config.limits.answers) = (MIB, MIB);
            config.limits.body = MIB;
        })
        .start()
        .await;
    let mut client = served.client().await;
    // A third more as base64.
    client.send("jobs", vec![7; MIB / 2]).await;
    // Two at a time are more than there is room for.
    let mut slow = served.client().await.connection;
    let bearer = format!("Bearer {}", served.operator);
    let headers = [("authorization", bearer.as_str()), ("content-length", "900000")];
    slow.write(head("POST", "/v1/send", &headers) + &" ".repeat(800_000)).await.unwrap();
    until("there is no room", async || {
        let mut client = served.client().await;
        let reply = client.try_send(&send("full", vec![7; MIB / 2])).await;
        reply.status == 429
            && reply.bad(429, "E_SATURATED").message.contains("bodies are coming in")
    })
    .await;
    drop(slow);
    until("there is room again", async || {
        let mut client = served.client().await;
        client.try_send(&send("full", vec![7; MIB / 2])).await.status == 200
    })
    .await;
    for _ in 0..3 {
        client.send("jobs", vec![7; MIB / 2]).await;
    }
    let question = ReceiveRequest { max_bytes: Some(1 << 30), ..receive("jobs", 10, 30_000) };
    let reply = client.try_receive(&question).await;
    let got = reply.good::<mailbox_wire::json::Received>().messages;
    // As many as there is room for; the rest is there for others.
    assert_eq!(got.len(), 2);
    until("the rest is back", async || client.stats("jobs").await.ready == 2).await;
    let next = client.receive_one("jobs", 30_000).await;
    assert_eq!(next.attempt, 1);
    let reply = client.get("/v1/topics/jobs/peek?limit=10").await;
    reply.bad(413, "E_FRAME_TOO_LARGE");
    assert_eq!(client.get("/v1/topics/jobs/peek?limit=2").await.status, 200);
}

#[tokio::test]
async fn an_answer_for_which_there_is_no_room_at_all_is_refused_and_strands_nothing() {
    let served = Rig::new().with(|config| config.limits.answers = MIB / 2).start().await;
    let mut client = served.client().await;
    client.send("jobs", vec![7; MIB]).await;
    let reply = client.try_receive(&receive("jobs", 1, 30_000)).await;
    reply.bad(429, "E_SATURATED");
    until("it is back", async || client.stats("jobs").await.ready == 1).await;
    assert_eq!(client.stats("jobs").await.invisible, 0);
}

#[tokio::test]
async fn messages_too_large_to_be_shown_together_are_shown_in_parts() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    for _ in 0..33 {
        client.send("jobs", vec![7; MIB]).await;
    }
    let reply = client.get("/v1/topics/jobs/peek?limit=40").await;
    let problem = reply.bad(413, "E_FRAME_TOO_LARGE");
    assert!(problem.message.contains("ask for fewer"), "{}", problem.message);
    let reply = client.get("/v1/topics/jobs/peek?limit=32").await;
    assert_eq!(reply.good::<mailbox_wire::json::Records>().messages.len(), 32);
}

#[tokio::test]
async fn deliveries_of_a_mailbox_that_is_emptied_or_removed_take_no_places() {
    let served = Rig::new().with(|config| config.global_inflight = 2).start().await;
    let mut client = served.client().await;
    client.send_batch("other", vec![message("one")]).await;
    for call in [("POST", "/v1/topics/jobs/purge"), ("DELETE", "/v1/topics/jobs")] {
        client.send_batch("jobs", vec![message("one"), message("two")]).await;
        assert_eq!(client.receive("jobs", 2, 30_000).await.len(), 2);
        client.try_receive(&receive("other", 1, 30_000)).await.bad(429, "E_SATURATED");
        assert_eq!(client.raw(call.0, call.1, &[], b"").await.status, 200);
        let message = client.receive_one("other", 30_000).await;
        assert_eq!(client.nack(&message, false).await.status, 200);
    }
}

#[tokio::test]
async fn one_capability_cannot_hold_all_deliveries() {
    let served = Rig::new()
        .with(|config| (config.global_inflight, config.inflight_per_capability) = (100, 3))
        .start()
        .await;
    let mut client = served.client().await;
    client.send_batch("jobs", (0..8).map(|_| message("one")).collect()).await;
    let capability = served.mint(&["op = recv,ack"]);
    let mut greedy = served.client_with(&capability).await;
    let held = greedy.receive("jobs", 3, 30_000).await;
    assert_eq!(held.len(), 3);
    let problem = greedy.try_receive(&receive("jobs", 1, 30_000)).await.bad(429, "E_SATURATED");
    assert!(problem.message.contains("with this capability"), "{}", problem.message);
    // Neither with one made from it; but others can, and what is settled makes room.
    let parent = mailbox_wire::capability::Capability::decode(&capability).unwrap();
    let child = parent.attenuate(&"topic = jobs".parse().unwrap()).unwrap().encode();
    let reply = served.client_with(&child).await.try_receive(&receive("jobs", 1, 30_000)).await;
    reply.bad(429, "E_SATURATED");
    assert_eq!(client.receive("jobs", 3, 30_000).await.len(), 3);
    assert_eq!(greedy.ack_it(&held[0]).await.status, 200);
    greedy.receive_one("jobs", 30_000).await;
}

#[tokio::test]
async fn what_is_received_counts_message_by_message_and_byte_by_byte() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    client.send_batch("jobs", (0..10).map(|_| message("12345")).collect()).await;
    let few = served.mint(&["op = recv", "quota_ops = 6"]);
    let mut holder = served.client_with(&few).await;
    assert_eq!(holder.receive("jobs", 4, 30_000).await.len(), 4);
    // Two are left of it.
    assert_eq!(holder.receive("jobs", 4, 30_000).await.len(), 2);
    holder.try_receive(&receive("jobs", 4, 30_000)).await.refused(403, "quota");
    let small = served.mint(&["op = recv", "quota_bytes = 7"]);
    let mut holder = served.client_with(&small).await;
    assert_eq!(holder.receive("jobs", 2, 30_000).await.len(), 1);
    // Two bytes are too little for the next one, which is there for others.
    for _ in 0..2 {
        holder.try_receive(&receive("jobs", 1, 30_000)).await.refused(403, "quota");
    }
    until("it is back", async || client.stats("jobs").await.ready == 3).await;
    // No more than its rate lets through; but those it can settle, whatever it has used up.
    let slow = served.mint(&["op = recv,ack", "rate = 1/h"]);
    let mut holder = served.client_with(&slow).await;
    let held = holder.receive("jobs", 4, 30_000).await;
    assert_eq!(held.len(), 2);
    let problem = holder.try_receive(&receive("jobs", 1, 30_000)).await.bad(429, "E_SATURATED");
    assert!(problem.retry_after_ms.is_some_and(|ms| ms > 3_500_000), "{problem:?}");
    for message in &held {
        assert_eq!(holder.extend(message, 20_000).await.status, 200);
        assert_eq!(holder.ack_it(message).await.status, 200);
    }
    // Settlements that fail are held to the rate.
    for _ in 0..2 {
        assert_eq!(holder.ack_it(&held[0]).await.status, 404);
    }
    holder.ack_it(&held[0]).await.bad(429, "E_SATURATED");
}

#[tokio::test]
async fn what_did_nothing_costs_nothing_of_a_quota() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let change = PolicyChange { max_size: Some(Some(1)), ..PolicyChange::default() };
    client.configure("jobs", change).await;
    client.send("jobs", "one").await;
    let capability = served.mint(&["op = send", "quota_ops = 2", "quota_bytes = 4"]);
    let mut holder = served.client_with(&capability).await;
    for _ in 0..5 {
        holder.try_send(&send("jobs", "1234")).await.bad(429, "E_SATURATED");
    }
    holder.send("other", "1234").await;
    // It is used up: told before anything is read.
    let mut connection = served.connection().await;
    let bearer = format!("Bearer {capability}");
    let headers = [("authorization", bearer.as_str()), ("content-length", "100000")];
    connection.write(head("POST", "/v1/send", &headers)).await.unwrap();
    connection.reply().await.unwrap().refused(403, "quota");
}

#[tokio::test]
async fn what_is_revoked_while_a_body_comes_does_nothing() {
    let served = Rig::new().start().await;
    let mut operator = served.client().await;
    for path in ["/v1/caps/mint", "/v1/send"] {
        let capability = served.mint(&["op = admin,send"]);
        let bearer = format!("Bearer {capability}");
        let body = match path {
            "/v1/send" => serde_json::to_string(&send("jobs", "late")).unwrap(),
            _ => r#"{"ops":["send"]}"#.to_owned(),
        };
        let len = body.len().to_string();
        let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
        let mut slow = served.connection().await;
        slow.write(head("POST", path, &headers) + &body[..5]).await.unwrap();
        // Sent first, and read first, but for an odd turn of the scheduler.
        operator.stats("jobs").await;
        let question =
            RevokeRequest { capability: Some(capability.clone()), ..RevokeRequest::default() };
        assert_eq!(operator.post("/v1/caps/revoke", &question).await.status, 200);
        slow.write(&body[5..]).await.unwrap();
        slow.reply().await.unwrap().refused(401, "revoked");
    }
    assert_eq!(operator.stats("jobs").await.totals.sent, 0);
}

#[tokio::test]
async fn a_body_that_is_read_takes_no_room_while_its_receive_waits() {
    let served = Rig::new().with(|config| config.limits.bodies = MIB).start().await;
    let mut waiting = Vec::new();
    let question = ReceiveRequest { wait_ms: Some(20_000), ..receive("quiet", 1, 30_000) };
    let mut padded = serde_json::to_string(&question).unwrap();
    padded.push_str(&" ".repeat(MIB / 2));
    let mut client = served.client().await;
    for count in 1..=4 {
        let (mut waiter, body) = (served.client().await, padded.clone());
        waiting.push(tokio::spawn(async move {
            waiter.raw("POST", "/v1/recv", &[], body.as_bytes()).await.status
        }));
        until("it waits", async || client.stats("quiet").await.waiters == count).await;
    }
    client.send("jobs", vec![7; MIB / 2]).await;
    waiting.iter().for_each(|task| task.abort());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_taken_by_those_who_are_worked_on_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = journal(dir.path(), JournalConfig::default()).await;
    let served = Rig::on(store)
        .with(|config| {
            config.limits.requests = 1;
            config.limits.refusal_pause = Duration::from_millis(1);
        })
        .start()
        .await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let mut client = served.client().await;
        tasks.spawn(async move {
            let mut counts = (0, 0);
            for _ in 0..20 {
                let reply = client.try_send(&send("jobs", "one")).await;
                if reply.status == 200 {
                    counts.0 += 1;
                } else {
                    reply.bad(429, "E_SATURATED");
                    counts.1 += 1;
                }
            }
            counts
        });
    }
    let counts = tasks.join_all().await;
    let (sent, refused) = counts.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    assert!(sent > 0 && refused > 0, "{sent} sent, {refused} refused");
    let mut client = served.client().await;
    assert_eq!(client.stats("jobs").await.totals.sent, sent);
    for _ in 0..10 {
        client.send("jobs", "one").await;
    }
}

#[tokio::test]
async fn a_receive_asks_for_no_more_than_the_service_allows() {
    let served = Rig::new().with(|config| config.max_messages = 16).start().await;
    let mut client = served.client().await;
    let problem = client.try_receive(&receive("jobs", 17, 30_000)).await.bad(400, "E_SCHEMA");
    assert_eq!(problem.field.as_deref(), Some("max_messages"));
    assert!(client.receive("jobs", 16, 30_000).await.is_empty());
}

#[tokio::test]
async fn a_receive_ends_where_its_bytes_do_and_keeps_the_order() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    // Sixteen fit, the seventeenth does not; small ones come later.
    for number in 0..48_u8 {
        let len = if number < 40 { 32_000 } else { 10 };
        client.send("jobs", vec![number; len]).await;
    }
    for first in [0, 16] {
        let asked = client.receive("jobs", 32, 30_000);
        let got = tokio::time::timeout(Duration::from_secs(10), asked).await.expect("it ends");
        let numbers: Vec<u8> = got.iter().map(|it| it.payload_b64.0[0]).collect();
        assert_eq!(numbers, (first..first + 16).collect::<Vec<u8>>());
        until("the rest is back", async || {
            client.stats("jobs").await.invisible == u64::from(first) + 16
        })
        .await;
    }
}

#[tokio::test]
async fn what_is_received_for_no_time_counts_as_well_and_takes_room() {
    let served = Rig::new().with(|config| config.limits.answers = 8 * MIB).start().await;
    let mut client = served.client().await;
    client.send_batch("jobs", (0..10).map(|_| message("12345")).collect()).await;
    let capability = served.mint(&["op = recv", "quota_bytes = 20"]);
    let mut holder = served.client_with(&capability).await;
    // No more than there is room for, if all of them were as large as can be.
    for _ in 0..4 {
        assert_eq!(holder.receive("jobs", 8, 0).await.len(), 1);
    }
    holder.try_receive(&receive("jobs", 1, 0)).await.refused(403, "quota");
    holder.try_receive(&receive("jobs", 1, 30_000)).await.refused(403, "quota");
}

#[tokio::test]
async fn a_child_that_is_used_up_takes_nothing_from_its_parents_bytes() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    client.send_batch("jobs", (0..8).map(|_| message("12345")).collect()).await;
    let parent = served.mint(&["op = recv,send", "quota_bytes = 1000"]);
    let child = mailbox_wire::capability::Capability::decode(&parent).unwrap();
    let child = child.attenuate(&"quota_ops = 2".parse().unwrap()).unwrap().encode();
    let mut heir = served.client_with(&child).await;
    for _ in 0..2 {
        heir.receive_one("jobs", 30_000).await;
    }
    heir.try_receive(&receive("jobs", 1, 30_000)).await.refused(403, "quota");
    let mut holder = served.client_with(&parent).await;
    assert_eq!(holder.receive("jobs", 4, 30_000).await.len(), 4);
}

#[tokio::test]
async fn what_was_received_can_be_settled_by_a_client_that_is_new() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let jobs = Name::parse("jobs").unwrap();
    for (caveat, status, reason) in [
        ("quota_ops = 1", 403, Some("quota")),
        ("rate = 1/h", 429, Some("rate")),
        ("exp", 401, Some("expired")),
    ] {
        client.send("jobs", "one").await;
        let soon = soon(Duration::from_millis(1500)).to_string();
        let said = if caveat == "exp" { soon.as_str() } else { caveat };
        let capability = served.mint(&["op = recv,ack", said]);
        let mut holder = served.client_with(&capability).await;
        let held = holder.receive_one("jobs", 30_000).await;
        until("it is of no more use", async || {
            let reply = holder.try_receive(&receive("jobs", 1, 30_000)).await;
            let problem: Value = serde_json::from_slice(&reply.body).unwrap();
            reply.status == status && problem["reason"].as_str() == reason
        })
        .await;
        // As a command does that is called with the handle, or a worker that was started again.
        let config = RemoteConfig::default().with_capability(&capability);
        let url = format!("http://{}", served.address);
        let remote = RemoteBackend::open_with(&url, config).await.expect(caveat);
        let receipt_handle = ReceiptHandle::from_text(held.receipt_handle.as_deref().unwrap());
        let settlement = Settlement { receipt_handle, verdict: Verdict::Acknowledge };
        let settled = remote.settle(&jobs, vec![settlement]).await.expect(caveat);
        assert!(settled[0].is_ok(), "{caveat}: {settled:?}");
        assert_eq!(client.stats("jobs").await.invisible, 0, "{caveat}");
    }
}
