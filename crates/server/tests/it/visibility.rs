//! Visibility and receipts through the door: hidden while somebody has it, back when the time is
//! up, gone when it is acknowledged; and nothing but the right handle settles a delivery.

use std::time::Duration;

use mailbox::testing::ManualClock;
use mailbox_wire::json::{PolicyChange, SettleItem, SettleOp, SettleResult, SettledBatch};

use crate::rig::{Client, Dice, Rig, memory, message};

#[tokio::test]
async fn a_delivery_is_hidden_until_its_deadline_and_back_after_it() {
    let clock = ManualClock::new();
    let served = Rig::on(memory(&clock)).start().await;
    let mut client = served.client().await;
    let sent = client.send("jobs", "one").await;
    let first = client.receive_one("jobs", 1000).await;
    assert_eq!((first.msg_id.as_str(), first.attempt), (sent.msg_id.as_str(), 1));
    clock.advance(Duration::from_millis(999));
    assert!(client.receive("jobs", 1, 1000).await.is_empty());
    clock.advance(Duration::from_millis(1));
    let second = client.receive_one("jobs", 1000).await;
    assert_eq!((second.msg_id.as_str(), second.attempt), (sent.msg_id.as_str(), 2));
    // The first receiver is too late.
    let problem = client.ack_it(&first).await.bad(404, "E_RECEIPT");
    assert_eq!(problem.kind, "receipt_handle_expired");
    client.extend(&first, 1000).await.bad(404, "E_RECEIPT");
    client.nack(&first, false).await.bad(404, "E_RECEIPT");
    // An extension counts from now.
    clock.advance(Duration::from_millis(900));
    assert_eq!(client.extend(&second, 1000).await.status, 200);
    clock.advance(Duration::from_millis(900));
    assert!(client.receive("jobs", 1, 1000).await.is_empty());
    assert_eq!(client.ack_it(&second).await.status, 200);
}

#[tokio::test]
async fn an_acknowledgement_is_final() {
    let clock = ManualClock::new();
    let served = Rig::on(memory(&clock)).start().await;
    let mut client = served.client().await;
    client.send("jobs", "one").await;
    let message = client.receive_one("jobs", 1000).await;
    assert_eq!(client.ack_it(&message).await.status, 200);
    for _ in 0..2 {
        client.ack_it(&message).await.bad(404, "E_RECEIPT");
        client.ack(&message.msg_id, None).await.bad(404, "E_RECEIPT");
        client.nack(&message, true).await.bad(404, "E_RECEIPT");
    }
    clock.advance(Duration::from_secs(3600));
    assert!(client.receive("jobs", 1, 1000).await.is_empty());
    let path = format!("/v1/messages/{}?topic=jobs", message.msg_id);
    client.get(&path).await.bad(404, "E_NOT_FOUND");
}

#[tokio::test]
async fn an_acknowledgement_by_message_id_is_of_the_last_delivery() {
    let clock = ManualClock::new();
    let served = Rig::on(memory(&clock)).start().await;
    let mut client = served.client().await;
    let sent = client.send("jobs", "one").await;
    client.ack(&sent.msg_id, None).await.bad(404, "E_RECEIPT");
    let first = client.receive_one("jobs", 1000).await;
    clock.advance(Duration::from_secs(1));
    let second = client.receive_one("jobs", 1000).await;
    client.ack_it(&first).await.bad(404, "E_RECEIPT");
    assert_eq!(client.ack(&sent.msg_id, None).await.status, 200);
    client.ack_it(&second).await.bad(404, "E_RECEIPT");
    assert_eq!(client.stats("jobs").await.totals.acknowledged, 1);
}

#[tokio::test]
async fn an_acknowledgement_by_message_id_after_the_deadline_is_refused() {
    let clock = ManualClock::new();
    let served = Rig::on(memory(&clock)).start().await;
    let mut client = served.client().await;
    let sent = client.send("jobs", "one").await;
    client.receive_one("jobs", 1000).await;
    clock.advance(Duration::from_secs(1));
    client.ack(&sent.msg_id, None).await.bad(404, "E_RECEIPT");
    assert_eq!(client.receive_one("jobs", 1000).await.attempt, 2);
}

#[tokio::test]
async fn a_handle_settles_its_own_message_in_its_own_mailbox_alone() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    for topic in ["jobs", "other"] {
        client.send_batch(topic, vec![message("one"), message("two")]).await;
    }
    let jobs = client.receive("jobs", 2, 30_000).await;
    let other = client.receive("other", 2, 30_000).await;
    let handle = jobs[0].receipt_handle.as_deref().unwrap();
    // Of another message of the same mailbox, and of another mailbox.
    client.ack(&jobs[1].msg_id, Some(handle)).await.bad(404, "E_RECEIPT");
    client.ack(&other[0].msg_id, Some(handle)).await.bad(404, "E_RECEIPT");
    // The same handle, said to be of another mailbox.
    let (_, tail) = handle.split_once('/').unwrap();
    client.ack(&jobs[0].msg_id, Some(&format!("other/{tail}"))).await.bad(404, "E_RECEIPT");
    client.ack(&jobs[0].msg_id, Some(&format!("nowhere/{tail}"))).await.bad(404, "E_RECEIPT");
    // Nothing has happened to any of them.
    for topic in ["jobs", "other"] {
        let stats = client.stats(topic).await;
        assert_eq!((stats.invisible, stats.totals.acknowledged), (2, 0), "{topic}");
    }
    assert_eq!(client.ack_it(&jobs[0]).await.status, 200);
}

