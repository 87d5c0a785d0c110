//! Clients of HTTP/2 that take little of an answer, or nothing: what they do not take is left to
//! others, takes no more than a share, and does not stay.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::Reason;
use http::StatusCode;
use mailbox_wire::json::{ReceiveRequest, RevokeRequest, Revoked};
use mailbox_wire::proto::v1::{RecvRequest, RecvStreamResponse};
use tonic::Code;

use crate::rig::{Call, H2Client, Rig, framed, receive, until};

const STREAM: &str = "/mailbox.v1.Mailbox/RecvStream";
const KIB: usize = 1024;

async fn stream(client: &H2Client, capability: &str, topic: &str) -> Call {
    let question = RecvRequest {
        topic: topic.to_owned(),
        visibility_ms: Some(30_000),
        ..RecvRequest::default()
    };
    client.call(STREAM, capability, framed(&question)).await
}

/// A stream took a whole batch as soon as one byte of it could go out, and handed out the rest
/// later without asking whether it still may.
#[tokio::test]
async fn a_stream_takes_from_the_store_what_can_go_out_and_nothing_once_it_may_not() {
    let served =
        Rig::new().with(|config| config.timeouts.write = Duration::from_secs(60)).start().await;
    let mut client = served.client().await;
    for _ in 0..16 {
        client.send("jobs", vec![7; 10 * KIB]).await;
    }
    let capability = served.mint(&["op = recv", "topic = jobs"]);
    let mut reader = served.h2_client(2048).await;
    let mut messages = stream(&reader, &capability, "jobs").await;
    until("its window is full", async || client.stats("jobs").await.invisible > 0).await;
    // What else it might do it would have done by then.
    reader.ping().await;
    reader.ping().await;
    assert_eq!(client.stats("jobs").await.invisible, 1);
    let question = ReceiveRequest { max_bytes: Some(1 << 20), ..receive("jobs", 16, 30_000) };
    let others = client.try_receive(&question).await;
    let others = others.good::<mailbox_wire::json::Received>().messages;
    assert_eq!(others.len(), 15, "others can receive the rest");
    for message in &others {
        assert_eq!(client.nack(message, false).await.status, 200);
    }
    let question = RevokeRequest { capability: Some(capability), ..RevokeRequest::default() };
    client.post("/v1/caps/revoke", &question).await.good::<Revoked>();
    let first = messages.message::<RecvStreamResponse>().await.unwrap();
    assert!(first.is_some_and(|it| it.envelope.is_some()), "it was on its way");
    let next = messages.message::<RecvStreamResponse>().await.unwrap();
    assert!(next.is_none(), "{next:?}");
    let (code, problem) = messages.status().await;
    assert_eq!(code, Code::Unauthenticated);
    assert_eq!(problem.unwrap().reason.as_deref(), Some("revoked"));
    // What it cannot settle any more goes to others at once.
    until("all of it is there", async || client.stats("jobs").await.ready == 16).await;
}

/// One byte of window, and pings for ever: an answer was held for as long.
#[tokio::test]
async fn an_answer_that_nobody_takes_ends_its_connection_whatever_else_is_said() {
    let served =
        Rig::new().with(|config| config.timeouts.write = Duration::from_millis(200)).start().await;
    for (path, window) in [("/openapi.json", 1), ("/openapi.json", 0), ("/healthz", 1)] {
        let mut client = served.h2_client(window).await;
        let call = client.get(path, "").await;
        assert_eq!(call.answer.status(), StatusCode::OK);
        let pings = client.ping_until_over().await;
        assert!(pings > 1, "{path}");
    }
}

