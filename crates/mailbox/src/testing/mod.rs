//! Doubles for tests of code that uses mailboxes.

pub use crate::home::clock::ManualClock;
