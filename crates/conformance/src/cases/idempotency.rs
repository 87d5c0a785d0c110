//! I: a send that is repeated is recognised, and a payload comes back as it was sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mailbox::{ErrorKind, Mailbox, Name, Policy, Raw, Retry, SendOptions, Sent};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{Jobs, counts, drain, only, refused, send_all, take_one};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("I1", a_repeated_send_gives_the_first_id_and_delivers_once, keys),
    case!("I1", a_repeated_send_is_recognised_whatever_became_of_the_first, keys),
    case!("I1", a_repeated_send_is_recognised_within_a_batch, keys),
    case!("I1", a_repeated_send_is_recognised_by_a_full_mailbox, keys),
    case!("I1", a_hundred_racing_sends_with_one_key_deliver_once, keys),
    case!("I1", a_key_belongs_to_its_mailbox, keys),
    case!("I1", the_window_lasts_three_hundred_seconds, keys, exact_time),
    case!("I1", the_window_is_a_rule_of_the_mailbox, keys),
    case!("I1", messages_without_key_are_never_duplicates),
    case!("I1", the_key_comes_back_with_the_message, keys),
    case!("I1", where_keys_are_not_understood_they_are_refused, no_keys),
    case!("I2", the_same_key_for_another_payload_is_refused, keys),
    case!("I2", after_the_window_the_key_is_free_for_another_payload, keys),
    case!("I3", a_full_table_refuses_new_keys_and_forgets_none_early, keys),
    case!("I3", a_full_table_says_when_to_come_again, keys, exact_time),
    case!("I4", a_payload_comes_back_byte_for_byte, bytes),
];

fn keyed(key: &str) -> SendOptions<Probe> {
    SendOptions::new().with_idempotency_key(key)
}

async fn send_keyed(jobs: &Jobs, number: u64, key: &str) -> mailbox::Result<Sent> {
    jobs.send_with(Probe::new(number), keyed(key)).await
}

async fn a_repeated_send_gives_the_first_id_and_delivers_once(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let first = send_keyed(&jobs, 1, "key").await?;
    assert!(!first.duplicate);
    for _ in 0..3 {
        assert_eq!(send_keyed(&jobs, 1, "key").await?, Sent::new(first.id.clone(), true));
    }
    let other = send_keyed(&jobs, 1, "other key").await?;
    assert!(!other.duplicate && other.id != first.id);
    assert_eq!(counts(&jobs).await?, [0, 2, 0, 0]);
    assert_eq!(jobs.stats().await?.dedup_entries, 2);
    Ok(())
}

async fn a_repeated_send_is_recognised_whatever_became_of_the_first(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    for (number, key) in [(0, "acknowledged"), (1, "dead"), (2, "in flight"), (3, "purged")] {
        let first = send_keyed(&jobs, number, key).await?;
        match number {
            0 => take_one(&jobs, world.units(60)).await?.acknowledge().await?,
            1 => take_one(&jobs, world.units(60)).await?.reject("no").await?,
            2 => drop(take_one(&jobs, world.units(60)).await?),
            _ => drop(jobs.purge().await?),
        }
        let before = counts(&jobs).await?;
        assert_eq!(send_keyed(&jobs, number, key).await?, Sent::new(first.id, true), "{key}");
        assert_eq!(counts(&jobs).await?, before, "{key}");
    }
    Ok(())
}

async fn a_repeated_send_is_recognised_within_a_batch(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let batch = [(1, "a"), (1, "a"), (2, "b"), (9, "a"), (1, "a")];
    let batch = batch.map(|(number, key)| (Probe::new(number), keyed(key)));
    let results = jobs.send_batch(batch.into()).await?;
    let [first, second, third, conflict, last] =
        <[_; 5]>::try_from(results).map_err(|_| "five results")?;
    let first = first?;
    assert!(!first.duplicate && !third?.duplicate);
    assert_eq!((second?, last?), (Sent::new(first.id.clone(), true), Sent::new(first.id, true)));
    refused(conflict, ErrorKind::Duplicate);
    assert_eq!(counts(&jobs).await?, [0, 2, 0, 0]);
    Ok(())
}

