//! What a journal may rely on: events that fit, events that do not, and events in another order
//! than this queue would have made them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use mailbox_core::{Event, Id, Key, LeaseId, Queue, Time, Verdict};

use super::Desk;
use crate::rules::{Rules, span};

fn sent(slot: u32, seq: u64) -> Event<&'static str> {
    Event::Sent {
        key: Key { seq, slot },
        id: Id(seq.into()),
        at: Time::ZERO,
        due: Time::ZERO,
        group: None,
        idempotency: None,
        payload: "a",
    }
}

/// Undoing a delivery that never was once fitted, and then underflowed.
#[test]
fn a_verdict_on_a_message_that_is_not_out_does_not_fit() {
    let mut queue = Queue::new(Rules::default().policy(), 0);
    let key = Key { seq: 0, slot: 0 };
    let (at, due) = (Time::ZERO, Time::ZERO);
    let verdicts = [
        Event::Acknowledged { key, at },
        Event::Nacked { key, at, due, error: None },
        Event::Extended { key, at, due },
        Event::Returned { key, at },
    ];
    assert!(verdicts.iter().all(|verdict| !queue.fits(verdict)), "nothing is there");
    drop(queue.apply(sent(0, 0)));
    assert!(verdicts.iter().all(|verdict| !queue.fits(verdict)), "nobody has it");
    let lease = LeaseId::first_of(0);
    drop(queue.apply(Event::Delivered { key, lease, at, due, hold_until: Time::MAX }));
    assert!(verdicts.iter().all(|verdict| queue.fits(verdict)));
}

/// A stale event once changed whoever had the slot by then.
#[test]
fn an_event_that_does_not_fit_is_not_applied() {
    let mut desk = Desk::new(&Rules::default());
    desk.send("old");
    let delivery = desk.receive(9);
    let stale = desk.queue.decide_settle(desk.now(), delivery.receipt, Verdict::Acknowledge);
    let stale = stale.unwrap();
    desk.acknowledge(&delivery).unwrap();
    desk.send("new");
    assert_eq!(desk.receive(9).receipt.key.slot, delivery.receipt.key.slot);
    assert!(!desk.queue.fits(&stale));
    let before = desk.queue.snapshot();
    let applied = catch_unwind(AssertUnwindSafe(|| drop(desk.queue.apply(stale))));
    assert!(applied.is_err());
    assert_eq!(desk.queue.snapshot(), before, "nothing has changed");
}

#[test]
fn a_delivery_does_not_fit_while_another_one_lasts_nor_twice() {
    let mut desk = Desk::new(&Rules::default());
    desk.send("a");
    let first = desk.queue.decide_receive(desk.now(), span(0)).unwrap().unwrap();
    desk.apply(first.clone());
    assert!(!desk.queue.fits(&first));
    let second = desk.queue.decide_receive(desk.now(), span(9)).unwrap().unwrap();
    desk.apply(second);
    assert!(!desk.queue.fits(&first), "D5");
}

#[test]
fn slots_and_sequence_numbers_out_of_range_do_not_fit() {
    let queue = Queue::new(Rules::default().policy(), 0);
    assert!(!queue.fits(&sent(u32::MAX, 0)));
    assert!(!queue.fits(&sent(0, u64::MAX)));
    let at = Time::ZERO;
    assert!(!queue.fits(&Event::Opened { at, epoch: LeaseId::MAX_EPOCH + 1 }));
}

/// A journal that rewrites old segments may give back deliveries in another order than that of the
/// line. Undoing one of them must not leave a message with two places.
#[test]
fn deliveries_out_of_turn_can_be_undone() {
    let mut queue = Queue::new(Rules::default().policy(), 0);
    for seq in 0..3 {
        drop(queue.apply(sent(u32::try_from(seq).unwrap(), seq)));
    }
    let (at, due) = (Time::ZERO, Time::ZERO.after(span(9)));
    let key = Key { seq: 1, slot: 1 };
    let lease = LeaseId::first_of(0);
    drop(queue.apply(Event::Delivered { key, lease, at, due, hold_until: Time::MAX }));
    drop(queue.apply(Event::Returned { key, at }));
    queue.assert_invariants();
    let mut order = Vec::new();
    while let Some(event) = queue.decide_receive(at, span(9)).unwrap() {
        order.extend(event.key().map(|key| key.seq));
        drop(queue.apply(event));
        queue.assert_invariants();
    }
    assert_eq!(order, [0, 2, 1]);
}

#[test]
fn the_seed_of_the_hash_tables_decides_nothing() {
    let mut queues = [1, 2, 3].map(|seed| Queue::new(Rules::default().policy(), seed));
    for queue in &mut queues {
        for seq in 0..600 {
            let Event::Sent { key, id, at, due, payload, .. } =
                sent(u32::try_from(seq).unwrap(), seq)
            else {
                unreachable!("it is a Sent");
            };
            let group = Some(format!("g{}", seq % 50).into());
            drop(queue.apply(Event::Sent { key, id, at, due, group, idempotency: None, payload }));
        }
        while let Some(event) = queue.decide_receive(Time::ZERO, span(9)).unwrap() {
            drop(queue.apply(event));
        }
    }
    assert_eq!(queues[0].snapshot(), queues[1].snapshot());
    assert_eq!(queues[1].snapshot(), queues[2].snapshot());
}
