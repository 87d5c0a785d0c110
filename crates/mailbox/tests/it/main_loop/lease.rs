//! Keeping leases, and losing them (P4).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mailbox::Peek;
use mailbox::main_loop::{Handler, LoopOptions};
use tokio::time::{Instant, sleep};

use super::faulty::Faulty;
use super::{Requests, Running, ask, handler, pairs, reply, seconds, until};

const TIMEOUT: Duration = Duration::from_secs(30);

fn options() -> LoopOptions {
    LoopOptions::new().with_visibility_timeout(TIMEOUT)
}

async fn lease_left(requests: &Requests) -> Duration {
    requests.peek(Peek::Live { limit: 1 }).await.unwrap()[0].receivable_in()
}

/// In another implementation the first heartbeat only noted that it was there.
#[tokio::test(start_paused = true)]
async fn p4_the_first_heartbeat_extends() {
    for (requests, replies) in pairs() {
        let running = Running::with(
            &requests,
            options(),
            handler(|text, _| async move {
                sleep(seconds(12)).await;
                Ok(text)
            }),
        );
        ask(&requests, &replies, "hello").await;
        sleep(seconds(9)).await;
        assert!(lease_left(&requests).await <= seconds(22), "not yet");
        sleep(seconds(2)).await;
        assert!(lease_left(&requests).await >= seconds(28), "extended after a third");
        reply(&replies).await.outcome.unwrap();
        running.stop().await;
    }
}

/// Late enough to cost little, early enough for more than one try before the lease is over.
#[tokio::test(start_paused = true)]
async fn p4_a_lease_is_extended_each_time_a_third_of_it_is_over() {
    let (backend, requests, replies) = Faulty::pair();
    ask(&requests, &replies, "hello").await;
    let begin = Instant::now();
    let running = Running::with(&requests, options(), sleeping(seconds(35)));
    reply(&replies).await.outcome.unwrap();
    running.stop().await;
    let extensions = backend.extensions.lock();
    let at: Vec<_> = extensions.iter().map(|at| at.duration_since(begin).as_millis()).collect();
    let expected = [10_000, 20_000, 30_000];
    let as_expected = |(at, expected): (&u128, u128)| (expected..expected + 20).contains(at);
    assert!(at.len() == 3 && at.iter().zip(expected).all(as_expected), "{at:?}");
}

fn sleeping(duration: Duration) -> impl Handler<String, String> {
    handler(move |text, _| async move {
        sleep(duration).await;
        Ok(text)
    })
}

/// The lease runs while the answer to the receive is on its way.
#[tokio::test(start_paused = true)]
async fn p4_a_lease_is_counted_from_before_the_receive() {
    let (backend, requests, replies) = Faulty::pair();
    *backend.receive_delay.lock() = seconds(25);
    ask(&requests, &replies, "hello").await;
    let begin = Instant::now();
    let running = Running::with(&requests, options(), sleeping(seconds(8)));
    until(|| running.health().handled == 1).await;
    assert!(begin.elapsed() >= seconds(33), "longer than the lease: {:?}", begin.elapsed());
    let health = running.stop().await;
    assert_eq!((health.handled, health.lease_lost), (1, 0));
    assert_eq!(requests.approximate_count().await.unwrap(), 0);
    let first = backend.extensions.lock()[0].duration_since(begin);
    assert!((seconds(25)..seconds(26)).contains(&first), "at once: {first:?}");
}

/// A receive may wait for longer than a lease lasts, and the message may have come just now.
#[tokio::test(start_paused = true)]
async fn p4_a_long_wait_for_a_message_does_not_shorten_the_tries_to_keep_it() {
    let (backend, requests, replies) = Faulty::pair();
    backend.no_extend.store(true, Ordering::Relaxed);
    let options = options().with_visibility_timeout(seconds(10)).with_wait(seconds(20));
    let running = Running::with(&requests, options, sleeping(seconds(8)));
    sleep(seconds(19)).await;
    ask(&requests, &replies, "hello").await;
    sleep(seconds(5)).await;
    backend.no_extend.store(false, Ordering::Relaxed);
    reply(&replies).await.outcome.unwrap();
    let health = running.stop().await;
    assert_eq!((health.handled, health.lease_lost), (1, 0));
}

