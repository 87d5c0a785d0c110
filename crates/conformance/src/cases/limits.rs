//! L: every bound is accepted to the last byte and refused beyond, with words that name the field,
//! its value and the bound, and nothing changes.

use std::time::Duration;

use mailbox::{
    DeadReason, ErrorKind, NackOptions, Name, Peek, Policy, Retention, Retry, SendOptions,
    Settlement, Verdict, limits,
};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{
    Jobs, counts, drain, only, options, refused, refused_field, send_all, start_waiting, take_next,
    take_one,
};
use crate::subject::Setup;
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("L1", names_are_bounded),
    case!("L1", payloads_are_bounded, bytes, words),
    case!("L1", the_bound_of_payloads_can_be_set, bytes, setup),
    case!("L1", attributes_are_bounded),
    case!("L1", what_a_service_keeps_is_beside_the_attributes),
    case!("L1", reply_addresses_are_bounded),
    case!("L1", idempotency_keys_are_bounded, keys),
    case!("L1", groups_are_bounded, groups),
    case!("L1", texts_of_errors_are_bounded),
    case!("L1", batches_are_bounded, batches),
    case!("L1", peeking_is_bounded),
    case!("L1", messages_in_flight_are_bounded),
    case!("L1", waits_are_bounded, setup, alone),
    case!("L1", mailboxes_are_bounded, backend, setup, alone),
    case!("L1", rules_that_make_no_sense_are_refused),
    case!("L2", what_is_refused_leaves_nothing_behind),
    case!("L2", a_bound_counts_bytes_not_letters),
];

type Send = SendOptions<Probe>;

/// That a send with these options is accepted, and leaves nothing.
async fn accepted(jobs: &Jobs, options: Send) -> Outcome {
    jobs.send_with(Probe::new(0), options).await?;
    assert_eq!(drain(jobs).await?, [0]);
    Ok(())
}

/// That a send with these options is refused as too large, and leaves nothing.
async fn too_large(
    jobs: &Jobs,
    options: Send,
    field: &'static str,
    (size, most): (usize, usize),
) -> Outcome {
    let sent = jobs.send_with(Probe::new(0), options).await;
    let (size, most) = (size.to_string(), most.to_string());
    refused_field(sent, ErrorKind::TooLarge, (field, &size, &most));
    assert_eq!(counts(jobs).await?, [0, 0, 0, 0]);
    Ok(())
}

async fn names_are_bounded(world: World) -> Outcome {
    let longest = "n".repeat(limits::NAME_LEN);
    for good in ["a", "0", "user:42:inbox", "A.b_c-d", "...", &longest] {
        let jobs = world.mailbox(good)?;
        send_all(&jobs, [1]).await?;
        assert_eq!((jobs.name().as_str(), drain(&jobs).await?), (good, vec![1]));
    }
    let too_long = "n".repeat(limits::NAME_LEN + 1);
    for bad in ["", ".", "..", "a b", "a/b", "a\\b", "ä", "a\0", "a\n", "%2e", &too_long] {
        let error = refused(world.mailbox(bad).map(drop), ErrorKind::InvalidParameter);
        assert_eq!(error.field(), Some("name"), "{bad:?}");
        assert!(error.to_string().contains(&format!("{bad:?}")), "{error} should name {bad:?}");
    }
    let error = refused(Name::parse(&too_long), ErrorKind::InvalidParameter);
    assert!(error.to_string().contains("81") && error.to_string().contains("1..=80"), "{error}");
    Ok(())
}

async fn payloads_are_bounded(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let most = world.abilities().max_payload;
    jobs.send(Probe::of_size(most)).await?;
    let message = take_one(&jobs, world.units(9)).await?;
    assert_eq!(message.payload().map(|payload| payload.len()), Some(most));
    message.acknowledge().await?;
    let (size, bound) = ((most + 1).to_string(), most.to_string());
    let sent = jobs.send(Probe::of_size(most + 1)).await;
    refused_field(sent, ErrorKind::TooLarge, ("payload", &size, &bound));
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    Ok(())
}

