//! Receives that wait or are given up, and streams.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join_all, poll_immediate};
use mailbox_wire::attributes::Attributes;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::hash::Hash;
use mailbox_wire::json::{Envelope, Received, SettleOp, SettleResult, SettledBatch};
use mailbox_wire::payload::Payload;
use tonic::{Code, Status};

use super::peer::{Call, Conn, Peer, bare, config, framed, name, status, trailers};
use crate::backend::Backend;
use crate::backends::remote::RemoteStream;
use crate::error::ErrorKind;
use crate::options::ReceiveOptions;

fn waiting() -> ReceiveOptions {
    let options = ReceiveOptions::default().with_max_messages(2);
    options.with_wait(Duration::from_secs(60))
}

fn envelope(id: &str) -> Envelope {
    let ts = "2025-10-12T18:02:41.000Z";
    let (hash, attrs) = (Hash::of_payload(id.as_bytes()), Attributes::default());
    Envelope {
        msg_id: id.to_owned(),
        topic: "a".to_owned(),
        ts: ts.to_owned(),
        idem_key: None,
        payload_hash: hash,
        hash_chain: Hash::of_chain("a", ts, None, hash, &attrs),
        attrs,
        corr_id: "01234567-89ab-7def-8123-456789abcdef".to_owned(),
        shard: 0,
        attempt: 1,
        sig: None,
        receipt_handle: Some(format!("a/handle-of-{id}")),
        visible_until_ms: None,
        reply_to: None,
        group: None,
        partition: None,
        traceparent: None,
        payload_b64: Payload(Bytes::copy_from_slice(id.as_bytes())),
    }
}

fn received(ids: &[&str]) -> Reply {
    Reply::Received(Received { messages: ids.iter().map(|id| envelope(id)).collect() })
}

/// The next call, which has to be a receive that waits.
async fn receive(conn: &mut Conn) -> Call {
    let mut call = conn.call().await;
    assert_eq!(call.method, "RecvWhileOpen");
    let Request::Receive(asked) = call.asked(3).await else { panic!("a receive") };
    assert_eq!(asked.wait_ms, Some(60_000));
    call
}

#[tokio::test]
async fn a_receive_that_is_given_up_closes_its_side_and_what_comes_is_given_back() {
    let peer = Peer::new().await;
    let (backend, mut ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let mut conn = peer.accept().await;
    let mut call = receive(&mut conn).await;
    assert!(!call.body.is_end_stream());
    drop(receiving);
    assert!(call.message().await.is_none());
    call.reply(received(&["1", "2"]));
    let mut call = ordinary.call().await;
    let Request::SettleBatch(settle) = call.asked(8).await else { panic!("a settle") };
    assert!(settle.items.iter().all(|item| item.op == SettleOp::Return));
    assert_eq!(settle.items[0].receipt_handle.as_deref(), Some("a/handle-of-2"));
    let results = vec![SettleResult::Settled { ok: true }; 2];
    call.reply(Reply::SettledBatch(SettledBatch { results }));
}

/// It was open for as long as the connection, and took room in it.
#[tokio::test]
async fn the_side_of_a_receive_that_was_answered_is_closed() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let (got, mut call) = tokio::join!(backend.receive(&name, &options), async {
        let mut conn = peer.accept().await;
        let mut call = receive(&mut conn).await;
        let mut answer = call.begin();
        answer.send_data(framed(&bare(received(&["1"]))), false).unwrap();
        answer.send_trailers(trailers(&Status::new(Code::Ok, ""))).unwrap();
        call
    });
    assert_eq!(got.unwrap().len(), 1);
    let next = tokio::time::timeout(Duration::from_secs(20), call.message()).await;
    assert!(next.expect("it is closed").is_none());
}

