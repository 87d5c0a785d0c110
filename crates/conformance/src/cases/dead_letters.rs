//! X1 to X3: messages that nobody could handle are put aside, and come back when somebody asks.

use mailbox::{DeadReason, ErrorKind, MessageId, NackOptions, Peek, Policy, Selection, Verdict};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{
    Jobs, counts, dead_letters, drain, nothing, only, options, picture, refused, send_all,
    take_next, take_one,
};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("X1", after_max_attempts_a_message_is_a_dead_letter),
    case!("X1", a_dead_letter_tells_why_and_after_how_many_attempts),
    case!("X1", attempts_that_timed_out_count),
    case!("X1", attempts_that_were_undone_do_not_count, undo),
    case!("X1", without_max_attempts_a_message_is_delivered_for_ever),
    case!("X1", a_dying_message_does_not_hide_a_good_one),
    case!("X2", a_rejected_message_is_a_dead_letter_at_once),
    case!("X2", every_reason_is_kept),
    case!("X2", an_undecodable_message_that_is_rejected_died_of_decode, bytes),
    case!("X2", what_the_last_nack_said_is_kept_until_somebody_says_more),
    case!("X3", dead_letters_are_listed_in_order_of_dying_and_in_parts),
    case!("X3", a_dead_letter_is_never_received),
    case!("X3", all_dead_letters_can_be_redriven),
    case!("X3", some_dead_letters_can_be_redriven),
    case!("X3", a_redriven_message_starts_at_attempt_one),
    case!("X3", only_dead_letters_can_be_redriven_or_deleted),
    case!("X3", dead_letters_can_be_deleted),
    case!("X3", a_redrive_into_a_mailbox_that_fills_up_says_how_many_went),
    case!("X3", nothing_but_a_redrive_brings_a_dead_letter_back),
];

/// Rules that allow so many attempts.
fn attempts(most: u32) -> Policy {
    Policy { max_attempts: Some(most), ..Policy::default() }
}

/// Sends probes with these numbers and rejects each.
async fn bury(world: &World, jobs: &Jobs, numbers: &[u64]) -> Outcome<Vec<MessageId>> {
    let mut ids = Vec::new();
    for number in numbers {
        ids.push(jobs.send(Probe::new(*number)).await?);
        take_one(jobs, world.units(9)).await?.reject(format!("no {number}")).await?;
    }
    Ok(ids)
}

/// The numbers of the dead letters, in order of dying.
async fn dead_numbers(jobs: &Jobs) -> Outcome<Vec<u64>> {
    dead_letters(jobs).await?.iter().map(|dead| Ok(dead.body()?.number)).collect()
}

async fn after_max_attempts_a_message_is_a_dead_letter(world: World) -> Outcome {
    for most in 1..=3 {
        let jobs = world.mailbox(&format!("jobs.{most}"))?;
        jobs.configure(attempts(most)).await?;
        let id = jobs.send(Probe::new(0)).await?;
        for count in 1..=most {
            let message = take_one(&jobs, world.units(9)).await?;
            assert_eq!(message.delivery_count(), count);
            message.nack().await?;
        }
        nothing(&jobs).await?;
        assert_eq!(counts(&jobs).await?, [0, 0, 0, 1]);
        assert_eq!(only(dead_letters(&jobs).await?).id(), &id);
    }
    Ok(())
}

async fn a_dead_letter_tells_why_and_after_how_many_attempts(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(attempts(2)).await?;
    jobs.send(Probe::with_text(4, "body")).await?;
    for error in ["first", "second"] {
        let nack = NackOptions::new().with_error(error);
        take_one(&jobs, world.units(9)).await?.nack_with(nack).await?;
    }
    world.pass(3).await;
    nothing(&jobs).await?;
    let dead = only(dead_letters(&jobs).await?);
    let death = dead.death().ok_or("it is dead")?;
    assert_eq!(death.reason, DeadReason::MaxAttempts);
    assert_eq!(dead.phase(), mailbox::Phase::Dead);
    assert_eq!((dead.delivery_count(), dead.last_error()), (2, Some("second")));
    assert_eq!(dead.body()?, &Probe::with_text(4, "body"));
    assert!(dead.receivable_in().is_zero());
    if world.clock().is_ok() {
        assert_eq!(death.at, world.wall()?);
    }
    Ok(())
}

