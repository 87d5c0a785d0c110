//! The mailbox without async, from plain threads; and what it says when it is called in a task.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mailbox::backends::memory::MemoryBackend;
use mailbox::blocking::{Mailbox, Message};
use mailbox::testing::{FakeMailbox, ManualClock};
use mailbox::{
    Backend, DeadReason, Error, ErrorKind, NackOptions, Name, Peek, Policy, Raw, ReceiveOptions,
    Selection, SendOptions, Settlement, Verdict,
};

const LONG: Duration = Duration::from_secs(3_600);

fn waiting(wait: Duration) -> ReceiveOptions {
    ReceiveOptions::new().with_wait(wait)
}

fn take(mailbox: &Mailbox<u32, u32>) -> Message<u32, u32> {
    mailbox.receive().unwrap().remove(0)
}

/// Ends when somebody waits at `mailbox`; fails if nobody does within half a minute.
fn until_somebody_waits(mailbox: &Mailbox<u32>) {
    let started = Instant::now();
    while mailbox.stats().unwrap().waiters == 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "nobody waits");
        thread::yield_now();
    }
}

#[test]
fn a_message_goes_its_whole_way_from_plain_threads() {
    for requests in [Mailbox::memory("requests"), Mailbox::local("requests")] {
        let requests: Mailbox<u32, u32> = requests.unwrap();
        let replies: Mailbox<u32> = Mailbox::memory("replies").unwrap();
        let options = SendOptions::new().with_reply_to(&replies).with_attribute("tenant", "7");
        let id = requests.send_with(20, options).unwrap().id;
        let worker = thread::spawn({
            let requests = requests.clone();
            move || {
                let request = take(&requests);
                assert_eq!(request.attributes()["tenant"], "7");
                assert_eq!(request.mailbox().name().as_str(), "requests");
                request.extend_visibility(LONG).unwrap();
                request.reply(request.body().unwrap() + 1).unwrap();
                assert_eq!(request.reply_mailbox().unwrap().name().as_str(), "replies");
                request.acknowledge().unwrap();
                assert!(request.is_finalized());
                request.id().clone()
            }
        });
        let reply = replies.receive_with(waiting(LONG)).unwrap().remove(0);
        assert_eq!(reply.delivery_count(), 1);
        reply.acknowledge().unwrap();
        assert_eq!(reply.into_body().unwrap(), 21);
        assert_eq!(worker.join().unwrap(), id);
        assert_eq!(requests.approximate_count().unwrap(), 0);
    }
}

#[test]
fn every_way_of_settling_does_what_it_says() {
    let clock = ManualClock::new();
    let mailbox: Mailbox<u32, u32> = Mailbox::memory_with_clock("settling", clock.clock()).unwrap();
    mailbox.send_batch((0..3).map(|body| (body, SendOptions::new())).collect()).unwrap();
    take(&mailbox).nack().unwrap();
    take(&mailbox).nack_in(LONG).unwrap();
    take(&mailbox).nack_with(NackOptions::new().with_error("why")).unwrap();
    assert_eq!(mailbox.stats().unwrap().delayed, 1);
    let undone = take(&mailbox);
    assert_eq!((*undone.body().unwrap(), undone.delivery_count()), (0, 2));
    undone.undo_delivery().unwrap();
    let again = take(&mailbox);
    assert_eq!((again.id(), again.delivery_count()), (undone.id(), 2));
    again.reject("no good").unwrap();
    let receipt_handle = take(&mailbox).receipt_handle().clone();
    mailbox.settle(&receipt_handle, Verdict::Acknowledge).unwrap();
    let settlement = Settlement { receipt_handle, verdict: Verdict::Acknowledge };
    let stale = mailbox.settle_batch(vec![settlement]).unwrap().remove(0);
    assert_eq!(stale.unwrap_err().kind(), ErrorKind::ReceiptHandleExpired);
    clock.advance(LONG);
    assert_eq!(mailbox.purge().unwrap(), 1);
}

#[test]
fn dead_letters_and_rules_are_managed_without_async() {
    let mailbox: Mailbox<u32, u32> = Mailbox::memory("managed").unwrap();
    mailbox.configure(Policy { max_size: Some(2), ..Policy::default() }).unwrap();
    assert_eq!(mailbox.policy().unwrap().max_size, Some(2));
    mailbox.send(1).unwrap();
    mailbox.send(2).unwrap();
    assert_eq!(mailbox.send(3).unwrap_err().kind(), ErrorKind::MailboxFull);
    take(&mailbox).reject("no good").unwrap();
    let dead = mailbox.peek(Peek::Dead { after: None, limit: 10 }).unwrap();
    assert_eq!(dead[0].death().unwrap().reason, DeadReason::Rejected);
    assert_eq!(mailbox.redrive(Selection::All).unwrap(), 1);
    take(&mailbox).reject("no good").unwrap();
    assert_eq!(mailbox.delete_dead(Selection::All).unwrap(), 1);
    assert_eq!(mailbox.stats().unwrap().ready, 1);
}

