//! Connections that end, and requests that are refused before they are looked at.

use bytes::Bytes;
use h2::Reason;
use mailbox_wire::call::Reply;
use mailbox_wire::json::{BatchResult, Purged, Sent, SentBatch};
use tokio::io::AsyncWriteExt;
use tonic::Code;

use super::peer::{Call, Peer, framed, name, patient, status};
use crate::backend::{Backend, Outgoing};
use crate::backends::remote::RemoteBackend;
use crate::error::ErrorKind;

fn message(key: Option<&str>) -> Vec<Outgoing> {
    let mut message = Outgoing::new(Bytes::from_static(b"x"));
    message.idempotency_key = key.map(str::to_owned);
    vec![message]
}

fn accept(call: Call) {
    assert_eq!(call.method, "SendBatch");
    let sent = BatchResult::Sent(Sent { msg_id: "id".to_owned(), duplicate: false });
    call.reply(Reply::SentBatch(SentBatch { results: vec![sent] }));
}

#[tokio::test]
async fn what_may_have_been_carried_out_is_not_made_again() {
    for has_begun in [false, true] {
        let peer = Peer::new().await;
        let (backend, mut conn) = peer.open(patient()).await;
        let name = name("a");
        let (failed, ()) = tokio::join!(backend.send(&name, message(None)), async {
            let mut call = conn.call().await;
            call.message().await.unwrap();
            if has_begun {
                call.begin().send_data(framed(b"xyz").slice(..6), false).unwrap();
                tokio::task::yield_now().await;
            }
            conn.cut().await;
        });
        let error = failed.unwrap().remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
        assert!(error.to_string().contains("in doubt"), "{error}");
        // The next connection is for something else.
        let (purged, _conn) = tokio::join!(backend.purge(&name), async {
            let mut conn = peer.accept().await;
            let call = conn.call().await;
            assert_eq!(call.method, "PurgeTopic");
            call.reply(Reply::Purged(Purged { removed: 1 }));
            conn
        });
        assert_eq!(purged.unwrap(), 1);
    }
}

#[tokio::test]
async fn what_can_be_repeated_is_made_again_on_another_connection() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient()).await;
    let name = name("a");
    let (sent, _conn) = tokio::join!(backend.send(&name, message(Some("key"))), async {
        conn.call().await.message().await.unwrap();
        conn.cut().await;
        let mut conn = peer.accept().await;
        accept(conn.call().await);
        conn
    });
    assert_eq!(sent.unwrap().remove(0).unwrap().id.to_string(), "id");
}

#[tokio::test]
async fn what_was_not_looked_at_is_made_again_whatever_it_is() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient()).await;
    let name = name("a");
    let (sent, ()) = tokio::join!(backend.send(&name, message(None)), async {
        conn.call().await.reset(Reason::REFUSED_STREAM);
        conn.call().await.refuse(&status(Code::Unavailable, "connection", Some("stopping")));
        accept(conn.call().await);
    });
    assert!(sent.unwrap()[0].is_ok());
    // Any other reason says nothing.
    let (failed, ()) = tokio::join!(backend.send(&name, message(None)), async {
        conn.call().await.reset(Reason::INTERNAL_ERROR);
    });
    assert_eq!(failed.unwrap().remove(0).unwrap_err().kind(), ErrorKind::Connection);
}

/// A service that goes away says which requests it still looks at.
#[tokio::test]
async fn what_comes_after_the_last_that_is_looked_at_is_made_again() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient()).await;
    let name = name("a");
    let (sent, _conns) = tokio::join!(backend.send(&name, message(None)), async {
        conn.call().await.message().await.unwrap();
        // Its hello, and what it can do.
        conn.go_away(3, Reason::NO_ERROR);
        let mut next = peer.accept().await;
        accept(next.call().await);
        (conn, next)
    });
    assert!(sent.unwrap()[0].is_ok());
}

#[tokio::test]
async fn one_who_has_no_place_has_done_nothing() {
    let peer = Peer::new().await;
    let (backend, conn) = peer.open(patient()).await;
    conn.cut().await;
    let name = name("a");
    let (sent, _conn) = tokio::join!(backend.send(&name, message(None)), async {
        let mut stream = peer.accept_raw().await;
        let text = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(text).await.unwrap();
        let mut conn = peer.accept().await;
        accept(conn.call().await);
        (conn, stream)
    });
    assert!(sent.unwrap()[0].is_ok());
}

#[tokio::test]
async fn what_does_not_speak_http_2_is_said_so_at_once() {
    let http = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    // A frame of OAP/1.
    let oap = b"\0\0\0\x28\0\x01\0\x02\0\0\0\0\0\0\0\0\0\0\0\x01\x01\x90\0\0\0\0\0\0\0\0\0\0";
    for text in [&http[..], &oap[..]] {
        let peer = Peer::new().await;
        let url = peer.url();
        let (opened, _stream) = tokio::join!(RemoteBackend::open_with(&url, patient()), async {
            let mut stream = peer.accept_raw().await;
            stream.write_all(text).await.unwrap();
            stream
        });
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{error:?}");
        assert!(error.to_string().contains("does not speak gRPC"), "{error}");
    }
}

/// What came made no sense, so the client said that nothing was done, and sent again what had been
/// carried out: nobody had answered on that connection before.
#[tokio::test]
async fn an_answer_that_makes_no_sense_says_nothing_about_what_was_done() {
    let peer = Peer::new().await;
    let (backend, conn) = peer.open(patient()).await;
    conn.cut().await;
    let name = name("a");
    let (failed, _conn) = tokio::join!(backend.send(&name, message(None)), async {
        let mut conn = peer.accept().await;
        conn.call().await.message().await.unwrap();
        conn.garble();
        conn
    });
    let error = failed.unwrap().remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(error.to_string().contains("in doubt"), "{error}");
    // The next connection is for something else.
    let (purged, _conn) = tokio::join!(backend.purge(&name), async {
        let mut conn = peer.accept().await;
        let call = conn.call().await;
        assert_eq!(call.method, "PurgeTopic");
        call.reply(Reply::Purged(Purged { removed: 1 }));
        conn
    });
    assert_eq!(purged.unwrap(), 1);
}

/// Calls were placed on it, and were in doubt when it turned out that nobody was there.
#[tokio::test]
async fn nothing_is_asked_on_a_connection_on_which_nothing_is_said() {
    let peer = Peer::new().await;
    let (backend, conn) = peer.open(patient()).await;
    conn.cut().await;
    let name = name("a");
    tokio::time::pause();
    let (sent, _conn) = tokio::join!(backend.send(&name, message(None)), async {
        let mute = peer.accept_raw().await;
        let mut conn = peer.accept().await;
        accept(conn.call().await);
        (conn, mute)
    });
    assert!(sent.unwrap()[0].is_ok());
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    for url in ["grpc://", "grpc://host:x", "grpc://us er:1", "grpc://user:secret@host"] {
        let error = RemoteBackend::open_with(url, patient()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{url}: {error:?}");
        assert!(!format!("{error:?}").contains("secret"));
    }
}
