//! Questions: what would happen. Pure; an answer is an event to apply, or a refusal.

use std::time::Duration;

use crate::dedup::Idempotency;
use crate::entry::Entry;
use crate::event::{DeadReason, Draft, Event, Sending, Verdict};
use crate::ids::{Key, Receipt};
use crate::limits;
use crate::policy::{LateSettle, Policy};
use crate::queue::Queue;
use crate::refusal::{Refusal, Stale};
use crate::time::Time;

/// When to ask again if the queue cannot tell.
const RETRY_HINT: Duration = Duration::from_secs(1);

impl<P> Queue<P> {
    /// Whether a message is accepted (D1, I1, M4). A duplicate is recognised even when full.
    ///
    /// # Errors
    /// [`Refusal::Full`], [`Refusal::KeyTaken`], [`Refusal::DedupFull`].
    #[must_use = "a decision changes nothing until its event is applied"]
    #[inline(always)]
    pub fn decide_send(&self, now: Time, draft: Draft<P>) -> Result<Sending<P>, Refusal> {
        let at = self.not_before(now);
        let idempotency = match draft.idempotency {
            None => None,
            Some((key, fingerprint)) => {
                let capacity = self.policy.dedup_capacity;
                if let Some(first) = self.dedup.check(at, &key, &fingerprint, capacity)? {
                    return Ok(Sending::Duplicate(first));
                }
                let expires = at.after(self.policy.replay_window);
                Some(Box::new(Idempotency { key, fingerprint, expires }))
            }
        };
        self.check_room()?;
        Ok(Sending::New(Event::Sent {
            key: self.next_key(),
            id: draft.id,
            at,
            due: at.after(draft.delay),
            group: draft.group,
            idempotency,
            payload: draft.payload,
        }))
    }

    /// Who is next (D5, D7). Takes one step: either a delivery, or a message that must not be
    /// delivered any more becomes a dead letter (X1, X5). Ask again until there is nothing, or
    /// enough.
    ///
    /// # Errors
    /// [`Refusal::TooManyInFlight`].
    #[must_use = "a decision changes nothing until its event is applied"]
    #[inline(always)]
    pub fn decide_receive(
        &self,
        now: Time,
        visibility_timeout: Duration,
    ) -> Result<Option<Event<P>>, Refusal> {
        let at = self.not_before(now);
        let Some(place) = self.line.first(at) else {
            return Ok(None);
        };
        let entry = self.slab.get(place.slot).expect("the head of the line is current");
        let key = Key { seq: entry.seq, slot: place.slot };
        if let Some(reason) = self.doom(entry, at) {
            return Ok(Some(Event::DeadLettered { key, at, reason, error: None }));
        }
        if !visibility_timeout.is_zero() {
            self.check_in_flight(at)?;
        }
        let hold_until = match self.policy.retention.in_flight_factor {
            None => Time::MAX,
            Some(factor) => at.after(visibility_timeout.saturating_mul(factor)),
        };
        let due = at.after(visibility_timeout);
        Ok(Some(Event::Delivered { key, lease: self.next_lease, at, due, hold_until }))
    }

    /// Whether a verdict on a delivery stands (V4).
    ///
    /// # Errors
    /// [`Refusal::Stale`], [`Refusal::HeldTooLong`].
    #[must_use = "a decision changes nothing until its event is applied"]
    #[inline(always)]
    pub fn decide_settle(
        &self,
        now: Time,
        receipt: Receipt,
        verdict: Verdict,
    ) -> Result<Event<P>, Refusal> {
        let at = self.not_before(now);
        let key = receipt.key;
        let entry = self.entry(key).filter(|entry| entry.lease == Some(receipt.lease));
        let entry = entry.ok_or(Refusal::Stale(Stale::Superseded))?;
        if entry.due <= at && self.policy.late_settle == LateSettle::Refuse {
            return Err(Refusal::Stale(Stale::Expired));
        }
        Ok(match verdict {
            Verdict::Acknowledge => Event::Acknowledged { key, at },
            Verdict::Nack { delay, error } => {
                Event::Nacked { key, at, due: at.after(delay), error }
            }
            Verdict::Extend { timeout } => {
                let due = at.after(timeout);
                if due > entry.hold_until {
                    return Err(Refusal::HeldTooLong { at_most: entry.hold_until.since(at) });
                }
                Event::Extended { key, at, due }
            }
            Verdict::Reject { reason, error } => Event::DeadLettered { key, at, reason, error },
            Verdict::Return => Event::Returned { key, at },
        })
    }

