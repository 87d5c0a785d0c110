//! The queue against a second, naive one; every small world; and the contract's subtle clauses.
#![expect(clippy::unwrap_used, reason = "all of it is tests; clippy looks for #[test] only")]

mod clauses;
mod command;
mod exhaustive;
mod naive;
mod pair;
mod planted;
mod property;
mod restore;
mod rules;
mod scale;
