//! What a cycle costs does not depend on how much is there. Times are compared with times of the
//! same machine in the same minute, best of several, and the allowed ratio is far above what caches
//! cost and far below what a scan would: a scan of a million is tens of thousands of times slower.

use std::time::{Duration, Instant};

use mailbox_core::{Draft, Event, Id, Policy, Queue, Refusal, Sending, Time, Verdict};

const MILLION: u64 = 1_000_000;
const ALLOWED: u32 = 300;
const ROUNDS: u32 = 7;

fn policy() -> Policy {
    Policy { max_in_flight: 3 * MILLION, ..Policy::default() }
}

fn send(queue: &mut Queue<u64>, now: Time, delay: Duration, group: Option<&str>) {
    let draft = Draft { delay, group: group.map(Into::into), ..Draft::new(Id(7), 7) };
    match queue.decide_send(now, draft).unwrap() {
        Sending::New(event) => drop(queue.apply(event)),
        Sending::Duplicate(_) => unreachable!("there is no key"),
    }
}

fn receive(queue: &mut Queue<u64>, now: Time, visibility: Duration) -> Event<u64> {
    let event = queue.decide_receive(now, visibility).unwrap().unwrap();
    drop(queue.apply(event.clone()));
    event
}

/// `size` messages delayed and as many in flight, all of whose times come one after the other, a
/// microsecond apart, from one second on.
fn crowd(size: u64) -> Queue<u64> {
    let mut queue = Queue::new(policy(), 1);
    let due = |index: u64| Duration::from_secs(1) + Duration::from_micros(index);
    for index in 0..size {
        send(&mut queue, Time::ZERO, Duration::ZERO, None);
        receive(&mut queue, Time::ZERO, due(2 * index));
    }
    for index in 0..size {
        send(&mut queue, Time::ZERO, due(2 * index + 1), None);
    }
    queue
}

#[expect(clippy::disallowed_methods, reason = "it is the test that measures, not the queue")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// The shortest of several times.
fn best(mut work: impl FnMut()) -> Duration {
    (0..ROUNDS).map(|_| timed(&mut work)).min().unwrap()
}

fn assert_comparable(large: Duration, small: Duration) {
    let floor = Duration::from_micros(50);
    assert!(large < small.max(floor) * ALLOWED, "{large:?} for many, {small:?} for few");
}

/// Thousand cycles, each a microsecond after the last, so that each meets a message whose time has
/// just come: one comes in, one is received and nacked, one is received and acknowledged.
fn cycles(queue: &mut Queue<u64>, now: &mut Time) {
    for _ in 0..1_000 {
        *now = now.after(Duration::from_micros(1));
        send(queue, *now, Duration::ZERO, None);
        let second = Duration::from_secs(1);
        let nack = Verdict::Nack { delay: second, error: None };
        for verdict in [nack, Verdict::Acknowledge] {
            if let Some(event) = queue.decide_receive(*now, second).unwrap() {
                let receipt = event.receipt().unwrap();
                drop(queue.apply(event));
                drop(queue.apply(queue.decide_settle(*now, receipt, verdict).unwrap()));
            }
        }
    }
}

#[test]
fn a_cycle_costs_no_more_with_a_million_delayed_and_a_million_in_flight() {
    let (mut few, mut many) = (crowd(5), crowd(MILLION));
    let stats = many.stats(Time::ZERO);
    assert_eq!((stats.delayed, stats.invisible), (MILLION, MILLION));
    let mut clock = Time::ZERO.after(Duration::from_secs(1));
    let small = best(|| cycles(&mut few, &mut clock));
    let mut clock = Time::ZERO.after(Duration::from_secs(1));
    let large = best(|| cycles(&mut many, &mut clock));
    assert_comparable(large, small);
    assert_eq!(many.count(), 2 * MILLION);
}

#[test]
fn a_million_leases_that_run_out_at_once_cost_nothing_until_somebody_receives() {
    let mut queue = Queue::new(policy(), 1);
    let (start, lease) = (Time::ZERO, Duration::from_secs(30));
    for _ in 0..MILLION {
        send(&mut queue, start, Duration::ZERO, None);
        receive(&mut queue, start, lease);
    }
    // All of them are received again at the instant at which all leases are over, several times.
    let mut over = start;
    let rounds: Vec<_> = (0..4)
        .map(|_| {
            over = over.after(lease);
            assert!(!queue.is_receivable(Time::from_nanos(over.as_nanos() - 1)));
            let first = timed(|| drop(receive(&mut queue, over, lease)));
            let others = timed(|| {
                for _ in 1..MILLION {
                    receive(&mut queue, over, lease);
                }
            });
            assert!(!queue.is_receivable(over));
            (first, others)
        })
        .collect();
    let first = rounds.iter().map(|(first, _)| *first).min().unwrap();
    let others = rounds.iter().map(|(_, others)| *others).min().unwrap();
    assert!(first < others / 1_000, "{first:?} for the first, {others:?} for all others");
    assert_eq!(queue.stats(over).totals.timed_out, 4 * MILLION);
}

/// Counting what is in flight once walked over every delay that was over.
#[test]
fn being_refused_is_cheap_with_a_million_delays_over_and_the_most_in_flight() {
    let refusals = |delayed: u64| {
        let mut queue = Queue::new(Policy { max_in_flight: 10, ..policy() }, 1);
        for _ in 0..10 {
            send(&mut queue, Time::ZERO, Duration::ZERO, None);
            receive(&mut queue, Time::ZERO, Duration::from_secs(60));
        }
        for index in 0..delayed {
            send(&mut queue, Time::ZERO, Duration::from_micros(index + 1), None);
        }
        let now = Time::ZERO.after(Duration::from_secs(30));
        best(|| {
            for _ in 0..100 {
                let refused = queue.decide_receive(now, Duration::from_secs(1));
                assert!(matches!(refused, Err(Refusal::TooManyInFlight { .. })));
            }
        })
    };
    assert_comparable(refusals(MILLION), refusals(10));
}

#[test]
fn a_long_group_costs_no_more_than_a_short_one() {
    let rounds = |length: u64| {
        let mut queue = Queue::new(policy(), 1);
        for _ in 0..length {
            send(&mut queue, Time::ZERO, Duration::ZERO, Some("g"));
        }
        let took = best(|| {
            for _ in 0..1_000 {
                send(&mut queue, Time::ZERO, Duration::ZERO, Some("g"));
                let event = receive(&mut queue, Time::ZERO, Duration::from_secs(1));
                let receipt = event.receipt().unwrap();
                let done = queue.decide_settle(Time::ZERO, receipt, Verdict::Acknowledge);
                drop(queue.apply(done.unwrap()));
            }
        });
        drop(queue.apply(queue.decide_purge(Time::ZERO)));
        queue.assert_invariants();
        took
    };
    assert_comparable(rounds(MILLION / 4), rounds(5));
}
