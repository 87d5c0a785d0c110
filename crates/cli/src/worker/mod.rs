//! Runs a command for a message: what `work` does for many and `receive --exec` for one.
//! Invariant: a message is acknowledged only after its command has ended well and its reply is
//! kept; once the lease is lost, nothing is settled and the command is ended.

mod child;
mod lease;
mod replies;

use std::ffi::OsString;
use std::time::Duration;

use mailbox::main_loop::Backoff;
use mailbox::{Delivery, Error, ErrorKind, ReceiptHandle, Result, Settlement, Verdict, limits};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use self::child::{Child, Exited, Output};
use self::lease::Lease;
use self::replies::Replies;
use crate::args::Working;
use crate::place::Place;

/// A failed message waits for at most this long.
const LONGEST_BACKOFF: Duration = Duration::from_secs(900);
/// How often a settle that failed is tried again while the lease holds.
const TRIES: u32 = 5;
/// How long to wait before it is.
const PAUSE: Duration = Duration::from_millis(200);

/// How work on a message ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Acknowledged.
    Done,
    /// Nacked; and what becomes of it.
    Failed { error: String, next: String },
    /// Somebody else has it, or will: nothing was settled.
    Lost { error: String },
    /// The answer to a settlement was lost: it may have been settled as its command ended.
    InDoubt { error: String },
    /// Cut short because everything ends: given back.
    Stopped,
}

/// Runs one command for messages of one mailbox.
#[derive(Debug)]
pub(crate) struct Worker {
    place: Place,
    command: Vec<OsString>,
    replies: Replies,
    backoff: Backoff,
    visibility: Duration,
    grace: Duration,
    /// Where stdout of the command goes if nobody wants a reply.
    output: Output,
}

impl Worker {
    pub(crate) fn new(
        place: &Place,
        command: &[OsString],
        working: &Working,
        visibility: Duration,
    ) -> Result<Self> {
        if visibility.is_zero() {
            return Err(Error::invalid("visibility", "0 s", "more than 0 s"));
        }
        let most = LONGEST_BACKOFF.max(working.backoff.min(limits::VISIBILITY_TIMEOUT));
        Ok(Self {
            place: place.clone(),
            command: command.to_vec(),
            replies: Replies::new(place, &working.allow_reply)?,
            backoff: Backoff::ByDeliveryCount { step: working.backoff, most },
            visibility,
            grace: working.grace,
            output: Output::Stdout,
        })
    }

    /// This worker, with stdout kept free of what commands print.
    pub(crate) fn with_quiet_stdout(self) -> Self {
        Self { output: Output::Stderr, ..self }
    }