#[tokio::test]
async fn deliveries_that_are_refused_too_often_become_dead_letters() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let change = PolicyChange { max_attempts: Some(Some(2)), ..PolicyChange::default() };
    client.configure("jobs", change).await;
    let sent = client.send("jobs", "poison").await;
    for attempt in 1..=2 {
        let message = client.receive_one("jobs", 30_000).await;
        assert_eq!(message.attempt, attempt);
        assert_eq!(client.nack(&message, false).await.status, 200);
    }
    assert!(client.receive("jobs", 1, 30_000).await.is_empty());
    let dead = client.dead("jobs").await.messages;
    assert_eq!(dead.len(), 1);
    let (letter, death) = (&dead[0], dead[0].death.as_ref().unwrap());
    assert_eq!(letter.envelope.msg_id, sent.msg_id);
    assert_eq!((death.reason.as_str(), letter.envelope.attempt), ("max_attempts", 2));
    assert_eq!(letter.last_error.as_deref(), Some("not today"));
    // It comes back only when somebody says so.
    assert_eq!(client.reprocess("jobs").await.status, 200);
    assert_eq!(client.receive_one("jobs", 30_000).await.attempt, 1);
}

/// Handles of each kind that are tried.
const GUESSES: usize = 25_000;
/// Handles of one request.
const BATCH: usize = 250;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_handle_is_accepted_that_was_guessed_is_stale_or_of_another_mailbox() {
    let clock = ManualClock::new();
    let served = Rig::on(memory(&clock)).start().await;
    let mut client = served.client().await;
    let mut stale = Vec::new();
    for topic in ["a", "b"] {
        client.send_batch(topic, (0..BATCH).map(|at| message(at.to_string())).collect()).await;
        for _ in 0..4 {
            let got = client.receive(topic, 256, 1000).await;
            assert_eq!(got.len(), BATCH);
            stale.extend(got.into_iter().map(|it| it.receipt_handle.unwrap()));
            clock.advance(Duration::from_secs(1));
        }
    }
    let mut live = Vec::new();
    for topic in ["a", "b"] {
        let got = client.receive(topic, 256, 43_200_000).await;
        assert_eq!(got.len(), BATCH);
        live.extend(got.into_iter().map(|it| it.receipt_handle.unwrap()));
    }
    let mut dice = Dice(7);
    let kinds: [Kind; 4] = [guessed, |dice, _, stale| dice.pick(stale).clone(), elsewhere, mutated];
    for kind in kinds {
        for _ in 0..GUESSES / BATCH {
            let handles = (0..BATCH).map(|_| kind(&mut dice, &live, &stale));
            let items: Vec<_> = handles.filter(|it| !live.contains(it)).map(item).collect();
            let question = mailbox_wire::json::SettleBatchRequest { items };
            let answer: SettledBatch = client.post("/v1/settle/batch", &question).await.good();
            for result in answer.results {
                let SettleResult::Refused { error } = result else { panic!("accepted") };
                assert_eq!(error.code, "E_RECEIPT");
            }
        }
    }
    for topic in ["a", "b"] {
        let stats = client.stats(topic).await;
        assert_eq!((stats.invisible, stats.totals.acknowledged), (BATCH as u64, 0));
    }
}

/// Makes a handle, knowing those that are good and those that were.
type Kind = fn(&mut Dice, &[String], &[String]) -> String;

fn item(handle: String) -> SettleItem {
    SettleItem {
        op: SettleOp::Ack,
        msg_id: None,
        receipt_handle: Some(handle),
        reason: None,
        delay_ms: None,
        dead: None,
        dead_reason: None,
        visibility_ms: None,
    }
}

/// Something that looks like a handle.
fn guessed(dice: &mut Dice, live: &[String], _: &[String]) -> String {
    let like = dice.pick(live).clone();
    let (topic, tail) = like.split_once('/').unwrap();
    let guess = tail.chars().map(|letter| match letter {
        '0'..='9' | 'a'..='f' => char::from(b"0123456789abcdef"[dice.below(16)]),
        other => other,
    });
    format!("{topic}/{}", guess.collect::<String>())
}

/// One that is good, but for another mailbox.
fn elsewhere(dice: &mut Dice, live: &[String], _: &[String]) -> String {
    let handle = dice.pick(live);
    let (topic, tail) = handle.split_once('/').unwrap();
    format!("{}/{tail}", if topic == "a" { "b" } else { "a" })
}

