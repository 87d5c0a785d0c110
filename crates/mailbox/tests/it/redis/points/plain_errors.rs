//! Point 7: closing wakes whoever waits, every error has its kind, and no room means no room.

use std::sync::Arc;
use std::time::Instant;

use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{Backend, DeadReason, ErrorKind, Mailbox, Outgoing, Policy, ReceiveOptions, Verdict};
use mailbox_redis_servers::Node;

use crate::redis::{Place, SOON, jobs, millis, nack, seconds, send, until, url};

async fn until_one_waits(backend: &RedisBackend) {
    until("one waits", || async { backend.stats(&jobs()).await.unwrap().waiters == 1 }).await;
}

#[tokio::test]
async fn point_7_closing_a_backend_wakes_whoever_waits() {
    let place = Place::new().await;
    let backend = Arc::clone(&place.backend);
    let options = ReceiveOptions::new().with_wait(seconds(15));
    let waiting = tokio::spawn(async move { backend.receive(&jobs(), &options).await });
    until_one_waits(&place.backend).await;
    let start = Instant::now();
    place.backend.close().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let after = send(&*place.backend, Outgoing::new("1".into())).await;
    assert_eq!(after.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn point_7_closing_a_mailbox_wakes_whoever_waits() {
    let place = Place::new().await;
    let address = format!("{}/jobs", url(&place.node.address()));
    let mailbox: Mailbox<u32> = Mailbox::open(&address).await.unwrap();
    let own = mailbox.clone();
    let options = ReceiveOptions::new().with_wait(seconds(15));
    let waiting = tokio::spawn(async move { own.receive_with(options).await.map(drop) });
    until("one waits", || async { mailbox.stats().await.unwrap().waiters == 1 }).await;
    let start = Instant::now();
    mailbox.close().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[tokio::test]
async fn point_7_a_mailbox_for_no_messages_takes_none() {
    let place = Place::new().await;
    let policy = Policy { max_size: Some(0), ..Policy::default() };
    place.backend.configure(&jobs(), policy).await.unwrap();
    let full = send(&*place.backend, Outgoing::new("1".into())).await;
    assert_eq!(full.unwrap_err().kind(), ErrorKind::MailboxFull);
    assert!(!place.parts().contains(&"pending".to_owned()));
    // The same as a rule of whoever asks.
    let config =
        RedisConfig::default().with_policy(Policy { max_size: Some(0), ..Policy::default() });
    let other = place.another(config).await;
    let batch = vec![Outgoing::new("1".into())];
    let sent = other.send(&"other".parse().unwrap(), batch).await.unwrap().remove(0);
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::MailboxFull);
}

#[tokio::test]
async fn point_7_a_server_that_is_gone_is_a_connection_error_whatever_was_asked() {
    let mut config = RedisConfig::default();
    (config.patience, config.response_timeout) = (millis(200), millis(500));
    let mut place = Place::with(config).await;
    place.send("1").await;
    let taken = place.receive(seconds(30)).await.unwrap();
    place.node.kill();
    let reject = Verdict::Reject { reason: DeadReason::Rejected, error: None };
    let extend = Verdict::Extend { timeout: seconds(30) };
    for verdict in [Verdict::Acknowledge, nack(seconds(0)), extend, reject] {
        let error = place.settle(&taken, verdict.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{verdict:?}: {error}");
        assert_eq!(error.mailbox(), Some(&jobs()), "{verdict:?}: {error}");
    }
    let sent = send(&*place.backend, Outgoing::new("1".into())).await;
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::Connection);
    let options = ReceiveOptions::new();
    let received = place.backend.receive(&jobs(), &options).await;
    assert_eq!(received.unwrap_err().kind(), ErrorKind::Connection);
    let counted = place.backend.stats(&jobs()).await;
    assert_eq!(counted.unwrap_err().kind(), ErrorKind::Connection);
}

#[tokio::test]
async fn point_7_a_handle_of_nobody_is_expired_and_nothing_else() {
    let place = Place::new().await;
    for handle in ["", ":", "id", "id:", ":suffix", "a:b:c", "\u{0}:\u{0}", "ä:ö"] {
        let error = place.settle_handle(handle, Verdict::Acknowledge).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired, "{handle:?}: {error}");
    }
    // One that nobody can have: of a message that waits.
    let id = place.send("1").await;
    for handle in [id.clone(), format!("{id}:"), format!("{id}:0")] {
        let error = place.settle_handle(&handle, nack(seconds(0))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired, "{handle:?}: {error}");
    }
    assert_eq!(place.list("pending"), [id]);
}

#[tokio::test]
async fn point_7_a_server_that_nobody_answers_for_is_a_connection_error_at_open() {
    let address = {
        let node = Node::start(&[]).unwrap();
        node.address()
    };
    let error = RedisBackend::open(&url(&address)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
}
