//! The plain work queue: several workers, retries with backoff, dead letters, a clean stop.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use mailbox::{Mailbox, NackOptions, Policy, ReceiveOptions};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

#[derive(Debug, Serialize, Deserialize)]
struct Job {
    number: u32,
}

/// Every third job fails the first time, job 7 every time.
fn work(job: &Job, delivery: u32) -> Result<(), String> {
    match (job.number, delivery) {
        (7, _) => Err("job 7 never works".to_owned()),
        (number, 1) if number % 3 == 0 => Err(format!("job {number} was unlucky")),
        _ => Ok(()),
    }
}

/// Takes jobs until none has come for a while.
async fn worker(name: u32, jobs: Mailbox<Job>) -> mailbox::Result<u32> {
    let options = ReceiveOptions::new().with_wait(Duration::from_millis(200));
    let mut done = 0;
    loop {
        let messages = jobs.receive_with(options.clone()).await?;
        if messages.is_empty() {
            return Ok(done);
        }
        for message in messages {
            let job = match message.body() {
                Ok(job) => job,
                // Not a job: put it aside, and go on with the others.
                Err(error) => {
                    message.reject(error.to_string()).await?;
                    continue;
                }
            };
            match work(job, message.delivery_count()) {
                Ok(()) => {
                    message.acknowledge().await?;
                    done += 1;
                }
                Err(why) => {
                    println!("worker {name}: {why}, delivery {}", message.delivery_count());
                    let delay = Duration::from_millis(10) * message.delivery_count();
                    let options = NackOptions::new().with_delay(delay).with_error(why);
                    message.nack_with(options).await?;
                }
            }
        }
    }
}

#[tokio::main]
async fn main() -> mailbox::Result<()> {
    let jobs: Mailbox<Job> = Mailbox::memory("jobs")?;
    jobs.configure(Policy { max_attempts: Some(3), ..Policy::default() }).await?;
    for number in 1..=20 {
        jobs.send(Job { number }).await?;
    }

    let mut workers = JoinSet::new();
    for name in 1..=4 {
        workers.spawn(worker(name, jobs.clone()));
    }
    let mut done = 0;
    for result in workers.join_all().await {
        done += result?;
    }
    println!("{done} jobs done");

    let dead = jobs.dead_letters(10).await?;
    for letter in &dead {
        let job = letter.body()?;
        println!("given up: {job:?}, {}", letter.last_error().unwrap_or("no reason"));
    }
    assert_eq!((done, dead.len()), (19, 1));
    assert_eq!(jobs.approximate_count().await?, 0);
    Ok(())
}
