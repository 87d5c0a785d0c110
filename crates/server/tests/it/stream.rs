//! A receive that goes on: lines come as messages do, never more than the client can take, and
//! what it has not settled when it leaves is not lost.

use std::time::{Duration, Instant};

use mailbox_wire::json::{Envelope, Problem, RevokeRequest, Revoked};

use crate::rig::{Client, Connection, PATIENCE, Rig, Served, caveats, head, receive, soon, until};

/// The client's end of a stream.
struct Lines {
    connection: Connection,
    rest: Vec<u8>,
}

/// What comes on a stream.
#[derive(Debug)]
enum Line {
    Message(Box<Envelope>),
    SignOfLife,
    Problem(Problem),
    End,
}

impl Lines {
    async fn open(served: &Served, capability: &str, max_messages: u32) -> Self {
        let question = serde_json::to_string(&receive("jobs", max_messages, 30_000)).unwrap();
        let (bearer, len) = (format!("Bearer {capability}"), question.len().to_string());
        let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
        let mut connection = served.connection().await;
        connection.write(head("POST", "/v1/recv/stream", &headers) + &question).await.unwrap();
        let reply = connection.reply_head().await.unwrap();
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
        assert!(reply.header("x-corr-id").is_some());
        Self { connection, rest: Vec::new() }
    }

