//! Lists and capabilities.

use std::time::Duration;

use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{MintRequest, Purged, RevokeRequest, RotateRequest, TopicEntry, Topics};
use mailbox_wire::proto::Asked;

use super::peer::{Conn, Peer, config, name};
use crate::backend::Backend;
use crate::error::ErrorKind;

async fn answer_list(conn: &mut Conn, names: impl Iterator<Item = String>) {
    let (id, asked) = conn.request().await.unwrap();
    assert!(matches!(asked, Asked::Call(Request::Topics(_))), "{asked:?}");
    let topics = names.map(|topic| TopicEntry { topic, stats: None }).collect();
    conn.reply(id, Reply::Topics(Topics { topics })).await;
}

#[tokio::test]
async fn a_list_that_does_not_go_on_is_not_asked_for_for_ever() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    let page = || (0..1000).map(|at| format!("topic-{at:04}"));
    let (listed, ()) = tokio::join!(backend.list(None, usize::MAX), async {
        for _ in 0..2 {
            answer_list(&mut conn, page()).await;
        }
    });
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::Internal);
    // More than was asked for.
    let (listed, ()) = tokio::join!(backend.list(None, 3), answer_list(&mut conn, page()));
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::Internal);
    let after = name("topic-0999");
    let (listed, ()) = tokio::join!(backend.list(Some(&after), 1000), async {
        answer_list(&mut conn, ["topic-1000".to_owned()].into_iter()).await;
    });
    assert_eq!(listed.unwrap().len(), 1);
}

/// A second capability would be one that nobody has, and nobody takes back.
#[tokio::test]
async fn a_capability_is_not_made_twice() {
    let peer = Peer::new().await;
    let config = config().with_patience(Duration::from_secs(20)).with_connections(1);
    let (backend, mut conn) = peer.open(config).await;
    let request = MintRequest::default();
    let (failed, ()) = tokio::join!(backend.mint(&request), async {
        let (_, asked) = conn.request().await.unwrap();
        assert!(matches!(asked, Asked::Call(Request::Mint(_))), "{asked:?}");
        drop(conn);
    });
    let error = failed.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(error.to_string().contains("in doubt"), "{error}");
    let name = name("a");
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        let mut conn = peer.accept().await;
        let (id, asked) = conn.request().await.unwrap();
        assert!(matches!(asked, Asked::Call(Request::Purge(_))), "{asked:?}");
        conn.reply(id, Reply::Purged(Purged { removed: 1 })).await;
    });
    assert_eq!(purged.unwrap(), 1);
}

#[tokio::test]
async fn a_closed_service_makes_no_capabilities() {
    let peer = Peer::new().await;
    let (backend, _conn) = peer.open(config()).await;
    backend.close().await.unwrap();
    let minted = backend.mint(&MintRequest::default()).await.map(drop);
    let revoked = backend.revoke(&RevokeRequest::default()).await.map(drop);
    let rotated = backend.rotate(&RotateRequest::default()).await.map(drop);
    for result in [minted, revoked, rotated] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Closed);
    }
}
