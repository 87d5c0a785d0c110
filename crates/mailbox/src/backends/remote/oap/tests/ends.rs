//! What is known of requests when the tasks of a connection end in an unusual way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mailbox_wire::call::Request;
use mailbox_wire::json::Problem;
use mailbox_wire::oap::MAX_INFLIGHT;
use mailbox_wire::proto::Asked;
use tokio::sync::{Semaphore, oneshot};

use super::super::flight::To;
use super::super::link::{Link, Shared};
use super::peer::{Peer, config, name, problem, sent};
use crate::backend::{Backend, Outgoing};
use crate::backends::remote::door::Outcome;
use crate::error::{Error, ErrorKind};

fn broken() -> Error {
    Error::new(ErrorKind::Connection, "broken")
}

/// What the writer had taken when it was cut off was said never to have gone out, and was sent a
/// second time.
#[tokio::test]
async fn what_a_writer_had_that_was_cut_off_is_in_doubt() {
    for is_cut_off in [false, true] {
        let shared = Shared::new(false);
        let ((to, taken), (later, in_line)) = (oneshot::channel(), oneshot::channel());
        shared.flight.lock().put(b"x", 0, To::One(to), None).ok().unwrap();
        shared.flight.lock().take_out(&mut Vec::new(), &mut Vec::new());
        shared.flight.lock().put(b"x", 0, To::One(later), None).ok().unwrap();
        let writer = tokio::spawn(async move {
            if is_cut_off {
                std::future::pending::<()>().await;
            }
        });
        if is_cut_off {
            writer.abort();
        }
        shared.end(writer.await, broken());
        let outcome = if is_cut_off { Outcome::InDoubt } else { Outcome::Void };
        assert_eq!(taken.await.unwrap().err().unwrap().outcome, outcome);
        assert_eq!(in_line.await.unwrap().err().unwrap().outcome, Outcome::Void);
    }
}

/// Room was gone with each request that did not get in line, until nothing could be asked.
#[tokio::test]
async fn what_does_not_get_in_line_takes_no_room() {
    /// More than can be in flight.
    const MANY: usize = 4 * MAX_INFLIGHT;

    let link = Arc::new(Link { shared: Arc::new(Shared::new(false)) });
    let places = Arc::new(Semaphore::new(MANY));
    let mut askings = Vec::new();
    for _ in 0..MANY {
        let place = Arc::new(Arc::clone(&places).acquire_owned().await.unwrap());
        let free = link.shared.room.available_permits();
        match link.ask(Asked::Call(Request::Abilities), place).await {
            Ok(asking) => askings.push(asking),
            Err(failed) => {
                assert_eq!(failed.outcome, Outcome::Void);
                assert_eq!(link.shared.room.available_permits(), free);
                return;
            }
        }
    }
    panic!("so many cannot be in flight");
}

/// A service that stops answers what it has looked at, then says so. What was underway to it was
/// said to be in doubt, whole batches of it.
#[tokio::test]
async fn what_a_service_that_stops_has_not_looked_at_is_asked_again() {
    let peer = Peer::new().await;
    let mut settings = config().with_patience(Duration::from_secs(20));
    settings.connections = 1;
    let (backend, mut conn) = peer.open(settings).await;
    let sending = tokio::spawn(async move {
        let message = Outgoing::new(Bytes::from_static(b"once"));
        backend.send(&name("jobs"), vec![message]).await
    });
    assert!(conn.request().await.is_some());
    let stopping = Problem { reason: Some("stopping".to_owned()), ..problem("connection") };
    conn.refuse(0, 503, &stopping).await;
    drop(conn);
    let mut conn = peer.accept().await;
    let (id, asked) = conn.request().await.unwrap();
    let Asked::Call(Request::SendBatch(batch)) = asked else { panic!("{asked:?}") };
    conn.reply(id, sent(&batch)).await;
    assert!(sending.await.unwrap().unwrap()[0].is_ok());
}
