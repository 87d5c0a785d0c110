//! Calls on a private reply mailbox, and what both strategies have in common (P6).

use std::time::Duration;

use mailbox::main_loop::{
    Budget, CallError, CallOptions, Client, ClientOptions, FailureKind, LoopOptions, MainLoopResult,
};
use mailbox::{ErrorKind, Mailbox};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::faulty::Faulty;
use super::{Replies, Requests, Running, echo, handler, on, pairs, seconds, until};

type Make = fn(Requests, Replies) -> Client<String, String>;
const STRATEGIES: [Make; 2] = [Client::private, Client::shared];

#[tokio::test(start_paused = true)]
async fn p6_a_call_gives_the_output_or_the_error_of_its_handler() {
    for make in STRATEGIES {
        for (requests, replies) in pairs() {
            let running = Running::start(
                &requests,
                handler(|text, context| async move {
                    context.set_session_id("s");
                    if text == "bad" { Err("no luck".to_owned()) } else { Ok(format!("{text}!")) }
                }),
            );
            let client = make(requests, replies.clone());
            assert_eq!(client.call("hello".to_owned(), seconds(5)).await.unwrap(), "hello!");
            let error = client.call("bad".to_owned(), seconds(5)).await.unwrap_err();
            assert_eq!(error.to_string(), "the request failed: no luck");
            let whole = client.call_with("bad".to_owned(), CallOptions::new()).await.unwrap();
            assert_eq!(whole.session_id.as_deref(), Some("s"));
            assert_eq!(whole.outcome.unwrap_err().kind, FailureKind::Failed);
            until(|| client.stats().waiting == 0).await;
            assert_eq!(client.stats().answered, 3);
            assert_eq!(replies.approximate_count().await.unwrap(), 0);
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p6_a_hundred_calls_at_once_each_get_their_own_answer() {
    for make in STRATEGIES {
        for (requests, replies) in pairs() {
            let options = LoopOptions::new().with_concurrency(10);
            let running = Running::with(
                &requests,
                options,
                handler(|text, _| async move {
                    // The later the request, the sooner its answer, among ten.
                    let number: u64 = text.parse().unwrap();
                    sleep(Duration::from_millis(100 - number % 10)).await;
                    Ok(text)
                }),
            );
            let client = make(requests, replies.clone());
            let mut calls = JoinSet::new();
            for number in 0..100 {
                let client = client.clone();
                calls.spawn(async move {
                    let output = client.call(number.to_string(), seconds(60)).await.unwrap();
                    assert_eq!(output, number.to_string());
                });
            }
            while let Some(call) = calls.join_next().await {
                call.unwrap();
            }
            sleep(seconds(1)).await;
            assert_eq!(client.stats().answered, 100);
            assert_eq!(replies.approximate_count().await.unwrap(), 0);
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p6_a_call_without_an_answer_times_out_and_its_late_answer_confuses_nobody() {
    for make in STRATEGIES {
        for (requests, replies) in pairs() {
            let running = Running::start(
                &requests,
                handler(|text, _| async move {
                    sleep(seconds(if text == "slow" { 10 } else { 0 })).await;
                    Ok(text)
                }),
            );
            let client = make(requests, replies.clone());
            let begin = Instant::now();
            let patient = CallOptions::new().with_timeout(seconds(3)).with_send_deadline(false);
            let error = client.call_with("slow".to_owned(), patient).await.unwrap_err();
            assert!(matches!(error, CallError::Timeout { .. }), "{error:?}");
            assert!((seconds(3)..seconds(4)).contains(&begin.elapsed()));
            assert_eq!(client.stats().waiting, 0);

            // The late answer is there first.
            assert_eq!(client.call("quick".to_owned(), seconds(60)).await.unwrap(), "quick");
            sleep(seconds(1)).await;
            assert_eq!((client.stats().late, client.stats().answered), (1, 1));
            assert_eq!(replies.approximate_count().await.unwrap(), 0);
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn p6_the_deadline_of_a_call_goes_with_the_request() {
    let (requests, replies) = super::local();
    let running = Running::start(
        &requests,
        handler(|_, context| async move {
            Ok(format!("{:?}", context.time_left().map(|left| left <= seconds(5))))
        }),
    );
    let client = Client::private(requests, replies);
    assert_eq!(client.call(String::new(), seconds(5)).await.unwrap(), "Some(true)");
    let without = CallOptions::new().with_send_deadline(false);
    let result = client.call_with(String::new(), without).await.unwrap();
    assert_eq!(result.outcome.unwrap(), "None");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_says_what_it_may_cost_and_what_goes_beside_it() {
    let (requests, replies) = super::memory();
    let running = Running::start(
        &requests,
        handler(|_, context| async move {
            Ok(format!("{:?} {}", context.units_left(), context.attributes()["tenant"]))
        }),
    );
    let client = Client::private(requests, replies);
    let options = CallOptions::new()
        .with_budget(Budget::new().with_units(3))
        .with_attribute("tenant", "acme");
    let result = client.call_with(String::new(), options).await.unwrap();
    assert_eq!(result.outcome.unwrap(), "Some(3) acme");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_given_up() {
    for make in STRATEGIES {
        let (requests, replies) = super::local();
        let client = make(requests.clone(), replies.clone());
        let call = client.call("hello".to_owned(), seconds(60));
        assert!(tokio::time::timeout(seconds(1), call).await.is_err());
        assert_eq!(client.stats().waiting, 0);
        let running = Running::start(&requests, echo());
        assert_eq!(client.call("next".to_owned(), seconds(60)).await.unwrap(), "next!");
        sleep(seconds(1)).await;
        assert_eq!(client.stats().late, 1);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_rides_out_errors_and_reports_those_that_last() {
    let (backend, requests, replies) = Faulty::pair();
    backend.no_receive.store(true, std::sync::atomic::Ordering::Relaxed);
    let client = Client::private(requests.clone(), replies.clone());
    let calling = client.clone();
    let call = tokio::spawn(async move { calling.call("hello".to_owned(), seconds(300)).await });
    sleep(seconds(60)).await;
    backend.no_receive.store(false, std::sync::atomic::Ordering::Relaxed);
    let running = Running::start(&requests, echo());
    assert_eq!(call.await.unwrap().unwrap(), "hello!");

    replies.close().await.unwrap();
    let begin = Instant::now();
    let error = client.call("hello".to_owned(), seconds(300)).await.unwrap_err();
    assert!(matches!(&error, CallError::Mailbox(error) if error.kind() == ErrorKind::Closed));
    assert!(begin.elapsed() <= seconds(1), "at once");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l2_calls_beyond_the_bound_are_refused() {
    let (requests, replies) = super::local();
    let client = Client::private(requests.clone(), replies)
        .with_options(ClientOptions::new().with_max_calls(1));
    let waiting = client.clone();
    let call = tokio::spawn(async move { waiting.call("first".to_owned(), seconds(60)).await });
    until(|| client.stats().waiting == 1).await;
    let error = client.call("second".to_owned(), seconds(60)).await.unwrap_err();
    assert!(matches!(&error, CallError::Mailbox(error) if error.kind() == ErrorKind::Saturated));
    assert_eq!(requests.approximate_count().await.unwrap(), 1, "it was not sent");
    call.abort();
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_no_result_is_put_aside() {
    let backend = mailbox::backends::memory::MemoryBackend::new();
    let (requests, replies): (Requests, Replies) =
        (on(&backend, "requests"), on(&backend, "replies"));
    let anything: Mailbox<u8> = on(&backend, "replies");
    anything.send(7).await.unwrap();
    let running = Running::start(&requests, echo());
    let client = Client::private(requests, replies.clone());
    assert_eq!(client.call("hello".to_owned(), seconds(60)).await.unwrap(), "hello!");
    assert_eq!(client.stats().undecodable, 1);
    sleep(seconds(1)).await;
    assert_eq!(replies.stats().await.unwrap().dead, 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_client_leaves_no_receive_behind() {
    let (requests, replies) = super::local();
    let client = Client::private(requests, replies.clone());
    let _ = client.call("hello".to_owned(), seconds(1)).await;
    assert_eq!(replies.stats().await.unwrap().waiters, 1);
    drop(client);
    sleep(seconds(1)).await;
    assert_eq!(replies.stats().await.unwrap().waiters, 0);
    let result = MainLoopResult::new(mailbox::main_loop::Uuid::now_v7(), Ok("mine".to_owned()));
    replies.send(result).await.unwrap();
    assert_eq!(super::reply(&replies).await.outcome.unwrap(), "mine");
}

/// A client may outlive the runtime that it was first used on.
#[test]
fn a_client_works_on_a_second_runtime() {
    let (requests, replies) = super::local();
    let client = Client::private(requests.clone(), replies);
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let running = Running::start(&requests, echo());
            assert_eq!(client.call("hello".to_owned(), seconds(5)).await.unwrap(), "hello!");
            running.task.abort();
        });
    }
}

/// On several threads and a real clock, where tasks really race.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p6_calls_race_and_each_gets_its_own_answer() {
    for make in STRATEGIES {
        for (requests, replies) in pairs() {
            let options = LoopOptions::new().with_concurrency(16);
            let running = Running::with(&requests, options, echo());
            let client = make(requests.clone(), replies.clone());
            let mut calls = JoinSet::new();
            for caller in 0..8 {
                let client = client.clone();
                calls.spawn(async move {
                    for number in 0..100 {
                        let text = format!("{caller} {number}");
                        let output = client.call(text.clone(), seconds(60)).await.unwrap();
                        assert_eq!(output, format!("{text}!"));
                    }
                });
            }
            while let Some(call) = calls.join_next().await {
                call.unwrap();
            }
            assert_eq!(client.stats().answered, 800);
            assert_eq!(running.stop().await.handled, 800);
            assert_eq!(requests.approximate_count().await.unwrap(), 0);
        }
    }
}
