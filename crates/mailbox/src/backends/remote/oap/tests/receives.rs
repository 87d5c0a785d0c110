//! Receives: those that wait, and those that are given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, poll_immediate};
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{self, Problem, SettleOp};
use mailbox_wire::proto::Asked;

use super::peer::{Conn, Peer, config, envelope, name, problem, received, settled};
use crate::backend::Backend;
use crate::backends::remote::receive::LEAVE_WITHIN;
use crate::error::ErrorKind;
use crate::options::ReceiveOptions;

fn waiting() -> ReceiveOptions {
    let options = ReceiveOptions::default().with_max_messages(2);
    options.with_wait(Duration::from_secs(60))
}

async fn receive(conn: &mut Conn) -> u64 {
    match conn.request().await.unwrap() {
        (id, Asked::Call(Request::Receive(it))) => {
            assert_eq!(it.wait_ms, Some(60_000));
            id
        }
        (_, other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_receive_that_is_given_up_is_cancelled_and_what_comes_is_given_back() {
    let peer = Peer::new().await;
    let (backend, mut ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let mut conn = peer.accept().await;
    let id = receive(&mut conn).await;
    drop(receiving);
    // The next call waits until that is over.
    let next = backend.purge(&name);
    let (purged, ()) = tokio::join!(next, async {
        let (cancel, asked) = conn.request().await.unwrap();
        assert_eq!(asked, Asked::Cancel(id));
        let two = vec![envelope("a", "1", b"one"), envelope("a", "2", b"two")];
        conn.reply(id, received(two)).await;
        conn.reply(cancel, Reply::Done(json::Ok { ok: true })).await;
        let (id, asked) = ordinary.request().await.unwrap();
        let Asked::Call(Request::SettleBatch(settle)) = asked else { panic!("{asked:?}") };
        assert!(settle.items.iter().all(|item| item.op == SettleOp::Return));
        let handles = settle.items.iter().map(|item| item.receipt_handle.clone().unwrap());
        // The last one first.
        assert_eq!(handles.collect::<Vec<_>>(), ["a/handle-of-2", "a/handle-of-1"]);
        let results = vec![json::SettleResult::Settled { ok: true }; 2];
        ordinary.reply(id, Reply::SettledBatch(json::SettledBatch { results })).await;
        let (id, asked) = ordinary.request().await.unwrap();
        assert!(matches!(asked, Asked::Call(Request::Purge(_))), "{asked:?}");
        ordinary.reply(id, Reply::Purged(json::Purged { removed: 0 })).await;
    });
    assert_eq!(purged.unwrap(), 0);
}

#[tokio::test]
async fn nobody_gets_more_than_they_asked_for() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    let (name, options) = (name("a"), ReceiveOptions::default().with_max_messages(2));
    let (got, ()) = tokio::join!(backend.receive(&name, &options), async {
        let (id, _) = conn.request().await.unwrap();
        let all = ["1", "2", "3", "4"].map(|id| envelope("a", id, b"x"));
        conn.reply(id, received(all.into())).await;
    });
    let got: Vec<String> = got.unwrap().iter().map(|delivery| delivery.id.to_string()).collect();
    assert_eq!(got, ["1", "2"]);
    let next = tokio::time::timeout(Duration::from_secs(20), conn.request()).await;
    let (_, asked) = next.expect("the others are given back").unwrap();
    let Asked::Call(Request::SettleBatch(settle)) = asked else { panic!("{asked:?}") };
    assert!(settle.items.iter().all(|item| item.op == SettleOp::Return));
    let handles = settle.items.iter().map(|item| item.receipt_handle.clone().unwrap());
    assert_eq!(handles.collect::<Vec<_>>(), ["a/handle-of-4", "a/handle-of-3"]);
}

#[tokio::test]
async fn a_connection_on_which_a_cancel_is_not_answered_is_left() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let mut conn = peer.accept().await;
    let id = receive(&mut conn).await;
    tokio::time::pause();
    drop(receiving);
    let (_, asked) = conn.request().await.unwrap();
    assert_eq!(asked, Asked::Cancel(id));
    tokio::time::sleep(Duration::from_secs(3)).await;
    tokio::time::resume();
    // The next one does not go there.
    let (got, _conn) = tokio::join!(backend.receive(&name, &options), async {
        let other = tokio::time::timeout(Duration::from_secs(20), peer.accept()).await;
        let mut other = other.expect("there is another connection");
        let id = receive(&mut other).await;
        other.reply(id, received(Vec::new())).await;
        other
    });
    assert!(got.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_received_is_what_was_sent() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let (got, ()) = tokio::join!(backend.receive(&name, &options), async {
        let mut conn = peer.accept().await;
        let id = receive(&mut conn).await;
        conn.reply(id, received(vec![envelope("a", "1", b"one")])).await;
    });
    let got = got.unwrap();
    assert_eq!(got.len(), 1);
    assert_eq!(&got[0].letter.payload[..], b"one");
    assert_eq!(got[0].letter.attributes["kind"], "test");
    assert_eq!(got[0].id.to_string(), "1");
}

#[tokio::test]
async fn receives_that_wait_hold_up_nobody() {
    let mut peer = Peer::new().await;
    peer.max_inflight = 4;
    let (backend, mut ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(join_all((0..10).map(|_| backend.receive(&name, &options))));
    assert!(poll_immediate(&mut receiving).await.is_none());
    // None of them waits for the place of another.
    let mut conns = Vec::new();
    for count in [4, 4, 2] {
        let mut conn = peer.accept().await;
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(receive(&mut conn).await);
        }
        conns.push((conn, ids));
    }
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        let (id, _) = ordinary.request().await.unwrap();
        ordinary.reply(id, Reply::Purged(json::Purged { removed: 3 })).await;
    });
    assert_eq!(purged.unwrap(), 3);
    for (conn, ids) in &mut conns {
        for id in ids {
            conn.reply(*id, received(Vec::new())).await;
        }
    }
    assert!(receiving.await.into_iter().all(|got| got.unwrap().is_empty()));
    // The places are free again.
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let id = receive(&mut conns[0].0).await;
    conns[0].0.reply(id, received(Vec::new())).await;
    assert!(receiving.await.unwrap().is_empty());
}

#[tokio::test]
async fn a_closed_backend_leaves_its_receives() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let mut conn = peer.accept().await;
    let id = receive(&mut conn).await;
    let (got, closed, ()) = tokio::join!(receiving, backend.close(), async {
        let (cancel, asked) = conn.request().await.unwrap();
        assert_eq!(asked, Asked::Cancel(id));
        conn.reply(id, received(Vec::new())).await;
        conn.reply(cancel, Reply::Done(json::Ok { ok: true })).await;
    });
    assert_eq!(got.unwrap_err().kind(), ErrorKind::Closed);
    closed.unwrap();
    drop(backend);
    assert!(conn.request().await.is_none(), "its connections are closed with it");
}

