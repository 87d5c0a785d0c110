//! Mailboxes on Redis against the server itself: the same scripts through a bare client, and the
//! shared layout used with one call per message. Everything but replication is measured on one
//! server, by contestants that take turns.

mod bare;
mod batches;
mod cycle;
mod layout;
mod ours;
mod replicated;
mod server;
mod waking;

use mailbox_redis_servers::Node;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tokio::runtime::Runtime;

use crate::report::Row;

/// Messages that one call sends, receives or acknowledges where it takes several.
const BATCH: usize = 10;
/// Tasks at a time where there are several.
const TASKS: usize = 64;

/// All of it.
pub(crate) fn measure() -> Vec<Row> {
    let node = match Node::start(&[]) {
        Ok(node) => node,
        // A figure that is missing is one that is missed.
        Err(error) => {
            return vec![Row::alone(format!("redis: {error}"), f64::NAN, "ns").at_most(0.0)];
        }
    };
    let mut rows = cycle::against_bare_client(&node);
    rows.extend(batches::against_one_by_one(&node));
    rows.extend(server::against_layout(&node));
    rows.extend(waking::of_a_waiting_receive(&node));
    rows.extend(replicated::to_one_replica());
    rows
}

/// Two workers, whoever is measured.
fn two_threads() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime starts")
}

/// A plain connection, which waits for answers as long as ours does.
async fn connect(node: &Node) -> MultiplexedConnection {
    let client = Client::open(format!("redis://{}", node.address())).expect("a good address");
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.expect("the server runs")
}

/// What a server keeps of a message beside its payload; a real time, as long as ours writes it.
const ENQUEUED: &str = "2025-01-31T12:00:00.500+00:00";
