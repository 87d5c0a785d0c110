//! Points 1 and 2: the reply to a send or a receive is lost with its connection, and the call is
//! tried again.

use std::sync::Arc;

use mailbox::backends::redis::{RedisBackend, RedisConfig};
use mailbox::{Backend, Delivery, Outgoing, ReceiveOptions, Verdict};

use crate::redis::proxy::{Fault, Proxy};
use crate::redis::python::Python;
use crate::redis::{Place, jobs, seconds, send, until};

const FAULTS: [Fault; 2] = [Fault::ReplyLost, Fault::ClosedBehind];

/// A backend behind a proxy, of which the server knows all scripts that follow.
async fn behind(proxy: &Proxy, config: RedisConfig) -> Arc<RedisBackend> {
    let backend = RedisBackend::open_with(&proxy.url(), config).await.unwrap();
    send(&*backend, Outgoing::new("0".into())).await.unwrap();
    let taken = receive(&backend, 1).await;
    let receipt_handle = taken[0].receipt_handle.clone();
    let settlement = mailbox::Settlement { receipt_handle, verdict: Verdict::Acknowledge };
    backend.settle(&jobs(), vec![settlement]).await.unwrap().remove(0).unwrap();
    backend
}

async fn receive(backend: &RedisBackend, most: u32) -> Vec<Delivery> {
    let options = ReceiveOptions::new().with_max_messages(most).with_wait(seconds(1));
    backend.receive(&jobs(), &options).await.unwrap()
}

fn ids(taken: &[Delivery]) -> Vec<String> {
    taken.iter().map(|delivery| delivery.id.to_string()).collect()
}

#[tokio::test]
async fn point_1_a_send_whose_reply_is_lost_puts_its_message_in_line_once() {
    let place = Place::new().await;
    let proxy = Proxy::before(&place.node).await;
    let backend = behind(&proxy, RedisConfig::default()).await;
    for fault in FAULTS {
        proxy.harm_next(fault);
        let batch = ["1", "2", "3"].map(|body| Outgoing::new(body.into()));
        let sent = backend.send(&jobs(), batch.to_vec()).await.unwrap();
        assert!(proxy.is_harm_done());
        let sent: Vec<String> = sent.into_iter().map(|one| one.unwrap().id.to_string()).collect();
        let in_line: Vec<String> = place.list("pending").into_iter().rev().collect();
        assert_eq!(in_line, sent, "{fault:?}: each once, in order");
        assert_eq!(place.hash("data").len(), 3);
        let taken = receive(&backend, 10).await;
        assert_eq!(ids(&taken), sent);
        for delivery in &taken {
            place.settle(delivery, Verdict::Acknowledge).await.unwrap();
        }
        assert!(place.receive(seconds(30)).await.is_none(), "{fault:?}: no ghost");
        assert!(!place.parts().iter().any(|part| part == "pending" || part == "invisible"));
    }
}

#[tokio::test]
async fn point_1_a_send_with_a_key_whose_reply_is_lost_is_no_duplicate_of_itself() {
    let place = Place::new().await;
    let proxy = Proxy::before(&place.node).await;
    let backend = behind(&proxy, RedisConfig::default()).await;
    proxy.harm_next(Fault::ReplyLost);
    let mut message = Outgoing::new("1".into());
    message.idempotency_key = Some("order-7".into());
    let sent = backend.send(&jobs(), vec![message]).await.unwrap().remove(0).unwrap();
    assert!(proxy.is_harm_done() && !sent.duplicate);
    assert_eq!(place.list("pending"), [sent.id.to_string()]);
}

