//! Requests that make no sense: each is refused in the same shape, and none is half understood.

use std::collections::BTreeSet;

use mailbox_wire::json::Sent;
use serde_json::{Value, json};

use crate::rig::{Rig, head};

/// Every call with a body, and a body that is good but for what a test adds.
fn shapes() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("POST", "/v1/send", json!({"topic": "jobs", "payload_b64": "aGk="})),
        ("POST", "/v1/send/batch", json!({"topic": "jobs", "messages": []})),
        ("POST", "/v1/recv", json!({"topic": "jobs"})),
        ("POST", "/v1/recv/stream", json!({"topic": "jobs"})),
        ("POST", "/v1/ack/x", json!({})),
        ("POST", "/v1/nack/x", json!({})),
        ("POST", "/v1/extend/x", json!({"visibility_ms": 1000})),
        ("POST", "/v1/settle/batch", json!({"items": []})),
        ("PUT", "/v1/topics/jobs", json!({})),
        ("POST", "/v1/topics/jobs/lookup", json!({"msg_ids": []})),
        ("POST", "/v1/dlq/reprocess", json!({"topic": "jobs"})),
        ("POST", "/v1/dlq/delete", json!({"topic": "jobs"})),
        ("POST", "/v1/caps/mint", json!({"ops": ["send"]})),
        ("POST", "/v1/caps/revoke", json!({"token_id": "nobody"})),
        ("POST", "/v1/caps/rotate", json!({"grace_s": 3600})),
    ]
}

/// Calls with a body in the OpenAPI document.
fn documented() -> BTreeSet<(String, String)> {
    let document: Value = serde_json::from_str(&mailbox_server::openapi()).unwrap();
    let mut calls = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, call) in methods.as_object().unwrap() {
            if call.get("requestBody").is_some() {
                let path = path.replace("{topic}", "jobs").replace("{msg_id}", "x");
                calls.insert((method.to_uppercase(), path));
            }
        }
    }
    calls
}

#[test]
fn every_documented_call_with_a_body_is_tried_here() {
    let tried = shapes().into_iter().map(|(method, path, _)| (method.into(), path.into()));
    assert_eq!(tried.collect::<BTreeSet<(String, String)>>(), documented());
}

#[tokio::test]
async fn a_field_that_is_not_known_is_refused_in_every_request() {
    let served = Rig::new().start().await;
    for (method, path, mut shape) in shapes() {
        let mut client = served.client().await;
        shape["unheard_of"] = json!(1);
        let body = serde_json::to_vec(&shape).unwrap();
        let problem = client.raw(method, path, &[], &body).await.bad(400, "E_SCHEMA");
        assert!(problem.message.contains("unheard_of"), "{path}: {}", problem.message);
    }
    let mut client = served.client().await;
    for (method, path, body) in [
        (
            "POST",
            "/v1/send/batch",
            json!({"messages": [{"topic": "jobs", "payload_b64": "", "x": 1}]}),
        ),
        ("POST", "/v1/settle/batch", json!({"items": [{"op": "ack", "msg_id": "x", "x": 1}]})),
        ("PUT", "/v1/topics/jobs", json!({"retention": {"x": 1}})),
    ] {
        let body = serde_json::to_vec(&body).unwrap();
        client.raw(method, path, &[], &body).await.bad(400, "E_SCHEMA");
    }
    for path in
        ["/v1/topics?x=1", "/v1/topics/jobs/peek?x=1", "/v1/dlq/jobs?x=1", "/v1/messages/x?x=1"]
    {
        client.get(path).await.bad(400, "E_SCHEMA");
    }
    assert!(client.receive("jobs", 10, 30_000).await.is_empty());
}

#[tokio::test]
async fn a_field_that_is_there_twice_is_refused_in_every_request() {
    let served = Rig::new().start().await;
    for (method, path, shape) in shapes() {
        let Some((key, value)) = shape.as_object().unwrap().iter().next() else { continue };
        let text = shape.to_string();
        let body = format!("{{\"{key}\":{value},{}", &text[1..]);
        let mut client = served.client().await;
        client.raw(method, path, &[], body.as_bytes()).await.bad(400, "E_SCHEMA");
    }
    let mut client = served.client().await;
    let body = br#"{"topic":"jobs","payload_b64":"aGk=","attrs":{"a":"1","a":"2"}}"#;
    client.raw("POST", "/v1/send", &[], body).await.bad(400, "E_SCHEMA");
}

