//! The cost of one message's life in `mailbox-core`: sent, received, acknowledged.
//!
//! The bound holds for messages with a payload of 1 KiB each, as they come in life. The other rows
//! let all messages share one payload by reference count, so that the index alone is measured, not
//! the allocator and not `memcpy`.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use mailbox_core::{Draft, Id, Policy, Queue, Sending, Time, Verdict};

use crate::core_peer::{Bare, Payload};
use crate::report::Row;
use crate::timing::{Cycle, longest, race};

const MILLION: u32 = 1_000_000;
const CYCLES: u32 = 400_000;
/// Far below the shortest deadline of a standing message, over all rounds together.
const STEP: Duration = Duration::from_micros(1);
const HOUR: u64 = 3_600;

/// With a long line, and against bare structures.
pub(crate) fn backlog() -> Vec<Row> {
    let mut short = Driven::new(Leases::Quick);
    let mut long = Driven::new(Leases::Quick);
    short.send_many(1, Duration::ZERO);
    long.send_many(MILLION, Duration::ZERO);
    let mut bare_short = Bare::new(Payload::shared(), 1);
    let mut bare_long = Bare::new(Payload::shared(), MILLION);
    let contestants: [&mut dyn Cycle; 4] = [&mut short, &mut long, &mut bare_short, &mut bare_long];
    let [short, long, bare_short, bare_long] = race(CYCLES, contestants);

    let mut own = Driven { payload: Payload::own(), ..Driven::new(Leases::Quick) };
    own.send_many(1, Duration::ZERO);
    let mut bare_own = Bare::new(Payload::own(), 1);
    let [own, bare_own] = race(CYCLES, [&mut own, &mut bare_own]);

    let name = "core cycle, 1,000,000 waiting : the same, 1 waiting";
    let bare = "core cycle : VecDeque + slab + BinaryHeap";
    vec![
        Row::compared(name, long.best, short.best).at_most(2.5),
        Row::compared(format!("{bare}, 1 KiB each"), own.best, bare_own.best).at_most(4.0),
        Row::compared(format!("{bare}, index alone"), short.best, bare_short.best),
        Row::compared(format!("{bare}, index alone, 1,000,000 waiting"), long.best, bare_long.best),
    ]
}

/// With many messages that wait for a later time. The mean counts here: an index that deletes
/// lazily cleans up once in many cycles, and the best round would not show it.
pub(crate) fn in_flight() -> Vec<Row> {
    let mut rows = Vec::new();
    for (leases, how) in [(Leases::Quick, "quick leases"), (Leases::Spread, "spread leases")] {
        let mut few = Driven::new(leases);
        few.stand(1);
        let mut many = Driven::new(leases);
        many.stand(MILLION);
        let [few, many_timed] = race(CYCLES, [&mut few, &mut many]);
        let name = format!("core cycle, 1,000,000 delayed + 1,000,000 in flight : 1 + 1, {how}");
        rows.push(Row::compared(name, many_timed.mean, few.mean));
        let name = format!("  longest of 3,000,000 cycles, {how}");
        rows.push(Row::alone(name, longest(3 * MILLION, &mut many), "us"));
    }
    rows
}

/// How long the leases of a cycle are, compared with those of the standing messages (1 to 12 h).
#[derive(Debug, Clone, Copy)]
enum Leases {
    /// 30 s: before all others, as when every consumer uses the same timeout and is quick.
    Quick,
    /// Anywhere between the others: the worst case for an index that deletes lazily.
    Spread,
}

/// A queue with its clock.
#[derive(Debug)]
pub(crate) struct Driven {
    queue: Queue<Bytes>,
    now: Time,
    payload: Payload,
    leases: Leases,
    random: u64,
}

impl Driven {
    fn new(leases: Leases) -> Self {
        let policy = Policy { max_in_flight: u64::from(u32::MAX), ..Policy::default() };
        let queue = Queue::new(policy, 0);
        Self { queue, now: Time::ZERO, payload: Payload::shared(), leases, random: 7 }
    }

    /// An empty queue, for measuring what it grows to.
    pub(crate) fn empty() -> Self {
        Self::new(Leases::Quick)
    }

    /// Sends `count` messages.
    pub(crate) fn send_many(&mut self, count: u32, delay: Duration) {
        for _ in 0..count {
            self.send(delay);
        }
    }

    /// Receives `count` messages and keeps them.
    pub(crate) fn receive_many(&mut self, count: u32, visibility_timeout: Duration) {
        for _ in 0..count {
            self.receive(visibility_timeout);
        }
    }

    /// `count` delayed and `count` in flight, all for at least an hour, and one that waits.
    fn stand(&mut self, count: u32) {
        for _ in 0..count {
            self.send(Duration::ZERO);
            let lease = self.hours();
            self.receive(lease);
        }
        for _ in 0..count {
            let delay = self.hours();
            self.send(delay);
        }
        self.send(Duration::ZERO);
    }

    fn send(&mut self, delay: Duration) {
        self.now = self.now.after(STEP);
        let draft = Draft { delay, ..Draft::new(Id(7), self.payload.next()) };
        match self.queue.decide_send(self.now, draft) {
            Ok(Sending::New(sent)) => drop(self.queue.apply(sent)),
            refused => panic!("a plain send into an unbounded queue: {refused:?}"),
        }
    }

    fn receive(&mut self, visibility_timeout: Duration) -> mailbox_core::Receipt {
        let delivered = self
            .queue
            .decide_receive(self.now, visibility_timeout)
            .expect("few are in flight")
            .expect("one waits");
        let receipt = delivered.receipt().expect("nothing is dead-lettered here");
        drop(self.queue.apply(delivered));
        receipt
    }

    /// Between one hour and twelve, by a fixed sequence.
    fn hours(&mut self) -> Duration {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_secs(HOUR) + Duration::from_nanos(self.random % (11 * HOUR * 1_000_000_000))
    }
}

impl Cycle for Driven {
    fn run(&mut self, times: u32) {
        for _ in 0..times {
            self.send(Duration::ZERO);
            let lease = match self.leases {
                Leases::Quick => Duration::from_secs(30),
                Leases::Spread => self.hours(),
            };
            let receipt = self.receive(lease);
            let acknowledged = self
                .queue
                .decide_settle(self.now, receipt, Verdict::Acknowledge)
                .expect("the receipt is fresh");
            let freed = self.queue.apply(acknowledged);
            black_box(&freed);
        }
    }
}
