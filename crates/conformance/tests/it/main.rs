//! Tests of the suite itself, and differential testing.

mod differential;
mod mutants;
mod report;
mod restart;
