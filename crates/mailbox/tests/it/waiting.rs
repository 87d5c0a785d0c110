//! Waiting and hand-over, step by step: each step of a receive is one poll by hand.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use mailbox::backends::memory::MemoryBackend;
use mailbox::testing::ManualClock;
use mailbox::{Backend, ErrorKind, Mailbox, Message, ReceiveOptions, Result, SendOptions};

type Receive<'a> = Pin<Box<dyn Future<Output = Result<Vec<Message<u32>>>> + Send + 'a>>;

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(Mutex<u32>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

impl Bell {
    fn rung(&self) -> u32 {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A receive that waits for an hour, polled until it has settled down to sleep.
fn waiting<'a>(mailbox: &'a Mailbox<u32>, bell: &Arc<Bell>) -> Receive<'a> {
    let options = ReceiveOptions::new().with_wait(Duration::from_secs(3_600));
    let mut receive: Receive<'a> = Box::pin(mailbox.receive_with(options));
    for _ in 0..3 {
        assert!(poll(&mut receive, bell).is_pending());
    }
    bell.rung();
    receive
}

fn poll(receive: &mut Receive<'_>, bell: &Arc<Bell>) -> Poll<Result<Vec<Message<u32>>>> {
    let waker = Waker::from(Arc::clone(bell));
    receive.as_mut().poll(&mut Context::from_waker(&waker))
}

fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("a local mailbox answers at once")
}

fn local() -> (Mailbox<u32>, ManualClock) {
    let clock = ManualClock::new();
    (Mailbox::local_with_clock("waiting", &clock).unwrap(), clock)
}

#[test]
fn a_message_wakes_one_waiter_and_a_deputy_who_only_sets_a_timer() {
    let (mailbox, _clock) = local();
    let bells: [Arc<Bell>; 4] = std::array::from_fn(|_| Arc::default());
    let mut waiters: Vec<_> = bells.iter().map(|bell| waiting(&mailbox, bell)).collect();
    let rung = || bells.each_ref().map(|bell| bell.rung());
    now(mailbox.send(1)).unwrap();
    assert_eq!(rung(), [1, 1, 0, 0]);
    assert!(poll(&mut waiters[0], &bells[0]).is_ready());
    assert!(poll(&mut waiters[1], &bells[1]).is_pending());
    // There is a deputy now: further messages wake one waiter each.
    now(mailbox.send(2)).unwrap();
    assert_eq!(rung(), [0, 0, 1, 0]);
    assert!(poll(&mut waiters[2], &bells[2]).is_ready());
    now(mailbox.send(3)).unwrap();
    assert_eq!(rung(), [0, 0, 0, 1]);
    assert!(poll(&mut waiters[3], &bells[3]).is_ready());
}

/// Three ways in which one that is not polled could keep a message from another.
#[test]
fn a_receive_that_is_not_polled_keeps_no_message_from_others_for_long() {
    type Trouble = fn(&Mailbox<u32>, &ManualClock);
    let sent: Trouble = |mailbox, _| drop(now(mailbox.send(1)).unwrap());
    let delayed: Trouble = |mailbox, clock| {
        let delay = SendOptions::new().with_delay(Duration::from_secs(10));
        now(mailbox.send_with(1, delay)).unwrap();
        clock.advance(Duration::from_secs(10));
    };
    let leased: Trouble = |mailbox, clock| {
        now(mailbox.send(1)).unwrap();
        drop(now(mailbox.receive()).unwrap());
        clock.advance(Duration::from_secs(30));
    };
    for trouble in [sent, delayed, leased] {
        let (mailbox, clock) = local();
        let (deaf, bell) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        // Never polled again, and not even dropped.
        std::mem::forget(waiting(&mailbox, &deaf));
        let mut polled = waiting(&mailbox, &bell);
        trouble(&mailbox, &clock);
        let mut waited = Duration::ZERO;
        let received = loop {
            // As an executor does it: polled when woken, and only then.
            if bell.rung() > 0
                && let Poll::Ready(received) = poll(&mut polled, &bell)
            {
                break received.unwrap();
            }
            clock.advance(Duration::from_millis(5));
            waited += Duration::from_millis(5);
            assert!(waited < Duration::from_secs(1), "it was never told");
        };
        assert!(waited <= Duration::from_millis(50), "late by {waited:?}");
        assert_eq!(received.len(), 1);
    }
}

