//! Subjects against the specification, on random sequences of commands. `SEED` gives others, and
//! `SEQUENCES` more of them.

use mailbox_conformance::model::{Plan, check};
use mailbox_conformance::{Subject, subjects};

fn agrees(subject: &Subject) {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let mut plan = Plan::default();
    plan.seed = number("SEED").unwrap_or(plan.seed);
    plan.sequences = number("SEQUENCES").map_or(plan.sequences, |many: u64| many as u32);
    if let Err(difference) = check(subject, plan) {
        panic!("{} differs from the specification: {difference}", subject.info.name);
    }
}

#[test]
fn memory_agrees_with_the_specification() {
    agrees(&subjects::memory());
}

#[test]
fn local_agrees_with_the_specification() {
    agrees(&subjects::local());
}

#[test]
fn fault_agrees_with_the_specification() {
    agrees(&subjects::fault());
}

#[test]
fn fake_agrees_with_the_specification() {
    agrees(&subjects::fake());
}

#[test]
fn blocking_agrees_with_the_specification() {
    agrees(&subjects::blocking());
}