async fn attempts_that_timed_out_count(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(attempts(2)).await?;
    send_all(&jobs, [0]).await?;
    for _ in 0..2 {
        let _unsettled = take_one(&jobs, world.units(2)).await?;
        world.pass(2).await;
    }
    nothing(&jobs).await?;
    let dead = only(dead_letters(&jobs).await?);
    assert_eq!(dead.death().map(|death| death.reason), Some(DeadReason::MaxAttempts));
    assert_eq!((dead.delivery_count(), dead.last_error()), (2, None));
    Ok(())
}

async fn attempts_that_were_undone_do_not_count(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(attempts(1)).await?;
    send_all(&jobs, [0]).await?;
    for _ in 0..5 {
        take_one(&jobs, world.units(9)).await?.undo_delivery().await?;
    }
    assert_eq!(take_one(&jobs, world.units(9)).await?.delivery_count(), 1);
    assert_eq!(counts(&jobs).await?, [0, 0, 1, 0]);
    Ok(())
}

async fn without_max_attempts_a_message_is_delivered_for_ever(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, [0]).await?;
    for count in 1..=50 {
        let message = take_one(&jobs, world.units(9)).await?;
        assert_eq!(message.delivery_count(), count);
        message.nack().await?;
    }
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    Ok(())
}

async fn a_dying_message_does_not_hide_a_good_one(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(attempts(1)).await?;
    send_all(&jobs, 0..3).await?;
    for message in jobs.receive_with(options(3, world.units(9))).await? {
        message.nack().await?;
    }
    send_all(&jobs, [3]).await?;
    assert_eq!(take_one(&jobs, world.units(9)).await?.body()?.number, 3);
    assert_eq!(counts(&jobs).await?, [0, 0, 1, 3]);
    Ok(())
}

async fn a_rejected_message_is_a_dead_letter_at_once(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, [0]).await?;
    let message = take_one(&jobs, world.units(9)).await?;
    message.reject("cannot be done").await?;
    assert!(message.is_finalized());
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 1]);
    let dead = only(dead_letters(&jobs).await?);
    assert_eq!(dead.death().map(|death| death.reason), Some(DeadReason::Rejected));
    assert_eq!((dead.delivery_count(), dead.last_error()), (1, Some("cannot be done")));
    Ok(())
}

async fn every_reason_is_kept(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    for reason in DeadReason::ALL {
        send_all(&jobs, [0]).await?;
        let message = take_one(&jobs, world.units(9)).await?;
        let error = Some(reason.as_str().into());
        jobs.settle(message.receipt_handle(), Verdict::Reject { reason, error }).await?;
    }
    let kept: Vec<_> = dead_letters(&jobs)
        .await?
        .iter()
        .map(|dead| (dead.death().map(|death| death.reason), dead.last_error().map(str::to_owned)))
        .collect();
    let expected = DeadReason::ALL.map(|reason| (Some(reason), Some(reason.as_str().to_owned())));
    assert_eq!(kept, expected);
    let words = DeadReason::ALL.map(DeadReason::as_str);
    assert_eq!(words, ["max_attempts", "expired", "rejected", "integrity", "decode"]);
    Ok(())
}

async fn an_undecodable_message_that_is_rejected_died_of_decode(world: World) -> Outcome {
    let (jobs, words) = (world.mailbox("jobs")?, world.typed::<String, Probe>("jobs")?);
    words.send("not a probe".to_owned()).await?;
    let message = take_one(&jobs, world.units(9)).await?;
    refused(message.body(), ErrorKind::Serialization);
    message.reject("what is this").await?;
    let dead = only(dead_letters(&jobs).await?);
    assert_eq!(dead.death().map(|death| death.reason), Some(DeadReason::Decode));
    assert_eq!(dead.last_error(), Some("what is this"));
    assert_eq!(dead.payload().map(|payload| &payload[..]), Some(&b"\"not a probe\""[..]));
    Ok(())
}

