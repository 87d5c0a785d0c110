//! A queue that was taken apart and put together again, in whatever order, answers as before.

use std::time::Duration;

use mailbox_core::{Event, Keepsake, Key, Policy, Queue, Replayed, Standing, Verdict};
use proptest::prelude::*;

use crate::command::stories;
use crate::pair::{Honest, Pair};

/// A queue made from what `queue` is known by, its messages coming back in the order of `shuffle`.
fn rebuilt(queue: &Queue<u64>, shuffle: u64) -> Queue<u64> {
    let mut copy = Queue::new(Policy::default(), 77);
    copy.assume(queue.standing());
    let mut keepsakes: Vec<Keepsake<&u64>> = queue.keepsakes().collect();
    keepsakes.sort_by_key(|kept| (kept.key.seq + 1).wrapping_mul(shuffle | 1));
    for kept in keepsakes {
        copy.restore(owned(kept)).unwrap();
    }
    let now = queue.standing().latest;
    for (idempotency, id) in queue.keys(now) {
        copy.remember(idempotency, id);
    }
    copy.put_in_order();
    copy
}

fn owned(kept: Keepsake<&u64>) -> Keepsake<u64> {
    let payload = *kept.payload;
    kept.with_payload(payload)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: 1_000, ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_the_order_in_which_messages_come_back_the_queue_is_the_same(
        (rules, story) in stories(80), shuffle in any::<u64>(),
    ) {
        let mut pair = Pair::new(Honest, &rules);
        for command in &story {
            pair.step(command);
            let copy = rebuilt(&pair.queue, shuffle);
            copy.assert_invariants();
            prop_assert_eq!(copy.snapshot(), pair.queue.snapshot());
        }
    }

    /// As a journal does it: what was said before some point is forgotten, the events after it are
    /// replayed, and in between every message that is still there is told as it stands.
    #[test]
    fn events_and_messages_as_they_stand_can_be_mixed(
        (rules, story) in stories(80), forget in 0_usize..60, tell in 1_usize..20,
    ) {
        let mut pair = Pair::new(Honest, &rules);
        let mut copy = Queue::new(rules.policy(), 3);
        let mut told = 0;
        for (step, command) in story.iter().enumerate() {
            let before = pair.history(0).len();
            pair.step(command);
            if step >= forget {
                for (stamp, event) in pair.history(before) {
                    let replayed = copy.replay(stamp, event);
                    prop_assert!(!matches!(replayed, Replayed::Misfit));
                }
            }
            if step == forget + tell {
                told = step;
                copy.assume(pair.queue.standing());
                for kept in pair.queue.keepsakes() {
                    copy.restore(owned(kept)).unwrap();
                }
            }
        }
        copy.put_in_order();
        copy.assert_invariants();
        if told > 0 {
            let alike = |queue: &Queue<u64>| {
                let mut ids: Vec<_> = queue
                    .keepsakes()
                    .map(|kept| {
                        // One that moved up when the forgotten head of its group left does not
                        // know when that was; it is receivable all the same.
                        let due = kept.group.is_none().then_some(kept.due);
                        (kept.id, kept.attempts, kept.lease, kept.death, due)
                    })
                    .collect();
                ids.sort();
                ids
            };
            prop_assert_eq!(alike(&copy), alike(&pair.queue));
        }
    }
}

/// A journal as the simplest thing that could be one: what was written, in order.
#[derive(Default)]
struct Log {
    records: Vec<Written>,
}

enum Written {
    Event(u64, Event<u64>),
    Kept(Box<Keepsake<u64>>),
    Standing(Box<Standing>),
}

impl Log {
    /// Forgets the first `count` records, after telling again of every message that they tell of
    /// last.
    fn compact(&mut self, queue: &Queue<u64>, count: usize) {
        let (old, rest) = self.records.split_at(count.min(self.records.len()));
        let born_in = |records: &[Written], key: Key| {
            records.iter().any(|record| match record {
                Written::Event(_, Event::Sent { key: born, .. }) => *born == key,
                Written::Kept(kept) => kept.key == key,
                _ => false,
            })
        };
        let moved: Vec<_> = queue
            .keepsakes()
            .filter(|kept| born_in(old, kept.key) && !born_in(rest, kept.key))
            .map(|kept| Written::Kept(Box::new(owned(kept))))
            .collect();
        self.records.drain(..count.min(self.records.len()));
        self.records.extend(moved);
        self.records.push(Written::Standing(Box::new(queue.standing())));
    }

    fn replay(&self, policy: Policy) -> Queue<u64> {
        let mut queue = Queue::new(policy, 9);
        for record in &self.records {
            match record {
                Written::Event(stamp, event) => {
                    let replayed = queue.replay(*stamp, event.clone());
                    assert!(!matches!(replayed, Replayed::Misfit), "{event:?} does not fit");
                }
                Written::Kept(kept) => {
                    assert!(queue.restore((**kept).clone()).is_ok(), "somebody is in its slot");
                }
                Written::Standing(standing) => queue.assume((**standing).clone()),
            }
        }
        queue.put_in_order();
        queue
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: 1_000, ..ProptestConfig::default()
    })]

    #[test]
    fn a_log_that_forgets_its_beginning_again_and_again_gives_the_same_messages(
        (rules, story) in stories(100),
        cuts in proptest::collection::vec((0_usize..100, 0_usize..40), 0..12),
    ) {
        let mut pair = Pair::new(Honest, &rules);
        let mut log = Log::default();
        for (step, command) in story.iter().enumerate() {
            let before = pair.history(0).len();
            pair.step(command);
            log.records.extend(
                pair.history(before).into_iter().map(|(stamp, event)| Written::Event(stamp, event)),
            );
            for (_, count) in cuts.iter().filter(|(at, _)| *at == step) {
                log.compact(&pair.queue, *count);
            }
            let mut copy = log.replay(rules.policy());
            copy.assert_invariants();
            prop_assert_eq!(contents(&copy), contents(&pair.queue));
            if step % 10 == 9 {
                live_on(&mut copy);
            }
        }
    }
}

/// What there is, without what a forgotten past leaves open.
fn contents(queue: &Queue<u64>) -> Vec<impl Ord + std::fmt::Debug + use<>> {
    let mut all: Vec<_> = queue
        .keepsakes()
        .map(|kept| {
            // One that moved up when the forgotten head of its group left does not know when that
            // was; it is receivable all the same.
            let due = kept.group.is_none().then_some(kept.due);
            // A cursor into the dead letters may be older than the log.
            let order = kept.death.map(|_| kept.stamp);
            (kept.id, kept.attempts, kept.lease, kept.death, order, due, kept.last_error)
        })
        .collect();
    all.sort();
    all
}

/// Lets a queue go through everything that can happen to it, until it is empty.
fn live_on(queue: &mut Queue<u64>) {
    let mut now = queue.standing().latest;
    let opened = queue.decide_open(now);
    let _ = queue.apply(opened);
    for step in 0..400_u32 {
        now = now.after(Duration::from_secs(1));
        while let Some(event) = queue.decide_expire(now) {
            let _ = queue.apply(event);
        }
        if let Ok(Some(event)) = queue.decide_receive(now, Duration::from_secs(u64::from(step % 3)))
        {
            let receipt = event.receipt();
            let _ = queue.apply(event);
            if let Some(receipt) = receipt
                && step % 4 != 0
                && let Ok(event) = queue.decide_settle(now, receipt, Verdict::Acknowledge)
            {
                let _ = queue.apply(event);
            }
        }
        queue.assert_invariants();
    }
}
