//! P4 to P6: how a loop keeps its leases, how it ends, and how it is called.

use std::sync::Arc;
use std::time::Duration;

use mailbox::main_loop::{
    CallError, Client, Context, HandlerFailure, LoopEnd, LoopGroup, LoopOptions, MainLoop,
};
use mailbox::{Mailbox, Peek};
use tokio::sync::{AcquireError, Notify, Semaphore};

use super::main_loop::{
    Answer, Request, Worker, add_hundred, answer, ask, replies, requests, start, stop,
};
use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::only;
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("P4", a_lease_is_extended_while_its_handler_runs, exact_time),
    case!("P4", a_handler_whose_lease_is_lost_is_told_and_answers_nothing, exact_time),
    case!("P5", a_stop_before_the_start_is_honoured),
    case!("P5", a_stop_ends_the_long_poll),
    case!("P5", a_stopped_loop_finishes_what_runs, cancel),
    case!("P5", what_does_not_finish_in_time_is_given_back, cancel),
    case!("P5", a_loop_ends_after_its_iterations),
    case!("P5", a_loop_ends_when_its_mailbox_is_closed),
    case!("P5", health_can_be_read),
    case!("P5", loops_of_a_group_stop_together, cancel),
    case!("P6", a_call_gives_the_answer_to_its_own_request),
    case!("P6", calls_share_a_reply_mailbox, undo),
    case!("P6", a_call_that_fails_says_how),
    case!("P6", a_call_that_nobody_answers_ends),
];

/// A loop whose handlers say when they have started, and go on when they are let.
struct Held {
    worker: Worker,
    /// One permit per handler that has started.
    started: Arc<Semaphore>,
    /// One permit per handler that may go on.
    go_on: Arc<Semaphore>,
}

