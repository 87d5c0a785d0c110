//! What drives `core::Queue` in this process: a clock, waiters that are woken, and one lock per
//! mailbox. Shared by every backend that keeps its queues here.
//!
//! The lock is a plain mutex, not an owner task behind a channel: what a send, a delivery or a
//! settle does under it takes about as long as the channel alone would (`make bench`). Counting
//! costs what is due and not received yet; purging costs what there is. Encoding, hashing, waking
//! and dropping payloads happen outside it.

pub(crate) mod clock;
pub(crate) mod keep;
pub(crate) mod names;
pub(crate) mod room;
mod sync;
pub(crate) mod waiters;
pub(crate) mod waiting;

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has randomness: std's maps need it too");
    bytes
}