#[tokio::test]
async fn a_stream_that_nobody_takes_ends_alone_and_what_was_in_it_goes_back() {
    let served =
        Rig::new().with(|config| config.timeouts.write = Duration::from_millis(300)).start().await;
    let mut client = served.client().await;
    client.send("jobs", vec![7; 100]).await;
    let reader = served.h2_client(64).await;
    let mut quiet = stream(&reader, &served.operator, "quiet").await;
    let mut stuck = stream(&reader, &served.operator, "jobs").await;
    until("it is on its way", async || client.stats("jobs").await.invisible == 1).await;
    assert_eq!(stuck.reset().await, Some(Reason::CANCEL));
    until("it is back", async || client.stats("jobs").await.ready == 1).await;
    assert_eq!(client.receive_one("jobs", 30_000).await.attempt, 1, "it was never delivered");
    // One that has nothing to say is not stuck, however long that is, and hears what comes.
    client.send("quiet", "one").await;
    let message = quiet.message::<RecvStreamResponse>().await.unwrap().unwrap();
    assert!(message.envelope.is_some());
    assert!(!reader.is_over());
}

/// Without any window what a stream has made waits where nobody looked: it took its connection with
/// it.
#[tokio::test]
async fn a_stream_without_a_window_ends_alone_too() {
    let served =
        Rig::new().with(|config| config.timeouts.write = Duration::from_millis(300)).start().await;
    let mut client = served.client().await;
    client.send("jobs", vec![7; 100]).await;
    let mut reader = served.h2_client(0).await;
    for _ in 0..3 {
        let mut stuck = stream(&reader, &served.operator, "jobs").await;
        assert_eq!(stuck.reset().await, Some(Reason::CANCEL));
        until("it is back", async || client.stats("jobs").await.ready == 1).await;
        reader.ping().await;
        assert!(!reader.is_over());
    }
    // It was never delivered.
    assert_eq!(client.receive_one("jobs", 30_000).await.attempt, 1);
}

/// Its messages went to others while it was at work on them, and cost an attempt each.
#[tokio::test]
async fn a_stream_that_is_cut_off_leaves_its_client_what_it_has() {
    let served =
        Rig::new().with(|config| config.timeouts.write = Duration::from_millis(300)).start().await;
    let mut client = served.client().await;
    client.send("jobs", "small").await;
    client.send("jobs", vec![7; 8 * KIB]).await;
    let reader = served.h2_client(2048).await;
    let mut messages = stream(&reader, &served.operator, "jobs").await;
    let small = messages.message::<RecvStreamResponse>().await.unwrap().unwrap().envelope.unwrap();
    assert_eq!(messages.reset().await, Some(Reason::CANCEL));
    until("the large one is back", async || client.stats("jobs").await.ready == 1).await;
    let large = client.receive_one("jobs", 30_000).await;
    assert_eq!((large.payload_b64.0.len(), large.attempt), (8 * KIB, 1));
    assert_eq!(client.ack(&small.msg_id, small.receipt_handle.as_deref()).await.status, 200);
}

#[tokio::test]
async fn a_connection_that_is_cut_off_leaves_its_client_what_it_has() {
    let served =
        Rig::new().with(|config| config.timeouts.write = Duration::from_millis(300)).start().await;
    let mut client = served.client().await;
    client.send("jobs", "small").await;
    let mut reader = served.h2_client(2048).await;
    let mut messages = stream(&reader, &served.operator, "jobs").await;
    let small = messages.message::<RecvStreamResponse>().await.unwrap().unwrap().envelope.unwrap();
    let _stuck = reader.get("/openapi.json", "").await;
    reader.ping_until_over().await;
    assert!(messages.message::<RecvStreamResponse>().await.is_err());
    assert_eq!(client.ack(&small.msg_id, small.receipt_handle.as_deref()).await.status, 200);
}

/// Whoever had taken much was given a second for each 64 KiB of it.
#[tokio::test]
async fn an_answer_of_which_much_was_taken_and_then_nothing_ends_its_connection_soon() {
    let served =
        Rig::new().with(|config| config.timeouts.write = Duration::from_secs(1)).start().await;
    let mut client = served.client().await;
    for _ in 0..8 {
        client.send("jobs", vec![7; KIB * KIB]).await;
    }
    let mut reader = served.h2_client(1 << 20).await;
    let question = RecvRequest {
        topic: "jobs".to_owned(),
        max_messages: Some(8),
        max_bytes: Some(16 << 20),
        visibility_ms: Some(30_000),
        ..RecvRequest::default()
    };
    let path = "/mailbox.v1.Mailbox/Recv";
    let mut call = reader.call(path, &served.operator, framed(&question)).await;
    let mut taken = 0;
    while taken < 6 << 20 {
        taken += call.piece().await.unwrap().expect("there is more").len();
    }
    reader.ping_until_over().await;
}

