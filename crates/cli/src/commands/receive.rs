//! `mailbox receive`: takes messages out of a mailbox. Invariant: a message is acknowledged only
//! after it was written to stdout; one that nobody reads is given back.

use std::time::Duration;

use mailbox::{Delivery, Error, ErrorKind, ReceiveOptions, Result, Retry, Settlement, Verdict};

use crate::args::{Receive, Working};
use crate::exit::Outcome;
use crate::output::{self, Heard};
use crate::place::{self, Making, Place};
use crate::shown::Delivered;
use crate::signals::Signals;
use crate::worker::{Ended, Worker};

/// How long one call waits. Afterwards it is made again.
const WAIT: Duration = Duration::from_secs(20);
/// Between two tries to reach a server.
const LEAST_PAUSE: Duration = Duration::from_millis(500);

pub(super) async fn run(args: &Receive) -> Result<Outcome> {
    if args.ack && output::is_closed() {
        let message = "stdout is closed: with --ack messages would be gone that nobody has read; \
                       write > /dev/null if that is meant";
        return Err(Error::new(ErrorKind::InvalidParameter, message).with_field("ack"));
    }
    let waits = args.follow || !args.wait.is_zero();
    let making = if waits { Making::Yes } else { Making::No };
    place::at(&args.address, making, async |place| {
        if !waits && !place.is_there() {
            return Err(nothing());
        }
        if !args.exec.is_empty() {
            return exec(args, place).await;
        }
        if args.follow { follow(args, place).await } else { once(args, place).await }
    })
    .await
}

fn nothing() -> Error {
    Error::new(ErrorKind::NotFound, "nothing to receive")
}

fn options(args: &Receive) -> ReceiveOptions {
    ReceiveOptions::new()
        .with_max_messages(args.max)
        .with_wait(args.wait)
        .with_visibility_timeout(args.visibility)
}

async fn once(args: &Receive, place: &Place) -> Result<Outcome> {
    let mut signals = Signals::new()?;
    let options = options(args);
    let received = tokio::select! {
        biased;
        received = place.backend.receive(&place.name, &options) => received?,
        () = signals.next() => return Ok(Outcome::Interrupted),
        () = output::nobody_listens() => return Ok(Outcome::Done),
    };
    if received.is_empty() {
        return Err(nothing());
    }
    hand_over(args, place, received).await?;
    Ok(Outcome::Done)
}

/// Prints what comes, until told to stop.
async fn follow(args: &Receive, place: &Place) -> Result<Outcome> {
    let mut signals = Signals::new()?;
    let gone = output::nobody_listens();
    tokio::pin!(gone);
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut is_away = false;
    while left > 0 {
        let max = u64::from(args.max).min(left);
        let options =
            options(args).with_max_messages(u32::try_from(max).unwrap_or(u32::MAX)).with_wait(WAIT);
        let received = tokio::select! {
            biased;
            () = signals.next() => break,
            () = &mut gone => break,
            received = hold_on(place, &options, &mut is_away) => received?,
        };
        left -= received.len() as u64;
        if hand_over(args, place, received).await? == Heard::Gone {
            break;
        }
    }
    Ok(Outcome::Done)
}

/// Receives; where a server cannot be reached, tries again until it can.
async fn hold_on(
    place: &Place,
    options: &ReceiveOptions,
    is_away: &mut bool,
) -> Result<Vec<Delivery>> {
    loop {
        let error = match place.backend.receive(&place.name, options).await {
            Err(error) if error.kind() == ErrorKind::Connection => error,
            received => {
                if std::mem::take(is_away) && received.is_ok() {
                    output::say("it is back");
                }
                return received;
            }
        };
        let Retry::After(pause) = error.retry() else { return Err(error) };
        if !std::mem::replace(is_away, true) {
            output::say(&format!("{}; trying again", output::worded(&error)));
        }
        tokio::time::sleep(pause.max(LEAST_PAUSE)).await;
    }
}

