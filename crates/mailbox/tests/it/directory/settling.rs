//! Settling, and what is left of a message afterwards.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use mailbox::backends::directory::DirectoryConfig;
use mailbox::testing::ManualClock;
use mailbox::{
    Backend, DeadReason, Delivery, ErrorKind, Outgoing, ReceiptHandle, ReceiveOptions, Selection,
    Settlement, Verdict,
};

use super::{PATIENCE, Place, messages, nack, names, orders, receive, send, settle, text, until};

const TIMEOUT: Duration = Duration::from_secs(30);

fn reject() -> Verdict {
    Verdict::Reject { reason: DeadReason::Rejected, error: Some("no use".into()) }
}

async fn is_stale(place: &Place, delivery: &Delivery) -> bool {
    let extend = Verdict::Extend { timeout: TIMEOUT };
    for verdict in [nack(), extend, reject(), Verdict::Return, Verdict::Acknowledge] {
        match place.settle(delivery, verdict).await {
            Ok(()) => return false,
            Err(error) => assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired, "{error}"),
        }
    }
    true
}

#[tokio::test]
async fn a_handle_settles_its_delivery_and_no_other() {
    let clock = ManualClock::new();
    let place = Place::with(DirectoryConfig::default().with_clock((&clock).into())).await;
    place.send("work").await;
    let first = place.receive_now().await.unwrap();
    clock.advance(TIMEOUT);
    assert!(is_stale(&place, &first).await, "its time is over");
    let second = place.receive_now().await.unwrap();
    assert!(is_stale(&place, &first).await, "somebody else has it");
    place.settle(&second, Verdict::Extend { timeout: 2 * TIMEOUT }).await.unwrap();
    clock.advance(TIMEOUT);
    place.settle(&second, nack()).await.unwrap();
    assert!(is_stale(&place, &second).await, "it was nacked");
    let third = place.receive_now().await.unwrap();
    assert_eq!(third.delivery_count, 3);
    place.acknowledge(&third).await;
    for delivery in [&first, &second, &third] {
        assert!(is_stale(&place, delivery).await, "it is done");
    }
    assert_eq!(messages(&place.at("done")).len(), 1);
    assert_eq!((place.stats().await.live(), place.stats().await.dead), (0, 0));
}

#[tokio::test]
async fn handles_that_are_none_settle_nothing() {
    let place = Place::new().await;
    place.send("work").await;
    let delivery = place.receive().await;
    let good = delivery.receipt_handle.to_string();
    let lower = good.to_lowercase();
    for text in ["", "x", "../../inbox", "01JGFJK2X0QJ8XCA000000MW47", &good[1..], &lower, "*", "~"]
    {
        let receipt_handle = ReceiptHandle::from_text(text);
        let settlement = Settlement { receipt_handle, verdict: Verdict::Acknowledge };
        let settled = place.backend.settle(&orders(), vec![settlement]).await.unwrap().remove(0);
        let is_same = ReceiptHandle::from_text(text) == delivery.receipt_handle;
        assert!(!is_same, "{text}");
        assert_eq!(settled.unwrap_err().kind(), ErrorKind::ReceiptHandleExpired, "{text}");
    }
    place.acknowledge(&delivery).await;
}

#[tokio::test]
async fn a_handle_of_another_mailbox_settles_nothing() {
    let place = Place::new().await;
    place.send("work").await;
    let delivery = place.receive().await;
    let other = "other".parse().unwrap();
    let receipt_handle = delivery.receipt_handle.clone();
    let batch = vec![Settlement { receipt_handle, verdict: Verdict::Acknowledge }];
    for _ in 0..2 {
        let settled = place.backend.settle(&other, batch.clone()).await.unwrap().remove(0);
        assert_eq!(settled.unwrap_err().kind(), ErrorKind::ReceiptHandleExpired);
        let made = vec![Outgoing::new("makes it".into())];
        place.backend.send(&other, made).await.unwrap().remove(0).unwrap();
    }
    place.acknowledge(&delivery).await;
}

