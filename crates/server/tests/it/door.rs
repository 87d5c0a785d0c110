//! Who gets in: nobody without a capability, nobody with one that was not made here, and everybody
//! as far as their capability goes.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mailbox_wire::capability::{Capability, KeyId, RootKey, TokenId};
use mailbox_wire::json::{SendBatchRequest, Topics};
use serde_json::Value;

use crate::rig::{Client, Dice, Rig, Served, caveats, message, receive, send, soon};

/// Every method that could do something.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "PATCH"];
/// What everybody may ask.
const OPEN: [&str; 4] = ["/healthz", "/readyz", "/openapi.json", "/metrics"];

fn paths() -> Vec<String> {
    let document: Value = serde_json::from_str(&mailbox_server::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap().keys();
    paths.map(|path| path.replace("{topic}", "jobs").replace("{msg_id}", "x")).collect()
}

#[tokio::test]
async fn nothing_works_without_a_capability_but_asking_how_the_service_is() {
    let served = Rig::new().start().await;
    served.client().await.send("jobs", "secret").await;
    let all = paths();
    assert!(all.len() > 20, "{all:?}");
    for path in all.iter().filter(|path| !OPEN.contains(&path.as_str())) {
        for method in METHODS {
            for body in ["", "{}", r#"{"topic":"jobs","payload_b64":""}"#] {
                let mut connection = served.connection().await;
                let reply = connection.call(method, path, &[], body.as_bytes()).await;
                match reply.status {
                    405 => drop(reply.bad(405, "E_SCHEMA")),
                    _ => drop(reply.refused(401, "missing")),
                }
            }
        }
    }
    for path in ["/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(served.connection().await.call("GET", path, &[], b"").await.status, 200);
    }
    let stats = served.client().await.stats("jobs").await;
    assert_eq!((stats.ready, stats.totals.sent, stats.totals.delivered), (1, 1, 0));
}

#[tokio::test]
async fn something_else_than_one_bearer_is_no_capability() {
    let served = Rig::new().start().await;
    let good = served.operator.as_str();
    let bearer = format!("Bearer {good}");
    let mut connection = served.connection().await;
    let twice = [("authorization", bearer.as_str()), ("authorization", bearer.as_str())];
    connection.call("GET", "/v1/topics", &twice, b"").await.refused(401, "malformed");
    for value in [
        "",
        "Bearer",
        "Bearer ",
        good,
        &format!("Basic {good}"),
        &format!("Bearer {good}="),
        &format!("Bearer {good} {good}"),
        &format!("Bearer{good}"),
        &format!("Bearer {}", "A".repeat(8000)),
    ] {
        let headers = [("authorization", value)];
        let reply = connection.call("GET", "/v1/topics", &headers, b"").await;
        reply.refused(401, "malformed");
    }
    let headers = [("authorization", bearer.as_str())];
    assert_eq!(connection.call("GET", "/v1/topics", &headers, b"").await.status, 200);
}

/// What forgers have: capabilities of this service that allow little, and keys of their own.
struct Forger {
    dice: Dice,
    real: Vec<Vec<u8>>,
}

impl Forger {
    fn new(served: &Served) -> Self {
        let lists: [&[&str]; 4] = [
            &["op = send", "topic = mine"],
            &["op = recv,ack", "topic = mine:*", "max_bytes = 10"],
            &["op = send", "tenant = a", "ip = 10.0.0.0/8"],
            &["op = nack", "rate = 1/h"],
        ];
        let real = lists.iter().map(|list| URL_SAFE_NO_PAD.decode(served.mint(list)).unwrap());
        Self { dice: Dice(11), real: real.collect() }
    }

    fn forge(&mut self) -> String {
        let mut bytes = self.dice.pick(&self.real).clone();
        match self.dice.below(6) {
            0 => self.mutate(&mut bytes),
            1 => self.strip(&mut bytes),
            2 => bytes = self.splice(&bytes),
            3 => bytes = self.mint(),
            4 => bytes.truncate(self.dice.below(bytes.len())),
            _ => return self.mutated_text(&bytes),
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Something in it is another: the identifier, a caveat or the tag, but not the location, which
    /// means nothing.
    fn mutate(&mut self, bytes: &mut [u8]) {
        let location = "mailbox".len() + 3;
        for _ in 0..=self.dice.below(3) {
            let at = location + self.dice.below(bytes.len() - location);
            bytes[at] ^= 1 << self.dice.below(8);
        }
    }

    /// A caveat is cut out.
    fn strip(&mut self, bytes: &mut Vec<u8>) {
        let caveats: Vec<_> =
            (0..bytes.len() - 36).filter(|&at| bytes[at..].starts_with(&[0, 2])).collect();
        let start = *self.dice.pick(&caveats);
        let len = 2 + 1 + usize::from(bytes[start + 2]);
        if start + len < bytes.len() {
            bytes.drain(start..start + len);
        }
    }

    /// Caveats of one, the tag of another.
    fn splice(&mut self, bytes: &[u8]) -> Vec<u8> {
        let other = self.dice.pick(&self.real).clone();
        let tag = other.len() - 32;
        let mut spliced = bytes[..bytes.len() - 32].to_vec();
        spliced.extend_from_slice(&other[tag..]);
        if spliced == bytes {
            spliced[0] ^= 0xff;
        }
        spliced
    }

    /// All that one could wish for, with a key of one's own.
    fn mint(&mut self) -> Vec<u8> {
        let real = Capability::from_bytes(&self.real[0]).unwrap();
        let key = RootKey::from_bytes([self.dice.roll() as u8; RootKey::LEN]);
        let kid: KeyId = real.kid().clone();
        let id: TokenId = format!("forged-{}", self.dice.roll()).parse().unwrap();
        let mut all = caveats(&["op = send,recv,ack,nack,admin"]);
        all.push(soon(Duration::from_secs(3600)));
        Capability::mint(&key, &kid, &id, &all).unwrap().as_bytes().to_vec()
    }

    fn mutated_text(&mut self, bytes: &[u8]) -> String {
        let mut text = URL_SAFE_NO_PAD.encode(bytes).into_bytes();
        let at = 16 + self.dice.below(text.len() - 16);
        let other = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.~+/ =";
        let before = text[at];
        while text[at] == before {
            text[at] = *self.dice.pick(other);
        }
        String::from_utf8(text).unwrap()
    }
}

const FORGED: usize = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_forged_capability_gets_in() {
    let served = Rig::new().start().await;
    let mut forger = Forger::new(&served);
    let mut connection = served.connection().await;
    let mut reasons = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..FORGED {
        let forged = forger.forge();
        let real = forger.real.iter().any(|real| URL_SAFE_NO_PAD.encode(real) == forged);
        if real {
            continue;
        }
        let bearer = format!("Bearer {forged}");
        let headers = [("authorization", bearer.as_str())];
        let reply = connection
            .call("POST", "/v1/send", &headers, br#"{"topic":"mine","payload_b64":""}"#)
            .await;
        let problem = reply.bad(401, "E_CAP_AUTH");
        *reasons.entry(problem.reason.expect("a reason")).or_default() += 1;
        let is_repeated = forged.len() > 20 && reply.text().contains(&forged[..20]);
        assert!(!is_repeated, "it is repeated to whoever asks");
    }
    let known: Vec<&str> = reasons.keys().map(String::as_str).collect();
    assert_eq!(known, ["bad_signature", "malformed"]);
    assert!(reasons.values().all(|count| *count > FORGED / 10), "{reasons:?}");
    // The real ones are as good as before.
    let mut client = served.client().await;
    assert_eq!(client.stats("mine").await.totals.sent, 0);
    let real = URL_SAFE_NO_PAD.encode(&forger.real[0]);
    served.client_with(&real).await.send("mine", "hello").await;
}

/// A capability that allows this, and no more.
async fn holder(served: &Served, texts: &[&str]) -> Client {
    served.client_with(&served.mint(texts)).await
}

#[tokio::test]
async fn a_capability_allows_its_operations_alone() {
    let served = Rig::new().start().await;
    let mut operator = served.client().await;
    for _ in 0..8 {
        operator.send("jobs", "one").await;
    }
    for allowed in ["send", "recv", "ack", "nack", "admin"] {
        let mut client = holder(&served, &[&format!("op = {allowed}")]).await;
        let held = operator.receive_one("jobs", 30_000).await;
        let replies = [
            ("send", client.try_send(&send("other", "one")).await),
            ("recv", client.try_receive(&receive("other", 1, 30_000)).await),
            ("ack", client.extend(&held, 30_000).await),
            ("nack", client.nack(&held, false).await),
            ("admin", client.get("/v1/topics/jobs").await),
            ("admin", client.get("/v1/topics").await),
            ("admin", client.get("/v1/topics/jobs/peek").await),
            ("admin", client.get("/v1/dlq/jobs").await),
            ("admin", client.reprocess("jobs").await),
            ("admin", client.raw("PUT", "/v1/topics/new", &[], b"{}").await),
            ("admin", client.raw("POST", "/v1/caps/mint", &[], br#"{"ops":["admin"]}"#).await),
        ];
        for (needed, reply) in replies {
            if needed == allowed {
                assert_eq!(reply.status, 200, "{allowed}: {}", reply.text());
            } else {
                reply.refused(403, "op");
            }
        }
    }
}

#[tokio::test]
async fn a_capability_makes_none_that_is_wider_than_itself() {
    let served = Rig::new().start().await;
    let mut client = holder(&served, &["op = admin,send", "tenant = a"]).await;
    let of_a = [("x-tenant", "a")];
    let wider = client.raw("POST", "/v1/caps/mint", &of_a, br#"{"ops":["recv"]}"#).await;
    wider.refused(403, "op");
    let mint = br#"{"ops":["send"],"ttl_s":31536000}"#;
    let made: mailbox_wire::json::Minted =
        client.raw("POST", "/v1/caps/mint", &of_a, mint).await.good();
    let made = Capability::decode(&made.capability).unwrap();
    let caveats: Vec<String> = made.caveat_texts().collect();
    assert!(caveats.iter().any(|caveat| caveat == "tenant = a"), "{caveats:?}");
    let ends = caveats.iter().filter(|caveat| caveat.starts_with("exp = ")).count();
    assert_eq!(ends, 2, "its own, and that of what it was made with: {caveats:?}");
}

#[tokio::test]
async fn looking_for_a_message_needs_the_same_as_looking_at_one() {
    let served = Rig::new().start().await;
    let sent = served.client().await.send("jobs", "one").await;
    let mut client = holder(&served, &["op = send"]).await;
    client.get(&format!("/v1/messages/{}?topic=jobs", sent.msg_id)).await.refused(403, "op");
    client.get(&format!("/v1/messages/{}", sent.msg_id)).await.refused(403, "op");
}

#[tokio::test]
async fn a_capability_that_has_expired_is_good_for_nothing_but_to_ask_what_the_store_can_do() {
    let served = Rig::new().start().await;
    let mut client =
        holder(&served, &["op = send,recv,ack,nack,admin", "exp = 2020-01-01T00:00:00Z"]).await;
    // That a client asks first, also one that comes to settle what it has received before.
    assert_eq!(client.get("/v1/abilities").await.status, 200);
    let is_open = |path: &str| OPEN.contains(&path) || path == "/v1/abilities";
    for path in paths().iter().filter(|path| !is_open(path)) {
        for method in METHODS {
            let body = if method == "PUT" { "{}" } else { r#"{"topic":"jobs"}"# };
            let reply = client.raw(method, path, &[], body.as_bytes()).await;
            let is_refused = matches!(reply.status, 400 | 401 | 404 | 405);
            assert!(is_refused, "{method} {path}: {} {}", reply.status, reply.text());
        }
    }
}

#[tokio::test]
async fn a_capability_allows_its_mailboxes_alone() {
    let served = Rig::new().start().await;
    let mut operator = served.client().await;
    for topic in ["orders", "orders-eu", "order", "Orders", "tenant-a:x", "tenant-ab:x"] {
        operator.send(topic, "one").await;
    }
    let all = "op = send,recv,ack,nack,admin";
    let cases: [(&str, &[&str], &[&str]); 2] = [
        ("topic = orders", &["orders"], &["orders-eu", "order", "Orders"]),
        (
            "topic = tenant-a:*",
            &["tenant-a:x", "tenant-a:y"],
            &["tenant-ab:x", "tenant-a", "orders"],
        ),
    ];
    for (caveat, inside, outside) in cases {
        let mut client = holder(&served, &[all, caveat]).await;
        for topic in inside {
            client.send(topic, "one").await;
            let message = client.receive_one(topic, 30_000).await;
            assert_eq!(client.ack_it(&message).await.status, 200);
            client.stats(topic).await;
        }
        for topic in outside {
            client.try_send(&send(topic, "one")).await.refused(403, "topic");
            client.try_receive(&receive(topic, 1, 30_000)).await.refused(403, "topic");
            client.post("/v1/recv/stream", &receive(topic, 1, 30_000)).await.refused(403, "topic");
            client.get(&format!("/v1/topics/{topic}")).await.refused(403, "topic");
            client.get(&format!("/v1/dlq/{topic}")).await.refused(403, "topic");
            client.reprocess(topic).await.refused(403, "topic");
        }
        // One of a batch that is not covered, and none of it is sent.
        let mut inner = message("one");
        inner.topic = Some(outside[0].to_owned());
        let question = SendBatchRequest {
            topic: Some(inside[0].to_owned()),
            messages: vec![message("one"), inner],
        };
        let before = operator.stats(inside[0]).await.totals.sent;
        client.post("/v1/send/batch", &question).await.refused(403, "topic");
        assert_eq!(operator.stats(inside[0]).await.totals.sent, before);
        // A delivery of a mailbox that it does not cover.
        let foreign = operator.receive("orders-eu", 1, 1000).await;
        for message in foreign {
            client.ack_it(&message).await.refused(403, "topic");
            client.ack(&message.msg_id, None).await.refused(403, "topic");
            assert_eq!(operator.nack(&message, false).await.status, 200);
        }
        let listed: Topics = client.get("/v1/topics").await.good();
        let listed: Vec<_> = listed.topics.iter().map(|entry| entry.topic.as_str()).collect();
        assert_eq!(listed, inside);
        client
            .raw("POST", "/v1/caps/mint", &[], br#"{"ops":["send"]}"#)
            .await
            .refused(403, "topic");
    }
}

#[tokio::test]
async fn a_capability_holds_for_its_address_tenant_and_size_alone() {
    let served = Rig::new().start().await;
    let one = send("jobs", "12345");
    holder(&served, &["op = send", "ip = 10.0.0.0/8"])
        .await
        .try_send(&one)
        .await
        .refused(403, "ip");
    holder(&served, &["op = send", "ip = 127.0.0.1"]).await.send("jobs", "12345").await;
    let mut client = holder(&served, &["op = send", "tenant = a"]).await;
    client.try_send(&one).await.refused(403, "tenant");
    client.post_with("/v1/send", &[("x-tenant", "b")], &one).await.refused(403, "tenant");
    assert_eq!(client.post_with("/v1/send", &[("x-tenant", "a")], &one).await.status, 200);
    let mut client = holder(&served, &["op = send", "max_bytes = 4"]).await;
    client.try_send(&one).await.refused(403, "bytes");
    client.send("jobs", "1234").await;
    let mut client =
        holder(&served, &["op = send", "nbf = 2999-01-01T00:00:00Z", "exp = 3000-01-01T00:00:00Z"])
            .await;
    client.try_send(&one).await.refused(401, "not_yet");
    let mut client = holder(&served, &["op = send", "exp = 2020-01-01T00:00:00Z"]).await;
    client.try_send(&one).await.refused(401, "expired");
    assert_eq!(served.client().await.stats("jobs").await.totals.sent, 3);
}

#[tokio::test]
async fn what_a_caller_says_of_itself_allows_nothing() {
    let served = Rig::new().start().await;
    let mut client = holder(&served, &["op = send", "topic = mine", "ip = 10.0.0.0/8"]).await;
    let headers =
        [("x-forwarded-for", "10.1.2.3"), ("forwarded", "for=10.1.2.3"), ("x-real-ip", "10.1.2.3")];
    client.post_with("/v1/send", &headers, &send("mine", "one")).await.refused(403, "ip");
}

#[tokio::test]
async fn a_capability_for_the_last_mailbox_sees_it_however_few_are_asked_for() {
    let served = Rig::new().start().await;
    let mut operator = served.client().await;
    for number in 0..60 {
        operator.send(&format!("other-{number}"), "one").await;
    }
    operator.send("zed", "one").await;
    let mut client = holder(&served, &["op = admin", "topic = zed"]).await;
    let seen: Topics = client.get("/v1/topics?limit=1").await.good();
    assert_eq!(seen.topics.len(), 1);
}

#[tokio::test]
async fn figures_are_for_this_machine_not_for_pages_that_pretend_to_be() {
    let served = Rig::new().start().await;
    let ask = |host: &str, more: &str| {
        format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\n{more}connection: close\r\n\r\n")
    };
    for host in ["localhost", "localhost:7600", "127.0.0.1:7600", "[::1]:7600", "127.9.9.9"] {
        let mut connection = served.connection().await;
        connection.write(ask(host, "")).await.unwrap();
        assert_eq!(connection.reply().await.unwrap().status, 200, "{host}");
    }
    let origin = "origin: http://localhost:7600\r\n";
    for (host, more) in
        [("mailbox.example:7600", ""), ("127.0.0.1.example", ""), ("localhost", origin)]
    {
        let mut connection = served.connection().await;
        connection.write(ask(host, more)).await.unwrap();
        connection.reply().await.unwrap().refused(401, "missing");
        // With a capability it does not matter what the service is called.
        let bearer = format!("authorization: Bearer {}\r\n{more}", served.operator);
        let mut connection = served.connection().await;
        connection.write(ask(host, &bearer)).await.unwrap();
        assert_eq!(connection.reply().await.unwrap().status, 200, "{host}");
    }
}

#[tokio::test]
async fn who_asks_comes_before_what_is_asked() {
    let served = Rig::new().start().await;
    for path in ["/v1/topics?limit=x", "/v1/topics/%ff", "/v1/dlq/jobs?nonsense=1"] {
        let reply = served.connection().await.call("GET", path, &[], b"").await;
        reply.refused(401, "missing");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{path}");
        served.client().await.get(path).await.bad(400, "E_SCHEMA");
    }
}
