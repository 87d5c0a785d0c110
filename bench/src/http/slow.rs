//! Two thousand clients that send a byte now and then: honest ones must hardly notice them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::client::{Connection, request, send_body, settled_one};
use super::server::Server;
use super::two_threads;
use crate::journal::place::Place;
use crate::journal::quantile;
use crate::report::Row;

const SLOW: usize = 2000;
/// Between two bytes of a slow client.
const PAUSE: Duration = Duration::from_secs(1);
const HONEST: usize = 4;
const CYCLES: usize = 500;
/// Between two cycles of an honest client.
const BREATH: Duration = Duration::from_millis(2);
const ROUNDS: usize = 3;
/// How long it may take until all slow clients are connected.
const WITHIN: Duration = Duration::from_secs(20);
const BOUND: f64 = 2.0;

/// How long a send, a receive and an acknowledgement take, with slow clients and without.
pub(crate) fn honest_beside_slow(_: &Place) -> Vec<Row> {
    let (runtime, server) = (two_threads(), Server::start(&["memory", ""]));
    let (before, during) = runtime.block_on(async {
        honest(&server).await;
        let before = best(&server).await;
        let there = Arc::new(AtomicUsize::new(0));
        let mut slow = JoinSet::new();
        for _ in 0..SLOW {
            slow.spawn(dawdle(server.address, Arc::clone(&there)));
        }
        let start = Instant::now();
        while there.load(Ordering::Relaxed) < SLOW {
            assert!(start.elapsed() < WITHIN, "slow clients cannot connect");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let during = best(&server).await;
        slow.shutdown().await;
        (before, during)
    });
    let name = "http memory, beside 2,000 slow clients : alone, p99 of a cycle";
    vec![Row::compared(name, during, before).in_unit("us").at_most(BOUND)]
}

/// The best of some rounds: what else the machine does is nobody's fault here.
async fn best(server: &Server) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        best = best.min(quantile(&mut honest(server).await, 0.99));
    }
    best
}

/// Microseconds that each cycle took.
async fn honest(server: &Server) -> Vec<f64> {
    let send = Arc::new(request(server, "/v1/send", &send_body()));
    let receive = Arc::new(request(server, "/v1/recv", "{\"topic\":\"jobs\"}"));
    let mut clients = JoinSet::new();
    for _ in 0..HONEST {
        let (send, receive) = (Arc::clone(&send), Arc::clone(&receive));
        let (address, capability) = (server.address, server.capability.clone());
        clients.spawn(async move {
            let (mut connection, mut took) = (Connection::open(address).await, Vec::new());
            for _ in 0..CYCLES {
                let begun = Instant::now();
                assert_eq!(connection.exchange(&send).await.0, 200);
                let (status, received) = connection.exchange(&receive).await;
                assert_eq!(status, 200);
                let settle = settled_one(address, &capability, &received);
                assert_eq!(connection.exchange(&settle).await.0, 200);
                took.push(begun.elapsed().as_secs_f64() * 1e6);
                tokio::time::sleep(BREATH).await;
            }
            took
        });
    }
    clients.join_all().await.concat()
}

/// Sends the head of a request a byte at a time, again and again.
async fn dawdle(address: std::net::SocketAddr, there: Arc<AtomicUsize>) {
    let mut is_new = true;
    loop {
        let mut stream = TcpStream::connect(address).await.expect("the server is there");
        if std::mem::take(&mut is_new) {
            there.fetch_add(1, Ordering::Relaxed);
        }
        for byte in "POST /v1/send HTTP/1.1\r\nhost: localhost\r\n".bytes() {
            if stream.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