#[tokio::test]
async fn what_is_no_object_is_no_request() {
    let served = Rig::new().start().await;
    for (method, path, shape) in shapes() {
        let values: Vec<&Value> = shape.as_object().unwrap().values().collect();
        let listed = serde_json::to_string(&values).unwrap();
        for body in ["null", "7", "true", "\"jobs\"", "[]", "[[]]", "{", "}", "nonsense", &listed] {
            let mut client = served.client().await;
            let reply = client.raw(method, path, &[], body.as_bytes()).await;
            assert_eq!(reply.status, 400, "{path} took {body}: {}", reply.text());
            reply.bad(400, "E_SCHEMA");
        }
    }
}

#[tokio::test]
async fn values_of_the_wrong_type_are_refused() {
    let served = Rig::new().start().await;
    for (method, path, shape) in shapes() {
        for key in shape.as_object().unwrap().keys() {
            for wrong in [json!({"a": 1}), json!(-1), json!(1.5), json!(true), json!([[1]])] {
                let mut body = shape.clone();
                body[key] = wrong;
                let mut client = served.client().await;
                let text = body.to_string();
                let reply = client.raw(method, path, &[], text.as_bytes()).await;
                assert_eq!(reply.status, 400, "{path} took {text}: {}", reply.text());
                reply.bad(400, "E_SCHEMA");
            }
        }
    }
    let mut client = served.client().await;
    for body in [
        r#"{"topic":"jobs","payload_b64":"aGk"}"#,
        r#"{"topic":"jobs","payload_b64":"a-_="}"#,
        r#"{"topic":"no spaces","payload_b64":""}"#,
        r#"{"topic":"","payload_b64":""}"#,
        r#"{"topic":"jobs","payload_b64":"","attrs":{"a":1}}"#,
        r#"{"topic":"jobs","payload_b64":"","attrs":{"mailbox.x":"1"}}"#,
        r#"{"topic":"jobs","payload_b64":"","idem_key":""}"#,
        r#"{"topic":"jobs","payload_b64":"","corr_id":"no uuid"}"#,
        r#"{"topic":"jobs","payload_b64":"","delay_ms":43200001}"#,
        r#"{"topic":"jobs","payload_b64":"","delay_ms":18446744073709551616}"#,
        r#"{"topic":"jobs","payload_b64":""} {}"#,
    ] {
        client.raw("POST", "/v1/send", &[], body.as_bytes()).await.bad(400, "E_SCHEMA");
    }
    assert!(client.receive("jobs", 10, 30_000).await.is_empty());
}

#[tokio::test]
async fn documents_that_are_nested_deeply_are_refused() {
    let served = Rig::new().start().await;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [129, 10_000, 1_000_000] {
            let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            for body in [deep.clone(), format!("{{\"topic\":\"jobs\",\"attrs\":{deep}}}")] {
                let mut client = served.client().await;
                let reply = client.raw("POST", "/v1/send", &[], body.as_bytes()).await;
                reply.bad(400, "E_SCHEMA");
            }
        }
    }
    served.client().await.send("jobs", "alive").await;
}

#[tokio::test]
async fn bodies_are_taken_as_they_are() {
    let served = Rig::new().start().await;
    let body = br#"{"topic":"jobs","payload_b64":"aGk="}"#;
    for coding in ["gzip", "deflate", "br", "zstd", "gzip, identity", "x"] {
        let mut client = served.client().await;
        let headers = [("content-encoding", coding)];
        client.raw("POST", "/v1/send", &headers, body).await.bad(400, "E_SCHEMA");
    }
    let mut client = served.client().await;
    let headers = [("content-encoding", "identity")];
    client.raw("POST", "/v1/send", &headers, body).await.good::<Sent>();
}

/// A request hidden behind another: what one reader takes for a body, another takes for a request.
fn smuggled(bearer: &str, first: &str, second: &str) -> String {
    let hidden = head("DELETE", "/v1/topics/jobs", &[("authorization", bearer)]);
    let outer = "POST /v1/topics/other/purge HTTP/1.1\r\nhost: x\r\n";
    format!("{outer}authorization: {bearer}\r\n{first}\r\n{second}\r\n\r\n0\r\n\r\n{hidden}")
}

