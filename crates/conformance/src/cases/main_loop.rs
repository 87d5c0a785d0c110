//! P1 to P3: a loop receives requests, has them handled, replies, and only then acknowledges.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mailbox::main_loop::{
    Budget, Context, FailureKind, HandlerFailure, LoopEnd, LoopOptions, MainLoop, MainLoopRequest,
    MainLoopResult,
};
use mailbox::{DeadReason, Mailbox, Message, Peek, Policy, SendOptions, Timestamp};
use tokio::task::JoinHandle;

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::only;
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("P1", a_request_is_answered_then_acknowledged),
    case!("P1", the_defaults_are_those_of_the_contract, once),
    case!("P1", as_many_requests_run_at_once_as_allowed),
    case!("P1", results_without_reply_address_go_to_the_responses_mailbox),
    case!("P2", the_error_of_a_handler_is_replied_and_the_request_done),
    case!("P2", the_panic_of_a_handler_is_replied_and_the_loop_goes_on),
    case!("P2", a_request_whose_reply_cannot_be_sent_comes_back_later_and_later, exact_time),
    case!("P2", a_request_that_nobody_wants_answered_is_done_all_the_same),
    case!("P2", a_message_that_is_no_request_is_put_aside_and_the_loop_goes_on, bytes),
    case!("P3", requests_and_results_have_the_shape_of_the_contract, once),
    case!("P3", a_request_past_its_deadline_is_answered_without_running),
    case!("P3", a_handler_cannot_spend_more_than_the_budget),
    case!("P3", the_context_tells_the_handler_about_its_request),
];

pub(super) type Request = MainLoopRequest<Probe>;
pub(super) type Answer = MainLoopResult<Probe>;
pub(super) type Requests = Mailbox<Request, Answer>;
pub(super) type Worker = MainLoop<Probe, Probe>;

pub(super) fn requests(world: &World) -> mailbox::Result<Requests> {
    world.typed("requests")
}

pub(super) fn replies(world: &World) -> mailbox::Result<Mailbox<Answer>> {
    world.typed("replies")
}

/// Sends a request; the reply goes to the mailbox `replies`.
pub(super) async fn ask(world: &World, request: Request) -> Outcome {
    let options = SendOptions::new().with_reply_to(&replies(world)?);
    requests(world)?.send_with(request, options).await?;
    Ok(())
}

/// The next answer in the mailbox `replies`, as soon as there is one.
pub(super) async fn answer(world: &World) -> Outcome<Message<Answer>> {
    let replies = replies(world)?;
    let someone = || async { Ok(replies.stats().await?.ready > 0) };
    world.until("there is an answer", someone).await?;
    Ok(replies.receive().await?.remove(0))
}

/// Starts a loop.
pub(super) fn start(worker: &Worker) -> JoinHandle<LoopEnd> {
    let worker = worker.clone();
    tokio::spawn(async move { worker.run().await })
}

/// Stops a loop and waits for its end.
pub(super) async fn stop(worker: &Worker, running: JoinHandle<LoopEnd>) -> Outcome {
    worker.stop_handle().stop();
    assert_eq!(running.await?, LoopEnd::Stopped);
    Ok(())
}

/// Adds a hundred.
pub(super) async fn add_hundred(probe: Probe, _: Context) -> Result<Probe, HandlerFailure> {
    Ok(Probe::new(probe.number + 100))
}

async fn a_request_is_answered_then_acknowledged(world: World) -> Outcome {
    let requests = requests(&world)?;
    let worker = MainLoop::new(requests.clone(), add_hundred);
    let running = start(&worker);
    for number in 0..10 {
        let request = Request::new(Probe::new(number));
        let id = request.request_id;
        ask(&world, request).await?;
        let answer = answer(&world).await?;
        assert_eq!(answer.body()?.request_id, id);
        assert_eq!(answer.body()?.outcome, Ok(Probe::new(number + 100)));
        answer.acknowledge().await?;
    }
    let done = || async { Ok(requests.stats().await?.live() == 0) };
    world.until("all requests are acknowledged", done).await?;
    assert_eq!((worker.health().handled, worker.health().failed), (10, 0));
    stop(&worker, running).await
}

async fn the_defaults_are_those_of_the_contract(_: World) -> Outcome {
    let options = LoopOptions::default();
    assert_eq!(options.visibility_timeout, Duration::from_secs(300));
    assert_eq!(options.wait, Duration::from_secs(20));
    assert_eq!((options.concurrency, options.max_iterations), (1, None));
    let delays: Vec<u64> = [1, 2, 3, 15, 16, u32::MAX]
        .iter()
        .map(|count| options.reply_backoff.delay(*count).as_secs())
        .collect();
    assert_eq!(delays, [60, 120, 180, 900, 900, 900]);
    Ok(())
}

