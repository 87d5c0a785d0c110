//! A Redis Cluster: three masters with their replicas.
//!
//! Invariant: a started cluster is whole. All nodes agree on who serves which slot, and every
//! replica follows its master; a fault injected earlier than that would test the start, not Redis.

use std::io;
use std::thread;
use std::time::Duration;

use redis::Connection;

use crate::node::{self, Node};
use crate::reply::{self, Fields};
use crate::view::{self, View};
use crate::wait::{self, PATIENCE};

const MASTERS: usize = 3;
const SLOTS: u16 = 16_384;

/// What a check misses: the node, and what is wrong with it.
type Missing = (usize, String);

/// A cluster of real servers. Dropping it kills them.
#[derive(Debug)]
pub struct Cluster {
    /// The three first masters, then their replicas: node `n` follows node `n % 3`.
    nodes: Vec<Node>,
}

impl Cluster {
    /// Three masters with one replica each; a node that is silent for a second counts as dead.
    ///
    /// # Errors
    /// If redis-server is missing or the cluster is not whole in time.
    pub fn start() -> io::Result<Self> {
        Self::start_with(1000, 1, None)
    }

    /// Three masters with so many replicas each. With `addresses`, each node listens on one of its
    /// own and connects from it (127.0.0.11 and so on), so that nodes can be cut off by address.
    ///
    /// # Errors
    /// If there is not one address for each node, redis-server is missing, or the cluster is not
    /// whole in time.
    pub fn start_with(
        node_timeout_ms: u32,
        replicas_per_master: usize,
        addresses: Option<&[&str]>,
    ) -> io::Result<Self> {
        let count = MASTERS * (1 + replicas_per_master);
        let addresses = addresses.map_or_else(|| vec!["127.0.0.1"; count], <[&str]>::to_vec);
        if addresses.len() != count {
            let text = format!("{} addresses for {count} nodes", addresses.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let nodes = start_nodes(&addresses, node_timeout_ms)?;
        let cluster = Self { nodes };
        cluster.introduce().map_err(io::Error::other)?;
        cluster.wait("all nodes know each other", PATIENCE, Self::check_acquainted)?;
        cluster.attach_replicas().map_err(io::Error::other)?;
        let node_timeout = Duration::from_millis(node_timeout_ms.into());
        cluster.wait_until_healthy(PATIENCE + node_timeout)?;
        Ok(cluster)
    }

    /// All nodes: the three first masters, then their replicas.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All nodes, to kill and restart them.
    pub fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// The addresses of all nodes, separated by commas.
    #[must_use]
    pub fn seeds(&self) -> String {
        node::addresses(&self.nodes)
    }

    /// Which node is the master of a slot now, by what the nodes that answer say of themselves.
    /// Of two that claim it, as after a partition, the one that was elected last.
    #[must_use]
    pub fn master_of(&self, slot: u16) -> Option<usize> {
        let ask = |node: &Node| view(&mut node.ask_soon().ok()?).ok();
        let views = self.nodes.iter().enumerate().filter_map(|(n, node)| Some((n, ask(node)?)));
        view::master_of(slot, views)
    }

    /// Waits until all nodes run and the cluster is whole. A killed node must be restarted first.
    ///
    /// # Errors
    /// If that takes longer than `deadline`.
    pub fn wait_until_healthy(&self, deadline: Duration) -> io::Result<()> {
        self.wait("the cluster is whole", deadline, Self::check_healthy)
    }

    fn wait(
        &self,
        what: &str,
        limit: Duration,
        check: impl Fn(&Self) -> Result<(), Missing>,
    ) -> io::Result<()> {
        let mut culprit = 0;
        wait::until(limit, what, || {
            check(self).map_err(|(n, missing)| {
                culprit = n;
                format!("node {n}: {missing}")
            })
        })
        .map_err(|late| {
            io::Error::new(late.kind(), self.nodes[culprit].with_log(&late.to_string()))
        })
    }

    /// Gives out the slots and makes the nodes meet.
    fn introduce(&self) -> Result<(), String> {
        for (n, node) in self.nodes.iter().enumerate() {
            let mut connection = node.ask_soon()?;
            // Distinct epochs from the start spare the nodes the resolution of conflicts.
            tell(&mut connection, &format!("CLUSTER SET-CONFIG-EPOCH {}", n + 1))?;
            if n < MASTERS {
                let (first, last) = slots_of(n);
                tell(&mut connection, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
            }
        }
        // Everybody is told of everybody: quicker than by hearsay.
        for (n, node) in self.nodes.iter().enumerate() {
            let mut connection = node.ask_soon()?;
            for other in &self.nodes[n + 1..] {
                let (host, port, bus) = (other.host(), other.port(), other.bus_port());
                tell(&mut connection, &format!("CLUSTER MEET {host} {port} {bus}"))?;
            }
        }
        Ok(())
    }

    fn attach_replicas(&self) -> Result<(), String> {
        for (n, node) in self.nodes.iter().enumerate().skip(MASTERS) {
            let mut master = self.nodes[n % MASTERS].ask_soon()?;
            let id: String = reply::ask(&mut master, "CLUSTER MYID")?;
            tell(&mut node.ask_soon()?, &format!("CLUSTER REPLICATE {id}"))?;
        }
        Ok(())
    }

    fn check_acquainted(&self) -> Result<(), Missing> {
        for (n, node) in self.nodes.iter().enumerate() {
            let view = node.ask_soon().and_then(|mut connection| view(&mut connection));
            view.and_then(|view| view.check_all_well(self.nodes.len()))
                .map_err(|missing| (n, missing))?;
        }
        Ok(())
    }

    fn check_healthy(&self) -> Result<(), Missing> {
        let mut first_view: Option<View> = None;
        let mut masters = 0;
        let mut fed = 0;
        for (n, node) in self.nodes.iter().enumerate() {
            let (view, replication) = self.check_node(node).map_err(|missing| (n, missing))?;
            if replication.get("role").is_some_and(|role| role == "master") {
                masters += 1;
                fed += reply::online_replicas(&replication);
            }
            let first = first_view.get_or_insert_with(|| view.clone());
            if first.owners() != view.owners() {
                return Err((n, "disagrees with node 0 about the slots".to_owned()));
            }
        }
        if masters != MASTERS || fed != self.nodes.len() - MASTERS {
            return Err((0, format!("{masters} masters feed {fed} replicas")));
        }
        Ok(())
    }

    /// What one node says of itself and of the others; its view and its INFO replication.
    fn check_node(&self, node: &Node) -> Result<(View, Fields), String> {
        let mut connection = node.ask_soon()?;
        let state: String = reply::ask(&mut connection, "CLUSTER INFO")?;
        let state = reply::fields(&state);
        reply::expect(&state, "cluster_state", "ok")?;
        reply::expect(&state, "cluster_slots_ok", &SLOTS.to_string())?;
        reply::expect(&state, "cluster_known_nodes", &self.nodes.len().to_string())?;
        let view = view(&mut connection)?;
        view.check_all_well(self.nodes.len())?;
        let replication = reply::info(&mut connection, "replication")?;
        if view.myself()?.is("slave") {
            reply::expect(&replication, "role", "slave")?;
            reply::expect(&replication, "master_link_status", "up")?;
        }
        Ok((view, replication))
    }
}

fn start_nodes(addresses: &[&str], node_timeout_ms: u32) -> io::Result<Vec<Node>> {
    let timeout = node_timeout_ms.to_string();
    let start = |address: &str| {
        Node::start(&[
            ("bind", address),
            ("bind-source-addr", address),
            ("cluster-enabled", "yes"),
            ("cluster-announce-ip", address),
            ("cluster-node-timeout", &timeout),
            ("repl-diskless-sync-delay", "0"),
        ])
    };
    thread::scope(|scope| {
        let starts: Vec<_> =
            addresses.iter().map(|address| scope.spawn(|| start(address))).collect();
        let join = |start: thread::ScopedJoinHandle<'_, io::Result<Node>>| {
            start.join().expect("starting a node does not panic")
        };
        starts.into_iter().map(join).collect()
    })
}

/// First and last slot of one of the first masters.
fn slots_of(master: usize) -> (usize, usize) {
    let start_of = |master: usize| usize::from(SLOTS) * master / MASTERS;
    (start_of(master), start_of(master + 1) - 1)
}

fn view(connection: &mut Connection) -> Result<View, String> {
    View::parse(&reply::ask::<String>(connection, "CLUSTER NODES")?)
}

fn tell(connection: &mut Connection, command: &str) -> Result<(), String> {
    reply::ask(connection, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_masters_share_all_slots_without_overlap() {
        assert_eq!(slots_of(0).0, 0);
        assert_eq!(slots_of(0).1 + 1, slots_of(1).0);
        assert_eq!(slots_of(1).1 + 1, slots_of(2).0);
        assert_eq!(slots_of(2).1, usize::from(SLOTS) - 1);
    }
}
