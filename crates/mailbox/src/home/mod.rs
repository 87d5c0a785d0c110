//! What drives `core::Queue` in this process: a clock, waiters that are woken, and one lock per
//! mailbox. Shared by every backend that keeps its queues here.
//!
//! The lock is a plain mutex, not an owner task: everything done under it takes well below a
//! microsecond, and a mutex costs a tenth of a channel round trip. Encoding, hashing, waking and
//! dropping payloads happen outside it.

pub(crate) mod clock;
pub(crate) mod room;
mod sync;
mod waiters;
