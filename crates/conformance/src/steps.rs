//! Steps that many cases take. Each asserts what it takes for granted, at the caller's line.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use mailbox::{
    Error, ErrorKind, Mailbox, Message, MessageId, Peek, Peeked, ReceiveOptions, Result, Stats,
};
use tokio::task::JoinHandle;

use crate::case::Outcome;
use crate::probe::Probe;
use crate::world::World;

pub(crate) type Jobs = Mailbox<Probe, Probe>;
pub(crate) type Job = Message<Probe, Probe>;

/// Up to `most` messages for so long, without waiting.
pub(crate) fn options(most: u32, visibility_timeout: Duration) -> ReceiveOptions {
    ReceiveOptions::new().with_max_messages(most).with_visibility_timeout(visibility_timeout)
}

/// The one and only element.
#[track_caller]
pub(crate) fn only<T: Debug>(items: Vec<T>) -> T {
    let [item] = <[T; 1]>::try_from(items).expect("exactly one");
    item
}

/// Takes the one message that is receivable, for so long.
pub(crate) async fn take_one(jobs: &Jobs, visibility_timeout: Duration) -> Outcome<Job> {
    let mut taken = jobs.receive_with(options(2, visibility_timeout)).await?;
    if taken.len() != 1 {
        return Err(format!("exactly one message should be receivable: {taken:?}").into());
    }
    Ok(taken.remove(0))
}

/// Takes the next message, of however many, for so long.
pub(crate) async fn take_next(jobs: &Jobs, visibility_timeout: Duration) -> Outcome<Job> {
    let taken = jobs.receive_with(options(1, visibility_timeout)).await?;
    taken.into_iter().next().ok_or_else(|| "a message should be receivable".into())
}

/// That nothing is receivable.
pub(crate) async fn nothing(jobs: &Jobs) -> Outcome {
    let taken = jobs.receive().await?;
    if !taken.is_empty() {
        return Err(format!("nothing should be receivable: {taken:?}").into());
    }
    Ok(())
}

/// Sends probes with these numbers, one by one.
pub(crate) async fn send_all(
    jobs: &Jobs,
    numbers: impl IntoIterator<Item = u64>,
) -> Result<Vec<MessageId>> {
    let mut ids = Vec::new();
    for number in numbers {
        ids.push(jobs.send(Probe::new(number)).await?);
    }
    Ok(ids)
}

/// The numbers in messages, in order.
pub(crate) fn numbers(messages: &[Job]) -> Outcome<Vec<u64>> {
    messages.iter().map(|message| Ok(message.body()?.number)).collect()
}

/// Receives and acknowledges until there is nothing more; gives the numbers in order.
pub(crate) async fn drain(jobs: &Jobs) -> Outcome<Vec<u64>> {
    let mut drained = Vec::new();
    loop {
        let taken = jobs.receive_with(options(10, Duration::from_secs(600))).await?;
        if taken.is_empty() {
            return Ok(drained);
        }
        for message in taken {
            drained.push(message.body()?.number);
            message.acknowledge().await?;
        }
    }
}

/// That it was refused, and how.
#[track_caller]
pub(crate) fn refused<T: Debug>(result: Result<T>, kind: ErrorKind) -> Error {
    let error = result.expect_err("this should be refused");
    assert_eq!(error.kind(), kind, "{error:?}");
    error
}

/// That it was refused because of `field`, with words that name the field, its value and the bound.
#[track_caller]
pub(crate) fn refused_field<T: Debug>(
    result: Result<T>,
    kind: ErrorKind,
    (field, value, bound): (&'static str, &str, &str),
) {
    let error = refused(result, kind);
    assert_eq!(error.field(), Some(field), "{error:?}");
    let words = error.to_string();
    for part in [field, value, bound] {
        assert!(words.contains(part), "{words:?} should name {part:?}");
    }
}

/// Starts a receive, and returns when it waits, as one of `waiters`. That number is given, not
/// counted: a receive that is dropped and called again on the way is not there for a moment.
pub(crate) async fn start_waiting(
    world: &World,
    jobs: &Jobs,
    options: ReceiveOptions,
    waiters: u64,
) -> Outcome<JoinHandle<Result<Vec<Job>>>> {
    let waiting = tokio::spawn({
        let jobs = jobs.clone();
        async move { jobs.receive_with(options).await }
    });
    let settled = || async { Ok(waiting.is_finished() || jobs.stats().await?.waiters == waiters) };
    world.until("the receive waits, or has ended", settled).await?;
    if waiting.is_finished() {
        return Err(format!("it did not wait: {:?}", waiting.await?).into());
    }
    world.until_waiting(jobs, waiters).await?;
    Ok(waiting)
}

/// Delayed, ready, invisible, dead.
pub(crate) async fn counts(jobs: &Jobs) -> Outcome<[u64; 4]> {
    let Stats { delayed, ready, invisible, dead, .. } = jobs.stats().await?;
    Ok([delayed, ready, invisible, dead])
}

/// The dead letters, in order of dying.
pub(crate) async fn dead_letters(jobs: &Jobs) -> Result<Vec<Peeked<Probe, Probe>>> {
    jobs.peek(Peek::Dead { after: None, limit: 10 }).await
}

/// Everything that can be seen of a mailbox without changing it, to compare before and after.
#[derive(Debug, PartialEq)]
pub(crate) struct Picture {
    stats: Stats,
    messages: Vec<String>,
}

/// What a mailbox looks like. What happened to it is left out: a refused call may be counted. So
/// is what changes by itself where time is real.
pub(crate) async fn picture(world: &World, jobs: &Jobs) -> Outcome<Picture> {
    let still = world.clock().is_ok();
    let mut messages = Vec::new();
    for request in [Peek::Live { limit: 10 }, Peek::Dead { after: None, limit: 10 }] {
        for seen in jobs.peek(request).await? {
            let due = still.then(|| seen.receivable_in());
            let (phase, count) = (seen.phase(), seen.delivery_count());
            let (id, error, death) = (seen.id(), seen.last_error(), seen.death());
            messages.push(format!("{id} {phase:?} {count} {due:?} {error:?} {death:?}"));
        }
    }
    let mut stats = jobs.stats().await?;
    stats.totals = mailbox::Totals::default();
    stats.oldest_age = stats.oldest_age.filter(|_| still);
    // Servers count that down by a clock of their own, whatever a test does with its clock.
    stats.expires_in = stats.expires_in.map(|_| Duration::ZERO);
    Ok(Picture { stats, messages })
}

/// That all are different.
#[track_caller]
pub(crate) fn all_different<T: Ord + Debug>(items: Vec<T>) {
    let count = items.len();
    let different: BTreeSet<T> = items.into_iter().collect();
    assert_eq!(different.len(), count, "some are the same");
}
