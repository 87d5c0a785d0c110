//! D: every message that was sent is delivered, in order, to one consumer at a time. (Order and
//! groups are in a file of their own.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mailbox::{ErrorKind, NackOptions, ReceiveOptions, Selection, SendOptions};
use parking_lot::Mutex;

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{
    all_different, counts, dead_letters, drain, nothing, numbers, only, options, refused,
    refused_field, send_all, start_waiting, take_next, take_one,
};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("D1", a_message_is_delivered_until_it_is_acknowledged),
    case!("D1", an_acknowledged_message_never_comes_back),
    case!("D1", a_batch_gives_one_result_per_message_and_sends_the_good_ones),
    case!("D1", a_batch_of_nothing_does_nothing),
    case!("D2", a_message_can_be_received_as_soon_as_send_has_returned),
    case!("D3", the_delivery_count_rises_by_one_per_delivery),
    case!("D3", a_cancelled_receive_does_not_raise_the_count, cancel, undo),
    case!("D3", an_undone_delivery_does_not_count_and_goes_back_to_its_place, undo, order),
    case!("D4", id_and_time_of_sending_never_change),
    case!("D4", the_time_of_sending_is_the_wall_time_of_the_send, exact_time),
    case!("D4", no_two_messages_have_the_same_id, quick),
    case!("D5", a_message_that_somebody_holds_is_nobody_elses),
    case!("D5", eight_consumers_never_hold_the_same_message, quick),
    case!("D6", a_receive_takes_up_to_max_messages),
    case!("D6", a_receive_with_something_to_give_does_not_wait_for_more),
    case!("D6", max_messages_is_accepted_up_to_the_bound_and_refused_beyond),
    case!("D8", a_delayed_message_is_not_receivable_before_its_time),
    case!("D8", the_longest_delay_lasts_twelve_hours, exact_time),
    case!("D8", a_delay_beyond_the_longest_is_refused, words),
    case!("D9", attributes_come_back_as_they_were_sent),
    case!("D9", attributes_stay_with_the_message_at_every_delivery),
];

async fn a_message_is_delivered_until_it_is_acknowledged(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let id = jobs.send(Probe::with_text(7, "hello")).await?;
    let first = take_one(&jobs, world.units(2)).await?;
    assert_eq!((first.id(), first.body()?), (&id, &Probe::with_text(7, "hello")));
    world.pass(2).await;
    let second = take_one(&jobs, world.units(2)).await?;
    assert_eq!((second.id(), second.body()?.number), (&id, 7));
    second.nack().await?;
    let third = take_one(&jobs, world.units(2)).await?;
    assert_eq!((third.id(), third.body()?.number), (&id, 7));
    third.acknowledge().await?;
    nothing(&jobs).await
}

async fn an_acknowledged_message_never_comes_back(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..3).await?;
    let taken = jobs.receive_with(options(3, world.units(2))).await?;
    taken[1].acknowledge().await?;
    world.pass(10).await;
    assert_eq!(BTreeSet::from_iter(drain(&jobs).await?), BTreeSet::from([0, 2]));
    world.pass(10).await;
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    nothing(&jobs).await
}

async fn a_batch_gives_one_result_per_message_and_sends_the_good_ones(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let too_long = world.abilities().max_delay + Duration::from_secs(1);
    let batch = vec![
        (Probe::new(0), SendOptions::new()),
        (Probe::new(1), SendOptions::new().with_delay(too_long)),
        (Probe::new(2), SendOptions::new().with_attribute("a", "b")),
    ];
    let mut results = jobs.send_batch(batch).await?.into_iter();
    assert_eq!(results.len(), 3);
    let first = results.next().expect("three results")?;
    refused(results.next().expect("three results"), ErrorKind::InvalidParameter);
    let last = results.next().expect("three results")?;
    assert!(!first.duplicate && !last.duplicate);
    let taken = jobs.receive_with(options(3, world.units(9))).await?;
    let ids: BTreeSet<_> = taken.iter().map(|message| message.id().clone()).collect();
    assert_eq!(ids, BTreeSet::from([first.id, last.id]));
    Ok(())
}

async fn a_batch_of_nothing_does_nothing(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    assert_eq!(jobs.send_batch(Vec::new()).await?.len(), 0);
    assert_eq!(jobs.settle_batch(Vec::new()).await?.len(), 0);
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    Ok(())
}

async fn a_message_can_be_received_as_soon_as_send_has_returned(world: World) -> Outcome {
    let (producer, consumer) = (world.mailbox("jobs")?, world.mailbox("jobs")?);
    for number in 0..100 {
        let id = producer.send(Probe::new(number)).await?;
        let message = take_one(&consumer, world.units(9)).await?;
        assert_eq!((message.id(), message.body()?.number), (&id, number));
        message.acknowledge().await?;
    }
    Ok(())
}

