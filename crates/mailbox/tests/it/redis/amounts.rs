//! What must not go wrong however much there is, or whatever somebody has written: a damaged
//! message ends, nothing is searched for in a long line, an answer is not too large, and a group
//! whose first is gone goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use mailbox::backends::redis::RedisBackend;
use mailbox::{Backend, DeadReason, Delivery, Outgoing, Peek, Policy, Retention, Verdict};

use super::proxy::{Fault, Proxy};
use super::stage::receive_for;
use super::{Place, SOON, jobs, key, millis, nack, seconds, until};

fn grouped(payload: &str, group: &str) -> Outgoing {
    let mut message = Outgoing::new(payload.to_owned().into());
    message.group = Some(group.into());
    message
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.letter.payload).into_owned()
}

impl Place {
    async fn receive_many(&self, most: u32, wait: Duration, timeout: Duration) -> Vec<Delivery> {
        receive_for(&self.backend, "jobs", most, wait, timeout).await.unwrap()
    }

    /// Ids and reasons of dead letters.
    async fn dead(&self) -> Vec<(String, DeadReason)> {
        let dead = Peek::Dead { after: None, limit: 10 };
        let dead = self.backend.peek(&jobs(), &dead).await.unwrap();
        dead.iter().map(|one| (one.id.to_string(), one.death.unwrap().reason)).collect()
    }

    /// Receives one after the other, and acknowledges, until there is no more.
    async fn drain(&self) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(taken) = self.receive(seconds(30)).await {
            self.settle(&taken, Verdict::Acknowledge).await.unwrap();
            seen.push(text(&taken));
            assert!(seen.len() < 100, "the same again and again: {seen:?}");
        }
        seen
    }

    /// Sends many, as many calls as needed.
    async fn send_many(&self, message: &Outgoing, count: usize, at_a_time: usize) {
        for _ in 0..count / at_a_time {
            let sent = self.backend.send(&jobs(), vec![message.clone(); at_a_time]).await.unwrap();
            assert!(sent.iter().all(Result::is_ok));
        }
    }
}

#[tokio::test]
async fn a_damaged_message_that_is_received_for_no_time_becomes_a_dead_letter() {
    for (most, wait) in [(10, Duration::ZERO), (10, seconds(5)), (1, Duration::ZERO)] {
        let place = Place::new().await;
        let damaged = place.send("1").await;
        let good = [place.send("2").await, place.send("3").await];
        place.run::<()>(&["HSET", &key("data"), &damaged, "not what was sent"]);
        let mut seen = BTreeSet::new();
        for _ in 0..6 {
            for taken in place.receive_many(most, wait, Duration::ZERO).await {
                assert_ne!(taken.id.to_string(), damaged, "it is delivered");
                seen.insert(taken.id.to_string());
            }
        }
        assert_eq!(seen, BTreeSet::from(good.clone()), "{most} {wait:?}");
        assert_eq!(place.dead().await, [(damaged.clone(), DeadReason::Integrity)], "{most}");
        // Its neighbours are in line, held by nobody.
        assert_eq!(place.scores("invisible"), []);
        let in_line: BTreeSet<String> = place.list("pending").into_iter().collect();
        assert_eq!(in_line, BTreeSet::from(good));
    }
}

#[tokio::test]
async fn a_damaged_message_alone_is_a_dead_letter_when_a_receive_for_no_time_comes_back() {
    let place = Place::new().await;
    let damaged = place.send("1").await;
    place.run::<()>(&["HSET", &key("data"), &damaged, "not what was sent"]);
    assert!(place.receive_many(1, Duration::ZERO, Duration::ZERO).await.is_empty());
    assert_eq!(place.dead().await, [(damaged, DeadReason::Integrity)]);
    assert_eq!(place.parts(), ["dead", "graves", "state"]);
}

#[tokio::test]
async fn a_damaged_message_that_is_held_for_no_longer_than_a_moment_becomes_a_dead_letter() {
    let place = Place::new().await;
    let damaged = place.send("1").await;
    place.run::<()>(&["HSET", &key("data"), &damaged, "not what was sent"]);
    let receiving = place.receive_many(1, Duration::ZERO, Duration::from_micros(1));
    let taken = tokio::time::timeout(SOON, receiving).await.expect("it comes back");
    assert!(taken.is_empty(), "{taken:?}");
    assert_eq!(place.dead().await, [(damaged, DeadReason::Integrity)]);
}