    /// Runs the command for a message and settles it. When `stopping` becomes true the command is
    /// ended, and the message given back.
    ///
    /// # Errors
    /// Only if the command cannot be started at all; the message is given back.
    pub(crate) async fn handle(
        &self,
        delivery: Delivery,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<Ended> {
        let mut lease = Lease::new(self, delivery.receipt_handle.clone());
        let child = match Child::start(self, &delivery) {
            Ok(child) => child,
            Err(error) => return self.not_started(&delivery, error).await,
        };
        let group = child.group();
        let work = self.work(child, &delivery);
        tokio::pin!(work);
        let cut_short = tokio::select! {
            biased;
            done = &mut work => return Ok(self.answer(&delivery, done, &mut lease).await),
            error = lease.keep() => CutShort::Lost(error),
            () = told_to_stop(&mut stopping) => CutShort::Stopped,
        };
        // From here on nothing is answered: what it says now may be half of what it had to say.
        child::tell_to_end(group);
        let has_ended = tokio::select! {
            biased;
            ended = timeout(self.grace, &mut work) => ended.is_ok(),
            // Nobody else shall have the message while the command still runs.
            _ = lease.keep(), if matches!(cut_short, CutShort::Stopped) => false,
        };
        if !has_ended {
            child::kill(group);
            // It cannot refuse; what it has left behind may hold up its pipes for a moment.
            let _ = timeout(self.grace.max(PAUSE), &mut work).await;
        }
        match cut_short {
            CutShort::Lost(error) => Ok(Ended::Lost { error: format!("lease lost: {error}") }),
            CutShort::Stopped => {
                let error = Some("the worker was stopped before the command was done".into());
                let verdict = Verdict::Nack { delay: Duration::ZERO, error };
                let given_back = self.settle(&delivery.receipt_handle, verdict).await;
                Ok(given_back.map_or_else(|error| unsettled(&error), |()| Ended::Stopped))
            }
        }
    }

    /// Runs the command; gives what it has to say to whoever asked, or why that cannot be had.
    async fn work(&self, child: Child, delivery: &Delivery) -> Result<Said, String> {
        let Exited { status, output, last_line } = child.finish(&delivery.letter.payload).await?;
        if !status.success() {
            let said = last_line.map_or_else(String::new, |line| format!(": {line}"));
            return Err(format!("{status}{said}"));
        }
        Ok(output)
    }

    /// Sends the reply of a command that has ended by itself, if one is wanted, and settles. The
    /// lease is kept meanwhile: whoever has lost it has nothing to say.
    async fn answer(
        &self,
        delivery: &Delivery,
        done: Result<Said, String>,
        lease: &mut Lease<'_>,
    ) -> Ended {
        let Some(reply_to) = &delivery.letter.reply_to else {
            return self.conclude(delivery, done.map(|_| ())).await;
        };
        let reply = async {
            let sent = self.replies.send(reply_to, done??, &delivery.id).await;
            sent.map_err(|error| format!("cannot reply: {error:#}"))
        };
        tokio::select! {
            biased;
            replied = reply => self.conclude(delivery, replied).await,
            error = lease.keep() => Ended::Lost { error: format!("lease lost: {error}") },
        }
    }

    /// Settles as the command has ended.
    async fn conclude(&self, delivery: &Delivery, verdict: Result<(), String>) -> Ended {
        let handle = &delivery.receipt_handle;
        let Err(mut error) = verdict else {
            let acknowledged = self.settle(handle, Verdict::Acknowledge).await;
            return acknowledged.map_or_else(|error| unsettled(&error), |()| Ended::Done);
        };
        error.truncate(error.floor_char_boundary(limits::ERROR_TEXT_LEN));
        let again_in = self.backoff.delay(delivery.delivery_count);
        let nack = Verdict::Nack { delay: again_in, error: Some(error.as_str().into()) };
        if let Err(failed) = self.settle(handle, nack).await {
            return unsettled(&failed);
        }
        let seconds = again_in.as_secs_f64();
        let next = if self.is_used_up(delivery).await {
            format!("attempts used up: it becomes a dead letter at its next turn, in {seconds} s")
        } else {
            format!("delivered again in {seconds} s")
        };
        Ended::Failed { error, next }
    }

    /// Whether this was the last delivery that the mailbox allows, as far as that is known.
    async fn is_used_up(&self, delivery: &Delivery) -> bool {
        let policy = self.place.backend.policy(&self.place.name).await;
        let most = policy.ok().and_then(|policy| policy.max_attempts);
        most.is_some_and(|most| delivery.delivery_count >= most)
    }

    /// A command that cannot be run at all is the worker's trouble. One that cannot be run for
    /// this message, because its attributes are too long for an environment for example, is the
    /// message's.
    async fn not_started(&self, delivery: &Delivery, error: std::io::Error) -> Result<Ended> {
        let command = self.command.first().map(|it| it.to_string_lossy()).unwrap_or_default();
        let command = crate::output::tamed(&command, 80);
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => ErrorKind::Forbidden,
            _ => {
                let failed = Err(format!("cannot run {command}: {error}"));
                return Ok(self.conclude(delivery, failed).await);
            }
        };
        let undo = if self.place.backend.abilities().undo {
            Verdict::Return
        } else {
            Verdict::Nack { delay: Duration::ZERO, error: None }
        };
        // If this fails too, it comes back by itself.
        let _ = self.settle(&delivery.receipt_handle, undo).await;
        Err(Error::new(kind, format!("cannot run {command}")).with_source(error))
    }

