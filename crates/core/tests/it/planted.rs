//! Proof that the checks can fail: queues with one planted bug each, all of which the random
//! stories have to find. A bug that only the exhaustive walk is meant for is found there, too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mailbox_core::{DeadReason, Event, Queue, Receipt, Refusal, Time, Verdict};
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::command::stories;
use crate::exhaustive::{alphabet, walk};
use crate::pair::{Honest, Pair, Subject};
use crate::rules::{Rules, span};

type Decision = Result<Option<Event<u64>>, Refusal>;

/// Whether one of a few hundred stories, always the same ones, goes wrong. Without the shadow only
/// the naive model can tell.
fn is_caught(subject: impl Subject, with_shadow: bool) -> bool {
    let config =
        Config { cases: 300, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let told = TestRunner::new_with_rng(config, rng).run(&stories(100), |(rules, story)| {
        let pair = Pair::new(subject.clone(), &rules);
        let mut pair = if with_shadow { pair.shadowed() } else { pair };
        for command in &story {
            pair.step(command);
        }
        Ok(())
    });
    match told {
        Ok(()) => false,
        Err(TestError::Fail(..)) => true,
        Err(TestError::Abort(why)) => panic!("no story was told: {why}"),
    }
}

fn is_caught_by_the_model(subject: impl Subject) -> bool {
    is_caught(subject, false)
}

fn is_caught_by_the_walk(subject: impl Subject) -> bool {
    let rules = Rules { max_attempts: Some(2), ..Rules::default() };
    let pair = Pair::new(subject, &rules);
    catch_unwind(AssertUnwindSafe(|| walk(&pair, &alphabet(None), 6))).is_err()
}

#[derive(Debug, Clone)]
struct AcceptsStaleReceipts;

impl Subject for AcceptsStaleReceipts {
    fn settle(&self, queue: &Queue<u64>, at: Time, receipt: Receipt, verdict: Verdict) -> Decision {
        match queue.decide_settle(at, receipt, verdict) {
            Err(Refusal::Stale(_)) => {
                let event = Event::Acknowledged { key: receipt.key, at };
                Ok(queue.fits(&event).then_some(event))
            }
            decision => decision.map(Some),
        }
    }
}

#[derive(Debug, Clone)]
struct PutsNackedMessagesFirst;

impl Subject for PutsNackedMessagesFirst {
    fn alter(&self, event: Event<u64>) -> Option<Event<u64>> {
        Some(match event {
            Event::Nacked { key, at, due, error } if due == at => {
                Event::Nacked { key, at, due: Time::ZERO, error }
            }
            other => other,
        })
    }
}

#[derive(Debug, Clone)]
struct ForgetsAttemptsOfNackedMessages;

impl Subject for ForgetsAttemptsOfNackedMessages {
    fn alter(&self, event: Event<u64>) -> Option<Event<u64>> {
        Some(match event {
            Event::Nacked { key, at, due, error: None } if due == at => Event::Returned { key, at },
            other => other,
        })
    }
}

#[derive(Debug, Clone)]
struct DeliversOnceTooOften;

impl Subject for DeliversOnceTooOften {
    fn receive(&self, queue: &Queue<u64>, now: Time, visibility: u64) -> Decision {
        let lenient = |event: &Event<u64>| {
            matches!(event, Event::DeadLettered { reason: DeadReason::MaxAttempts, .. })
        };
        let decision = queue.decide_receive(now, span(visibility))?;
        if !decision.as_ref().is_some_and(lenient) {
            return Ok(decision);
        }
        let mut tolerant = queue.clone();
        let mut policy = queue.policy().clone();
        policy.max_attempts = policy.max_attempts.and_then(|most| most.checked_add(1));
        drop(tolerant.apply(queue.decide_configure(now, policy)));
        tolerant.decide_receive(now, span(visibility))
    }
}

#[derive(Debug, Clone)]
struct LosesExtensions;

impl Subject for LosesExtensions {
    fn alter(&self, event: Event<u64>) -> Option<Event<u64>> {
        (!matches!(event, Event::Extended { .. })).then_some(event)
    }
}

#[derive(Debug, Clone)]
struct ForgetsKeysOfDelayedSends;

impl Subject for ForgetsKeysOfDelayedSends {
    fn alter(&self, mut event: Event<u64>) -> Option<Event<u64>> {
        if let Event::Sent { at, due, idempotency, .. } = &mut event
            && at != due
        {
            *idempotency = None;
        }
        Some(event)
    }
}

#[derive(Debug, Clone)]
struct IgnoresGroups;

impl Subject for IgnoresGroups {
    fn alter(&self, mut event: Event<u64>) -> Option<Event<u64>> {
        if let Event::Sent { group, .. } = &mut event {
            *group = None;
        }
        Some(event)
    }
}

#[derive(Debug, Clone)]
struct DeliversANanosecondEarly;

impl Subject for DeliversANanosecondEarly {
    fn alter(&self, mut event: Event<u64>) -> Option<Event<u64>> {
        if let Event::Delivered { at, due, .. } = &mut event
            && at != due
        {
            *due = Time::from_nanos(due.as_nanos() - 1);
        }
        Some(event)
    }
}

/// The naive model knows nothing of epochs: only a replay can tell.
#[derive(Debug, Clone)]
struct OpensTheFirstEpochAgain;

impl Subject for OpensTheFirstEpochAgain {
    fn alter(&self, mut event: Event<u64>) -> Option<Event<u64>> {
        if let Event::Opened { epoch, .. } = &mut event {
            *epoch = 0;
        }
        Some(event)
    }
}

#[test]
fn a_queue_without_a_planted_bug_is_not_caught() {
    assert!(!is_caught(Honest, true));
    assert!(!is_caught_by_the_walk(Honest));
}

#[test]
fn accepting_a_stale_receipt_is_caught() {
    assert!(is_caught_by_the_model(AcceptsStaleReceipts));
    assert!(is_caught_by_the_walk(AcceptsStaleReceipts));
}

#[test]
fn putting_nacked_messages_first_is_caught() {
    assert!(is_caught_by_the_model(PutsNackedMessagesFirst));
    assert!(is_caught_by_the_walk(PutsNackedMessagesFirst));
}

#[test]
fn forgetting_to_count_attempts_is_caught() {
    assert!(is_caught_by_the_model(ForgetsAttemptsOfNackedMessages));
    assert!(is_caught_by_the_walk(ForgetsAttemptsOfNackedMessages));
}

#[test]
fn delivering_once_too_often_is_caught() {
    assert!(is_caught_by_the_model(DeliversOnceTooOften));
}

#[test]
fn losing_an_event_is_caught() {
    assert!(is_caught_by_the_model(LosesExtensions));
}

#[test]
fn events_that_do_not_give_the_same_queue_again_are_caught() {
    assert!(!is_caught_by_the_model(OpensTheFirstEpochAgain));
    assert!(is_caught(OpensTheFirstEpochAgain, true));
}

#[test]
fn forgetting_an_idempotency_key_is_caught() {
    assert!(is_caught_by_the_model(ForgetsKeysOfDelayedSends));
}

#[test]
fn ignoring_ordering_groups_is_caught() {
    assert!(is_caught_by_the_model(IgnoresGroups));
}

#[test]
fn a_deadline_one_nanosecond_early_is_caught() {
    assert!(is_caught_by_the_model(DeliversANanosecondEarly));
}