    /// Whether a dead letter goes back in line (X3).
    ///
    /// # Errors
    /// [`Refusal::NotDead`], [`Refusal::Full`].
    #[must_use = "a decision changes nothing until its event is applied"]
    pub fn decide_redrive(&self, now: Time, key: Key) -> Result<Event<P>, Refusal> {
        self.entry(key).and_then(Entry::death).ok_or(Refusal::NotDead)?;
        self.check_room()?;
        Ok(Event::Redriven { key, at: self.not_before(now) })
    }

    /// Whether a dead letter is deleted (X3).
    ///
    /// # Errors
    /// [`Refusal::NotDead`].
    #[must_use = "a decision changes nothing until its event is applied"]
    pub fn decide_discard(&self, now: Time, key: Key) -> Result<Event<P>, Refusal> {
        self.entry(key).and_then(Entry::death).ok_or(Refusal::NotDead)?;
        Ok(Event::Discarded { key, at: self.not_before(now), by_retention: false })
    }

    /// What retention asks for next (X5): one step; ask again until there is nothing.
    #[must_use = "a decision changes nothing until its event is applied"]
    pub fn decide_expire(&self, now: Time) -> Option<Event<P>> {
        let at = self.not_before(now);
        let retention = &self.policy.retention;
        if let Some(oldest) = self.slab.get(self.dead.head) {
            let over = retention.dead_count.is_some_and(|most| self.dead.len() > most);
            let aged = retention
                .dead_age
                .zip(oldest.death())
                .is_some_and(|(age, (_, died))| died.after(age) <= at);
            if over || aged {
                let key = Key { seq: oldest.seq, slot: self.dead.head };
                return Some(Event::Discarded { key, at, by_retention: true });
            }
        }
        let oldest = self.slab.get(self.live.head)?;
        if oldest.lease.is_some() && oldest.due > at {
            return None;
        }
        let over = retention.ready_count.is_some_and(|most| self.live.len() > most);
        if over || too_old(oldest, at, &self.policy) {
            let key = Key { seq: oldest.seq, slot: self.live.head };
            return Some(Event::DeadLettered { key, at, reason: DeadReason::Expired, error: None });
        }
        None
    }

    /// A purge (M1).
    #[must_use = "a decision changes nothing until its event is applied"]
    pub fn decide_purge(&self, now: Time) -> Event<P> {
        Event::Purged { at: self.not_before(now) }
    }

    /// New rules. They hold for what happens from now on; nothing is dropped on the spot.
    #[must_use = "a decision changes nothing until its event is applied"]
    pub fn decide_configure(&self, now: Time, policy: Policy) -> Event<P> {
        Event::Configured { at: self.not_before(now), policy: Box::new(policy) }
    }

    /// A new epoch of leases, above every one there was.
    #[must_use = "a decision changes nothing until its event is applied"]
    pub fn decide_open(&self, now: Time) -> Event<P> {
        Event::Opened { at: self.not_before(now), epoch: self.next_lease.epoch() + 1 }
    }

    /// Why a message whose turn it is must not be delivered.
    fn doom(&self, entry: &Entry<P>, at: Time) -> Option<DeadReason> {
        if too_old(entry, at, &self.policy) {
            return Some(DeadReason::Expired);
        }
        let spent = self.policy.max_attempts.is_some_and(|most| entry.attempts >= most);
        spent.then_some(DeadReason::MaxAttempts)
    }

    fn check_room(&self) -> Result<(), Refusal> {
        let most = self.policy.max_size.unwrap_or(u64::from(limits::MESSAGES));
        if self.live.len() >= most || self.slab.len() >= limits::MESSAGES {
            return Err(Refusal::Full { max_size: most });
        }
        Ok(())
    }

    /// Counts leases that are over only as far as it has to.
    fn check_in_flight(&self, at: Time) -> Result<(), Refusal> {
        let max_in_flight = self.policy.max_in_flight;
        let mut in_flight = self.leased;
        if in_flight < max_in_flight {
            return Ok(());
        }
        self.line.visit_leases_over(at, |place| {
            in_flight -= u64::from(self.is_current(place));
            in_flight >= max_in_flight
        });
        if in_flight < max_in_flight {
            return Ok(());
        }
        let retry_after = match self.line.next_lease_over() {
            Some(due) if due > at => due.since(at).min(RETRY_HINT),
            _ => RETRY_HINT,
        };
        Err(Refusal::TooManyInFlight { max_in_flight, retry_after })
    }
}

fn too_old<P>(entry: &Entry<P>, at: Time, policy: &Policy) -> bool {
    policy.retention.ready_age.is_some_and(|age| entry.entered.after(age) <= at)
}
