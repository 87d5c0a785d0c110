//! A receive's seat among those who wait. Invariant: whoever gets up, or is dropped, leaves no
//! ticket behind and passes on what it was told.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

use mailbox_core::Time;

use crate::home::clock::Clock;
use crate::home::waiters::{Ticket, Waiters, Wakers};

/// Where receives wait: keeps their line under its own lock.
pub(crate) trait Lobby {
    /// Does something under the lock. It must not wake or drop wakers there.
    fn with_waiters<R>(&self, act: impl FnOnce(&mut Waiters) -> R) -> R;

    /// Forgets a ticket, and says whom to tell instead. The first is a waker that is not needed any
    /// more.
    fn leave(&self, ticket: Ticket) -> (Option<Waker>, Wakers);

    /// What its time is told by.
    fn clock(&self) -> &Clock;

    /// What that clock shows at `time`.
    fn by_clock(&self, time: Time) -> Time;
}

/// A place among those who wait; gives it up, and passes on what it knew, when dropped.
pub(crate) struct Seat<'a, L: Lobby> {
    lobby: &'a L,
    /// None before it has first found nothing.
    pub(crate) ticket: Option<Ticket>,
}

impl<'a, L: Lobby> Seat<'a, L> {
    /// Not taken yet.
    pub(crate) const fn new(lobby: &'a L) -> Self {
        Self { lobby, ticket: None }
    }

    /// Ends when it is time to look again, by the clock or because it was told.
    pub(crate) async fn wait(&self) {
        let Some(ticket) = self.ticket else { return };
        let mut set_to = Time::MAX;
        let mut sleep = pin!(self.lobby.clock().sleep_until(set_to));
        let mut first = true;
        poll_fn(|context| {
            let poll = |waiters: &mut Waiters| waiters.poll(ticket, context.waker());
            let (look_at, old_waker) = self.lobby.with_waiters(poll);
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
                sleep.set(self.lobby.clock().sleep_until(self.lobby.by_clock(look_at)));
            }
            sleep.as_mut().poll(context)
        })
        .await;
    }

    /// Gives it up.
    pub(crate) fn leave(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let (own, wakers) = self.lobby.leave(ticket);
        drop(own);
        wakers.wake();
    }
}

impl<L: Lobby> Drop for Seat<'_, L> {
    fn drop(&mut self) {
        self.leave();
    }
}