#[tokio::test]
async fn a_handle_settles_in_another_process_also_if_its_own_is_gone() {
    let place = Place::new().await;
    for number in 0..4 {
        place.send(&number.to_string()).await;
    }
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(place.receive().await);
    }
    let other = place.another(DirectoryConfig::default()).await;
    settle(&*other, &taken[0], Verdict::Acknowledge).await.unwrap();
    place.backend.close().await.unwrap();
    settle(&*other, &taken[1], Verdict::Extend { timeout: TIMEOUT }).await.unwrap();
    settle(&*other, &taken[1], Verdict::Acknowledge).await.unwrap();
    settle(&*other, &taken[2], reject()).await.unwrap();
    settle(&*other, &taken[3], nack()).await.unwrap();
    let again = receive(&*other, Duration::ZERO).await.unwrap().unwrap();
    assert_eq!((again.id.clone(), again.delivery_count), (taken[3].id.clone(), 2));
    let stats = other.stats(&orders()).await.unwrap();
    assert_eq!((stats.live(), stats.dead), (1, 1));
}

#[tokio::test]
async fn the_last_error_is_shown_until_there_is_another() {
    let place = Place::new().await;
    place.send("work").await;
    for why in ["first", "second"] {
        let error = Some(why.into());
        let delivery = place.receive().await;
        place.settle(&delivery, Verdict::Nack { delay: Duration::ZERO, error }).await.unwrap();
        assert_eq!(place.live().await[0].last_error.as_deref(), Some(why));
        assert_eq!(names(&place.at("notes")).len(), 1, "old notes go");
    }
    place.settle(&place.receive().await, reject()).await.unwrap();
    assert_eq!(place.dead().await[0].0.last_error.as_deref(), Some("no use"));
    assert_eq!(place.backend.delete_dead(&orders(), &Selection::All).await.unwrap(), 1);
    assert!(names(&place.at("notes")).is_empty());
}

#[tokio::test]
async fn a_purge_leaves_nothing_that_was_nacked_meanwhile() {
    const COUNT: usize = 20;
    let place = Place::new().await;
    for round in 0..15 {
        let batch = (0..COUNT).map(|_| Outgoing::new("work".into())).collect();
        place.backend.send(&orders(), batch).await.unwrap();
        let options = ReceiveOptions::new().with_max_messages(COUNT as u32);
        let taken = place.backend.receive(&orders(), &options).await.unwrap();
        assert_eq!(taken.len(), COUNT);
        let verdict = nack();
        let settlement = |delivery: Delivery| {
            let receipt_handle = delivery.receipt_handle;
            Settlement { receipt_handle, verdict: verdict.clone() }
        };
        let nacks = taken.into_iter().map(settlement).collect();
        let mailbox = orders();
        let (nacked, purged) =
            tokio::join!(place.backend.settle(&mailbox, nacks), place.backend.purge(&mailbox));
        for nacked in nacked.unwrap() {
            let kind = nacked.err().map(|error| error.kind());
            assert!(kind.is_none_or(|kind| kind == ErrorKind::ReceiptHandleExpired), "{kind:?}");
        }
        let left = place.stats().await.live();
        assert_eq!((purged.unwrap(), left), (COUNT as u64, 0), "round {round}");
    }
}

#[tokio::test]
async fn a_redriven_message_is_the_same_and_starts_anew() {
    let clock = ManualClock::new();
    let place = Place::with(DirectoryConfig::default().with_clock((&clock).into())).await;
    let id = place.send("work").await;
    let sent_at = place.live().await[0].letter.enqueued_at;
    for _ in 0..3 {
        clock.advance(TIMEOUT);
        let delivery = place.receive_now().await.unwrap();
        place.settle(&delivery, nack()).await.unwrap();
    }
    assert!(place.receive_now().await.is_none());
    assert_eq!(place.dead().await[0].1.reason, DeadReason::MaxAttempts);
    clock.advance(TIMEOUT);
    send(&*place.backend, "other").await;
    clock.advance(TIMEOUT);
    let these = Selection::These(vec![id.clone()]);
    assert_eq!(place.backend.redrive(&orders(), &these).await.unwrap(), 1);
    let error = place.backend.redrive(&orders(), &these).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    // Behind those that were waiting by then.
    assert_eq!(text(&place.receive_now().await.unwrap()), "other");
    let again = place.receive_now().await.unwrap();
    assert_eq!((again.id.clone(), again.delivery_count), (id, 1));
    assert_eq!(again.letter.enqueued_at, sent_at);
    place.acknowledge(&again).await;
}

