//! Clients that are slow on purpose: they are cut off in time, and honest ones hardly notice them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mailbox_wire::json::ReceiveRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::rig::{Client, Connection, PATIENCE, Rig, Served, alone, head, receive, send, until};

const TIMEOUT: Duration = Duration::from_secs(4);
/// Between two bytes of a slow client.
const PAUSE: Duration = Duration::from_secs(1);
const SLOW_HEADS: usize = 2000;
/// More than the requests that are worked on at a time.
const SLOW_BODIES: usize = 1000;
const SLOW_READERS: usize = 500;
/// How much slower a call may be beside a multiple of what it takes otherwise: three thousand
/// connections are opened on the same two processors.
const ALLOWANCE: Duration = Duration::from_millis(25);

/// What every slow client does: nothing, or one byte now and then.
#[derive(Debug, Clone, Copy)]
enum Slow {
    Head,
    Body,
    Reader,
}

/// How long until a slow client was cut off.
async fn dawdle(served: Target, slow: Slow) -> Duration {
    let mut connection = Connection::open(served.address).await;
    let bearer = format!("Bearer {}", served.capability);
    let body = serde_json::to_string(&receive("large", 1, 0)).unwrap();
    let len = match slow {
        Slow::Body => "1000".to_owned(),
        _ => body.len().to_string(),
    };
    let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
    let request = head("POST", "/v1/recv", &headers);
    let (at_once, later) = match slow {
        Slow::Head => (String::new(), request),
        Slow::Body => (request, " ".repeat(1000)),
        Slow::Reader => (request + &body, String::new()),
    };
    let start = Instant::now();
    connection.write(at_once).await.unwrap();
    served.there.fetch_add(1, Ordering::Relaxed);
    let mut later = later.into_bytes().into_iter();
    loop {
        let is_gone = match slow {
            // Whoever does not read sees nothing: so it looks when it must be over.
            Slow::Reader => {
                tokio::time::sleep(TIMEOUT * 3 / 2).await;
                connection.ends_within(TIMEOUT / 2).await
            }
            _ => match later.next() {
                Some(byte) => {
                    connection.write([byte]).await.is_err() || connection.ends_within(PAUSE).await
                }
                None => connection.ends_within(PAUSE).await,
            },
        };
        if is_gone {
            return start.elapsed();
        }
        assert!(start.elapsed() < PATIENCE, "{slow:?} never cut off");
    }
}

/// What slow clients are set on.
#[derive(Clone)]
struct Target {
    address: std::net::SocketAddr,
    capability: String,
    there: Arc<AtomicUsize>,
}

/// How long honest calls take, in the best of three rounds: what else the machine does is no
/// fault of the service.
async fn at_best(client: &mut Client) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        best = best.min(honest(client, 100).await);
    }
    best
}

/// How long honest calls take: the slowest but one in a hundred.
async fn honest(client: &mut Client, calls: usize) -> Duration {
    let mut times = Vec::new();
    for _ in 0..calls {
        let start = Instant::now();
        assert_eq!(client.try_send(&send("jobs", "honest")).await.status, 200);
        let got = client.receive_one("jobs", 30_000).await;
        assert_eq!(client.ack_it(&got).await.status, 200);
        times.push(start.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    times.sort();
    times[times.len() * 99 / 100]
}

async fn attacked() -> (Served, Client) {
    let rig = Rig::new().with(|config| {
        (config.timeouts.read, config.timeouts.write) = (TIMEOUT, TIMEOUT);
        config.timeouts.idle = TIMEOUT;
    });
    let served = rig.start_alone().await;
    let mut client = served.client().await;
    client.send("large", vec![7; 1 << 16]).await;
    (served, client)
}

#[test]
fn thousands_of_slow_clients_are_cut_off_and_honest_ones_hardly_notice() {
    let _alone = alone();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let (served, mut client) = attacked().await;
        honest(&mut client, 50).await;
        let before = at_best(&mut client).await;
        let (address, capability) = (served.address, served.operator.clone());
        let target = Target { address, capability, there: Arc::default() };
        let mut slow = JoinSet::new();
        let kinds =
            [(Slow::Head, SLOW_HEADS), (Slow::Body, SLOW_BODIES), (Slow::Reader, SLOW_READERS)];
        for (kind, count) in kinds {
            for _ in 0..count {
                slow.spawn(dawdle(target.clone(), kind));
            }
        }
        let all = SLOW_HEADS + SLOW_BODIES + SLOW_READERS;
        until("all are there", async || target.there.load(Ordering::Relaxed) == all).await;
        let during = at_best(&mut client).await;
        let cut_off = tokio::time::timeout(2 * PATIENCE, slow.join_all()).await.unwrap();
        assert_eq!(cut_off.len(), all);
        let last = cut_off.into_iter().max().unwrap();
        assert!(last <= 2 * TIMEOUT + PAUSE, "cut off after {last:?}");
        assert!(during <= 2 * before + ALLOWANCE, "p99 {before:?} before, {during:?} then");
        // A new one: the other has done nothing for as long, and may be cut off for it.
        honest(&mut served.client().await, 50).await;
    });
}

