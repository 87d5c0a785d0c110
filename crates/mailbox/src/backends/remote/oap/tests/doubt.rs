//! What is said of a call that was made several times: that the last attempt came to nothing says
//! nothing about the first.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{BatchResult, SentBatch};
use mailbox_wire::proto::Asked;

use super::peer::{Conn, Peer, config, name, problem, sent};
use crate::backend::{Backend, Outgoing, Sent};
use crate::backends::remote::RemoteConfig;
use crate::error::{Error, ErrorKind, Result};

/// For how long a call is made again and again.
const PATIENCE: Duration = Duration::from_millis(400);

fn patient(patience: Duration) -> RemoteConfig {
    let mut config = config().with_patience(patience);
    config.connections = 1;
    config
}

fn keyed(at: usize) -> Vec<Outgoing> {
    let mut message = Outgoing::new(Bytes::from(format!("message-{at}")));
    message.idempotency_key = Some(format!("key-{at}"));
    vec![message]
}

async fn batch(conn: &mut Conn) -> (u64, mailbox_wire::json::SendBatchRequest) {
    match conn.request().await {
        Some((id, Asked::Call(Request::SendBatch(batch)))) => (id, batch),
        other => panic!("{other:?}"),
    }
}

fn one(result: Result<Vec<Result<Sent>>>) -> Result<String> {
    result.unwrap().remove(0).map(|sent| sent.id.to_string())
}

fn failed(result: Result<Vec<Result<Sent>>>) -> Error {
    one(result).unwrap_err()
}

/// The service had stored it, and was killed. The client could not reach it again, and said that
/// nothing had been done.
#[tokio::test]
async fn that_a_service_cannot_be_reached_any_more_takes_no_doubt_away() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient(PATIENCE)).await;
    let name = name("a");
    let (result, ()) = tokio::join!(backend.send(&name, keyed(0)), async {
        batch(&mut conn).await;
        // Nobody listens from now on.
        drop((conn, peer));
    });
    let error = failed(result);
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(error.is_in_doubt(), "{error:?}");
}

#[tokio::test]
async fn that_the_next_attempt_is_refused_takes_no_doubt_away() {
    for (kind, expected) in [
        ("unauthorized", ErrorKind::Unauthorized),
        ("saturated", ErrorKind::Saturated),
        ("forbidden", ErrorKind::Forbidden),
    ] {
        let peer = Peer::new().await;
        let (backend, mut conn) = peer.open(patient(Duration::from_secs(20))).await;
        let name = name("a");
        let (result, ()) = tokio::join!(backend.send(&name, keyed(0)), async {
            batch(&mut conn).await;
            drop(conn);
            let mut conn = peer.accept().await;
            let (id, _) = batch(&mut conn).await;
            conn.refuse(id, 400, &problem(kind)).await;
        });
        let error = failed(result);
        assert_eq!((error.kind(), error.is_in_doubt()), (expected, true), "{error:?}");
    }
}

/// One message of those that were asked for again was refused; whether the first attempt had sent
/// it is another matter.
#[tokio::test]
async fn that_one_of_the_next_attempt_is_refused_takes_no_doubt_away() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient(Duration::from_secs(20))).await;
    let name = name("a");
    let (result, ()) = tokio::join!(backend.send(&name, keyed(0)), async {
        batch(&mut conn).await;
        drop(conn);
        let mut conn = peer.accept().await;
        let (id, _) = batch(&mut conn).await;
        let results = vec![BatchResult::Refused { error: Box::new(problem("mailbox_full")) }];
        conn.reply(id, Reply::SentBatch(SentBatch { results })).await;
    });
    let error = failed(result);
    assert_eq!((error.kind(), error.is_in_doubt()), (ErrorKind::MailboxFull, true), "{error:?}");
}