/// One that is good but for one byte.
fn mutated(dice: &mut Dice, live: &[String], _: &[String]) -> String {
    let mut bytes = dice.pick(live).clone().into_bytes();
    let at = dice.below(bytes.len());
    match dice.below(3) {
        0 => bytes[at] = b"0123456789abcdefghijklmnopqrstuvwxyz/-_. "[dice.below(41)],
        1 => drop(bytes.remove(at)),
        _ => bytes.insert(at, b'0'),
    }
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_receive_that_hides_nothing_hands_out_whatever_it_has_counted() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    for letter in ["a", "b", "c"] {
        client.send("jobs", letter.repeat(300_000)).await;
    }
    let counts = async |client: &mut Client| {
        let received = client.receive("jobs", 3, 0).await;
        received.iter().map(|message| message.attempt).collect::<Vec<_>>()
    };
    assert_eq!(counts(&mut client).await, [1, 1, 1], "more bytes than one receive gives otherwise");
    assert_eq!(counts(&mut client).await, [2, 2, 2]);
}

#[tokio::test]
async fn what_others_have_received_takes_the_right_to_give_back() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    client.send("jobs", "one").await;
    let held = client.receive_one("jobs", 30_000).await;
    let give_back = format!(r#"{{"items":[{{"op":"return","msg_id":"{}"}}]}}"#, held.msg_id);
    let mut other = served.client_with(&served.mint(&["op = recv"])).await;
    let refused = other.raw("POST", "/v1/settle/batch", &[], give_back.as_bytes()).await;
    assert!(refused.text().contains("\"reason\":\"op\""), "{}", refused.text());
    assert_eq!(client.stats("jobs").await.invisible, 1, "it is still the first one's");
    let own = client.raw("POST", "/v1/settle/batch", &[], give_back.as_bytes()).await;
    assert!(own.text().contains("\"ok\":true"), "{}", own.text());
    assert_eq!(client.receive_one("jobs", 30_000).await.attempt, 1);
}

/// It said which mailbox the message is in, to somebody who only knew its id.
#[tokio::test]
async fn whoever_may_not_settle_a_message_by_its_id_does_not_learn_where_it_is() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    client.send("secret", "one").await;
    let held = client.receive_one("secret", 30_000).await;
    let narrow = served.mint(&["op = recv,ack,nack", "topic = mine"]);
    let mut stranger = served.client_with(&narrow).await;
    for (call, body) in [
        ("ack", "{}"),
        ("nack", "{}"),
        ("extend", r#"{"visibility_ms":1000}"#),
        ("extend", r#"{"visibility_ms":0}"#),
    ] {
        let path = format!("/v1/{call}/{}", held.msg_id);
        let refused = stranger.raw("POST", &path, &[], body.as_bytes()).await;
        assert!(!refused.text().contains("secret"), "{call}: {}", refused.text());
        refused.refused(403, "topic");
    }
    // What is lacking is named; the mailbox too to whoever has the handle, and so knows it.
    let mut other = served.client_with(&served.mint(&["op = recv,ack"])).await;
    let path = format!("/v1/nack/{}", held.msg_id);
    let refused = other.raw("POST", &path, &[], b"{}").await;
    let message = refused.bad(403, "E_CAP_SCOPE").message;
    assert!(message.ends_with(": nack"), "{message}");
    let body = serde_json::json!({ "receipt_handle": held.receipt_handle }).to_string();
    let path = format!("/v1/ack/{}", held.msg_id);
    let refused = stranger.raw("POST", &path, &[], body.as_bytes()).await;
    let message = refused.bad(403, "E_CAP_SCOPE").message;
    assert!(message.ends_with(": secret"), "{message}");
    assert_eq!(client.stats("secret").await.invisible, 1);
}

/// One that made no sense refused all others.
#[tokio::test]
async fn a_settlement_that_makes_no_sense_is_nothing_to_the_others() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    client.send("jobs", "one").await;
    let held = client.receive_one("jobs", 30_000).await;
    let handle = held.receipt_handle;
    let question = serde_json::json!({ "items": [
        { "op": "extend", "receipt_handle": "x" },
        { "op": "ack", "receipt_handle": handle },
        { "op": "ack" },
    ]});
    let body = question.to_string();
    let reply = client.raw("POST", "/v1/settle/batch", &[], body.as_bytes()).await;
    let answer: serde_json::Value = reply.good();
    let results = &answer["results"];
    assert_eq!(results[0]["error"]["field"], "visibility_ms", "{answer}");
    assert_eq!(results[1]["ok"], true, "{answer}");
    assert_eq!(results[2]["error"]["field"], "receipt_handle", "{answer}");
    assert_eq!(client.stats("jobs").await.invisible, 0);
    let nonsense = br#"{"items":[{"op":"ack"}]}"#;
    let answer: serde_json::Value =
        client.raw("POST", "/v1/settle/batch", &[], nonsense).await.good();
    assert_eq!(answer["results"][0]["error"]["code"], "E_SCHEMA", "{answer}");
}
