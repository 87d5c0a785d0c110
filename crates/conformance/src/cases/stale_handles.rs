//! V4: a handle whose delivery is over settles nothing and changes nothing, whatever ended it.

use mailbox::{
    DeadReason, ErrorKind, LateSettle, Name, Policy, ReceiptHandle, Selection, Settlement, Verdict,
};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{
    Jobs, counts, drain, numbers, options, picture, refused, send_all, take_next, take_one,
};
use crate::subject::Setup;
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("V4", the_handle_of_an_expired_delivery_is_stale, strict),
    case!("V4", the_handle_of_an_acknowledged_message_is_stale),
    case!("V4", the_handle_of_a_nacked_delivery_is_stale),
    case!("V4", the_handle_of_a_rejected_delivery_is_stale),
    case!("V4", the_handle_of_an_earlier_delivery_is_stale),
    case!("V4", the_handle_of_an_undone_delivery_is_stale, undo),
    case!("V4", the_handle_of_a_purged_message_is_stale),
    case!("V4", the_handle_of_a_redriven_message_is_stale),
    case!("V4", a_handle_of_another_mailbox_is_stale),
    case!("V4", a_handle_of_another_namespace_is_stale),
    case!("V4", a_handle_from_before_a_removal_is_stale, backend),
    case!("V4", a_handle_that_nobody_gave_out_is_stale, quick),
    case!("V4", the_second_acknowledge_through_a_message_is_refused),
    case!("V4", a_batch_of_settlements_gives_one_result_each),
    case!("V4", a_refused_settlement_leaves_the_delivery_as_it_was),
    case!("V4", a_late_settle_counts_until_redelivery_where_the_policy_says_so),
];

/// Every way of settling, each of which would show.
fn verdicts(world: &World) -> [Verdict; 5] {
    [
        Verdict::Acknowledge,
        Verdict::Nack { delay: world.units(7), error: Some("late".into()) },
        Verdict::Extend { timeout: world.units(70) },
        Verdict::Reject { reason: DeadReason::Rejected, error: Some("late".into()) },
        Verdict::Return,
    ]
}

/// That a handle is refused whatever one wants, and that nobody can see that it was tried.
async fn is_stale(world: &World, jobs: &Jobs, handle: &ReceiptHandle) -> Outcome {
    let before = picture(world, jobs).await?;
    for verdict in verdicts(world) {
        let settled = jobs.settle(handle, verdict.clone()).await;
        let error = refused(settled, ErrorKind::ReceiptHandleExpired);
        assert_eq!(error.mailbox().map(Name::as_str), Some("jobs"), "{verdict:?}");
        assert_eq!(picture(world, jobs).await?, before, "{verdict:?} changed something");
    }
    Ok(())
}

/// A mailbox with two messages, one of them in flight.
async fn one_in_flight(world: &World) -> Outcome<(Jobs, mailbox::Message<Probe, Probe>)> {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..2).await?;
    let held = take_next(&jobs, world.units(4)).await?;
    Ok((jobs, held))
}

async fn the_handle_of_an_expired_delivery_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    world.pass(4).await;
    is_stale(&world, &jobs, held.receipt_handle()).await?;
    assert_eq!(counts(&jobs).await?, [0, 2, 0, 0]);
    Ok(())
}

async fn the_handle_of_an_acknowledged_message_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    held.acknowledge().await?;
    is_stale(&world, &jobs, held.receipt_handle()).await?;
    // Nor does it fit the message that got the place.
    send_all(&jobs, 2..3).await?;
    let taken = jobs.receive_with(options(2, world.units(4))).await?;
    assert_eq!(taken.len(), 2);
    is_stale(&world, &jobs, held.receipt_handle()).await
}

async fn the_handle_of_a_nacked_delivery_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    held.nack().await?;
    is_stale(&world, &jobs, held.receipt_handle()).await
}

async fn the_handle_of_a_rejected_delivery_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    held.reject("no").await?;
    is_stale(&world, &jobs, held.receipt_handle()).await?;
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 1]);
    Ok(())
}

async fn the_handle_of_an_earlier_delivery_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    world.pass(4).await;
    let taken = jobs.receive_with(options(2, world.units(60))).await?;
    assert_eq!(taken.len(), 2);
    is_stale(&world, &jobs, held.receipt_handle()).await?;
    for message in taken {
        message.acknowledge().await?;
    }
    Ok(())
}

async fn the_handle_of_an_undone_delivery_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    held.undo_delivery().await?;
    is_stale(&world, &jobs, held.receipt_handle()).await
}

async fn the_handle_of_a_purged_message_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    jobs.purge().await?;
    is_stale(&world, &jobs, held.receipt_handle()).await?;
    send_all(&jobs, 0..2).await?;
    let _held = take_next(&jobs, world.units(60)).await?;
    is_stale(&world, &jobs, held.receipt_handle()).await
}

async fn the_handle_of_a_redriven_message_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    held.reject("no").await?;
    jobs.redrive(Selection::All).await?;
    is_stale(&world, &jobs, held.receipt_handle()).await
}

async fn a_handle_of_another_mailbox_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    let others = world.mailbox("others")?;
    others.send(Probe::new(0)).await?;
    let other = take_one(&others, world.units(60)).await?;
    is_stale(&world, &jobs, other.receipt_handle()).await?;
    let as_text = ReceiptHandle::from_text(&other.receipt_handle().to_string());
    is_stale(&world, &jobs, &as_text).await?;
    other.acknowledge().await?;
    held.acknowledge().await?;
    Ok(())
}

