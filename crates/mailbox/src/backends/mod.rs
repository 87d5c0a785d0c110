//! Homes for messages. Each is one implementation of [`Backend`](crate::Backend).

#[cfg(all(feature = "directory", target_os = "linux"))]
pub mod directory;
#[cfg(feature = "journal")]
pub mod journal;
pub mod memory;
#[cfg(any(feature = "journal", all(feature = "directory", target_os = "linux")))]
mod planted;
