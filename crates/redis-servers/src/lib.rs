//! Real Redis servers for tests, benchmarks and fault experiments: one [`Node`], a [`Cluster`], or
//! a master with [`Sentinels`]. Nothing here pretends to be Redis.
//!
//! Invariants: a server listens on loopback only, keeps its files in a folder of its own, and never
//! outlives the process that started it, however that process ends. Every wait has a limit, and an
//! error shows the end of the log of the server that it is about.

mod cluster;
mod node;
mod port;
mod process;
mod reply;
mod sentinels;
pub mod shared;
mod view;
mod wait;

pub use cluster::Cluster;
pub use node::Node;
pub use sentinels::Sentinels;
