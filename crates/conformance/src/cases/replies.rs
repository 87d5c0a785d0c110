//! R1, R2, R5: a message carries where its replies go. (Resolvers are in a file of their own.)

use mailbox::{ErrorKind, Mailbox, ReplyTo, SendOptions};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{Job, Jobs, only, refused, send_all, take_one};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("R1", a_reply_reaches_the_mailbox_that_was_given_with_the_message),
    case!("R1", a_reply_address_stays_with_the_message_as_it_was_given),
    case!("R1", a_reply_address_that_is_a_name_is_resolved_on_the_same_backend, bytes),
    case!("R1", replies_find_a_mailbox_of_another_namespace, bytes, once),
    case!("R2", several_replies_are_allowed_before_settling),
    case!("R2", after_settling_a_reply_is_refused),
    case!("R2", after_a_refused_settle_or_an_extension_a_reply_is_allowed),
    case!("R2", without_a_reply_address_there_is_no_reply),
    case!("R2", the_reply_mailbox_is_given_itself),
    case!("R2", a_reply_address_that_leads_nowhere_is_named_in_the_error),
    case!("R2", a_reply_to_a_closed_mailbox_says_so),
    case!("R5", resolving_leaves_nothing_running, quick),
];

/// The mailbox for replies.
fn replies(world: &World) -> mailbox::Result<Mailbox<Probe>> {
    world.typed("replies")
}

/// Takes a request that was sent with this reply address.
async fn request(world: &World, reply_to: impl Into<ReplyTo<Probe>>) -> Outcome<(Jobs, Job)> {
    let jobs = world.mailbox("jobs")?;
    jobs.send_with(Probe::new(1), SendOptions::new().with_reply_to(reply_to)).await?;
    let message = take_one(&jobs, world.units(60)).await?;
    Ok((jobs, message))
}

/// The numbers of the replies there are, in order.
async fn answers(replies: &Mailbox<Probe>) -> Outcome<Vec<u64>> {
    let mut numbers = Vec::new();
    while let Some(reply) = replies.receive().await?.pop() {
        numbers.push(reply.body()?.number);
        reply.acknowledge().await?;
    }
    Ok(numbers)
}

async fn a_reply_reaches_the_mailbox_that_was_given_with_the_message(world: World) -> Outcome {
    let replies = replies(&world)?;
    let (_, message) = request(&world, &replies).await?;
    assert!(message.reply_to().is_some());
    let id = message.reply(Probe::with_text(2, "done")).await?;
    message.acknowledge().await?;
    let reply = only(replies.receive().await?);
    assert_eq!((reply.id(), reply.body()?), (&id, &Probe::with_text(2, "done")));
    Ok(())
}

async fn a_reply_address_stays_with_the_message_as_it_was_given(world: World) -> Outcome {
    for address in ["replies", "https://example.org/a%20b?x=1", "späßchen \u{1F4EC}"] {
        let (jobs, message) = request(&world, address).await?;
        assert_eq!(message.reply_to(), Some(address));
        message.nack().await?;
        let again = take_one(&jobs, world.units(60)).await?;
        assert_eq!(again.reply_to(), Some(address));
        again.acknowledge().await?;
    }
    Ok(())
}

async fn a_reply_address_that_is_a_name_is_resolved_on_the_same_backend(world: World) -> Outcome {
    let (_, message) = request(&world, "replies").await?;
    message.reply(Probe::new(3)).await?;
    assert_eq!(answers(&replies(&world)?).await?, [3]);
    Ok(())
}

async fn replies_find_a_mailbox_of_another_namespace(world: World) -> Outcome {
    let elsewhere: Mailbox<Probe> = Mailbox::memory("replies")?;
    let (_, message) = request(&world, &elsewhere).await?;
    assert_eq!(message.reply_to(), Some(elsewhere.identifier()));
    message.reply(Probe::new(3)).await?;
    assert_eq!(answers(&elsewhere).await?, [3]);
    assert_eq!(answers(&replies(&world)?).await?, [0; 0]);
    Ok(())
}

