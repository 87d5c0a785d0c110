//! Receiving from a room, waiting included.

use std::task::Waker;
use std::time::Duration;

use mailbox_core::{Receipt, Time, Verdict};

use crate::backend::Delivery;
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;
use crate::home::keep::{Fetched, Keep};
use crate::home::room::{Room, STEPS_PER_LOCK, State};
use crate::home::waiters::{Ticket, Waiters, Wakers};
use crate::home::waiting::{Lobby, Seat};
use crate::id::{MessageId, ReceiptHandle};
use crate::options::ReceiveOptions;

/// How long a message is left alone that could not be read.
const UNREADABLE_FOR: Duration = Duration::from_secs(1);

/// What one look at the queue gave.
enum Look<K: Keep> {
    /// At least one message, or patience is over.
    Done(Vec<Taken<K>>),
    /// So many messages had to be buried that others shall have their turn.
    Again,
    /// The next message is not durable yet: a matter of moments.
    Unwritten(K::Written),
    /// Nothing; wait.
    Wait,
}

/// Why no more was taken.
enum Stop<K: Keep> {
    /// There is enough, or nothing else.
    Enough,
    /// Too many messages had to be buried.
    Burying,
    /// The next message is not durable yet.
    Unwritten(K::Written),
}

/// A message that was leased, its letter not opened yet.
struct Taken<K: Keep> {
    id: MessageId,
    receipt: Receipt,
    pinned: K::Pinned,
    delivery_count: u32,
}

impl<K: Keep> Room<K> {
    /// Takes up to `max_messages`, waiting for the first.
    ///
    /// # Cancel safety
    /// A dropped future holds no message; if it had been notified of one, the next waiter is.
    pub(crate) async fn receive(&self, options: &ReceiveOptions) -> Result<Vec<Delivery<K::Body>>> {
        let mut now = self.clock.now();
        let deadline = now.after(options.wait);
        let mut seat = Seat::new(self);
        loop {
            match self.look(now, options, deadline, &mut seat)? {
                Look::Done(taken) if taken.is_empty() => return Ok(Vec::new()),
                Look::Done(taken) => {
                    let opened = self.hand_over(taken)?;
                    if !opened.is_empty() {
                        return Ok(opened);
                    }
                }
                Look::Again => tokio::task::yield_now().await,
                Look::Unwritten(written) => {
                    let waited = K::wait(written).await;
                    waited.map_err(|error| error.with_mailbox(&self.name))?;
                }
                Look::Wait => seat.wait().await,
            }
            now = self.clock.now();
        }
    }

    fn look(
        &self,
        now: Time,
        options: &ReceiveOptions,
        deadline: Time,
        seat: &mut Seat<'_, Self>,
    ) -> Result<Look<K>> {
        let mut state = self.open()?;
        let (taken, stop) = self.take(&mut state, now, options)?;
        if taken.is_empty() {
            match stop {
                Stop::Burying => return Ok(Look::Again),
                Stop::Unwritten(written) => return Ok(Look::Unwritten(written)),
                Stop::Enough => {}
            }
        }
        if !taken.is_empty() || now >= deadline {
            let own = seat.ticket.take().and_then(|ticket| state.waiters.leave(ticket));
            // A new lease is a new deadline, which the one in front has to know.
            let wakers = state.after_change(now);
            drop(state);
            drop(own);
            wakers.wake();
            return Ok(Look::Done(taken));
        }
        let ticket = match seat.ticket {
            Some(ticket) => ticket,
            None if state.waiters.len() >= self.max_waiters => {
                return Err(self.too_many_waiters());
            }
            None => *seat.ticket.insert(state.waiters.enter()),
        };
        let next_due = state.queue.next_due();
        state.waiters.sleep(ticket, now, deadline, next_due);
        // If it has taken over from one that is not polled, somebody has to be its deputy.
        let wakers = state.waiters.after_change(now, false, next_due);
        drop(state);
        wakers.wake();
        Ok(Look::Wait)
    }

    fn too_many_waiters(&self) -> Error {
        let message = format!("{} receives are waiting, the most there may be", self.max_waiters);
        Error::new(ErrorKind::Saturated, message).with_mailbox(&self.name)
    }

