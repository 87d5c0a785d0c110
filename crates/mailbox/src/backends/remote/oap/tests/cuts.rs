//! Connections that end, at every point. What is known of a request is said, and no more: one that
//! never went out is made again, one that may have been carried out is not, unless that does no
//! harm.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::Purged;
use mailbox_wire::oap::Flags;
use mailbox_wire::proto::Asked;
use tokio::io::AsyncWriteExt;

use super::peer::{Conn, Peer, config, name, problem, sent};
use crate::backend::{Backend, Outgoing};
use crate::backends::remote::{RemoteBackend, RemoteConfig};
use crate::error::{ErrorKind, Retry};

/// With time for another attempt, and one connection.
fn patient() -> RemoteConfig {
    let mut config = config().with_patience(Duration::from_secs(20));
    config.connections = 1;
    config
}

fn message(text: &str, key: Option<&str>) -> Vec<Outgoing> {
    let mut message = Outgoing::new(Bytes::copy_from_slice(text.as_bytes()));
    message.idempotency_key = key.map(str::to_owned);
    vec![message]
}

/// Answers the next request, which has to be a send of one message.
async fn answer_send(conn: &mut Conn, text: &str) {
    let (id, asked) = conn.request().await.unwrap();
    let Asked::Call(Request::SendBatch(batch)) = asked else { panic!("{asked:?}") };
    assert_eq!(batch.messages.len(), 1);
    assert_eq!(&batch.messages[0].payload_b64.0[..], text.as_bytes());
    conn.reply(id, sent(&batch)).await;
}

#[tokio::test]
async fn a_service_that_closes_before_hello_is_tried_again() {
    let peer = Peer::new().await;
    let (url, config) = (peer.url(), patient());
    let opening = tokio::spawn(async move { RemoteBackend::open_with(&url, config).await });
    drop(peer.accept_raw().await);
    let mut stream = peer.accept_raw().await;
    // Half a header.
    stream.write_all(&[0, 0, 0, 50, 0, 1, 0]).await.unwrap();
    drop(stream);
    drop(peer.accept().await);
    let mut conn = peer.accept().await;
    let (id, _) = conn.request().await.unwrap();
    conn.refuse(id, 401, &problem("unauthorized")).await;
    assert_eq!(opening.await.unwrap().unwrap_err().kind(), ErrorKind::Unauthorized);
}

#[tokio::test]
async fn what_is_no_service_is_said_to_be_none() {
    let peer = Peer::new().await;
    let url = peer.url();
    let (opened, ()) = tokio::join!(RemoteBackend::open_with(&url, patient()), async {
        let mut stream = peer.accept_raw().await;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        // As it would stay open.
        std::mem::forget(stream.into_std().unwrap());
    });
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{error:?}");
    assert!(error.to_string().contains("does not speak OAP/1"), "{error}");
}

#[tokio::test]
async fn a_service_that_takes_next_to_nothing_at_a_time_is_not_used() {
    let mut peer = Peer::new().await;
    // What a megabyte would become forty of.
    peer.max_frame = 39;
    let url = peer.url();
    let (opened, _conn) =
        tokio::join!(RemoteBackend::open_with(&url, patient()), async { peer.accept().await });
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error:?}");
    assert!(error.to_string().contains("does not understand"), "{error}");
}

#[tokio::test]
async fn what_may_have_been_carried_out_is_not_made_again() {
    /// How far the answer comes.
    const POINTS: [usize; 4] = [0, 1, 2, 3];

    for point in POINTS {
        let peer = Peer::new().await;
        let (backend, mut conn) = peer.open(patient()).await;
        let name = name("a");
        let (failed, ()) = tokio::join!(backend.send(&name, message("x", None)), async {
            let (id, _) = conn.request().await.unwrap();
            if point > 0 {
                conn.piece(Flags::RESP | Flags::START, 200, id, Bytes::new()).await;
            }
            if point > 1 {
                conn.piece(Flags::EVENT, 0, id, vec![1, 2, 3]).await;
            }
            if point > 2 {
                conn.stream.write_all(&[0, 0, 0, 40, 0, 1, 0]).await.unwrap();
            }
            drop(conn);
        });
        let error = failed.unwrap().remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{point}: {error:?}");
        assert!(error.to_string().contains("in doubt"), "{error}");
        // The next connection is for something else.
        let (purged, ()) = tokio::join!(backend.purge(&name), async {
            let mut conn = peer.accept().await;
            let (id, asked) = conn.request().await.unwrap();
            assert!(matches!(asked, Asked::Call(Request::Purge(_))), "{asked:?}");
            conn.reply(id, Reply::Purged(Purged { removed: 1 })).await;
        });
        assert_eq!(purged.unwrap(), 1);
    }
}

#[tokio::test]
async fn what_can_be_repeated_is_made_again_on_another_connection() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient()).await;
    let name = name("a");
    let (result, ()) = tokio::join!(backend.send(&name, message("x", Some("key"))), async {
        conn.request().await.unwrap();
        drop(conn);
        answer_send(&mut peer.accept().await, "x").await;
    });
    assert_eq!(result.unwrap().remove(0).unwrap().id.to_string(), "x");
}

