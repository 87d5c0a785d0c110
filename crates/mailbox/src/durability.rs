//! How far a message is safe when its send returns, under names that promise no more than is kept.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// What a send waits for before it says that a message is kept (D2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing: messages end with the process. What a memory backend has.
    #[default]
    Memory,
    /// The operating system has it: messages survive the end of the process, not a power cut.
    OsBuffered,
    /// The disk has it: messages survive a power cut.
    Fsync,
    /// A server has it, and writes and copies it as it is set up to, in its own time: a crash or a
    /// failover loses the last messages.
    Async,
    /// A server's replicas have it too: messages survive a failover.
    Replicated,
}

impl Durability {
    /// The name by which it is known everywhere.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::OsBuffered => "os-buffered",
            Self::Fsync => "fsync",
            Self::Async => "async",
            Self::Replicated => "replicated",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Memory, Self::OsBuffered, Self::Fsync, Self::Async, Self::Replicated];
        all.into_iter().find(|durability| durability.as_str() == text).ok_or_else(|| {
            let words = "memory, os-buffered, fsync, async, replicated";
            Error::invalid("durability", format_args!("{text:?}"), words)
        })
    }
}

/// Whether settling waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Settling {
    /// As a send does: what was acknowledged never comes back.
    #[default]
    Durable,
    /// It is written with whatever is written next: twice as fast, and a crash may deliver again
    /// what was acknowledged just before it.
    Lazy,
}

impl FromStr for Settling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "durable" => Ok(Self::Durable),
            "lazy" => Ok(Self::Lazy),
            _ => Err(Error::invalid("ack", format_args!("{text:?}"), "durable, lazy")),
        }
    }
}
