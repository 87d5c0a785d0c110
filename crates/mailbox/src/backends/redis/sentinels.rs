//! Asking sentinels who is master, and which replicas have to confirm what it is told. Invariant:
//! of sentinels that say different things the one that knows of the latest election is right, and
//! none is believed that knows of fewer than were told of before.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::backends::redis::client::Client;
use crate::backends::redis::link::connect;
use crate::backends::redis::survey::{ANSWER, facts, gather, some_of};
use crate::backends::redis::target::Node;
use crate::backends::redis::topology::{Map, Owner};
use crate::backends::redis::trouble::{Trouble, connection};

/// An election that nobody has told of for so long does not count any more.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// What sentinels say of a master: the one with the latest election is right.
pub(super) async fn ask_sentinels(client: &Client, master: &str) -> Result<Map, Trouble> {
    let mut asked = JoinSet::new();
    for sentinel in some_of(client.target.nodes.clone()) {
        let (target, config) = (Arc::clone(&client.target), Arc::clone(&client.config));
        let master = master.to_owned();
        asked.spawn(async move {
            let client = target.sentinel(&sentinel, &config).map_err(Trouble::Refused)?;
            let connection = connect(&sentinel, &client, redis::AsyncConnectionConfig::new());
            let connection = tokio::time::timeout(ANSWER, connection).await;
            let mut connection = connection.map_err(|_| Trouble::silent(&sentinel))??;
            ask_sentinel(&sentinel, &mut connection, &master).await
        });
    }
    let views = gather(asked).await?;
    let latest = views.iter().max_by_key(|view| (view.epoch, view.is_settled));
    let latest = latest.expect("somebody answered");
    if !client.elected.is(latest.epoch, &latest.master) {
        let message = "redis: no sentinel answers that has heard of the last election".to_owned();
        return Err(Trouble::NotNow(connection(message)));
    }
    let replaced = client.elected.replaced();
    Ok(Map::whole(owner(&views, latest, client.target.nodes.len(), replaced.as_ref())))
}

/// The last election that sentinels have told of. Most of them hear of it later than we do, and one
/// who has been replaced is back, with nothing, before they know.
#[derive(Debug, Default)]
pub(crate) struct LastElection(Mutex<Option<Election>>);

#[derive(Debug, Clone)]
struct Election {
    epoch: u64,
    master: Node,
    /// Who was master before.
    replaced: Option<Node>,
    /// When a sentinel last told of it.
    at: Instant,
}

impl LastElection {
    /// Whether this is it, or one that was not heard of yet. What nobody has confirmed for a while
    /// is forgotten: sentinels may begin to count anew.
    fn is(&self, epoch: u64, master: &Node) -> bool {
        let mut last = self.0.lock();
        let is_older = |last: &Election| epoch < last.epoch && last.at.elapsed() < FORGOTTEN;
        if last.as_ref().is_some_and(is_older) {
            return false;
        }
        let replaced = match last.take() {
            Some(last) if last.master == *master => last.replaced,
            last => last.map(|last| last.master),
        };
        *last = Some(Election { epoch, master: master.clone(), replaced, at: Instant::now() });
        true
    }

    /// Who was master before.
    fn replaced(&self) -> Option<Node> {
        self.0.lock().as_ref().and_then(|last| last.replaced.clone())
    }
}

/// What a sentinel says.
struct View {
    epoch: u64,
    master: Node,
    /// Whoever leads an election knows the new master at once, but counts the old one's replicas
    /// until all of them follow the new one.
    is_settled: bool,
    replicas: Vec<Replica>,
}

/// What it says of a replica.
#[derive(Clone)]
struct Replica {
    node: Node,
    /// It is dead.
    is_down: bool,
    /// It was not heard of since the election, or takes itself for the master.
    is_away: bool,
}

/// The master, and which replicas have to confirm: all but those that most sentinels take for dead,
/// and the old master until a sentinel has seen it follow the new one. A sentinel that is cut off
/// with an old master sees nobody. If there are replicas at all, at least one has to.
fn owner(views: &[View], latest: &View, sentinels: usize, replaced: Option<&Node>) -> Owner {
    let about = |node: &Node| {
        let of = |view: &'_ View| view.replicas.iter().find(|one| one.node == *node).cloned();
        views.iter().filter_map(of).collect::<Vec<Replica>>()
    };
    let is_dead = |node: &Node| {
        if replaced == Some(node) {
            return !about(node).iter().any(|one| !one.is_down && !one.is_away);
        }
        2 * about(node).iter().filter(|one| one.is_down).count() > sentinels
    };
    let alive = latest.replicas.iter().map(|one| &one.node).filter(|node| !is_dead(node));
    let mut named: Vec<String> =
        alive.map(|Node { host, port }| format!("{host}:{port}")).collect();
    named.sort();
    let alive = u32::try_from(named.len()).unwrap_or(u32::MAX);
    let replicas = alive.max(u32::from(!latest.replicas.is_empty()));
    Owner { node: latest.master.clone(), replicas, named }
}

