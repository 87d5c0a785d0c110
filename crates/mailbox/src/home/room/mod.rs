//! One mailbox's queue in this process: decides, notes and applies under the lock, wakes and drops
//! after it. Invariant: a lease is taken in the same poll that returns it, so there is no await
//! between taking a message and handing it over, and a dropped receive never holds one.

mod inject;
mod receive;
mod show;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use mailbox_core::{
    DeadReason, Draft, Event, Fingerprint, Freed, Policy, Queue, Receipt, Sending, Time, Verdict,
};

use crate::backend::{Letter, Outgoing, Sent, Settlement};
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;
use crate::home::keep::Keep;
use crate::home::sync::Mutex;
use crate::home::waiters::{Waiters, Wakers};
use crate::id::{Sealer, ulid};
use crate::name::Name;
use crate::timestamp::Timestamp;

/// Dead letters made, and expired ones dropped, under one hold of the lock.
const STEPS_PER_LOCK: usize = 256;
/// Expired messages cleared away by each send: more than one, so that a backlog shrinks.
const STEPS_PER_SEND: usize = 4;

pub(crate) struct Room<K: Keep> {
    pub(crate) name: Name,
    pub(crate) clock: Clock,
    pub(crate) keep: K,
    number: u32,
    salt: u64,
    sealer: Arc<Sealer>,
    max_waiters: usize,
    state: Mutex<State<K>>,
}

/// What a room is made with.
#[derive(Debug, Clone)]
pub(crate) struct Fittings {
    pub(crate) clock: Clock,
    /// Tells mailboxes of one home apart in message ids.
    pub(crate) number: u32,
    /// Random: for ids, handles and hash tables.
    pub(crate) secret: [u8; 32],
    pub(crate) max_waiters: usize,
}

/// A message that is ready to be sent, as often as it takes.
pub(crate) struct Packed<K: Keep> {
    parcel: K::Parcel,
    at: Time,
    enqueued_at: Timestamp,
    delay: Duration,
    group: Option<Box<str>>,
    idempotency: Option<(Box<str>, Fingerprint)>,
}

impl<K: Keep> Packed<K> {
    /// When that was.
    pub(crate) const fn at(&self) -> Time {
        self.at
    }

    #[cfg(feature = "journal")]
    pub(crate) const fn parcel(&self) -> &K::Parcel {
        &self.parcel
    }
}

struct State<K: Keep> {
    queue: Queue<K::Slip>,
    waiters: Waiters,
    ended: Option<ErrorKind>,
}

/// What an event left to do after the lock: let go, wake, and perhaps wait.
#[must_use]
struct Aftermath<K: Keep> {
    freed: Freed<K::Slip>,
    wakers: Wakers,
    written: K::Written,
}

impl<K: Keep> Room<K> {
    pub(crate) fn new(name: Name, fittings: Fittings, keep: K, policy: Policy) -> Self {
        let seed = Seeds::of(&fittings, &name).hash_seed;
        Self::with_queue(name, fittings, keep, Queue::new(policy, seed))
    }

    /// A room for a queue that was there before.
    pub(crate) fn with_queue(
        name: Name,
        fittings: Fittings,
        keep: K,
        queue: Queue<K::Slip>,
    ) -> Self {
        let seeds = Seeds::of(&fittings, &name);
        let Fittings { clock, number, max_waiters, .. } = fittings;
        let sealer = Arc::new(Sealer::new(seeds.sealer_key));
        let state = State { queue, waiters: Waiters::default(), ended: None };
        let (salt, state) = (seeds.id_salt, Mutex::new(state));
        Self { name, clock, keep, number, salt, sealer, max_waiters, state }
    }

    /// Makes a message ready to be sent. `hash` is that of its payload: an idempotency key needs
    /// it, and some homes keep it.
    pub(crate) fn pack(
        &self,
        outgoing: Outgoing<K::Body>,
        hash: Option<Fingerprint>,
    ) -> Result<Packed<K>> {
        let at = self.clock.now();
        let enqueued_at = self.clock.wall_at(at);
        let idempotency = outgoing.idempotency_key.as_deref().map(Box::from).zip(hash);
        let group = outgoing.group.as_deref().map(Box::from);
        let delay = outgoing.delay;
        let parcel = self.keep.pack(letter(outgoing, enqueued_at), hash.as_ref())?;
        Ok(Packed { parcel, at, enqueued_at, delay, group, idempotency })
    }

