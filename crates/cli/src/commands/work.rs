//! `mailbox work`: runs a command for every message. Invariant: never more commands than asked for,
//! and none is left running when it ends.

use std::sync::Arc;
use std::time::Duration;

use mailbox::{Delivery, Error, ErrorKind, MessageId, ReceiveOptions, Result, Retry};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::args::Work;
use crate::exit::Outcome;
use crate::output;
use crate::place::{self, Making, Place};
use crate::signals::Signals;
use crate::worker::{Ended, Worker};

/// How long one call waits for messages.
const WAIT: Duration = Duration::from_secs(20);
/// Longest pause after trouble with the backend.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Stands for never.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

pub(super) async fn run(args: Work) -> Result<Outcome> {
    // From the first moment on: what is received is given back, whatever happens.
    let signals = Signals::new()?;
    let address = args.address.clone();
    place::at(&address, Making::Yes, async |place| {
        let worker = Worker::new(place, &args.command, &args.working, args.visibility)?;
        let worker = if args.json { worker.with_quiet_stdout() } else { worker };
        let (stop, stopping) = watch::channel(false);
        let shift = Shift {
            args: &args,
            place,
            worker: Arc::new(worker),
            running: JoinSet::new(),
            stop,
            stopping,
            left: args.max_messages.unwrap_or(u64::MAX),
            tally: Tally::default(),
        };
        shift.run(signals).await
    })
    .await
}

/// What came of the messages so far.
#[derive(Debug, Default)]
struct Tally {
    done: u64,
    failed: u64,
    lost: u64,
    in_doubt: u64,
    stopped: u64,
}

type Handled = (MessageId, u32, Result<Ended>);

/// One run of the worker.
struct Shift<'a> {
    args: &'a Work,
    place: &'a Place,
    worker: Arc<Worker>,
    running: JoinSet<Handled>,
    /// Says that running commands must end.
    stop: watch::Sender<bool>,
    stopping: watch::Receiver<bool>,
    /// Messages that may still be received.
    left: u64,
    tally: Tally,
}

