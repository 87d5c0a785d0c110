//! Receiving, and waiting for something to receive. Every delivery of a call has a handle made of
//! the call's secret: whoever asks again after a lost answer is given what the first try took.

use std::sync::Arc;
use std::time::Duration;

use mailbox_core::{DeadReason, Refusal, Time, Verdict};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::{Delivery, Settlement};
use crate::backends::redis::Inner;
use crate::backends::redis::answers::Answer;
use crate::backends::redis::keys::Keys;
use crate::backends::redis::letter::Kept;
use crate::backends::redis::planted::Bug;
use crate::backends::redis::scripts::{Job, Order};
use crate::backends::redis::settle::Settling;
use crate::error::{Error, ErrorKind, Result};
use crate::home::random;
use crate::home::waiting::Seat;
use crate::id::{MessageId, ReceiptHandle};
use crate::name::Name;
use crate::options::ReceiveOptions;

/// Between two tries of a receive that has time to wait for a server to come back.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);
/// How long what is damaged is held, to be made a dead letter.
const HELD: Duration = Duration::from_secs(5);
/// Whoever listens for all may have ended with its runtime: looked at so often.
const LISTEN_ANYWAY: Duration = Duration::from_secs(5);
/// What is tried at least before a receive gives up, whatever patience says.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(500);

/// What one look gave.
struct Look {
    taken: Vec<Delivery>,
    /// When the next message is due, by our own clock.
    next_due: Option<Time>,
    /// There may be more at once.
    is_more: bool,
    /// Something was made a dead letter, because it is not what was sent.
    is_buried: bool,
    /// So many are in flight that no more can be.
    refused: Option<Refusal>,
}

/// Takes up to `max_messages`, waiting for the first.
///
/// # Cancel safety
/// What was taken and not handed over is given back; whoever was told of a message that it did not
/// take passes that on.
pub(super) async fn receive(
    inner: &Arc<Inner>,
    name: &Name,
    options: &ReceiveOptions,
) -> Result<Vec<Delivery>> {
    let clock = &inner.pace.clock;
    let deadline = clock.now().after(options.wait);
    let keys = inner.keys(name);
    let first = match look_and_hold_on(inner, name, &keys, options, deadline).await? {
        Ok(taken) => return Ok(taken),
        Err(next_due) => next_due,
    };
    if clock.now() >= deadline {
        return Ok(Vec::new());
    }
    let (room, ticket) = inner.watch.enter(&inner.client, name, &keys)?;
    let mut seat = Seat::new(&*room);
    seat.ticket = Some(ticket);
    let (mut next_due, mut learned) = (first, room.learned());
    loop {
        if room.sleep(ticket, deadline, next_due, learned)? {
            tokio::select! {
                () = seat.wait() => {}
                () = tokio::time::sleep(LISTEN_ANYWAY) => {
                    inner.watch.listen(&inner.client);
                    continue;
                }
            }
        }
        room.check()?;
        learned = room.learned();
        next_due = match look_and_hold_on(inner, name, &keys, options, deadline).await? {
            Ok(taken) => {
                seat.leave();
                return Ok(taken);
            }
            Err(next_due) => next_due,
        };
        if clock.now() >= deadline {
            room.check()?;
            return Ok(Vec::new());
        }
    }
}

/// Looks; a receive that has time left goes on while servers fail over. Gives what was taken, or
/// when the next message is due.
async fn look_and_hold_on(
    inner: &Arc<Inner>,
    name: &Name,
    keys: &Keys,
    options: &ReceiveOptions,
    deadline: Time,
) -> Result<Result<Vec<Delivery>, Option<Time>>> {
    let mut asking = Asking { secret: secret(), since: None };
    loop {
        let began = Instant::now();
        match look(inner, name, keys, options, &asking).await {
            Ok(Look { taken, .. }) if !taken.is_empty() => return Ok(Ok(taken)),
            Ok(Look { is_more: true, .. }) => {
                asking = Asking { secret: secret(), since: None };
                tokio::task::yield_now().await;
            }
            Ok(Look { refused: Some(refusal), .. }) => return Err(Error::refused(refusal, name)),
            Ok(Look { next_due, .. }) => return Ok(Err(next_due)),
            Err(error)
                if error.kind() == ErrorKind::Connection
                    && error.retry() != crate::error::Retry::Never
                    && inner.pace.clock.now() < deadline =>
            {
                tracing::debug!(mailbox = %name, %error, "redis: a waiting receive holds on");
                asking.since.get_or_insert(began);
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
            Err(error) => return Err(error.with_mailbox(name)),
        }
    }
}

/// Takes what is there. Runs by itself: if nobody waits for it any more, it gives all back.
async fn look(
    inner: &Arc<Inner>,
    name: &Name,
    keys: &Keys,
    options: &ReceiveOptions,
    asking: &Asking,
) -> Result<Look> {
    let (answer, answered) = oneshot::channel();
    let task = (Arc::clone(inner), name.clone(), keys.clone(), options.clone(), asking.clone());
    tokio::spawn(async move {
        let (inner, name, keys, options, asking) = task;
        let _looking = inner.looks.acquire().await;
        let looked = take(&inner, &name, &keys, &options, &asking).await;
        if let Err(Ok(look)) = answer.send(looked) {
            give_back(&inner, &name, look.taken).await;
        }
    });
    let mut looking = Looking { answered, inner, name };
    let looked = (&mut looking.answered).await;
    looked.map_err(|_| Error::new(ErrorKind::Internal, "a receive was cut short"))?
}

/// An answer that somebody waits for.
struct Looking<'a> {
    answered: oneshot::Receiver<Result<Look>>,
    inner: &'a Arc<Inner>,
    name: &'a Name,
}