/// Sixty answers on one connection are each taken at a sixtieth of its pace.
#[tokio::test]
async fn answers_that_share_a_connection_that_is_fast_enough_all_arrive() {
    let served =
        Rig::new().with(|config| config.timeouts.write = Duration::from_secs(2)).start().await;
    let mut client = served.client().await;
    client.send("jobs", vec![7; 120 * KIB]).await;
    let reader = served.h2_client(1 << 20).await;
    let (start, taken) = (Instant::now(), Cell::new(0));
    let reads = (0..60).map(|_| async {
        let mut call = reader.get("/v1/topics/jobs/peek", &served.operator).await;
        while let Some(piece) = call.piece().await.expect("nobody was cut off") {
            taken.set(taken.get() + piece.len());
            // Not faster than this; a machine that is slower than that only makes it longer.
            let due = Duration::from_secs_f64(taken.get() as f64 / (1200 * KIB) as f64);
            tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
        }
    });
    futures_util::future::join_all(reads).await;
    assert!(taken.get() > 60 * 120 * KIB);
}

/// What was too small to be counted on one of many streams was a lot on all of them.
#[tokio::test]
async fn small_answers_that_nobody_takes_have_no_more_than_a_share() {
    let served = Rig::new()
        .with(|config| {
            config.limits.answers = 2 << 20;
            config.timeouts.write = Duration::from_secs(60);
        })
        .start()
        .await;
    let mut client = served.client().await;
    client.send("jobs", vec![7; 60_000]).await;
    let greedy = served.h2_client(0).await;
    let (mut held, mut refused) = (Vec::new(), 0);
    for _ in 0..120 {
        let call = greedy.get("/v1/topics/jobs/peek", &served.operator).await;
        match call.answer.status() {
            StatusCode::OK => held.push(call),
            status => {
                assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
                refused += 1;
            }
        }
    }
    // A share, and a little more: three mebibytes.
    assert!(held.len() <= (3 << 20) / 60_000, "{} answers", held.len());
    assert!(held.len() >= (2 << 20) / 60_000 && refused > 0, "{} answers", held.len());
    // Others have theirs.
    let other = served.mint(&["op = admin"]);
    assert_eq!(served.client_with(&other).await.get("/v1/topics/jobs/peek").await.status, 200);
    drop((held, greedy));
    until("there is room again", async || client.get("/v1/topics/jobs/peek").await.status == 200)
        .await;
}

/// The same with what is asked.
#[tokio::test]
async fn small_bodies_that_never_end_have_no_more_than_a_share() {
    let served = Rig::new()
        .with(|config| {
            (config.limits.bodies, config.limits.body) = (2 << 20, 1 << 20);
            config.timeouts.read = Duration::from_secs(3);
        })
        .start()
        .await;
    let greedy = served.h2_client(1 << 16).await;
    let asks = (0..100).map(|_| async {
        let request = http::Request::post("http://localhost/v1/send")
            .header("authorization", format!("Bearer {}", served.operator));
        let body = Bytes::from(vec![b' '; 50 * KIB]);
        let call = greedy.try_ask(request.body(()).unwrap(), body, false).await.unwrap();
        call.answer.status()
    });
    let answers = futures_util::future::join_all(asks).await;
    let (refused, kept): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|status| *status == StatusCode::TOO_MANY_REQUESTS);
    // A share, and as much again for small ones: two mebibytes. They came too slowly in the end.
    assert!(kept.iter().all(|status| *status == StatusCode::SERVICE_UNAVAILABLE), "{kept:?}");
    assert!(kept.len() <= (2 << 20) / (50 * KIB), "{} bodies", kept.len());
    assert!(!kept.is_empty() && !refused.is_empty());
    let mut client = served.client().await;
    client.send("jobs", "one").await;
}