#[tokio::test]
async fn what_never_went_out_is_made_again_whatever_it_is() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient()).await;
    let (a, b) = (name("a"), name("b"));
    // More than fits between the two.
    let large = "x".repeat(40 << 20);
    let sends = join_all([
        backend.send(&a, message(&large, None)),
        backend.send(&b, message("behind it", None)),
    ]);
    let (results, ()) = tokio::join!(sends, async {
        conn.frame().await.unwrap();
        drop(conn);
        let mut conn = peer.accept().await;
        for _ in 0..2 {
            let (id, asked) = conn.request().await.unwrap();
            let Asked::Call(Request::SendBatch(batch)) = asked else { panic!("{asked:?}") };
            conn.reply(id, sent(&batch)).await;
        }
    });
    for (result, id) in results.into_iter().zip([&large[..26], "behind it"]) {
        assert_eq!(result.unwrap().remove(0).unwrap().id.to_string(), id);
    }
}

#[tokio::test]
async fn one_that_stops_is_tried_again_and_one_that_refuses_is_not() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient()).await;
    let name = name("a");
    let (result, ()) = tokio::join!(backend.send(&name, message("x", None)), async {
        let (id, _) = conn.request().await.unwrap();
        let mut stopping = problem("connection");
        stopping.reason = Some("stopping".to_owned());
        conn.refuse(id, 503, &stopping).await;
        answer_send(&mut conn, "x").await;
    });
    assert!(result.unwrap()[0].is_ok());
    let (result, ()) = tokio::join!(backend.send(&name, message("x", None)), async {
        let (id, _) = conn.request().await.unwrap();
        conn.refuse(id, 503, &problem("connection")).await;
    });
    assert_eq!(result.unwrap().remove(0).unwrap_err().kind(), ErrorKind::Connection);
}

/// One frame that made no sense was `Internal` for everybody on the connection, as if each of their
/// calls could never succeed.
#[tokio::test]
async fn an_answer_to_what_was_not_asked_ends_the_connection_and_nothing_else() {
    for is_frame in [true, false] {
        let peer = Peer::new().await;
        let (backend, mut conn) = peer.open(patient()).await;
        let (a, b) = (name("a"), name("b"));
        let sends = join_all([
            backend.send(&a, message("x", None)),
            backend.send(&b, message("y", Some("key"))),
        ]);
        let (results, ()) = tokio::join!(sends, async {
            conn.request().await.unwrap();
            let (id, _) = conn.request().await.unwrap();
            if is_frame {
                conn.reply(id + 1, Reply::Purged(Purged { removed: 1 })).await;
            } else {
                conn.stream.write_all(&[0xff; 64]).await.unwrap();
            }
            assert!(conn.frame().await.is_none(), "it was closed");
            // What can be repeated is.
            answer_send(&mut peer.accept().await, "y").await;
        });
        let [first, second] = <[_; 2]>::try_from(results).unwrap();
        let error = first.unwrap().remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
        assert_ne!(error.retry(), Retry::Never);
        assert!(error.to_string().contains("in doubt"), "{error}");
        assert!(second.unwrap().remove(0).is_ok());
    }
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_heard_is_left() {
    for is_heard in [false, true] {
        let peer = Peer::new().await;
        let (backend, mut conn) = peer.open(patient()).await;
        let (a, b) = (name("a"), name("b"));
        tokio::time::pause();
        let both = async { tokio::join!(backend.purge(&a), backend.purge(&b)) };
        let ((failed, other), ()) = tokio::join!(both, async {
            let (_, (second, _)) = (conn.request().await.unwrap(), conn.request().await.unwrap());
            if is_heard {
                tokio::time::sleep(Duration::from_secs(2)).await;
                conn.reply(second, Reply::Purged(Purged { removed: 1 })).await;
            }
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Connection);
        assert_eq!(other.is_ok(), is_heard);
        let (purged, ()) = tokio::join!(backend.purge(&a), async {
            if !is_heard {
                let old = std::mem::replace(&mut conn, peer.accept().await);
                assert!({ old }.request().await.is_none(), "it was closed");
            }
            let (id, _) = conn.request().await.unwrap();
            conn.reply(id, Reply::Purged(Purged { removed: 2 })).await;
        });
        assert_eq!(purged.unwrap(), 2);
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_connection_that_nobody_used_for_long_is_not_used_again() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient()).await;
    let name = name("a");
    tokio::time::pause();
    for seconds in [25, 31] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        let (purged, ()) = tokio::join!(backend.purge(&name), async {
            if seconds > 30 {
                assert!(conn.request().await.is_none(), "it was closed");
                conn = peer.accept().await;
            }
            let (id, _) = conn.request().await.unwrap();
            conn.reply(id, Reply::Purged(Purged { removed: 2 })).await;
        });
        assert_eq!(purged.unwrap(), 2);
    }
}