/// What it gets and nobody takes is given back before its end is the end: also where whoever waits
/// for it is busy elsewhere.
#[tokio::test]
async fn a_backend_is_closed_when_its_receives_are_over() {
    let peer = Peer::new().await;
    let (backend, mut ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let mut conn = peer.accept().await;
    let id = receive(&mut conn).await;
    let is_back = Arc::new(AtomicBool::new(false));
    let service = tokio::spawn({
        let is_back = Arc::clone(&is_back);
        async move {
            let (cancel, asked) = conn.request().await.unwrap();
            assert_eq!(asked, Asked::Cancel(id));
            conn.reply(id, received(vec![envelope("a", "1", b"one")])).await;
            conn.reply(cancel, Reply::Done(json::Ok { ok: true })).await;
            let (id, asked) = ordinary.request().await.unwrap();
            let Asked::Call(Request::SettleBatch(settle)) = asked else { panic!("{asked:?}") };
            assert_eq!(settle.items[0].op, SettleOp::Return);
            is_back.store(true, Ordering::Relaxed);
            ordinary.reply(id, settled(1)).await;
        }
    });
    // Nobody looks at the receive meanwhile.
    backend.close().await.unwrap();
    assert!(is_back.load(Ordering::Relaxed));
    service.await.unwrap();
    assert_eq!(receiving.await.unwrap_err().kind(), ErrorKind::Closed);
}

/// Where somebody always leaves, every call took as long as a service may take to notice that.
#[tokio::test]
async fn nobody_waits_for_those_who_leave_later() {
    let peer = Peer::new().await;
    let (backend, mut ordinary) = peer.open(config()).await;
    let (name, options) = (name("a"), waiting());
    let mut first = Box::pin(backend.receive(&name, &options));
    let mut second = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut first).await.is_none());
    let mut conn = peer.accept().await;
    let first_id = receive(&mut conn).await;
    assert!(poll_immediate(&mut second).await.is_none());
    let second_id = receive(&mut conn).await;
    drop(first);
    let mut purging = Box::pin(backend.purge(&name));
    assert!(poll_immediate(&mut purging).await.is_none());
    drop(second);
    let start = Instant::now();
    let (purged, ()) = tokio::join!(purging, async {
        let mut cancel = 0;
        for _ in 0..2 {
            let (id, asked) = conn.request().await.unwrap();
            match asked {
                Asked::Cancel(it) if it == first_id => cancel = id,
                other => assert_eq!(other, Asked::Cancel(second_id)),
            }
        }
        // The other one is never answered.
        conn.reply(first_id, received(Vec::new())).await;
        conn.reply(cancel, Reply::Done(json::Ok { ok: true })).await;
        let (id, _) = ordinary.request().await.unwrap();
        ordinary.reply(id, Reply::Purged(json::Purged { removed: 3 })).await;
    });
    assert_eq!(purged.unwrap(), 3);
    assert!(start.elapsed() < LEAVE_WITHIN, "{:?}", start.elapsed());
}

