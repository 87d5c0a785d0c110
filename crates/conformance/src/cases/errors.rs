//! E: errors say what kind they are, which mailbox, and whether to try again.

use std::collections::BTreeSet;
use std::time::Duration;

use mailbox::{Error, ErrorKind, MessageId, Peek, Policy, Retry, Selection, SendOptions};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{drain, numbers, only, options, refused, send_all, take_next, take_one};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("E", the_kinds_are_those_of_the_contract, once),
    case!("E", every_error_says_whether_to_try_again),
    case!("E", every_error_names_its_mailbox, words),
    case!("E", an_error_says_nothing_secret),
    case!("E", a_body_that_does_not_decode_affects_its_message_alone, bytes),
    case!("E", a_body_that_does_not_decode_is_not_quoted, bytes),
    case!("E", a_body_that_cannot_be_encoded_is_not_sent, bytes),
];

async fn the_kinds_are_those_of_the_contract(_: World) -> Outcome {
    let names: BTreeSet<String> = ErrorKind::ALL.iter().map(|kind| format!("{kind:?}")).collect();
    let contract = "ReceiptHandleExpired MailboxFull Serialization Connection ReplyNotAvailable \
                    MessageFinalized MailboxResolution InvalidParameter TooLarge Duplicate \
                    Saturated Unauthorized Forbidden NotFound Integrity Closed Unsupported \
                    Internal";
    assert_eq!(names, contract.split_whitespace().map(str::to_owned).collect());
    for kind in ErrorKind::ALL {
        let may_pass =
            matches!(kind, ErrorKind::Connection | ErrorKind::MailboxFull | ErrorKind::Saturated);
        let retry = Error::new(kind, "why").retry();
        assert_eq!(matches!(retry, Retry::After(wait) if !wait.is_zero()), may_pass, "{kind:?}");
    }
    Ok(())
}

/// One error of every kind that a mailbox can be brought to give.
async fn errors(world: &World) -> Outcome<Vec<Error>> {
    let jobs = world.mailbox("jobs")?;
    let mut errors = Vec::new();
    let mut expect = |error: Error| errors.push(error);
    send_all(&jobs, 0..2).await?;
    let held = take_next(&jobs, world.units(60)).await?;
    expect(refused(held.nack_in(Duration::MAX).await, ErrorKind::InvalidParameter));
    expect(refused(held.reply(Probe::new(0)).await, ErrorKind::ReplyNotAvailable));
    held.acknowledge().await?;
    expect(refused(held.acknowledge().await, ErrorKind::ReceiptHandleExpired));
    expect(refused(held.reply(Probe::new(0)).await, ErrorKind::MessageFinalized));
    let most = world.abilities().max_messages;
    expect(refused(
        jobs.receive_with(options(0, Duration::ZERO)).await,
        ErrorKind::InvalidParameter,
    ));
    let limit = most + 1;
    expect(refused(jobs.peek(Peek::Live { limit }).await, ErrorKind::InvalidParameter));
    let batch = vec![(Probe::new(0), SendOptions::new()); most as usize + 1];
    expect(refused(jobs.send_batch(batch).await, ErrorKind::InvalidParameter));
    let unknown = Selection::These(vec![MessageId::from_text("nobody")]);
    expect(refused(jobs.redrive(unknown).await, ErrorKind::NotFound));
    let large = SendOptions::new().with_attribute("k".repeat(257), "");
    expect(refused(jobs.send_with(Probe::new(0), large).await, ErrorKind::TooLarge));
    jobs.configure(Policy { max_size: Some(2), max_in_flight: 1, ..Policy::default() }).await?;
    jobs.send(Probe::new(0)).await?;
    expect(refused(jobs.send(Probe::new(0)).await, ErrorKind::MailboxFull));
    let _held = take_next(&jobs, world.units(60)).await?;
    expect(refused(jobs.receive().await, ErrorKind::Saturated));
    let mut policy = Policy::default();
    policy.retention.ready_age = Some(Duration::ZERO);
    expect(refused(jobs.configure(policy).await, ErrorKind::InvalidParameter));
    if world.abilities().idempotency {
        jobs.configure(Policy { dedup_capacity: 1, ..Policy::default() }).await?;
        let keyed = |key: &str| SendOptions::new().with_idempotency_key(key);
        jobs.send_with(Probe::new(0), keyed("a")).await?;
        let other = jobs.send_with(Probe::new(1), keyed("a")).await;
        expect(refused(other, ErrorKind::Duplicate));
        let full = jobs.send_with(Probe::new(1), keyed("b")).await;
        expect(refused(full, ErrorKind::Saturated));
    }
    jobs.close().await?;
    expect(refused(jobs.send(Probe::new(0)).await, ErrorKind::Closed));
    Ok(errors)
}

