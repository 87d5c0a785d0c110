//! Three times as much as the service can do, for half a minute: it has to go on doing as much as
//! it can, send the rest away quickly, and be its old self right afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::client::{self, Batch, Connection, Load, purge, request, send_body};
use super::server::Server;
use super::two_threads;
use crate::journal::place::Place;
use crate::journal::quantile;
use crate::process;
use crate::report::Row;

/// Connections that all of it comes over: what is due while they are all busy waits. Twice and
/// three times as many as requests are worked on: the more there are, the more are refused.
const CONNECTIONS: [usize; 2] = [1024, 1500];
const FOR: Duration = Duration::from_secs(30);
/// Of the best that a closed loop of 64 connections gets done.
const GOODPUT: f64 = 0.9;
const REFUSED_WITHIN_MS: f64 = 50.0;
const RESIDENT_MIB: f64 = 1024.0;
const NORMAL_WITHIN_S: f64 = 5.0;

/// What an open loop saw.
#[derive(Default)]
struct Seen {
    accepted: AtomicU64,
    refused: AtomicU64,
    refused_ms: Mutex<Vec<f64>>,
}

/// The service on a journal.
pub(crate) fn at_three_times(place: &Place) -> Vec<Row> {
    CONNECTIONS.into_iter().flat_map(|connections| over(place, connections)).collect()
}

fn over(place: &Place, connections: usize) -> Vec<Row> {
    let runtime = two_threads();
    let folder = place.folder(&format!("http-overload-{connections}"));
    let path = folder.path().join("data").display().to_string();
    let server = Server::start(&["journal", &path]);
    let load = Load::Sends(Batch::One);
    let turn = Duration::from_secs(2);
    let mut peak = 0_f64;
    for _ in 0..3 {
        peak = peak.max(runtime.block_on(client::run(&server, load, 64, turn)));
        runtime.block_on(purge(&server));
    }
    let seen = Arc::new(Seen::default());
    let resident = runtime.block_on(overload(&server, connections, peak * 3.0, &seen));
    let goodput = seen.accepted.load(Ordering::Relaxed) as f64 / FOR.as_secs_f64();
    let refused = seen.refused.load(Ordering::Relaxed) as f64 / FOR.as_secs_f64();
    let stopped = Instant::now();
    let mut normal = f64::INFINITY;
    while stopped.elapsed() < Duration::from_secs(20) {
        let turn = Duration::from_millis(500);
        if runtime.block_on(client::run(&server, load, 64, turn)) >= peak * 0.8 {
            normal = stopped.elapsed().as_secs_f64();
            break;
        }
    }
    let mut refused_ms = seen.refused_ms.lock().clone();
    let p99 = if refused_ms.is_empty() { f64::NAN } else { quantile(&mut refused_ms, 0.99) };
    let name = format!("http journal, 3x overload, {connections} connections");
    vec![
        Row::compared(format!("{name}: accepted/s : peak"), goodput, peak)
            .in_unit("/s")
            .at_least(GOODPUT),
        Row::alone(format!("{name}: refused/s"), refused, "/s"),
        Row::alone(format!("{name}: refusals, p99"), p99, "ms").at_most(REFUSED_WITHIN_MS),
        Row::alone(format!("{name}: memory at most"), resident, "MiB").at_most(RESIDENT_MIB),
        Row::alone(format!("{name}: back to normal"), normal, "s").at_most(NORMAL_WITHIN_S),
    ]
}

/// Sends so many a second, whatever becomes of them; the most memory the server had, in MiB.
async fn overload(server: &Server, connections: usize, per_second: f64, seen: &Arc<Seen>) -> f64 {
    let request: Arc<[u8]> = request(server, "/v1/send", &send_body()).into();
    let started = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (request, seen) = (Arc::clone(&request), Arc::clone(seen));
            let (next, address) = (Arc::clone(&next), server.address);
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await;
                loop {
                    // The next one that is due, by the clock alone.
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let due = started + Duration::from_secs_f64(number as f64 / per_second);
                    if due >= started + FOR || started.elapsed() >= FOR {
                        return;
                    }
                    tokio::time::sleep_until(due.into()).await;
                    let begun = Instant::now();
                    match connection.exchange(&request).await.0 {
                        200 => {
                            seen.accepted.fetch_add(1, Ordering::Relaxed);
                        }
                        429 | 503 => {
                            seen.refused.fetch_add(1, Ordering::Relaxed);
                            let took = begun.elapsed().as_secs_f64() * 1e3;
                            seen.refused_ms.lock().push(took);
                        }
                        other => panic!("an overloaded service answers {other}"),
                    }
                }
            })
        })
        .collect();
    // Stays so if the kernel does not say.
    let mut most = f64::NAN;
    while tasks.iter().any(|task| !task.is_finished()) {
        let now = process::resident(server.id()).map_or(f64::NAN, |bytes| bytes as f64);
        most = most.max(now);
        tokio::time::sleep(Duration::from_millis(200)).await;
        if started.elapsed() > FOR * 2 {
            panic!("an overloaded service does not answer");
        }
    }
    for task in tasks {
        task.await.expect("a client does not panic");
    }
    most / (1024.0 * 1024.0)
}
