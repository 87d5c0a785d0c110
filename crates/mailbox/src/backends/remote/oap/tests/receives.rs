//! Receives: those that wait, and those that are given up.

use std::time::Duration;

use futures_util::future::{join_all, poll_immediate};
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{self, SettleOp};
use mailbox_wire::proto::Asked;

use super::peer::{Conn, Peer, config, envelope, name, received};
use crate::backend::Backend;
use crate::options::ReceiveOptions;

fn waiting() -> ReceiveOptions {
    let options = ReceiveOptions::default().with_max_messages(2);
    options.with_wait(Duration::from_secs(60))
}

async fn receive(conn: &mut Conn) -> u64 {
    match conn.request().await.unwrap() {
        (id, Asked::Call(Request::Receive(it))) => {
            assert_eq!(it.wait_ms, Some(60_000));
            id
        }
        (_, other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_receive_that_is_given_up_is_cancelled_and_what_comes_is_given_back() {
    let peer = Peer::new().await;
    let (backend, mut ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let mut conn = peer.accept().await;
    let id = receive(&mut conn).await;
    drop(receiving);
    // The next call waits until that is over.
    let next = backend.purge(&name);
    let (purged, ()) = tokio::join!(next, async {
        let (cancel, asked) = conn.request().await.unwrap();
        assert_eq!(asked, Asked::Cancel(id));
        let two = vec![envelope("a", "1", b"one"), envelope("a", "2", b"two")];
        conn.reply(id, received(two)).await;
        conn.reply(cancel, Reply::Done(json::Ok { ok: true })).await;
        let (id, asked) = ordinary.request().await.unwrap();
        let Asked::Call(Request::SettleBatch(settle)) = asked else { panic!("{asked:?}") };
        assert!(settle.items.iter().all(|item| item.op == SettleOp::Return));
        let handles = settle.items.iter().map(|item| item.receipt_handle.clone().unwrap());
        // The last one first.
        assert_eq!(handles.collect::<Vec<_>>(), ["a/handle-of-2", "a/handle-of-1"]);
        let results = vec![json::SettleResult::Settled { ok: true }; 2];
        ordinary.reply(id, Reply::SettledBatch(json::SettledBatch { results })).await;
        let (id, asked) = ordinary.request().await.unwrap();
        assert!(matches!(asked, Asked::Call(Request::Purge(_))), "{asked:?}");
        ordinary.reply(id, Reply::Purged(json::Purged { removed: 0 })).await;
    });
    assert_eq!(purged.unwrap(), 0);
}

#[tokio::test]
async fn nobody_gets_more_than_they_asked_for() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    let (name, options) = (name("a"), ReceiveOptions::default().with_max_messages(2));
    let (got, ()) = tokio::join!(backend.receive(&name, &options), async {
        let (id, _) = conn.request().await.unwrap();
        let all = ["1", "2", "3", "4"].map(|id| envelope("a", id, b"x"));
        conn.reply(id, received(all.into())).await;
    });
    let got: Vec<String> = got.unwrap().iter().map(|delivery| delivery.id.to_string()).collect();
    assert_eq!(got, ["1", "2"]);
    let next = tokio::time::timeout(Duration::from_secs(20), conn.request()).await;
    let (_, asked) = next.expect("the others are given back").unwrap();
    let Asked::Call(Request::SettleBatch(settle)) = asked else { panic!("{asked:?}") };
    assert!(settle.items.iter().all(|item| item.op == SettleOp::Return));
    let handles = settle.items.iter().map(|item| item.receipt_handle.clone().unwrap());
    assert_eq!(handles.collect::<Vec<_>>(), ["a/handle-of-4", "a/handle-of-3"]);
}

#[tokio::test]
async fn a_connection_on_which_a_cancel_is_not_answered_is_left() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let mut conn = peer.accept().await;
    let id = receive(&mut conn).await;
    tokio::time::pause();
    drop(receiving);
    let (_, asked) = conn.request().await.unwrap();
    assert_eq!(asked, Asked::Cancel(id));
    tokio::time::sleep(Duration::from_secs(3)).await;
    tokio::time::resume();
    // The next one does not go there.
    let (got, _conn) = tokio::join!(backend.receive(&name, &options), async {
        let other = tokio::time::timeout(Duration::from_secs(20), peer.accept()).await;
        let mut other = other.expect("there is another connection");
        let id = receive(&mut other).await;
        other.reply(id, received(Vec::new())).await;
        other
    });
    assert!(got.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_received_is_what_was_sent() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let (got, ()) = tokio::join!(backend.receive(&name, &options), async {
        let mut conn = peer.accept().await;
        let id = receive(&mut conn).await;
        conn.reply(id, received(vec![envelope("a", "1", b"one")])).await;
    });
    let got = got.unwrap();
    assert_eq!(got.len(), 1);
    assert_eq!(&got[0].letter.payload[..], b"one");
    assert_eq!(got[0].letter.attributes["kind"], "test");
    assert_eq!(got[0].id.to_string(), "1");
}

#[tokio::test]
async fn receives_that_wait_hold_up_nobody() {
    let mut peer = Peer::new().await;
    peer.max_inflight = 4;
    let (backend, mut ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(join_all((0..10).map(|_| backend.receive(&name, &options))));
    assert!(poll_immediate(&mut receiving).await.is_none());
    // None of them waits for the place of another.
    let mut conns = Vec::new();
    for count in [4, 4, 2] {
        let mut conn = peer.accept().await;
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(receive(&mut conn).await);
        }
        conns.push((conn, ids));
    }
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        let (id, _) = ordinary.request().await.unwrap();
        ordinary.reply(id, Reply::Purged(json::Purged { removed: 3 })).await;
    });
    assert_eq!(purged.unwrap(), 3);
    for (conn, ids) in &mut conns {
        for id in ids {
            conn.reply(*id, received(Vec::new())).await;
        }
    }
    assert!(receiving.await.into_iter().all(|got| got.unwrap().is_empty()));
    // The places are free again.
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let id = receive(&mut conns[0].0).await;
    conns[0].0.reply(id, received(Vec::new())).await;
    assert!(receiving.await.unwrap().is_empty());
}

#[tokio::test]
async fn a_closed_backend_leaves_its_receives() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let mut conn = peer.accept().await;
    let id = receive(&mut conn).await;
    let (got, closed, ()) = tokio::join!(receiving, backend.close(), async {
        let (cancel, asked) = conn.request().await.unwrap();
        assert_eq!(asked, Asked::Cancel(id));
        conn.reply(id, received(Vec::new())).await;
        conn.reply(cancel, Reply::Done(json::Ok { ok: true })).await;
    });
    assert_eq!(got.unwrap_err().kind(), crate::error::ErrorKind::Closed);
    closed.unwrap();
    drop(backend);
    assert!(conn.request().await.is_none(), "its connections are closed with it");
}