/// Such a request is read in chunks, as RFC 9112 allows, and the connection closed behind it:
/// whatever somebody in between has taken it for, nothing that it hides is carried out.
#[tokio::test]
async fn a_request_with_a_length_beside_chunks_hides_no_other() {
    let both = [
        ("content-length: 5", "transfer-encoding: chunked"),
        ("transfer-encoding: chunked", "content-length: 5"),
    ];
    let served = Rig::new().start().await;
    served.client().await.send("jobs", "stays").await;
    let bearer = format!("Bearer {}", served.operator);
    for (first, second) in both {
        let mut connection = served.connection().await;
        connection.write(smuggled(&bearer, first, second)).await.unwrap();
        connection.reply().await.expect("an answer");
        assert!(connection.reply().await.is_err(), "{first}, {second}: the connection goes on");
        assert_eq!(served.client().await.stats("jobs").await.ready, 1, "{first}, {second}");
    }
}

#[tokio::test]
async fn a_request_whose_length_is_ambiguous_is_refused_and_nothing_behind_it_is_read() {
    let ambiguous = [
        ("content-length: 5", "content-length: 300"),
        ("content-length: 5, 300", "x: y"),
        ("content-length: +5", "x: y"),
        ("content-length: 0x5", "x: y"),
        ("content-length: -1", "x: y"),
        ("content-length:", "x: y"),
        ("transfer-encoding: chunked, identity", "x: y"),
        ("transfer-encoding: xchunked", "content-length: 5"),
        ("transfer-encoding : chunked", "x: y"),
        ("transfer-encoding: chunked", " folded: y"),
        ("bad name: y", "x: y"),
        ("x: a\rb", "x: y"),
        ("x: a\0b", "x: y"),
    ];
    assert_refused(&ambiguous).await;
}

async fn assert_refused(ambiguous: &[(&str, &str)]) {
    let served = Rig::new().start().await;
    served.client().await.send("jobs", "stays").await;
    let bearer = format!("Bearer {}", served.operator);
    let mut taken = Vec::new();
    for (first, second) in ambiguous {
        let mut connection = served.connection().await;
        connection.write(smuggled(&bearer, first, second)).await.unwrap();
        let reply = connection.reply().await.expect("an answer");
        let is_over = connection.reply().await.is_err();
        if reply.status != 400 || !is_over {
            taken.push((first, second, reply.status, is_over));
        }
        assert_eq!(served.client().await.stats("jobs").await.ready, 1, "{first}, {second}");
    }
    assert!(taken.is_empty(), "taken: {taken:?}");
}

#[tokio::test]
async fn every_error_says_the_same_things_and_answers_name_the_call() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let mine = [("x-corr-id", "my-own-id")];
    let reply = client.raw("POST", "/v1/recv", &mine, b"{}").await;
    assert_eq!(reply.bad(400, "E_SCHEMA").corr_id, "my-own-id");
    let reply = client.raw("GET", "/v1/topics", &mine, b"").await;
    assert_eq!((reply.status, reply.header("x-corr-id")), (200, Some("my-own-id")));
    // One that cannot be echoed is replaced.
    let long = "x".repeat(129);
    let reply =
        client.raw("GET", "/v1/messages/none?topic=jobs", &[("x-corr-id", &long)], b"").await;
    assert_eq!(reply.bad(404, "E_NOT_FOUND").corr_id.len(), 36);
    client.get("/nothing").await.bad(404, "E_NOT_FOUND");
    client.get("/v1/send").await.bad(405, "E_SCHEMA");
    client.get("/v1/topics/%ff").await.bad(400, "E_SCHEMA");
    client.get("/v1/topics/no%20spaces").await.bad(400, "E_SCHEMA");
    client.get("/v1/topics?limit=0").await.bad(400, "E_SCHEMA");
    client.get("/v1/topics?limit=x").await.bad(400, "E_SCHEMA");
    client.ack("x", Some("jobs/none")).await.bad(404, "E_RECEIPT");
    served.connection().await.call("GET", "/v1/topics", &[], b"").await.refused(401, "missing");
    // Without an id one is made, and it is another one every time.
    let ids = [client.get("/v1/topics").await, client.get("/healthz").await];
    let ids = ids.map(|reply| reply.header("x-corr-id").unwrap().to_owned());
    assert_ne!(ids[0], ids[1]);
}
