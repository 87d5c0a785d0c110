//! File events are a hint: whatever is missed is found by looking (D2).

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::backends::directory::{DirectoryBackend, DirectoryConfig};
use mailbox::{Backend, Delivery, ErrorKind};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;

use super::{
    AGAIN, PATIENCE, Place, SOON, again, bash, is_second_life, orders, receive, say, settle, text,
    until,
};

/// Messages behind the overflow.
const BEHIND: usize = 50;
/// Where the second life of a test works.
const PLACE: &str = "MAILBOX_TEST_PLACE";

fn waiting(backend: &Arc<DirectoryBackend>) -> JoinHandle<mailbox::Result<Option<Delivery>>> {
    let backend = Arc::clone(backend);
    tokio::spawn(async move { receive(&*backend, PATIENCE).await })
}

async fn until_somebody_waits(backend: &DirectoryBackend) {
    until("somebody waits", || async {
        backend.stats(&orders()).await.is_ok_and(|stats| stats.waiters == 1)
    })
    .await;
}

/// Receives all that are behind the overflow, in a process that is stopped meanwhile.
async fn receive_behind() {
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    let backend = DirectoryBackend::open(place).await.unwrap();
    assert!(receive(&*backend, Duration::ZERO).await.unwrap().is_none());
    say("\nready");
    for _ in 0..BEHIND {
        let delivery = receive(&*backend, PATIENCE).await.unwrap().expect("there is another");
        settle(&*backend, &delivery, mailbox::Verdict::Acknowledge).await.unwrap();
    }
}

/// Makes so many events that the system drops those that come after.
fn overflow(folder: &Path) {
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    assert!(most < 1_000_000, "{most} events: too many for a test");
    let (one, other) = (folder.join("one"), folder.join("other"));
    fs::write(&one, "").unwrap();
    // Two events each time.
    for _ in 0..most / 4 + 100 {
        fs::rename(&one, &other).unwrap();
        fs::rename(&other, &one).unwrap();
    }
}

#[tokio::test]
async fn messages_behind_an_overflow_of_events_are_found() {
    const TEST: &str = "events::messages_behind_an_overflow_of_events_are_found";
    if is_second_life() {
        return receive_behind().await;
    }
    let place = Place::new().await;
    let mut command = again(TEST, "exec");
    command.env(AGAIN, TEST).env(PLACE, place.backend.path()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.by_ref().any(|line| line.unwrap() == "ready"));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    overflow(&place.at("incoming"));
    for number in 0..BEHIND {
        place.put(&format!("incoming/job-{number}.json"), number.to_string());
    }
    kill_process(pid, Signal::CONT).unwrap();
    let start = Instant::now();
    until("all are received", || async {
        fs::read_dir(place.at("done")).unwrap().count() == BEHIND
    })
    .await;
    let took = start.elapsed();
    assert!(child.wait().unwrap().success());
    assert!(took < SOON, "{took:?}");
}

#[tokio::test]
async fn messages_are_found_while_events_overflow_in_this_process() {
    let place = Place::new().await;
    for round in 0..3 {
        let waits = waiting(&place.backend);
        until_somebody_waits(&place.backend).await;
        let folder = place.at("incoming");
        let noise = std::thread::spawn({
            let folder = folder.clone();
            move || overflow(&folder)
        });
        bash(&folder, &format!("echo {round} > .tmp/x; mv .tmp/x job-{round}.json"));
        noise.join().unwrap();
        let end = Instant::now();
        let delivery = waits.await.unwrap().unwrap().unwrap();
        assert!(end.elapsed() < SOON, "{:?}", end.elapsed());
        assert_eq!(text(&delivery), round.to_string());
        place.acknowledge(&delivery).await;
    }
}

#[tokio::test]
async fn without_events_messages_of_others_are_found_within_a_second() {
    let mut config = DirectoryConfig::default();
    config.events = false;
    let place = Place::with(config).await;
    let mut took = Vec::new();
    for round in 0..7 {
        let waits = waiting(&place.backend);
        until_somebody_waits(&place.backend).await;
        place.bash(&format!("echo {round} > .tmp-x; mv .tmp-x incoming/job-{round}.json"));
        let moved = Instant::now();
        let delivery = waits.await.unwrap().unwrap().unwrap();
        assert_eq!(text(&delivery), round.to_string());
        took.push(moved.elapsed());
        place.acknowledge(&delivery).await;
    }
    took.sort_unstable();
    assert!(took[took.len() / 2] < Duration::from_secs(1), "{took:?}");
    assert!(took[took.len() - 1] < SOON, "{took:?}");
}

#[tokio::test]
async fn a_bucket_that_another_process_makes_later_is_watched() {
    let mut config = DirectoryConfig::default();
    config.sharded = true;
    let place = Place::with(config).await;
    // The first in each finds the bucket new, the second knows it.
    for (bucket, name) in [("0a", "one"), ("0a", "two"), ("3f", "three"), ("3f", "four")] {
        let waits = waiting(&place.backend);
        until_somebody_waits(&place.backend).await;
        let script = format!(
            "mkdir -p incoming/{bucket}; echo '\"{name}\"' > incoming/.tmp/x;
            mv incoming/.tmp/x incoming/{bucket}/{name}.json"
        );
        place.bash(&script);
        let moved = Instant::now();
        let delivery = waits.await.unwrap().unwrap().unwrap();
        assert!(moved.elapsed() < SOON, "{name}: {:?}", moved.elapsed());
        assert_eq!(delivery.id.to_string(), name);
        place.acknowledge(&delivery).await;
    }
}

/// Waits at an inbox while somebody does something to it; what the waiter gets.
async fn while_waiting(place: &Place, act: impl AsyncFnOnce(&Place)) -> mailbox::Error {
    let waits = waiting(&place.backend);
    until_somebody_waits(&place.backend).await;
    act(place).await;
    let done = Instant::now();
    let error = waits.await.unwrap().unwrap_err();
    assert!(done.elapsed() < SOON, "{:?}: {error}", done.elapsed());
    error
}

#[tokio::test]
async fn whoever_waits_at_an_inbox_that_is_removed_is_told() {
    for events in [true, false] {
        let mut config = DirectoryConfig::default();
        config.events = events;
        let place = Place::with(config.clone()).await;
        let error = while_waiting(&place, async |place| {
            assert!(place.backend.remove(&orders()).await.unwrap());
        });
        assert_eq!(error.await.kind(), ErrorKind::NotFound, "events {events}");

        let place = Place::with(config.clone()).await;
        let other = place.another(config.clone()).await;
        let error = while_waiting(&place, async |_| {
            assert!(other.remove(&orders()).await.unwrap());
        });
        let error = error.await;
        assert_eq!(error.kind(), ErrorKind::NotFound, "by another process, {events}: {error}");

        let place = Place::with(config).await;
        let error = while_waiting(&place, async |place| {
            bash(place.root.path(), "rm -rf inboxes/orders");
        });
        let error = error.await;
        assert_eq!(error.kind(), ErrorKind::NotFound, "by a shell, {events}: {error}");
        // It can be used again.
        place.send("new").await;
        assert_eq!(text(&place.receive().await), "new");
    }
}

#[tokio::test]
async fn whoever_waits_is_told_of_the_end() {
    let place = Place::new().await;
    let error = while_waiting(&place, async |place| place.backend.close().await.unwrap()).await;
    assert_eq!(error.kind(), ErrorKind::Closed);
}
