//! Receives that wait, in order of arrival. Pure bookkeeping under the room's lock: it hands out
//! wakers, the room wakes or drops them after unlocking (both may run anything, even a drop that
//! needs the same lock).
//!
//! A message wakes one waiter, not all. And one keeps the time: the first that has not been
//! notified looks when the next message is due; the others sleep until their own patience ends.
//! Invariant, whenever the lock is free: if a message is receivable and somebody waits, then
//! somebody who waits has been notified or will look by itself at a time that has come. So a
//! notified waiter that goes away must pass the news on.
//!
//! A receive may also be kept and not polled, beside a `select!` arm that takes long for example.
//! So everybody who was told, and everybody whose time has come, has a deputy: the next in line
//! looks [`PATIENCE`] later. Whoever has been late by that much is passed over until it is polled.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use mailbox_core::Time;

/// How long one that was told something, or whose time has come, may take to look. Well within what
/// the contract allows a deadline to be late (V2).
const PATIENCE: Duration = Duration::from_millis(25);

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Sorted by ticket, because tickets only grow. Bounded by the room.
    waiting: VecDeque<Waiter>,
    last_ticket: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    waker: Option<Waker>,
    /// When it was told to look, if it has not done so yet.
    notified: Option<Time>,
    /// When it looks by itself.
    look_at: Time,
}

/// Whom to wake after unlocking: the one that is told, and the one that shall set its timer anew.
#[must_use]
pub(crate) struct Wakers([Option<Waker>; 2]);

impl Wakers {
    pub(crate) const NOBODY: Self = Self([None, None]);

    #[inline]
    pub(crate) fn wake(self) {
        let Self([told, timed]) = self;
        told.into_iter().for_each(Waker::wake);
        timed.into_iter().for_each(Waker::wake);
    }
}

impl Waiter {
    fn notify(&mut self, now: Time) -> Option<Waker> {
        self.notified = Some(now);
        self.waker.take()
    }

    /// Makes it look at `at`, unless it does so before.
    fn hasten(&mut self, at: Time) -> Option<Waker> {
        if self.look_at <= at {
            return None;
        }
        self.look_at = at;
        self.waker.take()
    }

    /// It should have looked by now, and has not: it is not being polled.
    fn is_late(&self, now: Time) -> bool {
        let since = self.notified.map_or(self.look_at, |notified| notified.min(self.look_at));
        since.after(PATIENCE) <= now
    }
}

impl Waiters {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn enter(&mut self) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.waiting.push_back(Waiter { ticket, waker: None, notified: None, look_at: Time::MAX });
        ticket
    }

    /// Says that `ticket` has looked, found nothing, and is about to sleep until `deadline` at
    /// most, the next message being due at `next_due`.
    pub(crate) fn sleep(
        &mut self,
        ticket: Ticket,
        now: Time,
        deadline: Time,
        next_due: Option<Time>,
    ) {
        let Some(own) = self.index(ticket) else {
            return;
        };
        let next_due = next_due.unwrap_or(Time::MAX);
        let before = self.waiting.iter().take(own).filter(|waiter| !waiter.is_late(now));
        let look_at = match before.clone().filter(|waiter| waiter.notified.is_none()).count() {
            // The one that keeps the time, and the deputy of those that were told.
            0 => match before.filter_map(|waiter| waiter.notified).min() {
                Some(notified) => next_due.min(notified.after(PATIENCE)),
                None => next_due,
            },
            // The deputy of the one that keeps the time.
            1 => next_due.after(PATIENCE),
            _ => Time::MAX,
        };
        self.waiting[own].notified = None;
        self.waiting[own].look_at = look_at.min(deadline);
    }

    /// When `ticket` shall look by itself; `None` if it has been told to look now. `waker` will be
    /// woken when that changes. The second is a waker that is not needed any more.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> (Option<Time>, Option<Waker>) {
        let Some(index) = self.index(ticket) else {
            return (None, None);
        };
        let waiter = &mut self.waiting[index];
        if waiter.notified.take().is_some() {
            return (None, None);
        }
        if waiter.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return (Some(waiter.look_at), None);
        }
        (Some(waiter.look_at), waiter.waker.replace(waker.clone()))
    }

    /// Forgets `ticket`; gives its waker, which is not needed any more.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Waker> {
        let index = self.index(ticket)?;
        self.waiting.remove(index)?.waker
    }

    /// After a change: tells whoever must know. `receivable`: a message is, now.
    pub(crate) fn after_change(
        &mut self,
        now: Time,
        receivable: bool,
        next_due: Option<Time>,
    ) -> Wakers {
        let free = |waiter: &&mut Waiter| waiter.notified.is_none() && !waiter.is_late(now);
        let mut free = self.waiting.iter_mut().filter(free);
        let (Some(first), second) = (free.next(), free.next()) else {
            // Everybody knows, or will look as soon as it is polled.
            return Wakers::NOBODY;
        };
        let deputy_at = now.after(PATIENCE);
        let wakers = match (receivable, second) {
            (true, None) => [first.notify(now), None],
            // Whoever is deputy already stays it: then a stream of messages sets no new timers.
            (true, Some(second)) if first.look_at <= deputy_at => [second.notify(now), None],
            (true, Some(second)) => [first.notify(now), second.hasten(deputy_at)],
            (false, second) => {
                let next_due = next_due.unwrap_or(Time::MAX);
                let deputy = second.and_then(|second| second.hasten(next_due.after(PATIENCE)));
                [first.hasten(next_due), deputy]
            }
        };
        Wakers(wakers)
    }

    pub(crate) fn notify_all(&mut self, now: Time) -> Vec<Waker> {
        self.waiting.iter_mut().filter_map(|waiter| waiter.notify(now)).collect()
    }

    fn index(&self, ticket: Ticket) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }
}
