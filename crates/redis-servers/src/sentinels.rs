//! A master, two replicas, and three sentinels that watch them.
//!
//! Invariant: started ones are whole. Every sentinel knows the other two and both replicas, and the
//! replicas follow the master, so that a failover can happen from the first moment on.

use std::io;
use std::time::Duration;

use crate::node::{self, Kind, Node};
use crate::reply::{self, Fields};
use crate::wait::{self, PATIENCE};

const MASTER_NAME: &str = "mymaster";
const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

/// Servers under sentinels. Dropping it kills all of them.
#[derive(Debug)]
pub struct Sentinels {
    /// Before the data: a sentinel that still runs has nobody to promote.
    sentinels: Vec<Node>,
    /// The first master, then the replicas.
    data: Vec<Node>,
}

impl Sentinels {
    /// A master, two replicas and three sentinels, two of which must agree. A master that is silent
    /// for a second is replaced.
    ///
    /// # Errors
    /// If redis-server is missing or they are not whole in time.
    pub fn start() -> io::Result<Self> {
        let data_options = [("repl-diskless-sync-delay", "0")];
        let mut data = vec![Node::start(&data_options)?];
        let master = data[0].port();
        let follow = format!("127.0.0.1 {master}");
        for _ in 0..REPLICAS {
            data.push(Node::start(&[data_options[0], ("replicaof", &follow)])?);
        }
        let monitor = format!("monitor {MASTER_NAME} 127.0.0.1 {master} 2");
        let options = [
            ("sentinel", monitor.as_str()),
            ("sentinel", "down-after-milliseconds mymaster 1000"),
            ("sentinel", "failover-timeout mymaster 3000"),
            ("sentinel", "parallel-syncs mymaster 1"),
        ];
        let mut sentinels = Vec::new();
        for _ in 0..SENTINELS {
            let node = Node::start_as(Kind::Sentinel, &options)?;
            hasten(&node).map_err(io::Error::other)?;
            sentinels.push(node);
        }
        let all = Self { sentinels, data };
        all.wait_until_healthy(PATIENCE)?;
        Ok(all)
    }

    /// The servers with the data: the first master, then its replicas.
    #[must_use]
    pub fn data_nodes(&self) -> &[Node] {
        &self.data
    }

    /// The servers with the data, to kill and restart them.
    pub fn data_nodes_mut(&mut self) -> &mut [Node] {
        &mut self.data
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Node] {
        &self.sentinels
    }

    /// The sentinels, to kill and restart them.
    pub fn sentinels_mut(&mut self) -> &mut [Node] {
        &mut self.sentinels
    }

    /// The addresses of the sentinels, separated by commas.
    #[must_use]
    pub fn seeds(&self) -> String {
        node::addresses(&self.sentinels)
    }

    /// The name the sentinels know the master by.
    #[must_use]
    pub fn master_name(&self) -> &str {
        MASTER_NAME
    }

    /// Which data node is the master now, by the sentinels that answer. If they differ, the one
    /// that has seen the later failover counts.
    #[must_use]
    pub fn master(&self) -> Option<usize> {
        let opinion = |sentinel: &Node| {
            let mut connection = sentinel.ask_soon().ok()?;
            let ask = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {MASTER_NAME}");
            let (_, port): (String, u16) = reply::ask(&mut connection, &ask).ok()?;
            let ask = format!("SENTINEL MASTER {MASTER_NAME}");
            let master: Fields = reply::ask(&mut connection, &ask).ok()?;
            let epoch: u64 = master.get("config-epoch")?.parse().ok()?;
            Some((epoch, port))
        };
        let (_, port) = self.sentinels.iter().filter_map(opinion).max()?;
        self.data.iter().position(|node| node.port() == port)
    }

    /// Waits until all servers run, one is master and all agree on it. A killed one must be
    /// restarted first.
    ///
    /// # Errors
    /// If that takes longer than `deadline`.
    pub fn wait_until_healthy(&self, deadline: Duration) -> io::Result<()> {
        let mut culprit = None;
        let health = wait::until(deadline, "master, replicas and sentinels agree", || {
            self.check_healthy().map_err(|(node, missing)| {
                let text = format!("{}: {missing}", node.address());
                culprit = Some(node);
                text
            })
        });
        health.map_err(|late| match culprit {
            Some(node) => io::Error::new(late.kind(), node.with_log(&late.to_string())),
            None => late,
        })
    }

    fn check_healthy(&self) -> Result<(), (&Node, String)> {
        let nobody = || (&self.sentinels[0], "no sentinel knows the master".to_owned());
        let master = &self.data[self.master().ok_or_else(nobody)?];
        for node in &self.data {
            check_data(node, master).map_err(|why| (node, why))?;
        }
        for sentinel in &self.sentinels {
            check_sentinel(sentinel, master).map_err(|why| (sentinel, why))?;
        }
        Ok(())
    }
}

/// Lets a sentinel look and talk more often than by default, so that it soon knows all others and
/// soon turns a master that comes back into a replica. When a master counts as dead is not touched.
fn hasten(sentinel: &Node) -> Result<(), String> {
    let mut connection = sentinel.ask_soon()?;
    reply::ask(&mut connection, "SENTINEL DEBUG PUBLISH-PERIOD 500 INFO-PERIOD 1000")
}

fn check_data(node: &Node, master: &Node) -> Result<(), String> {
    let replication = reply::info(&mut node.ask_soon()?, "replication")?;
    if node.port() == master.port() {
        reply::expect(&replication, "role", "master")?;
        let online = reply::online_replicas(&replication);
        return if online == REPLICAS { Ok(()) } else { Err(format!("feeds {online} replicas")) };
    }
    reply::expect(&replication, "role", "slave")?;
    reply::expect(&replication, "master_port", &master.port().to_string())?;
    reply::expect(&replication, "master_link_status", "up")
}

fn check_sentinel(sentinel: &Node, master: &Node) -> Result<(), String> {
    let mut connection = sentinel.ask_soon()?;
    let seen: Fields = reply::ask(&mut connection, &format!("SENTINEL MASTER {MASTER_NAME}"))?;
    reply::expect(&seen, "port", &master.port().to_string())?;
    reply::expect(&seen, "flags", "master")?;
    reply::expect(&seen, "num-slaves", &REPLICAS.to_string())?;
    reply::expect(&seen, "num-other-sentinels", &(SENTINELS - 1).to_string())?;
    let replicas: Vec<Fields> =
        reply::ask(&mut connection, &format!("SENTINEL REPLICAS {MASTER_NAME}"))?;
    for replica in &replicas {
        reply::expect(replica, "flags", "slave")?;
        reply::expect(replica, "master-link-status", "ok")?;
        reply::expect(replica, "master-port", &master.port().to_string())?;
    }
    let others: Vec<Fields> =
        reply::ask(&mut connection, &format!("SENTINEL SENTINELS {MASTER_NAME}"))?;
    others.iter().try_for_each(|other| reply::expect(other, "flags", "sentinel"))?;
    let quorum = format!("SENTINEL CKQUORUM {MASTER_NAME}");
    reply::ask::<String>(&mut connection, &quorum).map(drop)
}
