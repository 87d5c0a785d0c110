use std::time::Duration;

use mailbox::testing::{FakeMailbox, ManualClock};
use mailbox::{
    ErrorKind, Mailbox, NackOptions, Peek, Policy, ReceiptHandle, Selection, SendOptions,
};

use super::{kind, meanwhile, patient};

fn fake() -> FakeMailbox<String, String> {
    FakeMailbox::new("fake").unwrap()
}

#[tokio::test]
async fn hours_of_redelivery_pass_by_the_clock_of_the_test() {
    let fake = fake();
    fake.send("again and again".to_owned()).await.unwrap();
    for delivery in 1..=20 {
        let message = fake.receive().await.unwrap().remove(0);
        assert_eq!(message.delivery_count(), delivery);
        message.nack_in(Duration::from_secs(3_600)).await.unwrap();
        fake.clock().advance(Duration::from_secs(3_599));
        assert!(fake.receive().await.unwrap().is_empty());
        fake.clock().advance(Duration::from_secs(1));
    }
    assert_eq!(fake.clock().elapsed(), Duration::from_secs(20 * 3_600));
}

#[tokio::test]
async fn a_clock_can_be_shared() {
    let clock = ManualClock::new();
    let one: FakeMailbox<u32> = FakeMailbox::with_clock("one", clock.clone()).unwrap();
    let two: FakeMailbox<u32> = FakeMailbox::with_clock("two", clock.clone()).unwrap();
    for mailbox in [&one, &two] {
        let delayed = SendOptions::new().with_delay(Duration::from_secs(60));
        mailbox.send_with(1, delayed).await.unwrap();
    }
    clock.advance(Duration::from_secs(60));
    assert_eq!(one.stats().await.unwrap().ready, 1);
    assert_eq!(two.stats().await.unwrap().ready, 1);
}

#[tokio::test]
async fn an_expired_handle_settles_nothing_and_its_message_is_receivable_again() {
    let fake = fake();
    fake.send("slow".to_owned()).await.unwrap();
    fake.send("other".to_owned()).await.unwrap();
    let slow = fake.receive().await.unwrap().remove(0);
    let other = fake.receive().await.unwrap().remove(0);
    fake.expire_handle(slow.receipt_handle()).unwrap();

    assert_eq!(fake.stats().await.unwrap().ready, 1);
    assert_eq!(kind(slow.acknowledge().await), ErrorKind::ReceiptHandleExpired);
    assert_eq!(kind(slow.nack().await), ErrorKind::ReceiptHandleExpired);
    let extended = slow.extend_visibility(Duration::from_secs(60)).await;
    assert_eq!(kind(extended), ErrorKind::ReceiptHandleExpired);
    other.acknowledge().await.unwrap();

    let again = fake.receive().await.unwrap().remove(0);
    assert_eq!((again.id(), again.delivery_count()), (slow.id(), 2));
    assert_eq!(kind(slow.acknowledge().await), ErrorKind::ReceiptHandleExpired);
    again.acknowledge().await.unwrap();
    assert_eq!(fake.approximate_count().await.unwrap(), 0);
}

#[tokio::test]
async fn expiring_a_handle_wakes_who_waits() {
    let fake = fake();
    fake.send("slow".to_owned()).await.unwrap();
    let slow = fake.receive().await.unwrap().remove(0);
    let received = meanwhile(fake.receive_with(patient(20)), async {
        fake.expire_handle(slow.receipt_handle()).unwrap();
    });
    assert_eq!(received.await.unwrap()[0].delivery_count(), 2);
}

#[tokio::test]
async fn a_handle_that_is_not_current_cannot_be_expired() {
    let fake = fake();
    let unknown = ReceiptHandle::from_text("unknown");
    assert_eq!(kind(fake.expire_handle(&unknown)), ErrorKind::ReceiptHandleExpired);
    fake.send("done".to_owned()).await.unwrap();
    let done = fake.receive().await.unwrap().remove(0);
    done.acknowledge().await.unwrap();
    assert_eq!(kind(fake.expire_handle(done.receipt_handle())), ErrorKind::ReceiptHandleExpired);
}

