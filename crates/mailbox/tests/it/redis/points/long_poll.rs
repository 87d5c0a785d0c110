//! Point 4: a receive that waits costs next to nothing, comes back as soon as there is one message,
//! whoever sent it and however, and shares one connection with all others that wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{Backend, Delivery, ReceiveOptions, Result};
use tokio::task::JoinHandle;

use crate::redis::{Place, SOON, jobs, key, seconds, until};

fn wait(backend: &Arc<RedisBackend>, wait: Duration) -> JoinHandle<Result<Vec<Delivery>>> {
    let backend = Arc::clone(backend);
    let options = ReceiveOptions::new().with_max_messages(10).with_wait(wait);
    tokio::spawn(async move { backend.receive(&jobs(), &options).await })
}

impl Place {
    /// Clients whom the server tells of changes, that have read what they want to be told of.
    fn listeners(&self) -> usize {
        let is_listening = |line: &&String| line.contains("flags=t") && line.contains("cmd=ttl");
        self.clients().iter().filter(is_listening).count()
    }

    async fn until_somebody_listens(&self) {
        until("somebody listens", || async { self.listeners() == 1 }).await;
    }

    /// Puts a message there with plain commands, as anybody may.
    fn push(&self, id: &str) {
        let _: u64 = self.run(&["HSET", &key("data"), id, "1"]);
        let _: u64 = self.run(&["LPUSH", &key("pending"), id]);
    }
}

#[tokio::test]
async fn point_4_a_receive_that_waits_in_vain_asks_twice() {
    let place = Place::new().await;
    // The server knows the script.
    place.receive(seconds(30)).await;
    let (scripts, reads) = (place.scripts(), place.calls("ttl"));
    let start = Instant::now();
    assert!(wait(&place.backend, seconds(2)).await.unwrap().unwrap().is_empty());
    assert!(start.elapsed() >= seconds(2));
    let (scripts, reads) = (place.scripts() - scripts, place.calls("ttl") - reads);
    assert!(scripts <= 2, "{scripts} scripts: at first and at last");
    assert!(reads <= 2, "{reads} reads of what it wants to be told of");
}

#[tokio::test]
async fn point_4_looking_again_and_again_would_be_seen() {
    let mut config = RedisConfig::default();
    config.events = false;
    let place = Place::with(config).await;
    let reads = place.calls("ttl");
    assert!(wait(&place.backend, seconds(2)).await.unwrap().unwrap().is_empty());
    assert!(place.calls("ttl") - reads > 4);
}

#[tokio::test]
async fn point_4_a_receive_that_waits_comes_back_with_the_first_message() {
    let place = Place::new().await;
    let waiting = wait(&place.backend, seconds(15));
    place.until_somebody_listens().await;
    place.push("by-hand");
    let pushed = Instant::now();
    let taken = waiting.await.unwrap().unwrap();
    let late = pushed.elapsed();
    assert_eq!(taken.len(), 1, "it does not wait for ten");
    assert_eq!(taken[0].id.to_string(), "by-hand");
    assert!(late < SOON, "{late:?}: it was not told");
}

#[cfg(feature = "planted")]
#[tokio::test]
async fn point_4_a_receive_that_is_not_told_is_noticed() {
    use mailbox::backends::redis::{Bug, Planted};

    let mut config = RedisConfig::default();
    config.planted = Planted::bug(Bug::Deaf);
    let place = Place::with(config).await;
    let waiting = wait(&place.backend, seconds(15));
    place.until_somebody_listens().await;
    place.push("by-hand");
    let taken = tokio::time::timeout(SOON, waiting).await;
    assert!(taken.is_err(), "the mistake is there to be seen");
}

#[tokio::test]
async fn point_4_all_receives_that_wait_in_a_process_share_one_connection() {
    const WAITING: usize = 50;
    let place = Place::new().await;
    let waiting: Vec<_> = (0..WAITING).map(|_| wait(&place.backend, seconds(15))).collect();
    until("all wait", || async { place.backend.stats(&jobs()).await.unwrap().waiters == 50 }).await;
    place.until_somebody_listens().await;
    let clients = place.clients();
    assert_eq!(clients.len(), 2, "one for calls, one for being told: {clients:#?}");
    for n in 0..WAITING {
        // One at a time: nobody is to take ten.
        place.push(&n.to_string());
        until("somebody takes it", || async { place.list("pending").is_empty() }).await;
    }
    let taken = join_all(waiting).await.into_iter().map(|taken| taken.unwrap().unwrap().len());
    assert_eq!(taken.sum::<usize>(), WAITING);
}
