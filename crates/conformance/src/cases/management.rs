//! M: what can be seen of mailboxes and done to them as a whole.

use std::time::Duration;

use mailbox::{ErrorKind, MessageId, Peek, Phase, Policy, Retry, Selection, SendOptions, Stats};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{
    Jobs, counts, drain, nothing, options, picture, refused, send_all, start_waiting, take_next,
    take_one,
};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("M1", a_purge_removes_every_live_message_and_says_how_many),
    case!("M1", a_purge_leaves_dead_letters),
    case!("M1", a_purge_of_nothing_removes_nothing),
    case!("M1", a_purged_mailbox_works_on),
    case!("M2", the_count_is_delayed_and_ready_and_invisible, counts),
    case!("M3", stats_follow_a_message_through_its_life, counts),
    case!("M3", the_oldest_age_counts_from_send_or_redrive, exact_time),
    case!("M3", totals_count_what_has_happened, counts, totals),
    case!("M3", a_mailbox_that_nobody_has_used_is_empty),
    case!("M3", peeking_shows_messages_and_changes_nothing),
    case!("M3", peeking_finds_messages_by_id),
    case!("M3", mailboxes_are_listed_in_order_and_in_parts, backend),
    case!("M3", a_removed_mailbox_is_gone_with_everything_in_it, backend),
    case!("M3", removing_a_mailbox_ends_its_waits, backend, told),
    case!("M3", rules_are_kept_and_shown),
    case!("M4", beyond_max_size_a_send_is_refused),
    case!("M4", capacity_counts_delayed_and_invisible_but_not_dead, counts),
    case!("M4", a_batch_fills_a_mailbox_and_the_rest_is_refused),
    case!("M4", a_mailbox_of_size_zero_takes_nothing),
];

/// One message of each kind: delayed (0), ready (1), invisible (2), dead (3).
async fn one_of_each(world: &World) -> Outcome<Jobs> {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, [3]).await?;
    take_one(&jobs, world.units(9)).await?.reject("no").await?;
    send_all(&jobs, [2]).await?;
    let _held = take_one(&jobs, world.units(60)).await?;
    jobs.send_with(Probe::new(0), SendOptions::new().with_delay(world.units(60))).await?;
    send_all(&jobs, [1]).await?;
    assert_eq!(counts(&jobs).await?, [1, 1, 1, 1]);
    Ok(jobs)
}

async fn a_purge_removes_every_live_message_and_says_how_many(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..4).await?;
    let taken = jobs.receive_with(options(2, world.units(4))).await?;
    jobs.send_with(Probe::new(9), SendOptions::new().with_delay(world.units(4))).await?;
    assert_eq!(jobs.purge().await?, 5);
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    for message in taken {
        refused(message.acknowledge().await, ErrorKind::ReceiptHandleExpired);
    }
    world.pass(10).await;
    nothing(&jobs).await
}

async fn a_purge_leaves_dead_letters(world: World) -> Outcome {
    let jobs = one_of_each(&world).await?;
    assert_eq!(jobs.purge().await?, 3);
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 1]);
    assert_eq!(jobs.redrive(Selection::All).await?, 1);
    assert_eq!(drain(&jobs).await?, [3]);
    Ok(())
}

async fn a_purge_of_nothing_removes_nothing(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    assert_eq!(jobs.purge().await?, 0);
    send_all(&jobs, [0]).await?;
    assert_eq!((jobs.purge().await?, jobs.purge().await?), (1, 0));
    Ok(())
}

async fn a_purged_mailbox_works_on(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(Policy { max_size: Some(2), ..Policy::default() }).await?;
    send_all(&jobs, 0..2).await?;
    jobs.purge().await?;
    send_all(&jobs, 2..4).await?;
    assert_eq!(jobs.policy().await?.max_size, Some(2), "rules stay");
    assert_eq!(drain(&jobs).await?.len(), 2);
    Ok(())
}

