//! gRPC as strangers speak it: what is wrong with a call is said in the words of the table, and
//! counted.

use bytes::{BufMut, Bytes, BytesMut};
use mailbox_wire::json::{RevokeRequest, Revoked};
use mailbox_wire::proto::v1::{RecvRequest, RecvStreamResponse, SendRequest};
use tonic::Code;

use crate::rig::{Client, Rig, framed, head, receive, until};

const SEND: &str = "/mailbox.v1.Mailbox/Send";

fn prefixed(flag: u8, len: u32, rest: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(flag);
    bytes.put_u32(len);
    bytes.put_slice(rest);
    bytes.freeze()
}

/// What a counter says.
async fn count(client: &mut Client, series: &str) -> u64 {
    let text = client.get("/metrics").await.text();
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

/// The library calls the mistakes of clients defects of the service.
#[tokio::test]
async fn what_is_wrong_with_a_message_is_said_and_counted() {
    let served = Rig::new().start().await;
    let client = served.h2_client(1 << 16).await;
    let mut observer = served.client().await;
    let good = SendRequest { topic: "jobs".to_owned(), ..SendRequest::default() };
    let twice = [framed(&good), framed(&good)].concat();
    let cases = [
        ("no message", Bytes::new(), Code::InvalidArgument),
        ("half a prefix", Bytes::from_static(b"\0\0"), Code::InvalidArgument),
        ("half a message", prefixed(0, 6, b"ab"), Code::InvalidArgument),
        ("two messages", twice.into(), Code::InvalidArgument),
        ("garbage", prefixed(0, 3, b"\xff\xff\xff"), Code::InvalidArgument),
        ("compressed, nobody knows how", prefixed(1, 3, b"abc"), Code::InvalidArgument),
        ("no flag", prefixed(7, 3, b"abc"), Code::InvalidArgument),
        ("too large", prefixed(0, 1 << 30, b"abc"), Code::ResourceExhausted),
    ];
    for (what, body, expected) in cases {
        let (reason, word) = match expected {
            Code::ResourceExhausted => ("oversize", "E_FRAME_TOO_LARGE"),
            _ => ("schema", "E_SCHEMA"),
        };
        let series = format!("rejected_total{{reason=\"{reason}\"}}");
        let before = count(&mut observer, &series).await;
        let (code, problem) = client.call(SEND, &served.operator, body).await.status().await;
        assert_eq!(code, expected, "{what}");
        assert_eq!(problem.expect(what).code, word, "{what}");
        assert_eq!(count(&mut observer, &series).await, before + 1, "{what}");
    }
    let (code, _) = client.call(SEND, &served.operator, framed(&good)).await.status().await;
    assert_eq!(code, Code::Ok);
}

#[tokio::test]
async fn what_is_not_known_is_not_implemented() {
    let served = Rig::new().start().await;
    let client = served.h2_client(1 << 16).await;
    let mut observer = served.client().await;
    let body = framed(&SendRequest { topic: "jobs".to_owned(), ..SendRequest::default() });
    let nope = "/mailbox.v1.Mailbox/Nope";
    let mut call = client.call(nope, &served.operator, body.clone()).await;
    let (code, problem) = call.status().await;
    assert_eq!((code, problem.unwrap().reason.as_deref()), (Code::Unimplemented, Some("method")));
    let (code, _) = client.call(nope, "", body.clone()).await.status().await;
    assert_eq!(code, Code::Unauthenticated, "not before it is known who asks");

    let mut request = crate::rig::grpc(SEND, &served.operator);
    request.headers_mut().insert("grpc-encoding", "gzip".parse().unwrap());
    let mut call = client.try_ask(request, body, true).await.unwrap();
    assert_eq!(call.answer.headers()["grpc-accept-encoding"], "identity");
    let (code, problem) = call.status().await;
    assert_eq!((code, problem.unwrap().reason.as_deref()), (Code::Unimplemented, Some("encoding")));
    assert_eq!(count(&mut observer, "rejected_total{reason=\"schema\"}").await, 2);
}

/// A stream is answered when it begins; that it failed later was counted nowhere.
#[tokio::test]
async fn streams_that_end_with_a_failure_are_counted() {
    let served = Rig::new().start().await;
    let mut observer = served.client().await;
    let capability = served.mint(&["op = recv"]);
    let client = served.h2_client(1 << 16).await;
    let question = RecvRequest { topic: "jobs".to_owned(), ..RecvRequest::default() };
    let path = "/mailbox.v1.Mailbox/RecvStream";
    let mut stream = client.call(path, &capability, framed(&question)).await;
    let mut lines = served.client_with(&capability).await.connection;
    let question = serde_json::to_string(&receive("jobs", 1, 30_000)).unwrap();
    let (bearer, len) = (format!("Bearer {capability}"), question.len().to_string());
    let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
    lines.write(head("POST", "/v1/recv/stream", &headers) + &question).await.unwrap();
    assert_eq!(lines.reply_head().await.unwrap().status, 200);
    let question = RevokeRequest { capability: Some(capability), ..RevokeRequest::default() };
    observer.post("/v1/caps/revoke", &question).await.good::<Revoked>();
    while stream.message::<RecvStreamResponse>().await.unwrap().is_some() {}
    assert_eq!(stream.status().await.0, Code::Unauthenticated);
    until("both are counted", async || {
        count(&mut observer, "auth_failures_total{op=\"recv\"}").await == 2
            && count(&mut observer, "rejected_total{reason=\"unauth\"}").await == 2
    })
    .await;
}

/// A service with a bound on what is asked had none over gRPC.
#[tokio::test]
async fn no_request_is_larger_than_a_body_may_be() {
    let served = Rig::new().with(|config| config.limits.body = 64 * 1024).start().await;
    let client = served.h2_client(1 << 16).await;
    for (len, expected) in [(60_000, Code::Ok), (70_000, Code::ResourceExhausted)] {
        let payload = vec![7; len].into();
        let question = SendRequest { topic: "jobs".to_owned(), payload, ..SendRequest::default() };
        let mut call = client.call(SEND, &served.operator, framed(&question)).await;
        let (code, problem) = call.status().await;
        assert_eq!(code, expected, "{len}: {problem:?}");
    }
}