async fn the_delivery_count_rises_by_one_per_delivery(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    for count in 1..=6 {
        let message = take_one(&jobs, world.units(2)).await?;
        assert_eq!(message.delivery_count(), count);
        match count % 3 {
            0 => message.nack().await?,
            1 => world.pass(2).await,
            _ => {
                message.nack_with(NackOptions::new().with_delay(world.units(1))).await?;
                world.pass(1).await;
            }
        }
    }
    Ok(())
}

async fn a_cancelled_receive_does_not_raise_the_count(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    for _ in 0..3 {
        let patient = ReceiveOptions::new().with_wait(world.units(100));
        let waiting = start_waiting(&world, &jobs, patient, 1).await?;
        waiting.abort();
        assert!(waiting.await.is_err(), "it was cancelled");
    }
    world.until_waiting(&jobs, 0).await?;
    jobs.send(Probe::new(0)).await?;
    assert_eq!(take_one(&jobs, world.units(2)).await?.delivery_count(), 1);
    Ok(())
}

async fn an_undone_delivery_does_not_count_and_goes_back_to_its_place(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..3).await?;
    let taken = jobs.receive_with(options(2, world.units(9))).await?;
    assert_eq!(numbers(&taken)?, [0, 1]);
    for message in &taken {
        message.undo_delivery().await?;
        assert!(message.is_finalized());
        refused(message.acknowledge().await, ErrorKind::ReceiptHandleExpired);
    }
    let again = jobs.receive_with(options(3, world.units(9))).await?;
    assert_eq!(numbers(&again)?, [0, 1, 2], "in front, in the same order");
    assert!(again.iter().all(|message| message.delivery_count() == 1));
    Ok(())
}

async fn id_and_time_of_sending_never_change(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let id = jobs.send(Probe::new(0)).await?;
    let sent_at = take_one(&jobs, Duration::ZERO).await?.enqueued_at();
    let unchanged = async |visibility| -> Outcome<_> {
        let message = take_one(&jobs, visibility).await?;
        assert_eq!((message.id(), message.enqueued_at()), (&id, sent_at));
        Ok(message)
    };
    world.pass(3).await;
    unchanged(world.units(2)).await?.nack().await?;
    let _unsettled = unchanged(world.units(2)).await?;
    world.pass(3).await;
    unchanged(world.units(2)).await?.reject("enough").await?;
    let dead = only(dead_letters(&jobs).await?);
    assert_eq!((dead.id(), dead.enqueued_at()), (&id, sent_at));
    world.pass(3).await;
    jobs.redrive(Selection::All).await?;
    unchanged(world.units(2)).await?.acknowledge().await?;
    Ok(())
}

async fn the_time_of_sending_is_the_wall_time_of_the_send(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    world.pass(90).await;
    let sent_at = world.wall()?;
    jobs.send_with(Probe::new(0), SendOptions::new().with_delay(world.units(5))).await?;
    world.pass(60).await;
    assert_eq!(take_one(&jobs, world.units(2)).await?.enqueued_at(), sent_at);
    Ok(())
}

async fn no_two_messages_have_the_same_id(world: World) -> Outcome {
    let (jobs, others) = (world.mailbox("jobs")?, world.mailbox("others")?);
    let mut ids = send_all(&jobs, 0..300).await?;
    ids.extend(send_all(&others, 0..300).await?);
    drain(&jobs).await?;
    ids.extend(send_all(&jobs, 0..300).await?);
    all_different(ids);
    Ok(())
}

async fn a_message_that_somebody_holds_is_nobody_elses(world: World) -> Outcome {
    let (jobs, others) = (world.mailbox("jobs")?, world.mailbox("jobs")?);
    send_all(&jobs, 0..2).await?;
    let held = take_next(&jobs, world.units(9)).await?;
    let other = take_next(&others, world.units(9)).await?;
    assert_ne!(held.body()?, other.body()?);
    nothing(&jobs).await?;
    nothing(&others).await
}

async fn eight_consumers_never_hold_the_same_message(world: World) -> Outcome {
    const MESSAGES: u64 = 400;
    let held = Arc::new(Mutex::new(BTreeSet::new()));
    let mut consumers = Vec::new();
    for consumer in 0..8_u32 {
        let (jobs, held) = (world.mailbox("jobs")?, Arc::clone(&held));
        let options = options(1 + consumer % 3, world.units(60)).with_wait(world.units(60));
        consumers.push(tokio::spawn(async move {
            let mut done = Vec::new();
            while done.iter().all(|number| *number < MESSAGES) {
                for message in jobs.receive_with(options.clone()).await? {
                    let number = message.body()?.number;
                    assert!(held.lock().insert(number), "{number} is held by two");
                    tokio::task::yield_now().await;
                    held.lock().remove(&number);
                    message.acknowledge().await?;
                    done.push(number);
                }
            }
            Outcome::Ok(done)
        }));
    }
    // Whoever gets a number beyond the last stops; there are enough for everybody's last batch.
    send_all(&world.mailbox("jobs")?, 0..MESSAGES + 24).await?;
    let mut done = Vec::new();
    for consumer in consumers {
        done.extend(consumer.await??.into_iter().filter(|number| *number < MESSAGES));
    }
    done.sort_unstable();
    assert_eq!(done, (0..MESSAGES).collect::<Vec<_>>(), "each was delivered, to one consumer");
    Ok(())
}

