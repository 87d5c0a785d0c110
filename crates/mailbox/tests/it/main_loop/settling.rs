//! Settling when the backend fails in the middle of it: what is done is done, what is lost is
//! called lost.

use std::time::Duration;

use mailbox::ErrorKind;
use mailbox::main_loop::{Health, LoopOptions};
use tokio::time::Instant;

use super::faulty::{Fault, Faulty};
use super::{Running, ask, echo, handler, pairs, reply, seconds, until};

const TIMEOUT: Duration = Duration::from_secs(30);

fn options() -> LoopOptions {
    LoopOptions::new().with_visibility_timeout(TIMEOUT).with_concurrency(1)
}

/// Waits until the loop has answered once and has nothing to do; stops it.
async fn after_one(running: Running) -> Health {
    until(|| running.health().handled == 1 && running.health().in_flight == 0).await;
    running.stop().await
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_is_never_answered_is_tried_again_within_the_lease() {
    let (backend, requests, replies) = Faulty::pair();
    backend.acknowledge_with([Fault::Hangs]);
    let begin = Instant::now();
    let running = Running::with(&requests, options(), echo());
    ask(&requests, &replies, "one").await;
    ask(&requests, &replies, "two").await;
    assert_eq!(reply(&replies).await.outcome.unwrap(), "one!");
    assert_eq!(reply(&replies).await.outcome.unwrap(), "two!");
    let elapsed = begin.elapsed();
    assert!((TIMEOUT / 3..TIMEOUT).contains(&elapsed), "{elapsed:?}");
    until(|| running.health().in_flight == 0).await;
    let health = running.stop().await;
    assert_eq!((health.handled, health.lease_lost), (2, 0));
    assert_eq!(requests.approximate_count().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_that_are_never_answered_take_a_place_no_longer_than_the_lease() {
    let (backend, requests, replies) = Faulty::pair();
    backend.acknowledge_with([Fault::Hangs, Fault::Hangs, Fault::Hangs]);
    let begin = Instant::now();
    let running = Running::with(&requests, options(), echo());
    ask(&requests, &replies, "one").await;
    ask(&requests, &replies, "two").await;
    assert_eq!(reply(&replies).await.outcome.unwrap(), "one!");
    let mut others =
        [reply(&replies).await.outcome.unwrap(), reply(&replies).await.outcome.unwrap()];
    let elapsed = begin.elapsed();
    assert!((TIMEOUT..TIMEOUT * 4 / 3 + seconds(1)).contains(&elapsed), "{elapsed:?}");
    others.sort_unstable();
    assert_eq!(others, ["one!", "two!"], "the place is free, and the first one came back");
    until(|| running.health().in_flight == 0).await;
    let health = running.stop().await;
    assert_eq!((health.handled, health.lease_lost), (3, 1));
    assert_eq!(requests.approximate_count().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_whose_answer_was_lost_is_done() {
    let (backend, requests, replies) = Faulty::pair();
    backend.acknowledge_with([Fault::AnswerLost]);
    let running = Running::with(&requests, options(), echo());
    ask(&requests, &replies, "hello").await;
    let health = after_one(running).await;
    assert_eq!((health.handled, health.lease_lost), (1, 0));
    assert_eq!(backend.asked("Acknowledge"), 2, "asked again: {:?}", backend.log.lock());
    assert_eq!(requests.approximate_count().await.unwrap(), 0);
}

/// Nothing was in doubt: it was the first try.
#[tokio::test(start_paused = true)]
async fn a_stale_first_acknowledgement_is_a_lost_lease() {
    for (requests, replies) in pairs() {
        let purged = requests.clone();
        let running = Running::with(
            &requests,
            options(),
            handler(move |text, _| {
                let purged = purged.clone();
                async move {
                    purged.purge().await.unwrap();
                    Ok(text)
                }
            }),
        );
        ask(&requests, &replies, "hello").await;
        let health = after_one(running).await;
        assert_eq!((health.handled, health.lease_lost), (1, 1), "answered, and lost");
    }
}

/// Nothing was in doubt: the first try was refused.
#[tokio::test(start_paused = true)]
async fn a_stale_acknowledgement_after_a_refusal_is_a_lost_lease() {
    let (backend, requests, replies) = Faulty::pair();
    backend.acknowledge_with([Fault::Fails(ErrorKind::Saturated)]);
    let running = Running::with(&requests, options(), echo());
    ask(&requests, &replies, "hello").await;
    until(|| backend.asked("Acknowledge") == 1).await;
    requests.purge().await.unwrap();
    let health = after_one(running).await;
    assert_eq!((health.handled, health.lease_lost), (1, 1));
    assert_eq!(backend.asked("Acknowledge"), 2);
}

/// The first tries were in doubt, but when the last was answered the lease had run out: it comes
/// again, for all we know.
#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_is_stale_because_the_lease_ran_out_is_a_lost_lease() {
    let (backend, requests, replies) = Faulty::pair();
    // Received at 0 s, known at 10 s, over at 30 s; the fourth try comes after that.
    *backend.receive_delay.lock() = seconds(10);
    backend.no_extend.store(true, std::sync::atomic::Ordering::Relaxed);
    let in_doubt = [Fault::Fails(ErrorKind::Connection), Fault::Hangs, Fault::Hangs];
    backend.acknowledge_with(in_doubt);
    ask(&requests, &replies, "hello").await;
    let running = Running::with(&requests, options(), echo());
    until(|| running.health().lease_lost == 1).await;
    assert_eq!(backend.asked("Acknowledge"), 4);
    until(|| running.health().handled == 2 && running.health().in_flight == 0).await;
    assert_eq!(running.stop().await.lease_lost, 1, "the second delivery is acknowledged");
}
