//! How long a send takes when so many come a second, evenly: each is timed from when it was due, so
//! that a server that holds some up does not hide it.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, mpsc};

use super::client::{Connection, request, send_body};
use super::server::Server;
use super::two_threads;
use crate::journal::place::{Place, zeros};
use crate::journal::quantile;
use crate::report::Row;

const PER_SECOND: u32 = 5_000;
const CONNECTIONS: usize = 64;
const FOR: Duration = Duration::from_secs(6);
const FILE_LEN: u64 = 4 * 1024 * 1024;
/// Of one write of a kilobyte with its `fdatasync`, which is timed in the same run.
const BOUND: f64 = 5.0;

/// The slowest hundredth of sends on a journal, against one sync.
pub(crate) fn sends(place: &Place) -> Vec<Row> {
    let runtime = two_threads();
    let folder = place.folder("http-paced");
    let path = folder.path().join("data").display().to_string();
    let server = Server::start(&["journal", &path]);
    // Once to warm up.
    let _ = runtime.block_on(paced(&server, Duration::from_secs(1)));
    let mut synced = sync_times(place, "before");
    let mut took = runtime.block_on(paced(&server, FOR));
    synced.extend(sync_times(place, "after"));
    let name = "http journal, 5,000 sends/s : one write + fdatasync";
    let (p50, p99) = (quantile(&mut took, 0.5), quantile(&mut took, 0.99));
    let (sync, slowest) = (quantile(&mut synced, 0.5), quantile(&mut synced, 0.99));
    vec![
        Row::compared(format!("{name}, p50"), p50, sync).in_unit("us"),
        Row::compared(format!("{name}, p99"), p99, sync).in_unit("us").at_most(BOUND),
        Row::compared(format!("{name}, p99 : p99"), p99, slowest).in_unit("us"),
    ]
}

fn sync_times(place: &Place, when: &str) -> Vec<f64> {
    let folder = place.folder(&format!("http-paced-synced-{when}"));
    let file = zeros(&folder.path().join("synced"), FILE_LEN).expect("there is room for a file");
    let body = [7; 1024];
    (0..2000)
        .map(|at| {
            let start = Instant::now();
            file.write_all_at(&body, at * 1024 % FILE_LEN).expect("the file can be written");
            file.sync_data().expect("the file can be synced");
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect()
}

/// Microseconds that each send took.
async fn paced(server: &Server, time: Duration) -> Vec<f64> {
    let request = Arc::new(request(server, "/v1/send", &send_body()));
    let (pacer, due) = mpsc::unbounded_channel();
    let (due, end) = (Arc::new(Mutex::new(due)), Instant::now() + time);
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (request, address) = (Arc::clone(&request), server.address);
            let due = Arc::clone(&due);
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await;
                let mut took = Vec::new();
                loop {
                    let next = due.lock().await.recv().await;
                    let Some(due) = next else { return took };
                    let (status, _) = connection.exchange(&request).await;
                    assert_eq!(status, 200);
                    took.push(Instant::elapsed(&due).as_secs_f64() * 1e6);
                }
            })
        })
        .collect();
    let pacer = tokio::task::spawn_blocking(move || pace(&pacer, end));
    pacer.await.expect("it only counts");
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("a client does not panic"));
    }
    all
}

/// Lets one send go at a time, evenly: the runtime's own timers go off once a millisecond, five
/// sends at a time.
fn pace(due: &mpsc::UnboundedSender<Instant>, end: Instant) {
    let (start, mut count) = (Instant::now(), 0);
    let every = Duration::from_secs(1) / PER_SECOND;
    while Instant::now() < end {
        count += 1;
        // Not when it should have been: this thread may be late, which is not the server's fault.
        let _ = due.send(Instant::now());
        let next = start + every * count;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}
