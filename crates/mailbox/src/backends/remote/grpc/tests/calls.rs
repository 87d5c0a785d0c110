//! Calls and their answers.

use bytes::Bytes;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{BatchResult, Purged, Sent, SentBatch};
use tonic::{Code, Status};

use super::peer::{Conn, Peer, config, framed, name, patient, status, trailers};
use crate::backend::{Backend, Outgoing};
use crate::backends::remote::RemoteBackend;
use crate::backends::remote::certificate::Certificate;
use crate::error::{Error, ErrorKind};

#[tokio::test]
async fn a_call_has_the_capability_and_shows_it_to_nobody_else() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    let name = name("a");
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        let mut call = conn.call().await;
        assert_eq!(call.method, "PurgeTopic");
        assert_eq!(call.authorization.as_ref().unwrap(), "Bearer some-capability");
        let Request::Purge(asked) = call.asked(20).await else { panic!("a purge") };
        assert_eq!(asked.topic, "a");
        assert!(call.message().await.is_none());
        call.reply(Reply::Purged(Purged { removed: 7 }));
    });
    assert_eq!(purged.unwrap(), 7);
    let shown = format!("{backend:?}");
    assert!(!shown.contains("some-capability"), "{shown}");
}

#[tokio::test]
async fn what_goes_wrong_is_what_the_service_says_or_else_what_its_code_means() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    let name = name("a");
    for (refusal, kind, text) in [
        (status(Code::ResourceExhausted, "mailbox_full", None), ErrorKind::MailboxFull, "this is"),
        (status(Code::NotFound, "closed", None), ErrorKind::Connection, "this is closed"),
        (Status::unauthenticated("no"), ErrorKind::Unauthorized, "no mailbox service"),
        (Status::permission_denied("no"), ErrorKind::Forbidden, "no mailbox service"),
        (Status::unimplemented("no"), ErrorKind::Unsupported, "no mailbox service"),
        // No message was not found, or is there twice, or damaged: the address leads elsewhere.
        (Status::not_found("no"), ErrorKind::InvalidParameter, "no mailbox service"),
        (Status::already_exists("no"), ErrorKind::InvalidParameter, "no mailbox service"),
        (Status::data_loss("no"), ErrorKind::Connection, "in doubt"),
        (Status::unavailable("no"), ErrorKind::Connection, "in doubt"),
    ] {
        let (purged, ()) = tokio::join!(backend.purge(&name), async {
            conn.call().await.refuse(&refusal);
        });
        let error = purged.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

fn is_in_doubt(error: &Error) -> bool {
    let is_said = error.to_string().contains("in doubt");
    error.kind() == ErrorKind::Connection && is_said && error.is_in_doubt()
}

#[tokio::test]
async fn an_answer_to_something_else_leaves_it_in_doubt() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    let name = name("a");
    let (failed, ()) =
        tokio::join!(backend.send(&name, vec![Outgoing::new(Bytes::new())]), async {
            let sent = BatchResult::Sent(Sent { msg_id: "1".to_owned(), duplicate: false });
            let results = vec![sent.clone(), sent];
            conn.call().await.reply(Reply::SentBatch(SentBatch { results }));
        });
    let error = failed.unwrap().remove(0).unwrap_err();
    assert!(is_in_doubt(&error), "{error:?}");
}