async fn every_error_says_whether_to_try_again(world: World) -> Outcome {
    for error in errors(&world).await? {
        let may_pass = matches!(error.kind(), ErrorKind::MailboxFull | ErrorKind::Saturated);
        match error.retry() {
            Retry::Never => assert!(!may_pass, "{error:?}"),
            Retry::Now => return Err(format!("nothing was in doubt: {error:?}").into()),
            Retry::After(wait) => assert!(may_pass && !wait.is_zero(), "{error:?}"),
        }
    }
    Ok(())
}

async fn every_error_names_its_mailbox(world: World) -> Outcome {
    for error in errors(&world).await? {
        assert_eq!(error.mailbox().map(mailbox::Name::as_str), Some("jobs"), "{error:?}");
        let words = error.to_string();
        assert!(words.starts_with("mailbox `jobs`: "), "{words}");
        assert!(!words.ends_with('.') && !error.message().is_empty(), "{words}");
    }
    Ok(())
}

async fn an_error_says_nothing_secret(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::with_text(0, "the body is private")).await?;
    let held = take_one(&jobs, world.units(60)).await?;
    let handle = held.receipt_handle().to_string();
    held.acknowledge().await?;
    let error = refused(held.acknowledge().await, ErrorKind::ReceiptHandleExpired);
    for shown in [format!("{error:?} {error}"), format!("{held:?} {:?}", held.receipt_handle())] {
        assert!(!shown.contains(&handle), "whoever reads a log could settle: {shown}");
        assert!(!shown.contains("the body is private"), "{shown}");
    }
    Ok(())
}

async fn a_body_that_does_not_decode_affects_its_message_alone(world: World) -> Outcome {
    let (jobs, words) = (world.mailbox("jobs")?, world.typed::<Vec<u8>, Probe>("jobs")?);
    send_all(&jobs, [1]).await?;
    words.send(vec![2, 3]).await?;
    send_all(&jobs, [4]).await?;
    let taken = jobs.receive_with(options(3, world.units(60))).await?;
    let (good, bad): (Vec<_>, Vec<_>) =
        taken.into_iter().partition(|message| message.body().is_ok());
    let mut received = numbers(&good)?;
    received.sort_unstable();
    assert_eq!(received, [1, 4]);
    let bad = only(bad);
    let error = refused(bad.body(), ErrorKind::Serialization);
    assert_eq!(error.retry(), Retry::Never);
    assert_eq!(bad.payload().map(|payload| &payload[..]), Some(&b"[2,3]"[..]));
    // It can be settled like any other.
    bad.extend_visibility(world.units(60)).await?;
    bad.nack().await?;
    let again = only(words.receive().await?);
    assert_eq!((again.body()?, again.delivery_count()), (&vec![2, 3], 2));
    again.acknowledge().await?;
    for message in good {
        message.acknowledge().await?;
    }
    assert_eq!(drain(&jobs).await?, [0; 0]);
    Ok(())
}

/// What reads JSON likes to quote what it found instead of what it wanted.
async fn a_body_that_does_not_decode_is_not_quoted(world: World) -> Outcome {
    let (jobs, words) = (world.mailbox("jobs")?, world.typed::<String, Probe>("jobs")?);
    words.send("the body is private".to_owned()).await?;
    let message = take_one(&jobs, world.units(60)).await?;
    let error = refused(message.body(), ErrorKind::Serialization);
    assert_eq!(error.mailbox().map(mailbox::Name::as_str), Some("jobs"));
    message.reject(error.to_string()).await?;
    let dead = only(jobs.dead_letters(10).await?);
    let chain = std::error::Error::source(&error).map(ToString::to_string);
    let shown = format!("{error} {error:#} {error:?} {chain:?} {:?} {dead:?}", dead.last_error());
    assert!(!shown.contains("private"), "{shown}");
    Ok(())
}

/// A body that JSON cannot write: its keys are not text.
type Unwritable = std::collections::BTreeMap<Vec<u8>, u8>;

async fn a_body_that_cannot_be_encoded_is_not_sent(world: World) -> Outcome {
    let maps = world.typed::<Unwritable, Probe>("jobs")?;
    let bad = || Unwritable::from([(vec![1], 2)]);
    refused(maps.send(bad()).await, ErrorKind::Serialization);
    let batch = [Unwritable::new(), bad(), Unwritable::new()];
    let batch = batch.map(|body| (body, SendOptions::new()));
    let results = maps.send_batch(batch.into()).await?;
    let kinds: Vec<_> = results.iter().map(|sent| sent.as_ref().err().map(Error::kind)).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::Serialization), None]);
    assert_eq!(maps.stats().await?.ready, 2);
    Ok(())
}