    async fn next(&mut self) -> Line {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let rest = self.rest.split_off(end + 1);
                let line = std::mem::replace(&mut self.rest, rest);
                return match line.trim_ascii() {
                    b"" => Line::SignOfLife,
                    text => match serde_json::from_slice(text) {
                        Ok(envelope) => Line::Message(Box::new(envelope)),
                        Err(_) => Line::Problem(serde_json::from_slice(text).unwrap()),
                    },
                };
            }
            match self.connection.chunk().await {
                Ok(Some(more)) => self.rest.extend(more),
                Ok(None) | Err(_) => return Line::End,
            }
        }
    }

    /// The next message, whatever comes before it.
    async fn message(&mut self) -> Envelope {
        let start = Instant::now();
        loop {
            match self.next().await {
                Line::Message(envelope) => return *envelope,
                Line::SignOfLife => assert!(start.elapsed() < PATIENCE, "no message"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Nothing but signs of life until there were so many of them.
    async fn quiet(&mut self, signs: usize) {
        for _ in 0..signs {
            let line = self.next().await;
            assert!(matches!(line, Line::SignOfLife), "{line:?}");
        }
    }

    /// It says why it ends, and does; nothing but signs of life comes before that.
    async fn ends(&mut self) -> Problem {
        let start = Instant::now();
        loop {
            match self.next().await {
                Line::Problem(problem) => {
                    assert!(matches!(self.next().await, Line::End), "it goes on");
                    return problem;
                }
                Line::SignOfLife => assert!(start.elapsed() < PATIENCE, "it goes on"),
                other => panic!("{other:?}"),
            }
        }
    }
}

const HEARTBEAT: Duration = Duration::from_millis(100);

async fn quick() -> (Served, Client) {
    let served = Rig::new().with(|config| config.timeouts.heartbeat = HEARTBEAT).start().await;
    let client = served.client().await;
    (served, client)
}

#[tokio::test]
async fn lines_come_as_messages_come_with_signs_of_life_between_them() {
    let (served, mut client) = quick().await;
    let mut lines = Lines::open(&served, &served.operator, 4).await;
    lines.quiet(2).await;
    for number in 0..20 {
        let sent = client.send("jobs", number.to_string()).await;
        let start = Instant::now();
        let message = lines.message().await;
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        assert_eq!((&message.msg_id, message.attempt), (&sent.msg_id, 1));
        assert!(message.is_whole());
        assert_eq!(client.ack_it(&message).await.status, 200);
    }
    lines.quiet(2).await;
}

#[tokio::test]
async fn no_more_are_in_flight_on_a_stream_than_its_client_can_take() {
    let (served, mut client) = quick().await;
    for number in 0..10 {
        client.send("jobs", number.to_string()).await;
    }
    let mut lines = Lines::open(&served, &served.operator, 3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(lines.message().await);
    }
    lines.quiet(3).await;
    assert_eq!(client.stats("jobs").await.invisible, 3);
    // Each that is settled makes room for one, however it is settled.
    assert_eq!(client.ack_it(&held[0]).await.status, 200);
    held.push(lines.message().await);
    lines.quiet(2).await;
    assert_eq!(client.ack(&held[1].msg_id, None).await.status, 200);
    held.push(lines.message().await);
    lines.quiet(2).await;
    assert_eq!(client.nack(&held[2], true).await.status, 200);
    held.push(lines.message().await);
    lines.quiet(2).await;
    let stats = client.stats("jobs").await;
    assert_eq!((stats.invisible, stats.ready, stats.dead), (3, 4, 1));
    let order: Vec<_> = held.iter().map(|it| it.payload_b64.0.clone()).collect();
    assert_eq!(order, ["0", "1", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn what_a_client_that_leaves_has_not_settled_is_receivable_at_once() {
    let (served, mut client) = quick().await;
    for number in 0..6 {
        client.send("jobs", number.to_string()).await;
    }
    let mut lines = Lines::open(&served, &served.operator, 4).await;
    let first = lines.message().await;
    for _ in 0..3 {
        lines.message().await;
    }
    assert_eq!(client.ack_it(&first).await.status, 200);
    lines.message().await;
    drop(lines);
    until("they are back", async || client.stats("jobs").await.ready == 5).await;
    let mut got = client.receive("jobs", 10, 30_000).await;
    got.sort_by_key(|it| it.payload_b64.0.clone());
    let attempts: Vec<_> = got.iter().map(|it| (it.payload_b64.0.clone(), it.attempt)).collect();
    let attempts: Vec<_> = attempts.iter().map(|(bytes, count)| (&bytes[..], *count)).collect();
    // Those that it may have been at work on are counted; the one it never saw is not.
    let expected: [(&[u8], u32); 5] = [(b"1", 2), (b"2", 2), (b"3", 2), (b"4", 2), (b"5", 1)];
    assert_eq!(attempts, expected);
}

#[tokio::test]
async fn what_was_never_written_to_a_client_that_leaves_is_not_lost() {
    let (served, mut client) = quick().await;
    // More than fits between the two ends.
    for _ in 0..40 {
        client.send("jobs", vec![7; 1 << 20]).await;
    }
    let lines = Lines::open(&served, &served.operator, 40).await;
    until("it is stuck", async || client.stats("jobs").await.invisible > 0).await;
    drop(lines);
    until("they are back", async || client.stats("jobs").await.ready == 40).await;
    let mut seen = 0;
    while seen < 40 {
        let message = client.receive_one("jobs", 30_000).await;
        assert!(message.attempt <= 2, "{}", message.attempt);
        assert_eq!(client.ack_it(&message).await.status, 200);
        seen += 1;
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_capability_is_revoked() {
    let (served, mut client) = quick().await;
    for is_holding in [false, true] {
        let capability = served.mint(&["op = recv"]);
        let mut lines = Lines::open(&served, &capability, 1).await;
        lines.quiet(1).await;
        if is_holding {
            client.send("jobs", "one").await;
            lines.message().await;
        }
        let question =
            RevokeRequest { capability: Some(capability.clone()), ..RevokeRequest::default() };
        client.post("/v1/caps/revoke", &question).await.good::<Revoked>();
        // It may not get another one.
        client.send("jobs", "two").await;
        let problem = tokio::time::timeout(PATIENCE, lines.ends()).await.expect("it ends");
        assert_eq!(problem.reason.as_deref(), Some("revoked"));
        // It could not settle what it has: others get that at once.
        until("nothing is held", async || client.stats("jobs").await.invisible == 0).await;
        client.raw("POST", "/v1/topics/jobs/purge", &[], b"").await;
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_capability_expires() {
    let (served, mut client) = quick().await;
    for is_holding in [false, true] {
        let mut all = caveats(&["op = recv,ack"]);
        all.push(soon(Duration::from_millis(500)));
        let capability = served.auth.mint(&all).unwrap().encode();
        let mut lines = Lines::open(&served, &capability, 1).await;
        lines.quiet(1).await;
        let mut held = None;
        if is_holding {
            client.send("jobs", "one").await;
            held = Some(lines.message().await);
        }
        let start = Instant::now();
        let problem = tokio::time::timeout(PATIENCE, lines.ends()).await.expect("it ends");
        assert_eq!(problem.reason.as_deref(), Some("expired"));
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        drop(lines);
        // What it has is its own until the deadline: it got it in time, and can settle it.
        if let Some(message) = held {
            let mut holder = served.client_with(&capability).await;
            assert_eq!(holder.ack_it(&message).await.status, 200);
        }
        let stats = client.stats("jobs").await;
        assert_eq!((stats.ready, stats.invisible), (0, 0));
    }
    assert_eq!(client.stats("jobs").await.totals.acknowledged, 1);
}

#[tokio::test]
async fn a_stream_that_ends_with_the_service_leaves_its_client_what_it_has() {
    use mailbox::Backend;

    let store = mailbox::backends::memory::MemoryBackend::new();
    let served = Rig::on(std::sync::Arc::clone(&store) as _).start().await;
    let mut client = served.client().await;
    client.send("jobs", "one").await;
    let mut lines = Lines::open(&served, &served.operator, 2).await;
    let held = lines.message().await;
    served.stop.cancel();
    let problem = tokio::time::timeout(PATIENCE, lines.ends()).await.expect("it ends");
    assert_eq!(
        (problem.code.as_str(), problem.reason.as_deref()),
        ("E_UNAVAILABLE", Some("stopping"))
    );
    drop((lines, client, served));
    // The next service on the same store takes the acknowledgement.
    let again = Rig::on(std::sync::Arc::clone(&store) as _).start().await;
    assert_eq!(again.client().await.ack_it(&held).await.status, 200);
    let stats = store.stats(&mailbox::Name::parse("jobs").unwrap()).await.unwrap();
    assert_eq!((stats.totals.delivered, stats.totals.acknowledged), (1, 1));
}

#[tokio::test]
async fn signs_of_life_come_as_often_as_they_are_due_and_no_oftener() {
    let every = Duration::from_millis(2500);
    let served = Rig::new().with(|config| config.timeouts.heartbeat = every).start().await;
    let mut lines = Lines::open(&served, &served.operator, 1).await;
    let start = Instant::now();
    lines.quiet(1).await;
    assert!(start.elapsed() >= every - Duration::from_millis(100), "{:?}", start.elapsed());
    assert!(start.elapsed() < every * 2, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_stream_keeps_to_the_rate_of_its_capability() {
    let (served, mut client) = quick().await;
    let capability = served.mint(&["op = recv", "rate = 4/s"]);
    for _ in 0..20 {
        client.send("jobs", "one").await;
    }
    // The stream itself is one of the burst of eight.
    let mut lines = Lines::open(&served, &capability, 4).await;
    let start = Instant::now();
    for _ in 0..13 {
        let message = lines.message().await;
        assert_eq!(client.ack_it(&message).await.status, 200);
    }
    // Six of them are over the burst, and come four a second.
    assert!(start.elapsed() >= Duration::from_millis(1400), "{:?}", start.elapsed());
}

#[tokio::test]
async fn streams_count_as_receives_that_wait_also_while_they_hold_all_they_can() {
    let served = Rig::new()
        .with(|config| {
            config.limits.waiting = 1;
            config.timeouts.heartbeat = HEARTBEAT;
        })
        .start()
        .await;
    let mut client = served.client().await;
    client.send("jobs", "one").await;
    let mut lines = Lines::open(&served, &served.operator, 1).await;
    lines.message().await;
    lines.quiet(1).await;
    let reply = client.post("/v1/recv/stream", &receive("jobs", 1, 30_000)).await;
    reply.bad(429, "E_SATURATED");
}

#[tokio::test]
async fn a_message_that_comes_after_the_end_of_a_capability_is_not_streamed() {
    // Seldom a sign of life: the stream waits all the time.
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let mut all = caveats(&["op = recv"]);
    all.push(soon(Duration::from_millis(300)));
    let capability = served.auth.mint(&all).unwrap().encode();
    let mut lines = Lines::open(&served, &capability, 1).await;
    let mut probe = served.client_with(&capability).await;
    until("it has expired", async || {
        probe.try_receive(&receive("other", 1, 30_000)).await.status == 401
    })
    .await;
    client.send("jobs", "late").await;
    assert_eq!(lines.ends().await.reason.as_deref(), Some("expired"));
    until("it is there for others", async || client.stats("jobs").await.ready == 1).await;
}

#[tokio::test]
async fn a_stream_whose_quota_is_used_up_says_so() {
    let (served, mut client) = quick().await;
    client.send("jobs", "12345").await;
    client.send("jobs", "12345").await;
    let capability = served.mint(&["op = recv,ack", "quota_bytes = 8"]);
    let mut lines = Lines::open(&served, &capability, 2).await;
    let first = lines.message().await;
    let problem = tokio::time::timeout(PATIENCE, lines.ends()).await.expect("it ends");
    assert_eq!((problem.code.as_str(), problem.reason.as_deref()), ("E_CAP_SCOPE", Some("quota")));
    // What it has it can settle; the other one is there for others.
    let mut holder = served.client_with(&capability).await;
    assert_eq!(holder.ack_it(&first).await.status, 200);
    until("it is back", async || client.stats("jobs").await.ready == 1).await;
    assert_eq!(client.receive_one("jobs", 30_000).await.attempt, 1);
}

#[tokio::test]
async fn a_stream_waits_while_others_have_all_there_is() {
    let served = Rig::new()
        .with(|config| {
            config.global_inflight = 2;
            config.timeouts.heartbeat = HEARTBEAT;
        })
        .start()
        .await;
    let mut client = served.client().await;
    let mut held = Vec::new();
    for _ in 0..2 {
        client.send("other", "one").await;
        held.push(client.receive_one("other", 30_000).await);
    }
    client.send("jobs", "one").await;
    let mut lines = Lines::open(&served, &served.operator, 8).await;
    lines.quiet(3).await;
    assert_eq!(client.ack_it(&held[0]).await.status, 200);
    lines.message().await;
    // It asks for more than there is, and has nothing to receive: that is no reason to end it.
    lines.quiet(3).await;
}

#[tokio::test]
async fn the_library_follows_a_mailbox_and_gives_back_what_it_has_not_settled() {
    use mailbox::backends::remote::{RemoteBackend, RemoteConfig};
    use mailbox::{Backend, Name, ReceiveOptions, Settlement, Verdict};

    let served = Rig::new().start().await;
    let mut client = served.client().await;
    let config = RemoteConfig::default().with_capability(&*served.operator);
    let url = format!("http://{}", served.address);
    let service = RemoteBackend::open_with(&url, config).await.unwrap();
    let jobs = Name::parse("jobs").unwrap();
    let options = ReceiveOptions::new().with_max_messages(2);
    let mut stream = service.stream(&jobs, &options).await.unwrap();
    for number in 0..4 {
        client.send("jobs", number.to_string()).await;
    }
    let first = stream.next().await.unwrap().expect("a message");
    let second = stream.next().await.unwrap().expect("a message");
    assert_eq!((&*first.letter.payload, &*second.letter.payload), (&b"0"[..], &b"1"[..]));
    // Two are in flight: the third comes when one of them is settled.
    let third = tokio::time::timeout(Duration::from_millis(200), stream.next()).await;
    assert!(third.is_err(), "{third:?}");
    let receipt_handle = first.receipt_handle.clone();
    let acknowledge = Settlement { receipt_handle, verdict: Verdict::Acknowledge };
    service.settle(&jobs, vec![acknowledge]).await.unwrap().remove(0).unwrap();
    let third = tokio::time::timeout(PATIENCE, stream.next()).await.expect("it comes");
    assert_eq!(&*third.unwrap().expect("a message").letter.payload, b"2");
    drop(stream);
    until("what was not settled is back", async || client.stats("jobs").await.ready == 3).await;
    let refused = RemoteConfig::default().with_capability(served.mint(&["op = send"]));
    let sender = RemoteBackend::open_with(&url, refused).await.unwrap();
    let refused = sender.stream(&jobs, &options).await.unwrap_err();
    assert_eq!(refused.kind(), mailbox::ErrorKind::Forbidden);
}
