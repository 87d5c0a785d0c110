//! A service for tests: on a port of its own, with any store and settings, and clients that decide
//! themselves which bytes go over the wire.

mod certificate;
mod client;
mod dice;
mod figures;
mod h2;
mod http;
mod line;
mod message;
mod oap;
mod pulse;
mod service;
mod wait;

pub(crate) use client::Client;
pub(crate) use dice::Dice;
pub(crate) use figures::figure;
pub(crate) use h2::{Call, H2Client, framed, grpc};
pub(crate) use http::{Connection, Reply, head};
pub(crate) use line::Line;
pub(crate) use message::{message, payload, receive, send};
pub(crate) use oap::{OapClient, proto_reply};
pub(crate) use pulse::Pulse;
pub(crate) use service::{Rig, Served, caveats, journal, memory, soon};
pub(crate) use wait::{PATIENCE, until};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tests that measure time have the machine for themselves; all others share it.
static MACHINE: RwLock<()> = RwLock::new(());

/// Held while something runs that a measurement would notice.
pub(crate) type Shared = RwLockReadGuard<'static, ()>;

/// Shares the machine. A test may do so more than once.
pub(crate) fn share() -> Shared {
    MACHINE.read_recursive()
}

/// Waits until nothing else runs.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write()
}