impl Shift<'_> {
    async fn run(mut self, mut signals: Signals) -> Result<Outcome> {
        let ended = self.receive(&mut signals).await;
        let drained = self.drain(&mut signals).await;
        let Tally { done, failed, lost, in_doubt, stopped } = self.tally;
        if !self.args.json {
            let more = [(lost, "lost"), (in_doubt, "in doubt"), (stopped, "given back")];
            let more = more.iter().filter(|(count, _)| *count > 0);
            let more: String = more.map(|(count, what)| format!(", {count} {what}")).collect();
            output::say(&format!("{done} done, {failed} failed{more}"));
        }
        ended.and(drained).map(|()| Outcome::Done)
    }

    /// Receives messages and starts commands, until told to end, or there is nothing more to do.
    async fn receive(&mut self, signals: &mut Signals) -> Result<()> {
        let (place, visibility) = (self.place, self.args.visibility);
        // Goes on while commands end: it is not made anew each time one does.
        let mut receiving = None;
        let mut idle_since = Instant::now();
        let mut failures = 0;
        // Whoever has received enough still waits for what runs, however long it takes.
        while self.left > 0 || !self.running.is_empty() {
            let free = usize::from(self.args.jobs).saturating_sub(self.running.len()) as u64;
            let wanted = free.min(self.left);
            if receiving.is_none() && wanted > 0 {
                receiving = Some(Box::pin(take(place, visibility, wanted)));
            }
            let idle_exit = self.args.idle_exit.filter(|_| self.running.is_empty());
            let idle_until = idle_since + idle_exit.unwrap_or(FOREVER);
            tokio::select! {
                biased;
                () = signals.next() => return Ok(()),
                Some(handled) = self.running.join_next() => {
                    idle_since = Instant::now();
                    self.conclude(handled)?;
                }
                received = maybe(&mut receiving) => {
                    receiving = None;
                    match received {
                        Ok(received) if received.is_empty() => failures = 0,
                        Ok(received) => {
                            (failures, idle_since) = (0, Instant::now());
                            self.start(received);
                        }
                        Err(error) => {
                            pause(&error, failures, signals).await?;
                            failures += 1;
                        }
                    }
                }
                () = sleep_until(idle_until) => return Ok(()),
            }
        }
        Ok(())
    }

    fn start(&mut self, received: Vec<Delivery>) {
        self.left = self.left.saturating_sub(received.len() as u64);
        for delivery in received {
            let worker = Arc::clone(&self.worker);
            let stopping = self.stopping.clone();
            let (id, count) = (delivery.id.clone(), delivery.delivery_count);
            self.running.spawn(async move { (id, count, worker.handle(delivery, stopping).await) });
        }
    }

    /// Lets commands finish; ends those that take too long, or all at the next signal.
    async fn drain(&mut self, signals: &mut Signals) -> Result<()> {
        if !self.running.is_empty() && !self.args.json {
            output::say(&format!("waiting for {} running", self.running.len()));
        }
        let until = Instant::now() + self.args.working.drain;
        let mut outcome = Ok(());
        loop {
            let is_stopping = *self.stopping.borrow();
            tokio::select! {
                biased;
                handled = self.running.join_next() => match handled {
                    Some(handled) => outcome = outcome.and(self.conclude(handled)),
                    None => return outcome,
                },
                () = signals.next(), if !is_stopping => { let _ = self.stop.send(true); }
                () = sleep_until(until), if !is_stopping => { let _ = self.stop.send(true); }
            }
        }
    }

    /// Tells how work on a message ended.
    fn conclude(&mut self, handled: Result<Handled, tokio::task::JoinError>) -> Result<()> {
        let (id, count, ended) = handled.map_err(|error| {
            Error::new(ErrorKind::Internal, "work on a message was cut short").with_source(error)
        })?;
        let (outcome, error) = match ended? {
            Ended::Done => {
                self.tally.done += 1;
                ("done", None)
            }
            Ended::Failed { error, next } => {
                self.tally.failed += 1;
                ("failed", Some(format!("{error}; {next}")))
            }
            Ended::Lost { error } => {
                self.tally.lost += 1;
                ("lost", Some(error))
            }
            Ended::InDoubt { error } => {
                self.tally.in_doubt += 1;
                ("in doubt", Some(error))
            }
            Ended::Stopped => {
                self.tally.stopped += 1;
                ("given back", Some("stopped before it was done".to_owned()))
            }
        };
        if self.args.json {
            let (id, outcome) = (id.to_string(), outcome.replace(' ', "_"));
            let line = json!({
                "id": id, "delivery_count": count, "outcome": outcome, "error": error,
            });
            output::print_json_line(&line)?;
        } else if let Some(error) = error {
            output::say(&format!("{id}: delivery {count}: {error}"));
        }
        Ok(())
    }
}

/// What a future gives that may not be there.
async fn maybe<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn take(place: &Place, visibility: Duration, wanted: u64) -> Result<Vec<Delivery>> {
    let most = wanted.min(u64::from(place.backend.abilities().max_messages));
    let options = ReceiveOptions::new()
        .with_max_messages(u32::try_from(most).unwrap_or(1))
        .with_visibility_timeout(visibility)
        .with_wait(WAIT);
    place.backend.receive(&place.name, &options).await
}

/// Waits before the next try, longer each time. Trouble that no try can help is the end.
async fn pause(error: &Error, failures: u32, signals: &mut Signals) -> Result<()> {
    let least = match error.retry() {
        Retry::Never => return Err(error.clone()),
        Retry::Now => Duration::ZERO,
        Retry::After(pause) => pause,
    };
    let pause = least.max(Duration::from_millis(100)) * 2_u32.saturating_pow(failures.min(10));
    let pause = pause.min(LONGEST_PAUSE);
    output::say(&format!("{error:#}; trying again in {} s", pause.as_secs_f64()));
    tokio::select! {
        () = sleep(pause) => Ok(()),
        // Heard here it would be missed by the loop: it is the end all the same.
        () = signals.next() => {
            let stopped = Error::new(ErrorKind::Connection, "stopped while trying again");
            Err(stopped.with_source(error.clone()))
        }
    }
}
