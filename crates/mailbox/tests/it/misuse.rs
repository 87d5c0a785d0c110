//! What a user can get wrong without noticing: each must be right, or refused aloud.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mailbox::backends::memory::MemoryBackend;
use mailbox::resolver::RegistryResolver;
use mailbox::testing::ManualClock;
use mailbox::{
    Backend, DeadReason, ErrorKind, Mailbox, Name, Outgoing, Peek, Policy, ReceiveOptions,
    Retention, Selection, SendOptions,
};

/// A body that calls its own mailbox when it is dropped.
struct Caller {
    mailbox: Mailbox<Self>,
    calls: Arc<AtomicU64>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        // Deadlocks if the mailbox drops bodies under its lock.
        let count = futures_util::FutureExt::now_or_never(self.mailbox.approximate_count());
        assert!(count.is_some(), "a local mailbox answers at once");
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

fn caller(mailbox: &Mailbox<Caller>, calls: &Arc<AtomicU64>) -> Caller {
    Caller { mailbox: mailbox.clone(), calls: Arc::clone(calls) }
}

#[tokio::test]
async fn a_body_may_call_its_mailbox_when_it_is_dropped_however_it_goes() {
    let clock = ManualClock::new();
    let mailbox: Mailbox<Caller> = Mailbox::local_with_clock("reentrant", clock.clock()).unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let dropped = || calls.load(Ordering::Relaxed);

    let retention = Retention { dead_age: Some(Duration::from_secs(60)), ..Retention::default() };
    let policy = Policy { max_size: Some(1), retention, ..Policy::default() };
    mailbox.configure(policy).await.unwrap();
    mailbox.send(caller(&mailbox, &calls)).await.unwrap();
    let full = mailbox.send(caller(&mailbox, &calls)).await.unwrap_err();
    assert_eq!((full.kind(), dropped()), (ErrorKind::MailboxFull, 1));

    // Dropped by retention, as a dead letter; then by hand, by purge and by acknowledge.
    let reject = async || {
        mailbox.receive().await.unwrap().remove(0).reject("no").await.unwrap();
    };
    reject().await;
    clock.advance(Duration::from_secs(60));
    assert_eq!((mailbox.stats().await.unwrap().dead, dropped()), (0, 2));
    mailbox.send(caller(&mailbox, &calls)).await.unwrap();
    reject().await;
    assert_eq!(mailbox.delete_dead(Selection::All).await.unwrap(), 1);
    mailbox.send(caller(&mailbox, &calls)).await.unwrap();
    assert_eq!(mailbox.purge().await.unwrap(), 1);
    mailbox.send(caller(&mailbox, &calls)).await.unwrap();
    mailbox.receive().await.unwrap().remove(0).acknowledge().await.unwrap();
    assert_eq!(dropped(), 5);
}

#[tokio::test]
async fn a_reply_finds_a_mailbox_on_another_memory_backend() {
    let requests: Mailbox<u32, u32> = MemoryBackend::new().mailbox("requests").unwrap();
    // The same name exists where the request lives: the reply must not end up there.
    let decoy: Mailbox<u32> =
        Mailbox::open(&requests.identifier().replace("requests", "replies")).await.unwrap();
    let replies: Mailbox<u32> = MemoryBackend::new().mailbox("replies").unwrap();
    requests.send_with(1, SendOptions::new().with_reply_to(&replies)).await.unwrap();
    requests.receive().await.unwrap()[0].reply(2).await.unwrap();
    assert_eq!(decoy.approximate_count().await.unwrap(), 0);
    assert_eq!(*replies.receive().await.unwrap()[0].body().unwrap(), 2);
}

#[tokio::test]
async fn a_local_mailbox_is_no_reply_address_unless_it_is_given_one() {
    let replies: Mailbox<u32> = Mailbox::local("replies").unwrap();
    let requests: Mailbox<u32, u32> = Mailbox::memory("requests").unwrap();
    let options = SendOptions::new().with_reply_to(&replies);
    let refused = requests.send_with(1, options).await.unwrap_err();
    assert_eq!((refused.kind(), refused.field()), (ErrorKind::Unsupported, Some("reply_to")));
    assert_eq!(requests.approximate_count().await.unwrap(), 0);

    let replies = replies.with_identifier("desk-7");
    let known = RegistryResolver::new([("desk-7", replies.clone())]);
    let requests = requests.with_resolver(known);
    requests.send_with(1, SendOptions::new().with_reply_to(&replies)).await.unwrap();
    requests.receive().await.unwrap()[0].reply(2).await.unwrap();
    assert_eq!(*replies.receive().await.unwrap()[0].body().unwrap(), 2);
}

#[tokio::test]
async fn a_policy_that_makes_no_sense_is_refused_by_field() {
    let mailbox: Mailbox<u32> = Mailbox::memory("rules").unwrap();
    let retention = |retention| Policy { retention, ..Policy::default() };
    for (policy, field) in [
        (Policy { max_attempts: Some(0), ..Policy::default() }, "max_attempts"),
        (Policy { max_in_flight: 0, ..Policy::default() }, "max_in_flight"),
        (Policy { dedup_capacity: 0, ..Policy::default() }, "dedup_capacity"),
        (
            retention(Retention { in_flight_factor: Some(0), ..Retention::default() }),
            "retention.in_flight_factor",
        ),
        (
            retention(Retention { ready_age: Some(Duration::ZERO), ..Retention::default() }),
            "retention.ready_age",
        ),
        (
            retention(Retention { dead_age: Some(Duration::ZERO), ..Retention::default() }),
            "retention.dead_age",
        ),
    ] {
        let refused = mailbox.configure(policy).await.unwrap_err();
        assert_eq!((refused.kind(), refused.field()), (ErrorKind::InvalidParameter, Some(field)));
    }
    assert_eq!(mailbox.policy().await.unwrap(), Policy::default());
}

#[tokio::test]
async fn an_identifier_of_its_own_is_what_is_written_as_reply_to() {
    let backend = MemoryBackend::new();
    let replies: Mailbox<u32> = backend.mailbox("replies").unwrap();
    let replies = replies.with_identifier("desk-7");
    let requests: Mailbox<u32, u32> = backend.mailbox("requests").unwrap();
    let requests = requests.with_resolver(RegistryResolver::new([("desk-7", replies.clone())]));
    requests.send_with(1, SendOptions::new().with_reply_to(&replies)).await.unwrap();
    let request = requests.receive().await.unwrap().remove(0);
    assert_eq!(request.reply_to(), Some("desk-7"));
    request.reply(2).await.unwrap();
    assert_eq!(replies.approximate_count().await.unwrap(), 1);
}

/// A body that does not survive being read, as a careless `Deserialize` may have it.
#[derive(Debug, PartialEq)]
struct Brittle(u32);

impl serde::Serialize for Brittle {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0, 13, "unwritable");
        serializer.serialize_u32(self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Brittle {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u32::deserialize(deserializer)?;
        assert_ne!(number, 7, "unreadable");
        Ok(Self(number))
    }
}

#[tokio::test]
async fn a_codec_that_panics_spoils_that_message_alone() {
    let mailbox: Mailbox<Brittle> = Mailbox::memory("brittle").unwrap();
    for number in [6, 7, 8] {
        mailbox.send(Brittle(number)).await.unwrap();
    }
    let unwritable = mailbox.send(Brittle(13)).await.unwrap_err();
    assert_eq!(unwritable.kind(), ErrorKind::Serialization);
    assert_eq!(mailbox.peek(Peek::Live { limit: 10 }).await.unwrap().len(), 3);
    let options = ReceiveOptions::new().with_max_messages(10);
    let received = mailbox.receive_with(options).await.unwrap();
    assert_eq!(received[0].body().unwrap(), &Brittle(6));
    assert_eq!(received[1].body().unwrap_err().kind(), ErrorKind::Serialization);
    received[1].reject("cannot be read").await.unwrap();
    assert_eq!(received[2].body().unwrap(), &Brittle(8));
    let dead = mailbox.dead_letters(10).await.unwrap();
    assert_eq!(dead[0].death().unwrap().reason, DeadReason::Decode);
}

#[tokio::test]
async fn what_is_shown_is_what_retention_leaves_however_much_expires_at_once() {
    let clock = ManualClock::new();
    let mailbox: Mailbox<u32> = Mailbox::memory_with_clock("aged", &clock).unwrap();
    let retention = Retention { ready_age: Some(Duration::from_secs(60)), ..Retention::default() };
    mailbox.configure(Policy { retention, ..Policy::default() }).await.unwrap();
    for body in 0..1_000 {
        mailbox.send(body).await.unwrap();
    }
    clock.advance(Duration::from_secs(60));
    let stats = mailbox.stats().await.unwrap();
    assert_eq!((stats.ready, stats.dead), (0, 1_000));
}

#[tokio::test]
async fn ids_of_mailboxes_that_know_nothing_of_each_other_differ() {
    let clock = ManualClock::new();
    let mut ids = std::collections::HashSet::new();
    for _ in 0..20_000 {
        let mailbox: Mailbox<u32> = Mailbox::local_with_clock("same", &clock).unwrap();
        assert!(ids.insert(mailbox.send(1).await.unwrap()), "two messages with one id");
    }
}

#[tokio::test]
async fn no_debug_text_shows_a_body_or_a_password() {
    let secret = "redis://user:hunter2@host/replies";
    let mailbox: Mailbox<String> = Mailbox::memory("private").unwrap();
    let options = SendOptions::new().with_reply_to(secret);
    let mut shown = format!("{options:?}");
    mailbox.send_with("hunter2".to_owned(), options).await.unwrap();
    let named = mailbox.clone().with_identifier(secret);
    let message = mailbox.receive().await.unwrap().remove(0);
    let peeked = mailbox.peek(Peek::Live { limit: 1 }).await.unwrap();
    let outgoing = Outgoing::new(bytes::Bytes::from_static(b"hunter2"));
    shown += &format!("{named:?} {message:?} {peeked:?} {outgoing:?} {:?}", message.payload());
    let backend = MemoryBackend::new();
    let name = Name::parse("private").unwrap();
    let sent = Outgoing { reply_to: Some(secret.to_owned()), ..outgoing };
    backend.send(&name, vec![sent]).await.unwrap()[0].as_ref().unwrap();
    let records = backend.peek(&name, &Peek::Live { limit: 1 }).await.unwrap();
    let deliveries = backend.receive(&name, &ReceiveOptions::new()).await.unwrap();
    shown += &format!("{records:?} {deliveries:?}");
    // The payload was asked for by itself, above: that one time is the only one.
    assert_eq!(shown.matches("hunter2").count(), 1, "{shown}");
}
