//! The end of a service: what is being worked on is finished, what waits is sent away, and it is
//! over in time.

use std::time::{Duration, Instant};

use mailbox_wire::json::{ReceiveRequest, Received, Sent};

use crate::rig::{PATIENCE, Rig, Served, head, receive, send, until};

/// Ends within this time, and says how long it took.
async fn ends(served: &mut Served, within: Duration) -> Duration {
    let start = Instant::now();
    tokio::time::timeout(within, &mut served.running).await.expect("over in time").unwrap();
    start.elapsed()
}

#[tokio::test]
async fn a_call_that_was_begun_is_finished_and_those_that_wait_get_nothing() {
    let mut served = Rig::new().start().await;
    let mut waiter = served.client().await;
    let question = ReceiveRequest { wait_ms: Some(20_000), ..receive("quiet", 1, 30_000) };
    let waiting = tokio::spawn(async move { waiter.try_receive(&question).await });
    let mut client = served.client().await;
    until("somebody waits", async || client.stats("quiet").await.waiters == 1).await;
    // An acknowledgement whose body is on its way.
    client.send("jobs", "one").await;
    let message = client.receive_one("jobs", 30_000).await;
    let body = serde_json::json!({ "receipt_handle": message.receipt_handle }).to_string();
    let (bearer, len) = (format!("Bearer {}", served.operator), body.len().to_string());
    let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
    let mut half = served.client().await;
    half.stats("jobs").await;
    let mut half = half.connection;
    let path = format!("/v1/ack/{}", message.msg_id);
    half.write(head("POST", &path, &headers) + &body[..10]).await.unwrap();
    client.stats("jobs").await;
    served.stop.cancel();
    let reply = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(reply.good::<Received>().messages.is_empty());
    // Nobody is let in any more.
    until("the port is closed", async || {
        tokio::net::TcpStream::connect(served.address).await.is_err()
    })
    .await;
    half.write(&body[10..]).await.unwrap();
    assert_eq!(half.reply().await.unwrap().status, 200);
    ends(&mut served, Duration::from_secs(4)).await;
}

#[tokio::test]
async fn a_call_that_comes_while_the_service_stops_is_told_so() {
    for path in ["/v1/send", "/v1/recv", "/v1/recv/stream"] {
        let mut served = Rig::new().start().await;
        let body = match path {
            "/v1/send" => serde_json::to_string(&send("jobs", "late")).unwrap(),
            _ => serde_json::to_string(&receive("jobs", 1, 30_000)).unwrap(),
        };
        let (bearer, len) = (format!("Bearer {}", served.operator), body.len().to_string());
        let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
        let request = head("POST", path, &headers) + &body;
        // The head is on its way when the service is told to stop.
        let mut late = served.connection().await;
        late.write(&request[..20]).await.unwrap();
        served.client().await.stats("jobs").await;
        served.stop.cancel();
        until("the port is closed", async || {
            tokio::net::TcpStream::connect(served.address).await.is_err()
        })
        .await;
        late.write(&request[20..]).await.unwrap();
        let problem = late.reply().await.unwrap().bad(503, "E_UNAVAILABLE");
        assert_eq!(problem.reason.as_deref(), Some("stopping"), "{path}");
        ends(&mut served, Duration::from_secs(4)).await;
    }
}

#[tokio::test]
async fn a_service_without_work_ends_at_once_however_many_are_connected() {
    let mut served = Rig::new().start().await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        let mut client = served.client().await;
        client.stats("jobs").await;
        idle.push(client);
        idle.push(served.client().await);
    }
    served.stop.cancel();
    assert!(ends(&mut served, Duration::from_secs(4)).await < Duration::from_secs(2));
}

#[tokio::test]
async fn a_stream_ends_when_the_service_does_also_if_its_client_settles_nothing() {
    for max_messages in [1, 2] {
        let mut served = Rig::new().start().await;
        let mut client = served.client().await;
        client.send("jobs", "one").await;
        let mut reader = served.client().await.connection;
        let question = serde_json::to_string(&receive("jobs", max_messages, 30_000)).unwrap();
        let (bearer, len) = (format!("Bearer {}", served.operator), question.len().to_string());
        let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
        reader.write(head("POST", "/v1/recv/stream", &headers) + &question).await.unwrap();
        assert_eq!(reader.reply_head().await.unwrap().status, 200);
        assert!(!reader.chunk().await.unwrap().unwrap().is_empty());
        served.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(2), async {
            let mut last = Vec::new();
            while let Ok(Some(line)) = reader.chunk().await {
                last = line;
            }
            last
        });
        let last = ended.await.expect("the stream ends soon");
        let last = String::from_utf8(last).unwrap();
        assert!(last.contains("\"reason\":\"stopping\""), "{last}");
        ends(&mut served, Duration::from_secs(3)).await;
    }
}

#[tokio::test]
async fn whoever_does_not_finish_is_cut_off_after_the_drain_time() {
    let mut served = Rig::new()
        .with(|config| {
            config.timeouts.drain = Duration::from_millis(300);
            config.timeouts.read = Duration::from_secs(30);
        })
        .start()
        .await;
    let mut stuck = served.connection().await;
    let bearer = format!("Bearer {}", served.operator);
    let headers = [("authorization", bearer.as_str()), ("content-length", "100")];
    stuck.write(head("POST", "/v1/send", &headers)).await.unwrap();
    let mut client = served.client().await;
    client.try_send(&send("jobs", "one")).await.good::<Sent>();
    served.stop.cancel();
    let took = ends(&mut served, Duration::from_secs(4)).await;
    assert!(took >= Duration::from_millis(250), "{took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn a_service_that_stops_says_that_it_is_not_ready() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    assert_eq!(client.get("/readyz").await.status, 200);
    let mut late = served.connection().await;
    late.write("GET /readyz HT").await.unwrap();
    served.client().await.get("/healthz").await;
    served.stop.cancel();
    late.write("TP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let reply = late.reply().await.unwrap();
    assert_eq!(reply.status, 503);
    assert!(reply.text().contains("stopping"), "{}", reply.text());
}
