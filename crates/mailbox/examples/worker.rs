//! A worker: four requests at once, then a graceful stop that finishes what has begun.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use mailbox::main_loop::{Client, Context, HandlerFailure, LoopEnd, LoopOptions, MainLoop};
use mailbox::{Mailbox, MainLoopRequest};
use tokio::sync::{Barrier, Notify};
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let requests = Mailbox::memory("requests")?;

    // A handler waits for three others, so nothing is done unless four run at once. The one of the
    // slow request tells that it has begun, and waits to be told to go on.
    let four = Arc::new(Barrier::new(4));
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (slow_begun, slow_go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
    let handler = move |name: String, _: Context| {
        let (four, begun, go_on) =
            (Arc::clone(&four), Arc::clone(&slow_begun), Arc::clone(&slow_go_on));
        async move {
            if name == "slow" {
                begun.notify_one();
                go_on.notified().await;
            } else {
                four.wait().await;
            }
            Ok::<_, HandlerFailure>(format!("{name} done"))
        }
    };
    let worker = MainLoop::new(requests.clone(), handler)
        .with_options(LoopOptions::new().with_concurrency(4))?;
    let running = tokio::spawn(worker.run());

    println!("1. eight calls, four handlers at a time");
    let client = Client::private(requests.clone(), Mailbox::memory("replies")?);
    let mut calls = JoinSet::new();
    for number in 1..=8 {
        let client = client.clone();
        calls.spawn(async move { client.call(format!("request {number}"), PATIENCE).await });
    }
    while let Some(answer) = calls.join_next().await {
        println!("   {}", answer??);
    }

    println!("2. a slow request is being handled when the worker is told to stop");
    let slow = client.clone();
    let slow = tokio::spawn(async move { slow.call("slow".to_owned(), PATIENCE).await });
    begun.notified().await;
    worker.stop_handle().stop();
    assert!(!slow.is_finished() && worker.health().running);

    println!("3. it is finished and answered before the worker ends");
    go_on.notify_one();
    println!("   {}", slow.await??);
    assert_eq!(running.await?, LoopEnd::Stopped);

    println!("4. what comes now waits for another worker");
    requests.send(MainLoopRequest::new("late".to_owned())).await?;

    let (health, waiting) = (worker.health(), requests.approximate_count().await?);
    println!("   {} handled, {} in flight, {waiting} waiting", health.handled, health.in_flight);
    assert_eq!((health.handled, health.in_flight, waiting), (9, 0, 1));
    Ok(())
}