impl Held {
    fn new(world: &World, options: LoopOptions) -> Outcome<Self> {
        let (started, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (told, let_go) = (Arc::clone(&started), Arc::clone(&go_on));
        let handler = move |probe: Probe, _: Context| {
            let (told, let_go) = (Arc::clone(&told), Arc::clone(&let_go));
            async move {
                told.add_permits(1);
                let_go.acquire().await?.forget();
                Ok::<_, AcquireError>(probe)
            }
        };
        let worker = MainLoop::new(requests(world)?, handler).with_options(options)?;
        Ok(Self { worker, started, go_on })
    }

    /// Ends when another handler has started.
    async fn started(&self) -> Outcome {
        self.started.acquire().await?.forget();
        Ok(())
    }
}

async fn a_lease_is_extended_while_its_handler_runs(world: World) -> Outcome {
    let lease = Duration::from_millis(90);
    let held = Held::new(&world, LoopOptions::new().with_visibility_timeout(lease))?;
    let running = start(&held.worker);
    ask(&world, Request::new(Probe::new(1))).await?;
    held.started().await?;
    let requests = requests(&world)?;
    // The mailbox's time stands still but for this; the loop keeps its own.
    for _ in 0..4 {
        world.pass_time(lease / 2).await;
        let extended = || async {
            let seen = requests.peek(Peek::Live { limit: 1 }).await?;
            Ok(seen.iter().any(|seen| seen.receivable_in() == lease))
        };
        world.until("the lease is as long as at first", extended).await?;
    }
    held.go_on.add_permits(1);
    let answer = answer(&world).await?;
    assert_eq!(answer.body()?.outcome, Ok(Probe::new(1)));
    assert_eq!(held.worker.health().lease_lost, 0);
    stop(&held.worker, running).await
}

async fn a_handler_whose_lease_is_lost_is_told_and_answers_nothing(world: World) -> Outcome {
    let (started, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (started, told) = (Arc::clone(&started), Arc::clone(&told));
        move |probe: Probe, context: Context| {
            let (started, told) = (Arc::clone(&started), Arc::clone(&told));
            async move {
                if context.delivery_count() == 1 {
                    started.notify_one();
                    context.cancelled().await;
                    told.notify_one();
                }
                Ok::<_, HandlerFailure>(Probe::new(
                    probe.number + u64::from(context.delivery_count()),
                ))
            }
        }
    };
    let lease = Duration::from_millis(90);
    let worker: Worker = MainLoop::new(requests(&world)?, handler)
        .with_options(LoopOptions::new().with_visibility_timeout(lease))?;
    let running = start(&worker);
    ask(&world, Request::new(Probe::new(10))).await?;
    started.notified().await;
    world.pass_time(lease).await;
    told.notified().await;
    // The second delivery answers; the first had lost the right to.
    assert_eq!(answer(&world).await?.body()?.outcome, Ok(Probe::new(12)));
    assert_eq!(worker.health().lease_lost, 1);
    assert_eq!(replies(&world)?.approximate_count().await?, 1, "one answer");
    stop(&worker, running).await
}

async fn a_stop_before_the_start_is_honoured(world: World) -> Outcome {
    ask(&world, Request::new(Probe::new(1))).await?;
    let worker = MainLoop::new(requests(&world)?, add_hundred);
    worker.stop_handle().stop();
    assert_eq!(worker.run().await, LoopEnd::Stopped);
    let stats = requests(&world)?.stats().await?;
    assert_eq!((stats.ready, stats.totals.delivered), (1, 0));
    Ok(())
}

async fn a_stop_ends_the_long_poll(world: World) -> Outcome {
    let worker = MainLoop::new(requests(&world)?, add_hundred);
    let running = start(&worker);
    world.until_waiting(&requests(&world)?, 1).await?;
    // Twenty seconds of the mailbox's time would be left, which nobody moves where it is virtual.
    stop(&worker, running).await?;
    assert!(!worker.health().running);
    Ok(())
}

async fn a_stopped_loop_finishes_what_runs(world: World) -> Outcome {
    let held = Held::new(&world, LoopOptions::new())?;
    let running = start(&held.worker);
    ask(&world, Request::new(Probe::new(1))).await?;
    held.started().await?;
    ask(&world, Request::new(Probe::new(2))).await?;
    held.worker.stop_handle().stop();
    held.go_on.add_permits(1);
    assert_eq!(running.await?, LoopEnd::Stopped);
    assert_eq!(only(replies(&world)?.receive().await?).body()?.outcome, Ok(Probe::new(1)));
    let left = only(requests(&world)?.receive().await?);
    assert_eq!((left.body()?.request.number, left.delivery_count()), (2, 1), "it was not begun");
    Ok(())
}

async fn what_does_not_finish_in_time_is_given_back(world: World) -> Outcome {
    let hasty = LoopOptions::new().with_drain(Duration::ZERO).with_grace(Duration::ZERO);
    let held = Held::new(&world, hasty)?;
    let running = start(&held.worker);
    ask(&world, Request::new(Probe::new(1))).await?;
    held.started().await?;
    stop(&held.worker, running).await?;
    assert_eq!(held.worker.health().given_back, 1);
    let stats = requests(&world)?.stats().await?;
    assert_eq!((stats.invisible, stats.live()), (0, 1), "somebody else can do it");
    assert_eq!(replies(&world)?.approximate_count().await?, 0);
    Ok(())
}

async fn a_loop_ends_after_its_iterations(world: World) -> Outcome {
    for number in 0..3 {
        ask(&world, Request::new(Probe::new(number))).await?;
    }
    let worker = MainLoop::new(requests(&world)?, add_hundred)
        .with_options(LoopOptions::new().with_max_iterations(2))?;
    assert_eq!(worker.run().await, LoopEnd::MaxIterations);
    assert_eq!(worker.health().handled, 2);
    assert_eq!(requests(&world)?.stats().await?.ready, 1);
    Ok(())
}

async fn a_loop_ends_when_its_mailbox_is_closed(world: World) -> Outcome {
    let requests = requests(&world)?;
    let worker = MainLoop::new(requests.clone(), add_hundred);
    let running = start(&worker);
    world.until_waiting(&requests, 1).await?;
    requests.close().await?;
    assert_eq!(running.await?, LoopEnd::Closed);
    Ok(())
}

async fn health_can_be_read(world: World) -> Outcome {
    let held = Held::new(&world, LoopOptions::new().with_concurrency(2))?;
    let health = held.worker.health();
    assert!(!health.running && health.last_heartbeat.is_none() && health.in_flight == 0);
    let running = start(&held.worker);
    for number in 0..2 {
        ask(&world, Request::new(Probe::new(number))).await?;
        held.started().await?;
    }
    let health = held.worker.health();
    assert!(health.running && health.last_heartbeat.is_some() && health.in_flight == 2);
    assert!(health.is_alive(Duration::from_secs(60)));
    held.go_on.add_permits(2);
    for _ in 0..2 {
        answer(&world).await?.acknowledge().await?;
    }
    let idle = || async { Ok(held.worker.health().in_flight == 0) };
    world.until("nothing is in flight", idle).await?;
    assert_eq!(held.worker.health().handled, 2);
    stop(&held.worker, running).await
}

async fn loops_of_a_group_stop_together(world: World) -> Outcome {
    let mailboxes: Vec<Mailbox<Request, Answer>> =
        ["a", "b", "c"].iter().map(|name| world.typed(name)).collect::<Result<_, _>>()?;
    let workers: Vec<Worker> =
        mailboxes.iter().map(|mailbox| MainLoop::new(mailbox.clone(), add_hundred)).collect();
    let group = workers.iter().fold(LoopGroup::new(), |group, worker| group.with(worker));
    let stop = group.stop_handle();
    let running = tokio::spawn(group.run());
    for mailbox in &mailboxes {
        world.until_waiting(mailbox, 1).await?;
    }
    stop.stop();
    let ends: Vec<_> =
        running.await?.into_iter().map(|(name, end)| (name.to_string(), end)).collect();
    let expected = ["a", "b", "c"].map(|name| (name.to_owned(), LoopEnd::Stopped));
    assert_eq!(ends, expected);
    Ok(())
}

/// More than any answer takes, and yet an end.
const PATIENCE: Duration = Duration::from_secs(30);

async fn a_call_gives_the_answer_to_its_own_request(world: World) -> Outcome {
    let worker = MainLoop::new(requests(&world)?, add_hundred)
        .with_options(LoopOptions::new().with_concurrency(4))?;
    let running = start(&worker);
    let client = Client::private(requests(&world)?, replies(&world)?);
    let mut calls = Vec::new();
    for number in 0..20 {
        let client = client.clone();
        calls.push(tokio::spawn(async move { client.call(Probe::new(number), PATIENCE).await }));
    }
    for (number, call) in (0..).zip(calls) {
        assert_eq!(call.await??, Probe::new(number + 100));
    }
    assert_eq!(client.stats().answered, 20);
    stop(&worker, running).await
}

async fn calls_share_a_reply_mailbox(world: World) -> Outcome {
    let worker = MainLoop::new(requests(&world)?, add_hundred);
    let running = start(&worker);
    // Clients live on: one that goes away may hold others' answers for a visibility timeout.
    let (mut clients, mut calls) = (Vec::new(), Vec::new());
    for number in 0..6 {
        let client = Client::shared(requests(&world)?, replies(&world)?);
        clients.push(client.clone());
        calls.push(tokio::spawn(async move { client.call(Probe::new(number), PATIENCE).await }));
    }
    for (number, call) in (0..).zip(calls) {
        assert_eq!(call.await??, Probe::new(number + 100));
    }
    let answered: u64 = clients.iter().map(|client| client.stats().answered).sum();
    assert_eq!(answered, 6);
    stop(&worker, running).await
}

async fn a_call_that_fails_says_how(world: World) -> Outcome {
    let worker: Worker =
        MainLoop::new(requests(&world)?, |_: Probe, _: Context| async { Err::<Probe, _>("no") });
    let running = start(&worker);
    let client = Client::private(requests(&world)?, replies(&world)?);
    match client.call(Probe::new(0), PATIENCE).await {
        Err(CallError::Failed(failure)) => assert_eq!(failure.message, "no"),
        other => return Err(format!("it should have failed: {other:?}").into()),
    }
    stop(&worker, running).await
}

async fn a_call_that_nobody_answers_ends(world: World) -> Outcome {
    let client: Client<Probe, Probe> = Client::private(requests(&world)?, replies(&world)?);
    let requests = requests(&world)?;
    let mut patience = Duration::from_millis(20);
    // A disk may be slower than the patience of the caller: then nothing was sent.
    let request = loop {
        let called = client.call(Probe::new(0), patience).await;
        assert!(matches!(called, Err(CallError::Timeout { .. })), "{called:?}");
        if let Some(request) = requests.receive().await?.pop() {
            break request;
        }
        patience *= 2;
        assert!(patience < Duration::from_secs(20), "the request was never sent");
    };
    // The request is there, with a deadline: no loop will begin it.
    assert!(request.body()?.deadline.is_some());
    Ok(())
}
