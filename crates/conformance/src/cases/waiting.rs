//! W: a receive waits until there is something, no longer, and leaves nothing behind when it goes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use mailbox::{ErrorKind, Peek, Policy, ReceiveOptions, Selection, SendOptions, Verdict};

use crate::case::{Case, Outcome, case};
use crate::probe::Probe;
use crate::steps::{
    Jobs, drain, only, options, refused, send_all, start_waiting, take_next, take_one,
};
use crate::world::World;

pub(crate) const CASES: &[Case] = &[
    case!("W1", without_wait_an_empty_mailbox_answers_at_once),
    case!("W1", a_wait_ends_with_a_send),
    case!("W1", a_wait_ends_with_a_nack),
    case!("W1", a_wait_ends_when_a_delay_is_over),
    case!("W1", a_wait_ends_when_a_lease_is_over),
    case!("W1", a_wait_ends_with_a_redrive),
    case!("W1", a_wait_ends_when_the_head_of_a_group_is_settled, groups),
    case!("W1", a_wait_for_nothing_ends_when_its_time_is_over),
    case!("W1", a_wait_notices_a_message_that_is_due_earlier),
    case!("W1", a_wait_notices_a_lease_that_is_shortened),
    case!("W1", as_many_waits_end_as_there_are_messages),
    case!("W1", a_wait_is_not_ended_by_a_message_that_dies),
    case!("W2", an_aborted_wait_passes_its_message_on, cancel),
    case!("W2", a_thousand_aborted_receives_strand_nothing, cancel, undo),
    case!("W2", a_wait_dropped_after_it_was_woken_wakes_the_next, cancel, exact_time),
    case!("W3", closing_ends_every_wait),
    case!("W3", after_closing_every_call_says_closed),
    case!("W3", closing_twice_is_no_error),
    case!("W3", closing_a_handle_leaves_the_messages, backend),
    case!("W3", closing_the_backend_closes_every_mailbox, backend),
];

fn patient(world: &World) -> ReceiveOptions {
    options(10, world.units(30)).with_wait(world.units(100))
}

/// What a wait ends with when `event` happens: a wait that nothing ended would end empty.
async fn ends_with<F>(world: &World, jobs: &Jobs, event: F) -> Outcome<u64>
where
    F: Future<Output = mailbox::Result<()>>,
{
    let waiting = start_waiting(world, jobs, patient(world), 1).await?;
    event.await?;
    let message = only(waiting.await??);
    world.until_waiting(jobs, 0).await?;
    Ok(message.body()?.number)
}

async fn without_wait_an_empty_mailbox_answers_at_once(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    // Where time is virtual nobody moves it here: waiting would never end.
    assert_eq!(jobs.receive().await?.len(), 0);
    assert_eq!(jobs.stats().await?.waiters, 0);
    Ok(())
}

async fn a_wait_ends_with_a_send(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let send = async { jobs.send(Probe::new(5)).await.map(drop) };
    assert_eq!(ends_with(&world, &jobs, send).await?, 5);
    Ok(())
}

async fn a_wait_ends_with_a_nack(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, [3]).await?;
    let held = take_one(&jobs, world.units(900)).await?;
    assert_eq!(ends_with(&world, &jobs, held.nack()).await?, 3);
    Ok(())
}

async fn a_wait_ends_when_a_delay_is_over(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send_with(Probe::new(4), SendOptions::new().with_delay(world.units(6))).await?;
    let waiting = start_waiting(&world, &jobs, patient(&world), 1).await?;
    world.pass(4).await;
    world.until_waiting(&jobs, 1).await?;
    assert!(!waiting.is_finished());
    world.pass(2).await;
    assert_eq!(only(waiting.await??).body()?.number, 4);
    Ok(())
}