impl Drop for Looking<'_> {
    /// Gives back what came too late to be noticed: after the last look at it, before this.
    fn drop(&mut self) {
        self.answered.close();
        let Ok(Ok(look)) = self.answered.try_recv() else { return };
        // Where nothing runs any more, deadlines bring messages back.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (inner, name) = (Arc::clone(self.inner), self.name.clone());
        runtime.spawn(async move {
            let _looking = inner.looks.acquire().await;
            give_back(&inner, &name, look.taken).await;
        });
    }
}

async fn give_back(inner: &Arc<Inner>, name: &Name, taken: Vec<Delivery>) {
    // From the last to the first, as they were put before others.
    let back = taken.into_iter().rev().map(|delivery| Settlement {
        receipt_handle: delivery.receipt_handle,
        verdict: Verdict::Return,
    });
    if let Err(error) = inner.settle(name, back.map(Settling::from).collect()).await {
        // Their deadline brings them back.
        tracing::debug!(mailbox = %name, %error, "redis: a dropped receive");
    }
}

/// What makes the deliveries of a call recognisable, and when it was first tried, if a try may have
/// taken effect.
#[derive(Clone)]
struct Asking {
    secret: String,
    since: Option<Instant>,
}

async fn take(
    inner: &Arc<Inner>,
    name: &Name,
    keys: &Keys,
    options: &ReceiveOptions,
    asking: &Asking,
) -> Result<Look> {
    let Asking { secret, since: before } = asking;
    let timeout = inner.pace.span(options.visibility_timeout).to_string();
    let most = options.max_messages.to_string();
    let forgets = inner.config().planted.has(Bug::LeaseForgotten);
    let order = |since: Option<Duration>| {
        let since = before.map(|before| before.elapsed()).or(since);
        let elapsed = match since {
            Some(since) if !forgets => inner.pace.span(since).to_string(),
            _ => String::new(),
        };
        let mut arguments = inner.preamble();
        for argument in [&most, &timeout, secret, &elapsed] {
            arguments.push(argument.as_str().into());
        }
        Order::script(Job::Receive, keys, arguments)
    };
    let mut call = inner.reading(keys);
    call.patience = call.patience.min(options.wait.max(SHORTEST_PATIENCE));
    let answer = inner.client.call(call, order).await?;
    let mut answer = Answer::new(answer)?;
    let present = answer.number()?;
    let next_due = answer.maybe_number()?.map(|due| inner.pace.local(due, present));
    let full = answer.text()?;
    let refused = full.strip_prefix('f').map(|most| Refusal::TooManyInFlight {
        max_in_flight: most.parse().unwrap_or(0),
        retry_after: next_due.map_or(Duration::ZERO, |due| due.since(inner.pace.clock.now())),
    });
    let is_more = answer.text()? == "m";
    let (taken, damaged) = read_deliveries(inner, &mut answer)?;
    let is_damaged = !damaged.is_empty();
    let is_buried = is_damaged && bury(inner, name, keys, options, damaged).await?;
    let is_more = is_more || is_buried && taken.is_empty();
    Ok(Look { taken, next_due, is_more, is_buried, refused })
}

/// Makes dead letters of what is not what was sent; false if none could be made.
async fn bury(
    inner: &Arc<Inner>,
    name: &Name,
    keys: &Keys,
    options: &ReceiveOptions,
    damaged: Vec<Settling>,
) -> Result<bool> {
    if !options.visibility_timeout.is_zero() {
        return Ok(inner.settle(name, damaged).await?.iter().any(Result::is_ok));
    }
    // Such a delivery is over as soon as it is made: for a verdict it has to be held for a moment.
    let held = options.clone().with_visibility_timeout(HELD);
    let asking = Asking { secret: secret(), since: None };
    let look = Box::pin(take(inner, name, keys, &held, &asking)).await?;
    let is_buried = look.is_buried;
    give_back(inner, name, look.taken).await;
    Ok(is_buried)
}

/// What was taken; and what is not what was sent, which becomes a dead letter (I4).
fn read_deliveries(inner: &Inner, answer: &mut Answer) -> Result<(Vec<Delivery>, Vec<Settling>)> {
    let now = inner.wall();
    let (mut taken, mut damaged) = (Vec::new(), Vec::new());
    while !answer.is_empty() {
        let (id, suffix) = (answer.bytes()?, answer.text()?);
        let delivery_count = u32::try_from(answer.number()?).unwrap_or(u32::MAX);
        let kept = Kept {
            payload: answer.bytes()?.into(),
            enqueued: answer.text()?,
            reply_to: answer.optional()?,
            beside: answer.bytes()?,
        };
        let (letter, damage) = kept.open(now);
        let id = match String::from_utf8(id) {
            Ok(id) => id,
            Err(error) => {
                let why = "its id is not text".to_owned();
                damaged.push(Settling::damaged(error.into_bytes(), suffix, why));
                continue;
            }
        };
        if let Some(damage) = damage {
            tracing::error!(message = id, damage, "integrity");
            damaged.push(Settling::damaged(id.into_bytes(), suffix, damage));
            continue;
        }
        taken.push(Delivery {
            receipt_handle: ReceiptHandle::from_text(&format!("{id}:{suffix}")),
            id: MessageId::from_text(&id),
            letter,
            delivery_count,
        });
    }
    Ok((taken, damaged))
}

/// Nobody can guess a handle who does not know this.
fn secret() -> String {
    let random: [u8; 16] = random();
    format!("{:032x}", u128::from_be_bytes(random))
}

/// The verdict on a message that is not what was sent.
pub(super) fn integrity(why: String) -> Verdict {
    Verdict::Reject { reason: DeadReason::Integrity, error: Some(why.into_boxed_str()) }
}
