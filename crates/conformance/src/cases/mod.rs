//! The cases, by section of the contract. A case is a function and a line in its file's table.

mod dead_letters;
mod delivery;
mod doubles;
mod errors;
mod idempotency;
mod limits;
mod loop_life;
mod main_loop;
mod management;
mod order;
mod replies;
mod resolvers;
mod restart;
mod retention;
mod stale_handles;
mod visibility;
mod waiting;

use crate::case::Case;

const SECTIONS: &[&[Case]] = &[
    delivery::CASES,
    order::CASES,
    visibility::CASES,
    stale_handles::CASES,
    waiting::CASES,
    replies::CASES,
    resolvers::CASES,
    management::CASES,
    dead_letters::CASES,
    retention::CASES,
    idempotency::CASES,
    limits::CASES,
    errors::CASES,
    doubles::CASES,
    main_loop::CASES,
    loop_life::CASES,
    restart::CASES,
];

/// All of them, in the order of the contract.
#[must_use]
pub fn all() -> Vec<Case> {
    let mut cases = SECTIONS.concat();
    // By clause; within a clause as the files have them.
    let sections = "DVWRMXILETP";
    cases.sort_by_key(|case| (sections.find(&case.id[..1]), case.id));
    cases
}
