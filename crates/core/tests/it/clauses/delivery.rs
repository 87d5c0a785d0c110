//! Deliveries: order, deadlines, receipts, what may be in flight (D, V, L1).

use mailbox_core::{Event, LateSettle, LeaseId, Phase, Refusal, Stale, Time};

use super::Desk;
use crate::rules::{Rules, span, time};

const EXPIRED: Result<(), Refusal> = Err(Refusal::Stale(Stale::Expired));
const SUPERSEDED: Result<(), Refusal> = Err(Refusal::Stale(Stale::Superseded));

#[test]
fn with_zero_visibility_a_message_is_handed_out_and_receivable_again_at_once() {
    let mut desk = Desk::new(&Rules::default());
    desk.send("a");
    desk.send("b");
    let first = desk.receive(0);
    assert_eq!((first.name, first.count), ("a", 1));
    assert_eq!(desk.queue.stats(desk.now()).invisible, 0);
    assert_eq!(desk.acknowledge(&first), EXPIRED, "its deadline is now");
    assert_eq!(desk.receive(0).name, "b", "D7: it went behind those already waiting");
    let again = desk.receive(0);
    assert_eq!((again.name, again.count), ("a", 2));
}

#[test]
fn at_the_deadline_and_not_before_a_message_is_receivable_again() {
    let mut desk = Desk::new(&Rules::default());
    desk.send("a");
    let first = desk.receive(5);
    let just_before = Time::from_nanos(time(5).as_nanos() - 1);
    assert!(!desk.queue.is_receivable(just_before));
    desk.tick = 5;
    assert_eq!(desk.acknowledge(&first), EXPIRED);
    let second = desk.receive(5);
    assert_ne!(first.receipt, second.receipt, "V2: a new receipt");
    assert_eq!(desk.acknowledge(&first), SUPERSEDED);
    assert_eq!(desk.acknowledge(&second), Ok(()));
    assert_eq!(desk.acknowledge(&second), SUPERSEDED, "settled once is settled");
}

#[test]
fn nacked_and_expired_messages_go_behind_those_already_waiting() {
    let mut desk = Desk::new(&Rules::default());
    for name in ["nacked", "expired", "waiting"] {
        desk.send(name);
    }
    let nacked = desk.receive(9);
    let _expired = desk.receive(3);
    desk.tick = 2;
    desk.nack(&nacked, 0);
    desk.tick = 4;
    desk.send("late");
    assert_eq!(desk.receive_all(), ["waiting", "nacked", "expired", "late"]);
}

/// The place of an undone delivery once depended on when the message was sent, with ties broken the
/// wrong way: of two messages sent in the same instant the undone first came second.
#[test]
fn an_undone_delivery_comes_back_before_everything_that_was_behind_it() {
    let mut desk = Desk::new(&Rules::default());
    for name in ["a", "b", "c"] {
        desk.send(name);
    }
    let undone = desk.receive(9);
    desk.undo(&undone);
    assert_eq!(desk.acknowledge(&undone), SUPERSEDED);
    assert_eq!(desk.receive_all(), ["a", "b", "c"]);
}

#[test]
fn undone_deliveries_come_back_in_their_old_order_whatever_the_order_of_undoing() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut desk = Desk::new(&Rules::default());
        desk.send_delayed("late", 2);
        desk.tick = 1;
        desk.send("early");
        desk.tick = 3;
        desk.send("last");
        desk.send("bystander");
        let deliveries = [desk.receive(9), desk.receive(9), desk.receive(9)];
        for index in order {
            desk.undo(&deliveries[index]);
        }
        assert_eq!(desk.receive_all(), ["early", "late", "last", "bystander"], "{order:?}");
    }
}

#[test]
fn an_undone_delivery_does_not_count_as_one() {
    let mut desk = Desk::new(&Rules { max_attempts: Some(1), ..Rules::default() });
    desk.send("a");
    for _ in 0..5 {
        let delivery = desk.receive(9);
        assert_eq!(delivery.count, 1, "D3");
        desk.undo(&delivery);
    }
    assert_eq!(desk.queue.stats(desk.now()).totals.redelivered, 0);
}

#[test]
fn lease_ids_are_never_used_again_after_an_open() {
    let mut desk = Desk::new(&Rules::default());
    desk.send("a");
    let mut last = desk.receive(0).receipt.lease;
    for epoch in 1..5 {
        let opened = desk.queue.decide_open(desk.now());
        // A crash before anything else was written: the same epoch is never opened twice.
        assert!(matches!(opened, Event::Opened { epoch: next, .. } if next == epoch));
        desk.apply(opened);
        let lease = desk.receive(0).receipt.lease;
        assert!(lease > last && lease == LeaseId::first_of(epoch), "V3");
        last = lease;
    }
}

#[test]
fn a_lease_holds_over_an_open_and_its_receipt_still_settles_it() {
    let mut desk = Desk::new(&Rules::default());
    desk.send("a");
    let delivery = desk.receive(5);
    desk.apply(desk.queue.decide_open(desk.now()));
    assert!(desk.is_idle(), "V7");
    assert_eq!(desk.acknowledge(&delivery), Ok(()));
}

