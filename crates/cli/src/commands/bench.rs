//! `mailbox bench`: how quickly messages go in and out. Invariant: the mailbox that is used for it
//! is its own, and is removed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mailbox::{
    Backend, Error, ErrorKind, Name, Outgoing, ReceiveOptions, Result, Settlement, Verdict,
};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use crate::args::Bench;
use crate::exit::Outcome;
use crate::output;
use crate::place::{self, Making, Place};
use crate::progress::Progress;
use crate::signals::Signals;

/// Longest that one receive waits for messages that must be there.
const WAIT: Duration = Duration::from_secs(5);

/// What `--json` prints.
#[derive(Serialize)]
struct Document {
    backend: &'static str,
    messages: u64,
    size: usize,
    producers: u16,
    batch: u16,
    send: Measured,
    receive: Measured,
}

/// What one half of the run took.
#[derive(Debug, Serialize)]
struct Measured {
    seconds: f64,
    messages_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

pub(super) async fn run(args: &Bench) -> Result<Outcome> {
    let mut signals = Signals::new()?;
    place::at(&args.address, Making::Yes, async |place| {
        check(args, place)?;
        let name = Name::parse(&format!("bench-{}", Uuid::now_v7()))?;
        let measured = tokio::select! {
            measured = measure(args, place, &name) => measured.map(Some),
            () = signals.next() => Ok(None),
        };
        let removed = place.backend.remove(&name).await;
        let Some(document) = measured? else { return Ok(Outcome::Interrupted) };
        if args.json {
            output::print_json(&document)?
        } else {
            print(&document)?
        }
        removed.map(|_| Outcome::Done)
    })
    .await
}

/// Refuses what the mailbox would refuse, before anything is sent.
fn check(args: &Bench, place: &Place) -> Result<()> {
    let abilities = place.backend.abilities();
    if args.size > abilities.max_payload {
        return Err(Error::too_large("size", args.size, abilities.max_payload));
    }
    abilities.check_batch("batch", usize::from(args.batch))
}

async fn measure(args: &Bench, place: &Place, name: &Name) -> Result<Document> {
    let send = phase(args, place, name, "sending", Step::Send).await?;
    let receive = phase(args, place, name, "receiving", Step::Receive).await?;
    Ok(Document {
        backend: place.backend.abilities().backend,
        messages: args.messages,
        size: args.size,
        producers: args.producers,
        batch: args.batch,
        send,
        receive,
    })
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Send,
    Receive,
}

/// What those who work at the same time share.
struct Shared {
    backend: Arc<dyn Backend>,
    name: Name,
    payload: Bytes,
    batch: u64,
    /// Messages that nobody has taken on yet.
    left: AtomicU64,
    progress: Progress,
}

async fn phase(
    args: &Bench,
    place: &Place,
    name: &Name,
    doing: &'static str,
    step: Step,
) -> Result<Measured> {
    let shared = Arc::new(Shared {
        backend: Arc::clone(&place.backend),
        name: name.clone(),
        payload: vec![b'x'; args.size].into(),
        batch: u64::from(args.batch),
        left: AtomicU64::new(args.messages),
        progress: Progress::new(doing, Some(args.messages)),
    });
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..args.producers {
        let shared = Arc::clone(&shared);
        workers.spawn(async move { shared.run(step).await });
    }
    let mut times = Vec::new();
    while let Some(done) = workers.join_next().await {
        let done = done.map_err(|error| {
            Error::new(ErrorKind::Internal, "a measurement was cut short").with_source(error)
        })?;
        times.extend(done?);
    }
    shared.progress.finish();
    Ok(measured(args.messages, started.elapsed(), times))
}

impl Shared {
    async fn run(&self, step: Step) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        loop {
            let take = |left: u64| (left > 0).then(|| left.saturating_sub(self.batch));
            let taken = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
            let Ok(left) = taken else { return Ok(times) };
            let count = left.min(self.batch);
            let started = Instant::now();
            match step {
                Step::Send => self.send(count).await?,
                Step::Receive => self.receive(count).await?,
            }
            times.push(started.elapsed());
            self.progress.advance(count);
        }
    }

    async fn send(&self, count: u64) -> Result<()> {
        let batch = (0..count).map(|_| Outgoing::new(self.payload.clone())).collect();
        for sent in self.backend.send(&self.name, batch).await? {
            sent?;
        }
        Ok(())
    }

    async fn receive(&self, mut count: u64) -> Result<()> {
        while count > 0 {
            let options = ReceiveOptions::new()
                .with_max_messages(u32::try_from(count).unwrap_or(u32::MAX))
                .with_visibility_timeout(Duration::from_secs(600))
                .with_wait(WAIT);
            let received = self.backend.receive(&self.name, &options).await?;
            if received.is_empty() {
                let message = format!("{count} messages that were sent did not come");
                return Err(Error::new(ErrorKind::Internal, message).with_mailbox(&self.name));
            }
            count = count.saturating_sub(received.len() as u64);
            let settlement =
                |receipt_handle| Settlement { receipt_handle, verdict: Verdict::Acknowledge };
            let batch = received.into_iter().map(|it| settlement(it.receipt_handle)).collect();
            for settled in self.backend.settle(&self.name, batch).await? {
                settled?;
            }
        }
        Ok(())
    }
}

fn measured(messages: u64, time: Duration, mut times: Vec<Duration>) -> Measured {
    times.sort_unstable();
    let at = |part: usize| {
        let index = (times.len() * part / 100).min(times.len().saturating_sub(1));
        times.get(index).map_or(0.0, |time| rounded(time.as_secs_f64() * 1_000.0))
    };
    let seconds = time.as_secs_f64();
    Measured {
        seconds: rounded(seconds),
        messages_per_second: (messages as f64 / seconds.max(1e-9)).round(),
        p50_ms: at(50),
        p99_ms: at(99),
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

fn print(document: &Document) -> Result<()> {
    let Document { backend, messages, size, producers, batch, send, receive } = document;
    let heading = ["", "messages/s", "p50", "p99", "total"];
    let row = |what: &str, measured: &Measured| {
        vec![
            what.to_owned(),
            measured.messages_per_second.to_string(),
            format!("{} ms", measured.p50_ms),
            format!("{} ms", measured.p99_ms),
            format!("{} s", measured.seconds),
        ]
    };
    let rows =
        [heading.map(str::to_owned).to_vec(), row("send", send), row("receive + ack", receive)];
    let what = format!(
        "{backend}: {messages} messages of {size} bytes, {producers} at a time, {batch} in a call\n"
    );
    output::print(&(what + &output::table(&rows)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_calls() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        let measured = measured(100, Duration::from_secs(2), times);
        assert_eq!((measured.p50_ms, measured.p99_ms), (51.0, 100.0));
        assert_eq!(measured.messages_per_second, 50.0);
    }
}