async fn the_bound_of_payloads_can_be_set(world: World) -> Outcome {
    let setup = |bytes| Setup { max_payload: Some(bytes), ..Setup::default() };
    let small = world.another(setup(100)).await?;
    let jobs = small.mailbox("jobs")?;
    assert_eq!(jobs.abilities().max_payload, 100);
    jobs.send(Probe::of_size(100)).await?;
    let sent = jobs.send(Probe::of_size(101)).await;
    refused_field(sent, ErrorKind::TooLarge, ("payload", "101", "100"));
    let large = world.another(setup(8 << 20)).await?;
    large.mailbox("jobs")?.send(Probe::of_size(8 << 20)).await?;
    let beyond = world.another(setup(limits::PAYLOAD_LEN_MAX + 1)).await.map(drop);
    let (value, bound) = ((limits::PAYLOAD_LEN_MAX + 1).to_string(), "0..=268435456");
    refused_field(beyond, ErrorKind::InvalidParameter, ("max_payload", &value, bound));
    small.end().await;
    large.end().await;
    Ok(())
}

async fn attributes_are_bounded(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let many = |count: usize| {
        (0..count).fold(Send::new(), |options, number| {
            options.with_attribute(format!("key {number}"), "value")
        })
    };
    accepted(&jobs, many(64)).await?;
    let sent = jobs.send_with(Probe::new(0), many(65)).await;
    let words = ("attributes", "65 entries", "0..=64 entries");
    refused_field(sent, ErrorKind::InvalidParameter, words);
    let with =
        |key: usize, value: usize| Send::new().with_attribute("k".repeat(key), "v".repeat(value));
    accepted(&jobs, with(256, 8 * 1024)).await?;
    too_large(&jobs, with(257, 1), "attribute key", (257, 256)).await?;
    too_large(&jobs, with(1, 8 * 1024 + 1), "attribute value", (8 * 1024 + 1, 8 * 1024)).await
}