#[test]
fn only_unexpired_leases_count_as_in_flight() {
    let mut desk = Desk::new(&Rules { max_in_flight: 2, ..Rules::default() });
    for name in ["a", "b", "c", "d"] {
        desk.send(name);
    }
    desk.receive(3);
    desk.receive(5);
    let refused = desk.try_receive(5).unwrap_err();
    let hint = span(3);
    assert_eq!(refused, Refusal::TooManyInFlight { max_in_flight: 2, retry_after: hint });
    assert_eq!(desk.receive(0).name, "c", "a delivery of no length is never in flight");
    desk.tick = 3;
    assert_eq!(desk.receive(5).name, "d", "the first lease is over, if nobody has it again");
    assert!(matches!(desk.try_receive(5), Err(Refusal::TooManyInFlight { .. })));
}

#[test]
fn the_in_flight_bound_does_not_keep_dead_letters_from_dying() {
    let mut desk =
        Desk::new(&Rules { max_in_flight: 1, max_attempts: Some(1), ..Rules::default() });
    desk.send("spent");
    desk.send("busy");
    let spent = desk.receive(5);
    desk.nack(&spent, 0);
    assert_eq!(desk.receive(5).name, "busy");
    assert_eq!(desk.try_receive(5).unwrap().map(|delivery| delivery.name), None);
    assert_eq!(desk.queue.stats(desk.now()).dead, 1);
}

#[test]
fn a_delivery_cannot_be_held_longer_than_retention_allows() {
    let mut desk = Desk::new(&Rules { in_flight_factor: Some(3), ..Rules::default() });
    desk.send("a");
    let delivery = desk.receive(4);
    desk.tick = 3;
    let refused = Err(Refusal::HeldTooLong { at_most: span(9) });
    assert_eq!(desk.extend(&delivery, 10), refused, "X5");
    assert_eq!(desk.extend(&delivery, 9), Ok(()));
    desk.tick = 11;
    assert_eq!(desk.extend(&delivery, 2), Err(Refusal::HeldTooLong { at_most: span(1) }));
    assert_eq!(desk.acknowledge(&delivery), Ok(()), "a refused extension changes nothing");
}

#[test]
fn an_extension_sets_the_deadline_from_now_and_may_shorten_it() {
    let mut desk = Desk::new(&Rules::default());
    desk.send("a");
    let delivery = desk.receive(10);
    desk.tick = 1;
    assert_eq!(desk.extend(&delivery, 2), Ok(()));
    assert_eq!(desk.queue.next_due(), Some(time(3)), "V5");
    assert_eq!(desk.extend(&delivery, 0), Ok(()));
    assert_eq!(desk.receive(10).count, 2);
}

#[test]
fn a_late_settle_counts_until_redelivery_if_the_policy_says_so() {
    let mut desk = Desk::new(&Rules { late: true, ..Rules::default() });
    desk.send("a");
    desk.send("b");
    let (a, b) = (desk.receive(1), desk.receive(1));
    desk.tick = 7;
    assert_eq!(desk.acknowledge(&a), Ok(()));
    let again = desk.receive(9);
    assert_eq!(again.name, "b");
    assert_eq!(desk.acknowledge(&b), SUPERSEDED);

    desk.configure(|policy| policy.late_settle = LateSettle::Refuse);
    desk.tick = 16;
    assert_eq!(desk.acknowledge(&again), EXPIRED);
}

#[test]
fn a_clock_that_steps_back_is_not_followed() {
    let mut desk = Desk::new(&Rules::default());
    desk.tick = 100;
    desk.send("a");
    let delivery = desk.receive(5);
    desk.tick = 10;
    assert_eq!(desk.extend(&delivery, 5), Ok(()));
    assert_eq!(desk.queue.next_due(), Some(time(105)), "V6: from the latest time seen");
    desk.send("b");
    let ages: Vec<_> = desk.queue.iter_live(desk.now()).map(|view| view.entered).collect();
    assert_eq!(ages, [time(100), time(100)]);
    desk.tick = 104;
    assert_eq!(desk.receive_all(), ["b"]);
    desk.tick = 105;
    assert_eq!(desk.receive_all(), ["a"]);
}

#[test]
fn a_purge_removes_what_is_in_flight_too_and_its_receipts_are_stale() {
    let mut desk = Desk::new(&Rules::default());
    desk.send("ready");
    desk.send_delayed("delayed", 5);
    let delivery = desk.receive(5);
    assert_eq!(desk.purge(), 2, "M1");
    assert_eq!(desk.acknowledge(&delivery), SUPERSEDED);
    desk.send("new");
    assert_eq!(desk.queue.next_key().seq, 3, "sequence numbers go on");
    assert_eq!(desk.acknowledge(&delivery), SUPERSEDED, "though the slot is used again");
    assert_eq!(desk.receive_all(), ["new"]);
}

#[test]
fn a_message_shows_where_it_is_in_its_life() {
    let mut desk = Desk::new(&Rules::default());
    desk.send_delayed("a", 2);
    let phase = |desk: &Desk| desk.queue.iter_live(desk.now()).next().unwrap().phase;
    assert_eq!(phase(&desk), Phase::Delayed);
    desk.tick = 2;
    assert_eq!(phase(&desk), Phase::Ready);
    let delivery = desk.receive(2);
    assert_eq!(phase(&desk), Phase::Invisible);
    desk.nack(&delivery, 1);
    assert_eq!(phase(&desk), Phase::Delayed);
    desk.tick = 3;
    let delivery = desk.receive(2);
    desk.tick = 5;
    assert_eq!(phase(&desk), Phase::Ready);
    assert_eq!(desk.queue.get(desk.now(), delivery.receipt.key).unwrap().phase, Phase::Ready);
}