async fn a_repeated_send_is_recognised_by_a_full_mailbox(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(Policy { max_size: Some(1), ..Policy::default() }).await?;
    let first = send_keyed(&jobs, 1, "key").await?;
    refused(send_keyed(&jobs, 2, "new").await, ErrorKind::MailboxFull);
    assert_eq!(send_keyed(&jobs, 1, "key").await?, Sent::new(first.id, true));
    // A refused send leaves no key behind.
    take_one(&jobs, world.units(9)).await?.acknowledge().await?;
    assert!(!send_keyed(&jobs, 2, "new").await?.duplicate);
    Ok(())
}

async fn a_hundred_racing_sends_with_one_key_deliver_once(world: World) -> Outcome {
    let start = Arc::new(tokio::sync::Barrier::new(100));
    let mut sends = Vec::new();
    for _ in 0..100 {
        let (jobs, start) = (world.mailbox("jobs")?, Arc::clone(&start));
        sends.push(tokio::spawn(async move {
            start.wait().await;
            send_keyed(&jobs, 7, "key").await
        }));
    }
    let mut sent = Vec::new();
    for send in sends {
        sent.push(send.await??);
    }
    assert_eq!(sent.iter().filter(|sent| !sent.duplicate).count(), 1);
    assert!(sent.iter().all(|other| other.id == sent[0].id));
    assert_eq!(drain(&world.mailbox("jobs")?).await?, [7]);
    Ok(())
}

async fn a_key_belongs_to_its_mailbox(world: World) -> Outcome {
    let (jobs, others) = (world.mailbox("jobs")?, world.mailbox("others")?);
    let first = send_keyed(&jobs, 1, "key").await?;
    let other = send_keyed(&others, 2, "key").await?;
    assert!(!other.duplicate && other.id != first.id);
    assert_eq!((drain(&jobs).await?, drain(&others).await?), (vec![1], vec![2]));
    Ok(())
}

async fn the_window_lasts_three_hundred_seconds(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    assert_eq!(jobs.policy().await?.replay_window, Duration::from_secs(300));
    let first = send_keyed(&jobs, 1, "key").await?;
    world.pass_time(Duration::from_secs(300) - Duration::from_nanos(1)).await;
    assert_eq!(send_keyed(&jobs, 1, "key").await?, Sent::new(first.id.clone(), true));
    // A duplicate does not start the window again.
    world.pass_time(Duration::from_nanos(1)).await;
    let second = send_keyed(&jobs, 1, "key").await?;
    assert!(!second.duplicate && second.id != first.id);
    assert_eq!(counts(&jobs).await?, [0, 2, 0, 0]);
    Ok(())
}

async fn the_window_is_a_rule_of_the_mailbox(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(Policy { replay_window: world.units(6), ..Policy::default() }).await?;
    let first = send_keyed(&jobs, 1, "key").await?;
    world.pass(4).await;
    assert_eq!(send_keyed(&jobs, 1, "key").await?, Sent::new(first.id, true));
    world.pass(2).await;
    assert_eq!(jobs.stats().await?.dedup_entries, 0);
    assert!(!send_keyed(&jobs, 1, "key").await?.duplicate);
    Ok(())
}

async fn messages_without_key_are_never_duplicates(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let ids = send_all(&jobs, [1, 1, 1]).await?;
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    assert_eq!(jobs.stats().await?.dedup_entries, 0);
    assert_eq!(drain(&jobs).await?, [1, 1, 1]);
    Ok(())
}

async fn the_key_comes_back_with_the_message(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_keyed(&jobs, 1, "Schlüssel 7").await?;
    let message = take_one(&jobs, world.units(9)).await?;
    assert_eq!(message.idempotency_key(), Some("Schlüssel 7"));
    Ok(())
}

async fn where_keys_are_not_understood_they_are_refused(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let error = refused(send_keyed(&jobs, 1, "key").await, ErrorKind::Unsupported);
    assert_eq!((error.field(), error.retry()), (Some("idempotency_key"), Retry::Never));
    assert_eq!(counts(&jobs).await?, [0, 0, 0, 0]);
    Ok(())
}

