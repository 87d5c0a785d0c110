//! Clients that are gone when their answer comes: nothing is stranded.

use std::time::{Duration, Instant};

use mailbox_wire::json::ReceiveRequest;

use crate::rig::{Dice, PATIENCE, Rig, head, receive, until};

const TIMES: usize = 200;

/// The bytes of a receive that waits, and hides what it gets for a second.
fn waiting(capability: &str, topic: &str) -> String {
    let question = ReceiveRequest { wait_ms: Some(20_000), ..receive(topic, 1, 1000) };
    let body = serde_json::to_string(&question).unwrap();
    let (bearer, len) = (format!("Bearer {capability}"), body.len().to_string());
    let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
    head("POST", "/v1/recv", &headers) + &body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_gone_when_its_message_comes_strands_nothing() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let mut dice = Dice(3);
    let mut last = Instant::now();
    for number in 0..TIMES {
        let topic = format!("jobs-{number}");
        let mut leaver = served.connection().await;
        leaver.write(waiting(&served.operator, &topic)).await.unwrap();
        until("it waits", async || client.stats(&topic).await.waiters == 1).await;
        // Before the message comes, while it does, or after it.
        match dice.below(3) {
            0 => {
                drop(leaver);
                client.send(&topic, "one").await;
            }
            1 => {
                let gone = tokio::spawn(async move { drop(leaver) });
                client.send(&topic, "one").await;
                gone.await.unwrap();
            }
            _ => {
                client.send(&topic, "one").await;
                drop(leaver);
            }
        }
        last = Instant::now();
    }
    // No longer than their visibility timeout.
    for number in 0..TIMES {
        let topic = format!("jobs-{number}");
        until("it is back", async || client.stats(&topic).await.ready == 1).await;
        let message = client.receive_one(&topic, 30_000).await;
        assert!(message.attempt <= 2, "{}", message.attempt);
    }
    assert!(last.elapsed() < Duration::from_secs(4), "{:?}", last.elapsed());
}

#[tokio::test]
async fn a_delivery_that_the_service_could_not_hand_over_does_not_count() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    for _ in 0..20 {
        let mut leaver = served.connection().await;
        leaver.write(waiting(&served.operator, "jobs")).await.unwrap();
        until("it waits", async || client.stats("jobs").await.waiters == 1).await;
        drop(leaver);
        until("it is noticed", async || client.stats("jobs").await.waiters == 0).await;
        client.send("jobs", "one").await;
        let message = client.receive_one("jobs", 30_000).await;
        assert_eq!(message.attempt, 1);
        assert_eq!(client.ack_it(&message).await.status, 200);
    }
}

#[tokio::test]
async fn an_answer_that_its_client_does_not_read_is_given_back_uncounted() {
    let served =
        Rig::new().with(|config| config.timeouts.write = Duration::from_millis(300)).start().await;
    let mut client = served.client().await;
    for _ in 0..12 {
        client.send("jobs", vec![7; 1 << 20]).await;
    }
    // More than fits between the two ends, and nobody reads.
    let question = ReceiveRequest { max_bytes: Some(64 << 20), ..receive("jobs", 12, 600_000) };
    let body = serde_json::to_string(&question).unwrap();
    let (bearer, len) = (format!("Bearer {}", served.operator), body.len().to_string());
    let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
    let mut stuck = served.connection().await;
    stuck.write(head("POST", "/v1/recv", &headers) + &body).await.unwrap();
    until("they are handed out", async || client.stats("jobs").await.totals.delivered == 12).await;
    until("they are back", async || client.stats("jobs").await.ready == 12).await;
    for message in client.receive("jobs", 12, 30_000).await {
        assert_eq!(message.attempt, 1);
    }
    assert!(stuck.ends_within(PATIENCE).await);
}