#[tokio::test]
async fn a_slot_is_free_again_within_twice_the_timeout() {
    let timeout = Duration::from_millis(500);
    let served = Rig::new()
        .with(|config| {
            (config.timeouts.read, config.timeouts.write) = (timeout, timeout);
            config.timeouts.idle = timeout;
            config.limits.connections = 12;
        })
        .start()
        .await;
    let bearer = format!("Bearer {}", served.operator);
    let headers = [("authorization", bearer.as_str()), ("content-length", "1000")];
    let mut slow = Vec::new();
    for kind in 0..4 {
        for _ in 0..3 {
            let mut connection = served.connection().await;
            let bytes = match kind {
                // Silent from the start.
                0 => String::new(),
                1 => "POST /v1/send HTTP/1.1\r\nho".to_owned(),
                2 => head("POST", "/v1/send", &headers),
                _ => head("POST", "/v1/send", &headers) + "{\"topic\":",
            };
            connection.write(bytes).await.unwrap();
            slow.push(connection);
        }
    }
    let start = Instant::now();
    // One byte now and then is no progress.
    let trickle = tokio::spawn(async move {
        loop {
            for connection in &mut slow {
                let _ = connection.write(" ").await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    until("there are places", async || {
        let mut connection = served.connection().await;
        let _ = connection.write(head("GET", "/healthz", &[])).await;
        connection.reply().await.is_ok_and(|reply| reply.status == 200)
    })
    .await;
    let took = start.elapsed();
    assert!(took < 2 * timeout + Duration::from_millis(500), "{took:?}");
    trickle.abort();
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_told_so() {
    let served =
        Rig::new().with(|config| config.timeouts.read = Duration::from_millis(300)).start().await;
    let bearer = format!("Bearer {}", served.operator);
    let headers = [("authorization", bearer.as_str()), ("content-length", "1000")];
    let mut connection = served.connection().await;
    connection.write(head("POST", "/v1/send", &headers) + "{").await.unwrap();
    let reply = connection.reply().await.unwrap();
    assert!(matches!(reply.status, 408 | 503), "{} {}", reply.status, reply.text());
    assert!(connection.ends_within(PATIENCE).await);
}

#[tokio::test]
async fn whoever_waits_for_an_answer_is_not_cut_off() {
    let served = Rig::new()
        .with(|config| {
            let short = Duration::from_millis(100);
            (config.timeouts.read, config.timeouts.write) = (short, short);
            config.timeouts.idle = short;
        })
        .start()
        .await;
    let mut waiter = served.client().await;
    let question = ReceiveRequest { wait_ms: Some(1000), ..receive("quiet", 1, 30_000) };
    let start = Instant::now();
    let reply = waiter.try_receive(&question).await;
    assert!(reply.good::<mailbox_wire::json::Received>().messages.is_empty());
    assert!(start.elapsed() >= Duration::from_millis(990));
}

#[tokio::test]
async fn whoever_does_nothing_after_an_answer_is_cut_off() {
    let served =
        Rig::new().with(|config| config.timeouts.idle = Duration::from_millis(300)).start().await;
    for len in [1, 1 << 16, 1 << 19] {
        let mut client = served.client().await;
        client.send("jobs", vec![7; len]).await;
        let message = client.receive_one("jobs", 30_000).await;
        assert_eq!(client.ack_it(&message).await.status, 200);
        assert!(client.connection.ends_within(Duration::from_secs(3)).await, "after {len} bytes");
    }
}

/// What is said about no request was taken for a sign of life.
#[tokio::test]
async fn whoever_asks_nothing_over_http_2_is_told_to_leave_whatever_else_is_said() {
    let served =
        Rig::new().with(|config| config.timeouts.idle = Duration::from_millis(300)).start().await;
    let mut client = served.h2_client(1 << 16).await;
    let mut health = client.get("/healthz", "").await;
    while health.piece().await.unwrap().is_some() {}
    let start = Instant::now();
    let pings = client.ping_until_over().await;
    assert!(start.elapsed() >= Duration::from_millis(300) && pings > 1, "{pings}");
    let too_late = client.get_late("/healthz").await;
    assert!(too_late.is_go_away() && too_late.reason() == Some(h2::Reason::NO_ERROR), "{too_late}");
}

/// Of a large answer most was read at once, and then nothing: it was held for as long as all of it
/// might have taken a slow client.
#[tokio::test]
async fn whoever_reads_much_and_then_nothing_is_cut_off_soon() {
    let served = Rig::new()
        .with(|config| {
            config.timeouts.write = Duration::from_secs(1);
            config.limits.connections = 1;
        })
        .start()
        .await;
    let mut client = served.client().await;
    for _ in 0..18 {
        client.send("large", vec![7; 1 << 20]).await;
    }
    drop(client);
    let is_free = async || {
        let mut connection = served.connection().await;
        let _ = connection.write(head("GET", "/healthz", &[])).await;
        connection.reply().await.is_ok_and(|reply| reply.status == 200)
    };
    until("the first has left", is_free).await;
    let question = ReceiveRequest { max_bytes: Some(32 << 20), ..receive("large", 18, 30_000) };
    let body = serde_json::to_string(&question).unwrap();
    let bearer = format!("Bearer {}", served.operator);
    let len = body.len().to_string();
    let headers = [("authorization", bearer.as_str()), ("content-length", &len)];
    let mut buffer = vec![0; 1 << 16];
    let mut connection = until_taken_in(&served).await;
    connection.write_all((head("POST", "/v1/recv", &headers) + &body).as_bytes()).await.unwrap();
    let mut taken = 0;
    while taken < 12 << 20 {
        let count = connection.read(&mut buffer).await.unwrap();
        assert!(count > 0, "cut off after {taken} bytes");
        taken += count;
    }
    until("its place is free", is_free).await;
}

/// A connection whose other end has little room for what is not read, once there is a place.
async fn until_taken_in(served: &Served) -> TcpStream {
    let mut taken_in = None;
    until("there is a place", async || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(1 << 16).unwrap();
        let mut connection = socket.connect(served.address).await.unwrap();
        let _ = connection.write_all(head("GET", "/healthz", &[]).as_bytes()).await;
        let mut status = [0; 12];
        let is_in = connection.read_exact(&mut status).await.is_ok() && status.ends_with(b"200");
        taken_in = is_in.then_some(connection);
        is_in
    })
    .await;
    taken_in.expect("it is taken in")
}