#[tokio::test]
async fn good_messages_are_handed_over_also_if_nobody_says_that_a_damaged_one_has_ended() {
    let place = Place::new().await;
    let proxy = Proxy::before(&place.node).await;
    let backend = RedisBackend::open(&proxy.url()).await.unwrap();
    // The server knows the scripts.
    place.send("0").await;
    let zero = place.receive(seconds(30)).await.unwrap();
    place.settle(&zero, Verdict::Acknowledge).await.unwrap();
    let damaged = place.send("1").await;
    let good = place.send("2").await;
    place.run::<()>(&["HSET", &key("data"), &damaged, "not what was sent"]);
    proxy.hold();
    let receiving = tokio::spawn(async move {
        receive_for(&backend, "jobs", 10, Duration::ZERO, seconds(30)).await
    });
    until("both are taken", || async { place.scores("invisible").len() == 2 }).await;
    // The answer arrives, and what is said next is lost.
    proxy.harm_next(Fault::ReplyLost);
    proxy.let_go();
    let taken = receiving.await.unwrap().expect("the rest is good");
    assert!(proxy.is_harm_done());
    let ids: Vec<String> = taken.iter().map(|one| one.id.to_string()).collect();
    assert_eq!(ids, [good]);
    place.settle(&taken[0], Verdict::Acknowledge).await.unwrap();
}

#[tokio::test]
async fn what_is_held_is_settled_without_a_search_through_the_line() {
    let place = Place::new().await;
    place.send_many(&Outgoing::new("1".into()), 5_000, 250).await;
    let held = place.receive_many(7, Duration::ZERO, seconds(30)).await;
    // The server knows the script.
    place.settle(&held[6], Verdict::Acknowledge).await.unwrap();
    place.run::<()>(&["CONFIG", "RESETSTAT"]);
    let (reason, error) = (DeadReason::Rejected, None);
    let verdicts = [
        Verdict::Extend { timeout: seconds(60) },
        nack(Duration::ZERO),
        nack(seconds(60)),
        Verdict::Reject { reason, error },
        Verdict::Return,
        Verdict::Acknowledge,
    ];
    for (delivery, verdict) in held.iter().zip(verdicts) {
        place.settle(delivery, verdict).await.unwrap();
    }
    place.settle(&held[0], Verdict::Extend { timeout: seconds(90) }).await.unwrap();
    assert_eq!(place.scripts(), 7);
    for search in ["lrem", "lpos", "lrange", "linsert"] {
        assert_eq!(place.calls(search), 0, "{search}");
    }
    // They are where they have to be.
    assert_eq!(place.list("pending").len(), 4_993 + 2);
    assert_eq!(place.scores("invisible").len(), 2);
}

#[tokio::test]
async fn a_late_extension_finds_its_message_among_those_that_came_back_last() {
    let place = Place::new().await;
    let late_settle = mailbox::LateSettle::UntilRedelivered;
    let policy = Policy { late_settle, ..Policy::default() };
    place.backend.configure(&jobs(), policy).await.unwrap();
    place.send_many(&Outgoing::new("1".into()), 500, 250).await;
    let held = place.receive(millis(1)).await.unwrap();
    place.until_all_due().await;
    place.settle(&held, Verdict::Extend { timeout: seconds(60) }).await.unwrap();
    let [(id, due)]: [(String, f64); 1] = place.scores("invisible").try_into().unwrap();
    assert_eq!(id, held.id.to_string());
    assert!(due - place.now() > 30.0);
    let in_line = place.list("pending");
    assert!(in_line.len() == 499 && !in_line.contains(&id), "it has one place");
}

#[tokio::test]
async fn one_that_waits_behind_the_first_of_its_group_can_be_taken_out() {
    let place = Place::new().await;
    let first = place.send_message(grouped("1", "g")).await;
    let second = place.send_message(grouped("2", "g")).await;
    place.send_message(grouped("3", "g")).await;
    let held = place.receive(seconds(30)).await.unwrap();
    assert_eq!(held.id.to_string(), first);
    // As if the first had been sent last: the oldest one waits behind it.
    place.run::<()>(&["ZADD", &key("ages"), "99", &first]);
    place.run::<()>(&["CONFIG", "RESETSTAT"]);
    let retention = Retention { ready_count: Some(2), ..Retention::default() };
    let policy = Policy { retention, ..Policy::default() };
    place.backend.configure(&jobs(), policy).await.unwrap();
    assert!(place.receive(seconds(30)).await.is_none());
    assert_eq!(place.dead().await, [(second, DeadReason::Expired)]);
    assert_eq!(place.scores("waiting").len(), 1, "the third one");
    assert_eq!(place.calls("lrem"), 0, "the line is not searched");
    place.settle(&held, Verdict::Acknowledge).await.unwrap();
    assert_eq!(place.drain().await, ["3"]);
    assert_eq!(place.parts(), ["dead", "gone", "graves", "rules", "state"]);
}