#[tokio::test]
async fn while_the_connection_is_down_every_call_fails_and_nothing_is_lost() {
    let fake = fake();
    let held_body = "held".to_owned();
    fake.send_with(held_body, SendOptions::new().with_reply_to("replies")).await.unwrap();
    fake.send("waiting".to_owned()).await.unwrap();
    let held = fake.receive().await.unwrap().remove(0);
    fake.set_connection_error("the cable was pulled");

    let body = String::new;
    let handle = held.receipt_handle();
    let kinds = [
        kind(fake.send(body()).await),
        kind(fake.send_with(body(), SendOptions::new()).await),
        kind(fake.send_batch(vec![(body(), SendOptions::new())]).await),
        kind(fake.receive().await),
        kind(fake.receive_with(patient(20)).await),
        kind(fake.purge().await),
        kind(fake.approximate_count().await),
        kind(fake.stats().await),
        kind(fake.peek(Peek::Live { limit: 1 }).await),
        kind(fake.redrive(Selection::All).await),
        kind(fake.delete_dead(Selection::All).await),
        kind(fake.configure(Policy::default()).await),
        kind(fake.policy().await),
        kind(fake.settle(handle, mailbox::Verdict::Acknowledge).await),
        kind(fake.settle_batch(Vec::new()).await),
        kind(held.acknowledge().await),
        kind(held.nack().await),
        kind(held.nack_in(Duration::ZERO).await),
        kind(held.nack_with(NackOptions::new()).await),
        kind(held.extend_visibility(Duration::ZERO).await),
        kind(held.reject("no").await),
        kind(held.undo_delivery().await),
        kind(held.reply(body()).await),
    ];
    assert!(kinds.iter().all(|kind| *kind == ErrorKind::Connection), "{kinds:?}");
    let error = fake.stats().await.unwrap_err();
    assert_eq!(error.to_string(), "mailbox `fake`: the cable was pulled");
    assert!(matches!(error.retry(), mailbox::Retry::After(_)));
    assert!(!held.is_finalized());

    fake.clear_connection_error();
    let stats = fake.stats().await.unwrap();
    assert_eq!((stats.ready, stats.invisible, stats.dead), (1, 1, 0));
    held.reply("late, but here".to_owned()).await.unwrap();
    held.acknowledge().await.unwrap();
    assert_eq!(fake.receive().await.unwrap()[0].body().unwrap(), "waiting");
}

#[tokio::test]
async fn a_connection_error_reaches_receives_that_wait_already() {
    let fake = fake();
    let woken = meanwhile(fake.receive_with(patient(3_600)), async {
        fake.set_connection_error("down");
    });
    assert_eq!(kind(woken.await), ErrorKind::Connection);

    fake.clear_connection_error();
    assert_eq!(fake.stats().await.unwrap().waiters, 0);
    let received = meanwhile(fake.receive_with(patient(3_600)), async {
        fake.send("up again".to_owned()).await.unwrap();
    });
    assert_eq!(received.await.unwrap()[0].delivery_count(), 1);
}

#[tokio::test]
async fn a_connection_error_reaches_every_other_handle() {
    let fake = fake();
    let clone = fake.mailbox().clone();
    let opened: Mailbox<String, String> = Mailbox::open(fake.identifier()).await.unwrap();
    fake.set_connection_error("down");
    assert_eq!(kind(clone.send(String::new()).await), ErrorKind::Connection);
    assert_eq!(kind(opened.send(String::new()).await), ErrorKind::Connection);
    fake.clear_connection_error();
    opened.send(String::new()).await.unwrap();
    assert_eq!(clone.approximate_count().await.unwrap(), 1);
}

#[tokio::test]
async fn deliveries_expire_while_the_connection_is_down() {
    let fake = fake();
    fake.send("slow".to_owned()).await.unwrap();
    let slow = fake.receive().await.unwrap().remove(0);
    fake.set_connection_error("down");
    fake.clock().advance(Duration::from_secs(30));
    fake.clear_connection_error();
    assert_eq!(kind(slow.acknowledge().await), ErrorKind::ReceiptHandleExpired);
    assert_eq!(fake.receive().await.unwrap()[0].delivery_count(), 2);
}

#[tokio::test]
async fn a_mailbox_whose_connection_is_down_closes_all_the_same() {
    let fake = fake();
    fake.set_connection_error("down");
    let woken = fake.close().await;
    assert_eq!(kind(woken), ErrorKind::Connection);
    assert!(fake.is_closed());
    fake.clear_connection_error();
    assert_eq!(kind(fake.stats().await), ErrorKind::Closed);
    assert_eq!(kind(fake.inject_message(String::new(), 1)), ErrorKind::Closed);
}