    /// Puts a message in line. It is not used up: what it holds may do anything when it goes, even
    /// call this mailbox, so it goes after the lock, with the caller.
    /// `now` is the present, or the time of packing if nobody has waited since.
    pub(crate) fn send(&self, packed: &Packed<K>, now: Time) -> Result<(Sent, K::Written)> {
        let mut state = self.open()?;
        let expired = state.expire(&self.keep, now, STEPS_PER_SEND);
        let key = state.queue.next_key();
        let millis = packed.enqueued_at.as_unix_millis();
        let id = ulid::compose(millis, self.number, key, self.salt);
        let draft = Draft {
            id,
            payload: self.keep.slip(&packed.parcel),
            delay: packed.delay,
            group: packed.group.clone(),
            idempotency: packed.idempotency.clone(),
        };
        let decision = state.queue.decide_send(now, draft);
        let outcome = match decision {
            Ok(Sending::New(event)) => state
                .commit(&self.keep, now, event, Some(&packed.parcel))
                .map(|aftermath| (Sent::new(id.into(), false), aftermath))
                .map_err(|error| error.with_mailbox(&self.name)),
            Ok(Sending::Duplicate(first)) => {
                // Not before the first one is durable: it may be on its way at this moment.
                let aftermath = Aftermath::nothing(self.keep.so_far());
                Ok((Sent::new(first.into(), true), aftermath))
            }
            Err(refusal) => Err(Error::refused(refusal, &self.name)),
        };
        drop(state);
        expired.finish(&self.keep);
        outcome.map(|(sent, aftermath)| (sent, aftermath.finish(&self.keep)))
    }

    pub(crate) fn settle(&self, settlement: Settlement) -> Result<K::Written> {
        let Some(receipt) = settlement.receipt_handle.open(&self.sealer) else {
            let message = "receipt handle expired: it is not one of this mailbox";
            return Err(
                Error::new(ErrorKind::ReceiptHandleExpired, message).with_mailbox(&self.name)
            );
        };
        self.settle_receipt(receipt, settlement.verdict)
    }

    fn settle_receipt(&self, receipt: Receipt, verdict: Verdict) -> Result<K::Written> {
        let now = self.clock.now();
        let mut state = self.open()?;
        let event = state
            .queue
            .decide_settle(now, receipt, verdict)
            .map_err(|refusal| Error::refused(refusal, &self.name))?;
        let aftermath = self.commit(&mut state, now, event)?;
        drop(state);
        Ok(aftermath.finish(&self.keep))
    }

    /// Makes a delivered message a dead letter because it is not what was sent (I4).
    fn bury_damaged(&self, receipt: Receipt, damage: String) -> Result<()> {
        let verdict =
            Verdict::Reject { reason: DeadReason::Integrity, error: Some(damage.into_boxed_str()) };
        self.settle_receipt(receipt, verdict).map(drop)
    }

    pub(crate) fn purge(&self) -> Result<(u64, K::Written)> {
        let mut state = self.open()?;
        let now = self.clock.now();
        let event = state.queue.decide_purge(now);
        let aftermath = self.commit(&mut state, now, event)?;
        drop(state);
        let count = match &aftermath.freed {
            Freed::Many(payloads) => payloads.len() as u64,
            Freed::Nothing | Freed::One(_) => 0,
        };
        Ok((count, aftermath.finish(&self.keep)))
    }

    pub(crate) fn configure(&self, policy: Policy) -> Result<K::Written> {
        let mut state = self.open()?;
        let now = self.clock.now();
        let event = state.queue.decide_configure(now, policy);
        let aftermath = self.commit(&mut state, now, event)?;
        drop(state);
        Ok(aftermath.finish(&self.keep))
    }

    pub(crate) fn policy(&self) -> Result<Policy> {
        Ok(self.open()?.queue.policy().clone())
    }

    /// Ends it: every waiter and every later call gets an error of `kind`.
    pub(crate) fn end(&self, kind: ErrorKind) {
        let wakers = {
            let mut state = self.state.lock();
            state.ended.get_or_insert(kind);
            state.waiters.notify_all(self.clock.now())
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether it has not ended.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.open().map(drop)
    }

    /// Opens it after retention has had its way, so that what is shown is what will be delivered.
    fn open_after_retention(&self) -> Result<(impl std::ops::DerefMut<Target = State<K>>, Time)> {
        loop {
            let mut state = self.open()?;
            let now = self.clock.now();
            let expired = state.expire(&self.keep, now, STEPS_PER_LOCK);
            if expired.steps.is_empty() {
                return Ok((state, now));
            }
            drop(state);
            expired.finish(&self.keep);
        }
    }

    fn commit(
        &self,
        state: &mut State<K>,
        now: Time,
        event: Event<K::Slip>,
    ) -> Result<Aftermath<K>> {
        let committed = state.commit(&self.keep, now, event, None);
        committed.map_err(|error| error.with_mailbox(&self.name))
    }

    fn open(&self) -> Result<impl std::ops::DerefMut<Target = State<K>>> {
        let state = self.state.lock();
        match state.ended {
            None => Ok(state),
            Some(ErrorKind::Closed) => Err(Error::closed(&self.name)),
            Some(kind) => Err(Error::new(kind, "the mailbox was removed").with_mailbox(&self.name)),
        }
    }
}

#[cfg(feature = "journal")]
impl<K: Keep> Room<K> {
    /// Its number in its home.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// Ends it, if the last thing that happens to it can be done.
    pub(crate) fn end_after<R>(
        &self,
        kind: ErrorKind,
        last: impl FnOnce(&mut Queue<K::Slip>) -> Result<R>,
    ) -> Result<R> {
        let mut state = self.open()?;
        let done = last(&mut state.queue)?;
        state.ended.get_or_insert(kind);
        let wakers = state.waiters.notify_all(self.clock.now());
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        Ok(done)
    }

