//! Those who wait for a message of an inbox.

use std::task::Waker;

use mailbox_core::Time;

use super::Inbox;
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;
use crate::home::waiters::{Ticket, Waiters, Wakers};
use crate::home::waiting::{Lobby, Seat};

impl Inbox {
    /// Gets ready to sleep until `deadline` at most; false if there is something to take by now.
    pub(crate) fn sit_down(
        &self,
        seat: &mut Seat<'_, Self>,
        now: Time,
        deadline: Time,
    ) -> Result<bool> {
        let mut state = self.state.lock();
        if let Some(kind) = state.ended {
            return Err(self.ended(kind));
        }
        let next = state.line.next_turn();
        if !state.is_sure || next.is_some_and(|next| next <= now) {
            return Ok(false);
        }
        let ticket = match seat.ticket {
            Some(ticket) => ticket,
            None if state.waiters.len() >= self.config.max_waiters => {
                let most = self.config.max_waiters;
                let message = format!("{most} receives are waiting, the most there may be");
                return Err(Error::new(ErrorKind::Saturated, message).with_mailbox(&self.name));
            }
            None => *seat.ticket.insert(state.waiters.enter()),
        };
        state.waiters.sleep(ticket, now, deadline, next);
        // If it has taken over from one that is not polled, somebody has to be its deputy.
        let wakers = state.waiters.after_change(now, false, next);
        drop(state);
        wakers.wake();
        Ok(true)
    }
}

impl Lobby for Inbox {
    fn with_waiters<R>(&self, act: impl FnOnce(&mut Waiters) -> R) -> R {
        act(&mut self.state.lock().waiters)
    }

    fn leave(&self, ticket: Ticket) -> (Option<Waker>, Wakers) {
        let now = self.now();
        let mut state = self.state.lock();
        (state.waiters.leave(ticket), state.after_change(now))
    }

    fn clock(&self) -> &Clock {
        self.time.clock()
    }

    fn by_clock(&self, time: Time) -> Time {
        self.clock().now().after(time.since(self.now()))
    }
}