#[tokio::test]
async fn point_1_a_send_that_is_tried_again_after_its_message_was_acknowledged_is_done() {
    let place = Place::new().await;
    let proxy = Proxy::before(&place.node).await;
    let backend = behind(&proxy, RedisConfig::default()).await;
    proxy.hold();
    let sending = tokio::spawn(async move { send(&*backend, Outgoing::new("1".into())).await });
    until("the server has it", || async { place.list("pending").len() == 1 }).await;
    let taken = place.receive(seconds(30)).await.unwrap();
    place.settle(&taken, Verdict::Acknowledge).await.unwrap();
    proxy.cut();
    assert_eq!(sending.await.unwrap().unwrap(), taken.id.to_string());
    assert!(place.receive(seconds(30)).await.is_none(), "it is not sent a second time");
}

#[cfg(feature = "planted")]
#[tokio::test]
async fn point_1_a_send_that_is_tried_again_under_another_id_is_noticed() {
    use mailbox::backends::redis::{Bug, Planted};

    let place = Place::new().await;
    let proxy = Proxy::before(&place.node).await;
    let mut config = RedisConfig::default();
    config.planted = Planted::bug(Bug::NewIdOnRetry);
    let backend = behind(&proxy, config).await;
    proxy.harm_next(Fault::ReplyLost);
    send(&*backend, Outgoing::new("1".into())).await.unwrap();
    assert!(proxy.is_harm_done());
    assert_eq!(place.list("pending").len(), 2, "the mistake is there to be seen");
}

#[tokio::test]
async fn point_1_an_id_that_the_other_side_put_in_line_twice_ends_with_its_message() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    // The reply to its first try was lost.
    python.send_as("twice", "1", "");
    python.send_as("twice", "1", "");
    let taken = python.receive(seconds(30)).unwrap();
    assert!(python.ack(&taken));
    // Left to itself it would go on for ever: an id without a body, taken and given back.
    let ghost = python.receive(seconds(0)).unwrap();
    assert_eq!((ghost.id.as_str(), ghost.body), ("twice", None));
    place.until_all_due().await;
    assert_eq!(python.reap(), 1);
    assert_eq!(place.list("pending"), ["twice"]);
    assert!(place.receive(seconds(30)).await.is_none());
    assert!(!place.parts().iter().any(|part| part == "pending" || part == "invisible"));
    assert_eq!(place.meta("twice").len(), 0);
}

#[tokio::test]
async fn point_2_a_receive_whose_reply_is_lost_finds_its_own_deliveries() {
    let place = Place::new().await;
    let proxy = Proxy::before(&place.node).await;
    let backend = behind(&proxy, RedisConfig::default()).await;
    for fault in FAULTS {
        let mut sent = Vec::new();
        for body in ["1", "2", "3"] {
            sent.push(place.send(body).await);
        }
        proxy.harm_next(fault);
        let taken = receive(&backend, 2).await;
        assert!(proxy.is_harm_done());
        assert_eq!(ids(&taken), sent[..2], "{fault:?}: what the first try took, and no more");
        assert!(taken.iter().all(|delivery| delivery.delivery_count == 1));
        assert_eq!(place.list("pending"), sent[2..]);
        for delivery in &taken {
            place.settle(delivery, Verdict::Acknowledge).await.unwrap();
        }
        let last = place.receive(seconds(30)).await.unwrap();
        place.settle(&last, Verdict::Acknowledge).await.unwrap();
        assert!(!place.parts().contains(&"invisible".to_owned()), "{fault:?}: none is stranded");
    }
}

#[cfg(feature = "planted")]
#[tokio::test]
async fn point_2_a_receive_that_forgets_what_it_took_is_noticed() {
    use mailbox::backends::redis::{Bug, Planted};

    let place = Place::new().await;
    let proxy = Proxy::before(&place.node).await;
    let mut config = RedisConfig::default();
    config.planted = Planted::bug(Bug::LeaseForgotten);
    let backend = behind(&proxy, config).await;
    let (first, second) = (place.send("1").await, place.send("2").await);
    proxy.harm_next(Fault::ReplyLost);
    let taken = receive(&backend, 1).await;
    assert!(proxy.is_harm_done());
    assert_eq!(ids(&taken), [second], "the mistake is there to be seen");
    assert!(place.scores("invisible").iter().any(|(id, _)| *id == first), "nobody has it");
}