/// The codec is the service's too, which says that a request is the caller's mistake. An answer is
/// not: the client once said `InvalidParameter`, of messages that had been sent.
#[tokio::test]
async fn an_answer_that_cannot_be_used_does_not_say_that_nothing_was_done() {
    // No protobuf; and one that is said to be longer than any.
    let garbage = framed(&[0xff; 9]);
    let huge = Bytes::from_static(&[0, 0xff, 0, 0, 0]);
    for (bytes, kind) in [(garbage, ErrorKind::Internal), (huge, ErrorKind::TooLarge)] {
        let peer = Peer::new().await;
        let (backend, mut conn) = peer.open(patient()).await;
        let name = name("a");
        let answer = async |conn: &mut Conn, method: &str| {
            let mut call = conn.call().await;
            assert_eq!(call.method, method);
            let mut stream = call.begin();
            stream.send_data(bytes.clone(), false).unwrap();
            stream.send_trailers(trailers(&Status::new(Code::Ok, ""))).unwrap();
        };
        let message = vec![Outgoing::new(Bytes::new())];
        let (failed, ()) =
            tokio::join!(backend.send(&name, message), answer(&mut conn, "SendBatch"));
        let error = failed.unwrap().remove(0).unwrap_err();
        assert!(is_in_doubt(&error), "{error:?}");
        // What changes nothing is not in doubt.
        let (failed, ()) = tokio::join!(backend.stats(&name), answer(&mut conn, "GetTopic"));
        let error = failed.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
    }
}

#[tokio::test]
async fn no_request_is_larger_than_a_service_takes() {
    const COUNT: usize = 9;

    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    let name = name("a");
    let payload = Bytes::from(vec![7; 1 << 20]);
    let batch = (0..COUNT).map(|_| Outgoing::new(payload.clone())).collect();
    let (sent, requests) = tokio::join!(backend.send(&name, batch), async {
        let (mut answered, mut requests) = (0, 0);
        while answered < COUNT {
            let mut call = conn.call().await;
            assert_eq!(call.method, "SendBatch");
            let message = call.message().await.unwrap();
            assert!(message.len() < 4 << 20, "{} bytes", message.len());
            let count = message.len() / payload.len();
            let sent = BatchResult::Sent(Sent { msg_id: "1".to_owned(), duplicate: false });
            call.reply(Reply::SentBatch(SentBatch { results: vec![sent; count] }));
            answered += count;
            requests += 1;
        }
        requests
    });
    assert!(sent.unwrap().iter().all(Result::is_ok));
    assert!((3..=COUNT).contains(&requests), "{requests}");
    // One by itself may be larger: a service takes what its store takes.
    // What can be sent has to get back.
    assert_eq!(backend.abilities().max_payload, 32 << 20);
}

#[tokio::test]
async fn a_message_by_itself_may_be_as_large_as_the_service_takes() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    let name = name("a");
    let payload = Bytes::from(vec![7; 9 << 20]);
    let (sent, ()) = tokio::join!(backend.send(&name, vec![Outgoing::new(payload)]), async {
        let mut call = conn.call().await;
        assert!(call.message().await.unwrap().len() > 9 << 20);
        let sent = BatchResult::Sent(Sent { msg_id: "1".to_owned(), duplicate: false });
        call.reply(Reply::SentBatch(SentBatch { results: vec![sent] }));
    });
    assert!(sent.unwrap()[0].is_ok());
}

/// It was tried again until patience was over, and then was said not to be there.
#[tokio::test]
async fn what_does_not_speak_http_2_under_tls_is_said_so_at_once() {
    let certificate = Certificate::new();
    let mut peer = Peer::new().await;
    let tls = certificate.acceptor(&["http/1.1"]);
    peer.tls = Some(tls.clone());
    let (url, config) = (peer.url(), patient().with_ca(certificate.path()));
    let (opened, ()) = tokio::join!(RemoteBackend::open_with(&url, config), async {
        assert!(tls.accept(peer.accept_raw().await).await.is_err());
    });
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{error:?}");
    assert!(error.to_string().contains("does not speak gRPC"), "{error}");
}

#[tokio::test]
async fn calls_go_over_tls() {
    let certificate = Certificate::new();
    let mut peer = Peer::new().await;
    peer.tls = Some(certificate.acceptor(&["h2", "http/1.1"]));
    let (backend, mut conn) = peer.open(config().with_ca(certificate.path())).await;
    let name = name("a");
    assert!(backend.address(&name).starts_with("grpcs://127.0.0.1:"));
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        conn.call().await.reply(Reply::Purged(Purged { removed: 7 }));
    });
    assert_eq!(purged.unwrap(), 7);
}