async fn a_wait_ends_when_a_lease_is_over(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, [4]).await?;
    let _held = take_one(&jobs, world.units(6)).await?;
    let waiting = start_waiting(&world, &jobs, patient(&world), 1).await?;
    world.pass(4).await;
    world.until_waiting(&jobs, 1).await?;
    assert!(!waiting.is_finished());
    world.pass(2).await;
    assert_eq!(only(waiting.await??).delivery_count(), 2);
    Ok(())
}

async fn a_wait_ends_with_a_redrive(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, [8]).await?;
    take_one(&jobs, world.units(9)).await?.reject("no").await?;
    let redrive = async { jobs.redrive(Selection::All).await.map(drop) };
    assert_eq!(ends_with(&world, &jobs, redrive).await?, 8);
    Ok(())
}

async fn a_wait_ends_when_the_head_of_a_group_is_settled(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    for number in 0..2 {
        jobs.send_with(Probe::new(number), SendOptions::new().with_group("g")).await?;
    }
    let head = take_one(&jobs, world.units(900)).await?;
    assert_eq!(ends_with(&world, &jobs, head.acknowledge()).await?, 1);
    Ok(())
}

async fn a_wait_for_nothing_ends_when_its_time_is_over(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let short = ReceiveOptions::new().with_wait(world.units(5));
    let waiting = start_waiting(&world, &jobs, short, 1).await?;
    world.pass(3).await;
    world.until_waiting(&jobs, 1).await?;
    assert!(!waiting.is_finished());
    world.pass(2).await;
    assert_eq!(waiting.await??.len(), 0);
    assert_eq!(jobs.stats().await?.waiters, 0);
    Ok(())
}

async fn a_wait_notices_a_message_that_is_due_earlier(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.send_with(Probe::new(0), SendOptions::new().with_delay(world.units(50))).await?;
    let waiting = start_waiting(&world, &jobs, patient(&world), 1).await?;
    jobs.send_with(Probe::new(1), SendOptions::new().with_delay(world.units(2))).await?;
    world.pass(2).await;
    assert_eq!(only(waiting.await??).body()?.number, 1);
    Ok(())
}

async fn a_wait_notices_a_lease_that_is_shortened(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    send_all(&jobs, [1]).await?;
    let held = take_one(&jobs, world.units(50)).await?;
    let waiting = start_waiting(&world, &jobs, patient(&world), 1).await?;
    held.extend_visibility(world.units(2)).await?;
    world.pass(2).await;
    assert_eq!(only(waiting.await??).delivery_count(), 2);
    Ok(())
}

async fn as_many_waits_end_as_there_are_messages(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let mut waits = Vec::new();
    for waiters in 1..=4 {
        let one = options(1, world.units(30)).with_wait(world.units(10));
        waits.push(start_waiting(&world, &jobs, one, waiters).await?);
    }
    send_all(&jobs, 0..2).await?;
    world.until_waiting(&jobs, 2).await?;
    world.pass(10).await;
    let mut received = Vec::new();
    for wait in waits {
        received.extend(wait.await??);
    }
    let mut got = crate::steps::numbers(&received)?;
    got.sort_unstable();
    assert_eq!(got, [0, 1]);
    Ok(())
}

async fn a_wait_is_not_ended_by_a_message_that_dies(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let max_attempts = Some(1);
    jobs.configure(Policy { max_attempts, ..Policy::default() }).await?;
    send_all(&jobs, [0]).await?;
    let _held = take_one(&jobs, world.units(2)).await?;
    let waiting = start_waiting(&world, &jobs, patient(&world), 1).await?;
    world.pass(2).await;
    world.until_waiting(&jobs, 1).await?;
    world.until("it is dead", || async { Ok(jobs.stats().await?.dead == 1) }).await?;
    assert!(!waiting.is_finished());
    send_all(&jobs, [1]).await?;
    assert_eq!(only(waiting.await??).body()?.number, 1);
    Ok(())
}

