//! Asking servers who has what: a single server what it is, nodes of a cluster whom they take for
//! master. Whoever does not answer soon does not count.

use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;

use crate::backends::redis::client::Client;
use crate::backends::redis::link::Link;
use crate::backends::redis::replicas::connected;
use crate::backends::redis::target::Node;
use crate::backends::redis::topology::Owner;
use crate::backends::redis::trouble::{Trouble, connection};

/// How long one that is asked may take.
pub(super) const ANSWER: Duration = Duration::from_millis(500);
/// Once somebody has answered, how long the others may take.
const OTHERS: Duration = Duration::from_millis(100);
/// The same once most have: a server that stands still must not hold up the way to the others.
const LAST: Duration = Duration::from_millis(10);
/// Most that are asked at a time.
const ASKED: usize = 12;

/// Some servers, each once; a random part of them if there are many.
pub(super) fn some_of(mut nodes: Vec<Node>) -> Vec<Node> {
    nodes.sort();
    nodes.dedup();
    if nodes.len() > ASKED {
        let turn = usize::from(u16::from_be_bytes(crate::home::random())) % nodes.len();
        nodes.rotate_left(turn);
        nodes.truncate(ASKED);
    }
    nodes
}

/// What everybody says who answers soon.
pub(super) async fn gather<T: Send + 'static>(
    mut asked: JoinSet<Result<T, Trouble>>,
) -> Result<Vec<T>, Trouble> {
    let count = asked.len();
    let mut views = Vec::new();
    let mut last = Trouble::NotNow(connection("redis: no server answers".to_owned()));
    // Whoever is silent is named before this ends.
    let mut longest = ANSWER + OTHERS;
    while let Ok(Some(answer)) = tokio::time::timeout(longest, asked.join_next()).await {
        match answer {
            Ok(Ok(view)) => {
                views.push(view);
                longest = if 2 * views.len() > count { LAST } else { OTHERS };
            }
            Ok(Err(trouble)) => last = trouble,
            Err(_) => {}
        }
    }
    if views.is_empty() { Err(last) } else { Ok(views) }
}

/// What a node of a cluster says.
pub(super) async fn ask_node(link: &Link) -> Result<(Node, String), Trouble> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("NODES");
    let answers = tokio::time::timeout(ANSWER, link.ask(vec![command])).await;
    let answers = answers.map_err(|_| Trouble::silent(link.node()))??;
    let text = answers.into_iter().next().and_then(text).unwrap_or_default();
    Ok((link.node().clone(), text))
}

/// What a single server is; none if it is part of a cluster.
pub(super) async fn ask_single(client: &Client, node: &Node) -> Result<Option<Owner>, Trouble> {
    let link = client.link(node);
    let commands = vec![info("cluster"), info("replication")];
    // The first time it may have to be connected to.
    let longest = if client.owner(0).is_none() { client.config.response_timeout } else { ANSWER };
    let answers = tokio::time::timeout(longest, link.ask(commands)).await;
    let mut answers = answers.map_err(|_| Trouble::silent(node))??.into_iter().map(text);
    let cluster = answers.next().flatten().unwrap_or_default();
    let replication = answers.next().flatten().unwrap_or_default();
    if field(&cluster, "cluster_enabled") == Some("1") {
        return Ok(None);
    }
    if field(&replication, "role") == Some("slave") {
        let master = field(&replication, "master_host").unwrap_or("?");
        let port = field(&replication, "master_port").unwrap_or("?");
        let message =
            format!("redis at {node}: it is a read-only replica; its master is {master}:{port}");
        return Err(Trouble::NotNow(connection(message)));
    }
    // A replica that is not connected may be the next master: whoever was there is waited for.
    let known = client.owner(0).map_or(0, |owner| owner.replicas);
    let replicas = connected(&replication).max(known);
    Ok(Some(Owner { node: node.clone(), replicas, named: Vec::new() }))
}

fn info(section: &str) -> redis::Cmd {
    let mut command = redis::cmd("INFO");
    command.arg(section);
    command
}

/// A line `name:value` of what `INFO` says.
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

pub(super) fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// Names and values, as a map or one after the other.
pub(super) fn facts(value: Value) -> Vec<(String, String)> {
    match value {
        Value::Map(pairs) => {
            pairs.into_iter().filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect()
        }
        Value::Array(flat) => {
            let texts: Vec<String> = flat.into_iter().filter_map(text).collect();
            texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        }
        _ => Vec::new(),
    }
}