async fn what_a_service_keeps_is_beside_the_attributes(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let reserved = [
        ("mailbox.corr_id", "0190163d-8694-739b-aea5-966c26f8ad91"),
        ("mailbox.sig", "signed"),
        ("mailbox.partition", "north"),
        ("mailbox.traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ];
    let own = (0..64).map(|number| (format!("key {number}"), "value"));
    let with_own =
        own.fold(Send::new(), |options, (key, value)| options.with_attribute(key, value));
    let with_all = reserved
        .into_iter()
        .fold(with_own, |options, (key, value)| options.with_attribute(key, value));
    jobs.send_with(Probe::new(0), with_all.clone()).await?;
    let message = only(jobs.receive().await?);
    assert_eq!(*message.attributes(), with_all.attributes);
    message.acknowledge().await?;
    Ok(())
}

async fn reply_addresses_are_bounded(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let with = |length: usize| Send::new().with_reply_to("r".repeat(length));
    accepted(&jobs, with(1024)).await?;
    too_large(&jobs, with(1025), "reply_to", (1025, 1024)).await
}

async fn idempotency_keys_are_bounded(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let with = |length: usize| Send::new().with_idempotency_key("i".repeat(length));
    accepted(&jobs, with(1)).await?;
    accepted(&jobs, with(128)).await?;
    too_large(&jobs, with(129), "idempotency_key", (129, 128)).await?;
    let sent = jobs.send_with(Probe::new(0), with(0)).await;
    refused_field(sent, ErrorKind::InvalidParameter, ("idempotency_key", "empty", "1..=128"));
    Ok(())
}

async fn groups_are_bounded(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let with = |length: usize| Send::new().with_group("g".repeat(length));
    accepted(&jobs, with(1)).await?;
    accepted(&jobs, with(128)).await?;
    too_large(&jobs, with(129), "group", (129, 128)).await?;
    let sent = jobs.send_with(Probe::new(0), with(0)).await;
    refused_field(sent, ErrorKind::InvalidParameter, ("group", "empty", "1..=128"));
    Ok(())
}

async fn texts_of_errors_are_bounded(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, [0]).await?;
    let (most, over) = ("e".repeat(8 * 1024), "e".repeat(8 * 1024 + 1));
    let held = take_one(&jobs, world.units(60)).await?;
    let words = ("error", "8193", "8192");
    let nack = |error: &str| NackOptions::new().with_error(error);
    refused_field(held.nack_with(nack(&over)).await, ErrorKind::TooLarge, words);
    refused_field(held.reject(over).await, ErrorKind::TooLarge, words);
    assert_eq!(counts(&jobs).await?, [0, 0, 1, 0]);
    held.nack_with(nack(&most)).await?;
    let held = take_one(&jobs, world.units(60)).await?;
    held.reject(most.clone()).await?;
    let dead = only(crate::steps::dead_letters(&jobs).await?);
    assert_eq!(dead.last_error(), Some(most.as_str()));
    Ok(())
}

async fn batches_are_bounded(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let most = world.abilities().max_messages as usize;
    let batch = |count: usize| vec![(Probe::new(0), Send::new()); count];
    let bound = format!("0..={most}");
    let over = (most + 1).to_string();
    let words = ("batch", over.as_str(), bound.as_str());
    refused_field(jobs.send_batch(batch(most + 1)).await, ErrorKind::InvalidParameter, words);
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    let sent = jobs.send_batch(batch(most)).await?;
    assert!(sent.len() == most && sent.iter().all(Result::is_ok));
    let all = u32::try_from(most)?;
    let taken = jobs.receive_with(options(all, world.units(60))).await?;
    assert_eq!(taken.len(), most);
    let settlement = |message: &crate::steps::Job| Settlement {
        receipt_handle: message.receipt_handle().clone(),
        verdict: Verdict::Acknowledge,
    };
    let mut settlements: Vec<_> = taken.iter().map(settlement).collect();
    settlements.push(settlement(&taken[0]));
    let settled = jobs.settle_batch(settlements.clone()).await;
    refused_field(settled, ErrorKind::InvalidParameter, words);
    assert_eq!(counts(&jobs).await?, [0, 0, most as u64, 0]);
    settlements.pop();
    assert!(jobs.settle_batch(settlements).await?.iter().all(Result::is_ok));
    Ok(())
}

async fn peeking_is_bounded(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let ids = send_all(&jobs, [0]).await?;
    let most = world.abilities().max_messages;
    let (bound, over) = (format!("0..={most}"), (most + 1).to_string());
    let kind = ErrorKind::InvalidParameter;
    let words = ("limit", over.as_str(), bound.as_str());
    refused_field(jobs.peek(Peek::Live { limit: most + 1 }).await, kind, words);
    refused_field(jobs.peek(Peek::Dead { after: None, limit: most + 1 }).await, kind, words);
    let many = |count: u32| Peek::These(vec![ids[0].clone(); count as usize]);
    refused_field(jobs.peek(many(most + 1)).await, kind, ("ids", &over, &bound));
    assert_eq!(jobs.peek(Peek::Live { limit: most }).await?.len(), 1);
    assert_eq!(jobs.peek(Peek::Dead { after: None, limit: most }).await?.len(), 0);
    assert_eq!(jobs.peek(many(most)).await?.len(), most as usize);
    Ok(())
}

async fn messages_in_flight_are_bounded(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(Policy { max_in_flight: 2, ..Policy::default() }).await?;
    send_all(&jobs, 0..4).await?;
    let taken = jobs.receive_with(options(4, world.units(4))).await?;
    assert_eq!(taken.len(), 2, "as many as may be");
    let error = refused(jobs.receive().await, ErrorKind::Saturated);
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    assert!(error.to_string().contains("max_in_flight = 2"), "{error}");
    taken[0].acknowledge().await?;
    let _third = take_next(&jobs, world.units(60)).await?;
    refused(jobs.receive().await, ErrorKind::Saturated);
    world.pass(4).await;
    let _back = take_next(&jobs, world.units(60)).await?;
    assert_eq!(counts(&jobs).await?, [0, 1, 2, 0]);
    Ok(())
}

async fn waits_are_bounded(world: World) -> Outcome {
    let setup = Setup { max_waiters: Some(2), ..Setup::default() };
    let world = world.another(setup).await?;
    let jobs = world.mailbox("jobs")?;
    let patient = options(1, world.units(60)).with_wait(world.units(100));
    let first = start_waiting(&world, &jobs, patient.clone(), 1).await?;
    let second = start_waiting(&world, &jobs, patient.clone(), 2).await?;
    let error = refused(jobs.receive_with(patient.clone()).await, ErrorKind::Saturated);
    assert!(matches!(error.retry(), Retry::After(_)) && error.to_string().contains('2'), "{error}");
    assert_eq!(jobs.receive().await?.len(), 0, "whoever does not wait is not refused");
    assert_eq!(world.mailbox("others")?.receive().await?.len(), 0);
    send_all(&jobs, 0..2).await?;
    assert_eq!((first.await??.len(), second.await??.len()), (1, 1));
    let third = start_waiting(&world, &jobs, patient, 1).await?;
    send_all(&jobs, [2]).await?;
    assert_eq!(third.await??.len(), 1);
    world.end().await;
    Ok(())
}

async fn mailboxes_are_bounded(world: World) -> Outcome {
    let setup = Setup { max_mailboxes: Some(2), ..Setup::default() };
    let world = world.another(setup).await?;
    for name in ["a", "b"] {
        send_all(&world.mailbox(name)?, [0]).await?;
    }
    let third = world.mailbox("c")?;
    let error = refused(third.send(Probe::new(0)).await, ErrorKind::Saturated);
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    assert_eq!(error.mailbox().map(Name::as_str), Some("c"));
    assert_eq!(third.stats().await?.live(), 0, "looking needs no place");
    let backend = world.backend().ok_or("no backend")?;
    assert!(backend.remove(&Name::parse("a")?).await?);
    send_all(&third, [0]).await?;
    world.end().await;
    Ok(())
}

async fn rules_that_make_no_sense_are_refused(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let before = Policy { max_size: Some(7), ..Policy::default() };
    jobs.configure(before.clone()).await?;
    let with = |retention| Policy { retention, ..Policy::default() };
    let (none, zero) = (Retention::default(), Some(Duration::ZERO));
    for (field, value, bound, policy) in [
        ("max_attempts", "0", "1 or more", Policy { max_attempts: Some(0), ..Policy::default() }),
        (
            "retention.in_flight_factor",
            "0",
            "1 or more",
            with(Retention { in_flight_factor: Some(0), ..none.clone() }),
        ),
        (
            "retention.ready_age",
            "0 s",
            "more than 0 s",
            with(Retention { ready_age: zero, ..none.clone() }),
        ),
        ("retention.dead_age", "0 s", "more than 0 s", with(Retention { dead_age: zero, ..none })),
    ] {
        let configured = jobs.configure(policy).await;
        refused_field(configured, ErrorKind::InvalidParameter, (field, value, bound));
    }
    assert_eq!(jobs.policy().await?, before);
    Ok(())
}

async fn what_is_refused_leaves_nothing_behind(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let over = Send::new().with_attribute("k".repeat(257), "v");
    for _ in 0..100 {
        refused(jobs.send_with(Probe::new(0), over.clone()).await, ErrorKind::TooLarge);
    }
    let stats = jobs.stats().await?;
    assert_eq!((stats.live(), stats.dead, stats.totals.sent), (0, 0, 0));
    send_all(&jobs, [0]).await?;
    let held = take_one(&jobs, world.units(60)).await?;
    let reason = DeadReason::Rejected;
    let error = Some("e".repeat(1 << 16).into_boxed_str());
    let verdict = Verdict::Reject { reason, error };
    for _ in 0..100 {
        let settled = jobs.settle(held.receipt_handle(), verdict.clone()).await;
        refused(settled, ErrorKind::TooLarge);
    }
    held.acknowledge().await?;
    Ok(())
}

async fn a_bound_counts_bytes_not_letters(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    accepted(&jobs, Send::new().with_attribute("é".repeat(128), "世".repeat(2730))).await?;
    let key = Send::new().with_attribute("é".repeat(129), "v");
    too_large(&jobs, key, "attribute key", (258, 256)).await?;
    let value = Send::new().with_attribute("k", "世".repeat(2731));
    too_large(&jobs, value, "attribute value", (8193, 8192)).await
}
