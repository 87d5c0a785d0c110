//! V1 to V3, V5, V6, V8: how long a delivery lasts. (What becomes of handles after that is in
//! `stale_handles`.)

use std::time::Duration;

use mailbox::{
    ErrorKind, NackOptions, Policy, ReceiptHandle, ReceiveOptions, SendOptions, Timestamp, Verdict,
    limits,
};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{
    all_different, counts, nothing, numbers, options, refused, refused_field, send_all,
    start_waiting, take_next, take_one,
};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("V1", a_received_message_is_invisible_for_its_timeout),
    case!("V1", the_default_timeout_is_thirty_seconds, exact_time),
    case!("V1", a_timeout_of_zero_hands_out_and_keeps_receivable),
    case!("V1", a_timeout_of_zero_gives_no_message_twice_in_one_receive),
    case!("V1", a_timeout_of_zero_gives_no_message_twice_when_another_dies, order),
    case!("V1", the_longest_timeout_lasts_twelve_hours, exact_time),
    case!("V1", a_timeout_beyond_the_longest_is_refused_and_takes_nothing, words),
    case!("V2", at_its_deadline_a_message_is_receivable_with_a_new_handle),
    case!("V2", a_deadline_is_met_to_the_nanosecond, exact_time),
    case!("V2", every_message_has_its_own_deadline),
    case!("V3", no_two_deliveries_have_the_same_handle),
    case!("V3", a_handle_works_as_text),
    case!("V3", a_handle_with_one_letter_changed_settles_nothing),
    case!("V3", a_handle_settles_its_own_delivery_only),
    case!("V5", extending_sets_the_deadline_from_now),
    case!("V5", extending_may_shorten),
    case!("V5", extending_by_zero_gives_the_message_back),
    case!("V5", extending_keeps_handle_and_count),
    case!("V5", a_nack_makes_it_receivable_at_once_or_after_its_delay),
    case!("V5", extensions_and_nack_delays_are_bounded_by_twelve_hours),
    case!("V6", wall_clock_jumps_move_no_deadline, exact_time),
    case!("V6", wall_clock_jumps_move_no_wait, exact_time),
    case!("V8", dropping_a_message_changes_nothing),
];

async fn a_received_message_is_invisible_for_its_timeout(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    let _held = take_one(&jobs, world.units(5)).await?;
    assert_eq!(counts(&jobs).await?, [0, 0, 1, 0]);
    nothing(&jobs).await?;
    world.pass(3).await;
    nothing(&jobs).await?;
    world.pass(2).await;
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    assert_eq!(take_one(&jobs, world.units(5)).await?.delivery_count(), 2);
    Ok(())
}

async fn the_default_timeout_is_thirty_seconds(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    assert_eq!(jobs.receive().await?.len(), 1);
    world.pass_time(Duration::from_secs(30) - Duration::from_nanos(1)).await;
    nothing(&jobs).await?;
    world.pass_time(Duration::from_nanos(1)).await;
    assert_eq!(jobs.receive().await?.len(), 1);
    assert_eq!(ReceiveOptions::default(), options(1, Duration::from_secs(30)));
    Ok(())
}

async fn a_timeout_of_zero_hands_out_and_keeps_receivable(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    for count in 1..=3 {
        let message = take_one(&jobs, Duration::ZERO).await?;
        assert_eq!(message.delivery_count(), count);
        assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
        if world.abilities().strict_deadlines {
            refused(message.acknowledge().await, ErrorKind::ReceiptHandleExpired);
            assert!(!message.is_finalized());
        }
    }
    Ok(())
}

async fn a_timeout_of_zero_gives_no_message_twice_in_one_receive(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..3).await?;
    for count in 1..=3 {
        let taken = jobs.receive_with(options(10, Duration::ZERO)).await?;
        let mut seen = numbers(&taken)?;
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2]);
        assert!(taken.iter().all(|message| message.delivery_count() == count));
    }
    Ok(())
}

