//! A client that is used from more than one runtime, or from none.

use std::time::Duration;

use futures_util::future::poll_immediate;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Purged, SettleOp};
use mailbox_wire::proto::Asked;
use tokio::runtime::{Builder, Runtime};

use super::peer::{Conn, Peer, abilities, config, envelope, name, received, sent, settled};
use crate::backend::Backend;
use crate::backends::remote::idle;
use crate::error::ErrorKind;
use crate::options::ReceiveOptions;

/// Longer than anything here takes, and shorter than a call waits for its answer.
const SOON: Duration = Duration::from_secs(20);

/// One whose sockets go on while nobody waits for anything on it.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The tasks of a connection end with the runtime it was made on. Nobody learned it, so a call on
/// it waited until its time was over, and so did all that came after.
#[test]
fn a_runtime_that_ends_takes_its_connections_with_it() {
    let (first, second) = (runtime(), runtime());
    let mut config = config().with_patience(SOON);
    config.connections = 1;
    let peer = second.block_on(Peer::new());
    let (backend, mut conn) = first.block_on(peer.open(config));
    let name = name("a");
    let mut purging = Box::pin(backend.purge(&name));
    // It goes out, and is never answered.
    first.block_on(async {
        assert!(poll_immediate(&mut purging).await.is_none());
        let (_, asked) = conn.request().await.unwrap();
        assert!(matches!(asked, Asked::Call(Request::Purge(_))), "{asked:?}");
    });
    drop(first);
    second.block_on(async {
        let failed = tokio::time::timeout(SOON, purging).await.expect("it learns it at once");
        let error = failed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
        assert!(error.is_in_doubt(), "{error}");
        // The next one has a connection of its own.
        let purging = tokio::time::timeout(SOON, backend.purge(&name));
        let (purged, ()) = tokio::join!(purging, async {
            let mut conn = peer.accept().await;
            let (id, _) = conn.request().await.unwrap();
            conn.reply(id, Reply::Purged(Purged { removed: 7 })).await;
        });
        assert_eq!(purged.unwrap().unwrap(), 7);
    });
}

/// Answers everything, at once.
async fn serve(mut conn: Conn) {
    while let Some((id, asked)) = conn.request().await {
        let reply = match asked {
            Asked::Call(Request::Abilities) => Reply::Abilities(abilities()),
            Asked::Call(Request::Purge(_)) => Reply::Purged(Purged { removed: 7 }),
            Asked::Call(Request::SendBatch(batch)) => sent(&batch),
            Asked::Call(Request::Receive(_)) => received(Vec::new()),
            other => panic!("{other:?}"),
        };
        conn.reply(id, reply).await;
    }
}

#[test]
fn a_runtime_that_is_idle_holds_up_nobody() {
    let service = runtime();
    let peer = service.block_on(Peer::new());
    let url = peer.url();
    service.spawn(async move {
        loop {
            tokio::spawn(serve(peer.accept().await));
        }
    });
    idle::holds_up_nobody(&url);
}

/// Whoever drops a receive may do so anywhere.
#[test]
fn what_is_dropped_outside_of_a_runtime_is_given_back() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut config = config();
    config.connections = 1;
    let peer = runtime.block_on(Peer::new());
    let (backend, mut conn) = runtime.block_on(peer.open(config));
    let (name, options) = (name("a"), ReceiveOptions::default());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    runtime.block_on(async {
        assert!(poll_immediate(&mut receiving).await.is_none());
        let (id, _) = conn.request().await.unwrap();
        conn.reply(id, received(vec![envelope("a", "1", b"x")])).await;
        // What is answered after it has come after it; and its task has run by then.
        let (purged, ()) = tokio::join!(backend.purge(&name), async {
            let (id, _) = conn.request().await.unwrap();
            conn.reply(id, Reply::Purged(Purged { removed: 7 })).await;
        });
        assert_eq!(purged.unwrap(), 7);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    });
    drop(receiving);
    runtime.block_on(async {
        let asked = tokio::time::timeout(SOON, conn.request()).await.expect("it is given back");
        let (id, asked) = asked.unwrap();
        let Asked::Call(Request::SettleBatch(settle)) = asked else { panic!("{asked:?}") };
        assert_eq!(settle.items[0].op, SettleOp::Return);
        conn.reply(id, settled(1)).await;
    });
}
