use std::time::Duration;

use mailbox::testing::{ManualClock, NullMailbox};
use mailbox::{ErrorKind, Mailbox, Peek, SendOptions};

use super::{kind, meanwhile, patient};

#[tokio::test]
async fn a_null_mailbox_gives_ids_and_keeps_nothing() {
    let null: NullMailbox<String> = NullMailbox::new("null").unwrap();
    let first = null.send("a".to_owned()).await.unwrap();
    let second = null.send("b".to_owned()).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(first.to_string().len(), 26, "a ULID, as elsewhere");
    assert!(null.receive().await.unwrap().is_empty());
    assert_eq!(null.approximate_count().await.unwrap(), 0);
    assert_eq!(null.stats().await.unwrap(), Default::default());
    assert!(null.peek(Peek::Live { limit: 10 }).await.unwrap().is_empty());
    assert_eq!(null.purge().await.unwrap(), 0);
}

#[tokio::test]
async fn a_null_mailbox_takes_bodies_that_cannot_be_encoded() {
    struct Opaque;
    let null: NullMailbox<Opaque, Opaque> = NullMailbox::new("null").unwrap();
    let batch = vec![(Opaque, SendOptions::new()), (Opaque, SendOptions::new())];
    let sent = null.send_batch(batch).await.unwrap();
    assert!(sent.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_null_mailbox_still_refuses_what_is_over_a_limit() {
    let null: NullMailbox<String> = NullMailbox::new("null").unwrap();
    let too_late = SendOptions::new().with_delay(Duration::from_secs(43_201));
    let refused = null.send_with(String::new(), too_late).await;
    assert_eq!(kind(refused), ErrorKind::InvalidParameter);
    assert_eq!(kind(NullMailbox::<String>::new("a b")), ErrorKind::InvalidParameter);
}

#[tokio::test]
async fn a_receive_from_a_null_mailbox_waits_its_whole_time() {
    let clock = ManualClock::new();
    let null: NullMailbox<String> = NullMailbox::with_clock("null", clock.clock()).unwrap();
    let received = meanwhile(null.receive_with(patient(20)), async {
        null.send("for nobody".to_owned()).await.unwrap();
        clock.advance(Duration::from_secs(19));
        assert_eq!(null.stats().await.unwrap().waiters, 1);
        clock.advance(Duration::from_secs(1));
    });
    assert!(received.await.unwrap().is_empty());
    assert_eq!(clock.elapsed(), Duration::from_secs(20));
}

#[tokio::test]
async fn closing_a_null_mailbox_wakes_who_waits() {
    let clock = ManualClock::new();
    let null: NullMailbox<String> = NullMailbox::with_clock("null", clock.clock()).unwrap();
    let woken = meanwhile(null.receive_with(patient(20)), async {
        null.close().await.unwrap();
    });
    assert_eq!(kind(woken.await), ErrorKind::Closed);
    assert_eq!(kind(null.send("late".to_owned()).await), ErrorKind::Closed);
}

#[tokio::test]
async fn the_address_of_a_null_mailbox_leads_to_it() {
    let null: NullMailbox<String> = NullMailbox::new("null").unwrap();
    let same: Mailbox<String> = Mailbox::open(null.identifier()).await.unwrap();
    same.send("dropped too".to_owned()).await.unwrap();
    assert_eq!(same.approximate_count().await.unwrap(), 0);
}
