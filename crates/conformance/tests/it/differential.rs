//! Subjects against the specification, on random sequences of commands. `SEED` gives others, and
//! `SEQUENCES` more of them.

use mailbox_conformance::model::{Plan, check};
use mailbox_conformance::{Subject, subjects};

fn agrees(subject: &Subject) {
    agrees_with(subject, Plan::default());
}

fn agrees_with(subject: &Subject, mut plan: Plan) {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
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

/// Half as many: every command is a round trip, and each is followed by looks at everything.
fn agrees_on_servers(subject: &Subject) {
    agrees_with(subject, Plan { sequences: 500, late_stays: true, ..Plan::default() });
}

#[test]
fn redis_agrees_with_the_specification() {
    agrees_on_servers(&subjects::redis());
}

#[test]
fn redis_cluster_agrees_with_the_specification() {
    agrees_on_servers(&subjects::redis_cluster());
}

/// Every command is a call of a service, as it goes over the wire.
#[test]
fn http_agrees_with_the_specification() {
    agrees_on_servers(&subjects::http_memory());
}

#[test]
fn grpc_agrees_with_the_specification() {
    agrees_on_servers(&subjects::grpc_memory());
}

#[test]
fn oap_agrees_with_the_specification() {
    agrees_on_servers(&subjects::oap_memory());
}
