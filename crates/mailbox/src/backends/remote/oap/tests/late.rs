//! Answers to receives that nobody waits for any more.

use mailbox_wire::call::Request;
use mailbox_wire::json::SettleOp;
use mailbox_wire::proto::Asked;

use super::peer::{Peer, config, envelope, name, received, settled};
use crate::backend::Backend;
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
