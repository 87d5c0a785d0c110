//! Homes for messages. Each is one implementation of [`Backend`](crate::Backend).

pub mod memory;
