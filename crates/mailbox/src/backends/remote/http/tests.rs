//! Against somebody who answers as told, whatever that is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::backend::{Backend, Outgoing};
use crate::backends::remote::{RemoteBackend, RemoteConfig, idle};
use crate::error::ErrorKind;
use crate::name::Name;

const ABILITIES: &str = r#"{"backend":"peer","durable":true,"ordered":true,"exact_count":true,
    "totals":true,"idempotency":true,"groups":true,"undo":true,"strict_deadlines":true,
    "resolution_ms":1,"max_messages":256,"max_payload":1048576,"max_delay_ms":1000,
    "max_body":1048576}"#;

/// With time for another attempt.
fn patient() -> RemoteConfig {
    RemoteConfig::default().with_patience(Duration::from_secs(20))
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    (listener, place)
}

/// Reads a request, all of it.
async fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "it was closed after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let len = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() == len.map_or(0, |len| len.parse().unwrap()) {
            return text;
        }
    }
}

/// A client that was answered once. Its next call is on another connection.
async fn open() -> (Arc<RemoteBackend>, TcpListener) {
    open_with(patient()).await
}

async fn open_with(config: RemoteConfig) -> (Arc<RemoteBackend>, TcpListener) {
    let (listener, place) = listener().await;
    let url = format!("http://{place}");
    let (backend, ()) = tokio::join!(RemoteBackend::open_with(&url, config), async {
        let mut stream = listener.accept().await.unwrap().0;
        assert!(request(&mut stream).await.starts_with("GET /v1/abilities"));
        let len = ABILITIES.len();
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n");
        stream.write_all((head + ABILITIES).as_bytes()).await.unwrap();
    });
    (backend.unwrap(), listener)
}

#[tokio::test]
async fn what_does_not_speak_http_is_said_so_at_once() {
    // A frame of OAP/1, which says that there was a fault; and anything.
    for text in [&b"\0\0\0\x28\0\x01\0\x02\x01\x90\0\0\0\0\0\0\0\0"[..], b"SSH-2.0-server\r\n"] {
        let (listener, place) = listener().await;
        let url = format!("http://{place}");
        let (opened, _stream) = tokio::join!(RemoteBackend::open_with(&url, patient()), async {
            let mut stream = listener.accept().await.unwrap().0;
            request(&mut stream).await;
            stream.write_all(text).await.unwrap();
            stream
        });
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{error:?}");
        assert!(error.to_string().contains("does not speak HTTP"), "{error}");
    }
}

#[tokio::test]
async fn what_does_not_speak_tls_is_said_so_at_once() {
    let others = [("grpcs", cfg!(feature = "grpc")), ("oaps", cfg!(feature = "oap"))];
    for (scheme, _) in [("https", true)].into_iter().chain(others).filter(|(_, is_built)| *is_built)
    {
        let (listener, place) = listener().await;
        let url = format!("{scheme}://{place}");
        let (opened, _stream) = tokio::join!(RemoteBackend::open_with(&url, patient()), async {
            let mut stream = listener.accept().await.unwrap().0;
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            stream
        });
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParameter, "{scheme}: {error:?}");
        assert!(error.to_string().contains("does not speak TLS"), "{error}");
    }
}

/// Somebody who has answered before has carried out what was asked, whatever comes of the answer.
#[tokio::test]
async fn an_answer_that_makes_no_sense_leaves_a_send_in_doubt() {
    let no_json = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{]".to_owned();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 65 << 20);
    let huge = head + &" ".repeat(65 << 20);
    for answer in ["SSH-2.0-server\r\n".to_owned(), no_json, huge] {
        let (backend, listener) = open().await;
        let name = Name::parse("a").unwrap();
        let message = vec![Outgoing::new(Bytes::from_static(b"x"))];
        let (failed, _stream) = tokio::join!(backend.send(&name, message), async {
            let mut stream = listener.accept().await.unwrap().0;
            assert!(request(&mut stream).await.starts_with("POST /v1/send/batch"));
            // Not all of it, if it is too much.
            let _ = stream.write_all(answer.as_bytes()).await;
            stream
        });
        let error = failed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
        assert!(error.to_string().contains("in doubt"), "{error}");
    }
}

