//! A backend that everything goes wrong with that may go wrong by contract, over one that works.
//!
//! It drops futures at their n-th poll and calls again, loses answers and calls again, and lets
//! others go first; each only where the contract says that it does no harm, so every case must pass
//! on it as on the backend behind it. What it does next depends on its seed and on how many calls
//! there were, on nothing else.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use mailbox::testing::ManualClock;
use mailbox::{
    Abilities, Backend, Delivery, Error, ErrorKind, Figure, Name, Outgoing, Peek, Policy,
    ReceiveOptions, Record, Result, Selection, Sent, Settlement, Stats, Verdict,
};
use parking_lot::Mutex;

/// How often a receive is called, the last time to its end.
const ATTEMPTS: u32 = 4;

/// A decorator that tests whether dropped, delayed and repeated calls are harmless.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Backend>,
    /// The clock of the backend behind: a receive that is called again waits only for the rest.
    clock: ManualClock,
    dice: Mutex<Dice>,
    /// How often each mailbox was removed, or is about to be.
    removals: Mutex<BTreeMap<Name, u64>>,
}

impl Faulty {
    /// Troubles on the way to `inner`, whose clock is `clock`.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, clock: ManualClock, seed: u64) -> Self {
        Self { inner, clock, dice: Mutex::new(Dice(seed)), removals: Mutex::default() }
    }

    fn roll(&self, sides: u64) -> u64 {
        self.dice.lock().roll(sides)
    }

    fn removals_of(&self, mailbox: &Name) -> u64 {
        self.removals.lock().get(mailbox).copied().unwrap_or_default()
    }

    /// Lets others go first, a few times.
    async fn delay(&self) {
        for _ in 0..self.roll(4) {
            tokio::task::yield_now().await;
        }
    }

    /// Calls, drops the future after a few polls, calls again; then perhaps once more to the end,
    /// as if the first answer was lost. For calls that change nothing.
    async fn ask<T, C: Future<Output = Result<T>>>(&self, call: impl Fn() -> C) -> Result<T> {
        self.delay().await;
        if let Some(answer) = cut_short(call(), self.roll(3)).await
            && self.roll(3) > 0
        {
            return answer;
        }
        call().await
    }

    /// Calls once, somewhat later; the answer takes its time too.
    async fn tell<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.delay().await;
        let answer = call.await;
        self.delay().await;
        answer
    }

    /// Receives, with what is left of the patience.
    async fn receive_rest(
        &self,
        mailbox: &Name,
        options: &ReceiveOptions,
    ) -> Result<Vec<Delivery>> {
        let started = self.clock.elapsed();
        let removals = self.removals_of(mailbox);
        let mut attempts = 1;
        loop {
            // Not after a removal: that would wait at another mailbox of the same name.
            if self.removals_of(mailbox) != removals {
                let message = "the mailbox was removed while this waited";
                return Err(Error::new(ErrorKind::NotFound, message).with_mailbox(mailbox));
            }
            let now = self.clock.elapsed();
            let rest = options.wait.saturating_sub(now.saturating_sub(started));
            let rest = options.clone().with_wait(rest);
            let call = self.inner.receive(mailbox, &rest);
            let is_last = attempts >= ATTEMPTS;
            let polls = if is_last { u64::MAX } else { self.roll(4) };
            // If the clock has moved before it began to wait, that is not the rest any more.
            let is_the_rest = || self.clock.elapsed() == now;
            let answer = cut_short_if_not(is_the_rest, call, polls).await;
            attempts += 1;
            let Some(answer) = answer else { continue };
            let deliveries = answer?;
            // Not with a zero timeout: such a delivery is over before it can be undone.
            let undoable = !deliveries.is_empty() && !options.visibility_timeout.is_zero();
            if is_last || !undoable || self.roll(3) > 0 {
                return Ok(deliveries);
            }
            self.undo(mailbox, &deliveries).await?;
        }
    }

    /// The answer did not reach the caller: takes the deliveries back (D3, W2).
    async fn undo(&self, mailbox: &Name, deliveries: &[Delivery]) -> Result<()> {
        let undone = deliveries.iter().rev().map(|delivery| Settlement {
            receipt_handle: delivery.receipt_handle.clone(),
            verdict: Verdict::Return,
        });
        self.inner.settle(mailbox, undone.collect()).await?.into_iter().collect()
    }

    /// Whether a batch can be sent twice: every message has a key that will be remembered.
    async fn is_repeatable(&self, mailbox: &Name, batch: &[Outgoing]) -> bool {
        if batch.is_empty() || batch.iter().any(|message| message.idempotency_key.is_none()) {
            return false;
        }
        self.inner.policy(mailbox).await.is_ok_and(|policy| !policy.replay_window.is_zero())
    }
}

#[async_trait]
impl Backend for Faulty {
    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    fn address(&self, mailbox: &Name) -> String {
        self.inner.address(mailbox)
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.delay().await;
        if self.roll(2) == 0 && self.is_repeatable(mailbox, &batch).await {
            let first = self.inner.send(mailbox, batch.clone()).await?;
            let second = self.inner.send(mailbox, batch).await?;
            for (first, second) in first.iter().zip(second) {
                if let Ok(first) = first {
                    assert_eq!(second?, Sent::new(first.id.clone(), true), "sent again");
                }
            }
            return Ok(first);
        }
        self.inner.send(mailbox, batch).await
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        self.delay().await;
        self.receive_rest(mailbox, options).await
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        // Extending twice by the same is extending once; every other verdict ends the delivery.
        let extends = |it: &Settlement| match it.verdict {
            Verdict::Extend { timeout } => !timeout.is_zero(),
            _ => false,
        };
        if self.roll(2) == 0 && batch.iter().all(extends) {
            self.inner.settle(mailbox, batch.clone()).await?;
        }
        self.tell(self.inner.settle(mailbox, batch)).await
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        self.ask(|| self.inner.peek(mailbox, request)).await
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        self.ask(|| self.inner.stats(mailbox)).await
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.tell(self.inner.purge(mailbox)).await
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.tell(self.inner.redrive(mailbox, which)).await
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.tell(self.inner.delete_dead(mailbox, which)).await
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.ask(|| self.inner.configure(mailbox, policy.clone())).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.ask(|| self.inner.policy(mailbox)).await
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.ask(|| self.inner.list(after, limit)).await
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        // Before it happens: whoever is woken by it must find it here.
        *self.removals.lock().entry(mailbox.clone()).or_default() += 1;
        self.tell(self.inner.remove(mailbox)).await
    }

    fn figures(&self) -> Vec<Figure> {
        self.inner.figures()
    }

    async fn close(&self) -> Result<()> {
        self.ask(|| self.inner.close()).await
    }
}

/// Polls a future so many times, and gives it up instead of polling it once more.
async fn cut_short<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    cut_short_if_not(|| true, future, polls).await
}

/// The same; gives it up after the first time as well if this is not so any more.
async fn cut_short_if_not<F: Future>(
    is_so: impl Fn() -> bool,
    future: F,
    polls: u64,
) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context: &mut Context<'_>| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if left == polls - 1 && !is_so() => Poll::Ready(None),
            Poll::Pending => {
                // An odd count: goes away by itself, while it waits. An even one: goes away when
                // it is woken, just before it would have looked.
                if left == 0 && polls % 2 == 1 {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    })
    .await
}

/// SplitMix64: small, and the same everywhere.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % sides
    }
}
