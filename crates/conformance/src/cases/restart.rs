//! What outlives a restart: V7 and X4, and after it the promises of D1, I1 and V3.

use mailbox::{DeadReason, ErrorKind, Policy, ReceiptHandle, Selection, SendOptions, Verdict};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{
    counts, dead_letters, drain, nothing, only, options, refused, send_all, take_next, take_one,
};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("D2", what_was_sent_is_there_after_a_restart, restart),
    case!("V3", a_handle_is_not_given_out_again_after_a_restart, restart),
    case!("V7", a_message_in_flight_stays_invisible_after_a_restart, restart),
    case!("V7", a_handle_from_before_a_restart_settles, restart),
    case!("V7", after_one_more_timeout_a_message_comes_back, restart),
    case!("V7", a_delay_holds_over_a_restart, restart),
    case!("X4", dead_letters_are_there_after_a_restart, restart),
    case!("I1", a_key_is_remembered_over_a_restart, restart, keys),
    case!("M3", rules_hold_after_a_restart, restart),
];

async fn what_was_sent_is_there_after_a_restart(world: World) -> Outcome {
    send_all(&world.mailbox("jobs")?, 0..20).await?;
    take_next(&world.mailbox("jobs")?, world.units(60)).await?.acknowledge().await?;
    let world = world.restart().await?;
    let mut left = drain(&world.mailbox("jobs")?).await?;
    left.sort_unstable();
    assert_eq!(left, (1..20).collect::<Vec<_>>());
    Ok(())
}

async fn a_handle_is_not_given_out_again_after_a_restart(world: World) -> Outcome {
    let mut handles = Vec::new();
    let mut world = world;
    send_all(&world.mailbox("jobs")?, [0]).await?;
    for _ in 0..4 {
        for _ in 0..3 {
            let message = take_one(&world.mailbox("jobs")?, world.units(60)).await?;
            handles.push(message.receipt_handle().to_string());
            message.nack().await?;
        }
        world = world.restart().await?;
    }
    crate::steps::all_different(handles);
    Ok(())
}

async fn a_message_in_flight_stays_invisible_after_a_restart(world: World) -> Outcome {
    send_all(&world.mailbox("jobs")?, 0..2).await?;
    let held = take_next(&world.mailbox("jobs")?, world.units(20)).await?.body()?.number;
    let world = world.restart().await?;
    let jobs = world.mailbox("jobs")?;
    assert_ne!(take_one(&jobs, world.units(60)).await?.body()?.number, held);
    nothing(&jobs).await
}

async fn a_handle_from_before_a_restart_settles(world: World) -> Outcome {
    send_all(&world.mailbox("jobs")?, 0..3).await?;
    let taken = world.mailbox("jobs")?.receive_with(options(3, world.units(20))).await?;
    let handles: Vec<String> =
        taken.iter().map(|message| message.receipt_handle().to_string()).collect();
    drop(taken);
    let world = world.restart().await?;
    let jobs = world.mailbox("jobs")?;
    let settle =
        async |handle: &str, verdict| jobs.settle(&ReceiptHandle::from_text(handle), verdict).await;
    settle(&handles[0], Verdict::Acknowledge).await?;
    settle(&handles[1], Verdict::Extend { timeout: world.units(60) }).await?;
    settle(&handles[2], Verdict::Nack { delay: world.units(0), error: None }).await?;
    assert_eq!(take_one(&jobs, world.units(60)).await?.delivery_count(), 2);
    refused(settle(&handles[0], Verdict::Acknowledge).await, ErrorKind::ReceiptHandleExpired);
    assert_eq!(counts(&jobs).await?, [0, 0, 2, 0]);
    Ok(())
}

async fn after_one_more_timeout_a_message_comes_back(world: World) -> Outcome {
    send_all(&world.mailbox("jobs")?, [0]).await?;
    drop(take_one(&world.mailbox("jobs")?, world.units(6)).await?);
    world.pass(4).await;
    let world = world.restart().await?;
    // At most one more full timeout after the restart, whatever had passed before.
    world.pass(6).await;
    assert_eq!(take_one(&world.mailbox("jobs")?, world.units(6)).await?.delivery_count(), 2);
    Ok(())
}

async fn a_delay_holds_over_a_restart(world: World) -> Outcome {
    let delayed = SendOptions::new().with_delay(world.units(10));
    world.mailbox("jobs")?.send_with(Probe::new(0), delayed).await?;
    world.pass(2).await;
    let world = world.restart().await?;
    let jobs = world.mailbox("jobs")?;
    nothing(&jobs).await?;
    world.pass(10).await;
    assert_eq!(take_one(&jobs, world.units(6)).await?.delivery_count(), 1);
    Ok(())
}

async fn dead_letters_are_there_after_a_restart(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let id = jobs.send(Probe::new(7)).await?;
    take_one(&jobs, world.units(9)).await?.reject("no").await?;
    drop(jobs);
    let world = world.restart().await?;
    let jobs = world.mailbox("jobs")?;
    nothing(&jobs).await?;
    let dead = only(dead_letters(&jobs).await?);
    assert_eq!((dead.id(), dead.body()?.number), (&id, 7));
    assert_eq!(dead.death().map(|death| death.reason), Some(DeadReason::Rejected));
    assert_eq!((dead.last_error(), dead.delivery_count()), (Some("no"), 1));
    assert_eq!(jobs.redrive(Selection::All).await?, 1);
    assert_eq!(drain(&jobs).await?, [7]);
    Ok(())
}

async fn a_key_is_remembered_over_a_restart(world: World) -> Outcome {
    let keyed = || SendOptions::new().with_idempotency_key("key");
    let first = world.mailbox("jobs")?.send_with(Probe::new(0), keyed()).await?;
    let world = world.restart().await?;
    let jobs = world.mailbox("jobs")?;
    let again = jobs.send_with(Probe::new(0), keyed()).await?;
    assert_eq!((again.id, again.duplicate), (first.id, true));
    refused(jobs.send_with(Probe::new(1), keyed()).await, ErrorKind::Duplicate);
    assert_eq!(drain(&jobs).await?, [0]);
    Ok(())
}

async fn rules_hold_after_a_restart(world: World) -> Outcome {
    let policy = Policy { max_size: Some(1), ..Policy::default() };
    world.mailbox("jobs")?.configure(policy.clone()).await?;
    let world = world.restart().await?;
    let jobs = world.mailbox("jobs")?;
    assert_eq!(jobs.policy().await?, policy);
    send_all(&jobs, [0]).await?;
    refused(jobs.send(Probe::new(1)).await, ErrorKind::MailboxFull);
    Ok(())
}