/// Found by differential testing: after the dying message the receive forgot that it had come
/// round, and the good one was delivered again, or died of the delivery it had just had.
async fn a_timeout_of_zero_gives_no_message_twice_when_another_dies(world: World) -> Outcome {
    for most in 1..=2 {
        let jobs = world.mailbox(&format!("jobs.{most}"))?;
        jobs.configure(Policy { max_attempts: Some(most), ..Policy::default() }).await?;
        send_all(&jobs, [0]).await?;
        for _ in 1..most {
            take_one(&jobs, world.units(9)).await?.nack().await?;
        }
        let dying = take_one(&jobs, world.units(9)).await?;
        send_all(&jobs, [1]).await?;
        dying.nack().await?;
        let taken = jobs.receive_with(options(10, Duration::ZERO)).await?;
        assert_eq!(numbers(&taken)?, [1]);
        assert_eq!(taken[0].delivery_count(), 1);
        assert_eq!(counts(&jobs).await?, [0, 1, 0, 1]);
    }
    Ok(())
}

async fn the_longest_timeout_lasts_twelve_hours(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    let held = take_one(&jobs, Duration::from_secs(43_200)).await?;
    world.pass_time(Duration::from_secs(43_200) - Duration::from_nanos(1)).await;
    nothing(&jobs).await?;
    held.acknowledge().await?;
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    Ok(())
}

async fn a_timeout_beyond_the_longest_is_refused_and_takes_nothing(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    for (wrong, value) in [
        (Duration::from_nanos(43_200_000_000_001), "43200.000000001 s"),
        (Duration::from_secs(43_201), "43201 s"),
        (Duration::MAX, " s"),
    ] {
        refused_field(
            jobs.receive_with(options(1, wrong)).await,
            ErrorKind::InvalidParameter,
            ("visibility_timeout", value, "0..=43200 s"),
        );
    }
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    assert_eq!(take_one(&jobs, Duration::from_secs(43_200)).await?.delivery_count(), 1);
    Ok(())
}

async fn at_its_deadline_a_message_is_receivable_with_a_new_handle(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    let first = take_one(&jobs, world.units(2)).await?;
    world.pass(2).await;
    let second = take_one(&jobs, world.units(2)).await?;
    assert_ne!(first.receipt_handle(), second.receipt_handle());
    assert_eq!((first.delivery_count(), second.delivery_count()), (1, 2));
    refused(first.acknowledge().await, ErrorKind::ReceiptHandleExpired);
    second.acknowledge().await?;
    Ok(())
}

async fn a_deadline_is_met_to_the_nanosecond(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    for _ in 0..3 {
        let held = take_one(&jobs, world.units(2)).await?;
        world.pass_time(world.units(2) - world.finest()).await;
        nothing(&jobs).await?;
        assert_eq!(counts(&jobs).await?, [0, 0, 1, 0]);
        held.extend_visibility(world.finest()).await?;
        world.pass_time(world.finest() - Duration::from_nanos(1)).await;
        assert_eq!(counts(&jobs).await?, [0, 0, 1, 0]);
        world.pass_time(Duration::from_nanos(1)).await;
        assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
        refused(held.acknowledge().await, ErrorKind::ReceiptHandleExpired);
    }
    Ok(())
}

async fn every_message_has_its_own_deadline(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..3).await?;
    for timeout in [6, 2, 4] {
        let _held = take_next(&jobs, world.units(timeout)).await?;
    }
    for expected in [1, 2, 0] {
        world.pass(2).await;
        let back = take_one(&jobs, world.units(60)).await?;
        assert_eq!(back.body()?.number, expected);
    }
    Ok(())
}