async fn ask_sentinel(
    sentinel: &Node,
    asked: &mut redis::aio::MultiplexedConnection,
    master: &str,
) -> Result<View, Trouble> {
    let mut pipeline = redis::Pipeline::new();
    pipeline.cmd("SENTINEL").arg("MASTER").arg(master);
    pipeline.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    pipeline.cmd("SENTINEL").arg("REPLICAS").arg(master);
    let answers = tokio::time::timeout(ANSWER, asked.send_packed_commands(&pipeline, 0, 3)).await;
    let answers = answers.map_err(|_| Trouble::silent(sentinel))?;
    let answers = answers.map_err(|error| Trouble::broken(sentinel, error))?;
    let [about_master, address, replicas] = <[Value; 3]>::try_from(answers).map_err(|_| {
        Trouble::NotNow(connection(format!("redis sentinel {sentinel}: no answer")))
    })?;
    let unknown = || {
        let message = format!("redis sentinel {sentinel}: it knows no master {master:?}");
        Trouble::NotNow(connection(message))
    };
    let about_master = facts(about_master);
    let fact = |name: &str| about_master.iter().find(|(key, _)| key == name).map(|(_, v)| v);
    let before = node_of(fact("ip").zip(fact("port"))).ok_or_else(unknown)?;
    let address = facts(address).pop();
    let address = address.as_ref().map(|(host, port)| (host, port));
    let master = node_of(address).ok_or_else(unknown)?;
    let epoch = fact("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    let replicas = match replicas {
        Value::Array(replicas) => replicas,
        _ => Vec::new(),
    };
    let about = |facts: Vec<(String, String)>| {
        let fact = |name: &str| {
            facts.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
        };
        let node = node_of(Some((&fact("ip").to_owned(), &fact("port").to_owned())))?;
        let is_down = |flag| matches!(flag, "s_down" | "o_down" | "disconnected");
        let is_down = fact("flags").split(',').any(is_down);
        let is_away = fact("runid").is_empty() || fact("role-reported") == "master";
        (node != master).then_some(Replica { node, is_down, is_away })
    };
    let replicas = replicas.into_iter().map(facts).filter_map(about).collect();
    Ok(View { epoch, is_settled: master == before, master, replicas })
}

fn node_of(address: Option<(&String, &String)>) -> Option<Node> {
    let (host, port) = address?;
    Some(Node { host: host.clone(), port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: u16) -> Node {
        Node { host: "10.0.0.1".into(), port }
    }

    #[tokio::test(start_paused = true)]
    async fn sentinels_that_have_not_heard_of_the_last_election_are_not_believed_for_a_while() {
        let elected = LastElection::default();
        assert!(elected.is(7, &node(1)) && elected.is(8, &node(2)));
        assert!(!elected.is(7, &node(1)));
        tokio::time::advance(FORGOTTEN / 2).await;
        assert!(elected.is(8, &node(2)));
        assert_eq!(elected.replaced(), Some(node(1)));
        tokio::time::advance(FORGOTTEN / 2).await;
        assert!(!elected.is(7, &node(1)));
        tokio::time::advance(FORGOTTEN / 2).await;
        assert!(elected.is(7, &node(1)));
    }

    fn view(replicas: &[(u16, bool, bool)]) -> View {
        let about = |&(port, is_down, is_away)| Replica { node: node(port), is_down, is_away };
        let replicas = replicas.iter().map(about).collect();
        View { epoch: 1, master: node(1), is_settled: true, replicas }
    }

    #[test]
    fn everybody_confirms_whom_most_sentinels_do_not_take_for_dead() {
        let named = |views: &[View], replaced: Option<&Node>| {
            let Owner { replicas, named, .. } = owner(views, &views[0], 3, replaced);
            (replicas, named.join(" "))
        };
        let both = "10.0.0.1:2 10.0.0.1:3";
        let alive = || view(&[(2, false, false), (3, false, false)]);
        let down = || view(&[(2, false, false), (3, true, false)]);
        let away = || view(&[(2, false, true), (3, false, true)]);
        assert_eq!(named(&[alive(), alive(), alive()], None), (2, both.to_owned()));
        // One of three says so, or two of three; or one of two who answer.
        assert_eq!(named(&[alive(), alive(), down()], None), (2, both.to_owned()));
        assert_eq!(named(&[alive(), down(), down()], None), (1, "10.0.0.1:2".to_owned()));
        assert_eq!(named(&[alive(), down()], None), (2, both.to_owned()));
        // After an election nobody has been heard of. The old master need not be waited for.
        assert_eq!(named(&[away(), away(), away()], None), (2, both.to_owned()));
        let rest = (1, "10.0.0.1:2".to_owned());
        assert_eq!(named(&[away(), away(), away()], Some(&node(3))), rest);
        // Others still take it for the master, or one has seen it follow.
        let before = || view(&[(1, false, false), (2, false, false)]);
        assert_eq!(named(&[away(), before(), before()], Some(&node(3))), rest);
        assert_eq!(named(&[away(), away(), alive()], Some(&node(3))), (2, both.to_owned()));
        // Somebody has to.
        let alone = || view(&[(3, true, true)]);
        assert_eq!(named(&[alone(), alone()], Some(&node(3))), (1, String::new()));
        assert_eq!(named(&[view(&[])], None), (0, String::new()));
    }
}
