//! The waiters and the hand-over under many schedules: a lost wake-up is a deadlock that shuttle
//! finds. Runs only with `--cfg shuttle`, which puts shuttle's lock under every room; `make test`
//! runs it so.

#![cfg(shuttle)]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use mailbox::testing::ManualClock;
use mailbox::{ErrorKind, Mailbox, Message, ReceiveOptions, SendOptions};
use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

const SCHEDULES: usize = 20_000;
const LONG: Duration = Duration::from_secs(3_600);

fn mailbox(clock: &ManualClock) -> Mailbox<u32> {
    Mailbox::local_with_clock("waiters", clock.clock()).unwrap()
}

fn waiting() -> ReceiveOptions {
    ReceiveOptions::new().with_wait(LONG)
}

fn take_one(mailbox: &Mailbox<u32>) -> Message<u32> {
    block_on(mailbox.receive_with(waiting())).unwrap().remove(0)
}

/// Polls a receive at most `polls` times, then drops it; gives what it had got by then.
async fn impatient(mailbox: &Mailbox<u32>, polls: usize) -> Vec<Message<u32>> {
    let mut receive = pin!(mailbox.receive_with(waiting()));
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(Vec::new());
        }
        left -= 1;
        match receive.as_mut().poll(context) {
            Poll::Ready(received) => Poll::Ready(received.unwrap()),
            Poll::Pending => {
                // Comes back by itself, notified or not: that is what makes it impatient.
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
    .await
}

#[test]
fn every_waiter_is_woken_for_a_message_of_its_own() {
    shuttle::check_random(
        || {
            let mailbox = mailbox(&ManualClock::new());
            let consumers: Vec<_> = (0..3)
                .map(|_| {
                    let mailbox = mailbox.clone();
                    thread::spawn(move || {
                        let message = take_one(&mailbox);
                        block_on(message.acknowledge()).unwrap();
                        *message.body().unwrap()
                    })
                })
                .collect();
            let producers: Vec<_> = (0..3)
                .map(|body| {
                    let mailbox = mailbox.clone();
                    thread::spawn(move || block_on(mailbox.send(body)).unwrap())
                })
                .collect();
            let mut got: Vec<u32> =
                consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect();
            got.sort_unstable();
            assert_eq!(got, [0, 1, 2]);
            producers.into_iter().for_each(|producer| drop(producer.join().unwrap()));
        },
        SCHEDULES,
    );
}

#[test]
fn a_dropped_waiter_passes_its_news_on() {
    shuttle::check_random(
        || {
            let mailbox = mailbox(&ManualClock::new());
            let taken = Arc::new(AtomicUsize::new(0));
            let leavers: Vec<_> = (1..3)
                .map(|polls| {
                    let (mailbox, taken) = (mailbox.clone(), Arc::clone(&taken));
                    thread::spawn(move || {
                        for message in block_on(impatient(&mailbox, polls)) {
                            block_on(message.nack()).unwrap();
                            taken.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            let patient = {
                let mailbox = mailbox.clone();
                thread::spawn(move || block_on(take_one(&mailbox).acknowledge()).unwrap())
            };
            block_on(mailbox.send(1)).unwrap();
            // Whoever left, and whatever they had been told: the patient one gets the message.
            patient.join().unwrap();
            leavers.into_iter().for_each(|leaver| leaver.join().unwrap());
            assert_eq!(block_on(mailbox.approximate_count()).unwrap(), 0);
        },
        SCHEDULES,
    );
}

/// One waiter leaves, one is patient, and time moves once: to the moment the message is due.
fn due_while_the_one_in_front_leaves(mailbox: Mailbox<u32>, clock: ManualClock, after: Duration) {
    let leaver = {
        let mailbox = mailbox.clone();
        thread::spawn(move || {
            // Time may move past the deadline of either: then the message is there again.
            for message in block_on(impatient(&mailbox, 2)) {
                drop(block_on(message.nack()));
            }
        })
    };
    let patient = {
        let mailbox = mailbox.clone();
        thread::spawn(move || while block_on(take_one(&mailbox).acknowledge()).is_err() {})
    };
    clock.advance(after);
    patient.join().unwrap();
    leaver.join().unwrap();
    assert_eq!(block_on(mailbox.approximate_count()).unwrap(), 0);
}

#[test]
fn somebody_waits_for_a_delay_although_the_one_in_front_leaves() {
    shuttle::check_random(
        || {
            let clock = ManualClock::new();
            let mailbox = mailbox(&clock);
            let delay = Duration::from_secs(10);
            block_on(mailbox.send_with(7, SendOptions::new().with_delay(delay))).unwrap();
            due_while_the_one_in_front_leaves(mailbox, clock, delay);
        },
        SCHEDULES,
    );
}

#[test]
fn somebody_waits_for_a_deadline_although_the_one_in_front_leaves() {
    shuttle::check_random(
        || {
            let clock = ManualClock::new();
            let mailbox = mailbox(&clock);
            block_on(mailbox.send(7)).unwrap();
            // Taken while others may be waiting already, and never settled.
            let holder = {
                let mailbox = mailbox.clone();
                thread::spawn(move || drop(block_on(mailbox.receive()).unwrap()))
            };
            let leaver_and_patient = {
                let (mailbox, clock) = (mailbox.clone(), clock.clone());
                thread::spawn(move || {
                    due_while_the_one_in_front_leaves(mailbox, clock, Duration::from_secs(30));
                })
            };
            holder.join().unwrap();
            // The lease may have begun after time had moved: move it once more.
            clock.advance(Duration::from_secs(30));
            leaver_and_patient.join().unwrap();
        },
        SCHEDULES,
    );
}

#[test]
fn the_next_in_line_keeps_the_time_of_the_lease_that_the_first_one_took() {
    shuttle::check_random(
        || {
            let clock = ManualClock::new();
            let mailbox = mailbox(&clock);
            let taken = Arc::new(AtomicUsize::new(0));
            let waiters: Vec<_> = (0..2)
                .map(|_| {
                    let (mailbox, taken) = (mailbox.clone(), Arc::clone(&taken));
                    thread::spawn(move || {
                        drop(take_one(&mailbox));
                        taken.fetch_add(1, Ordering::SeqCst);
                    })
                })
                .collect();
            block_on(mailbox.send(7)).unwrap();
            while taken.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            clock.advance(Duration::from_secs(30));
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        },
        SCHEDULES,
    );
}

#[test]
fn closing_wakes_every_waiter() {
    shuttle::check_random(
        || {
            let mailbox = mailbox(&ManualClock::new());
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    let mailbox = mailbox.clone();
                    thread::spawn(move || {
                        block_on(mailbox.receive_with(waiting())).unwrap_err().kind()
                    })
                })
                .collect();
            block_on(mailbox.close()).unwrap();
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), ErrorKind::Closed);
            }
        },
        SCHEDULES,
    );
}

#[test]
fn a_settled_group_lets_the_next_waiter_in() {
    shuttle::check_random(
        || {
            let mailbox = mailbox(&ManualClock::new());
            for body in 0..2 {
                let options = SendOptions::new().with_group("g");
                block_on(mailbox.send_with(body, options)).unwrap();
            }
            let consumers: Vec<_> = (0..2)
                .map(|_| {
                    let mailbox = mailbox.clone();
                    thread::spawn(move || {
                        let message = take_one(&mailbox);
                        block_on(message.acknowledge()).unwrap();
                        *message.body().unwrap()
                    })
                })
                .collect();
            let mut got: Vec<u32> =
                consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect();
            got.sort_unstable();
            assert_eq!(got, [0, 1]);
        },
        SCHEDULES,
    );
}
