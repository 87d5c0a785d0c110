//! What is answered: outputs, errors, panics, deadlines, budgets (P1 to P3).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mailbox::main_loop::{
    Budget, Context, FailureKind, Handler, HandlerFailure, LoopEnd, LoopOptions, MainLoop,
    MainLoopRequest,
};
use mailbox::{Mailbox, SendOptions, Timestamp};
use tokio::time::{Instant, sleep};

use super::faulty::Faulty;
use super::guard::in_time;
use super::{Running, ask, echo, handler, pairs, reply, seconds, send};

#[tokio::test(start_paused = true)]
async fn p1_an_output_is_replied_and_the_request_acknowledged() {
    for (requests, replies) in pairs() {
        let running = Running::start(&requests, echo());
        let request = ask(&requests, &replies, "hello").await;
        let result = reply(&replies).await;
        assert_eq!(result.request_id, request.request_id);
        assert_eq!(result.outcome.unwrap(), "hello!");
        let health = running.stop().await;
        assert_eq!((health.handled, health.failed, health.in_flight), (1, 0, 0));
        assert_eq!(requests.approximate_count().await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn p1_the_reply_comes_before_the_acknowledgement() {
    let (backend, requests, replies) = Faulty::pair();
    let running = Running::start(&requests, echo());
    ask(&requests, &replies, "hello").await;
    until_idle(&running).await;
    let log = backend.log.lock().clone();
    assert_eq!(log, ["send to requests", "send to replies", "Acknowledge at requests"]);
    running.stop().await;
}

async fn until_idle(running: &Running) {
    super::until(|| running.health().handled == 1 && running.health().in_flight == 0).await;
}

#[tokio::test(start_paused = true)]
async fn p1_results_without_reply_to_go_to_the_responses_mailbox() {
    for (requests, replies) in pairs() {
        let main_loop = MainLoop::new(requests.clone(), echo()).with_responses(replies.clone());
        let running = Running::of(main_loop);
        requests.send(MainLoopRequest::new("hello".to_owned())).await.unwrap();
        assert_eq!(reply(&replies).await.outcome.unwrap(), "hello!");
        // The sender's word goes before.
        let own = if requests.abilities().backend == "local" {
            Mailbox::local("own").unwrap()
        } else {
            Mailbox::memory("own").unwrap()
        };
        ask(&requests, &own, "again").await;
        assert_eq!(reply(&own).await.outcome.unwrap(), "again!");
        assert_eq!(running.stop().await.unanswered, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn p2_with_nobody_to_reply_to_the_request_is_acknowledged() {
    for (requests, _) in pairs() {
        let running =
            Running::start(&requests, handler(|_, _| async { Err("no luck".to_owned()) }));
        requests.send(MainLoopRequest::new("hello".to_owned())).await.unwrap();
        super::until(|| running.health().failed == 1).await;
        let health = running.stop().await;
        assert_eq!((health.unanswered, health.given_back), (1, 0));
        assert_eq!(requests.approximate_count().await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn p2_an_error_is_replied_and_the_request_acknowledged() {
    for (requests, replies) in pairs() {
        let running =
            Running::start(&requests, handler(|_, _| async { Err("no luck".to_owned()) }));
        ask(&requests, &replies, "hello").await;
        let failure = reply(&replies).await.outcome.unwrap_err();
        assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Failed, "no luck"));
        assert_eq!(running.stop().await.failed, 1);
        assert_eq!(requests.approximate_count().await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn p2_a_panic_is_replied_as_an_error_and_the_loop_goes_on() {
    for (requests, replies) in pairs() {
        let running = Running::start(
            &requests,
            handler(|text, _| {
                assert_ne!(text, "early", "before the first await");
                async move {
                    sleep(seconds(1)).await;
                    assert_ne!(text, "late", "after the first await");
                    Ok(text)
                }
            }),
        );
        for (text, expected) in [("early", "before the first await"), ("late", "after the first")] {
            ask(&requests, &replies, text).await;
            let failure = reply(&replies).await.outcome.unwrap_err();
            assert_eq!(failure.kind, FailureKind::Panicked);
            assert!(failure.message.contains(expected), "{failure}");
        }
        ask(&requests, &replies, "calm").await;
        assert_eq!(reply(&replies).await.outcome.unwrap(), "calm");
        assert_eq!(running.stop().await.failed, 2);
        assert_eq!(requests.approximate_count().await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn p2_an_output_that_is_too_large_is_answered_with_an_error() {
    let (requests, replies) = super::memory();
    let huge = handler(|_, context| async move {
        context.set_session_id("s");
        Ok("x".repeat(2 << 20))
    });
    let running = Running::start(&requests, huge);
    ask(&requests, &replies, "hello").await;
    let result = reply(&replies).await;
    assert_eq!(result.session_id.as_deref(), Some("s"));
    assert_eq!(result.outcome.unwrap_err().kind, FailureKind::Unsendable);
    assert_eq!(running.stop().await.given_back, 0);
    assert_eq!(requests.approximate_count().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn p3_a_request_past_its_deadline_is_answered_without_running() {
    for (requests, replies) in pairs() {
        let runs = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&runs);
        let running = Running::start(
            &requests,
            handler(move |text, _| {
                counted.fetch_add(1, Ordering::Relaxed);
                async move { Ok(text) }
            }),
        );
        let past = Timestamp::now().before(seconds(1));
        let request = MainLoopRequest::new("late".to_owned()).with_deadline(past);
        send(&requests, &replies, &request).await;
        let failure = reply(&replies).await.outcome.unwrap_err();
        assert_eq!(failure.kind, FailureKind::DeadlineExceeded);
        assert!(failure.message.starts_with("not run"), "not even started: {failure}");
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        assert_eq!(running.stop().await.failed, 1);
        assert_eq!(requests.approximate_count().await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn p3_a_deadline_cuts_off_a_handler_that_runs() {
    let (requests, replies) = super::local();
    let running = Running::start(&requests, sleeper());
    let soon = Timestamp::now().after(seconds(10));
    let begin = Instant::now();
    let request = MainLoopRequest::new("3600".to_owned()).with_deadline(soon);
    send(&requests, &replies, &request).await;
    let failure = reply(&replies).await.outcome.unwrap_err();
    assert_eq!(failure.kind, FailureKind::DeadlineExceeded);
    assert!(begin.elapsed() <= seconds(11), "{:?}", begin.elapsed());
    running.stop().await;
}

/// Sleeps as many seconds as the request says.
fn sleeper() -> impl Handler<String, String> {
    handler(|text, _| async move {
        sleep(seconds(text.parse().unwrap())).await;
        Ok(text)
    })
}

#[tokio::test(start_paused = true)]
async fn p3_a_budget_of_time_cuts_the_handler_off() {
    for (requests, replies) in pairs() {
        let running = Running::start(&requests, sleeper());
        let begin = Instant::now();
        let budget = Budget::new().with_time(seconds(5));
        let request = MainLoopRequest::new("3600".to_owned()).with_budget(budget);
        send(&requests, &replies, &request).await;
        let failure = reply(&replies).await.outcome.unwrap_err();
        assert_eq!(failure.kind, FailureKind::BudgetExceeded);
        assert!((seconds(5)..seconds(6)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        // The place is free again.
        ask(&requests, &replies, "1").await;
        assert_eq!(reply(&replies).await.outcome.unwrap(), "1");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn p3_a_budget_of_units_is_the_handlers_to_spend() {
    let (requests, replies) = super::memory();
    let main_loop = MainLoop::new(requests.clone(), |text: String, context: Context| async move {
        for _ in 0..text.parse()? {
            context.spend(1)?;
        }
        Ok::<_, HandlerFailure>(format!("{} left", context.units_left().unwrap()))
    });
    let running = Running::of(main_loop);
    for (text, expected) in [
        ("3", Ok("0 left")),
        ("4", Err(FailureKind::BudgetExceeded)),
        ("x", Err(FailureKind::Failed)),
    ] {
        let budget = Budget::new().with_units(3);
        let request = MainLoopRequest::new(text.to_owned()).with_budget(budget);
        send(&requests, &replies, &request).await;
        let outcome = reply(&replies).await.outcome.map_err(|failure| failure.kind);
        assert_eq!(outcome.as_deref().map_err(|kind| *kind), expected);
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_knows_its_delivery_and_names_its_session() {
    let (requests, replies) = super::memory();
    let running = Running::start(
        &requests,
        handler(|_, context| async move {
            context.set_session_id("session 1");
            let tenant = &context.attributes()["tenant"];
            Ok(format!("{tenant} {} {}", context.delivery_count(), context.request_id()))
        }),
    );
    let request = MainLoopRequest::new(String::new());
    let options = SendOptions::new().with_reply_to(&replies).with_attribute("tenant", "acme");
    requests.send_with(request.clone(), options).await.unwrap();
    let result = reply(&replies).await;
    assert_eq!(result.session_id.as_deref(), Some("session 1"));
    assert_eq!(result.outcome.unwrap(), format!("acme 1 {}", request.request_id));
    running.stop().await;
}

/// A handler can be a type of its own too.
struct Greeter {
    greeting: String,
}

impl Handler<String, String> for Greeter {
    type Error = HandlerFailure;

    async fn handle(&self, name: String, _: Context) -> Result<String, HandlerFailure> {
        Ok(format!("{} {name}", self.greeting))
    }
}

#[tokio::test(start_paused = true)]
async fn p5_a_loop_ends_after_its_iterations_with_everything_handled() {
    for (requests, replies) in pairs() {
        let options = LoopOptions::new().with_max_iterations(2).with_concurrency(2);
        let greeter = Greeter { greeting: "good day".to_owned() };
        let main_loop = MainLoop::new(requests.clone(), greeter).with_options(options).unwrap();
        for name in ["ada", "bob", "eve"] {
            ask(&requests, &replies, name).await;
        }
        assert_eq!(in_time(main_loop.run()).await, LoopEnd::MaxIterations);
        let health = main_loop.health();
        assert_eq!((health.handled, health.in_flight, health.running), (3, 0, false));
        assert_eq!(reply(&replies).await.outcome.unwrap(), "good day ada");
    }
}

#[tokio::test(start_paused = true)]
async fn p1_as_many_requests_as_there_are_places_run_at_once_and_never_more() {
    for (requests, replies) in pairs() {
        let now = Arc::new(AtomicU64::new(0));
        let most = Arc::new(AtomicU64::new(0));
        let (inside, peak) = (Arc::clone(&now), Arc::clone(&most));
        let options = LoopOptions::new().with_concurrency(7);
        let running = Running::with(
            &requests,
            options,
            handler(move |text, _| {
                let inside = Arc::clone(&inside);
                peak.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                async move {
                    sleep(seconds(1 + u64::from(text.len() as u32 % 3))).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    Ok(text)
                }
            }),
        );
        for number in 0..50_usize {
            ask(&requests, &replies, &"x".repeat(number)).await;
        }
        sleep(seconds(1)).await;
        // What is not being handled is not held either.
        let stats = requests.stats().await.unwrap();
        assert!(stats.invisible <= 7, "{stats:?}");
        for _ in 0..50 {
            reply(&replies).await.outcome.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 7);
        assert_eq!(running.stop().await.handled, 50);
    }
}