    /// Shows its queue to whoever keeps it, under the lock, even after it has ended.
    pub(crate) fn with_queue_of<R>(&self, look: impl FnOnce(&mut Queue<K::Slip>) -> R) -> R {
        look(&mut self.state.lock().queue)
    }
}

impl<K: Keep> fmt::Debug for Room<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K: Keep> State<K> {
    /// The one place where the queue changes. What was noted comes first: if that is refused,
    /// nothing happens.
    // An event is large: moved into a call of its own it costs a local cycle an eighth of its time.
    #[inline(always)]
    fn commit(
        &mut self,
        keep: &K,
        now: Time,
        mut event: Event<K::Slip>,
        parcel: Option<&K::Parcel>,
    ) -> Result<Aftermath<K>> {
        let written = keep.note(self.queue.next_stamp(), &mut event, parcel)?;
        let freed = self.queue.apply(event);
        Ok(Aftermath { freed, wakers: self.after_change(now), written })
    }

    /// As `commit`, for events that free nothing and about which everybody is told together.
    #[inline]
    fn note_and_apply(&mut self, keep: &K, mut event: Event<K::Slip>) -> Result<()> {
        keep.note(self.queue.next_stamp(), &mut event, None)?;
        let _ = self.queue.apply(event);
        Ok(())
    }

    fn after_change(&mut self, now: Time) -> Wakers {
        if self.waiters.len() == 0 {
            return Wakers::NOBODY;
        }
        self.waiters.after_change(now, self.queue.is_receivable(now), self.queue.next_due())
    }

    /// Does up to `most` steps of what retention asks for; fewer if they cannot be noted, which
    /// whoever asked for something else will hear about.
    fn expire(&mut self, keep: &K, now: Time, most: usize) -> Expired<K> {
        let mut expired = Expired { steps: Vec::new() };
        for _ in 0..most {
            let Some(event) = self.queue.decide_expire(now) else { break };
            let Ok(step) = self.commit(keep, now, event, None) else { break };
            expired.steps.push(step);
        }
        expired
    }
}

impl<K: Keep> Aftermath<K> {
    fn nothing(written: K::Written) -> Self {
        Self { freed: Freed::Nothing, wakers: Wakers::NOBODY, written }
    }

    /// After the lock.
    #[inline]
    fn finish(self, keep: &K) -> K::Written {
        keep.release(self.freed);
        self.wakers.wake();
        self.written
    }
}

/// What retention did.
#[must_use]
struct Expired<K: Keep> {
    steps: Vec<Aftermath<K>>,
}

impl<K: Keep> Expired<K> {
    fn finish(self, keep: &K) {
        for step in self.steps {
            step.finish(keep);
        }
    }
}

/// What a room draws from its home's secret.
struct Seeds {
    hash_seed: u64,
    id_salt: u64,
    sealer_key: [u8; 32],
}

impl Seeds {
    fn of(fittings: &Fittings, name: &Name) -> Self {
        // With the number, because a mailbox that was removed and is named again starts its leases
        // anew: a handle of its former life must not fit (V3).
        let number = fittings.number.to_le_bytes();
        let material = [&fittings.secret, &number[..], name.as_str().as_bytes()].concat();
        let part = |context: &str| blake3::derive_key(context, &material);
        let seeds = part("mailbox 2026 room seeds v1");
        Self {
            hash_seed: u64::from_le_bytes(seeds[..8].try_into().expect("8 of 32 bytes")),
            id_salt: u64::from_le_bytes(seeds[8..16].try_into().expect("8 of 32 bytes")),
            sealer_key: part("mailbox 2026 receipt handles v1"),
        }
    }
}

fn letter<B>(outgoing: Outgoing<B>, enqueued_at: Timestamp) -> Letter<B> {
    Letter {
        payload: outgoing.payload,
        attributes: outgoing.attributes,
        reply_to: outgoing.reply_to,
        idempotency_key: outgoing.idempotency_key,
        group: outgoing.group,
        enqueued_at,
    }
}
