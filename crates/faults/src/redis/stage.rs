//! The cluster that experiments are made on, mailboxes at chosen places of it, and who uses them.

use std::sync::Arc;
use std::time::Duration;

use mailbox::backends::redis::{Planted, RedisBackend, RedisConfig};
use mailbox::{Durability, Name};
use mailbox_redis_servers::{Cluster, Node};

use crate::redis::Bug;
use crate::redis::load::{Lane, Load};
use crate::redis::namespace::ADDRESSES;
use crate::report::NotRun;

/// A node that is silent for so long counts as dead.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(1);
/// Until a cluster that was harmed is whole again.
const HEALING: Duration = Duration::from_secs(30);
/// Names that are tried until one is where it should be.
const NAMES: usize = 40_000;
/// Names that servers are asked about at a time.
const ASKED: usize = 2000;

/// A cluster.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) seed: u64,
    /// Mailboxes that were made: each experiment has its own.
    named: usize,
}

/// A mailbox, and the slot it is in.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) name: Name,
    pub(crate) slot: u16,
}

impl Stage {
    /// Starts one.
    pub(crate) fn start(seed: u64) -> Result<Self, NotRun> {
        let timeout = NODE_TIMEOUT.as_millis() as u32;
        let cluster = blocking(|| Cluster::start_with(timeout, 1, Some(&ADDRESSES)));
        let cluster = cluster.map_err(|error| NotRun(format!("a Redis Cluster: {error}")))?;
        Ok(Self { cluster, seed, named: 0 })
    }

    /// Waits until the cluster is whole.
    pub(crate) fn heal(&self) -> Result<(), String> {
        blocking(|| self.cluster.wait_until_healthy(HEALING)).map_err(|error| error.to_string())
    }

    /// Which node is the master of a slot.
    pub(crate) fn master_of(&self, slot: u16) -> Option<usize> {
        blocking(|| self.cluster.master_of(slot))
    }

    pub(crate) fn node(&self, index: usize) -> &Node {
        &self.cluster.nodes()[index]
    }

    /// A new mailbox that is where it should be.
    pub(crate) fn place(&mut self, is_good: impl Fn(&Self, u16) -> bool) -> Result<Place, String> {
        let last = self.named + NAMES;
        while self.named < last {
            let names: Vec<String> =
                (self.named..self.named + ASKED).map(|number| format!("box-{number}")).collect();
            let slots = blocking(|| slots(&self.cluster.nodes()[0], &names))?;
            for (name, slot) in names.into_iter().zip(slots) {
                self.named += 1;
                if is_good(self, slot) {
                    let name = Name::parse(&name).expect("a valid name");
                    return Ok(Place { name, slot });
                }
            }
        }
        Err("no name is where a mailbox should be".to_owned())
    }

    /// Begins to use mailboxes.
    pub(crate) async fn load(&self, lanes: Vec<Lane>, bug: Option<Bug>) -> Result<Load, String> {
        let url = format!("redis+cluster://{}", self.cluster.seeds());
        use_mailboxes(&url, lanes, bug, self.seed).await
    }
}

/// Begins to use mailboxes.
pub(crate) async fn use_mailboxes(
    url: &str,
    lanes: Vec<Lane>,
    bug: Option<Bug>,
    seed: u64,
) -> Result<Load, String> {
    let open = || async {
        let mut config =
            RedisConfig::default().with_durability(Durability::Replicated).with_ttl(None);
        config.planted = bug.map(Planted::bug).unwrap_or_default();
        let opened = RedisBackend::open_with(url, config).await;
        opened.map_err(|error| format!("{error:#}"))
    };
    let (sender, receiver): (Arc<RedisBackend>, _) = (open().await?, open().await?);
    let load = Load::start(lanes, sender, receiver, seed);
    load.flow().await?;
    Ok(load)
}

/// Waits for servers. Other tasks go on meanwhile.
pub(crate) fn blocking<T>(act: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(act)
}

/// One command to one node.
pub(crate) fn ask<T: redis::FromRedisValue>(node: &Node, words: &[&str]) -> Result<T, String> {
    let (first, rest) = words.split_first().expect("a command has a name");
    let failed = |error| format!("{words:?} to {}: {error}", node.address());
    blocking(|| {
        let mut connection = node.connect().map_err(failed)?;
        redis::cmd(first).arg(rest).query(&mut connection).map_err(failed)
    })
}

/// The slots of mailboxes, by what a server says of their keys.
fn slots(node: &Node, names: &[String]) -> Result<Vec<u16>, String> {
    let failed = |error| format!("{}: {error}", node.address());
    let mut connection = node.connect().map_err(failed)?;
    let mut pipeline = redis::pipe();
    for name in names {
        pipeline.cmd("CLUSTER").arg("KEYSLOT").arg(format!("{{queue:{name}}}:pending"));
    }
    pipeline.query(&mut connection).map_err(failed)
}
