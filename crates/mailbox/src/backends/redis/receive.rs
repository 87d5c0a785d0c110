//! Receiving, and waiting for something to receive. Every delivery of a call has a handle made of
//! the call's secret: whoever asks again after a lost answer is given what the first try took.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mailbox_core::{DeadReason, Refusal, Time, Verdict};
use tokio::runtime::Handle;
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
            while tokio::time::timeout(LISTEN_ANYWAY, seat.wait()).await.is_err() {
                inner.watch.listen(&inner.client);
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

/// Takes what is there. If nobody waits for it any more it goes on by itself, and gives all back.
async fn look(
    inner: &Arc<Inner>,
    name: &Name,
    keys: &Keys,
    options: &ReceiveOptions,
    asking: &Asking,
) -> Result<Look> {
    let left = Arc::new(AtomicBool::new(false));
    let (inner, name, is_left) = (Arc::clone(inner), name.clone(), Arc::clone(&left));
    let (keys, options, asking) = (keys.clone(), options.clone(), asking.clone());
    let look = Box::pin(async move {
        let _looking = inner.looks.acquire().await;
        let mut look = take(&inner, &name, &keys, &options, &asking).await?;
        if is_left.load(Ordering::Relaxed) {
            give_back(&inner, &name, std::mem::take(&mut look.taken)).await;
        }
        Ok(look)
    });
    Looking { look: Some(look), is_begun: false, left, runtime: Handle::current() }.await
}

/// A look that somebody waits for. Not a task of its own, which would cost more than all the rest.
struct Looking {
    /// Until there is an answer.
    look: Option<Pin<Box<dyn Future<Output = Result<Look>> + Send>>>,
    is_begun: bool,
    /// Nobody waits any more.
    left: Arc<AtomicBool>,
    /// Whoever drops it may have another one, or none.
    runtime: Handle,
}

impl Future for Looking {
    type Output = Result<Look>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Look>> {
        self.is_begun = true;
        let look = self.look.as_mut().expect("nobody asks again after the answer");
        let looked = ready!(look.as_mut().poll(context));
        self.look = None;
        Poll::Ready(looked)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        let Some(look) = self.look.take().filter(|_| self.is_begun) else { return };
        self.left.store(true, Ordering::Relaxed);
        // Where nothing runs any more, deadlines bring messages back.
        self.runtime.spawn(look);
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
    if let Err(error) = inner.settle(name, damaged).await
        && taken.is_empty()
    {
        return Err(error);
    }
    // The rest is good. What is damaged has ended, or somebody else has it, or it comes back. When
    // the next one is due is said to those only who take nothing.
    let is_more = is_more || taken.is_empty() && is_damaged;
    Ok(Look { taken, next_due, is_more, refused })
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