async fn an_aborted_wait_passes_its_message_on(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    for number in 0..50 {
        let first = start_waiting(&world, &jobs, patient(&world), 1).await?;
        let second = start_waiting(&world, &jobs, patient(&world), 2).await?;
        jobs.send(Probe::new(number)).await?;
        first.abort();
        // One of them gets it: the first if it was quick, or else the second.
        let message = match first.await {
            Ok(received) => {
                second.abort();
                only(received?)
            }
            Err(_) => only(second.await??),
        };
        assert_eq!((message.body()?.number, message.delivery_count()), (number, 1));
        message.acknowledge().await?;
        world.until_waiting(&jobs, 0).await?;
    }
    Ok(())
}

async fn a_thousand_aborted_receives_strand_nothing(world: World) -> Outcome {
    const MESSAGES: u64 = 200;
    let jobs = world.mailbox("jobs")?;
    let sender = tokio::spawn({
        let jobs = jobs.clone();
        async move {
            for number in 0..MESSAGES {
                jobs.send(Probe::new(number)).await?;
                tokio::task::yield_now().await;
            }
            Outcome::Ok(())
        }
    });
    let mut received = Vec::new();
    for round in 0..1_000_u32 {
        let waiting = tokio::spawn({
            let (jobs, options) = (jobs.clone(), options(3, world.units(600)));
            let options = options.with_wait(world.units(100));
            async move { jobs.receive_with(options).await }
        });
        for _ in 0..round % 4 {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        if let Ok(finished) = waiting.await {
            for message in finished? {
                assert_eq!(message.delivery_count(), 1);
                received.push(message.body()?.number);
                message.acknowledge().await?;
            }
        }
    }
    sender.await??;
    assert_eq!(jobs.stats().await?.waiters, 0, "nobody waits any more");
    // What was taken for nobody may be on its way back: time stands still, so nothing else can
    // bring it.
    let none_held = || async { Ok(jobs.stats().await?.invisible == 0) };
    world.until("nothing is held by nobody", none_held).await?;
    while let Some(message) = jobs.receive().await?.pop() {
        assert_eq!(message.delivery_count(), 1, "no aborted receive counts");
        received.push(message.body()?.number);
        message.acknowledge().await?;
    }
    received.sort_unstable();
    assert_eq!(received, (0..MESSAGES).collect::<Vec<_>>());
    Ok(())
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A receive that the case polls by itself.
struct Polled<'a> {
    receive: Pin<Box<dyn Future<Output = mailbox::Result<usize>> + Send + 'a>>,
    bell: Arc<Bell>,
}

impl<'a> Polled<'a> {
    fn new(jobs: &'a Jobs, options: ReceiveOptions) -> Self {
        let receive = async move { Ok(jobs.receive_with(options).await?.len()) };
        Self { receive: Box::pin(receive), bell: Arc::default() }
    }

    /// Polls until it only waits to be woken.
    fn settle(&mut self) -> Option<mailbox::Result<usize>> {
        loop {
            let rung = self.bell.0.load(Ordering::SeqCst);
            let waker = Waker::from(Arc::clone(&self.bell));
            if let Poll::Ready(done) = self.receive.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Some(done);
            }
            if self.bell.0.load(Ordering::SeqCst) == rung {
                return None;
            }
        }
    }
}

async fn a_wait_dropped_after_it_was_woken_wakes_the_next(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let mut first = Polled::new(&jobs, patient(&world));
    let mut second = Polled::new(&jobs, patient(&world));
    let both_wait = || {
        assert!(first.settle().is_none() && second.settle().is_none());
        async { Ok(jobs.stats().await?.waiters == 2) }
    };
    world.until("both wait", both_wait).await?;
    // What they were woken for on the way does not count.
    first.bell.0.store(0, Ordering::SeqCst);
    second.bell.0.store(0, Ordering::SeqCst);
    jobs.send(Probe::new(0)).await?;
    // The news may have reached either; whoever has it goes away without looking.
    let second_knew = second.bell.0.load(Ordering::SeqCst) > 0;
    let mut left = if second_knew {
        drop(second);
        first
    } else {
        drop(first);
        second
    };
    // Polled only when it is woken, so that it does not find the message by itself.
    let mut received = None;
    let is_woken = || {
        if received.is_none() && left.bell.0.swap(0, Ordering::SeqCst) > 0 {
            received = left.settle();
        }
        let is_done = received.is_some();
        async move { Ok(is_done) }
    };
    world.until("the one that is left is woken and receives", is_woken).await?;
    assert_eq!(received.transpose()?, Some(1));
    Ok(())
}

