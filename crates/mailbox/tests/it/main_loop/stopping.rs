//! How loops end (P5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mailbox::main_loop::{Context, HandlerFailure, LoopEnd, LoopGroup, LoopOptions, MainLoop};
use mailbox::{Mailbox, Peek};
use tokio::time::{Instant, sleep};

use super::faulty::Faulty;
use super::guard::in_time;
use super::{Running, ask, echo, handler, pairs, receive_now, reply, seconds, until};

/// In another implementation a stop asked for before the start was forgotten by the start.
#[tokio::test(start_paused = true)]
async fn a_stop_asked_for_before_start_is_honoured() {
    for (requests, replies) in pairs() {
        ask(&requests, &replies, "hello").await;
        let main_loop = MainLoop::new(requests.clone(), echo());
        main_loop.stop_handle().stop();
        assert_eq!(in_time(main_loop.run()).await, LoopEnd::Stopped);
        assert_eq!(in_time(main_loop.run()).await, LoopEnd::Stopped, "for good");
        let stats = requests.stats().await.unwrap();
        assert_eq!((stats.ready, stats.invisible), (1, 0), "nothing was received");

        let group = LoopGroup::new().with(&MainLoop::new(requests.clone(), echo()));
        group.stop_handle().stop();
        assert_eq!(in_time(group.run()).await[0].1, LoopEnd::Stopped);
        assert_eq!(receive_now(&requests).await[0].delivery_count(), 1);
    }
}

