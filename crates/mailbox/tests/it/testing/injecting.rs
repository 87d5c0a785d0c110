use mailbox::testing::FakeMailbox;
use mailbox::{DeadReason, ErrorKind, Peek, Policy, ReceiveOptions, SendOptions};

use super::{kind, meanwhile, patient};

fn fake() -> FakeMailbox<u32> {
    FakeMailbox::new("fake").unwrap()
}

#[tokio::test]
async fn an_injected_message_is_delivered_with_the_count_it_was_given() {
    let fake = fake();
    let id = fake.inject_message(7, 3).unwrap();
    let seen = fake.peek(Peek::These(vec![id.clone()])).await.unwrap().remove(0);
    assert_eq!(seen.delivery_count(), 2);
    let message = fake.receive().await.unwrap().remove(0);
    assert_eq!((message.id(), message.delivery_count()), (&id, 3));
    assert_eq!(*message.body().unwrap(), 7);
    message.nack().await.unwrap();
    let message = fake.receive().await.unwrap().remove(0);
    assert_eq!(message.delivery_count(), 4);
    message.acknowledge().await.unwrap();
    assert_eq!(fake.approximate_count().await.unwrap(), 0);
}

#[tokio::test]
async fn an_injected_message_goes_behind_the_others_and_leaves_them_alone() {
    let fake = fake();
    fake.send(1).await.unwrap();
    fake.send_with(2, SendOptions::new().with_group("g")).await.unwrap();
    let held = fake.receive().await.unwrap().remove(0);
    fake.inject_message(3, 100).unwrap();
    fake.send(4).await.unwrap();
    let rest = fake.receive_with(ReceiveOptions::new().with_max_messages(10)).await.unwrap();
    let seen: Vec<_> = rest.iter().map(|m| (*m.body().unwrap(), m.delivery_count())).collect();
    assert_eq!(seen, [(2, 1), (3, 100), (4, 1)]);
    held.acknowledge().await.unwrap();
    for message in rest {
        message.acknowledge().await.unwrap();
    }
}

#[tokio::test]
async fn who_waits_gets_an_injected_message_with_its_whole_past() {
    let fake = fake();
    let received = meanwhile(fake.receive_with(patient(20)), async {
        fake.inject_message(1, 5).unwrap();
    });
    assert_eq!(received.await.unwrap()[0].delivery_count(), 5);
}

#[tokio::test]
async fn a_count_of_one_is_an_ordinary_message() {
    let fake = fake();
    fake.inject_message(1, 1).unwrap();
    assert_eq!(fake.receive().await.unwrap()[0].delivery_count(), 1);
}

#[tokio::test]
async fn a_count_outside_its_bounds_is_refused_by_name() {
    let fake = fake();
    for count in [0, 10_001, u32::MAX] {
        let error = fake.inject_message(1, count).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParameter);
        assert_eq!(error.field(), Some("delivery_count"));
    }
    fake.inject_message(1, 10_000).unwrap();
    assert_eq!(fake.receive().await.unwrap()[0].delivery_count(), 10_000);
}

#[tokio::test]
async fn a_message_injected_beyond_max_attempts_becomes_a_dead_letter_in_its_turn() {
    for behind_another in [false, true] {
        let fake = fake();
        let max_attempts = Some(5);
        fake.configure(Policy { max_attempts, ..Policy::default() }).await.unwrap();
        if behind_another {
            fake.send(1).await.unwrap();
        }
        let last = fake.inject_message(2, 5).unwrap();
        let doomed = fake.inject_message(3, 9).unwrap();
        let options = ReceiveOptions::new().with_max_messages(10);
        let received = fake.receive_with(options).await.unwrap();
        let last_received = received.last().unwrap();
        assert_eq!((last_received.id(), last_received.delivery_count()), (&last, 5));
        let dead = fake.peek(Peek::Dead { after: None, limit: 10 }).await.unwrap();
        assert_eq!(dead.len(), 1);
        assert_eq!(*dead[0].id(), doomed);
        assert_eq!(dead[0].death().unwrap().reason, DeadReason::MaxAttempts);
    }
}

#[tokio::test]
async fn injecting_works_while_the_connection_is_down_but_not_into_a_full_mailbox() {
    let fake = fake();
    fake.configure(Policy { max_size: Some(1), ..Policy::default() }).await.unwrap();
    fake.set_connection_error("down");
    fake.inject_message(1, 2).unwrap();
    assert_eq!(kind(fake.inject_message(2, 2)), ErrorKind::MailboxFull);
    fake.clear_connection_error();
    assert_eq!(fake.receive().await.unwrap()[0].delivery_count(), 2);
}

#[tokio::test]
async fn injecting_alone_buries_nothing() {
    let fake = fake();
    let max_attempts = Some(5);
    fake.configure(Policy { max_attempts, ..Policy::default() }).await.unwrap();
    fake.inject_message(1, 9).unwrap();
    let stats = fake.stats().await.unwrap();
    assert_eq!((stats.ready, stats.dead), (1, 0));
    assert!(fake.receive().await.unwrap().is_empty());
    let stats = fake.stats().await.unwrap();
    assert_eq!((stats.ready, stats.dead), (0, 1));
}