#[tokio::test]
async fn receives_that_wait_hold_up_nobody() {
    const COUNT: usize = 70;

    let peer = Peer::new().await;
    let (backend, mut ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(join_all((0..COUNT).map(|_| backend.receive(&name, &options))));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let (mut conns, mut calls) = (Vec::new(), Vec::new());
    for count in [64, COUNT - 64] {
        let mut conn = peer.accept().await;
        for _ in 0..count {
            calls.push(receive(&mut conn).await);
        }
        conns.push(conn);
    }
    let (stats, ()) = tokio::join!(backend.stats(&name), async {
        ordinary.call().await.refuse(&Status::permission_denied("no"));
    });
    assert_eq!(stats.unwrap_err().kind(), ErrorKind::Forbidden);
    for call in calls {
        call.reply(received(&["1"]));
    }
    for got in receiving.await {
        let got = got.unwrap();
        assert_eq!((got.len(), &got[0].letter.payload[..]), (1, &b"1"[..]));
    }
}

/// A stream, its connection and its call.
async fn open(peer: &Peer) -> (RemoteStream, Conn, Call) {
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), ReceiveOptions::default());
    let (stream, (conn, call, mut answer)) = tokio::join!(backend.stream(&name, &options), async {
        // It has a connection of its own.
        let mut conn = peer.accept().await;
        let mut call = conn.call().await;
        assert_eq!(call.method, "RecvStream");
        let answer = call.begin();
        (conn, call, answer)
    });
    for id in ["one", "two"] {
        let mut message = bare(received(&[id]));
        // An answer with one message is the same as a message of a stream; nothing is a sign of
        // life.
        answer.send_data(framed(&message), false).unwrap();
        message.clear();
        answer.send_data(framed(&message), false).unwrap();
    }
    let mut stream = stream.unwrap();
    for id in ["one", "two"] {
        let delivery = stream.next().await.unwrap().unwrap();
        assert_eq!(&delivery.letter.payload[..], id.as_bytes());
    }
    tokio::spawn(async move {
        // Says what ended it, to whoever looks.
        let ended = std::future::poll_fn(|context| answer.poll_reset(context)).await;
        drop((answer, ended));
    });
    (stream, conn, call)
}

#[tokio::test]
async fn a_stream_that_is_dropped_is_closed_and_one_that_breaks_off_is_no_end() {
    let peer = Peer::new().await;
    let (stream, conn, call) = open(&peer).await;
    drop(stream);
    drop(call);
    assert!(conn.closed().await);

    let peer = Peer::new().await;
    let (mut stream, conn, _call) = open(&peer).await;
    conn.cut().await;
    assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::Connection);
}

#[tokio::test]
async fn a_stream_ends_as_the_service_says() {
    for (end, kind) in [
        (Status::new(Code::Ok, ""), None),
        (status(Code::Unavailable, "connection", Some("stopping")), None),
        (status(Code::PermissionDenied, "forbidden", Some("quota")), Some(ErrorKind::Forbidden)),
    ] {
        let peer = Peer::new().await;
        let (backend, _ordinary) = peer.open(config()).await;
        let (name, options) = (name("a"), ReceiveOptions::default());
        let (stream, _conn) = tokio::join!(backend.stream(&name, &options), async {
            let mut conn = peer.accept().await;
            let mut call = conn.call().await;
            let mut answer = call.begin();
            answer.send_data(framed(&bare(received(&["one"]))), false).unwrap();
            answer.send_trailers(trailers(&end)).unwrap();
            conn
        });
        let mut stream = stream.unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap().id.to_string(), "one");
        match (stream.next().await, kind) {
            (Ok(None), None) => {}
            (Err(error), Some(kind)) => assert_eq!(error.kind(), kind),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_refused_says_why() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), ReceiveOptions::default());
    let (stream, _conn) = tokio::join!(backend.stream(&name, &options), async {
        let mut conn = peer.accept().await;
        conn.call().await.refuse(&status(Code::PermissionDenied, "forbidden", None));
        conn
    });
    assert_eq!(stream.unwrap_err().kind(), ErrorKind::Forbidden);
}
