//! Payloads are what was sent, or are never handed out: damage on the disk of the service, and
//! damage on the way to a client.

use std::path::Path;
use std::time::Duration;

use mailbox::backends::journal::JournalConfig;
use mailbox::backends::remote::{RemoteBackend, RemoteConfig};
use mailbox::{Backend, ErrorKind, Name, ReceiveOptions};
use mailbox_wire::json::{Envelope, Received, SendRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::rig::{Client, Connection, PATIENCE, Rig, journal, payload, send};

const DAMAGED: &str = "this one is going to be damaged on the disk";

/// Flips one bit of a payload, wherever under `directory` it is kept.
fn flip(directory: &Path, text: &str) {
    let mut folders = vec![directory.to_owned()];
    let mut flipped = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(text.len()).position(|window| window == text.as_bytes());
            let Some(at) = found else { continue };
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            let changed = [bytes[at] ^ 1];
            std::os::unix::fs::FileExt::write_all_at(&file, &changed, at as u64).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1, "the payload is kept in one place");
}

async fn send_three(client: &mut Client) -> String {
    client.send("jobs", "first").await;
    let damaged = client.send("jobs", DAMAGED).await.msg_id;
    client.send("jobs", "third").await;
    damaged
}

/// The damaged one is never handed out, and is a dead letter; the others are delivered.
async fn examine(client: &mut Client, damaged: &str) {
    let mut got = Vec::new();
    for _ in 0..4 {
        got.extend(client.receive("jobs", 10, 30_000).await);
    }
    let payloads: Vec<_> = got.iter().map(|it| it.payload_b64.clone()).collect();
    assert_eq!(payloads, [payload("first"), payload("third")]);
    assert!(got.iter().all(Envelope::is_whole));
    let path = format!("/v1/messages/{damaged}?topic=jobs");
    let problem = client.get(&path).await.bad(422, "E_INTEGRITY");
    assert_eq!(problem.kind, "integrity");
    client.get(&format!("/v1/messages/{damaged}")).await.bad(422, "E_INTEGRITY");
    let dead = client.dead("jobs").await.messages;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].envelope.msg_id, damaged);
    assert_eq!(dead[0].death.as_ref().unwrap().reason, "integrity");
    assert_ne!(dead[0].envelope.payload_b64, payload(DAMAGED));
}

#[tokio::test]
async fn a_bit_flipped_on_the_disk_under_a_running_service_is_never_handed_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = journal(&dir.path().join("j"), JournalConfig::default()).await;
    let served = Rig::on(store).start().await;
    let mut client = served.client().await;
    let damaged = send_three(&mut client).await;
    flip(dir.path(), DAMAGED);
    examine(&mut client, &damaged).await;
}

#[tokio::test]
async fn a_bit_flipped_on_the_disk_between_two_runs_is_never_handed_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let damaged = {
        let store = journal(&path, JournalConfig::default()).await;
        let served = Rig::on(std::sync::Arc::clone(&store)).start().await;
        let damaged = send_three(&mut served.client().await).await;
        store.close().await.unwrap();
        damaged
    };
    flip(dir.path(), DAMAGED);
    let served = Rig::on(journal(&path, JournalConfig::default()).await).start().await;
    examine(&mut served.client().await, &damaged).await;
}

#[tokio::test]
async fn hashes_of_every_message_fit_from_end_to_end() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let question = SendRequest {
        idem_key: Some("demo-1".to_owned()),
        attrs: [("content-type".to_owned(), "text/plain".to_owned())].into(),
        ..send("user:42:inbox", "Hi")
    };
    assert_eq!(client.try_send(&question).await.status, 200);
    let mut message = client.receive_one("user:42:inbox", 30_000).await;
    assert!(message.is_whole());
    let hash = "b3:714bcf6b6c94fcc1059eec24ca94083da1caa75326ea1c0a4a5e82b1c146f688";
    assert_eq!(message.payload_hash.to_string(), hash);
    // Whatever the sender said is covered.
    let changes: [fn(&mut Envelope); 5] = [
        |it| it.payload_b64 = payload("Ho"),
        |it| it.topic = "user:43:inbox".to_owned(),
        |it| it.idem_key = None,
        |it| it.attrs = [("content-type".to_owned(), "text/html".to_owned())].into(),
        |it| it.ts = "2025-10-12T18:02:41.000Z".to_owned(),
    ];
    for change in changes {
        let good = message.clone();
        change(&mut message);
        assert!(!message.is_whole());
        message = good;
    }
}

/// Something between client and service that changes what is received.
async fn meddle(listener: TcpListener, service: std::net::SocketAddr) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(forward(stream, service));
    }
}

async fn forward(stream: TcpStream, service: std::net::SocketAddr) {
    let mut client = Connection { stream, buffer: Vec::new() };
    let mut server = Connection::open(service).await;
    loop {
        // A request, as far as is needed here: a head, and a body of a known length.
        let mut byte = [0; 1];
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if !matches!(client.stream.read(&mut byte).await, Ok(1)) {
                return;
            }
            head.push(byte[0]);
        }
        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let len = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; len.map_or(0, |len| len.trim().parse().unwrap())];
        client.stream.read_exact(&mut body).await.unwrap();
        server.write([head, body].concat()).await.unwrap();
        let mut reply = server.reply().await.unwrap();
        if text.starts_with("post /v1/recv ") && reply.status == 200 {
            let mut received: Received = reply.good();
            let evil = received.messages.iter_mut().find(|it| it.payload_b64 == payload("good"));
            if let Some(evil) = evil {
                evil.payload_b64 = payload("evil");
            }
            reply.body = serde_json::to_vec(&received).unwrap();
        }
        let answer =
            format!("HTTP/1.1 {} X\r\ncontent-length: {}\r\n\r\n", reply.status, reply.body.len());
        client.stream.write_all(answer.as_bytes()).await.unwrap();
        client.stream.write_all(&reply.body).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_refuses_a_message_that_was_changed_on_the_way_and_buries_it() {
    let served = Rig::new().start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(meddle(listener, served.address));
    let mut client = served.client().await;
    let sent = client.send("jobs", "good").await;
    let config = RemoteConfig::default().with_capability(&served.operator);
    let remote = RemoteBackend::open_with(&url, config).await.unwrap();
    let jobs = Name::parse("jobs").unwrap();
    let options = ReceiveOptions::new().with_visibility_timeout(Duration::from_secs(30));
    let received = tokio::time::timeout(PATIENCE, remote.receive(&jobs, &options)).await.unwrap();
    let error = received.expect_err("it was changed");
    assert_eq!(error.kind(), ErrorKind::Integrity);
    // Nobody waits for that but the next call of the same client.
    assert_eq!(remote.stats(&jobs).await.unwrap().dead, 1);
    let dead = client.dead("jobs").await.messages;
    assert_eq!(dead[0].envelope.msg_id, sent.msg_id);
    assert_eq!(dead[0].death.as_ref().unwrap().reason, "integrity");
    // One that arrives as it was sent is let through.
    client.send("jobs", "fine").await;
    let received = remote.receive(&jobs, &options).await.unwrap();
    assert_eq!(received[0].letter.payload, "fine");
}