async fn closing_ends_every_wait(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let mut waits = Vec::new();
    for waiters in 1..=5 {
        waits.push(start_waiting(&world, &jobs, patient(&world), waiters).await?);
    }
    jobs.close().await?;
    for wait in waits {
        refused(wait.await?, ErrorKind::Closed);
    }
    Ok(())
}

async fn after_closing_every_call_says_closed(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    let clone = jobs.clone();
    send_all(&jobs, 0..2).await?;
    let held = take_next(&jobs, world.units(60)).await?;
    jobs.close().await?;
    assert!(jobs.is_closed() && clone.is_closed());
    let closed = ErrorKind::Closed;
    refused(clone.send(Probe::new(0)).await, closed);
    refused(clone.send_batch(vec![(Probe::new(0), SendOptions::new())]).await, closed);
    refused(clone.send_batch(Vec::new()).await, closed);
    refused(clone.settle_batch(Vec::new()).await, closed);
    refused(clone.receive().await, closed);
    refused(clone.receive_with(patient(&world)).await, closed);
    refused(clone.peek(Peek::Live { limit: 1 }).await, closed);
    refused(clone.stats().await, closed);
    refused(clone.approximate_count().await, closed);
    refused(clone.purge().await, closed);
    refused(clone.redrive(Selection::All).await, closed);
    refused(clone.delete_dead(Selection::All).await, closed);
    refused(clone.configure(Policy::default()).await, closed);
    refused(clone.policy().await, closed);
    refused(clone.settle(held.receipt_handle(), Verdict::Acknowledge).await, closed);
    refused(held.acknowledge().await, closed);
    refused(held.nack().await, closed);
    refused(held.extend_visibility(world.units(1)).await, closed);
    assert!(!held.is_finalized());
    Ok(())
}

async fn closing_twice_is_no_error(world: World) -> Outcome {
    let jobs = world.mailbox("jobs")?;
    jobs.close().await?;
    jobs.close().await?;
    refused(jobs.stats().await, ErrorKind::Closed);
    Ok(())
}

async fn closing_a_handle_leaves_the_messages(world: World) -> Outcome {
    let (jobs, others) = (world.mailbox("jobs")?, world.mailbox("jobs")?);
    send_all(&jobs, 0..3).await?;
    jobs.close().await?;
    assert!(!others.is_closed());
    assert_eq!(drain(&others).await?.len(), 3);
    Ok(())
}

async fn closing_the_backend_closes_every_mailbox(world: World) -> Outcome {
    let (jobs, others) = (world.mailbox("jobs")?, world.mailbox("others")?);
    let backend = world.backend().ok_or("no backend")?;
    let waits = [
        start_waiting(&world, &jobs, patient(&world), 1).await?,
        start_waiting(&world, &others, patient(&world), 1).await?,
    ];
    backend.close().await?;
    for wait in waits {
        refused(wait.await?, ErrorKind::Closed);
    }
    refused(jobs.send(Probe::new(0)).await, ErrorKind::Closed);
    refused(world.mailbox("unused")?.stats().await, ErrorKind::Closed);
    refused(backend.list(None, 10).await, ErrorKind::Closed);
    refused(backend.remove(jobs.name()).await, ErrorKind::Closed);
    backend.close().await?;
    Ok(())
}