/// It was waited for as long as the receive would have taken.
#[tokio::test]
async fn a_receive_that_was_given_up_and_is_not_answered_is_forgotten() {
    let peer = Peer::new().await;
    let config = config().with_timeout(Duration::from_millis(50));
    let (backend, _ordinary) = peer.open(config).await;
    let (name, options) = (name("a"), waiting());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let mut conn = peer.accept().await;
    let id = receive(&mut conn).await;
    drop(receiving);
    let (_, asked) = conn.request().await.unwrap();
    assert_eq!(asked, Asked::Cancel(id));
    let deadline = Instant::now() + Duration::from_secs(20);
    while Arc::strong_count(&backend.inner) > 1 {
        assert!(Instant::now() < deadline, "it still goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// W1: a receive that was sent away in the middle waits for the rest, not once more.
#[tokio::test]
async fn a_receive_that_is_made_again_waits_for_the_rest() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config().with_patience(Duration::from_secs(20))).await;
    let (name, options) = (name("a"), waiting());
    let (got, waits) = tokio::join!(backend.receive(&name, &options), async {
        let mut conn = peer.accept().await;
        let id = receive(&mut conn).await;
        // Time has to pass.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut stopping = problem("connection");
        stopping.reason = Some("stopping".to_owned());
        conn.refuse(id, 503, &stopping).await;
        let (id, asked) = conn.request().await.unwrap();
        let Asked::Call(Request::Receive(again)) = asked else { panic!("{asked:?}") };
        conn.reply(id, received(Vec::new())).await;
        again.wait_ms
    });
    assert!(got.unwrap().is_empty());
    assert!(waits.is_some_and(|wait| (1..=59_900).contains(&wait)), "{waits:?}");
}

/// All of its troubles were counted from the first one on, however well it was in between.
#[tokio::test]
async fn a_receive_that_was_well_in_between_fails_anew() {
    let peer = Peer::new().await;
    let (backend, _ordinary) = peer.open(config().with_patience(Duration::from_secs(5))).await;
    let name = name("a");
    let options = waiting().with_wait(Duration::from_secs(7200));
    tokio::time::pause();
    let service = async {
        let mut conn = peer.accept().await;
        for _ in 0..3 {
            let (id, asked) = conn.request().await.unwrap();
            assert!(matches!(asked, Asked::Call(Request::Receive(_))), "{asked:?}");
            tokio::time::advance(Duration::from_secs(600)).await;
            let problem = Problem { reason: Some("stopping".to_owned()), ..problem("connection") };
            conn.refuse(id, 503, &problem).await;
        }
        let (id, _) = conn.request().await.unwrap();
        conn.reply(id, received(vec![envelope("a", "1", b"x")])).await;
        std::future::pending::<()>().await;
    };
    let got = tokio::select! {
        got = backend.receive(&name, &options) => got,
        () = service => unreachable!("it goes on"),
    };
    assert_eq!(got.unwrap().len(), 1);
}

/// The end came after the answer, and before whoever asked had looked: the messages were given
/// back by nobody that the end had waited for.
#[tokio::test]
async fn what_came_just_before_the_end_is_given_back_before_it() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(config()).await;
    let (name, options) = (name("a"), ReceiveOptions::default());
    let mut receiving = Box::pin(backend.receive(&name, &options));
    assert!(poll_immediate(&mut receiving).await.is_none());
    let (id, _) = conn.request().await.unwrap();
    conn.reply(id, received(vec![envelope("a", "1", b"x")])).await;
    // What is answered later on the same connection comes later.
    let (purged, ()) = tokio::join!(backend.purge(&name), async {
        let (id, _) = conn.request().await.unwrap();
        conn.reply(id, Reply::Purged(json::Purged { removed: 0 })).await;
    });
    purged.unwrap();
    let is_back = AtomicBool::new(false);
    let closing = async {
        backend.close().await.unwrap();
        assert!(is_back.load(Ordering::Relaxed), "the end came first");
    };
    let ((), got, ()) = tokio::join!(closing, receiving, async {
        let (id, asked) = conn.request().await.unwrap();
        let Asked::Call(Request::SettleBatch(settle)) = asked else { panic!("{asked:?}") };
        assert_eq!(settle.items[0].op, SettleOp::Return);
        is_back.store(true, Ordering::Relaxed);
        conn.reply(id, settled(1)).await;
    });
    assert_eq!(got.unwrap_err().kind(), ErrorKind::Closed);
}