async fn no_two_deliveries_have_the_same_handle(world: World) -> Outcome {
    let (jobs, others) = (world.mailbox("jobs")?, world.mailbox("others")?);
    let mut handles = Vec::new();
    for mailbox in [&jobs, &others] {
        send_all(mailbox, 0..3).await?;
        for round in 0..80 {
            for message in mailbox.receive_with(options(3, world.units(2))).await? {
                handles.push(message.receipt_handle().to_string());
                // Messages come and go, so that places are used again.
                match round % 4 {
                    0 => {
                        message.acknowledge().await?;
                        mailbox.send(Probe::new(round)).await?;
                    }
                    1 => message.nack().await?,
                    _ => message.extend_visibility(Duration::ZERO).await?,
                }
            }
        }
    }
    assert_eq!(handles.len(), 480);
    all_different(handles);
    Ok(())
}

async fn a_handle_works_as_text(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    let handle = take_one(&jobs, world.units(9)).await?.receipt_handle().to_string();
    let same = ReceiptHandle::from_text(&handle);
    assert_eq!(same.to_string(), handle);
    jobs.settle(&same, Verdict::Extend { timeout: world.units(20) }).await?;
    world.pass(10).await;
    nothing(&jobs).await?;
    jobs.settle(&same, Verdict::Acknowledge).await?;
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    Ok(())
}

async fn a_handle_with_one_letter_changed_settles_nothing(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    let held = take_one(&jobs, world.units(60)).await?;
    let handle: Vec<char> = held.receipt_handle().to_string().chars().collect();
    assert!(handle.len() >= 22, "too short to be unguessable: 128 bits need 22 letters");
    for place in 0..handle.len() {
        let mut changed = handle.clone();
        changed[place] = if changed[place] == '1' { '2' } else { '1' };
        let guess = ReceiptHandle::from_text(&changed.iter().collect::<String>());
        let settled = jobs.settle(&guess, Verdict::Acknowledge).await;
        refused(settled, ErrorKind::ReceiptHandleExpired);
    }
    held.acknowledge().await?;
    Ok(())
}

async fn a_handle_settles_its_own_delivery_only(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..3).await?;
    let taken = jobs.receive_with(options(3, world.units(2))).await?;
    let settled = taken[1].body()?.number;
    taken[1].acknowledge().await?;
    world.pass(2).await;
    let mut left = numbers(&jobs.receive_with(options(3, world.units(2))).await?)?;
    left.push(settled);
    left.sort_unstable();
    assert_eq!(left, [0, 1, 2]);
    Ok(())
}

async fn extending_sets_the_deadline_from_now(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    let held = take_one(&jobs, world.units(4)).await?;
    world.pass(2).await;
    held.extend_visibility(world.units(6)).await?;
    world.pass(4).await;
    nothing(&jobs).await?;
    world.pass(2).await;
    assert_eq!(take_one(&jobs, world.units(4)).await?.delivery_count(), 2);
    Ok(())
}

async fn extending_may_shorten(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    let held = take_one(&jobs, world.units(60)).await?;
    held.extend_visibility(world.units(2)).await?;
    nothing(&jobs).await?;
    world.pass(2).await;
    assert_eq!(take_one(&jobs, world.units(4)).await?.delivery_count(), 2);
    refused(held.acknowledge().await, ErrorKind::ReceiptHandleExpired);
    Ok(())
}

async fn extending_by_zero_gives_the_message_back(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    take_one(&jobs, world.units(60)).await?.extend_visibility(Duration::ZERO).await?;
    assert_eq!(take_one(&jobs, world.units(4)).await?.delivery_count(), 2);
    Ok(())
}

async fn extending_keeps_handle_and_count(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    let held = take_one(&jobs, world.units(3)).await?;
    for _ in 0..5 {
        world.pass(1).await;
        held.extend_visibility(world.units(3)).await?;
        assert!(!held.is_finalized(), "extending does not settle for good");
    }
    held.nack().await?;
    assert_eq!(take_one(&jobs, world.units(3)).await?.delivery_count(), 2);
    Ok(())
}

