//! Receives that were begun and left: kept by somebody who does not poll them any more, or dropped
//! where nothing runs. Nobody else stands still because of them, and they keep no message.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::backends::redis::RedisBackend;
use mailbox::{Backend, Delivery, Outgoing, ReceiveOptions, Result, Verdict};

use super::proxy::Proxy;
use super::{PATIENCE, Place, SOON, jobs, seconds, send, until};

/// How long a call waits for another one that does the same.
const HELD_UP: Duration = Duration::from_secs(3);

type Receiving = Pin<Box<dyn Future<Output = Result<Vec<Delivery>>> + Send>>;

/// A receive that nobody polls yet. What it takes is held for a minute.
fn receiving(backend: &Arc<RedisBackend>) -> Receiving {
    let backend = Arc::clone(backend);
    let options = ReceiveOptions::new().with_wait(PATIENCE).with_visibility_timeout(seconds(60));
    Box::pin(async move { backend.receive(&jobs(), &options).await })
}

/// Polls a receive until something is so; from then on nobody does.
async fn begin(receiving: &mut Receiving, what: &str, holds: impl Fn() -> bool) {
    tokio::select! {
        received = receiving => panic!("{received:?} before {what}"),
        () = until(what, || std::future::ready(holds())) => {}
    }
}

/// A backend behind somebody who keeps replies back, which has been used.
async fn used(place: &Place, proxy: &Proxy) -> Arc<RedisBackend> {
    let backend = RedisBackend::open(&proxy.url()).await.unwrap();
    place.send("0").await;
    let options = ReceiveOptions::new();
    assert_eq!(backend.receive(&jobs(), &options).await.unwrap().len(), 1);
    backend
}

/// Whether a send comes to its end, although a receive of the same backend stands still.
async fn send_beside(backend: &RedisBackend, what: &str) {
    let start = Instant::now();
    let sending = send(backend, Outgoing::new("1".into()));
    let sent = tokio::time::timeout(HELD_UP + SOON, sending).await;
    sent.unwrap_or_else(|_| panic!("{what}: no end after {:?}", start.elapsed())).unwrap();
}

#[tokio::test]
async fn a_receive_that_is_left_while_it_connects_does_not_keep_others_from_connecting() {
    let place = Place::new().await;
    let proxy = Proxy::before(&place.node).await;
    let backend = used(&place, &proxy).await;
    // Connections are taken, but nobody says anything on them.
    proxy.cut();
    proxy.hold();
    let mut left = receiving(&backend);
    let before = proxy.connections();
    begin(&mut left, "it connects", || proxy.connections() > before).await;
    proxy.let_go();
    send_beside(&backend, "left while it connects").await;
    drop(left);
}

#[tokio::test]
async fn a_receive_that_is_left_while_it_asks_for_the_master_does_not_keep_others_from_asking() {
    let place = Place::new().await;
    let proxy = Proxy::before(&place.node).await;
    let backend = used(&place, &proxy).await;
    let is_asked = || place.clients().iter().any(|client| client.contains(" cmd=info "));
    until("all that was asked before is over", || std::future::ready(!is_asked())).await;
    proxy.hold();
    let mut left = receiving(&backend);
    begin(&mut left, "the server is asked", is_asked).await;
    // Whoever comes next has to ask too: its connection is gone.
    proxy.cut();
    send_beside(&backend, "left while it asks").await;
    drop(left);
}

#[test]
fn a_receive_that_is_dropped_outside_of_any_runtime_gives_its_messages_back() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.unwrap();
    let (place, proxy, backend) = runtime.block_on(async {
        let place = Place::new().await;
        let proxy = Proxy::before(&place.node).await;
        let backend = RedisBackend::open(&proxy.url()).await.unwrap();
        // The server knows the scripts.
        place.send("0").await;
        let zero = place.receive(seconds(30)).await.unwrap();
        place.settle(&zero, Verdict::Acknowledge).await.unwrap();
        (place, proxy, backend)
    });
    let mut left = receiving(&backend);
    let id = runtime.block_on(async {
        let id = place.send("1").await;
        proxy.hold();
        begin(&mut left, "it is taken", || place.scores("invisible").len() == 1).await;
        id
    });
    let dropped = std::thread::spawn(move || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        drop(left);
    });
    dropped.join().expect("it can be dropped anywhere");
    proxy.let_go();
    runtime.block_on(until("it is given back", || async { place.list("pending") == [&*id] }));
    assert_eq!(place.scores("invisible"), []);
    assert!(!place.meta(&id).contains_key("count"), "as if nobody had had it");
}
