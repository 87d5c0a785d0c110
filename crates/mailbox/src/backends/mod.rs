//! Homes for messages. Each is one implementation of [`Backend`](crate::Backend).

#[cfg(feature = "journal")]
pub mod journal;
pub mod memory;