async fn the_count_is_delayed_and_ready_and_invisible(world: World) -> Outcome {
    let jobs = one_of_each(&world).await?;
    assert_eq!(jobs.approximate_count().await?, 3);
    send_all(&jobs, 4..9).await?;
    assert_eq!(jobs.approximate_count().await?, 8);
    drain(&jobs).await?;
    assert_eq!(jobs.approximate_count().await?, 2);
    Ok(())
}

async fn stats_follow_a_message_through_its_life(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send_with(Probe::new(0), SendOptions::new().with_delay(world.units(2))).await?;
    assert_eq!(counts(&jobs).await?, [1, 0, 0, 0]);
    world.pass(2).await;
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    let held = take_one(&jobs, world.units(2)).await?;
    assert_eq!(counts(&jobs).await?, [0, 0, 1, 0]);
    world.pass(2).await;
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    refused(held.acknowledge().await, ErrorKind::ReceiptHandleExpired);
    take_one(&jobs, world.units(2)).await?.nack_in(world.units(2)).await?;
    assert_eq!(counts(&jobs).await?, [1, 0, 0, 0]);
    world.pass(2).await;
    take_one(&jobs, world.units(2)).await?.reject("no").await?;
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 1]);
    jobs.redrive(Selection::All).await?;
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    take_one(&jobs, world.units(2)).await?.acknowledge().await?;
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    Ok(())
}

async fn the_oldest_age_counts_from_send_or_redrive(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let age = async || Outcome::Ok(jobs.stats().await?.oldest_age);
    assert_eq!(age().await?, None);
    send_all(&jobs, [0]).await?;
    assert_eq!(age().await?, Some(Duration::ZERO));
    world.pass(5).await;
    jobs.send_with(Probe::new(1), SendOptions::new().with_delay(world.units(60))).await?;
    world.pass(5).await;
    assert_eq!(age().await?, Some(world.units(10)));
    take_one(&jobs, world.units(9)).await?.nack().await?;
    assert_eq!(age().await?, Some(world.units(10)), "a nack does not make it younger");
    take_one(&jobs, world.units(9)).await?.reject("no").await?;
    assert_eq!(age().await?, Some(world.units(5)), "the delayed one is the oldest now");
    jobs.redrive(Selection::All).await?;
    assert_eq!(age().await?, Some(world.units(5)));
    jobs.purge().await?;
    assert_eq!(age().await?, None);
    Ok(())
}

async fn totals_count_what_has_happened(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..5).await?;
    let taken = jobs.receive_with(options(3, world.units(2))).await?;
    taken[0].acknowledge().await?;
    taken[1].reject("no").await?;
    world.pass(2).await;
    jobs.redrive(Selection::All).await?;
    drain(&jobs).await?;
    send_all(&jobs, 5..7).await?;
    jobs.purge().await?;
    let totals = jobs.stats().await?.totals;
    assert_eq!((totals.sent, totals.acknowledged, totals.purged), (7, 5, 2));
    assert_eq!((totals.dead_lettered, totals.redriven, totals.retention_dropped), (1, 1, 0));
    assert_eq!(totals.timed_out, 1);
    Ok(())
}

async fn a_mailbox_that_nobody_has_used_is_empty(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    assert_eq!(jobs.stats().await?, nothing_ever(&jobs).await?);
    assert_eq!(jobs.approximate_count().await?, 0);
    assert_eq!(jobs.policy().await?, Policy::default());
    assert_eq!(jobs.peek(Peek::Live { limit: 10 }).await?.len(), 0);
    assert_eq!(jobs.peek(Peek::Dead { after: None, limit: 10 }).await?.len(), 0);
    let nobody = MessageId::from_text("nobody");
    assert_eq!(jobs.peek(Peek::These(vec![nobody])).await?.len(), 0);
    assert_eq!(jobs.purge().await?, 0);
    assert_eq!(jobs.redrive(Selection::All).await?, 0);
    assert_eq!(jobs.delete_dead(Selection::Oldest(5)).await?, 0);
    nothing(&jobs).await
}

