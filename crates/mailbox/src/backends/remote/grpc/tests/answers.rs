//! Answers that begin and come to nothing. Whoever reads them puts them into words of gRPC, which
//! nobody has said.

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, HeaderValue, Response};
use mailbox_wire::call::Reply;
use mailbox_wire::json::{BatchResult, Purged, Sent, SentBatch};
use tonic::{Code, Status};

use super::peer::{Call, Conn, Peer, framed, name, patient, trailers};
use crate::backend::{Backend, Outgoing};
use crate::backends::remote::RemoteBackend;
use crate::error::ErrorKind;

/// What comes instead of an answer.
#[derive(Debug, Clone)]
enum Way {
    /// Half a message, and then the stream, or the connection, is over.
    Reset(Reason),
    GoAway(Reason),
    /// This, with or without a word that all is well.
    Body(&'static [u8], bool),
    /// A good message that is said to be written otherwise.
    Encoded,
    /// Nothing but this.
    Status(Code),
    /// The same, with details that cannot be read.
    Unreadable,
}

fn ways() -> Vec<Way> {
    let reasons = [
        Reason::INTERNAL_ERROR,
        Reason::PROTOCOL_ERROR,
        Reason::FLOW_CONTROL_ERROR,
        Reason::ENHANCE_YOUR_CALM,
        Reason::INADEQUATE_SECURITY,
        Reason::NO_ERROR,
        Reason::CANCEL,
        Reason::REFUSED_STREAM,
    ];
    let bodies: [&[u8]; 4] = [b"", b"\0\0\0\0\x09x", b"\x01\0\0\0\0", b"\x02\0\0\0\0"];
    let codes = [Code::Internal, Code::DataLoss, Code::Unknown, Code::Aborted, Code::Ok];
    let mut ways = vec![Way::Encoded, Way::Unreadable];
    ways.extend(reasons.map(Way::Reset));
    ways.extend(reasons[..5].iter().map(|reason| Way::GoAway(*reason)));
    ways.extend(bodies.into_iter().flat_map(|it| [Way::Body(it, false), Way::Body(it, true)]));
    ways.extend(codes.map(Way::Status));
    ways
}

/// Until what was said has gone out.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

fn good() -> HeaderMap {
    trailers(&Status::new(Code::Ok, ""))
}

async fn answer(conn: &mut Conn, mut call: Call, way: &Way) {
    assert_eq!(call.method, "SendBatch");
    call.message().await.unwrap();
    match way {
        Way::Reset(reason) => {
            let mut stream = call.begin();
            stream.send_data(framed(b"xyz").slice(..6), false).unwrap();
            settle().await;
            stream.send_reset(*reason);
        }
        Way::GoAway(reason) => {
            call.begin().send_data(framed(b"xyz").slice(..6), false).unwrap();
            settle().await;
            conn.go_away(u32::MAX >> 1, *reason);
            settle().await;
            conn.hang_up();
        }
        Way::Body(body, is_ended) => {
            let mut stream = call.begin();
            stream.send_data(Bytes::from_static(body), !is_ended).unwrap();
            if *is_ended {
                stream.send_trailers(good()).unwrap();
            }
        }
        Way::Encoded => {
            let response = Response::builder().header("content-type", "application/grpc");
            let response = response.header("grpc-encoding", "gzip").body(()).unwrap();
            let mut stream = call.answer.send_response(response, false).unwrap();
            stream.send_data(framed(b""), false).unwrap();
            stream.send_trailers(good()).unwrap();
        }
        Way::Status(code) => call.refuse(&Status::new(*code, "no")),
        Way::Unreadable => {
            let mut stream = call.begin();
            let mut trailers = trailers(&Status::new(Code::Internal, ""));
            trailers.insert("grpc-status-details-bin", HeaderValue::from_static("!!!"));
            stream.send_trailers(trailers).unwrap();
        }
    }
}

fn message(key: Option<&str>) -> Vec<Outgoing> {
    let mut message = Outgoing::new(Bytes::from_static(b"x"));
    message.idempotency_key = key.map(str::to_owned);
    vec![message]
}

/// The next request, on the same connection or on another, is this one.
async fn next(peer: &Peer, conn: &mut Conn, is_over: bool, method: &str) -> Call {
    if is_over {
        *conn = peer.accept().await;
    }
    let call = conn.call().await;
    assert_eq!(call.method, method);
    call
}

async fn purge(backend: &RemoteBackend, peer: &Peer, conn: &mut Conn, is_over: bool) {
    let name = name("a");
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        let call = next(peer, conn, is_over, "PurgeTopic").await;
        call.reply(Reply::Purged(Purged { removed: 1 }));
    });
    assert_eq!(purged.unwrap(), 1);
}

/// `Internal` (never try again), `Saturated` (try again in a second) or `Forbidden` was said of
/// messages that had been sent. Who did as it said made a second one of each.
#[tokio::test]
async fn one_that_comes_to_nothing_leaves_a_send_in_doubt() {
    for way in ways() {
        let peer = Peer::new().await;
        let (backend, mut conn) = peer.open(patient()).await;
        let name = name("a");
        let (failed, ()) = tokio::join!(backend.send(&name, message(None)), async {
            let call = conn.call().await;
            answer(&mut conn, call, &way).await;
        });
        let error = failed.unwrap().remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{way:?}: {error:?}");
        assert!(error.is_in_doubt(), "{way:?}: {error:?}");
        // It is not made again.
        purge(&backend, &peer, &mut conn, matches!(way, Way::GoAway(_))).await;
    }
}

#[tokio::test]
async fn one_that_comes_to_nothing_is_asked_for_again_where_that_does_no_harm() {
    for way in ways() {
        let peer = Peer::new().await;
        let (backend, mut conn) = peer.open(patient()).await;
        let name = name("a");
        let (sent, ()) = tokio::join!(backend.send(&name, message(Some("key"))), async {
            let call = conn.call().await;
            answer(&mut conn, call, &way).await;
            let is_over = matches!(way, Way::GoAway(_));
            let call = next(&peer, &mut conn, is_over, "SendBatch").await;
            let sent = BatchResult::Sent(Sent { msg_id: "id".to_owned(), duplicate: true });
            call.reply(Reply::SentBatch(SentBatch { results: vec![sent] }));
        });
        assert!(sent.unwrap().remove(0).is_ok(), "{way:?}");
    }
}
