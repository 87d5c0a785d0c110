//! The suite can fail: each of these backends breaks one promise, and a case of that clause must
//! notice. Where the specification covers the promise, the differential test must notice too.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mailbox::testing::ManualClock;
use mailbox::{
    Abilities, Backend, Delivery, ErrorKind, Figure, Name, Outgoing, Peek, Policy, ReceiveOptions,
    Record, Result, Selection, Sent, Settlement, Stats, Verdict,
};
use mailbox_conformance::model::{Plan, check};
use mailbox_conformance::{Case, Subject, cases, run, subjects};
use parking_lot::Mutex;

/// Which promise is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// Batches come in the wrong order (D7).
    SwapsOrder,
    /// A nacked message is back at once, whatever its delay (V5).
    IgnoresNackDelay,
    /// A send without an answer: the message is gone (D1).
    DropsASend,
    /// Every delivery is the first (D3).
    ForgetsCount,
    /// Visibility timeouts are a second too short (V2).
    ShortLeases,
    /// A stale handle is accepted, and does nothing (V4).
    AcceptsStaleHandles,
    /// Extending does nothing (V5).
    IgnoresExtend,
    /// Idempotency keys are not looked at (I1).
    IgnoresKeys,
    /// A purge leaves what is in flight (M1).
    HalfPurge,
    /// A rejected message is deleted (X2).
    DropsRejected,
    /// A redrive says how many were asked for, and does nothing (X3).
    LazyRedrive,
    /// Attributes get lost (D9).
    DropsAttributes,
    /// A limit is not kept: the delay is made to fit (L).
    ClampsDelay,
    /// A receive does not wait (W1).
    NeverWaits,
    /// Closing does not wake those who wait (W3).
    SleepsThroughClose,
    /// The in-flight count is that of ready ones (M3).
    MixesCounts,
}

#[derive(Debug)]
struct Mutant {
    inner: Arc<dyn Backend>,
    bug: Bug,
    sends: Mutex<u64>,
}

impl Mutant {
    fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    fn sent(&self, mut message: Outgoing) -> Outgoing {
        if self.has(Bug::DropsAttributes) {
            message.attributes.clear();
        }
        if self.has(Bug::IgnoresKeys) {
            message.idempotency_key = None;
        }
        if self.has(Bug::ClampsDelay) {
            message.delay = message.delay.min(self.abilities().max_delay);
        }
        message
    }

    fn settlement(&self, mut settlement: Settlement) -> Settlement {
        match &mut settlement.verdict {
            Verdict::Nack { delay, .. } if self.has(Bug::IgnoresNackDelay) => {
                *delay = Duration::ZERO;
            }
            verdict @ Verdict::Reject { .. } if self.has(Bug::DropsRejected) => {
                *verdict = Verdict::Acknowledge;
            }
            _ => {}
        }
        settlement
    }
}

#[async_trait]
impl Backend for Mutant {
    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    fn address(&self, mailbox: &Name) -> String {
        self.inner.address(mailbox)
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        let batch = batch.into_iter().map(|message| self.sent(message)).collect();
        let results = self.inner.send(mailbox, batch).await?;
        let number = {
            let mut sends = self.sends.lock();
            *sends += 1;
            *sends
        };
        if self.has(Bug::DropsASend) && number % 3 == 0 {
            let vanish = ReceiveOptions::new().with_max_messages(256);
            for lost in self.inner.receive(mailbox, &vanish).await?.into_iter().take(1) {
                let verdict = Verdict::Acknowledge;
                let settlement = Settlement { receipt_handle: lost.receipt_handle, verdict };
                self.inner.settle(mailbox, vec![settlement]).await?;
            }
        }
        Ok(results)
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        let mut options = options.clone();
        if self.has(Bug::ShortLeases) {
            options.visibility_timeout =
                options.visibility_timeout.saturating_sub(Duration::from_secs(1));
        }
        if self.has(Bug::NeverWaits) {
            options.wait = Duration::ZERO;
        }
        let received = self.inner.receive(mailbox, &options).await;
        if self.has(Bug::SleepsThroughClose)
            && matches!(&received, Err(error) if error.kind() == ErrorKind::Closed)
            && !options.wait.is_zero()
        {
            std::future::pending::<()>().await;
        }
        let mut deliveries = received?;
        if self.has(Bug::SwapsOrder) {
            deliveries.reverse();
        }
        if self.has(Bug::ForgetsCount) {
            deliveries.iter_mut().for_each(|delivery| delivery.delivery_count = 1);
        }
        Ok(deliveries)
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        let ignored = |it: &Settlement| matches!(it.verdict, Verdict::Extend { .. });
        if self.has(Bug::IgnoresExtend) && batch.iter().all(ignored) {
            return Ok(batch.iter().map(|_| Ok(())).collect());
        }
        let batch = batch.into_iter().map(|settlement| self.settlement(settlement)).collect();
        let mut results = self.inner.settle(mailbox, batch).await?;
        if self.has(Bug::AcceptsStaleHandles) {
            let stale = ErrorKind::ReceiptHandleExpired;
            for result in &mut results {
                if result.as_ref().is_err_and(|error| error.kind() == stale) {
                    *result = Ok(());
                }
            }
        }
        Ok(results)
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        self.inner.peek(mailbox, request).await
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        let mut stats = self.inner.stats(mailbox).await?;
        if self.has(Bug::MixesCounts) {
            std::mem::swap(&mut stats.ready, &mut stats.invisible);
        }
        Ok(stats)
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        if self.has(Bug::HalfPurge) && self.inner.stats(mailbox).await?.invisible > 0 {
            return Ok(0);
        }
        self.inner.purge(mailbox).await
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        if self.has(Bug::LazyRedrive) {
            return Ok(self.inner.stats(mailbox).await?.dead);
        }
        self.inner.redrive(mailbox, which).await
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.inner.delete_dead(mailbox, which).await
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.inner.configure(mailbox, policy).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.inner.policy(mailbox).await
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.inner.list(after, limit).await
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.inner.remove(mailbox).await
    }