async fn peeking_shows_messages_and_changes_nothing(world: World) -> Outcome {
    let jobs = one_of_each(&world).await?;
    let before = picture(&world, &jobs).await?;
    let live = jobs.peek(Peek::Live { limit: 10 }).await?;
    let seen: Vec<_> = live
        .iter()
        .map(|seen| Ok((seen.body()?.number, seen.phase(), seen.delivery_count())))
        .collect::<Outcome<_>>()?;
    let expected = [(2, Phase::Invisible, 1), (0, Phase::Delayed, 0), (1, Phase::Ready, 0)];
    assert_eq!(seen, expected, "oldest first");
    if world.clock().is_ok() {
        let due: Vec<_> = live.iter().map(|seen| seen.receivable_in()).collect();
        assert_eq!(due, [world.units(60), world.units(60), Duration::ZERO]);
    }
    assert!(live.iter().all(|seen| seen.death().is_none()));
    assert_eq!(jobs.peek(Peek::Live { limit: 2 }).await?.len(), 2);
    assert_eq!(jobs.peek(Peek::Live { limit: 0 }).await?.len(), 0);
    assert_eq!(picture(&world, &jobs).await?, before);
    assert_eq!(take_one(&jobs, world.units(9)).await?.delivery_count(), 1);
    Ok(())
}

async fn peeking_finds_messages_by_id(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let ids = send_all(&jobs, 0..4).await?;
    take_next(&jobs, world.units(9)).await?.reject("no").await?;
    take_next(&jobs, world.units(9)).await?.acknowledge().await?;
    let nobody = MessageId::from_text("01ARZ3NDEKTSV4RRFFQ69G5FAV");
    let wanted = vec![ids[2].clone(), ids[1].clone(), nobody, ids[0].clone()];
    let seen: Vec<_> = jobs
        .peek(Peek::These(wanted))
        .await?
        .iter()
        .map(|seen| Ok((seen.body()?.number, seen.phase())))
        .collect::<Outcome<_>>()?;
    assert_eq!(seen, [(2, Phase::Ready), (0, Phase::Dead)], "those that are gone are left out");
    Ok(())
}

async fn mailboxes_are_listed_in_order_and_in_parts(world: World) -> Outcome {
    let backend = world.backend().ok_or("no backend")?;
    assert_eq!(backend.list(None, 10).await?, []);
    for name in ["b", "a.2", "a.1", "c"] {
        world.mailbox(name)?.send(Probe::new(0)).await?;
    }
    let names = |names: Vec<mailbox::Name>| -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    };
    let all = backend.list(None, 10).await?;
    assert_eq!(names(all.clone()), ["a.1", "a.2", "b", "c"]);
    assert_eq!(names(backend.list(None, 2).await?), ["a.1", "a.2"]);
    assert_eq!(names(backend.list(Some(&all[1]), 10).await?), ["b", "c"]);
    assert_eq!(backend.list(Some(&all[3]), 10).await?, []);
    assert_eq!(backend.list(None, 0).await?, []);
    Ok(())
}

async fn a_removed_mailbox_is_gone_with_everything_in_it(world: World) -> Outcome {
    let jobs = one_of_each(&world).await?;
    jobs.configure(Policy { max_size: Some(3), ..Policy::default() }).await?;
    let backend = world.backend().ok_or("no backend")?;
    assert!(backend.remove(jobs.name()).await?);
    assert!(!backend.remove(jobs.name()).await?, "there is none any more");
    assert_eq!(backend.list(None, 10).await?, []);
    assert_eq!(jobs.stats().await?, nothing_ever(&jobs).await?);
    assert_eq!(jobs.policy().await?, Policy::default());
    send_all(&jobs, 0..5).await?;
    assert_eq!(counts(&jobs).await?, [0, 5, 0, 0], "it starts anew");
    Ok(())
}

