//! What each command does to the naive queue. Time has already been moved to now.

use std::time::Duration;

use mailbox_core::{DeadReason, Id, Phase, Refusal, Stale};

use super::{Lease, Naive, State, UsedKey, phase};
use crate::command::Choice;
use crate::rules::{Outcome, Rules, span};

impl Naive {
    pub(crate) fn send(
        &mut self,
        id: u64,
        delay: u64,
        group: Option<u8>,
        key: Option<(u8, u8)>,
    ) -> Outcome {
        if let Some((key, print)) = key {
            let now = self.now;
            let used: Vec<_> = self.keys.iter().filter(|used| used.expires > now).collect();
            if let Some(used) = used.iter().find(|used| used.key == key) {
                return if used.print == print {
                    Outcome::Duplicate(used.id)
                } else {
                    Outcome::Refused(Refusal::KeyTaken { first: Id(used.id.into()) })
                };
            }
            let capacity = self.rules.dedup_capacity;
            if used.len() >= capacity {
                let mut expiries: Vec<_> = used.iter().map(|used| used.expires).collect();
                expiries.sort_unstable();
                let free = expiries.get(used.len() - capacity);
                let retry_after = free.map_or(Duration::MAX, |free| span(free - now));
                return Outcome::Refused(Refusal::DedupFull { capacity, retry_after });
            }
        }
        if let Some(full) = self.full() {
            return full;
        }
        if let Some((key, print)) = key {
            let expires = self.now + self.rules.window;
            self.keys.push(UsedKey { key, print, id, expires });
        }
        self.totals.sent += 1;
        self.enter(id, group, self.now + delay);
        Outcome::Sent(id)
    }

    pub(crate) fn receive(&mut self, visibility: u64) -> Outcome {
        let Some(index) = self.line.iter().position(|spot| !spot.empty) else {
            return Outcome::Nothing;
        };
        let id = self.line[index].id;
        if let Some(reason) = self.doom(id) {
            return self.bury(id, reason, None);
        }
        let max_in_flight = self.rules.max_in_flight;
        if visibility > 0 && self.count(Phase::Invisible) >= max_in_flight {
            let retry_after = Duration::ZERO;
            return Outcome::Refused(Refusal::TooManyInFlight { max_in_flight, retry_after });
        }
        self.line[index].empty = true;
        let mut spot = 0;
        self.line.retain(|other| {
            spot += 1;
            other.id != id || spot == index + 1
        });

        let due = self.now + visibility;
        let hold = self.rules.in_flight_factor.map(|factor| visibility * u64::from(factor));
        let hold_until = hold.map_or(u64::MAX, |hold| self.now + hold);
        let lease = Lease { number: self.deliveries, hold_until };
        let decided = self.decide();
        let message = self.message(id);
        let timed_out = message.lease.replace(lease).is_some();
        message.attempts += 1;
        message.state = State::Out { due, decided };
        let attempt = message.attempts;
        self.deliveries += 1;
        self.totals.delivered += 1;
        self.totals.redelivered += u64::from(attempt > 1);
        self.totals.timed_out += u64::from(timed_out);
        Outcome::Delivered { id, attempt, deadline: due }
    }

    /// `number` counts deliveries from 0.
    pub(crate) fn settle(&mut self, number: usize, choice: &Choice) -> Outcome {
        let now = self.now;
        let late = self.rules.late;
        let found = self
            .live
            .iter_mut()
            .find(|message| message.lease.is_some_and(|lease| lease.number == number));
        let Some(message) = found else {
            return Outcome::Refused(Refusal::Stale(Stale::Superseded));
        };
        let (id, hold_until) = (message.id, message.lease.map_or(0, |lease| lease.hold_until));
        if message.state == State::Waiting && !late {
            return Outcome::Refused(Refusal::Stale(Stale::Expired));
        }
        match choice {
            Choice::Acknowledge => {
                self.totals.acknowledged += 1;
                self.leave(id);
            }
            Choice::Nack { delay, error } => {
                self.line.retain(|spot| spot.id != id);
                let state = State::Later { due: now + delay, decided: self.decide() };
                let message = self.message(id);
                message.state = state;
                message.lease = None;
                message.error = error.clone().or(message.error.take());
            }
            Choice::Extend { timeout } => {
                if now + timeout > hold_until {
                    let at_most = span(hold_until.saturating_sub(now));
                    return Outcome::Refused(Refusal::HeldTooLong { at_most });
                }
                self.line.retain(|spot| spot.id != id || spot.empty);
                let state = State::Out { due: now + timeout, decided: self.decide() };
                self.message(id).state = state;
            }
            Choice::Reject { reason, error } => {
                return self.bury(id, *reason, error.clone());
            }
            Choice::Return => {
                self.line.retain(|spot| spot.id != id || spot.empty);
                for spot in self.line.iter_mut().filter(|spot| spot.id == id) {
                    spot.empty = false;
                }
                let message = self.message(id);
                message.state = State::Waiting;
                message.lease = None;
                message.attempts -= 1;
            }
        }
        Outcome::Settled(id)
    }