#[test]
fn a_waiter_that_is_dropped_after_it_was_told_tells_the_next() {
    let (mailbox, _clock) = local();
    let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
    let first = waiting(&mailbox, &bells[0]);
    let mut second = waiting(&mailbox, &bells[1]);
    now(mailbox.send(1)).unwrap();
    assert_eq!(bells[0].rung(), 1);
    drop(first);
    assert_eq!(bells[1].rung(), 1);
    assert!(poll(&mut second, &bells[1]).is_ready());
}

#[test]
fn the_next_one_keeps_the_time_when_the_one_in_front_leaves() {
    let (mailbox, clock) = local();
    let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
    let delay = SendOptions::new().with_delay(Duration::from_secs(10));
    now(mailbox.send_with(1, delay)).unwrap();
    let first = waiting(&mailbox, &bells[0]);
    let mut second = waiting(&mailbox, &bells[1]);
    drop(first);
    assert_eq!(bells[1].rung(), 1, "it has to set its timer");
    for _ in 0..3 {
        assert!(poll(&mut second, &bells[1]).is_pending());
    }
    bells[1].rung();
    clock.advance(Duration::from_secs(10));
    assert_eq!(bells[1].rung(), 1);
    assert!(poll(&mut second, &bells[1]).is_ready());
}

#[test]
fn the_next_one_keeps_the_time_of_the_lease_that_the_first_one_took() {
    let (mailbox, clock) = local();
    let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
    let mut first = waiting(&mailbox, &bells[0]);
    let mut second = waiting(&mailbox, &bells[1]);
    now(mailbox.send(1)).unwrap();
    assert!(poll(&mut first, &bells[0]).is_ready());
    assert_eq!(bells[1].rung(), 1, "it has to set its timer");
    for _ in 0..3 {
        assert!(poll(&mut second, &bells[1]).is_pending());
    }
    bells[1].rung();
    clock.advance(Duration::from_secs(30));
    assert_eq!(bells[1].rung(), 1);
    let Poll::Ready(Ok(again)) = poll(&mut second, &bells[1]) else {
        panic!("the lease is over");
    };
    assert_eq!(again[0].delivery_count(), 2);
}

#[test]
fn one_that_takes_a_message_whose_time_has_come_tells_the_next_of_another() {
    let (mailbox, clock) = local();
    let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
    for body in 0..2 {
        let delay = SendOptions::new().with_delay(Duration::from_secs(10));
        now(mailbox.send_with(body, delay)).unwrap();
    }
    let mut first = waiting(&mailbox, &bells[0]);
    let mut second = waiting(&mailbox, &bells[1]);
    clock.advance(Duration::from_secs(10));
    assert_eq!((bells[0].rung(), bells[1].rung()), (1, 0));
    assert!(poll(&mut first, &bells[0]).is_ready());
    assert_eq!(bells[1].rung(), 1, "at once, not when its own time comes");
    assert!(poll(&mut second, &bells[1]).is_ready());
}

#[tokio::test]
async fn removing_a_mailbox_tells_its_waiters() {
    let backend = MemoryBackend::new();
    let mailbox: Mailbox<u32> = backend.mailbox("gone").unwrap();
    let bell = Arc::new(Bell::default());
    let mut waiter = waiting(&mailbox, &bell);
    assert!(backend.remove(mailbox.name()).await.unwrap());
    assert_eq!(bell.rung(), 1);
    let Poll::Ready(Err(error)) = poll(&mut waiter, &bell) else {
        panic!("nobody will ever send there");
    };
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// A waker that owns another receive of the same mailbox, as that of a task may own the task.
struct Owner(#[expect(dead_code, reason = "it is there to be dropped")] Mutex<Receive<'static>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_waker_may_drop_another_receive_of_the_same_mailbox() {
    let (mailbox, _clock) = local();
    let mailbox: &'static Mailbox<u32> = Box::leak(Box::new(mailbox));
    let bell = Arc::new(Bell::default());
    let owner = || Waker::from(Arc::new(Owner(Mutex::new(waiting(mailbox, &bell)))));
    let options = ReceiveOptions::new().with_wait(Duration::from_secs(3_600));
    let mut receive = pin!(mailbox.receive_with(options));
    // Each poll replaces, and so drops, the waker of the one before; the end drops the last.
    for _ in 0..4 {
        let waker = owner();
        assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(now(mailbox.stats()).unwrap().waiters, 2);
}