/// There was nothing to give back, and the end waited for somebody to look at that.
#[tokio::test]
async fn a_receive_without_messages_that_nobody_looks_at_does_not_hold_up_the_end() {
    for is_empty in [true, false] {
        let peer = Peer::new().await;
        let (backend, mut conn) = peer.open(config()).await;
        let (name, options) = (name("a"), ReceiveOptions::default());
        let mut receiving = Box::pin(backend.receive(&name, &options));
        assert!(poll_immediate(&mut receiving).await.is_none());
        let (id, _) = conn.request().await.unwrap();
        if is_empty {
            conn.reply(id, received(Vec::new())).await;
        } else {
            conn.refuse(id, 403, &problem("forbidden")).await;
        }
        // What is answered later on the same connection comes later.
        let (purged, ()) = tokio::join!(backend.purge(&name), async {
            let (id, _) = conn.request().await.unwrap();
            conn.reply(id, Reply::Purged(json::Purged { removed: 0 })).await;
        });
        purged.unwrap();
        let start = Instant::now();
        backend.close().await.unwrap();
        assert!(start.elapsed() < LEAVE_WITHIN, "{:?}", start.elapsed());
        assert_eq!(receiving.await.unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// Each attempt took so long that it was taken for one that had been well.
#[tokio::test]
async fn a_receive_from_one_who_never_says_hello_ends() {
    let peer = Peer::new().await;
    let (backend, _conn) = peer.open(config().with_patience(Duration::from_secs(3))).await;
    // It waits, so it has a connection of its own.
    let (name, options) = (name("a"), waiting());
    tokio::time::pause();
    let mut mute = Vec::new();
    let accept = async {
        loop {
            mute.push(peer.accept_raw().await);
        }
    };
    let got = tokio::select! {
        got = backend.receive(&name, &options) => got,
        () = accept => unreachable!("it goes on"),
    };
    assert_eq!(got.unwrap_err().kind(), ErrorKind::Connection);
    assert!((1..8).contains(&mute.len()), "{} attempts", mute.len());
}