async fn a_nack_makes_it_receivable_at_once_or_after_its_delay(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    take_one(&jobs, world.units(60)).await?.nack().await?;
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    take_one(&jobs, world.units(60)).await?.nack_in(world.units(4)).await?;
    assert_eq!(counts(&jobs).await?, [1, 0, 0, 0]);
    world.pass(2).await;
    nothing(&jobs).await?;
    world.pass(2).await;
    assert_eq!(take_one(&jobs, world.units(4)).await?.delivery_count(), 3);
    Ok(())
}

async fn extensions_and_nack_delays_are_bounded_by_twelve_hours(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    let held = take_one(&jobs, world.units(60)).await?;
    let most = limits::VISIBILITY_TIMEOUT;
    assert_eq!(most, Duration::from_secs(43_200));
    let wrong = most + Duration::from_secs(1);
    let (kind, bound) = (ErrorKind::InvalidParameter, "0..=43200 s");
    let extended = held.extend_visibility(wrong).await;
    refused_field(extended, kind, ("visibility_timeout", "43201 s", bound));
    refused_field(held.nack_in(wrong).await, kind, ("nack delay", "43201 s", bound));
    // A refused settle leaves the delivery as it was.
    assert!(!held.is_finalized());
    held.extend_visibility(most).await?;
    held.nack_with(NackOptions::new().with_delay(most)).await?;
    assert_eq!(counts(&jobs).await?, [1, 0, 0, 0]);
    Ok(())
}

/// Wall clocks as operators and time servers set them: two minutes, and worse.
const JUMPS: [i64; 5] = [120_000, -120_000, 315_360_000_000, -31_536_000_000, 3_600_000];

async fn wall_clock_jumps_move_no_deadline(world: World) -> Outcome {
    let (jobs, clock) = (world.mailbox("jobs")?, world.clock()?.clone());
    for jump in JUMPS {
        jobs.send(Probe::new(0)).await?;
        jobs.send_with(Probe::new(1), SendOptions::new().with_delay(world.units(20))).await?;
        let held = take_one(&jobs, world.units(30)).await?;
        clock.step_wall(Timestamp::from_unix_millis(world.wall()?.as_unix_millis() + jump));
        assert_eq!(counts(&jobs).await?, [1, 0, 1, 0], "jump of {jump} ms");
        world.pass(19).await;
        nothing(&jobs).await?;
        assert_eq!(jobs.stats().await?.oldest_age, Some(world.units(19)));
        world.pass(1).await;
        assert_eq!(take_one(&jobs, world.units(99)).await?.body()?.number, 1);
        world.pass(9).await;
        nothing(&jobs).await?;
        world.pass(1).await;
        refused(held.acknowledge().await, ErrorKind::ReceiptHandleExpired);
        assert_eq!(take_one(&jobs, world.units(99)).await?.body()?.number, 0);
        jobs.purge().await?;
    }
    Ok(())
}

async fn wall_clock_jumps_move_no_wait(world: World) -> Outcome {
    let (jobs, clock) = (world.mailbox("jobs")?, world.clock()?.clone());
    for jump in JUMPS {
        let patient = ReceiveOptions::new().with_wait(world.units(20));
        let waiting = start_waiting(&world, &jobs, patient, 1).await?;
        clock.step_wall(Timestamp::from_unix_millis(world.wall()?.as_unix_millis() + jump));
        world.pass(19).await;
        world.until_waiting(&jobs, 1).await?;
        assert!(!waiting.is_finished(), "jump of {jump} ms");
        world.pass(1).await;
        assert_eq!(waiting.await??.len(), 0);
    }
    Ok(())
}

async fn dropping_a_message_changes_nothing(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    drop(take_one(&jobs, world.units(4)).await?);
    assert_eq!(counts(&jobs).await?, [0, 0, 1, 0]);
    nothing(&jobs).await?;
    world.pass(2).await;
    nothing(&jobs).await?;
    world.pass(2).await;
    assert_eq!(take_one(&jobs, world.units(4)).await?.delivery_count(), 2);
    Ok(())
}