/// Prints messages one by one, and acknowledges them if asked to. When nobody reads any more, the
/// rest is given back.
async fn hand_over(args: &Receive, place: &Place, received: Vec<Delivery>) -> Result<Heard> {
    let mut received = received.into_iter();
    while let Some(delivery) = received.next() {
        let written = print(args, &delivery);
        if !matches!(written, Ok(Heard::Yes)) {
            give_back(place, std::iter::once(delivery).chain(received)).await;
            return written;
        }
        if args.ack {
            match settle(place, &delivery, Verdict::Acknowledge).await {
                Err(error) if args.follow && error.kind() == ErrorKind::Connection => {
                    let (id, why) = (&delivery.id, output::worded(&error));
                    output::say(&format!("{id}: not acknowledged, it may come again: {why}"));
                }
                settled => settled?,
            }
        }
    }
    Ok(Heard::Yes)
}

fn print(args: &Receive, delivery: &Delivery) -> Result<Heard> {
    if args.json {
        return output::print_json_line(&Delivered::new(delivery));
    }
    let mut bytes = delivery.letter.payload.to_vec();
    if bytes.last() != Some(&b'\n') {
        bytes.push(b'\n');
    }
    let heard = output::write(&bytes)?;
    if heard == Heard::Yes && !args.ack {
        let Delivery { id, receipt_handle, delivery_count, .. } = delivery;
        output::say(&format!("{id}: delivery {delivery_count}, receipt handle {receipt_handle}"));
    }
    Ok(heard)
}

pub(super) async fn settle(place: &Place, delivery: &Delivery, verdict: Verdict) -> Result<()> {
    let settlement = Settlement { receipt_handle: delivery.receipt_handle.clone(), verdict };
    let mut settled = place.backend.settle(&place.name, vec![settlement]).await?;
    settled.pop().unwrap_or_else(|| Err(super::send::unanswered()))
}

/// Undoes deliveries that reached nobody. Where that fails they come back by themselves.
pub(super) async fn give_back(place: &Place, deliveries: impl Iterator<Item = Delivery>) {
    let verdict = || match place.backend.abilities().undo {
        true => Verdict::Return,
        false => Verdict::Nack { delay: Duration::ZERO, error: None },
    };
    let settlement = |delivery: Delivery| Settlement {
        receipt_handle: delivery.receipt_handle,
        verdict: verdict(),
    };
    let batch: Vec<Settlement> = deliveries.map(settlement).collect();
    if let Err(error) = place.backend.settle(&place.name, batch).await {
        output::say(&format!("cannot give back what nobody has read: {error:#}"));
    }
}

/// Runs a command for one message, as a worker does.
async fn exec(args: &Receive, place: &Place) -> Result<Outcome> {
    let mut signals = Signals::new()?;
    let working = Working::once();
    let worker = Worker::new(place, &args.exec, &working, args.visibility)?;
    let options = options(args);
    let received = tokio::select! {
        biased;
        received = place.backend.receive(&place.name, &options) => received?,
        () = signals.next() => return Ok(Outcome::Interrupted),
    };
    let Some(delivery) = received.into_iter().next() else { return Err(nothing()) };
    let id = delivery.id.clone();
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let handled = worker.handle(delivery, stopping);
    tokio::pin!(handled);
    let ended = loop {
        tokio::select! {
            ended = &mut handled => break ended?,
            () = signals.next() => { let _ = stop.send(true); }
        }
    };
    match ended {
        Ended::Done => Ok(Outcome::Done),
        Ended::Stopped => Ok(Outcome::Interrupted),
        Ended::Failed { error, next } => {
            output::say(&format!("{id}: {error}; {next}"));
            Ok(Outcome::Found(ErrorKind::Internal))
        }
        Ended::Lost { error } => {
            output::say(&format!("{id}: {error}"));
            Ok(Outcome::Found(ErrorKind::ReceiptHandleExpired))
        }
        Ended::InDoubt { error } => {
            output::say(&format!("{id}: {error}"));
            Ok(Outcome::Found(ErrorKind::Connection))
        }
    }
}
