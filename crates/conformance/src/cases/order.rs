//! D7: messages are delivered in the order in which they become receivable, and within an ordering
//! group one after the other.

use mailbox::{ErrorKind, SendOptions};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{
    Jobs, counts, dead_letters, drain, nothing, numbers, only, options, refused, send_all,
    take_next, take_one,
};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("D7", messages_are_delivered_in_order_of_sending, order),
    case!("D7", a_batch_is_sent_in_its_own_order, order),
    case!("D7", a_nacked_message_goes_behind_those_already_waiting, order),
    case!("D7", an_expired_message_goes_behind_those_already_waiting, order),
    case!("D7", a_delayed_message_takes_its_turn_when_its_time_comes, order),
    case!("D7", messages_that_expire_together_keep_their_order, order),
    case!("D7", a_redriven_message_goes_behind_those_already_waiting, order),
    case!("D7", one_message_of_a_group_is_in_flight_at_a_time, groups),
    case!("D7", groups_do_not_hold_each_other_up, groups, order),
    case!("D7", a_nacked_head_of_a_group_is_delivered_before_its_successors, groups),
    case!("D7", an_expired_head_of_a_group_is_delivered_before_its_successors, groups),
    case!("D7", a_dead_head_of_a_group_makes_way, groups),
    case!("D7", a_successor_in_a_group_counts_as_ready, groups, counts),
    case!("D7", the_group_comes_back_with_the_message, groups),
];

async fn messages_are_delivered_in_order_of_sending(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..50).await?;
    let taken = jobs.receive_with(options(7, world.units(9))).await?;
    assert_eq!(numbers(&taken)?, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(drain(&jobs).await?, (7..50).collect::<Vec<_>>());
    Ok(())
}

async fn a_batch_is_sent_in_its_own_order(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    for start in [0, 10] {
        let batch = (start..start + 10).map(|number| (Probe::new(number), SendOptions::new()));
        jobs.send_batch(batch.collect()).await?;
    }
    assert_eq!(drain(&jobs).await?, (0..20).collect::<Vec<_>>());
    Ok(())
}

async fn a_nacked_message_goes_behind_those_already_waiting(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..3).await?;
    take_next(&jobs, world.units(9)).await?.nack().await?;
    send_all(&jobs, 3..4).await?;
    assert_eq!(drain(&jobs).await?, [1, 2, 0, 3]);
    Ok(())
}

async fn an_expired_message_goes_behind_those_already_waiting(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..2).await?;
    let _unsettled = take_next(&jobs, world.units(2)).await?;
    send_all(&jobs, 2..3).await?;
    world.pass(3).await;
    send_all(&jobs, 3..4).await?;
    assert_eq!(drain(&jobs).await?, [1, 2, 0, 3]);
    Ok(())
}

async fn a_delayed_message_takes_its_turn_when_its_time_comes(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    for (number, delay) in [(0, 6), (1, 2), (2, 4), (3, 0)] {
        let options = SendOptions::new().with_delay(world.units(delay));
        jobs.send_with(Probe::new(number), options).await?;
    }
    world.pass(3).await;
    send_all(&jobs, 4..5).await?;
    world.pass(6).await;
    send_all(&jobs, 5..6).await?;
    assert_eq!(drain(&jobs).await?, [3, 1, 4, 2, 0, 5]);
    Ok(())
}

async fn messages_that_expire_together_keep_their_order(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..6).await?;
    let taken = jobs.receive_with(options(6, world.units(2))).await?;
    assert_eq!(taken.len(), 6);
    world.pass(2).await;
    assert_eq!(drain(&jobs).await?, [0, 1, 2, 3, 4, 5]);
    Ok(())
}

async fn a_redriven_message_goes_behind_those_already_waiting(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..2).await?;
    take_next(&jobs, world.units(9)).await?.reject("not now").await?;
    send_all(&jobs, 2..3).await?;
    assert_eq!(jobs.redrive(mailbox::Selection::All).await?, 1);
    send_all(&jobs, 3..4).await?;
    assert_eq!(drain(&jobs).await?, [1, 2, 0, 3]);
    Ok(())
}

