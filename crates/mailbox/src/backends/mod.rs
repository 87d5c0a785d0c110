//! Homes for messages. Each is one implementation of [`Backend`](crate::Backend).

#[cfg(all(feature = "directory", target_os = "linux"))]
pub mod directory;
#[cfg(feature = "journal")]
pub mod journal;
pub mod memory;
#[cfg(any(
    feature = "journal",
    feature = "redis",
    all(feature = "directory", target_os = "linux")
))]
mod planted;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "remote")]
pub mod remote;