/// A disk fails after it has written as well as before; and whoever stands before a service and
/// says that something broke need not know how far the request went.
#[tokio::test]
async fn something_that_broke_leaves_a_send_in_doubt_and_a_refusal_does_not() {
    let problem = |kind: &str| {
        format!(r#"{{"code":"E_TEST","message":"{kind}","kind":"{kind}","corr_id":"x"}}"#)
    };
    let of_the_store = (500, problem("internal"), ErrorKind::Internal, true);
    let of_the_request = (400, problem("invalid_parameter"), ErrorKind::InvalidParameter, false);
    let page = || "<html>".to_owned();
    let broken = [500, 502, 507, 302, 408].map(|it| (it, page(), ErrorKind::Connection, true));
    // No message was not found, or is there twice, or damaged: the address leads elsewhere.
    let others = [400, 404, 405, 409, 410, 418, 422, 451];
    let others = others.map(|it| (it, page(), ErrorKind::InvalidParameter, false));
    let of_any_request = [
        (401, ErrorKind::Unauthorized),
        (403, ErrorKind::Forbidden),
        (413, ErrorKind::TooLarge),
        (414, ErrorKind::TooLarge),
        (429, ErrorKind::Saturated),
        (431, ErrorKind::TooLarge),
    ];
    let of_any_request = of_any_request.map(|(status, kind)| (status, page(), kind, false));
    let foreign = broken.into_iter().chain(others).chain(of_any_request);
    for (status, body, kind, is_in_doubt) in
        [of_the_store, of_the_request].into_iter().chain(foreign)
    {
        let (backend, listener) = open_with(RemoteConfig::default()).await;
        let name = Name::parse("a").unwrap();
        let message = vec![Outgoing::new(Bytes::from_static(b"x"))];
        let (failed, _stream) = tokio::join!(backend.send(&name, message), async {
            let mut stream = listener.accept().await.unwrap().0;
            request(&mut stream).await;
            let len = body.len();
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {len}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream
        });
        let error = failed.unwrap_err();
        assert_eq!((error.kind(), error.is_in_doubt()), (kind, is_in_doubt), "{status}: {error:?}");
    }
}

/// Messages that are too large for one request.
fn large(count: usize) -> Vec<Outgoing> {
    vec![Outgoing::new(Bytes::from(vec![b'x'; 600 * 1024])); count]
}

fn refused(kind: &str) -> String {
    let body = format!(r#"{{"code":"E_TEST","message":"{kind}","kind":"{kind}","corr_id":"x"}}"#);
    format!("HTTP/1.1 400 X\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// The others went out all the same: before the one that was to be sent again, and each waited for
/// a service that was gone for as long as the one before it.
#[tokio::test]
async fn after_a_part_that_has_to_be_sent_again_no_other_goes_out() {
    for (answer, kind, is_in_doubt) in [
        (String::new(), ErrorKind::Connection, true),
        (refused("saturated"), ErrorKind::Saturated, false),
        (refused("unauthorized"), ErrorKind::Unauthorized, false),
    ] {
        let (backend, listener) = open_with(RemoteConfig::default()).await;
        let service = tokio::spawn(async move {
            let mut paths = Vec::new();
            loop {
                let mut stream = listener.accept().await.unwrap().0;
                let text = request(&mut stream).await;
                paths.push(text.split_whitespace().nth(1).unwrap().to_owned());
                if paths.last().is_some_and(|path| path.ends_with("/purge")) {
                    return paths;
                }
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let name = Name::parse("a").unwrap();
        let results = backend.send(&name, large(3)).await.unwrap();
        let errors: Vec<_> = results.into_iter().map(|result| result.unwrap_err()).collect();
        assert!(errors.iter().all(|error| error.kind() == kind), "{errors:?}");
        let doubts: Vec<bool> = errors.iter().map(|error| error.is_in_doubt()).collect();
        assert_eq!(doubts, [is_in_doubt, false, false], "{errors:?}");
        // It is not answered.
        backend.purge(&name).await.unwrap_err();
        assert_eq!(service.await.unwrap(), ["/v1/send/batch", "/v1/topics/a/purge"]);
    }
}

#[tokio::test]
async fn a_part_that_is_refused_for_itself_is_nothing_to_the_others() {
    let (backend, listener) = open_with(RemoteConfig::default()).await;
    let name = Name::parse("a").unwrap();
    let (results, ()) = tokio::join!(backend.send(&name, large(3)), async {
        let mut stream = listener.accept().await.unwrap().0;
        for is_good in [true, false, true] {
            assert!(request(&mut stream).await.starts_with("POST /v1/send/batch"));
            let body = r#"{"results":[{"msg_id":"1","duplicate":false}]}"#;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let answer = if is_good { head + body } else { refused("forbidden") };
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let good: Vec<bool> = results.unwrap().iter().map(|result| result.is_ok()).collect();
    assert_eq!(good, [true, false, true]);
}

/// The answer was kept back until all of the request was read, which it never was.
#[tokio::test]
async fn an_answer_before_the_request_is_read_is_taken_at_once() {
    let (backend, listener) = open().await;
    let name = Name::parse("a").unwrap();
    // More than is read ahead by any system.
    let message = vec![Outgoing::new(Bytes::from(vec![b'x'; 24 << 20]))];
    let (failed, mut stream) = tokio::join!(backend.send(&name, message), async {
        let mut stream = listener.accept().await.unwrap().0;
        assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
        stream.write_all(refused("forbidden").as_bytes()).await.unwrap();
        stream
    });
    let error = failed.unwrap_err();
    assert_eq!((error.kind(), error.is_in_doubt()), (ErrorKind::Forbidden, false), "{error:?}");
    // The next call goes elsewhere, and nothing more is written here.
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        let mut other = listener.accept().await.unwrap().0;
        assert!(request(&mut other).await.starts_with("POST /v1/topics/a/purge"));
        other.write_all(refused("forbidden").as_bytes()).await.unwrap();
    });
    assert_eq!(purged.unwrap_err().kind(), ErrorKind::Forbidden);
    let (mut buffer, mut rest) = (vec![0; 1 << 20], 0);
    while let count @ 1.. = stream.read(&mut buffer).await.unwrap() {
        rest += count;
    }
    assert!(rest < 24 << 20, "{rest} bytes");
}

/// Answers everything, at once, on connections that are kept.
async fn serve(mut stream: TcpStream) {
    loop {
        let mut peeked = [0; 1];
        if stream.peek(&mut peeked).await.unwrap_or(0) == 0 {
            return;
        }
        let text = request(&mut stream).await;
        let body = match text.split_whitespace().nth(1).unwrap() {
            "/v1/abilities" => ABILITIES,
            "/v1/topics/a/purge" => r#"{"removed":7}"#,
            "/v1/send/batch" => r#"{"results":[{"msg_id":"1","duplicate":false}]}"#,
            "/v1/recv" => r#"{"messages":[]}"#,
            other => panic!("{other}"),
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all((head + body).as_bytes()).await;
    }
}

#[test]
fn a_runtime_that_is_idle_holds_up_nobody() {
    let mut service = tokio::runtime::Builder::new_multi_thread();
    let service = service.worker_threads(1).enable_all().build().unwrap();
    let (listener, place) = service.block_on(listener());
    service.spawn(async move {
        loop {
            tokio::spawn(serve(listener.accept().await.unwrap().0));
        }
    });
    idle::holds_up_nobody(&format!("http://{place}"));
}

/// The clock cannot count that far: it was a panic.
#[tokio::test]
async fn patience_may_be_without_end() {
    open_with(RemoteConfig::default().with_patience(Duration::MAX).with_timeout(Duration::MAX))
        .await;
}
