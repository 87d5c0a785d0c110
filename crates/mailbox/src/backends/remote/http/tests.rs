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
    let others = [(500, true), (502, true), (507, true), (302, true), (404, false)];
    let others = others.map(|(status, is_in_doubt)| {
        let kind = if is_in_doubt { ErrorKind::Connection } else { ErrorKind::NotFound };
        (status, page(), kind, is_in_doubt)
    });
    for (status, body, kind, is_in_doubt) in
        [of_the_store, of_the_request].into_iter().chain(others)
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
