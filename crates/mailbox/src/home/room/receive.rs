//! Receiving from a room, waiting included.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use mailbox_core::{Receipt, Time};

use crate::backend::{Delivery, Letter};
use crate::error::{Error, ErrorKind, Result};
use crate::home::room::{Room, STEPS_PER_LOCK, State};
use crate::home::waiters::Ticket;
use crate::id::{MessageId, ReceiptHandle};
use crate::name::Name;
use crate::options::ReceiveOptions;

/// What one look at the queue gave.
enum Look<B> {
    /// At least one message, or patience is over.
    Done(Vec<Taken<B>>),
    /// So many messages had to be buried that others shall have their turn.
    Again,
    /// Nothing; look again at that time, or when notified.
    Wait(Time),
}

impl<B> Room<B> {
    /// Takes up to `max_messages`, waiting for the first.
    ///
    /// # Cancel safety
    /// A dropped future holds no message; if it had been notified of one, the next waiter is.
    pub(crate) async fn receive(&self, options: &ReceiveOptions) -> Result<Vec<Delivery<B>>> {
        let deadline = self.clock.now().after(options.wait);
        let mut place = Place { room: self, ticket: None };
        loop {
            match self.look(options, deadline, &mut place)? {
                Look::Done(taken) => {
                    return Ok(taken.into_iter().map(|taken| self.delivery(taken)).collect());
                }
                Look::Again => tokio::task::yield_now().await,
                Look::Wait(until) => place.wait(until).await,
            }
        }
    }

    fn look(
        &self,
        options: &ReceiveOptions,
        deadline: Time,
        place: &mut Place<'_, B>,
    ) -> Result<Look<B>> {
        let mut state = self.open()?;
        let now = self.clock.now();
        let (taken, more_to_bury) = state.take(now, options, &self.name)?;
        if taken.is_empty() && more_to_bury {
            return Ok(Look::Again);
        }
        if !taken.is_empty() || now >= deadline {
            if let Some(ticket) = place.ticket.take() {
                state.waiters.leave(ticket);
            }
            // A new lease is a new deadline, which the one in front has to know.
            let waker = state.after_change(now);
            drop(state);
            waker.into_iter().for_each(Waker::wake);
            return Ok(Look::Done(taken));
        }
        let ticket = match place.ticket {
            Some(ticket) => ticket,
            None if state.waiters.len() >= self.max_waiters => {
                return Err(self.too_many_waiters());
            }
            None => *place.ticket.insert(state.waiters.enter()),
        };
        let next_due = state.queue.next_due();
        let due = state.waiters.arm(ticket, next_due);
        Ok(Look::Wait(due.map_or(deadline, |due| due.min(deadline))))
    }

    fn too_many_waiters(&self) -> Error {
        let message = format!("{} receives are waiting, the most there may be", self.max_waiters);
        Error::new(ErrorKind::Saturated, message).with_mailbox(&self.name)
    }

    fn delivery(&self, taken: Taken<B>) -> Delivery<B> {
        Delivery {
            id: taken.id,
            letter: taken.letter,
            receipt_handle: ReceiptHandle::sealed(taken.receipt, &self.sealer),
            delivery_count: taken.delivery_count,
        }
    }
}

/// A delivery as it comes out of the lock.
struct Taken<B> {
    id: MessageId,
    letter: Arc<Letter<B>>,
    receipt: Receipt,
    delivery_count: u32,
}

impl<B> State<B> {
    /// Takes what is receivable. The flag says that it stopped before it knew whether anything is,
    /// because too many messages had to be buried first.
    fn take(
        &mut self,
        now: Time,
        options: &ReceiveOptions,
        name: &Name,
    ) -> Result<(Vec<Taken<B>>, bool)> {
        let mut taken = Vec::new();
        for _ in 0..STEPS_PER_LOCK + options.max_messages as usize {
            if taken.len() == options.max_messages as usize {
                return Ok((taken, false));
            }
            let event = match self.queue.decide_receive(now, options.visibility_timeout) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok((taken, false)),
                Err(_) if !taken.is_empty() => return Ok((taken, false)),
                Err(refusal) => return Err(Error::refused(refusal, name)),
            };
            let receipt = event.receipt();
            let _ = self.queue.apply(event);
            let Some(receipt) = receipt else { continue };
            let view = self.queue.get(now, receipt.key).expect("it was just delivered");
            taken.push(Taken {
                id: view.id.into(),
                letter: Arc::clone(view.payload),
                receipt,
                delivery_count: view.attempts,
            });
            // With a zero timeout it is receivable again at once, but not twice in one receive.
            if options.visibility_timeout.is_zero() && self.came_round(&taken, now) {
                return Ok((taken, false));
            }
        }
        Ok((taken, true))
    }

    /// Whether the next in line is the first of this very batch.
    fn came_round(&self, taken: &[Taken<B>], now: Time) -> bool {
        let next = self.queue.first(now).map(|view| view.id.into());
        taken.first().is_some_and(|first| Some(&first.id) == next.as_ref())
    }
}

/// A receive's place among the waiters; gives it up, and passes on what it knew, when dropped.
struct Place<'a, B> {
    room: &'a Room<B>,
    ticket: Option<Ticket>,
}

impl<B> Place<'_, B> {
    /// Ends when notified, or at `look_again_at`.
    async fn wait(&self, look_again_at: Time) {
        let Some(ticket) = self.ticket else { return };
        let mut sleep = pin!(self.room.clock.sleep_until(look_again_at));
        poll_fn(|context| {
            if self.room.state.lock().waiters.poll(ticket, context.waker()) {
                return Poll::Ready(());
            }
            sleep.as_mut().poll(context)
        })
        .await;
    }

    fn leave(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let waker = {
            let mut state = self.room.state.lock();
            state.waiters.leave(ticket);
            state.after_change(self.room.clock.now())
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<B> Drop for Place<'_, B> {
    fn drop(&mut self) {
        self.leave();
    }
}
