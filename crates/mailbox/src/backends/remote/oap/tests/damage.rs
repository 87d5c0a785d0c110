//! Messages that are not what was sent, and messages of others.

use std::time::Duration;

use bytes::Bytes;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Envelope, Purged, Record, Records, SettleBatchRequest, SettleOp};
use mailbox_wire::oap::{Flags, deflate};
use mailbox_wire::payload::Payload;
use mailbox_wire::proto::{Asked, write_streamed};

use super::peer::{Conn, Peer, config, envelope, name, received, settled};
use crate::backend::{Backend, Peek};
use crate::backends::remote::RemoteConfig;
use crate::error::ErrorKind;
use crate::options::ReceiveOptions;

fn single() -> RemoteConfig {
    let mut config = config();
    config.connections = 1;
    config
}

/// Not what was sent.
fn damaged(id: &str) -> Envelope {
    let payload_b64 = Payload(Bytes::from_static(b"something else"));
    Envelope { payload_b64, ..envelope("a", id, b"x") }
}

/// The next request, which has to be a settle.
async fn settle(conn: &mut Conn) -> (u64, SettleBatchRequest) {
    match conn.request().await.unwrap() {
        (id, Asked::Call(Request::SettleBatch(it))) => (id, it),
        (_, other) => panic!("{other:?}"),
    }
}

/// Compressed it may be anything; and only those who compress get it so.
#[tokio::test]
async fn what_is_compressed_although_nobody_asked_is_not_looked_at() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let name = name("a");
    let (failed, ()) = tokio::join!(backend.purge(&name), async {
        let (id, _) = conn.request().await.unwrap();
        let payload = deflate(&[0; 1000]).unwrap();
        conn.piece(Flags::RESP | Flags::COMP, 200, id, payload).await;
        let next = tokio::time::timeout(Duration::from_secs(20), conn.frame()).await;
        assert!(next.expect("it is closed").is_none());
    });
    let error = failed.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(error.is_in_doubt());
}

/// They were buried one by one, and the good ones waited for it.
#[tokio::test]
async fn the_good_ones_do_not_wait_until_the_others_are_buried() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let (name, options) = (name("a"), ReceiveOptions::default());
    let some = vec![damaged("1"), envelope("a", "2", b"good"), damaged("3"), damaged("4")];
    let (got, ()) = tokio::join!(backend.receive(&name, &options), async {
        let (id, _) = conn.request().await.unwrap();
        conn.reply(id, received(some)).await;
    });
    let got: Vec<String> = got.unwrap().iter().map(|delivery| delivery.id.to_string()).collect();
    assert_eq!(got, ["2"]);
    // The next call waits for it.
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        let (id, buried) = settle(&mut conn).await;
        let handles = buried.items.iter().map(|item| item.receipt_handle.clone().unwrap());
        let expected = ["a/handle-of-1", "a/handle-of-3", "a/handle-of-4"];
        assert_eq!(handles.collect::<Vec<_>>(), expected);
        for item in &buried.items {
            assert_eq!((item.op, item.dead), (SettleOp::Nack, Some(true)));
            assert_eq!(item.dead_reason.as_deref(), Some("integrity"));
        }
        conn.reply(id, settled(3)).await;
        let (id, asked) = conn.request().await.unwrap();
        assert!(matches!(asked, Asked::Call(Request::Purge(_))), "{asked:?}");
        conn.reply(id, Reply::Purged(Purged { removed: 1 })).await;
    });
    assert_eq!(purged.unwrap(), 1);
    // Nothing but damaged ones is an error.
    let (failed, ()) = tokio::join!(backend.receive(&name, &options), async {
        let (id, _) = conn.request().await.unwrap();
        conn.reply(id, received(vec![damaged("1")])).await;
        let (id, _) = settle(&mut conn).await;
        conn.reply(id, settled(1)).await;
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Integrity);
}

#[tokio::test]
async fn what_is_of_another_mailbox_is_neither_handed_over_nor_buried() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(single()).await;
    let (name, options) = (name("a"), ReceiveOptions::default());
    // Of another mailbox; and with the handle of another.
    let mut mixed = envelope("a", "2", b"x");
    mixed.receipt_handle = Some("b/handle-of-2".to_owned());
    for other in [envelope("b", "1", b"x"), mixed] {
        for good in [0, 1] {
            let mut some = vec![other.clone()];
            some.extend((0..good).map(|_| envelope("a", "good", b"x")));
            let (got, ()) = tokio::join!(backend.receive(&name, &options), async {
                let (id, _) = conn.request().await.unwrap();
                conn.reply(id, received(some)).await;
            });
            match got {
                Ok(got) => assert!(got.len() == 1 && got[0].id.to_string() == "good"),
                Err(error) => assert_eq!((error.kind(), good), (ErrorKind::Internal, 0)),
            }
        }
    }
    // Nobody settles it: the next request is for something else. Nor is it shown.
    for request in [Peek::Live { limit: 1 }, Peek::Dead { after: None, limit: 1 }] {
        let (shown, ()) = tokio::join!(backend.peek(&name, &request), async {
            let (id, asked) = conn.request().await.unwrap();
            assert!(matches!(asked, Asked::Call(Request::Peek(_) | Request::Dead(_))), "{asked:?}");
            let record = Record {
                envelope: envelope("b", "1", b"x"),
                state: "ready".to_owned(),
                receivable_in_ms: 0,
                last_error: None,
                death: None,
            };
            conn.reply(id, Reply::Records(Records { messages: vec![record] })).await;
        });
        assert_eq!(shown.unwrap_err().kind(), ErrorKind::Internal);
    }
}

#[tokio::test]
async fn a_stream_hands_over_neither() {
    let peer = Peer::new().await;
    let (backend, mut ordinary) = peer.open(single()).await;
    let (name, options) = (name("a"), ReceiveOptions::default());
    let (stream, (mut conn, id)) = tokio::join!(backend.stream(&name, &options), async {
        let mut conn = peer.accept().await;
        let (id, _) = conn.request().await.unwrap();
        conn.piece(Flags::RESP | Flags::START, 200, id, Bytes::new()).await;
        (conn, id)
    });
    let mut stream = stream.unwrap();
    let mut bytes = Vec::new();
    for envelope in [envelope("b", "1", b"x"), damaged("2"), envelope("a", "3", b"x")] {
        write_streamed(envelope, &mut bytes);
    }
    conn.piece(Flags::EVENT, 0, id, bytes).await;
    assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::Internal);
    let (failed, ()) = tokio::join!(stream.next(), async {
        let (id, buried) = settle(&mut ordinary).await;
        assert_eq!(buried.items[0].receipt_handle.as_deref(), Some("a/handle-of-2"));
        ordinary.reply(id, settled(1)).await;
    });
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Integrity);
    assert_eq!(stream.next().await.unwrap().unwrap().id.to_string(), "3");
}
