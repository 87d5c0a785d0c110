//! Receiving from a room, waiting included.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use mailbox_core::Time;

use crate::backend::Delivery;
use crate::error::{Error, ErrorKind, Result};
use crate::home::room::{Room, STEPS_PER_LOCK, State};
use crate::home::waiters::Ticket;
use crate::id::ReceiptHandle;
use crate::options::ReceiveOptions;

/// What one look at the queue gave.
enum Look<B> {
    /// At least one message, or patience is over.
    Done(Vec<Delivery<B>>),
    /// So many messages had to be buried that others shall have their turn.
    Again,
    /// Nothing; wait.
    Wait,
}

impl<B> Room<B> {
    /// Takes up to `max_messages`, waiting for the first.
    ///
    /// # Cancel safety
    /// A dropped future holds no message; if it had been notified of one, the next waiter is.
    pub(crate) async fn receive(&self, options: &ReceiveOptions) -> Result<Vec<Delivery<B>>> {
        let mut now = self.clock.now();
        let deadline = now.after(options.wait);
        let mut place = Place { room: self, ticket: None };
        loop {
            match self.look(now, options, deadline, &mut place)? {
                Look::Done(taken) => return Ok(taken),
                Look::Again => tokio::task::yield_now().await,
                Look::Wait => place.wait().await,
            }
            now = self.clock.now();
        }
    }

    fn look(
        &self,
        now: Time,
        options: &ReceiveOptions,
        deadline: Time,
        place: &mut Place<'_, B>,
    ) -> Result<Look<B>> {
        let mut state = self.open()?;
        let (taken, more_to_bury) = self.take(&mut state, now, options)?;
        if taken.is_empty() && more_to_bury {
            return Ok(Look::Again);
        }
        if !taken.is_empty() || now >= deadline {
            let own = place.ticket.take().and_then(|ticket| state.waiters.leave(ticket));
            // A new lease is a new deadline, which the one in front has to know.
            let wakers = state.after_change(now);
            drop(state);
            drop(own);
            wakers.for_each(Waker::wake);
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
        state.waiters.sleep(ticket, now, deadline, next_due);
        // If it has taken over from one that is not polled, somebody has to be its deputy.
        let wakers = state.waiters.after_change(now, false, next_due);
        drop(state);
        wakers.for_each(Waker::wake);
        Ok(Look::Wait)
    }

    fn too_many_waiters(&self) -> Error {
        let message = format!("{} receives are waiting, the most there may be", self.max_waiters);
        Error::new(ErrorKind::Saturated, message).with_mailbox(&self.name)
    }

    /// Takes what is receivable. The flag says that it stopped before it knew whether anything is,
    /// because too many messages had to be buried first.
    fn take(
        &self,
        state: &mut State<B>,
        now: Time,
        options: &ReceiveOptions,
    ) -> Result<(Vec<Delivery<B>>, bool)> {
        let mut taken: Vec<Delivery<B>> = Vec::new();
        for _ in 0..STEPS_PER_LOCK + options.max_messages as usize {
            if taken.len() == options.max_messages as usize {
                return Ok((taken, false));
            }
            // With a zero timeout it is receivable again at once, but not twice in one receive; nor
            // may it die in there of the attempt that this very receive is.
            if options.visibility_timeout.is_zero()
                && let Some(first) = taken.first()
                && state.queue.first(now).is_some_and(|next| first.id == next.id.into())
            {
                return Ok((taken, false));
            }
            let event = match state.queue.decide_receive(now, options.visibility_timeout) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok((taken, false)),
                Err(_) if !taken.is_empty() => return Ok((taken, false)),
                Err(refusal) => return Err(Error::refused(refusal, &self.name)),
            };
            let receipt = event.receipt();
            let _ = state.queue.apply(event);
            let Some(receipt) = receipt else { continue };
            let view = state.queue.get(now, receipt.key).expect("it was just delivered");
            taken.push(Delivery {
                id: view.id.into(),
                letter: Arc::clone(view.payload),
                receipt_handle: ReceiptHandle::sealed(receipt, &self.sealer),
                delivery_count: view.attempts,
            });
        }
        Ok((taken, true))
    }
}

/// A receive's place among the waiters; gives it up, and passes on what it knew, when dropped.
struct Place<'a, B> {
    room: &'a Room<B>,
    ticket: Option<Ticket>,
}

impl<B> Place<'_, B> {
    /// Ends when it is time to look again, by the clock or because it was told.
    async fn wait(&self) {
        let Some(ticket) = self.ticket else { return };
        let mut set_to = Time::MAX;
        let mut sleep = pin!(self.room.clock.sleep_until(set_to));
        let mut first = true;
        poll_fn(|context| {
            let (look_at, old_waker) = self.room.state.lock().waiters.poll(ticket, context.waker());
            drop(old_waker);
            let Some(look_at) = look_at else {
                return Poll::Ready(());
            };
            // Setting a timer costs more than everything else here, and an answer is often there
            // after one turn of the scheduler: give it that turn before going to sleep.
            if std::mem::take(&mut first) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if look_at != set_to {
                set_to = look_at;
                sleep.set(self.room.clock.sleep_until(look_at));
            }
            sleep.as_mut().poll(context)
        })
        .await;
    }

    fn leave(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let (own, wakers) = {
            let mut state = self.room.state.lock();
            (state.waiters.leave(ticket), state.after_change(self.room.clock.now()))
        };
        drop(own);
        wakers.for_each(Waker::wake);
    }
}

impl<B> Drop for Place<'_, B> {
    fn drop(&mut self) {
        self.leave();
    }
}