/// Sends probes with these numbers to groups.
async fn send_grouped(jobs: &Jobs, messages: &[(u64, &str)]) -> Outcome {
    for (number, group) in messages {
        let options = SendOptions::new().with_group(*group);
        jobs.send_with(Probe::new(*number), options).await?;
    }
    Ok(())
}

async fn one_message_of_a_group_is_in_flight_at_a_time(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_grouped(&jobs, &[(0, "a"), (1, "a"), (2, "a")]).await?;
    for number in 0..3 {
        let held = take_one(&jobs, world.units(9)).await?;
        assert_eq!(held.body()?.number, number);
        nothing(&jobs).await?;
        held.extend_visibility(world.units(9)).await?;
        nothing(&jobs).await?;
        held.acknowledge().await?;
    }
    nothing(&jobs).await
}

async fn groups_do_not_hold_each_other_up(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_grouped(&jobs, &[(0, "a"), (1, "a"), (2, "b"), (3, "b")]).await?;
    send_all(&jobs, [4, 5]).await?;
    let taken = jobs.receive_with(options(10, world.units(9))).await?;
    assert_eq!(numbers(&taken)?, [0, 2, 4, 5]);
    taken[1].acknowledge().await?;
    assert_eq!(take_one(&jobs, world.units(9)).await?.body()?.number, 3);
    Ok(())
}

async fn a_nacked_head_of_a_group_is_delivered_before_its_successors(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_grouped(&jobs, &[(0, "a"), (1, "a")]).await?;
    take_one(&jobs, world.units(9)).await?.nack_in(world.units(2)).await?;
    nothing(&jobs).await?;
    world.pass(2).await;
    assert_eq!(drain(&jobs).await?, [0, 1]);
    Ok(())
}

async fn an_expired_head_of_a_group_is_delivered_before_its_successors(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_grouped(&jobs, &[(0, "a"), (1, "a")]).await?;
    let late = take_one(&jobs, world.units(2)).await?;
    world.pass(2).await;
    refused(late.acknowledge().await, ErrorKind::ReceiptHandleExpired);
    assert_eq!(drain(&jobs).await?, [0, 1]);
    Ok(())
}

async fn a_dead_head_of_a_group_makes_way(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_grouped(&jobs, &[(0, "a"), (1, "a"), (2, "a")]).await?;
    take_one(&jobs, world.units(9)).await?.reject("bad").await?;
    let held = take_one(&jobs, world.units(9)).await?;
    assert_eq!(held.body()?.number, 1);
    let dead = only(dead_letters(&jobs).await?);
    assert_eq!(dead.body()?.number, 0);
    // Back in line it is the last of its group.
    jobs.redrive(mailbox::Selection::All).await?;
    held.acknowledge().await?;
    assert_eq!(drain(&jobs).await?, [2, 0]);
    Ok(())
}

async fn a_successor_in_a_group_counts_as_ready(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_grouped(&jobs, &[(0, "a"), (1, "a"), (2, "a")]).await?;
    assert_eq!(counts(&jobs).await?, [0, 3, 0, 0]);
    let held = take_one(&jobs, world.units(9)).await?;
    assert_eq!(counts(&jobs).await?, [0, 2, 1, 0]);
    held.nack_in(world.units(3)).await?;
    assert_eq!(counts(&jobs).await?, [1, 2, 0, 0]);
    Ok(())
}

async fn the_group_comes_back_with_the_message(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_grouped(&jobs, &[(0, "customer 7")]).await?;
    let message = take_one(&jobs, world.units(9)).await?;
    assert_eq!(message.group(), Some("customer 7"));
    message.acknowledge().await?;
    send_all(&jobs, [1]).await?;
    assert_eq!(take_one(&jobs, world.units(9)).await?.group(), None);
    Ok(())
}