async fn a_receive_takes_up_to_max_messages(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..7).await?;
    for expected in [3, 3, 1, 0] {
        let taken = jobs.receive_with(options(3, world.units(9))).await?;
        assert_eq!(taken.len(), expected);
    }
    Ok(())
}

async fn a_receive_with_something_to_give_does_not_wait_for_more(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..2).await?;
    // Where time is virtual nobody moves it here: a receive that waited would never return.
    let taken = jobs.receive_with(options(10, world.units(9)).with_wait(world.units(30))).await?;
    assert_eq!(taken.len(), 2);
    Ok(())
}

async fn max_messages_is_accepted_up_to_the_bound_and_refused_beyond(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send(Probe::new(0)).await?;
    let most = world.abilities().max_messages;
    assert!(most >= 10, "the least that every backend takes");
    let bound = format!("1..={most}");
    for wrong in [0, most + 1, u32::MAX] {
        refused_field(
            jobs.receive_with(options(wrong, world.units(9))).await,
            ErrorKind::InvalidParameter,
            ("max_messages", &wrong.to_string(), &bound),
        );
    }
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0], "nothing was taken");
    let taken = jobs.receive_with(options(most, world.units(9))).await?;
    assert_eq!(only(taken).delivery_count(), 1);
    Ok(())
}

async fn a_delayed_message_is_not_receivable_before_its_time(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send_with(Probe::new(0), SendOptions::new().with_delay(world.units(4))).await?;
    assert_eq!(counts(&jobs).await?, [1, 0, 0, 0]);
    nothing(&jobs).await?;
    world.pass(2).await;
    nothing(&jobs).await?;
    world.pass(2).await;
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    assert_eq!(take_one(&jobs, world.units(2)).await?.delivery_count(), 1);
    Ok(())
}

async fn the_longest_delay_lasts_twelve_hours(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let longest = world.abilities().max_delay;
    jobs.send_with(Probe::new(0), SendOptions::new().with_delay(longest)).await?;
    world.pass_time(longest - Duration::from_nanos(1)).await;
    nothing(&jobs).await?;
    world.pass_time(Duration::from_nanos(1)).await;
    take_one(&jobs, world.units(2)).await?.acknowledge().await?;
    Ok(())
}

async fn a_delay_beyond_the_longest_is_refused(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let longest = world.abilities().max_delay;
    let bound = format!("0..={} s", longest.as_secs());
    for (wrong, value) in [
        (longest + Duration::from_millis(1), format!("{}.001 s", longest.as_secs())),
        (Duration::MAX, " s".to_owned()),
    ] {
        let sent = jobs.send_with(Probe::new(0), SendOptions::new().with_delay(wrong)).await;
        refused_field(sent, ErrorKind::InvalidParameter, ("delay", &value, &bound));
    }
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    Ok(())
}

async fn attributes_come_back_as_they_were_sent(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let mut sent = SendOptions::new()
        .with_attribute("empty", "")
        .with_attribute("words", "Grüße, 世界 \u{1F980} \"quoted\" \n\t\\");
    for number in 0..20 {
        sent = sent.with_attribute(format!("key.{number}"), number.to_string());
    }
    let attributes = sent.attributes.clone();
    jobs.send_with(Probe::new(0), sent).await?;
    jobs.send(Probe::new(1)).await?;
    for message in jobs.receive_with(options(2, world.units(2))).await? {
        let expected =
            if message.body()?.number == 0 { attributes.clone() } else { BTreeMap::new() };
        assert_eq!(message.attributes(), &expected);
    }
    Ok(())
}

async fn attributes_stay_with_the_message_at_every_delivery(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let sent = SendOptions::new().with_attribute("trace", "abc").with_attribute("tenant", "7");
    let attributes = sent.attributes.clone();
    jobs.send_with(Probe::new(0), sent).await?;
    for _ in 0..3 {
        let message = take_one(&jobs, world.units(2)).await?;
        assert_eq!(message.attributes(), &attributes);
        message.nack().await?;
    }
    take_one(&jobs, world.units(2)).await?.reject("enough").await?;
    let dead = only(dead_letters(&jobs).await?);
    assert_eq!(dead.attributes(), &attributes);
    Ok(())
}