/// A refusal by itself leaves no doubt: the tests of this page would not notice if all did.
#[tokio::test]
async fn what_was_refused_at_once_is_not_in_doubt() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient(PATIENCE)).await;
    let name = name("a");
    let (result, ()) = tokio::join!(backend.send(&name, keyed(0)), async {
        let (id, _) = batch(&mut conn).await;
        conn.refuse(id, 403, &problem("forbidden")).await;
    });
    let error = failed(result);
    assert_eq!((error.kind(), error.is_in_doubt()), (ErrorKind::Forbidden, false), "{error:?}");
}

#[tokio::test]
async fn of_those_that_went_out_together_each_is_told_of_its_own_doubt() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient(Duration::from_secs(20))).await;
    let name = name("a");
    let sends = join_all((0..4).map(|at| backend.send(&name, keyed(at))));
    let (results, ()) = tokio::join!(sends, async {
        assert_eq!(batch(&mut conn).await.1.messages.len(), 4);
        drop(conn);
        let mut conn = peer.accept().await;
        let mut answered = 0;
        while answered < 4 {
            let (id, batch) = batch(&mut conn).await;
            let count = batch.messages.len();
            if batch.messages.iter().any(|it| it.payload_b64.0.ends_with(b"2")) {
                conn.refuse(id, 403, &problem("forbidden")).await;
                answered += usize::from(count == 1);
            } else {
                conn.reply(id, sent(&batch)).await;
                answered += count;
            }
        }
    });
    for (at, result) in results.into_iter().enumerate() {
        match one(result) {
            Ok(id) => assert_eq!(id, format!("message-{at}")),
            Err(error) => {
                let found = (error.kind(), error.is_in_doubt(), at);
                assert_eq!(found, (ErrorKind::Forbidden, true, 2), "{error:?}");
            }
        }
    }
}

/// Only the first was tried, and only of that one is it not known what became of it. The others
/// were told the same.
#[tokio::test]
async fn those_that_never_went_out_are_not_in_doubt_because_the_one_before_is() {
    let peer = Peer::new().await;
    let (backend, mut conn) = peer.open(patient(Duration::from_secs(20))).await;
    let name = name("a");
    let sends = join_all((0..4).map(|at| backend.send(&name, keyed(at))));
    let (results, ()) = tokio::join!(sends, async {
        let (id, together) = batch(&mut conn).await;
        assert_eq!(together.messages.len(), 4);
        conn.refuse(id, 429, &problem("saturated")).await;
        assert_eq!(batch(&mut conn).await.1.messages.len(), 1);
        drop(conn);
        let mut conn = peer.accept().await;
        let (id, again) = batch(&mut conn).await;
        assert_eq!(again.messages.len(), 1);
        conn.refuse(id, 429, &problem("saturated")).await;
    });
    let errors: Vec<Error> = results.into_iter().map(failed).collect();
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Saturated), "{errors:?}");
    let doubts: Vec<bool> = errors.iter().map(Error::is_in_doubt).collect();
    assert_eq!(doubts, [true, false, false, false], "{errors:?}");
}

/// Each request was given a patience of its own: whoever was last in line waited for as long as
/// all before it.
#[tokio::test]
async fn nobody_waits_longer_for_a_service_that_is_gone_than_one_call_does() {
    /// Each is half of the largest request, so that they go out by twos.
    const LEN: usize = 200 * 1024;
    const COUNT: usize = 60;

    let peer = Peer::new().await;
    let (backend, conn) = peer.open(patient(PATIENCE)).await;
    drop((conn, peer));
    let name = name("a");
    let payload = Bytes::from(vec![b'x'; LEN]);
    let begun = Instant::now();
    let sends = (0..COUNT).map(|_| backend.send(&name, vec![Outgoing::new(payload.clone())]));
    for result in join_all(sends).await {
        assert_eq!(failed(result).kind(), ErrorKind::Connection);
    }
    // By turns it would be 15 times.
    let took = begun.elapsed();
    assert!(took < 8 * PATIENCE, "{took:?}");
}