    pub(crate) fn redrive(&mut self, id: u64) -> Outcome {
        let Some(index) = self.dead.iter().position(|dead| dead.id == id) else {
            return Outcome::Refused(Refusal::NotDead);
        };
        if let Some(full) = self.full() {
            return full;
        }
        let dead = self.dead.remove(index);
        self.totals.redriven += 1;
        self.enter(id, dead.group, self.now);
        Outcome::Redriven(id)
    }

    pub(crate) fn discard(&mut self, id: u64) -> Outcome {
        let Some(index) = self.dead.iter().position(|dead| dead.id == id) else {
            return Outcome::Refused(Refusal::NotDead);
        };
        self.dead.remove(index);
        Outcome::Discarded(id)
    }

    /// One step of retention. Only the oldest message is looked at, and not while it is out.
    pub(crate) fn expire(&mut self) -> Outcome {
        let rules = &self.rules;
        if let Some(oldest) = self.dead.first() {
            let over = rules.dead_count.is_some_and(|most| self.dead.len() as u64 > most);
            let died = oldest.death.map_or(0, |(_, at)| at);
            if over || rules.dead_age.is_some_and(|age| died + age <= self.now) {
                self.totals.retention_dropped += 1;
                return Outcome::Discarded(self.dead.remove(0).id);
            }
        }
        let Some(oldest) = self.live.first() else {
            return Outcome::Nothing;
        };
        let over = rules.ready_count.is_some_and(|most| self.live.len() as u64 > most);
        let aged = rules.ready_age.is_some_and(|age| oldest.entered + age <= self.now);
        if (over || aged) && phase(oldest) != Phase::Invisible {
            return self.bury(oldest.id, DeadReason::Expired, None);
        }
        Outcome::Nothing
    }

    pub(crate) fn purge(&mut self) -> Outcome {
        self.line.clear();
        let gone: Vec<_> = self.live.drain(..).map(|message| message.id).collect();
        self.totals.purged += gone.len() as u64;
        Outcome::Purged(gone)
    }

    pub(crate) fn configure(&mut self, rules: Rules) -> Outcome {
        self.rules = rules;
        Outcome::Configured
    }

    fn bury(&mut self, id: u64, reason: DeadReason, error: Option<String>) -> Outcome {
        let mut message = self.leave(id);
        let by_itself = matches!(reason, DeadReason::MaxAttempts | DeadReason::Expired);
        let over = message.lease.take().is_some() && message.state == State::Waiting;
        self.totals.timed_out += u64::from(over && by_itself);
        self.totals.dead_lettered += 1;
        message.error = error.or(message.error);
        message.death = Some((reason, self.now));
        self.dead.push(message);
        Outcome::Died { id, reason }
    }

    fn doom(&self, id: u64) -> Option<DeadReason> {
        let message = self.live.iter().find(|message| message.id == id)?;
        if self.rules.ready_age.is_some_and(|age| message.entered + age <= self.now) {
            return Some(DeadReason::Expired);
        }
        let spent = self.rules.max_attempts.is_some_and(|most| message.attempts >= most);
        spent.then_some(DeadReason::MaxAttempts)
    }

    fn full(&self) -> Option<Outcome> {
        let max_size = self.rules.max_size?;
        let full = self.live.len() as u64 >= max_size;
        full.then_some(Outcome::Refused(Refusal::Full { max_size }))
    }
}