async fn several_replies_are_allowed_before_settling(world: World) -> Outcome {
    let replies = replies(&world)?;
    let (_, message) = request(&world, &replies).await?;
    for number in 0..5 {
        message.reply(Probe::new(number)).await?;
    }
    message.acknowledge().await?;
    let mut got = answers(&replies).await?;
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3, 4]);
    Ok(())
}

async fn after_settling_a_reply_is_refused(world: World) -> Outcome {
    let replies = replies(&world)?;
    for way in 0..3 {
        let (jobs, message) = request(&world, &replies).await?;
        match way {
            0 => message.acknowledge().await?,
            1 => message.nack().await?,
            _ => message.reject("no").await?,
        }
        assert!(message.is_finalized());
        let error = refused(message.reply(Probe::new(0)).await, ErrorKind::MessageFinalized);
        assert_eq!(error.mailbox(), Some(jobs.name()));
        jobs.purge().await?;
    }
    assert_eq!(answers(&replies).await?, [0; 0]);
    Ok(())
}

async fn after_a_refused_settle_or_an_extension_a_reply_is_allowed(world: World) -> Outcome {
    let replies = replies(&world)?;
    let (_, message) = request(&world, &replies).await?;
    message.extend_visibility(world.units(60)).await?;
    message.reply(Probe::new(1)).await?;
    refused(message.nack_in(std::time::Duration::MAX).await, ErrorKind::InvalidParameter);
    message.reply(Probe::new(2)).await?;
    assert_eq!(answers(&replies).await?, [1, 2]);
    Ok(())
}

async fn without_a_reply_address_there_is_no_reply(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, [0]).await?;
    let message = take_one(&jobs, world.units(60)).await?;
    assert_eq!(message.reply_to(), None);
    let error = refused(message.reply(Probe::new(0)).await, ErrorKind::ReplyNotAvailable);
    assert_eq!(error.mailbox(), Some(jobs.name()));
    refused(message.reply_mailbox().await, ErrorKind::ReplyNotAvailable);
    message.acknowledge().await?;
    refused(message.reply(Probe::new(0)).await, ErrorKind::MessageFinalized);
    Ok(())
}

async fn the_reply_mailbox_is_given_itself(world: World) -> Outcome {
    let replies = replies(&world)?;
    let (_, message) = request(&world, &replies).await?;
    let mailbox = message.reply_mailbox().await?;
    assert_eq!(mailbox.name(), replies.name());
    message.acknowledge().await?;
    // It belongs to whoever asked for it: settling the message does not end it.
    let late = SendOptions::new().with_attribute("part", "2");
    mailbox.send_with(Probe::new(9), late).await?;
    assert_eq!(only(replies.receive().await?).attributes()["part"], "2");
    Ok(())
}

async fn a_reply_address_that_leads_nowhere_is_named_in_the_error(world: World) -> Outcome {
    for address in ["no such name", "gopher://example.org/x", "memory://gone/x", "a/b", ""] {
        let (_, message) = request(&world, address).await?;
        let error = refused(message.reply(Probe::new(0)).await, ErrorKind::MailboxResolution);
        assert_eq!(error.identifier(), Some(address));
        assert!(!message.is_finalized());
        message.acknowledge().await?;
    }
    Ok(())
}

async fn a_reply_to_a_closed_mailbox_says_so(world: World) -> Outcome {
    let replies = replies(&world)?;
    let (_, message) = request(&world, &replies).await?;
    let mailbox = message.reply_mailbox().await?;
    mailbox.close().await?;
    refused(mailbox.send(Probe::new(0)).await, ErrorKind::Closed);
    message.acknowledge().await?;
    Ok(())
}

async fn resolving_leaves_nothing_running(world: World) -> Outcome {
    let replies = replies(&world)?;
    let (_, message) = request(&world, &replies).await?;
    let running = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = running();
    let mut resolved = Vec::new();
    for number in 0..200 {
        let mailbox = message.reply_mailbox().await?;
        mailbox.send(Probe::new(number)).await?;
        resolved.push(mailbox);
    }
    // The subject may have one of its own, for a moment; 200 mailboxes have none for good.
    world.until("no task is left", || std::future::ready(Ok(running() <= before))).await?;
    assert_eq!(answers(&replies).await?.len(), 200);
    Ok(())
}
