//! How long a send takes when so many come a second, evenly: each is timed from when it was due,
//! so that a server that holds some up does not hide it.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::client::{Connection, request, send_body};
use super::server::Server;
use crate::journal::place::{Place, zeros};
use crate::journal::quantile;
use crate::report::Row;

const PER_SECOND: u64 = 5_000;
const CONNECTIONS: u64 = 64;
const FOR: Duration = Duration::from_secs(6);
const FILE_LEN: u64 = 4 * 1024 * 1024;
/// Of one write of a kilobyte with its `fdatasync`, which is timed in the same run.
const BOUND: f64 = 5.0;

/// The slowest hundredth of sends on a journal, against one sync.
pub(super) fn sends(runtime: &Runtime, place: &Place) -> Vec<Row> {
    let folder = place.folder("http-paced");
    let path = folder.path().join("data").display().to_string();
    let server = Server::start(&["journal", &path]);
    let mut synced = sync_times(place);
    // Once to warm up.
    let _ = runtime.block_on(paced(&server, Duration::from_secs(1)));
    let mut took = runtime.block_on(paced(&server, FOR));
    let name = "http journal, 5,000 sends/s : one write + fdatasync";
    let p50 = quantile(&mut took, 0.5);
    let (p99, sync) = (quantile(&mut took, 0.99), quantile(&mut synced, 0.5));
    vec![
        Row::compared(format!("{name}, p50"), p50, sync).in_unit("us"),
        Row::compared(format!("{name}, p99"), p99, sync).in_unit("us").at_most(BOUND),
    ]
}

fn sync_times(place: &Place) -> Vec<f64> {
    let folder = place.folder("http-paced-synced");
    let file = zeros(&folder.path().join("synced"), FILE_LEN).expect("there is room for a file");
    let body = [7; 1024];
    (0..500)
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
    let request = std::sync::Arc::new(request(server, "/v1/send", &send_body()));
    let start = Instant::now() + Duration::from_millis(50);
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let (request, address) = (std::sync::Arc::clone(&request), server.address);
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await;
                let every = Duration::from_secs(1) * u32::try_from(CONNECTIONS).unwrap_or(1)
                    / u32::try_from(PER_SECOND).unwrap_or(1);
                let mut due = start + every * u32::try_from(number).unwrap_or(0) / 64;
                let mut took = Vec::new();
                while due < start + time {
                    tokio::time::sleep_until(due.into()).await;
                    // A timer may be a millisecond late, which is not the server's fault.
                    let begun = Instant::now();
                    let (status, _) = connection.exchange(&request).await;
                    assert_eq!(status, 200);
                    took.push(begun.elapsed().as_secs_f64() * 1e6);
                    due += every;
                }
                took
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("a client does not panic"));
    }
    all
}
