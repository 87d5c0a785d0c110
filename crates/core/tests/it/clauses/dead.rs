//! Dead letters and retention (X).

use mailbox_core::{DeadReason, Refusal};

use super::Desk;
use crate::rules::{Rules, span, time};

fn graveyard(desk: &Desk) -> Vec<(&'static str, DeadReason)> {
    let dead = desk.queue.iter_dead(desk.now());
    dead.map(|view| (*view.payload, view.dead.unwrap().reason)).collect()
}

#[test]
fn a_message_dies_instead_of_being_delivered_once_too_often() {
    let mut desk = Desk::new(&Rules { max_attempts: Some(2), ..Rules::default() });
    desk.send("a");
    for count in 1..=2 {
        let delivery = desk.receive(3);
        assert_eq!(delivery.count, count);
        assert_eq!(desk.queue.stats(desk.now()).dead, 0, "X1: the last attempt counts");
        desk.tick += 3;
    }
    assert!(desk.try_receive(3).unwrap().is_none());
    assert_eq!(graveyard(&desk), [("a", DeadReason::MaxAttempts)]);
    let view = desk.queue.iter_dead(desk.now()).next().unwrap();
    assert_eq!((view.attempts, view.dead.unwrap().at), (2, time(6)));
    assert_eq!(desk.queue.stats(desk.now()).totals.timed_out, 2);
}

#[test]
fn a_dead_letter_keeps_what_its_consumer_said_last() {
    let mut desk = Desk::new(&Rules::default());
    desk.send("a");
    let delivery = desk.receive(3);
    desk.reject(&delivery, "cannot be read");
    let view = desk.queue.iter_dead(desk.now()).next().unwrap();
    assert_eq!(view.last_error, Some("cannot be read"));
    desk.redrive(&delivery).unwrap();
    let view = desk.queue.iter_live(desk.now()).next().unwrap();
    assert_eq!((view.last_error, view.attempts), (None, 0), "X3: it starts anew");
    assert_eq!(desk.redrive(&delivery), Err(Refusal::NotDead));
}

#[test]
fn a_full_queue_takes_no_dead_letter_back() {
    let mut desk = Desk::new(&Rules { max_size: Some(1), ..Rules::default() });
    desk.send("a");
    let dead = desk.receive(3);
    desk.reject(&dead, "bad");
    desk.send("b");
    assert_eq!(desk.redrive(&dead), Err(Refusal::Full { max_size: 1 }), "M4");
    assert_eq!(graveyard(&desk), [("a", DeadReason::Rejected)]);
}

#[test]
fn a_purge_leaves_dead_letters() {
    let mut desk = Desk::new(&Rules::default());
    desk.send("dead");
    let dead = desk.receive(3);
    desk.reject(&dead, "bad");
    desk.send("live");
    assert_eq!(desk.purge(), 1);
    assert_eq!(graveyard(&desk), [("dead", DeadReason::Rejected)]);
    desk.redrive(&dead).unwrap();
    assert_eq!(desk.receive_all(), ["dead"]);
}

#[test]
fn a_message_that_waited_too_long_dies_and_is_never_delivered() {
    let mut desk = Desk::new(&Rules { ready_age: Some(10), ..Rules::default() });
    desk.send("old");
    desk.tick = 5;
    desk.send("young");
    assert_eq!(desk.queue.next_expiry(), Some(time(10)));
    desk.tick = 10;
    assert_eq!(desk.receive_all(), ["young"], "X5: also if nobody called for retention");
    assert_eq!(graveyard(&desk), [("old", DeadReason::Expired)]);
}

#[test]
fn retention_leaves_a_message_in_flight_alone_until_its_lease_is_over() {
    let mut desk = Desk::new(&Rules { ready_age: Some(10), ..Rules::default() });
    desk.send("a");
    desk.tick = 8;
    let delivery = desk.receive(20);
    desk.tick = 12;
    desk.expire();
    assert_eq!(graveyard(&desk), []);
    assert_eq!(desk.queue.next_expiry(), Some(time(28)));
    desk.extend(&delivery, 30).unwrap();
    assert_eq!(desk.queue.next_expiry(), Some(time(42)));
    desk.tick = 42;
    desk.expire();
    assert_eq!(graveyard(&desk), [("a", DeadReason::Expired)]);
}

#[test]
fn retention_by_count_lets_the_oldest_die() {
    let mut desk = Desk::new(&Rules { ready_count: Some(2), ..Rules::default() });
    for name in ["a", "b", "c", "d"] {
        desk.send(name);
    }
    desk.expire();
    assert_eq!(graveyard(&desk), [("a", DeadReason::Expired), ("b", DeadReason::Expired)]);
    assert_eq!(desk.receive_all(), ["c", "d"]);
}

#[test]
fn dead_letters_leave_by_count_and_by_age_and_are_counted() {
    let rules = Rules { dead_count: Some(2), dead_age: Some(10), ..Rules::default() };
    let mut desk = Desk::new(&rules);
    for name in ["a", "b", "c"] {
        desk.send(name);
        let delivery = desk.receive(3);
        desk.reject(&delivery, "bad");
        desk.tick += 1;
    }
    desk.expire();
    assert_eq!(graveyard(&desk).len(), 2);
    assert_eq!(desk.queue.next_expiry(), Some(time(11)), "b died at 1");
    desk.tick = 11;
    desk.expire();
    assert_eq!(graveyard(&desk), [("c", DeadReason::Rejected)]);
    assert_eq!(desk.queue.stats(desk.now()).totals.retention_dropped, 2, "X2");
}

/// A consumer's verdict in time once counted as a timeout if it gave one of the queue's reasons.
#[test]
fn a_rejection_in_time_is_not_a_timeout_whatever_its_reason() {
    let mut desk = Desk::new(&Rules::default());
    for reason in DeadReason::ALL {
        desk.send("a");
        let delivery = desk.receive(3);
        let verdict = mailbox_core::Verdict::Reject { reason, error: None };
        desk.settle(&delivery, verdict).unwrap();
    }
    assert_eq!(desk.queue.stats(desk.now()).totals.timed_out, 0);
}

#[test]
fn the_oldest_age_is_that_of_the_oldest_live_message() {
    let mut desk = Desk::new(&Rules::default());
    assert_eq!(desk.queue.stats(desk.now()).oldest_age, None);
    desk.send("a");
    desk.tick = 4;
    desk.send("b");
    let a = desk.receive(3);
    desk.tick = 6;
    assert_eq!(desk.queue.stats(desk.now()).oldest_age, Some(span(6)));
    desk.reject(&a, "bad");
    assert_eq!(desk.queue.stats(desk.now()).oldest_age, Some(span(2)));
    desk.redrive(&a).unwrap();
    desk.purge();
    assert_eq!(desk.queue.stats(desk.now()).oldest_age, None);
}
