//! Messages as they come.

use bytes::Bytes;
use mailbox_wire::call::Request;
use mailbox_wire::oap::Flags;
use mailbox_wire::proto::{Asked, write_sign_of_life, write_streamed};

use super::peer::{Conn, Peer, config, envelope, name, problem};
use crate::backends::remote::RemoteStream;
use crate::error::ErrorKind;
use crate::options::ReceiveOptions;

/// A stream, its connection and its request.
async fn open(peer: &Peer) -> (RemoteStream, Conn, u64) {
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), ReceiveOptions::default());
    let (stream, (conn, id)) = tokio::join!(backend.stream(&name, &options), async {
        // It has a connection of its own.
        let mut conn = peer.accept().await;
        let (id, asked) = conn.request().await.unwrap();
        assert!(matches!(asked, Asked::Call(Request::ReceiveStream(_))), "{asked:?}");
        conn.piece(Flags::RESP | Flags::START, 200, id, Bytes::new()).await;
        (conn, id)
    });
    (stream.unwrap(), conn, id)
}

fn messages() -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in ["one", "two", "three"] {
        write_streamed(envelope("a", text, text.as_bytes()), &mut bytes);
        write_sign_of_life(&mut bytes);
    }
    bytes
}

async fn next(stream: &mut RemoteStream) -> String {
    let delivery = stream.next().await.unwrap().unwrap();
    assert_eq!(&delivery.letter.payload[..], delivery.id.to_string().as_bytes());
    delivery.id.to_string()
}

#[tokio::test]
async fn messages_come_whatever_pieces_they_are_in() {
    for size in [1, 7, 100, 10_000] {
        let peer = Peer::new().await;
        let (mut stream, mut conn, id) = open(&peer).await;
        let ((), ()) = tokio::join!(
            async {
                for text in ["one", "two", "three"] {
                    assert_eq!(next(&mut stream).await, text);
                }
                assert!(stream.next().await.unwrap().is_none());
            },
            async {
                for part in messages().chunks(size) {
                    conn.piece(Flags::EVENT, 0, id, part.to_vec()).await;
                }
                conn.piece(Flags::RESP | Flags::END, 200, id, Bytes::new()).await;
            }
        );
    }
}

#[tokio::test]
async fn a_stream_ends_as_the_service_says() {
    for (kind, reason) in [("forbidden", "quota"), ("connection", "stopping")] {
        let peer = Peer::new().await;
        let (mut stream, mut conn, id) = open(&peer).await;
        conn.piece(Flags::EVENT, 0, id, messages()).await;
        let mut why = problem(kind);
        why.reason = Some(reason.to_owned());
        let why = serde_json::to_vec(&why).unwrap();
        conn.piece(Flags::RESP | Flags::END, 403, id, why).await;
        for text in ["one", "two", "three"] {
            assert_eq!(next(&mut stream).await, text);
        }
        let ended = stream.next().await;
        match reason {
            "stopping" => assert!(ended.unwrap().is_none()),
            _ => assert_eq!(ended.unwrap_err().kind(), ErrorKind::Forbidden),
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_refused_says_why() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), ReceiveOptions::default());
    let (stream, ()) = tokio::join!(backend.stream(&name, &options), async {
        let mut conn = peer.accept().await;
        let (id, _) = conn.request().await.unwrap();
        conn.refuse(id, 403, &problem("forbidden")).await;
    });
    assert_eq!(stream.unwrap_err().kind(), ErrorKind::Forbidden);
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_no_end_and_one_that_is_dropped_is_closed() {
    let peer = Peer::new().await;
    let (mut stream, mut conn, id) = open(&peer).await;
    let bytes = messages();
    conn.piece(Flags::EVENT, 0, id, bytes[..bytes.len() / 2].to_vec()).await;
    drop(conn);
    assert_eq!(next(&mut stream).await, "one");
    assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::Connection);

    let peer = Peer::new().await;
    let (stream, mut conn, _) = open(&peer).await;
    drop(stream);
    assert!(conn.request().await.is_none());
}