/// Has the inbox cleared up, as is done now and then.
async fn until_done_has(place: &Place, config: &DirectoryConfig, count: usize) {
    until("done/ is tidied", || async {
        if let Ok(file) = File::options().write(true).open(place.at(".swept")) {
            file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        }
        let other = place.another(config.clone()).await;
        assert!(receive(&*other, Duration::ZERO).await.unwrap().is_none());
        messages(&place.at("done")).len() == count
    })
    .await;
}

async fn send_and_acknowledge(place: &Place, payload: &str) {
    place.send(payload).await;
    let delivery = place.receive_now().await.unwrap();
    place.acknowledge(&delivery).await;
}

#[tokio::test]
async fn done_keeps_the_last_ones_for_a_while() {
    let clock = ManualClock::new();
    let config = DirectoryConfig::default().with_clock((&clock).into());
    let place = Place::with(config.clone()).await;
    place.set("done_count", 5);
    place.set("done_age", "60s");
    for number in 0..12 {
        clock.advance(Duration::from_secs(1));
        send_and_acknowledge(&place, &format!("\"number {number}\"")).await;
    }
    until_done_has(&place, &config, 5).await;
    let kept = place.bash("cat done/*.json");
    for number in 0..12 {
        assert_eq!(kept.contains(&format!("\"number {number}\"")), number >= 7, "{number}");
    }
    clock.advance(Duration::from_secs(57));
    // Those that were acknowledged a minute ago and earlier are gone.
    until_done_has(&place, &config, 3).await;
    clock.advance(Duration::from_secs(60));
    until_done_has(&place, &config, 0).await;
}

#[tokio::test]
async fn where_nothing_is_kept_an_acknowledged_message_is_gone() {
    for (key, value) in [("done_count", serde_json::json!(0)), ("done_age", "0s".into())] {
        let place = Place::new().await;
        place.set(key, value);
        send_and_acknowledge(&place, "work").await;
        let left = ["incoming", "processing", "done", "dead-letter"]
            .map(|shelf| messages(&place.at(shelf)).len());
        assert_eq!(left, [0; 4], "{key}");
    }
}

#[tokio::test]
async fn acks_has_a_file_for_each_acknowledged_message() {
    let place = Place::new().await;
    let unconfirmed = place.send("before").await;
    place.acknowledge(&place.receive().await).await;
    place.set("acks", true);
    let id = place.send("ours").await;
    let uuid = "550e8400-e29b-41d4-a716-446655440000";
    place.put(&format!("incoming/1765135800-agent-{uuid}.json"), "1");
    place.put("incoming/named.json", "1");
    let dead = place.send("dead").await;
    for _ in 0..4 {
        let delivery = place.receive_within(PATIENCE).await.unwrap();
        let verdict = if delivery.id == dead { reject() } else { Verdict::Acknowledge };
        place.settle(&delivery, verdict).await.unwrap();
    }
    let mut expected = [id.to_string(), uuid.to_owned(), "named".to_owned()];
    expected.sort_unstable();
    assert_eq!(names(&place.at("acks")), expected);
    assert!(!place.at("acks").join(unconfirmed.to_string()).exists());
    // Somebody put something in its place: it is still acknowledged.
    let id = place.send("again").await;
    fs::create_dir(place.at("acks").join(id.to_string())).unwrap();
    place.acknowledge(&place.receive().await).await;
    assert_eq!(place.stats().await.live(), 0);
}