/// In another implementation a stop was noticed when the long poll had run its time.
#[tokio::test(start_paused = true)]
async fn a_stop_interrupts_the_long_poll() {
    for (requests, replies) in pairs() {
        let running = Running::start(&requests, echo());
        sleep(seconds(1)).await;
        let begin = Instant::now();
        running.stop().await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        ask(&requests, &replies, "later").await;
        assert_eq!(receive_now(&requests).await[0].delivery_count(), 1, "no poll is left");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_interrupts_the_wait_after_an_error() {
    let (backend, requests, _) = Faulty::pair();
    backend.no_receive.store(true, Ordering::Relaxed);
    let running = Running::start(&requests, echo());
    sleep(seconds(100)).await;
    let begin = Instant::now();
    running.stop().await;
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn run_until_ends_with_its_future() {
    let (requests, _) = super::local();
    let begin = Instant::now();
    let main_loop = MainLoop::new(requests, echo());
    assert_eq!(in_time(main_loop.run_until(sleep(seconds(7)))).await, LoopEnd::Stopped);
    assert!((seconds(7)..seconds(8)).contains(&begin.elapsed()));
}

/// In another implementation loops were told one after the other, each after the last had ended.
#[tokio::test(start_paused = true)]
async fn every_loop_in_a_group_is_told_at_once() {
    let mut group = LoopGroup::new();
    let mut loops = Vec::new();
    for (requests, replies) in [super::local(), super::local(), super::memory()] {
        let main_loop = MainLoop::new(
            requests.clone(),
            handler(|text, _| async move {
                sleep(seconds(10)).await;
                Ok(text)
            }),
        );
        ask(&requests, &replies, "first").await;
        ask(&requests, &replies, "second").await;
        group = group.with(&main_loop);
        loops.push((main_loop, requests));
    }
    // Of other types, and idle.
    let adder = MainLoop::new(Mailbox::local("adder").unwrap(), |n: u32, _: Context| async move {
        Ok::<_, HandlerFailure>(n + 1)
    });
    group = group.with(&adder);
    let (stop, watched) = (group.stop_handle(), group.clone());
    let task = tokio::spawn(group.run());
    until(|| watched.health().iter().all(|(_, health)| health.running)).await;
    until(|| loops.iter().all(|(main_loop, _)| main_loop.health().in_flight == 1)).await;

    let begin = Instant::now();
    stop.stop();
    let ends = in_time(task).await.unwrap();
    // One handler's time, not three: nobody began the second request after the stop.
    assert!(begin.elapsed() <= seconds(10), "{:?}", begin.elapsed());
    let names: Vec<_> = ends.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["requests", "requests", "requests", "adder"]);
    assert!(ends.iter().all(|(_, end)| *end == LoopEnd::Stopped));
    for (main_loop, requests) in loops {
        assert_eq!(main_loop.health().handled, 1);
        let stats = requests.stats().await.unwrap();
        assert_eq!((stats.ready, stats.invisible), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_ends_by_itself_leaves_the_others_of_its_group_running() {
    let (closing, _) = super::local();
    let (requests, replies) = super::local();
    let (first, second) =
        (MainLoop::new(closing.clone(), echo()), MainLoop::new(requests.clone(), echo()));
    let group = LoopGroup::new().with(&first).with(&second);
    let stop = group.stop_handle();
    let task = tokio::spawn(group.run());
    until(|| first.health().running).await;
    closing.close().await.unwrap();
    until(|| !first.health().running).await;
    ask(&requests, &replies, "hello").await;
    assert_eq!(reply(&replies).await.outcome.unwrap(), "hello!");
    stop.stop();
    let ends: Vec<_> = in_time(task).await.unwrap().into_iter().map(|(_, end)| end).collect();
    assert_eq!(ends, [LoopEnd::Closed, LoopEnd::Stopped]);
}

#[tokio::test(start_paused = true)]
async fn p5_what_runs_finishes_within_the_drain_time() {
    for (requests, replies) in pairs() {
        let running = Running::start(
            &requests,
            handler(|text, context| async move {
                sleep(seconds(19)).await;
                assert!(!context.is_cancelled());
                Ok(text)
            }),
        );
        ask(&requests, &replies, "first").await;
        ask(&requests, &replies, "second").await;
        until(|| running.health().in_flight == 1).await;
        let health = running.stop().await;
        assert_eq!((health.handled, health.given_back), (1, 0));
        assert_eq!(reply(&replies).await.outcome.unwrap(), "first");
        assert_eq!(requests.stats().await.unwrap().ready, 1, "no more was received");
    }
}

#[tokio::test(start_paused = true)]
async fn p5_what_does_not_finish_in_the_drain_time_is_told_cut_off_and_nacked() {
    for (requests, replies) in pairs() {
        let told = Arc::new(AtomicU64::new(0));
        let telling = Arc::clone(&told);
        let options =
            LoopOptions::new().with_concurrency(4).with_drain(seconds(10)).with_grace(seconds(2));
        let running = Running::with(
            &requests,
            options,
            handler(move |text, context| {
                let told = Arc::clone(&telling);
                async move {
                    match text.as_str() {
                        "quick" => sleep(seconds(5)).await,
                        "deaf" => sleep(seconds(3_600)).await,
                        _ => context.cancelled().await,
                    }
                    told.fetch_add(u64::from(context.is_cancelled()), Ordering::Relaxed);
                    if text == "obeys" { Err("interrupted".to_owned()) } else { Ok(text) }
                }
            }),
        );
        for text in ["quick", "deaf", "obeys", "saves its work"] {
            ask(&requests, &replies, text).await;
        }
        until(|| running.health().in_flight == 4).await;
        let begin = Instant::now();
        let health = running.stop().await;
        assert!((seconds(12)..seconds(13)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        assert_eq!(told.load(Ordering::Relaxed), 2);
        assert_eq!((health.handled, health.failed, health.given_back), (2, 0, 2));
        assert_eq!(reply(&replies).await.outcome.unwrap(), "quick");
        assert_eq!(reply(&replies).await.outcome.unwrap(), "saves its work");

        let seen = requests.peek(Peek::Live { limit: 10 }).await.unwrap();
        let error = seen[0].last_error().unwrap();
        assert!(error.contains("stopped"), "{error}");
        let back = receive_now(&requests).await;
        assert_eq!(back.len(), 2, "receivable at once, for somebody else");
        assert!(back.iter().all(|message| message.delivery_count() == 2));
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_ends_everything_and_loses_nothing() {
    struct OnDrop(Arc<AtomicBool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    for (requests, replies) in pairs() {
        let ended = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&ended);
        let main_loop = MainLoop::new(
            requests.clone(),
            handler(move |text, _| {
                let on_drop = OnDrop(Arc::clone(&ending));
                async move {
                    sleep(seconds(3_600)).await;
                    drop(on_drop);
                    Ok(text)
                }
            }),
        );
        ask(&requests, &replies, "hello").await;
        let run = main_loop.run();
        assert!(tokio::time::timeout(seconds(5), run).await.is_err());
        until(|| ended.load(Ordering::Relaxed) && !main_loop.health().running).await;
        assert_eq!(main_loop.health().in_flight, 0);
        assert!(receive_now(&requests).await.is_empty());
        sleep(seconds(300)).await;
        assert_eq!(receive_now(&requests).await[0].delivery_count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_last_iteration_is_handled_drains_it() {
    let (requests, replies) = super::local();
    let options = LoopOptions::new().with_max_iterations(1).with_drain(seconds(1));
    let running = Running::with(
        &requests,
        options,
        handler(|text, _| async move {
            sleep(seconds(3_600)).await;
            Ok(text)
        }),
    );
    ask(&requests, &replies, "hello").await;
    until(|| running.health().in_flight == 1).await;
    assert_eq!(running.stop().await.given_back, 1);
}