/// In another implementation heartbeats extended by less than was left.
#[tokio::test(start_paused = true)]
async fn p4_auto_extend_never_shortens_a_lease() {
    for (requests, replies) in pairs() {
        let running = Running::with(
            &requests,
            options(),
            handler(|text, _| async move {
                sleep(seconds(300)).await;
                Ok(text)
            }),
        );
        ask(&requests, &replies, "hello").await;
        until(|| running.health().in_flight == 1).await;
        let begin = Instant::now();
        let mut deadline = Duration::ZERO;
        for _ in 0..290 {
            sleep(seconds(1)).await;
            let now = begin.elapsed() + lease_left(&requests).await;
            assert!(now + Duration::from_millis(1) >= deadline, "{deadline:?}, then {now:?}");
            deadline = now;
        }
        let result = reply(&replies).await;
        result.outcome.unwrap();
        let health = running.stop().await;
        assert_eq!((health.handled, health.lease_lost), (1, 0), "ten timeouts, one delivery");
    }
}

#[tokio::test(start_paused = true)]
async fn p4_an_extension_that_fails_is_tried_again_before_the_lease_is_over() {
    let (backend, requests, replies) = Faulty::pair();
    backend.no_extend.store(true, Ordering::Relaxed);
    let running = Running::with(
        &requests,
        options(),
        handler(|text, _| async move {
            sleep(seconds(100)).await;
            Ok(text)
        }),
    );
    ask(&requests, &replies, "hello").await;
    sleep(seconds(25)).await;
    backend.no_extend.store(false, Ordering::Relaxed);
    assert_eq!(reply(&replies).await.outcome.unwrap(), "hello");
    let health = running.stop().await;
    assert_eq!((health.handled, health.lease_lost), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn p4_when_the_lease_is_lost_the_handler_is_told_and_nothing_is_replied_or_settled() {
    let (backend, requests, replies) = Faulty::pair();
    backend.no_extend.store(true, Ordering::Relaxed);
    let told = Arc::new(AtomicU64::new(0));
    let telling = Arc::clone(&told);
    let running = Running::with(
        &requests,
        options(),
        handler(move |_, context| {
            let told = Arc::clone(&telling);
            async move {
                if context.delivery_count() == 1 {
                    assert!(!context.is_cancelled());
                    context.cancelled().await;
                    told.fetch_add(1, Ordering::Relaxed);
                }
                Ok(format!("delivery {}", context.delivery_count()))
            }
        }),
    );
    let begin = Instant::now();
    ask(&requests, &replies, "hello").await;
    until(|| told.load(Ordering::Relaxed) == 1).await;
    assert!(begin.elapsed() <= seconds(31), "told when it is over: {:?}", begin.elapsed());

    // The second delivery answers, and it alone.
    assert_eq!(reply(&replies).await.outcome.unwrap(), "delivery 2");
    let health = running.stop().await;
    assert_eq!((health.lease_lost, health.handled, health.given_back), (1, 1, 0));
    assert_eq!(replies.approximate_count().await.unwrap(), 0);
    let log = backend.log.lock();
    let settled = log.iter().filter(|line| line.starts_with("Acknowledge at requests")).count();
    assert_eq!(settled, 1, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn p4_a_purge_loses_the_lease_and_a_handler_that_does_not_listen_is_cut_off() {
    for (requests, replies) in pairs() {
        let running = Running::with(
            &requests,
            options().with_grace(seconds(3)),
            handler(|text, _| async move {
                sleep(seconds(if text == "deaf" { 3_000 } else { 1 })).await;
                Ok(text)
            }),
        );
        ask(&requests, &replies, "deaf").await;
        until(|| running.health().in_flight == 1).await;
        assert_eq!(requests.purge().await.unwrap(), 1);
        let begin = Instant::now();
        ask(&requests, &replies, "next").await;
        assert_eq!(reply(&replies).await.outcome.unwrap(), "next");
        // A third of the timeout until it shows, the grace, the next request.
        assert!(begin.elapsed() <= seconds(10 + 3 + 2), "{:?}", begin.elapsed());
        assert_eq!(running.stop().await.lease_lost, 1);
    }
}

/// A handler that blocks its thread keeps a single-threaded runtime from extending anything. What
/// it gives then must not be replied: somebody else has the request.
#[tokio::test]
async fn p4_a_lease_that_ended_unnoticed_is_noticed_before_the_reply() {
    let (requests, replies) = super::local();
    let timeout = Duration::from_millis(200);
    let running = Running::with(
        &requests,
        LoopOptions::new().with_visibility_timeout(timeout),
        handler(move |_, context| async move {
            if context.delivery_count() == 1 {
                std::thread::sleep(2 * timeout);
            }
            Ok(context.delivery_count().to_string())
        }),
    );
    ask(&requests, &replies, "hello").await;
    // The clock is real: a busy machine may lose the second lease as well.
    assert_ne!(reply(&replies).await.outcome.unwrap(), "1");
    let health = running.stop().await;
    assert!(health.lease_lost >= 1, "{health:?}");
    assert_eq!(health.handled, 1);
    assert_eq!(replies.approximate_count().await.unwrap(), 0);
}
