//! Deadlines and handles across the two sides: whoever looks first brings back what is due, and
//! nobody settles what is not theirs any more.

use std::time::Duration;

use mailbox::{Backend, ErrorKind, Outgoing, Verdict};

use super::Python;
use crate::redis::{Place, jobs, millis, nack, seconds};

async fn refused(place: &Place, handle: &str) {
    let late = place.settle_handle(handle, Verdict::Acknowledge).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::ReceiptHandleExpired);
}

#[tokio::test]
async fn the_other_side_brings_back_our_expired_delivery_and_our_handle_is_worth_nothing() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    let id = place.send("1").await;
    let ours = place.receive(millis(50)).await.unwrap();
    let handle = ours.receipt_handle.to_string();
    place.until_all_due().await;
    assert_eq!(python.reap(), 1);
    refused(&place, &handle).await;
    let theirs = python.receive(seconds(30)).unwrap();
    assert_eq!((&theirs.id, theirs.count), (&id, 2));
    // Neither by us nor by them, now that somebody else has it.
    refused(&place, &handle).await;
    assert!(!python.ack_handle(&handle));
    assert!(python.ack(&theirs));
}

#[tokio::test]
async fn ours_brings_back_their_expired_delivery_and_their_handle_is_worth_nothing() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    let id = python.send("1");
    let theirs = python.receive(millis(50)).unwrap();
    place.until_all_due().await;
    let ours = place.receive(seconds(30)).await.unwrap();
    assert_eq!((ours.id.to_string(), ours.delivery_count), (id, 2));
    assert!(!python.ack(&theirs) && !python.extend(&theirs, seconds(30)));
    assert!(!python.nack(&theirs, Duration::ZERO));
    refused(&place, &theirs.handle()).await;
    place.settle(&ours, Verdict::Acknowledge).await.unwrap();
}

#[tokio::test]
async fn a_handle_of_either_side_is_good_on_the_other_in_time() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    python.send("1");
    let theirs = python.receive(seconds(30)).unwrap();
    place.settle_handle(&theirs.handle(), Verdict::Acknowledge).await.unwrap();
    place.send("2").await;
    let ours = place.receive(seconds(30)).await.unwrap();
    assert!(python.ack_handle(&ours.receipt_handle.to_string()));
    assert_eq!(place.backend.stats(&jobs()).await.unwrap().live(), 0);
}

#[tokio::test]
async fn the_other_side_brings_back_our_delayed_messages() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    let mut message = Outgoing::new("1".into());
    message.delay = millis(50);
    let id = place.send_message(message).await;
    assert!(python.receive(seconds(30)).is_none());
    place.until_all_due().await;
    assert_eq!(python.reap(), 1);
    let theirs = python.receive(seconds(30)).unwrap();
    assert_eq!((&theirs.id, theirs.count), (&id, 1));
    // It does not count as delayed because it once was.
    let stats = place.backend.stats(&jobs()).await.unwrap();
    assert_eq!((stats.delayed, stats.ready, stats.invisible), (0, 0, 1));
    assert!(python.nack(&theirs, Duration::ZERO));
    let ours = place.receive(seconds(30)).await.unwrap();
    assert_eq!(ours.delivery_count, 2);
    place.settle(&ours, nack(millis(50))).await.unwrap();
    place.until_all_due().await;
    assert_eq!(python.reap(), 1);
    assert!(python.receive(seconds(30)).is_some());
}

#[tokio::test]
async fn ours_brings_back_what_the_other_side_nacked_with_a_delay() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    let id = python.send("1");
    let theirs = python.receive(seconds(30)).unwrap();
    assert!(python.nack(&theirs, millis(50)));
    place.until_all_due().await;
    let ours = place.receive(seconds(30)).await.unwrap();
    assert_eq!((ours.id.to_string(), ours.delivery_count), (id, 2));
}

#[tokio::test]
async fn a_waiting_receive_wakes_when_a_delivery_of_the_other_side_is_due() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    let id = python.send("1");
    assert!(python.receive(millis(300)).is_some());
    let options = mailbox::ReceiveOptions::new().with_wait(seconds(15));
    let taken = place.backend.receive(&jobs(), &options).await.unwrap();
    assert_eq!(taken[0].id.to_string(), id);
}
