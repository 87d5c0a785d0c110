//! Secrets stay secret: what capabilities, receipt handles, payloads and attributes say is in no
//! log line, in no error, and in nothing that is printed for debugging.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use mailbox::backends::journal::JournalConfig;
use mailbox::{Backend, Name, Outgoing, ReceiveOptions};
use mailbox_wire::json::{
    AckRequest, BatchMessage, Envelope, ExtendRequest, MintRequest, Minted, NackRequest, Received,
    RevokeRequest, SendRequest, SettleItem, SettleOp,
};
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use crate::rig::{Client, Dice, Rig, Served, head, journal, payload, receive, send};

const PAYLOAD: &str = "canary-payload-3fb1c9d2";
const ATTRIBUTE: &str = "canary-attribute-77aa01";

/// All that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// What must not be seen, each in every form it could be seen in.
pub(crate) struct Canaries(Vec<(&'static str, String)>);

impl Canaries {
    pub(crate) fn new() -> Self {
        let mut all = Self(Vec::new());
        all.add("payload", PAYLOAD);
        // However it is aligned.
        for at in 0..3 {
            all.add("payload", &STANDARD.encode(&PAYLOAD[at..PAYLOAD.len() - PAYLOAD.len() % 3]));
        }
        all.add("payload", &format!("{:?}", PAYLOAD.as_bytes()).replace(['[', ']'], ""));
        all.add("attribute", ATTRIBUTE);
        all
    }

    fn add(&mut self, what: &'static str, text: &str) {
        assert!(text.len() >= 16, "{text} may be anywhere");
        self.0.push((what, text.to_owned()));
    }

    /// A capability: its end is the tag, without which the rest is worth nothing.
    pub(crate) fn add_capability(&mut self, capability: &str) {
        self.add("capability", &capability[capability.len() - 40..]);
        let bytes = URL_SAFE_NO_PAD.decode(capability).unwrap();
        self.add(
            "capability",
            &format!("{:?}", &bytes[bytes.len() - 16..]).replace(['[', ']'], ""),
        );
    }

    pub(crate) fn add_handle(&mut self, handle: &str) {
        self.add("receipt handle", &handle[handle.len() - 24..]);
    }

    fn seen_in(&self, text: &str) -> Vec<&'static str> {
        let seen = self.0.iter().filter(|(_, canary)| text.contains(canary));
        seen.map(|(what, _)| *what).collect()
    }

    pub(crate) fn assert_not_in(&self, text: &str) {
        let seen = self.seen_in(text);
        assert!(seen.is_empty(), "{seen:?} in {text}");
    }
}

pub(crate) fn marked() -> SendRequest {
    SendRequest {
        attrs: [("mark".to_owned(), ATTRIBUTE.to_owned())].into(),
        idem_key: Some("k".to_owned()),
        ..send("jobs", PAYLOAD)
    }
}

/// Makes every kind of call go wrong, and gives all that was answered.
async fn errors(served: &Served, client: &mut Client, held: &Envelope) -> Vec<String> {
    let mut answers = Vec::new();
    let handle = held.receipt_handle.as_deref().unwrap();
    let json = serde_json::to_string(&marked()).unwrap();
    let wrong = [
        json.replace("\"topic\":\"jobs\"", "\"topic\":7"),
        json.replace("\"payload_b64\":\"", "\"payload_b64\":\"?"),
        json.replace("\"mark\":", "\"mailbox.mark\":"),
        json.replace("\"k\"", &format!("7,\"delay_ms\":\"{PAYLOAD}\"")),
        json.replace("\"k\"", &format!("\"k\",\"corr_id\":\"{ATTRIBUTE}\"")),
        json[..json.len() - 10].to_owned(),
        format!("{json}{json}"),
        format!("\"{PAYLOAD}\""),
        json.replace("\"k\"", &format!("\"{}\"", PAYLOAD.repeat(9))),
    ];
    for body in &wrong {
        for path in ["/v1/send", "/v1/recv", "/v1/settle/batch", "/v1/caps/mint"] {
            let reply = client.raw("POST", path, &[], body.as_bytes()).await;
            assert!(matches!(reply.status, 400 | 413), "{path} {body}");
            answers.push(reply.text());
        }
    }
    let other = SendRequest { payload_b64: payload("other"), ..marked() };
    answers.push(client.try_send(&other).await.text());
    answers.push(client.ack("x", Some(handle)).await.text());
    answers.push(client.ack("x", Some(&format!("other/{handle}"))).await.text());
    let mut dice = Dice(5);
    for _ in 0..20 {
        let mut forged = served.operator.clone().into_bytes();
        let at = dice.below(forged.len() - 50);
        forged[at] = b'A';
        let forged = String::from_utf8(forged).unwrap();
        answers.push(served.client_with(&forged).await.get("/v1/topics").await.text());
    }
    for path in ["/v1/topics/x?", "/v1/messages/", "/v1/dlq/jobs?after=", "/"] {
        answers.push(client.get(&format!("{path}{handle}")).await.text());
    }
    // Something that is no HTTP at all.
    let mut connection = served.connection().await;
    let _ = connection.write(format!("{PAYLOAD} {}\r\n\r\n", served.operator)).await;
    answers.extend(connection.reply().await.map(|reply| reply.text()));
    let mut connection = served.connection().await;
    let bearer = format!("Bearer {}", served.operator);
    let headers = [("authorization", bearer.as_str()), ("content-length", "5000")];
    let _ = connection.write(head("POST", "/v1/send", &headers) + &json).await;
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_in_no_log_line_and_in_no_error() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    // For every thread, those of the store among them.
    tracing::subscriber::set_global_default(subscriber).expect("the only one in this process");
    let mut canaries = Canaries::new();
    let dir = tempfile::tempdir().unwrap();
    let store = journal(&dir.path().join("journal"), JournalConfig::default()).await;
    let served = Rig::on(store).keeping(dir.path()).start().await;
    canaries.add_capability(&served.operator);
    let mut client = served.client().await;
    let mint = MintRequest { ops: vec!["send".to_owned()], ..MintRequest::default() };
    let minted: Minted = client.post("/v1/caps/mint", &mint).await.good();
    canaries.add_capability(&minted.capability);
    assert_eq!(client.try_send(&marked()).await.status, 200);
    let held = client.receive_one("jobs", 30_000).await;
    canaries.add_handle(held.receipt_handle.as_deref().unwrap());
    for answer in errors(&served, &mut client, &held).await {
        canaries.assert_not_in(&answer);
    }
    client.nack(&held, false).await;
    let held = client.receive_one("jobs", 30_000).await;
    canaries.add_handle(held.receipt_handle.as_deref().unwrap());
    client.ack_it(&held).await;
    let revoke =
        RevokeRequest { capability: Some(minted.capability.clone()), ..RevokeRequest::default() };
    assert_eq!(client.post("/v1/caps/revoke", &revoke).await.status, 200);
    let refused = served.client_with(&minted.capability).await.try_send(&marked()).await;
    canaries.assert_not_in(&refused.text());
    assert_eq!(client.post("/v1/caps/rotate", &serde_json::json!({})).await.status, 200);
    // It did log: what was revoked is named by its id.
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(text.contains(&minted.token_id), "nothing was logged");
    canaries.assert_not_in(&text);
}

#[tokio::test]
async fn secrets_of_a_service_are_not_printed_for_debugging() {
    let dir = tempfile::tempdir().unwrap();
    let served = Rig::new().keeping(dir.path()).start().await;
    let mut client = served.client().await;
    let mut canaries = Canaries::new();
    canaries.add_capability(&served.operator);
    client.try_send(&marked()).await;
    let held = client.receive_one("jobs", 30_000).await;
    canaries.add_handle(held.receipt_handle.as_deref().unwrap());
    let keys = std::fs::read_to_string(dir.path().join("root-keys")).unwrap();
    let key = keys.lines().last().unwrap().split(' ').nth(1).unwrap();
    canaries.add("root key", key);
    canaries.assert_not_in(&format!("{:?}", served.auth));
    let capability = mailbox_wire::capability::Capability::decode(&served.operator).unwrap();
    canaries.assert_not_in(&format!("{capability:?}"));
    let config = mailbox::backends::remote::RemoteConfig::default();
    canaries.assert_not_in(&format!("{:?}", config.with_capability(&served.operator)));
    let minted = Minted {
        capability: served.operator.clone(),
        token_id: String::new(),
        expires_at: String::new(),
    };
    let revoke =
        RevokeRequest { capability: Some(served.operator.clone()), ..RevokeRequest::default() };
    canaries.assert_not_in(&format!("{minted:?} {revoke:?}"));
}

#[tokio::test]
async fn payloads_are_not_printed_for_debugging() {
    let store = mailbox::backends::memory::MemoryBackend::new();
    let jobs = Name::parse("jobs").unwrap();
    let outgoing = Outgoing::new(bytes::Bytes::from_static(PAYLOAD.as_bytes()));
    let canaries = Canaries::new();
    canaries.assert_not_in(&format!("{outgoing:?}"));
    store.send(&jobs, vec![outgoing]).await.unwrap();
    let got = store.receive(&jobs, &ReceiveOptions::new()).await.unwrap();
    canaries.assert_not_in(&format!("{got:?} {store:?}"));
    let message = BatchMessage { payload_b64: payload(PAYLOAD), ..BatchMessage::default() };
    canaries.assert_not_in(&format!("{:?} {message:?}", send("jobs", PAYLOAD)));
}

#[tokio::test]
async fn receipt_handles_and_attributes_are_not_printed_for_debugging() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    client.try_send(&marked()).await;
    let received: Received = client.post("/v1/recv", &receive("jobs", 1, 30_000)).await.good();
    let receipt_handle = received.messages[0].receipt_handle.clone();
    let mut canaries = Canaries::new();
    canaries.add_handle(receipt_handle.as_deref().unwrap());
    let item = SettleItem {
        op: SettleOp::Ack,
        msg_id: None,
        receipt_handle: receipt_handle.clone(),
        reason: None,
        delay_ms: None,
        dead: None,
        dead_reason: None,
        visibility_ms: None,
    };
    let ack = AckRequest { receipt_handle: receipt_handle.clone() };
    let nack = NackRequest { receipt_handle: receipt_handle.clone(), ..NackRequest::default() };
    let extend = ExtendRequest { receipt_handle, visibility_ms: 1 };
    let attributes = marked().attrs.into_map();
    let outgoing = Outgoing { attributes, ..Outgoing::new(bytes::Bytes::new()) };
    let printed = [
        ("Received", format!("{received:?}")),
        ("SendRequest", format!("{:?}", marked())),
        ("BatchMessage", format!("{:?}", BatchMessage::from(marked()))),
        ("AckRequest", format!("{ack:?}")),
        ("NackRequest", format!("{nack:?}")),
        ("ExtendRequest", format!("{extend:?}")),
        ("SettleItem", format!("{item:?}")),
        ("Outgoing", format!("{outgoing:?}")),
    ];
    let telling = printed.iter().filter(|(_, text)| !canaries.seen_in(text).is_empty());
    let telling: Vec<_> = telling.map(|(name, text)| (*name, canaries.seen_in(text))).collect();
    assert!(telling.is_empty(), "{telling:?}");
}
