//! Requests, and answers in whatever order and in whatever pieces.

use bytes::Bytes;
use futures_util::future::{join_all, poll_immediate};
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{self, Purged};
use mailbox_wire::oap::{APP_HELLO, Flags, Hello};
use mailbox_wire::proto::Asked;

use super::peer::{Conn, Peer, config, name, problem, received, sent, written};
use crate::backend::{Backend, Outgoing};
use crate::error::ErrorKind;
use crate::options::ReceiveOptions;

/// The next request, which has to be a purge: of which mailbox.
async fn purge(conn: &mut Conn) -> (u64, String) {
    match conn.request().await.unwrap() {
        (id, Asked::Call(Request::Purge(it))) => (id, it.topic),
        (_, other) => panic!("{other:?}"),
    }
}

fn purged(removed: u64) -> Reply {
    Reply::Purged(Purged { removed })
}

#[tokio::test]
async fn the_first_frame_has_the_capability_and_no_other() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    assert_eq!(conn.hello.flags, Flags::REQ | Flags::START);
    assert_eq!((conn.hello.app, conn.hello.code, conn.hello.tenant), (APP_HELLO, 0, 0));
    assert_eq!(&conn.hello.cap[..], b"some-capability");
    let hello: Hello = serde_json::from_slice(&conn.hello.payload).unwrap();
    assert!(hello.ua.starts_with("mailbox/"), "{hello:?}");
    let (name, asked) = (name("a"), async {
        let frame = conn.frame().await.unwrap();
        assert!(frame.cap.is_empty() && frame.flags == Flags::REQ);
        conn.reply(frame.corr_id, purged(7)).await;
    });
    let (purged, ()) = tokio::join!(backend.purge(&name), asked);
    assert_eq!(purged.unwrap(), 7);
    let shown = format!("{backend:?}");
    assert!(!shown.contains("some-capability"), "{shown}");
}

#[tokio::test]
async fn answers_in_another_order_reach_those_who_asked() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(with_one_connection()).await;
    let names = ["a", "b", "c"].map(name);
    let purges = join_all(names.iter().map(|name| backend.purge(name)));
    let (results, ()) = tokio::join!(purges, async {
        let mut asked = Vec::new();
        for _ in 0..3 {
            asked.push(purge(&mut conn).await);
        }
        for (id, topic) in asked.into_iter().rev() {
            let removed = u64::from(topic.as_bytes()[0]);
            conn.reply(id, Reply::Purged(Purged { removed })).await;
        }
    });
    let results: Vec<u64> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results, [97, 98, 99]);
}

fn with_one_connection() -> super::super::super::RemoteConfig {
    let mut config = config();
    config.connections = 1;
    config
}

#[tokio::test]
async fn an_answer_in_pieces_is_joined_and_others_come_between_them() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(with_one_connection()).await;
    let (a, b) = (name("a"), name("b"));
    let both =
        async { tokio::join!(backend.list(None, 1000), backend.purge(&b), backend.purge(&a)) };
    let ((listed, of_b, of_a), ()) = tokio::join!(both, async {
        let (list, Asked::Call(Request::Topics(_))) = conn.request().await.unwrap() else {
            panic!("a list was asked for first");
        };
        let (second, third) = (purge(&mut conn).await, purge(&mut conn).await);
        let entry = |at: u32| json::TopicEntry { topic: format!("topic-{at}"), stats: None };
        let topics = Reply::Topics(json::Topics { topics: (0..100).map(entry).collect() });
        let bytes = Bytes::from(written(topics));
        conn.piece(Flags::RESP | Flags::START, 200, list, Bytes::new()).await;
        conn.piece(Flags::RESP | Flags::START, 200, third.0, Bytes::new()).await;
        for part in bytes.chunks(100) {
            conn.piece(Flags::EVENT, 0, list, part.to_vec()).await;
        }
        conn.reply(second.0, purged(2)).await;
        // What came before is void if the end is a problem.
        conn.piece(Flags::EVENT, 0, third.0, written(purged(3))).await;
        let why = serde_json::to_vec(&problem("saturated")).unwrap();
        conn.piece(Flags::RESP | Flags::END, 429, third.0, why).await;
        conn.piece(Flags::RESP | Flags::END, 200, list, Bytes::new()).await;
    });
    let listed = listed.unwrap();
    assert_eq!(listed.len(), 100);
    assert_eq!(listed[99].as_str(), "topic-99");
    assert_eq!(of_b.unwrap(), 2);
    assert_eq!(of_a.unwrap_err().kind(), ErrorKind::Saturated);
}

#[tokio::test]
async fn a_request_larger_than_a_frame_goes_out_in_parts() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(with_one_connection()).await;
    let (name, payload) = (name("a"), vec![b'x'; (5 << 20) / 2]);
    let message = Outgoing::new(Bytes::from(payload.clone()));
    let (result, ()) = tokio::join!(backend.send(&name, vec![message]), async {
        let (id, asked) = conn.request().await.unwrap();
        assert_eq!(conn.frames, 3);
        let Asked::Call(Request::SendBatch(batch)) = asked else { panic!("{asked:?}") };
        assert!(batch.messages[0].payload_b64.0 == payload);
        conn.reply(id, sent(&batch)).await;
    });
    assert!(result.unwrap()[0].is_ok());
}

#[tokio::test]
async fn no_more_are_in_flight_than_the_service_allows() {
    let mut peer = Peer::new().await;
    peer.max_inflight = 2;
    let (backend, mut conn) = peer.open(with_one_connection()).await;
    let (a, options) = (name("a"), ReceiveOptions::default());
    let mut receives = Box::pin(join_all([(); 2].map(|()| backend.receive(&a, &options))));
    let mut purges = Box::pin(join_all([(); 3].map(|()| backend.purge(&a))));
    assert!(poll_immediate(&mut receives).await.is_none());
    let mut first = Vec::new();
    for _ in 0..2 {
        let (id, asked) = conn.request().await.unwrap();
        assert!(matches!(asked, Asked::Call(Request::Receive(_))), "{asked:?}");
        first.push(id);
    }
    assert!(poll_immediate(&mut purges).await.is_none());
    // What is cancelled goes out whatever is in flight: behind all that went out before it.
    drop(receives);
    for _ in 0..2 {
        let (cancel, asked) = conn.request().await.unwrap();
        let Asked::Cancel(id) = asked else { panic!("one too many is in flight: {asked:?}") };
        assert!(first.contains(&id));
        conn.reply(id, received(Vec::new())).await;
        conn.reply(cancel, Reply::Done(json::Ok { ok: true })).await;
    }
    let (results, ()) = tokio::join!(purges, async {
        let two = [purge(&mut conn).await, purge(&mut conn).await];
        conn.reply(two[1].0, purged(1)).await;
        let third = purge(&mut conn).await;
        conn.reply(two[0].0, purged(1)).await;
        conn.reply(third.0, purged(1)).await;
    });
    assert!(results.into_iter().all(|purged| purged.is_ok()));
}
