//! One mailbox's queue in this process: decides and applies under the lock, wakes and drops after
//! it. Invariant: a lease is taken in the same poll that returns it, so there is no await between
//! taking a message and handing it over, and a dropped receive never holds one.

mod inject;
mod receive;
mod show;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use mailbox_core::{
    Draft, Event, Fingerprint, Freed, Policy, Queue, Receipt, Sending, Time, Verdict,
};

use crate::backend::{Letter, Outgoing, Sent, Settlement};
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;
use crate::home::sync::Mutex;
use crate::home::waiters::{Waiters, Wakers, nobody};
use crate::id::{Sealer, ulid};
use crate::name::Name;
use crate::timestamp::Timestamp;

/// Dead letters made, and expired ones dropped, under one hold of the lock.
const STEPS_PER_LOCK: usize = 256;
/// Expired messages cleared away by each send: more than one, so that a backlog shrinks.
const STEPS_PER_SEND: usize = 4;

pub(crate) struct Room<B> {
    pub(crate) name: Name,
    pub(crate) clock: Clock,
    number: u32,
    salt: u64,
    sealer: Arc<Sealer>,
    max_waiters: usize,
    state: Mutex<State<B>>,
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
    pub(crate) policy: Policy,
}

struct State<B> {
    queue: Queue<Arc<Letter<B>>>,
    waiters: Waiters,
    ended: Option<ErrorKind>,
}

impl<B> Room<B> {
    pub(crate) fn new(name: Name, fittings: Fittings) -> Self {
        let Fittings { clock, number, secret, max_waiters, policy } = fittings;
        // With the number, because a mailbox that was removed and is named again starts its leases
        // anew: a handle of its former life must not fit (V3).
        let material = [&secret, &number.to_le_bytes()[..], name_bytes(&name)].concat();
        let part = |context: &str| blake3::derive_key(context, &material);
        let seeds = part("mailbox 2026 room seeds v1");
        let seed = u64::from_le_bytes(seeds[..8].try_into().expect("8 of 32 bytes"));
        let salt = u64::from_le_bytes(seeds[8..16].try_into().expect("8 of 32 bytes"));
        let sealer = Arc::new(Sealer::new(part("mailbox 2026 receipt handles v1")));
        let queue = Queue::new(policy, seed);
        let state = State { queue, waiters: Waiters::default(), ended: None };
        Self { name, clock, number, salt, sealer, max_waiters, state: Mutex::new(state) }
    }

