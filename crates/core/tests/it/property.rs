//! Random stories: the queue and its naive twin see the same commands and must agree on everything
//! after every one of them.

use std::collections::BTreeMap;

use mailbox_core::{DeadReason, Refusal, Stale};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::command::stories;
use crate::pair::{Honest, Pair};
use crate::rules::Outcome;

/// `PROPTEST_CASES` asks for more than there is time for on every run.
fn config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => ProptestConfig { cases: 3_000, ..config },
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_random_story_goes_as_the_naive_model_says((rules, story) in stories(100)) {
        let mut pair = Pair::new(Honest, &rules).shadowed();
        for command in &story {
            pair.step(command);
        }
        pair.finish();
    }
}

/// Agreement on nothing is worth nothing: every way that a command can end has to come up, and
/// often. A change of the generator that loses one fails here.
#[test]
fn the_random_stories_reach_every_outcome() {
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..config() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let seen = std::cell::RefCell::new(BTreeMap::<String, u32>::new());
    let mut runner = TestRunner::new_with_rng(config, rng);
    let told = runner.run(&stories(100), |(rules, story)| {
        let mut pair = Pair::new(Honest, &rules);
        for command in &story {
            *seen.borrow_mut().entry(label(&pair.step(command))).or_default() += 1;
        }
        Ok(())
    });
    assert!(told.is_ok());
    let seen = seen.into_inner();
    let mut expected: Vec<_> = DeadReason::ALL.iter().map(|reason| format!("{reason:?}")).collect();
    expected.extend(
        "Sent Duplicate First Again Settled Redriven Discarded Purged Configured Opened Nothing \
         Full KeyTaken DedupFull TooManyInFlight Expired-receipt Superseded HeldTooLong NotDead"
            .split_whitespace()
            .map(str::to_owned),
    );
    for outcome in expected {
        let times = seen.get(&outcome).copied().unwrap_or(0);
        assert!(times >= 10, "{outcome}: only {times} times in {seen:?}");
    }
}

fn label(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Sent(_) => "Sent".into(),
        Outcome::Duplicate(_) => "Duplicate".into(),
        Outcome::Delivered { attempt: 1, .. } => "First".into(),
        Outcome::Delivered { .. } => "Again".into(),
        Outcome::Died { reason, .. } => format!("{reason:?}"),
        Outcome::Settled(_) => "Settled".into(),
        Outcome::Redriven(_) => "Redriven".into(),
        Outcome::Discarded(_) => "Discarded".into(),
        Outcome::Purged(_) => "Purged".into(),
        Outcome::Configured => "Configured".into(),
        Outcome::Opened => "Opened".into(),
        Outcome::Nothing => "Nothing".into(),
        Outcome::Refused(refusal) => match refusal {
            Refusal::Full { .. } => "Full".into(),
            Refusal::KeyTaken { .. } => "KeyTaken".into(),
            Refusal::DedupFull { .. } => "DedupFull".into(),
            Refusal::TooManyInFlight { .. } => "TooManyInFlight".into(),
            Refusal::Stale(Stale::Expired) => "Expired-receipt".into(),
            Refusal::Stale(Stale::Superseded) => "Superseded".into(),
            Refusal::HeldTooLong { .. } => "HeldTooLong".into(),
            Refusal::NotDead => "NotDead".into(),
        },
    }
}