    /// Settles; tries again where that can help.
    async fn settle(&self, handle: &ReceiptHandle, verdict: Verdict) -> Result<()> {
        let mut tries = Tries::default();
        loop {
            let settled = self.settle_once(handle, verdict.clone()).await;
            let Err(error) = settled else { return Ok(()) };
            if let Some(error) = tries.failed(error) {
                return Err(error);
            }
            sleep(PAUSE).await;
        }
    }

    async fn settle_once(&self, handle: &ReceiptHandle, verdict: Verdict) -> Result<()> {
        let settlement = Settlement { receipt_handle: handle.clone(), verdict };
        let mut settled = self.place.backend.settle(&self.place.name, vec![settlement]).await?;
        settled.pop().unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "no answer")))
    }
}

/// Ends when it is time to stop.
async fn told_to_stop(stopping: &mut watch::Receiver<bool>) {
    if stopping.wait_for(|stopping| *stopping).await.is_err() {
        // Nobody is left who could say so.
        std::future::pending::<()>().await;
    }
}

/// The tries to settle a delivery so far.
#[derive(Debug, Default)]
struct Tries {
    failed: u32,
    /// One of them may have been carried out: it may be what the others find the delivery ended by.
    is_in_doubt: bool,
}

impl Tries {
    /// One more has failed. Gives what is to be said if no other can help; in doubt if any was.
    fn failed(&mut self, error: Error) -> Option<Error> {
        self.failed += 1;
        self.is_in_doubt |= error.is_in_doubt();
        let is_last = error.retry() == mailbox::Retry::Never || self.failed == TRIES;
        is_last.then(|| if self.is_in_doubt { error.with_doubt() } else { error })
    }
}

/// How work on a message ended whose settlement failed.
fn unsettled(error: &Error) -> Ended {
    if !error.is_in_doubt() {
        return Ended::Lost { error: format!("not settled: {error:#}") };
    }
    let what = match error.kind() {
        ErrorKind::ReceiptHandleExpired => "settled, or its lease has ended",
        _ => "it may be settled, or come again",
    };
    Ended::InDoubt { error: format!("{what}: the answer was lost ({error:#})") }
}

/// What a command has to say: its stdout, or why that is no answer.
type Said = Result<bytes::Bytes, String>;

/// Why a command is ended before it is done.
enum CutShort {
    Lost(Error),
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The delivery was gone because the first settlement, whose answer was lost, had been carried
    /// out; it was called lost.
    #[test]
    fn a_delivery_that_is_gone_after_a_try_in_doubt_is_not_called_lost() {
        let cut = || Error::new(ErrorKind::Connection, "cut");
        let gone = || Error::new(ErrorKind::ReceiptHandleExpired, "gone");
        for (errors, expected) in [
            (vec![gone()], "not settled: gone"),
            (vec![cut(), gone()], "not settled: gone"),
            (vec![cut().with_doubt(), cut(), gone()], "settled, or its lease has ended: "),
            (vec![gone().with_doubt()], "settled, or its lease has ended: "),
            (vec![cut().with_doubt(), cut(), cut(), cut(), cut()], "it may be settled, or come"),
            (vec![cut(), cut(), cut(), cut(), cut()], "not settled: cut"),
        ] {
            let (mut tries, most) = (Tries::default(), errors.len());
            let told = errors.into_iter().filter_map(|error| tries.failed(error));
            let told: Vec<Ended> = told.map(|error| unsettled(&error)).collect();
            let [Ended::Lost { error } | Ended::InDoubt { error }] = &told[..] else {
                panic!("{told:?} after {most}");
            };
            assert!(error.starts_with(expected), "{error}");
            let is_in_doubt = matches!(told[0], Ended::InDoubt { .. });
            assert_eq!(is_in_doubt, !expected.starts_with("not settled"), "{error}");
        }
    }
}
