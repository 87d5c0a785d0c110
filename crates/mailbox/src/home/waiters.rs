//! Receives that wait, in order of arrival. Pure bookkeeping under the room's lock: it hands out
//! wakers, the room wakes them after unlocking (a waker may run anything, even a drop that needs
//! the same lock).
//!
//! The one in front keeps the time: it alone sleeps until the next message is due; the others sleep
//! until their own patience ends. Invariant, whenever the lock is free: if a message is receivable
//! and somebody waits, then somebody who waits has been notified, or the one in front is armed for
//! a time that has come. So a notified waiter that goes away must pass the news on.

use std::collections::BTreeMap;
use std::task::Waker;

use mailbox_core::Time;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: BTreeMap<Ticket, Waiter>,
    last_ticket: u64,
    /// When the one in front will look by itself, if it has been told of any time.
    armed: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

#[derive(Debug, Default)]
struct Waiter {
    waker: Option<Waker>,
    notified: bool,
}

impl Waiters {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn enter(&mut self) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.waiting.insert(ticket, Waiter::default());
        ticket
    }

    /// Says that `ticket` is about to sleep, the next message being due at `next_due`; gives the
    /// time it has to look again, if it is the one in front.
    pub(crate) fn arm(&mut self, ticket: Ticket, next_due: Option<Time>) -> Option<Time> {
        if !self.is_front(ticket) {
            return None;
        }
        self.armed = next_due;
        next_due
    }

    /// Whether `ticket` has been notified; takes the notification. If not, `waker` will be woken.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> bool {
        let Some(waiter) = self.waiting.get_mut(&ticket) else {
            return true;
        };
        if std::mem::take(&mut waiter.notified) {
            return true;
        }
        match &mut waiter.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        false
    }

    pub(crate) fn leave(&mut self, ticket: Ticket) {
        if self.is_front(ticket) {
            self.armed = None;
        }
        self.waiting.remove(&ticket);
    }

    /// After a change: notifies whoever must know. `receivable`: a message is, now.
    pub(crate) fn after_change(
        &mut self,
        receivable: bool,
        next_due: Option<Time>,
    ) -> Option<Waker> {
        if receivable {
            return self.notify_next();
        }
        let earlier = match (next_due, self.armed) {
            (Some(next_due), Some(armed)) => next_due < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if earlier { self.notify_front() } else { None }
    }

    pub(crate) fn notify_all(&mut self) -> Vec<Waker> {
        let notify = |waiter: &mut Waiter| {
            waiter.notified = true;
            waiter.waker.take()
        };
        self.waiting.values_mut().filter_map(notify).collect()
    }

    fn is_front(&self, ticket: Ticket) -> bool {
        self.waiting.first_key_value().is_some_and(|(front, _)| *front == ticket)
    }

    /// Notifies the first one that does not know yet.
    fn notify_next(&mut self) -> Option<Waker> {
        let waiter = self.waiting.values_mut().find(|waiter| !waiter.notified)?;
        waiter.notified = true;
        waiter.waker.take()
    }

    fn notify_front(&mut self) -> Option<Waker> {
        let mut front = self.waiting.first_entry()?;
        if front.get().notified {
            return None;
        }
        front.get_mut().notified = true;
        front.get_mut().waker.take()
    }
}
