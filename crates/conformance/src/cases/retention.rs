//! X5: how long messages are kept where a policy says so, and for ever where none does.

use std::time::Duration;

use mailbox::{DeadReason, ErrorKind, Policy, Retention, Selection, SendOptions};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{
    Jobs, counts, dead_letters, drain, nothing, options, refused, send_all, take_next, take_one,
};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("X5", a_message_that_waited_too_long_is_a_dead_letter),
    case!("X5", a_message_in_flight_is_not_too_old_until_it_comes_back),
    case!("X5", a_redriven_message_has_a_new_age),
    case!("X5", an_old_message_is_not_delivered),
    case!("X5", with_too_many_messages_the_oldest_dies),
    case!("X5", a_delivery_cannot_be_extended_for_ever, words),
    case!("X5", old_dead_letters_are_dropped_and_counted, facts),
    case!("X5", with_too_many_dead_letters_the_oldest_is_dropped_and_counted, facts),
    case!("X5", without_a_policy_everything_is_kept, exact_time),
];

async fn mailbox_with(world: &World, retention: Retention) -> Outcome<Jobs> {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(Policy { retention, ..Policy::default() }).await?;
    Ok(jobs)
}

async fn reasons(jobs: &Jobs) -> Outcome<Vec<(u64, DeadReason)>> {
    let dead = dead_letters(jobs).await?;
    let reason = |dead: &mailbox::Peeked<Probe, Probe>| -> Outcome<_> {
        Ok((dead.body()?.number, dead.death().ok_or("it is dead")?.reason))
    };
    dead.iter().map(reason).collect()
}

async fn a_message_that_waited_too_long_is_a_dead_letter(world: World) -> Outcome {
    let ready_age = Some(world.units(10));
    let jobs = mailbox_with(&world, Retention { ready_age, ..Retention::default() }).await?;
    send_all(&jobs, [0]).await?;
    world.pass(4).await;
    send_all(&jobs, [1]).await?;
    jobs.send_with(Probe::new(2), SendOptions::new().with_delay(world.units(60))).await?;
    world.pass(4).await;
    assert_eq!(counts(&jobs).await?, [1, 2, 0, 0]);
    world.pass(2).await;
    assert_eq!(counts(&jobs).await?, [1, 1, 0, 1]);
    world.pass(4).await;
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 3], "a delayed one too");
    let expired = DeadReason::Expired;
    assert_eq!(reasons(&jobs).await?, [(0, expired), (1, expired), (2, expired)]);
    Ok(())
}

async fn a_message_in_flight_is_not_too_old_until_it_comes_back(world: World) -> Outcome {
    let ready_age = Some(world.units(10));
    let jobs = mailbox_with(&world, Retention { ready_age, ..Retention::default() }).await?;
    send_all(&jobs, 0..2).await?;
    let taken = jobs.receive_with(options(2, world.units(20))).await?;
    world.pass(15).await;
    assert_eq!(counts(&jobs).await?, [0, 0, 2, 0]);
    taken[0].acknowledge().await?;
    taken[1].nack().await?;
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 1]);
    nothing(&jobs).await
}

async fn a_redriven_message_has_a_new_age(world: World) -> Outcome {
    let ready_age = Some(world.units(10));
    let jobs = mailbox_with(&world, Retention { ready_age, ..Retention::default() }).await?;
    send_all(&jobs, [0]).await?;
    world.pass(11).await;
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 1]);
    jobs.redrive(Selection::All).await?;
    world.pass(8).await;
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    world.pass(2).await;
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 1]);
    Ok(())
}

async fn an_old_message_is_not_delivered(world: World) -> Outcome {
    let ready_age = Some(world.units(10));
    let jobs = mailbox_with(&world, Retention { ready_age, ..Retention::default() }).await?;
    send_all(&jobs, 0..3).await?;
    world.pass(10).await;
    send_all(&jobs, [3]).await?;
    // Nobody has looked at the mailbox since: the receive itself must notice.
    assert_eq!(take_one(&jobs, world.units(5)).await?.body()?.number, 3);
    assert_eq!(counts(&jobs).await?, [0, 0, 1, 3]);
    Ok(())
}

async fn with_too_many_messages_the_oldest_dies(world: World) -> Outcome {
    let retention = Retention { ready_count: Some(2), ..Retention::default() };
    let jobs = mailbox_with(&world, retention).await?;
    send_all(&jobs, 0..4).await?;
    assert_eq!(counts(&jobs).await?, [0, 2, 0, 2]);
    assert_eq!(reasons(&jobs).await?, [(0, DeadReason::Expired), (1, DeadReason::Expired)]);
    let mut left = drain(&jobs).await?;
    left.sort_unstable();
    assert_eq!(left, [2, 3]);
    Ok(())
}

async fn a_delivery_cannot_be_extended_for_ever(world: World) -> Outcome {
    let in_flight_factor = Some(10);
    let retention = Retention { in_flight_factor, ..Retention::default() };
    let jobs = mailbox_with(&world, retention).await?;
    send_all(&jobs, [0]).await?;
    let held = take_one(&jobs, world.units(4)).await?;
    // Ten times four units from the delivery on, whatever the extensions.
    for _ in 0..8 {
        world.pass(3).await;
        held.extend_visibility(world.units(4)).await?;
    }
    world.pass(3).await;
    let error = refused(held.extend_visibility(world.units(14)).await, ErrorKind::InvalidParameter);
    assert_eq!(error.field(), Some("visibility_timeout"));
    if world.clock().is_ok() {
        assert!(error.to_string().contains("13s"), "it says how much is left: {error}");
        held.extend_visibility(world.units(13)).await?;
    }
    held.acknowledge().await?;
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    Ok(())
}

async fn old_dead_letters_are_dropped_and_counted(world: World) -> Outcome {
    let dead_age = Some(world.units(10));
    let jobs = mailbox_with(&world, Retention { dead_age, ..Retention::default() }).await?;
    for number in 0..2 {
        send_all(&jobs, [number]).await?;
        take_one(&jobs, world.units(2)).await?.reject("no").await?;
        world.pass(4).await;
    }
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 2]);
    world.pass(2).await;
    assert_eq!(reasons(&jobs).await?, [(1, DeadReason::Rejected)]);
    world.pass(4).await;
    let stats = jobs.stats().await?;
    assert_eq!((stats.dead, stats.totals.retention_dropped), (0, 2));
    Ok(())
}

async fn with_too_many_dead_letters_the_oldest_is_dropped_and_counted(world: World) -> Outcome {
    let retention = Retention { dead_count: Some(2), ..Retention::default() };
    let jobs = mailbox_with(&world, retention).await?;
    send_all(&jobs, 0..5).await?;
    for _ in 0..5 {
        take_next(&jobs, world.units(9)).await?.reject("no").await?;
    }
    let stats = jobs.stats().await?;
    assert_eq!((stats.dead, stats.totals.retention_dropped), (2, 3));
    if world.abilities().ordered {
        let rejected = DeadReason::Rejected;
        assert_eq!(reasons(&jobs).await?, [(3, rejected), (4, rejected)]);
    }
    Ok(())
}

async fn without_a_policy_everything_is_kept(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    assert_eq!(jobs.policy().await?.retention, Retention::default());
    send_all(&jobs, 0..2).await?;
    take_next(&jobs, world.units(9)).await?.reject("no").await?;
    world.pass_time(Duration::from_secs(10 * 365 * 86_400)).await;
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 1]);
    let held = take_one(&jobs, Duration::from_secs(1)).await?;
    held.extend_visibility(Duration::from_secs(43_200)).await?;
    held.acknowledge().await?;
    Ok(())
}