    fn figures(&self) -> Vec<Figure> {
        self.inner.figures()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

fn mutant(bug: Bug) -> Subject {
    let abilities = subjects::memory().abilities;
    let open = move |setup, clock: ManualClock| async move {
        let inner = subjects::in_memory(setup, &clock)?;
        Ok(Arc::new(Mutant { inner, bug, sends: Mutex::new(0) }) as Arc<dyn Backend>)
    };
    Subject::in_virtual_time("mutant", abilities, open)
}

/// That a case of `clause` notices `bug`.
fn is_caught_by_a_case(bug: Bug, clause: &str) {
    let subject = mutant(bug);
    let of_clause =
        |case: &Case| case.id == clause && case.applies(&subject.abilities, &subject.info).is_ok();
    let caught =
        cases::all().iter().filter(|case| of_clause(case)).any(|case| run::notices(&subject, case));
    assert!(caught, "no case of {clause} notices {bug:?}");
}

/// That the differential test notices `bug`, and tells it in a few commands.
fn is_caught_by_the_specification(bug: Bug) {
    let difference = check(&mutant(bug), Plan::default()).expect_err("it should be caught");
    let commands = difference.matches("Send {").count()
        + difference.matches("Receive {").count()
        + difference.matches("Settle {").count()
        + difference.matches("Pass(").count();
    assert!(commands <= 12, "{bug:?} is told in {commands} commands: {difference}");
}

macro_rules! caught_by_cases {
    ($($name:ident: $bug:ident by $clause:literal;)*) => {$(
        #[test]
        fn $name() {
            is_caught_by_a_case(Bug::$bug, $clause);
        }
    )*};
}

caught_by_cases! {
    swapped_order_is_noticed: SwapsOrder by "D7";
    a_lost_message_is_noticed: DropsASend by "D1";
    a_forgotten_count_is_noticed: ForgetsCount by "D3";
    lost_attributes_are_noticed: DropsAttributes by "D9";
    short_leases_are_noticed: ShortLeases by "V2";
    accepted_stale_handles_are_noticed: AcceptsStaleHandles by "V4";
    an_ignored_nack_delay_is_noticed: IgnoresNackDelay by "V5";
    an_ignored_extension_is_noticed: IgnoresExtend by "V5";
    a_half_purge_is_noticed: HalfPurge by "M1";
    mixed_counts_are_noticed: MixesCounts by "M3";
    ignored_keys_are_noticed: IgnoresKeys by "I1";
    dropped_rejections_are_noticed: DropsRejected by "X2";
    a_lazy_redrive_is_noticed: LazyRedrive by "X3";
    a_clamped_delay_is_noticed: ClampsDelay by "D8";
    a_receive_that_does_not_wait_is_noticed: NeverWaits by "W1";
    a_close_that_wakes_nobody_is_noticed: SleepsThroughClose by "W3";
}

#[test]
fn what_the_specification_covers_is_caught_by_it() {
    for bug in [
        Bug::SwapsOrder,
        Bug::IgnoresNackDelay,
        Bug::DropsASend,
        Bug::ForgetsCount,
        Bug::ShortLeases,
        Bug::AcceptsStaleHandles,
        Bug::IgnoresExtend,
        Bug::IgnoresKeys,
        Bug::HalfPurge,
        Bug::DropsRejected,
        Bug::LazyRedrive,
        Bug::MixesCounts,
    ] {
        is_caught_by_the_specification(bug);
    }
}
