//! Peers with equal durability, each by its own protocol, with as many connections and requests in
//! flight, by the same client on the same machine: beanstalkd and NATS `JetStream`, without a disk
//! against ours in memory, and with a sync before every answer, also to an acknowledgement, against
//! ours in a journal on the same file system. They have no capabilities, hashes or ids; the ratios
//! say what those cost.
//!
//! Every contestant begins every turn with an empty queue, in memory that it has used before. What
//! it has answered must be true: what was sent and not acknowledged is there to be thrown away.

mod beanstalk;
mod nats;
mod nats_server;
mod race;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Best, threads};
use crate::http::peers::Beanstalkd;
use crate::http::server::Server;
use crate::http::two_threads;
use crate::journal::place::{Place, files};
use crate::report::Row;
use nats_server::NatsServer;
use race::race;

/// Sends and cycles of each, against ours.
pub(crate) fn compared(place: &Place) -> Vec<Row> {
    let runtime = &two_threads();
    let mut rows = Vec::new();
    for store in ["memory", "journal"] {
        let folder = place.folder(&format!("oap-peers-{store}"));
        let is_durable = store == "journal";
        let path = folder.path().join("data");
        let ours = Server::start(&[store, &path.display().to_string()]);
        match Beanstalkd::start(is_durable.then(|| folder.path())) {
            Some(peer) => {
                let raced = race(runtime, place, &ours, &peer);
                if is_durable {
                    assert_beside(&path, &folder.path().join("beanstalkd"));
                }
                rows.extend(shown(store, "beanstalkd", threads(ours.id(), peer.id()), raced));
            }
            None => rows.push(missing("beanstalkd is not installed")),
        }
        match NatsServer::start(folder.path(), is_durable) {
            Some(peer) => {
                runtime.block_on(peer.prepare());
                let raced = race(runtime, place, &ours, &peer);
                if is_durable {
                    assert_beside(&path, &folder.path().join("nats"));
                }
                rows.extend(shown(store, "NATS JetStream", threads(ours.id(), peer.id()), raced));
            }
            None => rows.push(missing("nats-server does not start")),
        }
    }
    rows
}

fn shown(store: &str, peer: &str, threads: String, (sends, cycles): (Best, Best)) -> [Row; 2] {
    let what = format!("oap {store}, 8 x 16 in flight : {peer}");
    [("sends/s", sends), ("receive + ack/s", cycles)].map(|(name, best)| {
        Row::compared(format!("{what}, {name}{threads}"), best.0, best.1).in_unit("/s")
    })
}

/// A figure that is missing is one that is missed.
fn missing(why: &str) -> Row {
    Row::alone(format!("oap: {why}"), f64::NAN, "/s").at_least(0.0)
}

/// A sync costs what the file system makes of it: those who sync must be on the same.
fn assert_beside(ours: &Path, its: &Path) {
    let device = |path: &Path| std::fs::metadata(path).map(|it| it.dev()).ok();
    assert_eq!(device(its), device(ours), "{} is somewhere else", its.display());
    assert!(!files(its).is_empty(), "nothing is kept in {}", its.display());
}
