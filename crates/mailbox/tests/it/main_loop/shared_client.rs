//! Many clients on one mailbox of responses (P6).

use mailbox::main_loop::{CallError, Client, LoopOptions, MainLoopResult, Uuid};
use mailbox::{DeadReason, Peek, Timestamp};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::faulty::Faulty;
use super::{Running, echo, handler, pairs, receive_results, seconds};

fn strangers_result() -> MainLoopResult<String> {
    MainLoopResult::new(Uuid::now_v7(), Ok("not yours".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn p6_clients_that_share_a_mailbox_each_get_their_own_answers() {
    for (requests, replies) in pairs() {
        let options = LoopOptions::new().with_concurrency(10);
        let running = Running::with(
            &requests,
            options,
            handler(|text, _| async move {
                sleep(seconds(1)).await;
                Ok(text)
            }),
        );
        let mut calls = JoinSet::new();
        for client in 0..5 {
            let shared = Client::shared(requests.clone(), replies.clone());
            for number in 0..20 {
                let (shared, text) = (shared.clone(), format!("{client} {number}"));
                calls.spawn(async move {
                    let output = shared.call(text.clone(), seconds(60)).await.unwrap();
                    assert_eq!(output, text);
                });
            }
        }
        while let Some(call) = calls.join_next().await {
            call.unwrap();
        }
        sleep(seconds(1)).await;
        assert_eq!(replies.approximate_count().await.unwrap(), 0);
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn p6_others_answers_are_given_back_uncounted_and_without_a_busy_loop() {
    let (backend, requests, replies) = Faulty::pair();
    replies.send(strangers_result()).await.unwrap();
    let client = Client::shared(requests, replies.clone());
    let error = client.call("nobody handles this".to_owned(), seconds(60)).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }));
    let given_back = client.stats().given_back;
    assert!((500..=620).contains(&given_back), "ten times a second: {given_back}");
    assert!(backend.receives.load(std::sync::atomic::Ordering::Relaxed) <= 700);
    sleep(seconds(1)).await;
    let left = receive_results(&replies).await;
    assert_eq!(left[0].delivery_count(), 1, "undone, not nacked");
}

#[tokio::test(start_paused = true)]
async fn p6_a_pile_of_others_answers_does_not_hide_ones_own() {
    for (requests, replies) in pairs() {
        for _ in 0..300 {
            replies.send(strangers_result()).await.unwrap();
        }
        let running = Running::start(&requests, echo());
        let client = Client::shared(requests, replies.clone());
        assert_eq!(client.call("hello".to_owned(), seconds(10)).await.unwrap(), "hello!");
        running.stop().await;
        sleep(seconds(2)).await;
        assert_eq!(replies.stats().await.unwrap().ready, 300, "nothing was taken away");
    }
}

#[tokio::test(start_paused = true)]
async fn p6_an_answer_that_nobody_takes_becomes_a_dead_letter_in_the_end() {
    for (requests, replies) in pairs() {
        let old = Timestamp::now().before(seconds(2 * 3600));
        replies.send(strangers_result().with_completed_at(old)).await.unwrap();
        replies.send(strangers_result()).await.unwrap();
        let running = Running::start(&requests, echo());
        let client = Client::shared(requests, replies.clone());
        assert_eq!(client.call("hello".to_owned(), seconds(10)).await.unwrap(), "hello!");
        sleep(seconds(2)).await;
        assert_eq!(client.stats().orphaned, 1);
        let dead = replies.peek(Peek::Dead { after: None, limit: 10 }).await.unwrap();
        assert_eq!(dead[0].death().unwrap().reason, DeadReason::Rejected);
        assert_eq!(replies.stats().await.unwrap().ready, 1, "a young one is left alone");
        running.stop().await;
    }
}

/// A request that is delivered twice is answered twice.
#[tokio::test(start_paused = true)]
async fn p6_a_second_answer_is_recognised_by_the_client_that_had_the_first() {
    let (requests, replies) = super::memory();
    let running = Running::start(&requests, echo());
    let client = Client::shared(requests, replies.clone());
    let first = client.call_with("hello".to_owned(), Default::default()).await.unwrap();
    replies.send(first).await.unwrap();
    assert_eq!(client.call("again".to_owned(), seconds(10)).await.unwrap(), "again!");
    sleep(seconds(2)).await;
    assert_eq!((client.stats().late, client.stats().answered), (1, 2));
    assert_eq!(replies.approximate_count().await.unwrap(), 0);
    running.stop().await;
}