async fn a_handle_of_another_namespace_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    let elsewhere = world.another(Setup::default()).await?;
    let (others, other) = one_in_flight(&elsewhere).await?;
    is_stale(&world, &jobs, other.receipt_handle()).await?;
    let as_text = ReceiptHandle::from_text(&other.receipt_handle().to_string());
    is_stale(&world, &jobs, &as_text).await?;
    held.acknowledge().await?;
    other.acknowledge().await?;
    assert_eq!(drain(&others).await?, [1]);
    elsewhere.end().await;
    Ok(())
}

async fn a_handle_from_before_a_removal_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    let backend = world.backend().ok_or("no backend")?;
    assert!(backend.remove(jobs.name()).await?);
    is_stale(&world, &jobs, held.receipt_handle()).await?;
    // The same things happen again in a mailbox of the same name.
    let (jobs, again) = one_in_flight(&world).await?;
    assert_ne!(again.receipt_handle(), held.receipt_handle());
    assert_ne!(again.id(), held.id());
    is_stale(&world, &jobs, held.receipt_handle()).await?;
    again.acknowledge().await?;
    Ok(())
}

async fn a_handle_that_nobody_gave_out_is_stale(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    let good = held.receipt_handle().to_string();
    let longer = format!("{good}0");
    let nearly = [&good[..good.len() - 1], &longer, &good.to_uppercase(), &good.replace('0', "o")];
    let long = "f".repeat(100_000);
    let wild = ["", " ", "0", "\0", "../../x", "世界", "{\"a\":1}", "-1", &long, &"0".repeat(72)];
    for text in nearly.iter().copied().chain(wild).filter(|text| **text != good) {
        is_stale(&world, &jobs, &ReceiptHandle::from_text(text)).await?;
    }
    let unused = world.mailbox("jobs")?;
    is_stale(&world, &unused, &ReceiptHandle::from_text("nothing")).await?;
    held.acknowledge().await?;
    Ok(())
}

async fn the_second_acknowledge_through_a_message_is_refused(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    held.acknowledge().await?;
    assert!(held.is_finalized());
    refused(held.acknowledge().await, ErrorKind::ReceiptHandleExpired);
    refused(held.nack().await, ErrorKind::ReceiptHandleExpired);
    refused(held.extend_visibility(world.units(4)).await, ErrorKind::ReceiptHandleExpired);
    refused(held.reject("no").await, ErrorKind::ReceiptHandleExpired);
    assert_eq!(counts(&jobs).await?, [0, 1, 0, 0]);
    Ok(())
}

async fn a_batch_of_settlements_gives_one_result_each(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, 0..4).await?;
    let taken = jobs.receive_with(options(4, world.units(60))).await?;
    taken[1].acknowledge().await?;
    let verdicts = [
        Verdict::Acknowledge,
        Verdict::Acknowledge,
        Verdict::Nack { delay: std::time::Duration::MAX, error: None },
        Verdict::Reject { reason: DeadReason::Rejected, error: None },
    ];
    let settlement = |(message, verdict): (&mailbox::Message<Probe, Probe>, Verdict)| Settlement {
        receipt_handle: message.receipt_handle().clone(),
        verdict,
    };
    let results = jobs.settle_batch(taken.iter().zip(verdicts).map(settlement).collect()).await?;
    let kinds: Vec<_> =
        results.iter().map(|result| result.as_ref().err().map(|e| e.kind())).collect();
    let expected =
        [None, Some(ErrorKind::ReceiptHandleExpired), Some(ErrorKind::InvalidParameter), None];
    assert_eq!(kinds, expected);
    assert_eq!(counts(&jobs).await?, [0, 0, 1, 1]);
    taken[2].acknowledge().await?;
    Ok(())
}

async fn a_refused_settlement_leaves_the_delivery_as_it_was(world: World) -> Outcome {
    let (jobs, held) = one_in_flight(&world).await?;
    let before = picture(&world, &jobs).await?;
    refused(held.nack_in(std::time::Duration::MAX).await, ErrorKind::InvalidParameter);
    refused(held.reject("x".repeat(1 << 20)).await, ErrorKind::TooLarge);
    assert_eq!(picture(&world, &jobs).await?, before);
    assert!(!held.is_finalized());
    held.acknowledge().await?;
    assert!(held.is_finalized());
    Ok(())
}

async fn a_late_settle_counts_until_redelivery_where_the_policy_says_so(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let late_settle = LateSettle::UntilRedelivered;
    jobs.configure(Policy { late_settle, max_attempts: Some(5), ..Policy::default() }).await?;
    send_all(&jobs, 0..2).await?;
    let taken = jobs.receive_with(options(2, world.units(2))).await?;
    world.pass(5).await;
    taken[0].acknowledge().await?;
    let again = take_one(&jobs, world.units(60)).await?;
    assert_eq!(again.id(), taken[1].id());
    refused(taken[1].acknowledge().await, ErrorKind::ReceiptHandleExpired);
    again.acknowledge().await?;
    assert_eq!(numbers(&jobs.receive_with(options(2, world.units(2))).await?)?.len(), 0);
    Ok(())
}