async fn as_many_requests_run_at_once_as_allowed(world: World) -> Outcome {
    let (running_now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let together = Arc::new(tokio::sync::Barrier::new(3));
    let handler = {
        let (running_now, most) = (Arc::clone(&running_now), Arc::clone(&most));
        move |probe: Probe, _: Context| {
            let (running_now, most) = (Arc::clone(&running_now), Arc::clone(&most));
            let together = Arc::clone(&together);
            async move {
                most.fetch_max(running_now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Nobody gets on unless three are here.
                together.wait().await;
                running_now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, HandlerFailure>(probe)
            }
        }
    };
    let worker = MainLoop::new(requests(&world)?, handler)
        .with_options(LoopOptions::new().with_concurrency(3))?;
    let running = start(&worker);
    for number in 0..9 {
        ask(&world, Request::new(Probe::new(number))).await?;
    }
    for _ in 0..9 {
        answer(&world).await?.acknowledge().await?;
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    stop(&worker, running).await
}

async fn results_without_reply_address_go_to_the_responses_mailbox(world: World) -> Outcome {
    let requests = requests(&world)?;
    let worker = MainLoop::new(requests.clone(), add_hundred).with_responses(replies(&world)?);
    let running = start(&worker);
    requests.send(Request::new(Probe::new(5))).await?;
    assert_eq!(answer(&world).await?.body()?.outcome, Ok(Probe::new(105)));
    stop(&worker, running).await
}

async fn the_error_of_a_handler_is_replied_and_the_request_done(world: World) -> Outcome {
    let requests = requests(&world)?;
    let worker: Worker = MainLoop::new(requests.clone(), |_: Probe, _: Context| async {
        Err::<Probe, _>("cannot be done")
    });
    let running = start(&worker);
    ask(&world, Request::new(Probe::new(0))).await?;
    let failure = answer(&world).await?.body()?.outcome.clone().expect_err("it failed");
    assert_eq!((failure.kind, failure.message.as_str()), (FailureKind::Failed, "cannot be done"));
    let done = || async { Ok(requests.stats().await?.live() == 0) };
    world.until("the request is acknowledged", done).await?;
    assert_eq!(requests.stats().await?.dead, 0);
    stop(&worker, running).await
}

async fn the_panic_of_a_handler_is_replied_and_the_loop_goes_on(world: World) -> Outcome {
    let worker: Worker = MainLoop::new(requests(&world)?, |probe: Probe, _: Context| async move {
        if probe.number == 13 {
            // A panic like any other, but nobody is told: it is no news.
            std::panic::resume_unwind(Box::new("thirteen"));
        }
        Ok::<_, HandlerFailure>(probe)
    });
    let running = start(&worker);
    ask(&world, Request::new(Probe::new(13))).await?;
    let first = answer(&world).await?;
    let failure = first.body()?.outcome.clone().expect_err("it panicked");
    assert_eq!(failure.kind, FailureKind::Panicked);
    first.acknowledge().await?;
    ask(&world, Request::new(Probe::new(14))).await?;
    assert_eq!(answer(&world).await?.body()?.outcome, Ok(Probe::new(14)));
    stop(&worker, running).await
}

async fn a_request_whose_reply_cannot_be_sent_comes_back_later_and_later(world: World) -> Outcome {
    let (requests, replies) = (requests(&world)?, replies(&world)?);
    replies.configure(Policy { max_size: Some(0), ..Policy::default() }).await?;
    let worker = MainLoop::new(requests.clone(), add_hundred);
    let running = start(&worker);
    ask(&world, Request::new(Probe::new(1))).await?;
    for (count, delay) in [(1, 60), (2, 120), (3, 180)] {
        let given_back = || async { Ok(worker.health().given_back == count) };
        world.until("the request is given back", given_back).await?;
        let seen = only(requests.peek(Peek::Live { limit: 2 }).await?);
        assert_eq!(u64::from(seen.delivery_count()), count);
        assert_eq!(seen.receivable_in(), Duration::from_secs(delay));
        if count == 3 {
            replies.configure(Policy::default()).await?;
        }
        world.pass_time(Duration::from_secs(delay)).await;
    }
    assert_eq!(answer(&world).await?.body()?.outcome, Ok(Probe::new(101)));
    stop(&worker, running).await
}

async fn a_request_that_nobody_wants_answered_is_done_all_the_same(world: World) -> Outcome {
    let requests = requests(&world)?;
    let worker = MainLoop::new(requests.clone(), add_hundred);
    let running = start(&worker);
    requests.send(Request::new(Probe::new(5))).await?;
    let unanswered = || async { Ok(worker.health().unanswered == 1) };
    world.until("it is handled", unanswered).await?;
    let done = || async { Ok(requests.stats().await?.live() == 0) };
    world.until("it is acknowledged", done).await?;
    assert_eq!(requests.stats().await?.dead, 0);
    stop(&worker, running).await
}

async fn a_message_that_is_no_request_is_put_aside_and_the_loop_goes_on(world: World) -> Outcome {
    let requests = requests(&world)?;
    let worker = MainLoop::new(requests.clone(), add_hundred);
    let running = start(&worker);
    world.typed::<String, ()>("requests")?.send("no request".to_owned()).await?;
    ask(&world, Request::new(Probe::new(1))).await?;
    assert_eq!(answer(&world).await?.body()?.outcome, Ok(Probe::new(101)));
    let dead = only(requests.peek(Peek::Dead { after: None, limit: 9 }).await?);
    assert_eq!(dead.death().map(|death| death.reason), Some(DeadReason::Decode));
    assert_eq!(dead.payload().map(|payload| &payload[..]), Some(&b"\"no request\""[..]));
    stop(&worker, running).await
}

async fn requests_and_results_have_the_shape_of_the_contract(_: World) -> Outcome {
    let request = Request::new(Probe::new(1))
        .with_deadline(Timestamp::from_unix_millis(0))
        .with_budget(Budget::new().with_units(3));
    let json = serde_json::to_value(&request)?;
    let keys: Vec<&String> = json.as_object().ok_or("an object")?.keys().collect();
    assert_eq!(keys, ["budget", "created_at", "deadline", "request", "request_id"]);
    let bare = serde_json::to_value(Request::new(Probe::new(1)))?;
    assert!(bare.get("budget").is_none() && bare.get("deadline").is_none());
    let id = request.request_id;
    let good = serde_json::to_value(Answer::new(id, Ok(Probe::new(2))).with_session_id("s"))?;
    let keys: Vec<&String> = good.as_object().ok_or("an object")?.keys().collect();
    assert_eq!(keys, ["completed_at", "output", "request_id", "session_id"]);
    let failure = HandlerFailure::new(FailureKind::Failed, "no");
    let bad = serde_json::to_value(Answer::new(id, Err(failure.clone())))?;
    assert!(bad.get("output").is_none() && bad.get("session_id").is_none());
    assert_eq!(bad["error"]["message"], "no");
    assert_eq!(serde_json::from_value::<Answer>(bad)?.outcome, Err(failure));
    Ok(())
}

async fn a_request_past_its_deadline_is_answered_without_running(world: World) -> Outcome {
    let ran = Arc::new(AtomicU32::new(0));
    let handler = {
        let ran = Arc::clone(&ran);
        move |probe: Probe, _: Context| {
            ran.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, HandlerFailure>(probe) }
        }
    };
    let worker = MainLoop::new(requests(&world)?, handler);
    let running = start(&worker);
    let late = Timestamp::now().before(Duration::from_secs(1));
    ask(&world, Request::new(Probe::new(0)).with_deadline(late)).await?;
    let first = answer(&world).await?;
    let failure = first.body()?.outcome.clone().expect_err("it was late");
    assert_eq!(failure.kind, FailureKind::DeadlineExceeded);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    first.acknowledge().await?;
    let soon = Timestamp::now().after(Duration::from_secs(3600));
    ask(&world, Request::new(Probe::new(1)).with_deadline(soon)).await?;
    assert_eq!(answer(&world).await?.body()?.outcome, Ok(Probe::new(1)));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    stop(&worker, running).await
}

async fn a_handler_cannot_spend_more_than_the_budget(world: World) -> Outcome {
    let worker: Worker =
        MainLoop::new(requests(&world)?, |probe: Probe, context: Context| async move {
            for _ in 0..probe.number {
                context.spend(1)?;
            }
            Ok::<_, HandlerFailure>(probe)
        });
    let running = start(&worker);
    let budget = Budget::new().with_units(3);
    ask(&world, Request::new(Probe::new(3)).with_budget(budget)).await?;
    let first = answer(&world).await?;
    assert_eq!(first.body()?.outcome, Ok(Probe::new(3)));
    first.acknowledge().await?;
    ask(&world, Request::new(Probe::new(4)).with_budget(budget)).await?;
    let failure = answer(&world).await?.body()?.outcome.clone().expect_err("it was too dear");
    assert_eq!(failure.kind, FailureKind::BudgetExceeded);
    stop(&worker, running).await
}

async fn the_context_tells_the_handler_about_its_request(world: World) -> Outcome {
    let worker: Worker =
        MainLoop::new(requests(&world)?, |_: Probe, context: Context| async move {
            context.set_session_id("session 7");
            let told = format!(
                "{} {} {:?}",
                context.request_id(),
                context.delivery_count(),
                context.attributes().get("trace")
            );
            Ok::<_, HandlerFailure>(Probe::with_text(0, told))
        });
    let running = start(&worker);
    let request = Request::new(Probe::new(0));
    let expected = format!("{} 1 Some(\"abc\")", request.request_id);
    let options =
        SendOptions::new().with_reply_to(&replies(&world)?).with_attribute("trace", "abc");
    requests(&world)?.send_with(request, options).await?;
    let answer = answer(&world).await?;
    assert_eq!(answer.body()?.outcome, Ok(Probe::with_text(0, expected)));
    assert_eq!(answer.body()?.session_id.as_deref(), Some("session 7"));
    stop(&worker, running).await
}
