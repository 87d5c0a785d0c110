//! The library from outside: one binary, a module per subject.
#![expect(clippy::unwrap_used, reason = "all of it is tests; clippy looks for #[test] only")]

#[cfg(feature = "blocking")]
mod blocking;
#[cfg(all(feature = "directory", target_os = "linux"))]
mod directory;
#[cfg(feature = "journal")]
mod fixtures;
#[cfg(feature = "journal")]
mod journal;
mod main_loop;
mod misuse;
mod readme;
#[cfg(feature = "redis")]
mod redis;
mod reply_addresses;
mod resolver;
mod send_sync;
mod stress;
mod testing;
mod waiting;