async fn the_same_key_for_another_payload_is_refused(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let first = send_keyed(&jobs, 1, "key").await?;
    let error = refused(send_keyed(&jobs, 2, "key").await, ErrorKind::Duplicate);
    assert_eq!(error.retry(), Retry::Never);
    // What is beside the payload does not matter.
    let other = keyed("key").with_attribute("a", "b").with_delay(world.units(3));
    assert_eq!(jobs.send_with(Probe::new(1), other).await?, Sent::new(first.id, true));
    let message = take_one(&jobs, world.units(9)).await?;
    assert_eq!((message.body()?.number, message.attributes().len()), (1, 0));
    message.acknowledge().await?;
    refused(send_keyed(&jobs, 2, "key").await, ErrorKind::Duplicate);
    Ok(())
}

async fn after_the_window_the_key_is_free_for_another_payload(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.configure(Policy { replay_window: world.units(6), ..Policy::default() }).await?;
    send_keyed(&jobs, 1, "key").await?;
    world.pass(4).await;
    refused(send_keyed(&jobs, 2, "key").await, ErrorKind::Duplicate);
    world.pass(2).await;
    let second = send_keyed(&jobs, 2, "key").await?;
    assert!(!second.duplicate);
    refused(send_keyed(&jobs, 1, "key").await, ErrorKind::Duplicate);
    let mut got = drain(&jobs).await?;
    got.sort_unstable();
    assert_eq!(got, [1, 2]);
    Ok(())
}

async fn a_full_table_refuses_new_keys_and_forgets_none_early(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let (dedup_capacity, replay_window) = (3, world.units(10));
    jobs.configure(Policy { dedup_capacity, replay_window, ..Policy::default() }).await?;
    for number in 0..3 {
        send_keyed(&jobs, number, &format!("key {number}")).await?;
        world.pass(1).await;
    }
    let error = refused(send_keyed(&jobs, 3, "key 3").await, ErrorKind::Saturated);
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    for number in 0..3 {
        assert!(send_keyed(&jobs, number, &format!("key {number}")).await?.duplicate);
    }
    send_all(&jobs, [4]).await?;
    assert_eq!(counts(&jobs).await?, [0, 4, 0, 0], "without a key there is no need for a place");
    drain(&jobs).await?;
    refused(send_keyed(&jobs, 3, "key 3").await, ErrorKind::Saturated);
    world.pass(8).await;
    assert!(!send_keyed(&jobs, 3, "key 3").await?.duplicate, "one key has expired");
    Ok(())
}

async fn a_full_table_says_when_to_come_again(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let (dedup_capacity, replay_window) = (2, world.units(10));
    jobs.configure(Policy { dedup_capacity, replay_window, ..Policy::default() }).await?;
    send_keyed(&jobs, 0, "a").await?;
    world.pass(4).await;
    send_keyed(&jobs, 1, "b").await?;
    let error = refused(send_keyed(&jobs, 2, "c").await, ErrorKind::Saturated);
    assert_eq!(error.retry(), Retry::After(world.units(6)));
    world.pass(6).await;
    assert!(!send_keyed(&jobs, 2, "c").await?.duplicate);
    Ok(())
}

async fn a_payload_comes_back_byte_for_byte(world: World) -> Outcome {
    let backend = world.backend().ok_or("no backend")?;
    let raw: Mailbox<Bytes> = Mailbox::with_codec(backend, Name::parse("raw")?, Raw);
    let all: Vec<u8> = (0..=255).collect();
    let payloads = [Bytes::new(), Bytes::from(all), Bytes::from(vec![0; 100_000])];
    for payload in payloads {
        raw.send(payload.clone()).await?;
        let message = only(raw.receive().await?);
        assert_eq!((message.body()?, message.payload()), (&payload, Some(&payload)));
        message.reject("keep").await?;
        let dead = mailbox::Peek::These(vec![message.id().clone()]);
        assert_eq!(only(raw.peek(dead).await?).payload(), Some(&payload));
    }
    Ok(())
}
