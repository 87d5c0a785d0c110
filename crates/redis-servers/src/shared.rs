//! Servers that all tests of a process share. They start at first use and end with the process.
//!
//! They must not be harmed: an experiment that kills or pauses starts its own. A machine without
//! redis-server makes these functions panic, because a test that is left out proves nothing.

use std::io;
use std::sync::OnceLock;

use crate::{Cluster, Node, Sentinels};

/// One server with the defaults of [`Node::start`].
///
/// # Panics
/// If it cannot be started.
#[must_use]
pub fn standalone() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| started("a Redis server", Node::start(&[])))
}

/// Three masters with one replica each.
///
/// # Panics
/// If it cannot be started.
#[must_use]
pub fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| started("a Redis Cluster", Cluster::start()))
}

/// A master, two replicas and three sentinels.
///
/// # Panics
/// If they cannot be started.
#[must_use]
pub fn sentinels() -> &'static Sentinels {
    static SENTINELS: OnceLock<Sentinels> = OnceLock::new();
    SENTINELS.get_or_init(|| started("Redis with sentinels", Sentinels::start()))
}

fn started<T>(what: &str, result: io::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{what} cannot be started: {error}"))
}