async fn removing_a_mailbox_ends_its_waits(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let backend = world.backend().ok_or("no backend")?;
    let patient = options(1, world.units(9)).with_wait(world.units(100));
    let waiting = start_waiting(&world, &jobs, patient, 1).await?;
    backend.remove(jobs.name()).await?;
    refused(waiting.await?, ErrorKind::NotFound);
    Ok(())
}

async fn rules_are_kept_and_shown(world: World) -> Outcome {
    let (jobs, same) = (world.mailbox("jobs")?, world.mailbox("jobs")?);
    let mut policy = Policy {
        max_size: Some(7),
        max_in_flight: 5,
        max_attempts: Some(3),
        replay_window: world.units(9),
        dedup_capacity: 11,
        late_settle: mailbox::LateSettle::UntilRedelivered,
        ..Policy::default()
    };
    policy.retention.ready_age = Some(world.units(70));
    policy.retention.dead_count = Some(2);
    jobs.configure(policy.clone()).await?;
    assert_eq!(same.policy().await?, policy);
    assert_eq!(world.mailbox("others")?.policy().await?, Policy::default());
    jobs.configure(Policy::default()).await?;
    assert_eq!(same.policy().await?, Policy::default());
    Ok(())
}

async fn beyond_max_size_a_send_is_refused(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(Policy { max_size: Some(3), ..Policy::default() }).await?;
    send_all(&jobs, 0..3).await?;
    let error = refused(jobs.send(Probe::new(3)).await, ErrorKind::MailboxFull);
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    assert!(error.to_string().contains("max_size = 3"), "{error}");
    take_next(&jobs, world.units(9)).await?.acknowledge().await?;
    send_all(&jobs, [4]).await?;
    refused(jobs.send(Probe::new(5)).await, ErrorKind::MailboxFull);
    assert_eq!(drain(&jobs).await?.len(), 3);
    Ok(())
}

async fn capacity_counts_delayed_and_invisible_but_not_dead(world: World) -> Outcome {
    let jobs = one_of_each(&world).await?;
    jobs.configure(Policy { max_size: Some(4), ..Policy::default() }).await?;
    send_all(&jobs, [5]).await?;
    refused(jobs.send(Probe::new(6)).await, ErrorKind::MailboxFull);
    take_next(&jobs, world.units(60)).await?.reject("no").await?;
    send_all(&jobs, [7]).await?;
    assert_eq!(counts(&jobs).await?, [1, 2, 1, 2]);
    // New rules drop nothing.
    jobs.configure(Policy { max_size: Some(1), ..Policy::default() }).await?;
    assert_eq!(counts(&jobs).await?, [1, 2, 1, 2]);
    refused(jobs.send(Probe::new(8)).await, ErrorKind::MailboxFull);
    Ok(())
}

async fn a_batch_fills_a_mailbox_and_the_rest_is_refused(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(Policy { max_size: Some(3), ..Policy::default() }).await?;
    let batch = (0..5).map(|number| (Probe::new(number), SendOptions::new())).collect();
    let results = jobs.send_batch(batch).await?;
    let sent: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(sent, [true, true, true, false, false]);
    for result in results.into_iter().skip(3) {
        refused(result, ErrorKind::MailboxFull);
    }
    assert_eq!(counts(&jobs).await?, [0, 3, 0, 0]);
    Ok(())
}

async fn a_mailbox_of_size_zero_takes_nothing(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(Policy { max_size: Some(0), ..Policy::default() }).await?;
    refused(jobs.send(Probe::new(0)).await, ErrorKind::MailboxFull);
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    Ok(())
}

/// The counts of a mailbox that nobody has used.
async fn nothing_ever(jobs: &Jobs) -> Outcome<Stats> {
    let mut empty = Stats::default();
    empty.durability = jobs.stats().await?.durability;
    Ok(empty)
}
