//! Whether a server keeps what it is given as the address says: looked at once, when it is opened.
//! Invariant: what cannot keep the promise that was asked for is refused; what weakens it is said.

use crate::backends::redis::client::Client;
use crate::backends::redis::link::Confirm;
use crate::backends::redis::survey::{facts, field, text};
use crate::backends::redis::target::Node;
use crate::backends::redis::trouble::Trouble;
use crate::durability::Durability;
use crate::error::{Error, ErrorKind, Result};

/// Before this, errors within scripts do not say what they are.
const OLDEST: (u32, u32) = (7, 0);

/// What a server says of itself.
#[derive(Debug, Default)]
struct Found {
    version: (u32, u32),
    appendonly: Option<bool>,
    appendfsync: Option<String>,
    evicts: Option<String>,
    replicas: u32,
}

/// What to wait for, and what an operator should know.
pub(super) async fn examine(client: &Client) -> Result<(Confirm, Vec<String>)> {
    let mut warnings = Vec::new();
    let mut confirm = Confirm::Nothing;
    for node in client.owners() {
        let found = look(client, &node).await.map_err(Trouble::into_error)?;
        // One that has to be asked to confirm is enough: the call waits for all of them alike.
        let judged = judge(client, &node, &found, &mut warnings)?;
        confirm = if confirm == Confirm::Nothing { judged } else { confirm };
        if client.config.events
            && let Some(why) = deafness(client, &node).await
        {
            warnings.push(format!(
                "{why}: it does not tell of changes; waiting receives look several times a second"
            ));
        }
    }
    if let Some(ttl) = client.config.ttl {
        let seconds = ttl.as_secs();
        warnings.push(format!(
            "a mailbox that nobody uses for {seconds} s is deleted with its messages (ttl=0 \
             keeps it)"
        ));
    }
    Ok((confirm, warnings))
}

async fn look(client: &Client, node: &Node) -> Result<Found, Trouble> {
    let link = client.link(node);
    let mut commands = Vec::new();
    for section in ["server", "persistence", "replication"] {
        let mut info = redis::cmd("INFO");
        info.arg(section);
        commands.push(info);
    }
    let asked = tokio::time::timeout(client.config.response_timeout, link.ask(commands)).await;
    let answers = asked.map_err(|_| Trouble::silent(node))??;
    let mut answers = answers.into_iter().map(|answer| text(answer).unwrap_or_default());
    let (server, persistence, replication) = (
        answers.next().unwrap_or_default(),
        answers.next().unwrap_or_default(),
        answers.next().unwrap_or_default(),
    );
    let version = field(&server, "redis_version").unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let mut found = Found {
        version: (parts.next().unwrap_or(0), parts.next().unwrap_or(0)),
        appendonly: field(&persistence, "aof_enabled").map(|enabled| enabled == "1"),
        replicas: field(&replication, "connected_slaves")
            .and_then(|count| count.parse().ok())
            .unwrap_or(0),
        ..Found::default()
    };
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("appendfsync").arg("maxmemory-policy").arg("maxmemory");
    let asked = tokio::time::timeout(client.config.response_timeout, link.ask(vec![config])).await;
    // Many who offer Redis as a service let nobody see this.
    if let Ok(Ok(answers)) = asked {
        let settings = answers.into_iter().next().map(facts).unwrap_or_default();
        let get = |name: &str| {
            settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
        };
        found.appendfsync = get("appendfsync");
        let is_limited = get("maxmemory").is_some_and(|most| most != "0");
        found.evicts = get("maxmemory-policy").filter(|how| is_limited && how != "noeviction");
    }
    Ok(found)
}

/// Why a server would not tell of changes. On a connection where it does not, nothing is changed by
/// asking it not to; but whoever may not ask for the one may not ask for the other.
async fn deafness(client: &Client, node: &Node) -> Option<Error> {
    let mut tell = redis::cmd("CLIENT");
    tell.arg("TRACKING").arg("OFF");
    let link = client.link(node);
    let asked = tokio::time::timeout(client.config.response_timeout, link.ask(vec![tell])).await;
    match asked {
        Ok(Err(Trouble::Refused(why))) => Some(why),
        _ => None,
    }
}

fn judge(
    client: &Client,
    node: &Node,
    found: &Found,
    warnings: &mut Vec<String>,
) -> Result<Confirm> {
    let durability = client.config.durability;
    if found.version < OLDEST {
        let (major, minor) = found.version;
        let message = format!("redis at {node}: it is {major}.{minor}, too old: 7.0 is the oldest");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let is_replicated = found.replicas > 0;
    if let Some(how) = &found.evicts {
        warnings.push(format!(
            "redis at {node}: maxmemory-policy is {how}: it deletes messages when memory is full; \
             set noeviction"
        ));
    }
    if durability == Durability::Memory {
        return Ok(Confirm::Nothing);
    }
    if found.appendonly != Some(true) {
        warnings.push(format!(
            "redis at {node}: appendonly is off: what was sent since its last snapshot is gone \
             when it restarts"
        ));
    } else if found.appendfsync.as_deref() == Some("no") {
        warnings.push(format!("redis at {node}: appendfsync is no: a power cut loses much"));
    }
    match durability {
        Durability::Replicated if !is_replicated && client.config.replicas.is_none() => {
            Err(refuse(node, durability, "it has no replica"))
        }
        Durability::Replicated if client.config.replicas.is_some_and(|n| n > found.replicas) => {
            let why = format!("it has {} replicas", found.replicas);
            Err(refuse(node, durability, &why))
        }
        Durability::Replicated => Ok(Confirm::Replicas),
        Durability::Fsync if found.appendonly != Some(true) => {
            Err(refuse(node, durability, "appendonly is off"))
        }
        Durability::Fsync if found.appendfsync.as_deref() == Some("always") => Ok(Confirm::Nothing),
        Durability::Fsync if found.version >= (7, 2) => Ok(Confirm::Disk),
        Durability::Fsync => {
            Err(refuse(node, durability, "appendfsync is not always, and it is older than 7.2"))
        }
        _ => {
            if !is_replicated && found.appendonly != Some(true) {
                warnings.push(format!("redis at {node}: no replica has a copy either"));
            }
            Ok(Confirm::Nothing)
        }
    }
}

fn refuse(node: &Node, durability: Durability, why: &str) -> Error {
    let message = format!("redis at {node}: durability={durability} cannot be kept: {why}");
    Error::new(ErrorKind::Unsupported, message).with_field("durability")
}
