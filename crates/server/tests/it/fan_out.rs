//! One message to many mailboxes, by sending in batches.

use std::time::{Duration, Instant};

use mailbox::backends::journal::JournalConfig;
use mailbox_wire::json::{BatchMessage, BatchResult, SendBatchRequest, SentBatch};
use tokio::task::JoinSet;

use crate::rig::{Client, PATIENCE, Rig, alone, journal, message, payload};

const FOLLOWERS: usize = 10_000;
const CONNECTIONS: usize = 8;
const BATCH: usize = 256;

fn inbox(number: usize) -> String {
    format!("user:{number}:inbox")
}

/// Sends to every so many-th follower; how long after the start each of them could read it.
async fn push(mut client: Client, first: usize, start: Instant) -> Vec<Duration> {
    let mine: Vec<usize> = (first..FOLLOWERS).step_by(CONNECTIONS).collect();
    let mut times = Vec::new();
    for some in mine.chunks(BATCH) {
        let one = |&number: &usize| BatchMessage { topic: Some(inbox(number)), ..message("news") };
        let question = SendBatchRequest { topic: None, messages: some.iter().map(one).collect() };
        let sent: SentBatch = client.post("/v1/send/batch", &question).await.good();
        assert!(sent.results.iter().all(|it| matches!(it, BatchResult::Sent(_))));
        times.extend(some.iter().map(|_| start.elapsed()));
    }
    times
}

async fn read(mut client: Client, first: usize) {
    for number in (first..FOLLOWERS).step_by(CONNECTIONS) {
        let got = client.receive(&inbox(number), 2, 30_000).await;
        assert_eq!(got.len(), 1, "{number}");
        assert_eq!(got[0].payload_b64, payload("news"));
    }
}

#[test]
fn one_message_reaches_ten_thousand_mailboxes_within_two_seconds() {
    let _alone = alone();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let store = journal(&dir.path().join("j"), JournalConfig::default()).await;
        let served = Rig::on(store).start_alone().await;
        let start = Instant::now();
        let mut pushing = JoinSet::new();
        for first in 0..CONNECTIONS {
            pushing.spawn(push(served.client().await, first, start));
        }
        let times = tokio::time::timeout(2 * PATIENCE, pushing.join_all()).await.unwrap();
        let mut times = times.concat();
        times.sort();
        assert_eq!(times.len(), FOLLOWERS);
        let p95 = times[FOLLOWERS * 95 / 100];
        assert!(p95 < Duration::from_secs(2), "p95 {p95:?}");
        let mut reading = JoinSet::new();
        for first in 0..CONNECTIONS {
            reading.spawn(read(served.client().await, first));
        }
        tokio::time::timeout(2 * PATIENCE, reading.join_all()).await.unwrap();
    });
}