#[test]
fn a_mailbox_is_the_same_one_whichever_way_it_is_reached() {
    let backend = MemoryBackend::new();
    let name = Name::parse("same").unwrap();
    let new: Mailbox<String> = Mailbox::new(Arc::<MemoryBackend>::clone(&backend), name.clone());
    let opened: Mailbox<String> = Mailbox::open(&backend.address(&name)).unwrap();
    let bytes: Mailbox<Vec<u8>> = Mailbox::with_codec(backend, name, Raw);
    let renamed = new.clone().with_identifier("elsewhere");
    new.send("one".to_owned()).unwrap();
    opened.send("two".to_owned()).unwrap();
    renamed.send("three".to_owned()).unwrap();
    assert_eq!(renamed.identifier(), "elsewhere");
    assert_eq!(bytes.receive().unwrap().remove(0).into_body().unwrap(), b"\"one\"");
    assert_eq!(new.approximate_count().unwrap(), 3);
    let error = Mailbox::<String>::open("nonsense://x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidParameter);
    assert_eq!(Mailbox::<String>::local("a b").unwrap_err().kind(), ErrorKind::InvalidParameter);
}

#[test]
fn four_producers_and_four_consumers_hand_over_every_message_once() {
    const EACH: usize = 5_000;
    const ALL: usize = 4 * EACH;
    let mailbox: Mailbox<usize> = Mailbox::memory("shared").unwrap();
    let received = AtomicUsize::new(0);
    let bodies: Vec<usize> = thread::scope(|scope| {
        for producer in 0..4 {
            let mailbox = &mailbox;
            scope.spawn(move || {
                for number in 0..EACH {
                    mailbox.send(producer * EACH + number).unwrap();
                }
            });
        }
        let consume = || {
            let mut bodies = Vec::new();
            let options = waiting(Duration::from_secs(30)).with_max_messages(10);
            while received.load(Ordering::Acquire) < ALL {
                // The last message closes the mailbox for those who still wait.
                let Ok(messages) = mailbox.receive_with(options.clone()) else { break };
                for message in messages {
                    message.acknowledge().unwrap();
                    bodies.push(message.into_body().unwrap());
                    if received.fetch_add(1, Ordering::AcqRel) + 1 == ALL {
                        assert_eq!(mailbox.approximate_count().unwrap(), 0);
                        mailbox.close().unwrap();
                    }
                }
            }
            bodies
        };
        let consumers: Vec<_> = (0..4).map(|_| scope.spawn(consume)).collect();
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    assert_eq!(bodies.len(), ALL);
    assert_eq!(bodies.into_iter().collect::<BTreeSet<_>>().len(), ALL);
}

#[test]
fn closing_from_another_thread_wakes_every_blocked_receive() {
    for mailbox in [Mailbox::memory("closing"), Mailbox::local("closing")] {
        let mailbox: Mailbox<u32> = mailbox.unwrap();
        let blocked: Vec<_> = (0..4)
            .map(|_| {
                let mailbox = mailbox.clone();
                thread::spawn(move || mailbox.receive_with(waiting(LONG)))
            })
            .collect();
        until_somebody_waits(&mailbox);
        mailbox.close().unwrap();
        for receive in blocked {
            assert_eq!(receive.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        }
        assert!(mailbox.is_closed());
        assert_eq!(mailbox.send(1).unwrap_err().kind(), ErrorKind::Closed);
    }
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    let mailbox: Mailbox<u32> = Mailbox::memory("empty").unwrap();
    let started = Instant::now();
    assert!(mailbox.receive_with(waiting(Duration::from_millis(100))).unwrap().is_empty());
    assert!(started.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_wait_ends_when_a_message_is_sent_or_its_visibility_timeout_is_over() {
    let clock = ManualClock::new();
    let mailbox: Mailbox<u32> = Mailbox::memory_with_clock("hours", clock.clock()).unwrap();
    let consumer = thread::spawn({
        let mailbox = mailbox.clone();
        move || {
            let first = mailbox.receive_with(waiting(LONG)).unwrap().remove(0);
            let second = mailbox.receive_with(waiting(LONG)).unwrap().remove(0);
            (first.delivery_count(), second.delivery_count())
        }
    });
    until_somebody_waits(&mailbox);
    mailbox.send(1).unwrap();
    let started = Instant::now();
    while mailbox.stats().unwrap().invisible == 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "nobody took it");
        thread::yield_now();
    }
    until_somebody_waits(&mailbox);
    clock.advance(Duration::from_secs(30));
    assert_eq!(consumer.join().unwrap(), (1, 2));
}

#[test]
fn a_real_visibility_timeout_brings_a_message_back_to_a_blocked_thread() {
    let mailbox: Mailbox<u32> = Mailbox::memory("timed").unwrap();
    mailbox.send(1).unwrap();
    let short = ReceiveOptions::new().with_visibility_timeout(Duration::from_millis(50));
    let lost = mailbox.receive_with(short).unwrap().remove(0);
    let again = mailbox.receive_with(waiting(Duration::from_secs(30))).unwrap().remove(0);
    assert_eq!(again.delivery_count(), 2);
    assert_eq!(lost.acknowledge().unwrap_err().kind(), ErrorKind::ReceiptHandleExpired);
}

#[test]
fn doubles_serve_blocking_code_too() {
    let fake: FakeMailbox<u32> = FakeMailbox::new("fake").unwrap();
    let mailbox = Mailbox::from_async(fake.mailbox().clone());
    let blocked = thread::spawn({
        let mailbox = mailbox.clone();
        move || mailbox.receive_with(waiting(LONG))
    });
    until_somebody_waits(&mailbox);
    fake.set_connection_error("down");
    assert_eq!(blocked.join().unwrap().unwrap_err().kind(), ErrorKind::Connection);
}

/// What a call in a task must give.
fn assert_says_what_to_do(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("as_async"), "{error}");
    assert!(error.message().contains("spawn_blocking"), "{error}");
}

async fn calls_in_a_task_are_refused() {
    let mailbox: Mailbox<u32> = Mailbox::memory("async").unwrap();
    // More often than a task's budget lasts: looking must not use it up.
    for _ in 0..300 {
        assert_says_what_to_do(&mailbox.send(1).unwrap_err());
    }
    assert_says_what_to_do(&mailbox.receive_with(waiting(LONG)).unwrap_err());
    assert_says_what_to_do(&mailbox.stats().unwrap_err());
    assert_says_what_to_do(&mailbox.close().unwrap_err());
    assert_says_what_to_do(&Mailbox::<u32>::open("memory://async").unwrap_err());
    assert!(tokio::task::coop::has_budget_remaining());

    mailbox.as_async().send(2).await.unwrap();
    let moved = mailbox.clone();
    let message = tokio::task::spawn_blocking(move || moved.receive().unwrap().remove(0));
    let message = message.await.unwrap();
    assert_says_what_to_do(&message.acknowledge().unwrap_err());
    assert!(!message.is_finalized());
    message.as_async().acknowledge().await.unwrap();
    assert_eq!(mailbox.as_async().approximate_count().await.unwrap(), 0);
}

#[tokio::test]
async fn calls_in_the_root_of_a_runtime_are_refused_with_advice() {
    calls_in_a_task_are_refused().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_a_spawned_task_are_refused_with_advice() {
    tokio::spawn(calls_in_a_task_are_refused()).await.unwrap();
    // Here the thread has been given up for blocking.
    tokio::spawn(async {
        tokio::task::block_in_place(|| {
            let mailbox: Mailbox<u32> = Mailbox::memory("in-place").unwrap();
            mailbox.send(1).unwrap();
            assert!(mailbox.receive_with(waiting(LONG)).unwrap().len() == 1);
        });
    })
    .await
    .unwrap();
}

#[test]
fn a_blocking_call_where_tasks_cannot_be_told_apart_does_not_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sent = runtime.block_on(tokio::task::unconstrained(async {
        let mailbox: Mailbox<u32> = Mailbox::memory("unconstrained").unwrap();
        mailbox.send(1).unwrap();
        mailbox.receive_with(waiting(LONG)).unwrap().len()
    }));
    assert_eq!(sent, 1);
}

/// Names of public functions in a source file.
fn public_functions(source: &str) -> BTreeSet<&str> {
    source
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("pub "))
        .map(|line| line.trim_start_matches("const ").trim_start_matches("async "))
        .filter_map(|line| line.strip_prefix("fn "))
        .filter_map(|line| line.split(['(', '<']).next())
        .collect()
}

#[test]
fn everything_that_the_async_types_offer_is_offered_without_async() {
    let missing = |from: &[&str], to: &[&str]| -> Vec<String> {
        let there: BTreeSet<_> = to.iter().flat_map(|source| public_functions(source)).collect();
        let wanted: BTreeSet<_> = from.iter().flat_map(|source| public_functions(source)).collect();
        assert!(wanted.len() > 20, "the sources are where this test looks for them");
        wanted.difference(&there).map(ToString::to_string).collect()
    };
    let mailbox =
        [include_str!("../../src/mailbox/mod.rs"), include_str!("../../src/mailbox/construct.rs")];
    let blocking = [
        include_str!("../../src/blocking/mailbox.rs"),
        include_str!("../../src/blocking/construct.rs"),
    ];
    assert_eq!(missing(&mailbox, &blocking), [""; 0]);
    let (message, _) =
        include_str!("../../src/message.rs").split_once("pub struct Peeked").unwrap();
    assert_eq!(missing(&[message], &[include_str!("../../src/blocking/message.rs")]), [""; 0]);
}
