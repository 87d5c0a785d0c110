//! Idempotency keys through the door: one delivery however often it is sent, for as long as the
//! window is open.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use mailbox::testing::ManualClock;
use mailbox_wire::json::{PolicyChange, SendRequest, Sent};
use tokio::sync::Barrier;

use crate::rig::{Client, PATIENCE, Rig, memory, payload, send};

const CONNECTIONS: usize = 40;
const EACH: usize = 25;

fn keyed(topic: &str, key: &str, bytes: &str) -> SendRequest {
    SendRequest { idem_key: Some(key.to_owned()), ..send(topic, bytes) }
}

async fn storm(mut client: Client, start: Arc<Barrier>) -> Vec<Sent> {
    let mut sent = Vec::new();
    start.wait().await;
    for _ in 0..EACH {
        sent.push(client.try_send(&keyed("jobs", "storm", "the same")).await.good());
    }
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_equal_sends_at_once_are_one_message() {
    let served = Rig::new().start().await;
    let start = Arc::new(Barrier::new(CONNECTIONS));
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..CONNECTIONS {
        senders.spawn(storm(served.client().await, Arc::clone(&start)));
    }
    let sent = tokio::time::timeout(PATIENCE, senders.join_all()).await.unwrap().concat();
    assert_eq!(sent.len(), CONNECTIONS * EACH);
    assert_eq!(sent.iter().filter(|sent| !sent.duplicate).count(), 1);
    let ids: HashSet<_> = sent.iter().map(|sent| sent.msg_id.as_str()).collect();
    assert_eq!(ids.len(), 1);
    let mut client = served.client().await;
    let got = client.receive("jobs", 256, 30_000).await;
    assert_eq!(got.len(), 1);
    assert!(ids.contains(got[0].msg_id.as_str()));
    assert!(client.receive("jobs", 256, 30_000).await.is_empty());
    assert_eq!(client.stats("jobs").await.totals.sent, 1);
}

#[tokio::test]
async fn the_same_key_with_another_payload_is_a_conflict() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let first: Sent = client.try_send(&keyed("jobs", "k", "one")).await.good();
    let problem = client.try_send(&keyed("jobs", "k", "two")).await.bad(409, "E_DUPLICATE");
    assert_eq!(problem.kind, "duplicate");
    let again: Sent = client.try_send(&keyed("jobs", "k", "one")).await.good();
    assert!(again.duplicate && again.msg_id == first.msg_id);
    // A key is of its mailbox.
    assert!(!client.try_send(&keyed("other", "k", "two")).await.good::<Sent>().duplicate);
    assert_eq!(client.receive("jobs", 10, 30_000).await.len(), 1);
}

#[tokio::test]
async fn a_duplicate_is_a_conflict_for_those_who_ask_for_that() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let mode = [("x-idempotency-mode", "409-conflict")];
    let question = keyed("jobs", "k", "one");
    let first: Sent = client.post_with("/v1/send", &mode, &question).await.good();
    let problem = client.post_with("/v1/send", &mode, &question).await.bad(409, "E_DUPLICATE");
    assert_eq!(problem.msg_id, Some(first.msg_id));
    let flag = [("x-idempotency-mode", "200-flag")];
    assert!(client.post_with("/v1/send", &flag, &question).await.good::<Sent>().duplicate);
    let nonsense = [("x-idempotency-mode", "maybe")];
    client.post_with("/v1/send", &nonsense, &question).await.bad(400, "E_SCHEMA");
}

#[tokio::test]
async fn a_key_is_taken_until_the_window_closes_and_free_after_it() {
    let clock = ManualClock::new();
    let served = Rig::on(memory(&clock)).start().await;
    let mut client = served.client().await;
    let question = keyed("jobs", "k", "one");
    let first: Sent = client.try_send(&question).await.good();
    // Settled or not: the key stays taken.
    let message = client.receive_one("jobs", 30_000).await;
    assert_eq!(client.ack_it(&message).await.status, 200);
    for step in [0, 1, 150_000, 299_999] {
        clock.advance(Duration::from_millis(step).saturating_sub(clock.elapsed()));
        let again: Sent = client.try_send(&question).await.good();
        assert!(again.duplicate && again.msg_id == first.msg_id, "after {step} ms");
        client.try_send(&keyed("jobs", "k", "two")).await.bad(409, "E_DUPLICATE");
    }
    clock.advance(Duration::from_millis(1));
    let fresh: Sent = client.try_send(&keyed("jobs", "k", "two")).await.good();
    assert!(!fresh.duplicate && fresh.msg_id != first.msg_id);
    assert_eq!(client.receive_one("jobs", 30_000).await.payload_b64, payload("two"));
}

#[tokio::test]
async fn a_full_table_of_keys_refuses_rather_than_forget() {
    let clock = ManualClock::new();
    let served = Rig::on(memory(&clock)).start().await;
    let mut client = served.client().await;
    let change = PolicyChange { dedup_capacity: Some(2), ..PolicyChange::default() };
    client.configure("jobs", change).await;
    for key in ["a", "b"] {
        assert!(!client.try_send(&keyed("jobs", key, key)).await.good::<Sent>().duplicate);
    }
    assert_eq!(
        client.try_send(&keyed("jobs", "c", "c")).await.bad(429, "E_SATURATED").kind,
        "saturated"
    );
    // Those that are known stay known, and messages without a key still get in.
    assert!(client.try_send(&keyed("jobs", "a", "a")).await.good::<Sent>().duplicate);
    client.send("jobs", "no key").await;
    clock.advance(Duration::from_secs(300));
    assert!(!client.try_send(&keyed("jobs", "c", "c")).await.good::<Sent>().duplicate);
}