    /// Takes what is receivable, and says why not more.
    fn take(
        &self,
        state: &mut State<K>,
        now: Time,
        options: &ReceiveOptions,
    ) -> Result<(Vec<Taken<K>>, Stop<K>)> {
        let mut taken: Vec<Taken<K>> = Vec::new();
        for _ in 0..STEPS_PER_LOCK + options.max_messages as usize {
            if taken.len() == options.max_messages as usize {
                return Ok((taken, Stop::Enough));
            }
            // With a zero timeout it is receivable again at once, but not twice in one receive; nor
            // may it die in there of the attempt that this very receive is.
            if options.visibility_timeout.is_zero()
                && let Some(first) = taken.first()
                && state.queue.first(now).is_some_and(|next| first.id == next.id.into())
            {
                return Ok((taken, Stop::Enough));
            }
            if !K::AT_ONCE
                && let Some(next) = state.queue.first(now)
                && let Some(written) = self.keep.not_before(next.payload)
            {
                return Ok((taken, Stop::Unwritten(written)));
            }
            let event = match state.queue.decide_receive(now, options.visibility_timeout) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok((taken, Stop::Enough)),
                Err(_) if !taken.is_empty() => return Ok((taken, Stop::Enough)),
                Err(refusal) => return Err(Error::refused(refusal, &self.name)),
            };
            let receipt = event.receipt();
            // Whom this wakes is worked out once, for all of them.
            match state.note_and_apply(&self.keep, event) {
                Ok(()) => {}
                Err(_) if !taken.is_empty() => return Ok((taken, Stop::Enough)),
                Err(error) => return Err(error.with_mailbox(&self.name)),
            }
            let Some(receipt) = receipt else { continue };
            let view = state.queue.get(now, receipt.key).expect("it was just delivered");
            taken.push(Taken {
                id: view.id.into(),
                receipt,
                pinned: self.keep.pin(view.payload),
                delivery_count: view.attempts,
            });
        }
        Ok((taken, Stop::Burying))
    }

    /// Opens the letters of what was taken. One that is not what was sent becomes a dead letter
    /// (I4); one that cannot be read now goes back behind the others.
    fn hand_over(&self, taken: Vec<Taken<K>>) -> Result<Vec<Delivery<K::Body>>> {
        let mut failure = None;
        // Where a delivery is no larger than what stood for it, this takes no second allocation.
        let deliveries: Vec<_> = taken
            .into_iter()
            .filter_map(|Taken { id, receipt, pinned, delivery_count }| {
                match self.keep.fetch(pinned) {
                    Ok(Fetched { letter, damage: None }) => {
                        let receipt_handle = ReceiptHandle::sealed(receipt, &self.sealer);
                        return Some(Delivery { id, letter, receipt_handle, delivery_count });
                    }
                    Ok(Fetched { damage: Some(damage), .. }) => {
                        tracing::error!(mailbox = %self.name, message = %id, damage, "integrity");
                        if let Err(error) = self.bury_damaged(receipt, damage) {
                            // Its deadline brings it back, and then it is tried again.
                            failure = Some(error);
                        }
                    }
                    Err(error) => failure = Some(self.put_off(&id, receipt, error)),
                }
                None
            })
            .collect();
        match failure {
            Some(error) if deliveries.is_empty() => Err(error),
            _ => Ok(deliveries),
        }
    }

    /// Puts a message that cannot be read now behind the others, and counts the attempt: it must
    /// not be in their way for ever.
    fn put_off(&self, id: &MessageId, receipt: Receipt, error: Error) -> Error {
        tracing::error!(mailbox = %self.name, message = %id, %error, "unreadable");
        let error_text = Some(error.to_string().into_boxed_str());
        let verdict = Verdict::Nack { delay: UNREADABLE_FOR, error: error_text };
        // If this fails too, its deadline brings it back.
        let _ = self.settle_receipt(receipt, verdict);
        error.with_mailbox(&self.name)
    }
}

impl<K: Keep> Lobby for Room<K> {
    fn with_waiters<R>(&self, act: impl FnOnce(&mut Waiters) -> R) -> R {
        act(&mut self.state.lock().waiters)
    }

    fn leave(&self, ticket: Ticket) -> (Option<Waker>, Wakers) {
        let mut state = self.state.lock();
        (state.waiters.leave(ticket), state.after_change(self.clock.now()))
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn by_clock(&self, time: Time) -> Time {
        time
    }
}
