//! What goes wrong around a loop, and does not end it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mailbox::main_loop::{LoopEnd, LoopOptions, MainLoop};
use mailbox::{
    DeadReason, ErrorKind, Mailbox, NackOptions, Peek, Policy, ReceiveOptions, SendOptions,
};
use tokio::time::{Instant, sleep};

use super::faulty::{Fault, Faulty};
use super::guard::in_time;
use super::{Replies, Requests, Running, ask, echo, on, pairs, receive_now, reply, seconds, until};

/// In another implementation the first message that was no request ended the worker.
#[tokio::test(start_paused = true)]
async fn an_undecodable_body_does_not_end_the_loop() {
    let backend = mailbox::backends::memory::MemoryBackend::new();
    let (requests, replies): (Requests, Replies) =
        (on(&backend, "requests"), on(&backend, "replies"));
    let anything: Mailbox<serde_json::Value> = on(&backend, "requests");

    let running = Running::start(&requests, echo());
    let options = SendOptions::new().with_attribute("who", "a stranger");
    anything.send_with(serde_json::json!({"not": "a request"}), options).await.unwrap();
    ask(&requests, &replies, "hello").await;
    assert_eq!(reply(&replies).await.outcome.unwrap(), "hello!");

    let health = running.stop().await;
    assert_eq!((health.undecodable, health.handled, health.given_back), (1, 1, 0));
    let dead = anything.peek(Peek::Dead { after: None, limit: 10 }).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].death().unwrap().reason, DeadReason::Decode);
    assert!(dead[0].last_error().unwrap().contains("not JSON"), "{:?}", dead[0].last_error());
}

#[tokio::test(start_paused = true)]
async fn p2_a_request_whose_reply_cannot_be_sent_is_nacked_with_growing_backoff() {
    for (requests, replies) in pairs() {
        let full = Policy { max_size: Some(0), ..Policy::default() };
        replies.configure(full).await.unwrap();
        let running = Running::start(&requests, echo());
        ask(&requests, &replies, "hello").await;
        for (nacks, delay) in [(1, 60), (2, 120), (3, 180)] {
            until(|| running.health().given_back == nacks).await;
            let seen = requests.peek(Peek::Live { limit: 1 }).await.unwrap();
            let in_time = seconds(delay - 1)..=seconds(delay);
            assert!(in_time.contains(&seen[0].receivable_in()), "{:?}", seen[0].receivable_in());
            let error = seen[0].last_error().unwrap();
            assert!(error.contains("could not be sent") && error.contains("full"), "{error}");
        }
        replies.configure(Policy::default()).await.unwrap();
        assert_eq!(reply(&replies).await.outcome.unwrap(), "hello!");
        let health = running.stop().await;
        assert_eq!((health.given_back, health.handled), (3, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unresolvable_reply_to_is_nacked_not_dropped() {
    for (requests, _) in pairs() {
        let running = Running::start(&requests, echo());
        let request = mailbox::main_loop::MainLoopRequest::new("hello".to_owned());
        let options = SendOptions::new().with_reply_to("memory://nowhere/replies");
        requests.send_with(request, options).await.unwrap();
        until(|| running.health().given_back == 1).await;
        assert_eq!(running.stop().await.handled, 0);
        assert_eq!(requests.approximate_count().await.unwrap(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn receive_errors_do_not_end_the_loop_and_are_not_repeated_in_a_hurry() {
    let (backend, requests, replies) = Faulty::pair();
    backend.no_receive.store(true, Ordering::Relaxed);
    let running = Running::start(&requests, echo());
    ask(&requests, &replies, "hello").await;
    sleep(seconds(600)).await;
    let receives = backend.receives.load(Ordering::Relaxed);
    assert!((20..=40).contains(&receives), "{receives} receives in 10 minutes");
    assert!(running.health().is_alive(seconds(6)), "{:?}", running.health());

    backend.no_receive.store(false, Ordering::Relaxed);
    let begin = Instant::now();
    assert_eq!(reply(&replies).await.outcome.unwrap(), "hello!");
    assert!(begin.elapsed() <= seconds(30));
    assert_eq!(running.stop().await.receive_errors, receives);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_fails_is_tried_again() {
    let (backend, requests, replies) = Faulty::pair();
    backend.acknowledge_with([Fault::Fails(ErrorKind::Connection); 3]);
    let running = Running::start(&requests, echo());
    ask(&requests, &replies, "hello").await;
    until(|| running.health().handled == 1 && running.health().in_flight == 0).await;
    running.stop().await;
    assert_eq!(requests.approximate_count().await.unwrap(), 0);
    assert_eq!(replies.approximate_count().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn w3_a_closed_mailbox_ends_the_loop() {
    for (requests, _) in pairs() {
        let main_loop = MainLoop::new(requests.clone(), echo());
        let running = main_loop.clone();
        let task = tokio::spawn(async move { running.run().await });
        until(|| main_loop.health().running).await;
        let begin = Instant::now();
        requests.close().await.unwrap();
        assert_eq!(in_time(task).await.unwrap(), LoopEnd::Closed);
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert!(!main_loop.health().running);
    }
}

#[tokio::test(start_paused = true)]
async fn p5_health_shows_life_also_when_every_place_is_taken() {
    let (requests, replies) = super::local();
    let slow = super::handler(|text, _| async move {
        sleep(seconds(3600)).await;
        Ok(text)
    });
    let options = LoopOptions::new().with_drain(Duration::ZERO).with_grace(Duration::ZERO);
    let running = Running::with(&requests, options, slow);
    ask(&requests, &replies, "hello").await;
    for _ in 0..60 {
        sleep(seconds(60)).await;
        let health = running.health();
        if health.handled == 1 {
            break;
        }
        assert_eq!(health.in_flight, 1);
        assert!(health.is_alive(seconds(5)), "{health:?}");
        assert!(health.last_heartbeat.is_some());
    }
    assert_eq!(running.stop().await.handled, 1);
}

#[tokio::test(start_paused = true)]
async fn options_the_mailbox_cannot_meet_are_refused_at_once() {
    let (requests, _) = super::local();
    let main_loop = MainLoop::new(requests, echo());
    let options = LoopOptions::new().with_visibility_timeout(seconds(50_000));
    let error = main_loop.with_options(options).unwrap_err();
    assert_eq!(error.field(), Some("visibility_timeout"));
}

#[tokio::test(start_paused = true)]
async fn a_redelivered_request_is_handled_as_any_other() {
    let (requests, replies) = super::memory();
    ask(&requests, &replies, "hello").await;
    let first = receive_now(&requests).await.pop().unwrap();
    first.nack_with(NackOptions::new().with_error("not now")).await.unwrap();
    let running = Running::start(
        &requests,
        super::handler(|_, context| async move { Ok(context.delivery_count().to_string()) }),
    );
    assert_eq!(reply(&replies).await.outcome.unwrap(), "2");
    running.stop().await;
    let left = requests.receive_with(ReceiveOptions::new()).await.unwrap();
    assert!(left.is_empty());
}
