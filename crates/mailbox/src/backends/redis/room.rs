//! Those in this process who wait at one mailbox. Invariant: whenever the lock is free, either
//! nothing is receivable as far as the server has told, or somebody who waits was told.

use std::task::Waker;
use std::time::Duration;

use mailbox_core::Time;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::backends::redis::keys::Keys;
use crate::backends::redis::target::Node;
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;
use crate::home::waiters::{Ticket, Waiters, Wakers};
use crate::home::waiting::Lobby;
use crate::name::Name;

/// Told at a time, if there is something for each.
const TOLD: u64 = 256;
/// Servers count the time that is left in whole seconds.
const EXPIRY_SLACK: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) name: Name,
    pub(crate) keys: Keys,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiters: Waiters,
    /// When the next message comes back, by our own clock.
    next_due: Option<Time>,
    /// There was something to receive when somebody last looked.
    is_receivable: bool,
    /// How often a server has told something.
    learned: u64,
    /// Which mailbox of this name it is, if it was there, and who said so: a removed one is
    /// another.
    born: Option<(Node, Vec<u8>)>,
    /// When it goes by itself, unless somebody uses it.
    expires: Option<Instant>,
    ended: Option<ErrorKind>,
}

/// What a server told of a mailbox.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) ready: u64,
    pub(crate) next_due: Option<Time>,
    /// Who told, and which mailbox of this name it is, if it is there.
    pub(crate) born: (Node, Option<Vec<u8>>),
    pub(crate) expires: Option<Instant>,
}

impl Room {
    pub(crate) fn new(name: Name, keys: Keys, clock: Clock) -> Self {
        Self { name, keys, clock, state: Mutex::default() }
    }

    pub(crate) fn waiters(&self) -> usize {
        self.state.lock().waiters.len()
    }

    pub(crate) fn enter(&self) -> Ticket {
        self.state.lock().waiters.enter()
    }

    /// How much was told so far: to be asked before a look, and said when it found nothing.
    pub(crate) fn learned(&self) -> u64 {
        self.state.lock().learned
    }

    /// Gets ready to sleep until `deadline` at most, having found nothing; the next message is due
    /// at `next_due`. False if there was news while it looked: then it has to look again.
    pub(crate) fn sleep(
        &self,
        ticket: Ticket,
        deadline: Time,
        next_due: Option<Time>,
        learned: u64,
    ) -> Result<bool> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if let Some(kind) = state.ended {
            return Err(self.ended(kind));
        }
        if state.learned != learned && state.is_receivable {
            return Ok(false);
        }
        // What was told while it looked may be later than what it saw.
        let told = (state.learned != learned).then_some(state.next_due).flatten();
        let next_due = next_due.into_iter().chain(told).min();
        (state.next_due, state.is_receivable) = (next_due, false);
        state.waiters.sleep(ticket, now, deadline, next_due);
        // If it has taken over from one that is not polled, somebody has to be its deputy.
        let wakers = state.waiters.after_change(now, false, next_due);
        drop(state);
        wakers.wake();
        Ok(true)
    }

    /// Tells those who wait what a server told; false if the mailbox is not the one they wait at.
    pub(crate) fn learn(&self, sight: Sight) -> bool {
        let now = self.clock.now();
        let mut state = self.state.lock();
        // One that nobody has used for so long is gone without having been removed.
        let is_expired = state.expires.is_some_and(|at| at <= Instant::now() + EXPIRY_SLACK);
        let (node, born) = sight.born;
        // After an election another server may never have heard of it.
        let is_other = state
            .born
            .as_ref()
            .is_some_and(|(said_by, known)| *said_by == node && born.as_ref() != Some(known));
        if is_other && !is_expired {
            return false;
        }
        (state.born, state.expires) = (born.map(|born| (node, born)), sight.expires);
        state.learned += 1;
        state.next_due = sight.next_due;
        let is_due = sight.next_due.is_some_and(|due| due <= now);
        state.is_receivable = sight.ready > 0 || is_due;
        let times = if is_due { TOLD } else { sight.ready.clamp(1, TOLD) };
        let mut wakers = Vec::new();
        let waiting = u64::try_from(state.waiters.len()).unwrap_or(u64::MAX);
        for _ in 0..times.min(waiting) {
            let State { waiters, is_receivable, next_due, .. } = &mut *state;
            wakers.push(waiters.after_change(now, *is_receivable, *next_due));
            if !*is_receivable {
                break;
            }
        }
        drop(state);
        wakers.into_iter().for_each(Wakers::wake);
        true
    }

    /// Ends everybody's waiting.
    pub(crate) fn end(&self, kind: ErrorKind) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.ended = Some(kind);
        let wakers = state.waiters.notify_all(now);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.state.lock().ended.map_or(Ok(()), |kind| Err(self.ended(kind)))
    }

    fn ended(&self, kind: ErrorKind) -> Error {
        match kind {
            ErrorKind::NotFound => {
                Error::new(kind, "the mailbox was removed").with_mailbox(&self.name)
            }
            _ => Error::closed(&self.name),
        }
    }
}

impl Lobby for Room {
    fn with_waiters<R>(&self, act: impl FnOnce(&mut Waiters) -> R) -> R {
        act(&mut self.state.lock().waiters)
    }

    fn leave(&self, ticket: Ticket) -> (Option<Waker>, Wakers) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let own = state.waiters.leave(ticket);
        let State { waiters, is_receivable, next_due, .. } = &mut *state;
        (own, waiters.after_change(now, *is_receivable, *next_due))
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn by_clock(&self, time: Time) -> Time {
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> Room {
        let name: Name = "jobs".parse().expect("a name");
        let keys = Keys::of("", &name);
        Room::new(name, keys, Clock::system())
    }

    fn sight(port: u16, born: Option<&str>, next_due: Option<Time>) -> Sight {
        let born = born.map(|born| born.as_bytes().to_vec());
        let born = (Node { host: "10.0.0.1".into(), port }, born);
        Sight { ready: 0, next_due, born, expires: None }
    }

    #[test]
    fn what_is_told_while_somebody_looks_is_kept_although_it_saw_nothing() {
        let room = room();
        let (ticket, now) = (room.enter(), room.clock.now());
        let [soon, later, deadline] = [2, 5, 20].map(|secs| now.after(Duration::from_secs(secs)));
        for (seen, due) in [(None, soon), (Some(later), soon), (Some(soon), soon)] {
            let learned = room.learned();
            assert!(room.learn(sight(1, Some("a"), Some(soon))));
            assert!(room.sleep(ticket, deadline, seen, learned).unwrap());
            assert_eq!(room.state.lock().next_due, Some(due));
        }
        // What was told before it looked is over.
        assert!(room.sleep(ticket, deadline, None, room.learned()).unwrap());
        assert_eq!(room.state.lock().next_due, None);
    }

    #[test]
    fn a_mailbox_is_gone_if_the_same_server_says_so_not_if_another_never_had_it() {
        let room = room();
        assert!(room.learn(sight(1, None, None)));
        assert!(room.learn(sight(1, Some("a"), None)));
        assert!(room.learn(sight(2, None, None)));
        assert!(room.learn(sight(2, Some("b"), None)));
        assert!(!room.learn(sight(2, None, None)));
        assert!(!room.learn(sight(2, Some("c"), None)));
        assert!(room.learn(sight(2, Some("b"), None)));
    }
}
