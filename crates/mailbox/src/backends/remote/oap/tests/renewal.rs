//! A capability that is replaced in its file.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mailbox_core::Verdict;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Purged, SettleItem, SettleResult, SettledBatch};
use mailbox_wire::proto::Asked;

use super::peer::{Conn, Peer, abilities, config, name, problem, settled};
use crate::address::Address;
use crate::backend::{Backend, Settlement};
use crate::backends::remote::RemoteBackend;
use crate::error::ErrorKind;
use crate::id::ReceiptHandle;

/// Says that the capability is not good any more.
async fn refuse(conn: &mut Conn) {
    let (id, _) = conn.request().await.unwrap();
    let mut expired = problem("unauthorized");
    expired.reason = Some("expired".to_owned());
    conn.refuse(id, 401, &expired).await;
}

/// Nothing worked any more until whoever used it was started anew.
#[tokio::test]
async fn one_that_has_expired_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cap");
    std::fs::write(&file, "first\n").unwrap();
    let (peer, name) = (Peer::new().await, name("a"));
    let url = format!("{}/a?cap_file={}", peer.url(), file.display());
    let address = Address::parse(&url).unwrap();
    let (backend, mut conn) = tokio::join!(RemoteBackend::at(&address), async {
        let mut conn = peer.accept().await;
        assert_eq!(&conn.hello.cap[..], b"first");
        let (id, _) = conn.request().await.unwrap();
        conn.reply(id, Reply::Abilities(abilities())).await;
        conn
    });
    let backend = backend.unwrap();
    assert!(!format!("{backend:?}").contains("first"));
    // As long as it is the same, nothing is made again.
    let (failed, ()) = tokio::join!(backend.purge(&name), refuse(&mut conn));
    let error = failed.unwrap_err();
    assert_eq!((error.kind(), error.is_in_doubt()), (ErrorKind::Unauthorized, false));
    std::fs::write(&file, "second\n").unwrap();
    let (purged, mut conn) = tokio::join!(backend.purge(&name), async {
        refuse(&mut conn).await;
        assert!(conn.request().await.is_none(), "it was closed");
        let mut conn = peer.accept().await;
        assert_eq!(&conn.hello.cap[..], b"second");
        let (id, _) = conn.request().await.unwrap();
        conn.reply(id, Reply::Purged(Purged { removed: 7 })).await;
        conn
    });
    assert_eq!(purged.unwrap(), 7);
    // Once is enough, also if there is always another one.
    std::fs::write(&file, "third").unwrap();
    let (failed, _conn) = tokio::join!(backend.purge(&name), async {
        refuse(&mut conn).await;
        std::fs::write(&file, "fourth").unwrap();
        let mut conn = peer.accept().await;
        refuse(&mut conn).await;
        conn
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unauthorized);
}

/// A client with the capability in this file, and its first connection.
async fn open(peer: &Peer, file: &Path) -> (Arc<RemoteBackend>, Conn) {
    peer.open(config().with_capability_file(file)).await
}

/// What is to be settled, as the service sees it.
async fn items(conn: &mut Conn) -> (u64, Vec<SettleItem>) {
    match conn.request().await.unwrap() {
        (id, Asked::Call(Request::SettleBatch(it))) => (id, it.items),
        (_, other) => panic!("{other:?}"),
    }
}

fn expired() -> SettleResult {
    SettleResult::Refused { error: Box::new(problem("unauthorized")) }
}

fn extend(handle: &str) -> Settlement {
    let verdict = Verdict::Extend { timeout: Duration::from_secs(60) };
    Settlement { receipt_handle: ReceiptHandle::from_text(handle), verdict }
}

/// A service lets one in that has expired, because what was received with it can be settled, and
/// refuses each settlement by itself. Nobody noticed: whoever only extends what they have lost it.
#[tokio::test]
async fn settlements_that_were_refused_one_by_one_are_made_with_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cap");
    std::fs::write(&file, "first").unwrap();
    let (peer, name) = (Peer::new().await, name("a"));
    let (backend, mut conn) = open(&peer, &file).await;
    // As long as there is no other, that is the answer.
    let (refused, ()) = tokio::join!(backend.settle(&name, vec![extend("a/1")]), async {
        let (id, _) = items(&mut conn).await;
        let results = vec![expired()];
        conn.reply(id, Reply::SettledBatch(SettledBatch { results })).await;
    });
    assert_eq!(refused.unwrap()[0].as_ref().unwrap_err().kind(), ErrorKind::Unauthorized);
    std::fs::write(&file, "second").unwrap();
    let two = vec![extend("a/1"), extend("a/2")];
    let (done, ()) = tokio::join!(backend.settle(&name, two), async {
        let (id, _) = items(&mut conn).await;
        let results = vec![SettleResult::Settled { ok: true }, expired()];
        conn.reply(id, Reply::SettledBatch(SettledBatch { results })).await;
        let mut conn = peer.accept().await;
        assert_eq!(&conn.hello.cap[..], b"second");
        let (id, items) = items(&mut conn).await;
        // Not what was done.
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].receipt_handle.as_deref(), Some("a/2"));
        conn.reply(id, settled(1)).await;
    });
    assert!(done.unwrap().into_iter().all(|result| result.is_ok()));
}
