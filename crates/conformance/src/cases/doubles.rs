//! T: the doubles do what they say. (That the fake one behaves in full is shown by running every
//! case on it: it is a subject.)

use std::sync::Arc;
use std::time::Duration;

use mailbox::testing::{CollectingMailbox, FakeMailbox, FakeResolver, NullMailbox};
use mailbox::{ErrorKind, Mailbox, Resolver, SendOptions};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{only, refused};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("T", a_null_mailbox_drops_everything, once),
    case!("T", a_null_mailbox_keeps_the_limits, once),
    case!("T", a_collecting_mailbox_remembers_what_was_sent_in_order, once),
    case!("T", a_fake_mailbox_expires_handles_on_demand, once),
    case!("T", a_fake_mailbox_fails_on_demand, once),
    case!("T", a_fake_mailbox_takes_messages_with_a_past, once),
    case!("T", a_fake_mailbox_lets_hours_pass_at_once, once),
    case!("T", a_fake_resolver_logs_fails_and_collects, once),
];

async fn a_null_mailbox_drops_everything(_: World) -> Outcome {
    let null: NullMailbox<Probe> = NullMailbox::new("null")?;
    let first = null.send(Probe::new(0)).await?;
    assert_ne!(first, null.send(Probe::new(0)).await?);
    assert_eq!(null.receive().await?.len(), 0);
    assert_eq!((null.approximate_count().await?, null.purge().await?), (0, 0));
    null.close().await?;
    refused(null.send(Probe::new(0)).await, ErrorKind::Closed);
    Ok(())
}

async fn a_null_mailbox_keeps_the_limits(_: World) -> Outcome {
    let null: NullMailbox<Probe> = NullMailbox::new("null")?;
    let long = SendOptions::new().with_delay(Duration::MAX);
    let error = refused(null.send_with(Probe::new(0), long).await, ErrorKind::InvalidParameter);
    assert_eq!(error.field(), Some("delay"));
    refused(NullMailbox::<Probe>::new("no name").map(drop), ErrorKind::InvalidParameter);
    Ok(())
}

async fn a_collecting_mailbox_remembers_what_was_sent_in_order(_: World) -> Outcome {
    let collecting: CollectingMailbox<Probe> = CollectingMailbox::new("collected")?;
    let mailbox: Mailbox<Probe> = collecting.mailbox().clone();
    for number in [3, 1, 2] {
        mailbox.send(Probe::new(number)).await?;
    }
    // Also what was received and settled since.
    mailbox.receive().await?.remove(0).acknowledge().await?;
    mailbox.purge().await?;
    let with =
        SendOptions::new().with_attribute("to", "table 4").with_delay(Duration::from_secs(1));
    let id = mailbox.send_with(Probe::new(4), with).await?.id;
    let sent: Vec<u64> = collecting.sent()?.iter().map(|probe| probe.number).collect();
    assert_eq!(sent, [3, 1, 2, 4]);
    let last = collecting.collected()?.pop().ok_or("four were sent")?;
    assert_eq!((last.id, last.delay), (id, Duration::from_secs(1)));
    assert_eq!(last.attributes["to"], "table 4");
    Ok(())
}

async fn a_fake_mailbox_expires_handles_on_demand(_: World) -> Outcome {
    let fake: FakeMailbox<Probe> = FakeMailbox::new("fake")?;
    fake.send(Probe::new(1)).await?;
    let slow = only(fake.receive().await?);
    fake.expire_handle(slow.receipt_handle())?;
    refused(slow.acknowledge().await, ErrorKind::ReceiptHandleExpired);
    let again = only(fake.receive().await?);
    assert_eq!(again.delivery_count(), 2);
    refused(fake.expire_handle(slow.receipt_handle()), ErrorKind::ReceiptHandleExpired);
    again.acknowledge().await?;
    Ok(())
}

async fn a_fake_mailbox_fails_on_demand(_: World) -> Outcome {
    let fake: FakeMailbox<Probe> = FakeMailbox::new("fake")?;
    fake.send(Probe::new(1)).await?;
    let held = only(fake.receive().await?);
    fake.set_connection_error("the cable was pulled");
    for error in [
        refused(fake.send(Probe::new(2)).await, ErrorKind::Connection),
        refused(fake.receive().await.map(drop), ErrorKind::Connection),
        refused(fake.stats().await, ErrorKind::Connection),
        refused(held.acknowledge().await, ErrorKind::Connection),
    ] {
        assert!(error.to_string().contains("the cable was pulled"), "{error}");
        assert!(matches!(error.retry(), mailbox::Retry::After(_)), "{error:?}");
    }
    assert!(!held.is_finalized());
    fake.clear_connection_error();
    held.acknowledge().await?;
    assert_eq!(fake.stats().await?.live(), 0, "what failed had no effect");
    Ok(())
}

async fn a_fake_mailbox_takes_messages_with_a_past(_: World) -> Outcome {
    let fake: FakeMailbox<Probe> = FakeMailbox::new("fake")?;
    let id = fake.inject_message(Probe::new(7), 5)?;
    let message = only(fake.receive().await?);
    assert_eq!((message.id(), message.delivery_count()), (&id, 5));
    message.nack().await?;
    assert_eq!(only(fake.receive().await?).delivery_count(), 6);
    refused(fake.inject_message(Probe::new(7), 0), ErrorKind::InvalidParameter);
    Ok(())
}

async fn a_fake_mailbox_lets_hours_pass_at_once(_: World) -> Outcome {
    let fake: FakeMailbox<Probe> = FakeMailbox::new("fake")?;
    let delayed = SendOptions::new().with_delay(Duration::from_secs(12 * 3600));
    fake.send_with(Probe::new(1), delayed).await?;
    fake.clock().advance(Duration::from_secs(12 * 3600 - 1));
    assert_eq!(fake.receive().await?.len(), 0);
    fake.clock().advance(Duration::from_secs(1));
    assert_eq!(fake.receive().await?.len(), 1);
    Ok(())
}

async fn a_fake_resolver_logs_fails_and_collects(world: World) -> Outcome {
    let resolver: FakeResolver<Probe> = FakeResolver::new();
    let jobs = world.mailbox("jobs")?.with_resolver(Arc::new(resolver.clone()));
    for (number, to) in [(1, "a"), (2, "https://example.org/b"), (3, "a")] {
        jobs.send_with(Probe::new(number), SendOptions::new().with_reply_to(to)).await?;
        only(jobs.receive().await?).reply(Probe::new(number)).await?;
    }
    resolver.fail_on("c");
    refused(resolver.resolve("c").await, ErrorKind::MailboxResolution);
    assert_eq!(resolver.resolution_log(), ["a", "https://example.org/b", "a", "c"]);
    let collected = resolver.mailbox("a").ok_or("it was resolved")?.sent()?;
    assert_eq!(collected, [Probe::new(1), Probe::new(3)]);
    assert!(resolver.mailbox("c").is_none());
    Ok(())
}
