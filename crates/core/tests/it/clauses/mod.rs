//! The contract's subtle clauses, one by one, each as a short story that a reader can follow. The
//! random stories cover them too; these say what is meant.

mod dead;
mod delivery;
mod groups;
mod keys;
mod replay;

use mailbox_core::{
    DeadReason, Draft, Event, Fingerprint, Freed, Id, Policy, Queue, Receipt, Refusal, Sending,
    Time, Verdict,
};

use crate::rules::{Rules, span, time};

/// A queue with a clock in ticks that a test moves by hand.
struct Desk {
    queue: Queue<&'static str>,
    tick: u64,
    next_id: u128,
}

impl Desk {
    fn new(rules: &Rules) -> Self {
        Self { queue: Queue::new(rules.policy(), 0), tick: 0, next_id: 0 }
    }

    fn now(&self) -> Time {
        time(self.tick)
    }

    fn draft(&mut self, name: &'static str) -> Draft<&'static str> {
        self.next_id += 1;
        Draft::new(Id(self.next_id), name)
    }

    fn send_draft(&mut self, draft: Draft<&'static str>) -> Result<Sent, Refusal> {
        let id = draft.id;
        match self.queue.decide_send(self.now(), draft)? {
            Sending::New(event) => {
                self.apply(event);
                Ok(Sent::New(id))
            }
            Sending::Duplicate(first) => Ok(Sent::Duplicate(first)),
        }
    }

    fn send(&mut self, name: &'static str) {
        let draft = self.draft(name);
        self.send_draft(draft).unwrap();
    }

    fn send_delayed(&mut self, name: &'static str, delay: u64) {
        let draft = Draft { delay: span(delay), ..self.draft(name) };
        self.send_draft(draft).unwrap();
    }

    fn send_to_group(&mut self, name: &'static str, group: &str) {
        let draft = Draft { group: Some(group.into()), ..self.draft(name) };
        self.send_draft(draft).unwrap();
    }

    fn send_keyed(&mut self, name: &'static str, key: &str, print: u8) -> Result<Sent, Refusal> {
        let idempotency = Some((key.into(), Fingerprint([print; 32])));
        let draft = Draft { idempotency, ..self.draft(name) };
        self.send_draft(draft)
    }

    /// The next delivery, past those that become dead letters instead.
    fn try_receive(&mut self, visibility: u64) -> Result<Option<Delivery>, Refusal> {
        loop {
            let Some(event) = self.queue.decide_receive(self.now(), span(visibility))? else {
                return Ok(None);
            };
            let receipt = event.receipt();
            self.apply(event);
            if let Some(receipt) = receipt {
                let view = self.queue.get(self.now(), receipt.key).unwrap();
                return Ok(Some(Delivery { name: view.payload, receipt, count: view.attempts }));
            }
        }
    }

    fn receive(&mut self, visibility: u64) -> Delivery {
        self.try_receive(visibility).unwrap().expect("a message is receivable")
    }

    fn is_idle(&self) -> bool {
        !self.queue.is_receivable(self.now())
    }

    /// Names in the order in which they are received now; all are kept for long.
    fn receive_all(&mut self) -> Vec<&'static str> {
        let received = std::iter::from_fn(|| self.try_receive(1_000).unwrap());
        received.map(|delivery| delivery.name).collect()
    }

    fn settle(&mut self, delivery: &Delivery, verdict: Verdict) -> Result<(), Refusal> {
        let event = self.queue.decide_settle(self.now(), delivery.receipt, verdict)?;
        self.apply(event);
        Ok(())
    }

    fn acknowledge(&mut self, delivery: &Delivery) -> Result<(), Refusal> {
        self.settle(delivery, Verdict::Acknowledge)
    }

    fn nack(&mut self, delivery: &Delivery, delay: u64) {
        self.settle(delivery, Verdict::Nack { delay: span(delay), error: None }).unwrap();
    }

    fn extend(&mut self, delivery: &Delivery, timeout: u64) -> Result<(), Refusal> {
        self.settle(delivery, Verdict::Extend { timeout: span(timeout) })
    }

    fn undo(&mut self, delivery: &Delivery) {
        self.settle(delivery, Verdict::Return).unwrap();
    }

    fn reject(&mut self, delivery: &Delivery, error: &str) {
        let verdict = Verdict::Reject { reason: DeadReason::Rejected, error: Some(error.into()) };
        self.settle(delivery, verdict).unwrap();
    }

    fn redrive(&mut self, delivery: &Delivery) -> Result<(), Refusal> {
        let event = self.queue.decide_redrive(self.now(), delivery.receipt.key)?;
        self.apply(event);
        Ok(())
    }

    fn purge(&mut self) -> usize {
        match self.queue.apply(self.queue.decide_purge(self.now())) {
            Freed::Many(gone) => gone.len(),
            other => panic!("a purge freed {other:?}"),
        }
    }

    fn configure(&mut self, change: impl FnOnce(&mut Policy)) {
        let mut policy = self.queue.policy().clone();
        change(&mut policy);
        self.apply(self.queue.decide_configure(self.now(), policy));
    }

    /// Retention, until it has nothing to do.
    fn expire(&mut self) {
        while let Some(event) = self.queue.decide_expire(self.now()) {
            self.apply(event);
        }
    }

    fn apply(&mut self, event: Event<&'static str>) {
        drop(self.queue.apply(event));
        self.queue.assert_invariants();
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Sent {
    New(Id),
    Duplicate(Id),
}

#[derive(Debug)]
struct Delivery {
    name: &'static str,
    receipt: Receipt,
    count: u32,
}
