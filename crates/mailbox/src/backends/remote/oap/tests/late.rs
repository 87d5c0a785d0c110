//! Answers to receives that nobody waits for any more.

use std::time::Duration;

use bytes::Bytes;
use mailbox_wire::call::Request;
use mailbox_wire::json::SettleOp;
use mailbox_wire::proto::Asked;
use parking_lot::RwLock;

use super::super::link::Opener;
use super::peer::{Peer, config, envelope, name, received, settled};
use crate::backend::Backend;
use crate::backends::remote::pool::{Linked, Opener as _};
use crate::backends::remote::target::Target;
use crate::error::ErrorKind;
use crate::options::ReceiveOptions;

/// What came after the time was over was thrown away, and nobody had it until its deadline.
#[tokio::test]
async fn what_comes_too_late_is_given_back() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    let (name, options) = (name("a"), ReceiveOptions::default());
    tokio::time::pause();
    let (failed, id) = tokio::join!(backend.receive(&name, &options), async {
        let (id, asked) = conn.request().await.unwrap();
        assert!(matches!(asked, Asked::Call(Request::Receive(_))), "{asked:?}");
        id
    });
    tokio::time::resume();
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Connection);
    let (_, asked) = conn.request().await.unwrap();
    assert_eq!(asked, Asked::Cancel(id));
    // The last one is of another mailbox: it is not for this client to give it back.
    let three = [("a", "1"), ("a", "2"), ("b", "3")];
    let three = three.map(|(topic, id)| envelope(topic, id, b"x"));
    conn.reply(id, received(three.into())).await;
    let (id, asked) = conn.request().await.unwrap();
    let Asked::Call(Request::SettleBatch(settle)) = asked else { panic!("{asked:?}") };
    assert!(settle.items.iter().all(|item| item.op == SettleOp::Return));
    let handles = settle.items.iter().map(|item| item.receipt_handle.clone().unwrap());
    assert_eq!(handles.collect::<Vec<_>>(), ["a/handle-of-2", "a/handle-of-1"]);
    conn.reply(id, settled(2)).await;
}

/// What had come was thrown away if no place was free at that moment.
#[tokio::test]
async fn what_has_come_is_given_back_although_all_places_are_taken() {
    let mut peer = Peer::new().await;
    peer.max_inflight = 1;
    let url = peer.url();
    let place = url.strip_prefix("oap://").unwrap();
    let target = Target::read("oap", place, &config()).unwrap();
    let opener = Opener { target, capability: RwLock::new(Bytes::new()) };
    let (link, mut conn) = tokio::join!(opener.open(), peer.accept());
    let link = std::sync::Arc::new(link.ok().unwrap());
    let receive = mailbox_wire::json::ReceiveRequest {
        topic: "a".to_owned(),
        visibility_ms: None,
        max_messages: None,
        max_bytes: None,
        wait_ms: None,
    };
    let place = link.places().take().await.unwrap();
    let asking = link.ask(Asked::Call(Request::Receive(receive)), place).await.ok().unwrap();
    let (id, _) = conn.request().await.unwrap();
    conn.reply(id, received(vec![envelope("a", "1", b"x")])).await;
    // Its place is free: the answer is there.
    let taken = link.places().take().await.unwrap();
    drop(asking);
    tokio::task::yield_now().await;
    drop(taken);
    let next = tokio::time::timeout(Duration::from_secs(20), conn.request()).await;
    let (_, asked) = next.expect("it is given back").unwrap();
    let Asked::Call(Request::SettleBatch(settle)) = asked else { panic!("{asked:?}") };
    assert_eq!(settle.items[0].receipt_handle.as_deref(), Some("a/handle-of-1"));
}