#[tokio::test]
async fn a_group_goes_on_after_others_have_deleted_all_they_know() {
    // A few who waited, and more than one call clears away.
    for behind in [0, 3, 1_250] {
        let place = Place::new().await;
        place.send_message(grouped("old", "g")).await;
        let at_a_time = if behind > 250 { 250 } else { 1 };
        place.send_many(&grouped("old", "g"), behind, at_a_time).await;
        assert_eq!(place.scores("waiting").len(), behind);
        let [pending, invisible, data, meta] = ["pending", "invisible", "data", "meta"].map(key);
        place.run::<()>(&["DEL", &pending, &invisible, &data, &meta]);
        let new = place.send_message(grouped("new", "g")).await;
        if behind < 1_000 {
            // For everybody: others look at nothing else.
            assert_eq!(place.list("pending"), [new], "behind {behind}");
        }
        place.send_message(grouped("newer", "g")).await;
        place.send_message(grouped("other", "h")).await;
        let mut seen = place.drain().await;
        seen.retain(|payload| payload != "other");
        assert_eq!(seen, ["new", "newer"], "behind {behind}");
        assert_eq!(place.scores("waiting"), []);
        assert!(place.hash("heads").is_empty());
    }
}

#[tokio::test]
async fn a_receive_of_many_large_messages_gives_some_and_the_next_ones_the_rest() {
    const SIZE: usize = 256 * 1024;
    const LARGE: usize = 8 * 1024 * 1024;
    let place = Place::new().await;
    place.send_many(&Outgoing::new(vec![b'7'; SIZE].into()), 256, 16).await;
    let (mut ids, mut calls) = (BTreeSet::new(), 0);
    while ids.len() < 256 {
        let taken = place.receive_many(256, Duration::ZERO, seconds(3_600)).await;
        let bytes: usize = taken.iter().map(|one| one.letter.payload.len()).sum();
        assert!(!taken.is_empty(), "{} of 256 after {calls} calls", ids.len());
        assert!(bytes <= LARGE + 16 * SIZE, "{bytes} bytes in one answer");
        assert!(calls > 0 || bytes >= LARGE, "{bytes} bytes: less than there is room for");
        for delivery in taken {
            assert_eq!(delivery.delivery_count, 1);
            assert!(ids.insert(delivery.id.to_string()), "{} twice", delivery.id);
        }
        calls += 1;
    }
    assert!(place.receive_many(1, Duration::ZERO, seconds(30)).await.is_empty());
    assert_eq!(place.scores("invisible").len(), 256);
    // Small ones come all at once.
    let place = Place::new().await;
    place.send_many(&Outgoing::new("1".into()), 256, 256).await;
    assert_eq!(place.receive_many(256, Duration::ZERO, seconds(30)).await.len(), 256);
}

#[tokio::test]
async fn order_is_kept_where_somebody_has_written_another_number() {
    let hostile = [
        "9000000000000000",
        "9007199254740993",
        "9223372036854775807",
        "9e15",
        "many",
        "1.5",
        "",
        "-1",
        "-9223372036854775808",
    ];
    for stamp in hostile {
        let place = Place::new().await;
        for payload in ["g1", "g2"] {
            place.send_message(grouped(payload, "g")).await;
        }
        place.send("p1").await;
        place.run::<()>(&["HSET", &key("state"), "stamp", stamp]);
        place.send_message(grouped("g3", "g")).await;
        place.send("p2").await;
        place.run::<()>(&["HSET", &key("state"), "stamp", stamp]);
        for payload in ["g4", "g5"] {
            place.send_message(grouped(payload, "g")).await;
        }
        place.run::<()>(&["HSET", &key("state"), "stamp", stamp]);
        // Given back to where they were, in the order of their deliveries.
        let taken = place.receive_many(3, Duration::ZERO, seconds(30)).await;
        assert_eq!(taken.iter().map(text).collect::<Vec<_>>(), ["g1", "p1", "p2"], "{stamp:?}");
        for delivery in taken.iter().rev() {
            place.settle(delivery, Verdict::Return).await.unwrap();
        }
        let seen = place.drain().await;
        let of = |what: char| -> Vec<&str> {
            seen.iter().map(String::as_str).filter(|one| one.starts_with(what)).collect()
        };
        assert_eq!(of('g'), ["g1", "g2", "g3", "g4", "g5"], "{stamp:?}");
        assert_eq!(of('p'), ["p1", "p2"], "{stamp:?}");
    }
}