async fn what_the_last_nack_said_is_kept_until_somebody_says_more(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, [0]).await?;
    let last_error = async || -> Outcome<Option<String>> {
        let seen = only(jobs.peek(Peek::Live { limit: 2 }).await?);
        Ok(seen.last_error().map(str::to_owned))
    };
    for (said, kept) in
        [(None, None), (Some("a"), Some("a")), (None, Some("a")), (Some("b"), Some("b"))]
    {
        let mut nack = NackOptions::new();
        nack.error = said.map(str::to_owned);
        take_one(&jobs, world.units(9)).await?.nack_with(nack).await?;
        assert_eq!(last_error().await?.as_deref(), kept);
    }
    Ok(())
}

async fn dead_letters_are_listed_in_order_of_dying_and_in_parts(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    bury(&world, &jobs, &[5, 3, 8, 1]).await?;
    let all = dead_letters(&jobs).await?;
    assert_eq!(dead_numbers(&jobs).await?, [5, 3, 8, 1]);
    let order: Vec<u64> = all.iter().filter_map(|dead| Some(dead.death()?.order)).collect();
    assert!(order.is_sorted() && order.len() == 4);
    let part = async |after: Option<u64>, limit| -> Outcome<Vec<u64>> {
        let part = jobs.peek(Peek::Dead { after, limit }).await?;
        part.iter().map(|dead| Ok(dead.body()?.number)).collect()
    };
    assert_eq!(part(None, 2).await?, [5, 3]);
    assert_eq!(part(Some(order[1]), 2).await?, [8, 1]);
    assert_eq!(part(Some(order[2]), 9).await?, [1]);
    assert_eq!(part(Some(order[3]), 9).await?, [0; 0]);
    // The cursor holds when the letter that it names is gone.
    jobs.delete_dead(Selection::These(vec![all[1].id().clone()])).await?;
    assert_eq!(part(Some(order[1]), 2).await?, [8, 1]);
    Ok(())
}

async fn a_dead_letter_is_never_received(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    bury(&world, &jobs, &[0, 1]).await?;
    send_all(&jobs, [2]).await?;
    assert_eq!(drain(&jobs).await?, [2]);
    assert_eq!(dead_numbers(&jobs).await?, [0, 1]);
    Ok(())
}

async fn all_dead_letters_can_be_redriven(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    bury(&world, &jobs, &[4, 2, 9]).await?;
    assert_eq!(jobs.redrive(Selection::All).await?, 3);
    assert_eq!(counts(&jobs).await?, [0, 3, 0, 0]);
    let mut back = drain(&jobs).await?;
    if !world.abilities().ordered {
        back.sort_unstable_by_key(|number| [4, 2, 9].iter().position(|known| known == number));
    }
    assert_eq!(back, [4, 2, 9]);
    assert_eq!(jobs.redrive(Selection::All).await?, 0);
    Ok(())
}

async fn some_dead_letters_can_be_redriven(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let ids = bury(&world, &jobs, &[0, 1, 2, 3]).await?;
    send_all(&jobs, [4]).await?;
    let message = take_one(&jobs, world.units(9)).await?;
    let decode = Verdict::Reject { reason: DeadReason::Decode, error: None };
    jobs.settle(message.receipt_handle(), decode).await?;
    assert_eq!(jobs.redrive(Selection::Oldest(0)).await?, 0);
    assert_eq!(jobs.redrive(Selection::Oldest(1)).await?, 1);
    assert_eq!(dead_numbers(&jobs).await?, [1, 2, 3, 4]);
    assert_eq!(jobs.redrive(Selection::These(vec![ids[2].clone()])).await?, 1);
    assert_eq!(dead_numbers(&jobs).await?, [1, 3, 4]);
    assert_eq!(jobs.redrive(Selection::Reason(DeadReason::Decode)).await?, 1);
    assert_eq!(jobs.redrive(Selection::Reason(DeadReason::Expired)).await?, 0);
    assert_eq!(dead_numbers(&jobs).await?, [1, 3]);
    let mut back = drain(&jobs).await?;
    back.sort_unstable();
    assert_eq!(back, [0, 2, 4]);
    assert_eq!(jobs.redrive(Selection::Oldest(99)).await?, 2);
    Ok(())
}

