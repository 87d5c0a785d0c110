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
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::args::Bench;
use crate::exit::Outcome;
use crate::local;
use crate::output;
use crate::place::{self, Making, Place};
use crate::progress::Progress;
use crate::signals::Signals;

/// Longest that one receive waits for messages that must be there.
const WAIT: Duration = Duration::from_secs(5);
/// How long those who are told to stop may take to end what they have begun.
const FINISH: Duration = Duration::from_secs(10);

/// What `--json` prints.
#[derive(Serialize)]
struct Document {
    /// Which of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    backend: &'static str,
    messages: u64,
    size: usize,
    producers: u16,
    batch: u16,
    send: Measured,
    receive: Measured,
    /// How many times the messages/s of the first of several; not of the first itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    compared: Option<Compared>,
}

/// Something against the first that was measured.
#[derive(Debug, Serialize)]
struct Compared {
    send: f64,
    receive: f64,
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
    let mut places = Vec::new();
    // All of them first: what cannot be opened is said before anything is measured.
    let opened = open(args, &mut places).await;
    let done = match opened {
        Ok(()) => compare(args, &places, &mut signals).await,
        Err(error) => Err(error),
    };
    let mut closed = Ok(());
    for place in &places {
        closed = closed.and(place.backend.close().await);
    }
    let done = done?;
    closed.map(|()| done)
}

async fn open(args: &Bench, places: &mut Vec<Place>) -> Result<()> {
    for address in &args.addresses {
        let place = Place::open(place::read(address)?, Making::Yes).await?;
        let checked = check(args, &place);
        places.push(place);
        checked?;
    }
    Ok(())
}

/// Measures one after the other, and says how they stand to the first.
async fn compare(args: &Bench, places: &[Place], signals: &mut Signals) -> Result<Outcome> {
    let is_one = places.len() == 1;
    let mut documents: Vec<Document> = Vec::new();
    for place in places {
        let Some(mut document) = one(args, place, signals).await? else {
            return Ok(Outcome::Interrupted);
        };
        // As the backend says it: what was asked for may have secrets in it.
        document.address = (!is_one).then(|| place.known_as());
        document.compared = documents.first().map(|first| Compared {
            send: ratio(&document.send, &first.send),
            receive: ratio(&document.receive, &first.receive),
        });
        if !args.json {
            print(&document, &reached(place))?;
        }
        documents.push(document);
    }
    match documents.as_slice() {
        [document] if args.json => output::print_json(document)?,
        documents if args.json => output::print_json(&documents)?,
        _ => (),
    }
    Ok(Outcome::Done)
}

fn ratio(this: &Measured, first: &Measured) -> f64 {
    rounded(this.messages_per_second / first.messages_per_second.max(1e-9))
}

/// What keeps the messages, as far as it is known here, and how that is reached.
fn reached(place: &Place) -> String {
    match place.address.scheme() {
        scheme if local::is_of_service(scheme) => format!("a service, over {scheme}"),
        _ => place.backend.abilities().backend.to_owned(),
    }
}

/// Measures one mailbox; nothing if it was interrupted.
async fn one(args: &Bench, place: &Place, signals: &mut Signals) -> Result<Option<Document>> {
    let name = Name::parse(&format!("bench-{}", Uuid::now_v7()))?;
    let stop = CancellationToken::new();
    let mut measuring = std::pin::pin!(measure(args, place, &name, &stop));
    let measured = tokio::select! {
        measured = &mut measuring => measured.map(Some),
        () = signals.next() => {
            stop.cancel();
            // What is on its way would make the mailbox anew after it was removed.
            let _ = tokio::time::timeout(FINISH, measuring).await;
            Ok(None)
        }
    };
    let removed = place.backend.remove(&name).await;
    let Some(document) = measured? else { return Ok(None) };
    removed.map(|_| Some(document))
}

/// Refuses what the mailbox would refuse, before anything is sent.
fn check(args: &Bench, place: &Place) -> Result<()> {
    let abilities = place.backend.abilities();
    if args.size > abilities.max_payload {
        return Err(Error::too_large("size", args.size, abilities.max_payload));
    }
    abilities.check_batch("batch", usize::from(args.batch))
}

async fn measure(
    args: &Bench,
    place: &Place,
    name: &Name,
    stop: &CancellationToken,
) -> Result<Document> {
    let send = phase(args, place, name, Step::Send, stop).await?;
    let receive = phase(args, place, name, Step::Receive, stop).await?;
    Ok(Document {
        address: None,
        compared: None,
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
    stop: CancellationToken,
    progress: Progress,
}

async fn phase(
    args: &Bench,
    place: &Place,
    name: &Name,
    step: Step,
    stop: &CancellationToken,
) -> Result<Measured> {
    let doing = match step {
        Step::Send => "sending",
        Step::Receive => "receiving",
    };
    let shared = Arc::new(Shared {
        backend: Arc::clone(&place.backend),
        name: name.clone(),
        payload: vec![b'x'; args.size].into(),
        batch: u64::from(args.batch),
        left: AtomicU64::new(args.messages),
        stop: stop.clone(),
        progress: Progress::new(doing, Some(args.messages)),
    });
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..args.producers {
        let shared = Arc::clone(&shared);
        workers.spawn(async move { shared.run(step).await });
    }
    let (mut times, mut failed) = (Vec::new(), Ok(()));
    while let Some(done) = workers.join_next().await {
        let cut_short = |error| {
            Error::new(ErrorKind::Internal, "a measurement was cut short").with_source(error)
        };
        match done.map_err(cut_short).flatten() {
            Ok(done) => times.extend(done),
            Err(error) => {
                // The others end what they have begun, and begin nothing.
                stop.cancel();
                failed = failed.and(Err(error));
            }
        }
    }
    failed?;
    shared.progress.finish();
    Ok(measured(args.messages, started.elapsed(), times))
}

impl Shared {
    async fn run(&self, step: Step) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        while !self.stop.is_cancelled() {
            let take = |left: u64| (left > 0).then(|| left.saturating_sub(self.batch));
            let taken = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
            let Ok(left) = taken else { break };
            let count = left.min(self.batch);
            let started = Instant::now();
            match step {
                Step::Send => self.send(count).await?,
                Step::Receive => self.receive(count).await?,
            }
            times.push(started.elapsed());
            self.progress.advance(count);
        }
        Ok(times)
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

fn print(document: &Document, reached: &str) -> Result<()> {
    let Document { address, messages, size, producers, batch, send, receive, compared, .. } =
        document;
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
        "{reached}: {messages} messages of {size} bytes, {producers} at a time, {batch} in a call\n"
    );
    let mut text = what + &output::table(&rows);
    if let Some(Compared { send, receive }) = compared {
        text += &format!("{send} times the first's sends, {receive} its receives\n");
    }
    if let Some(address) = address {
        text = format!("{address}\n{text}\n");
    }
    output::print(&text)
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
