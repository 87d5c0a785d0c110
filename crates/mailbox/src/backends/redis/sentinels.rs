//! Asking sentinels who is master, and which replicas have to confirm what it is told. Invariant:
//! of sentinels that say different things the one that knows of the latest election is right, and
//! none is believed that knows of fewer than were told of before.

use std::collections::{BTreeMap, BTreeSet};
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
/// Most sentinels that are remembered.
const MOST_SENTINELS: usize = 64;

/// What sentinels say of a master: the one with the latest election is right.
pub(super) async fn ask_sentinels(client: &Client, master: &str) -> Result<Map, Trouble> {
    let mut asked = JoinSet::new();
    for sentinel in some_of(client.elected.sentinels(&client.target.nodes)) {
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
    client.elected.learn(&views);
    let sentinels = client.elected.sentinels(&client.target.nodes).len();
    let sentinels = views.iter().map(|view| view.sentinels).max().unwrap_or(0).max(sentinels);
    Ok(Map::whole(owner(&views, latest, sentinels, client.elected.replaced().as_ref())))
}

/// What sentinels have told of.
#[derive(Debug, Default)]
pub(crate) struct Elections {
    /// Most of them hear of it later than we do, and one who has been replaced is back, with
    /// nothing, before they know.
    last: Mutex<Option<Election>>,
    /// Sentinels that the address does not name. A majority is one of all there are.
    others: Mutex<BTreeSet<Node>>,
}

#[derive(Debug, Clone)]
struct Election {
    epoch: u64,
    master: Node,
    /// Who was master before.
    replaced: Option<Node>,
    /// When a sentinel last told of it.
    at: Instant,
}

impl Elections {
    /// Whether this is it, or one that was not heard of yet. What nobody has confirmed for a while
    /// is forgotten: sentinels may begin to count anew.
    fn is(&self, epoch: u64, master: &Node) -> bool {
        let mut last = self.last.lock();
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

    /// Who was master before, if nobody has seen it follow the new one.
    fn replaced(&self) -> Option<Node> {
        self.last.lock().as_ref().and_then(|last| last.replaced.clone())
    }

    /// All that are known, each once.
    fn sentinels(&self, named: &[Node]) -> Vec<Node> {
        let all: BTreeSet<Node> = named.iter().chain(&*self.others.lock()).cloned().collect();
        all.into_iter().collect()
    }

    fn learn(&self, views: &[View]) {
        let mut others = self.others.lock();
        for other in views.iter().flat_map(|view| &view.others) {
            if others.len() < MOST_SENTINELS {
                others.insert(other.clone());
            }
        }
        drop(others);
        let mut last = self.last.lock();
        let Some(last) = last.as_mut() else { return };
        let follows = |one: &Replica| {
            Some(&one.node) == last.replaced.as_ref() && !one.is_down && !one.is_away
        };
        if views.iter().any(|view| view.replicas.iter().any(follows)) {
            last.replaced = None;
        }
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
    /// Sentinels there are, as far as it knows, and where the others are.
    sentinels: usize,
    others: Vec<Node>,
}

/// What it says of a replica.
#[derive(Clone)]
struct Replica {
    node: Node,
    /// What tells one server from another that goes by the same name, or by another one. Empty: it
    /// was not heard of.
    run: String,
    /// It is dead.
    is_down: bool,
    /// It was not heard of since the election, or takes itself for the master.
    is_away: bool,
}

/// The master, and which replicas have to confirm: all that anybody knows who knows this master,
/// but those that most sentinels take for dead; and the old master only when a sentinel has seen it
/// follow the new one, if most were asked. A sentinel that is cut off with an old master sees
/// nobody. At least one has to.
fn owner(views: &[View], latest: &View, sentinels: usize, replaced: Option<&Node>) -> Owner {
    let is_majority = |count: usize| 2 * count > sentinels;
    let all = |node: &Node| {
        let of = |view: &View| view.replicas.iter().find(|one| one.node == *node).cloned();
        views.iter().filter_map(of).collect::<Vec<Replica>>()
    };
    let is_dead = |node: &Node| {
        let said = all(node);
        if replaced == Some(node) && is_majority(views.len()) {
            return !said.iter().any(|one| !one.is_down && !one.is_away);
        }
        is_majority(said.iter().filter(|one| one.is_down).count())
    };
    let knows = |view: &&View| {
        (view.epoch, &view.master, view.is_settled)
            == (latest.epoch, &latest.master, latest.is_settled)
    };
    let known = views.iter().filter(knows).flat_map(|view| &view.replicas);
    let known: BTreeSet<&Node> = known.map(|one| &one.node).collect();
    // A server that goes by several names is one server.
    let mut alive: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in known.into_iter().filter(|node| !is_dead(node)) {
        let name = format!("{}:{}", node.host, node.port);
        let run = all(node).into_iter().map(|one| one.run).find(|run| !run.is_empty());
        alive.entry(run.unwrap_or_else(|| name.clone())).or_default().push(name);
    }
    let mut named: Vec<Vec<String>> = alive.into_values().collect();
    named.sort();
    let replicas = u32::try_from(named.len()).unwrap_or(u32::MAX).max(1);
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
    pipeline.cmd("SENTINEL").arg("SENTINELS").arg(master);
    let answers = tokio::time::timeout(ANSWER, asked.send_packed_commands(&pipeline, 0, 4)).await;
    let answers = answers.map_err(|_| Trouble::silent(sentinel))?;
    let answers = answers.map_err(|error| Trouble::broken(sentinel, error))?;
    let [about_master, address, replicas, others] =
        <[Value; 4]>::try_from(answers).map_err(|_| {
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
    let run = fact("runid").cloned().unwrap_or_default();
    let is_settled = master == before;
    let about = |facts: Facts| {
        let (node, run_id) = (facts.node()?, facts.of("runid").to_owned());
        // Other opinions, such as `disconnected`, pass: sentinels cut connections themselves.
        let is_down = |flag| matches!(flag, "s_down" | "o_down");
        let is_down = facts.of("flags").split(',').any(is_down);
        let is_away = run_id.is_empty() || facts.of("role-reported") == "master";
        let is_master = node == master || is_settled && !run.is_empty() && run_id == run;
        (!is_master).then_some(Replica { node, run: run_id, is_down, is_away })
    };
    let others: Vec<Node> = list(others).iter().filter_map(Facts::node).collect();
    let replicas = list(replicas).into_iter().filter_map(about).collect();
    let sentinels = fact("num-other-sentinels").and_then(|count| count.parse::<usize>().ok());
    let sentinels = sentinels.unwrap_or(0).max(others.len()) + 1;
    Ok(View { epoch, is_settled, master, replicas, sentinels, others })
}

/// What a sentinel says of one server.
struct Facts(Vec<(String, String)>);

impl Facts {
    fn of(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    }

    fn node(&self) -> Option<Node> {
        Some(Node { host: self.of("ip").to_owned(), port: self.of("port").parse().ok()? })
    }
}

/// Servers, one after the other.
fn list(servers: Value) -> Vec<Facts> {
    match servers {
        Value::Array(servers) => servers.into_iter().map(facts).map(Facts).collect(),
        _ => Vec::new(),
    }
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
        let elected = Elections::default();
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

    /// With replicas by port, letters for what is said of them: `d` down, `a` away.
    fn view(replicas: &[(u16, &str)]) -> View {
        let about = |&(port, said): &(u16, &str)| Replica {
            node: node(port),
            run: if said == "a" { String::new() } else { format!("run-{port}") },
            is_down: said == "d",
            is_away: said == "a",
        };
        let replicas = replicas.iter().map(about).collect();
        View { epoch: 1, master: node(1), is_settled: true, replicas, sentinels: 3, others: vec![] }
    }

    /// The ports of those that have to confirm.
    fn named(views: &[View], replaced: Option<u16>) -> Vec<u16> {
        let replaced = replaced.map(node);
        let Owner { replicas, named, .. } = owner(views, &views[0], 3, replaced.as_ref());
        let port = |name: &String| name.rsplit_once(':').unwrap().1.parse().unwrap();
        let ports: Vec<u16> = named.iter().flatten().map(port).collect();
        assert_eq!(replicas as usize, ports.len().max(1));
        ports
    }

    #[test]
    fn everybody_confirms_whom_most_sentinels_do_not_take_for_dead() {
        let alive = || view(&[(2, ""), (3, "")]);
        let down = || view(&[(2, ""), (3, "d")]);
        assert_eq!(named(&[alive(), alive(), alive()], None), [2, 3]);
        // One of three says so, or two of three; or all who answer, which are not most.
        assert_eq!(named(&[alive(), alive(), down()], None), [2, 3]);
        assert_eq!(named(&[alive(), down(), down()], None), [2]);
        assert_eq!(named(&[alive(), down()], None), [2, 3]);
        assert_eq!(named(&[down()], None), [2, 3]);
        // One that has forgotten everybody, whichever answers first or last.
        assert_eq!(named(&[view(&[]), alive(), alive()], None), [2, 3]);
        assert_eq!(named(&[alive(), alive(), view(&[])], None), [2, 3]);
        // At least one has to.
        let nobody: [u16; 0] = [];
        assert_eq!(named(&[view(&[]), view(&[])], None), nobody);
    }

    #[test]
    fn an_old_master_need_not_confirm_until_somebody_has_seen_it_follow() {
        let away = || view(&[(2, "a"), (3, "a")]);
        assert_eq!(named(&[away(), away(), away()], None), [2, 3]);
        assert_eq!(named(&[away(), away(), away()], Some(3)), [2]);
        // Others still take it for the master; or one has seen it follow.
        let mut before = view(&[(1, ""), (2, "")]);
        (before.epoch, before.master) = (0, node(3));
        assert_eq!(named(&[away(), away(), before], Some(3)), [2]);
        assert_eq!(named(&[away(), away(), view(&[(2, ""), (3, "")])], Some(3)), [2, 3]);
        // Too few answer to know.
        assert_eq!(named(&[away()], Some(3)), [2, 3]);
        assert_eq!(named(&[view(&[(2, ""), (3, "d")])], Some(3)), [2, 3]);
    }

    #[test]
    fn an_old_master_that_follows_is_a_replica_like_others() {
        let elected = Elections::default();
        assert!(elected.is(1, &node(3)) && elected.is(2, &node(1)));
        elected.learn(&[view(&[(2, ""), (3, "a")])]);
        assert_eq!(elected.replaced(), Some(node(3)));
        elected.learn(&[view(&[(2, ""), (3, "")])]);
        assert_eq!(elected.replaced(), None);
    }

    #[test]
    fn a_server_with_two_names_confirms_under_one_of_them() {
        let mut both = view(&[(2, ""), (3, "")]);
        both.replicas[1].run = both.replicas[0].run.clone();
        let found = owner(&[both], &view(&[(2, ""), (3, "")]), 3, None);
        assert_eq!(found.replicas, 1);
        assert_eq!(found.named, [["10.0.0.1:2".to_owned(), "10.0.0.1:3".to_owned()]]);
    }

    #[test]
    fn sentinels_that_the_address_does_not_name_are_asked_too() {
        let elected = Elections::default();
        let mut one = view(&[]);
        one.others = vec![node(9), node(8)];
        elected.learn(&[one]);
        assert_eq!(elected.sentinels(&[node(8), node(8)]), [node(8), node(9)]);
    }
}