async fn a_redriven_message_starts_at_attempt_one(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(attempts(2)).await?;
    let id = jobs.send(Probe::new(0)).await?;
    for round in 0..3 {
        for count in 1..=2 {
            let message = take_one(&jobs, world.units(9)).await?;
            assert_eq!((message.id(), message.delivery_count()), (&id, count), "round {round}");
            message.nack_with(NackOptions::new().with_error("again")).await?;
        }
        nothing(&jobs).await?;
        assert_eq!(jobs.redrive(Selection::All).await?, 1);
        let seen = only(jobs.peek(Peek::Live { limit: 2 }).await?);
        assert_eq!((seen.delivery_count(), seen.last_error()), (0, None), "a new life");
    }
    Ok(())
}

async fn only_dead_letters_can_be_redriven_or_deleted(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let dead = bury(&world, &jobs, &[0, 1]).await?;
    let live = jobs.send(Probe::new(2)).await?;
    let before = picture(&world, &jobs).await?;
    let unknown = MessageId::from_text("01ARZ3NDEKTSV4RRFFQ69G5FAV");
    for wrong in [live, unknown, MessageId::from_text(""), MessageId::from_text("no id at all")] {
        // With a good one before it: all of them are looked up before anything is done.
        let these = || Selection::These(vec![dead[0].clone(), wrong.clone()]);
        refused(jobs.redrive(these()).await, ErrorKind::NotFound);
        refused(jobs.delete_dead(these()).await, ErrorKind::NotFound);
    }
    assert_eq!(picture(&world, &jobs).await?, before);
    Ok(())
}

async fn dead_letters_can_be_deleted(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let ids = bury(&world, &jobs, &[0, 1, 2, 3]).await?;
    send_all(&jobs, [4]).await?;
    assert_eq!(jobs.delete_dead(Selection::These(vec![ids[1].clone()])).await?, 1);
    assert_eq!(dead_numbers(&jobs).await?, [0, 2, 3]);
    assert_eq!(jobs.delete_dead(Selection::Oldest(1)).await?, 1);
    assert_eq!(dead_numbers(&jobs).await?, [2, 3]);
    assert_eq!(jobs.delete_dead(Selection::All).await?, 2);
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    assert_eq!(drain(&jobs).await?, [4]);
    refused(jobs.redrive(Selection::These(vec![ids[1].clone()])).await, ErrorKind::NotFound);
    Ok(())
}

async fn a_redrive_into_a_mailbox_that_fills_up_says_how_many_went(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    bury(&world, &jobs, &[0, 1, 2, 3]).await?;
    send_all(&jobs, [4]).await?;
    jobs.configure(Policy { max_size: Some(3), ..Policy::default() }).await?;
    assert_eq!(jobs.redrive(Selection::All).await?, 2);
    assert_eq!(counts(&jobs).await?, [0, 3, 0, 2]);
    assert_eq!(dead_numbers(&jobs).await?, [2, 3], "the oldest went first");
    refused(jobs.redrive(Selection::All).await, ErrorKind::MailboxFull);
    assert_eq!(counts(&jobs).await?, [0, 3, 0, 2]);
    take_next(&jobs, world.units(9)).await?.acknowledge().await?;
    assert_eq!(jobs.redrive(Selection::All).await?, 1);
    Ok(())
}

async fn nothing_but_a_redrive_brings_a_dead_letter_back(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    bury(&world, &jobs, &[0]).await?;
    let long = if world.clock().is_ok() { 100 * 86_400 } else { 5 };
    world.pass(long).await;
    send_all(&jobs, [1]).await?;
    jobs.configure(attempts(9)).await?;
    jobs.purge().await?;
    nothing(&jobs).await?;
    assert_eq!(dead_numbers(&jobs).await?, [0]);
    Ok(())
}