    /// Puts a message in line. `fingerprint` goes with an idempotency key.
    pub(crate) fn send(
        &self,
        outgoing: Outgoing<B>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Sent> {
        let now = self.clock.now();
        let enqueued_at = self.clock.wall_at(now);
        let idempotency = outgoing.idempotency_key.as_deref().map(Box::from).zip(fingerprint);
        let group = outgoing.group.as_deref().map(Box::from);
        let delay = outgoing.delay;
        let payload = Arc::new(letter(outgoing, enqueued_at));
        // A refused message is dropped with its decision; what it holds may do anything when it
        // goes, even call this mailbox: let it go after the lock.
        let held = Arc::clone(&payload);

        let mut state = self.open()?;
        let expired = state.expire(now, STEPS_PER_SEND);
        let key = state.queue.next_key();
        let id = ulid::compose(enqueued_at.as_unix_millis(), self.number, key, self.salt);
        let decision =
            state.queue.decide_send(now, Draft { id, payload, delay, group, idempotency });
        let (outcome, wakers) = match decision {
            Ok(Sending::New(event)) => {
                let (_, wakers) = state.commit(now, event);
                (Ok(Sent::new(id.into(), false)), wakers)
            }
            Ok(Sending::Duplicate(first)) => (Ok(Sent::new(first.into(), true)), nobody()),
            Err(refusal) => (Err(Error::refused(refusal, &self.name)), nobody()),
        };
        drop(state);
        drop(held);
        expired.finish();
        wakers.for_each(Waker::wake);
        outcome
    }

    pub(crate) fn settle(&self, settlement: Settlement) -> Result<()> {
        let Some(receipt) = settlement.receipt_handle.open(&self.sealer) else {
            let message = "receipt handle expired: it is not one of this mailbox";
            return Err(
                Error::new(ErrorKind::ReceiptHandleExpired, message).with_mailbox(&self.name)
            );
        };
        self.settle_receipt(receipt, settlement.verdict)
    }

    fn settle_receipt(&self, receipt: Receipt, verdict: Verdict) -> Result<()> {
        let now = self.clock.now();
        let mut state = self.open()?;
        let event = state
            .queue
            .decide_settle(now, receipt, verdict)
            .map_err(|refusal| Error::refused(refusal, &self.name))?;
        let (freed, wakers) = state.commit(now, event);
        drop(state);
        drop(freed);
        wakers.for_each(Waker::wake);
        Ok(())
    }

    pub(crate) fn purge(&self) -> Result<u64> {
        let mut state = self.open()?;
        let now = self.clock.now();
        let event = state.queue.decide_purge(now);
        let (freed, wakers) = state.commit(now, event);
        drop(state);
        wakers.for_each(Waker::wake);
        Ok(match freed {
            Freed::Many(payloads) => payloads.len() as u64,
            Freed::Nothing | Freed::One(_) => 0,
        })
    }

    pub(crate) fn configure(&self, policy: Policy) -> Result<()> {
        let mut state = self.open()?;
        let now = self.clock.now();
        let event = state.queue.decide_configure(now, policy);
        let (_, wakers) = state.commit(now, event);
        drop(state);
        wakers.for_each(Waker::wake);
        Ok(())
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
    fn open_after_retention(&self) -> Result<(impl std::ops::DerefMut<Target = State<B>>, Time)> {
        loop {
            let mut state = self.open()?;
            let now = self.clock.now();
            let expired = state.expire(now, STEPS_PER_LOCK);
            if expired.freed.is_empty() {
                return Ok((state, now));
            }
            drop(state);
            expired.finish();
        }
    }

    fn open(&self) -> Result<impl std::ops::DerefMut<Target = State<B>>> {
        let state = self.state.lock();
        match state.ended {
            None => Ok(state),
            Some(ErrorKind::Closed) => Err(Error::closed(&self.name)),
            Some(kind) => Err(Error::new(kind, "the mailbox was removed").with_mailbox(&self.name)),
        }
    }
}

impl<B> fmt::Debug for Room<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<B> State<B> {
    /// The one place where the queue changes. Gives what left it, and whom to wake.
    fn commit(
        &mut self,
        now: Time,
        event: Event<Arc<Letter<B>>>,
    ) -> (Freed<Arc<Letter<B>>>, Wakers) {
        let freed = self.queue.apply(event);
        (freed, self.after_change(now))
    }

    fn after_change(&mut self, now: Time) -> Wakers {
        if self.waiters.len() == 0 {
            return nobody();
        }
        self.waiters.after_change(now, self.queue.is_receivable(now), self.queue.next_due())
    }

    /// Does up to `most` steps of what retention asks for.
    fn expire(&mut self, now: Time, most: usize) -> Expired<B> {
        let mut expired = Expired { freed: Vec::new(), wakers: Vec::new() };
        for _ in 0..most {
            let Some(event) = self.queue.decide_expire(now) else { break };
            let (freed, wakers) = self.commit(now, event);
            expired.freed.push(freed);
            expired.wakers.extend(wakers);
        }
        expired
    }
}

/// What retention left to do after the lock: let go, and wake.
#[must_use]
struct Expired<B> {
    freed: Vec<Freed<Arc<Letter<B>>>>,
    wakers: Vec<Waker>,
}

impl<B> Expired<B> {
    fn finish(self) {
        drop(self.freed);
        self.wakers.into_iter().for_each(Waker::wake);
    }
}

fn name_bytes(name: &Name) -> &[u8] {
    name.as_str().as_bytes()
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
