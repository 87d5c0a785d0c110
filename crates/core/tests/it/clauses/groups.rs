//! Ordering groups: at most one in flight, in order of sending.

use mailbox_core::{Draft, Phase};

use super::Desk;
use crate::rules::{Rules, span};

#[test]
fn only_the_head_of_a_group_is_handed_out() {
    let mut desk = Desk::new(&Rules::default());
    for (name, group) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        desk.send_to_group(name, group);
    }
    desk.send("free");
    let head = desk.receive(9);
    assert_eq!(head.name, "a1");
    assert_eq!(desk.receive_all(), ["b1", "free"]);
    desk.acknowledge(&head).unwrap();
    assert_eq!(desk.receive_all(), ["a2"]);
}

#[test]
fn a_head_nacked_with_a_delay_blocks_its_group_and_no_other() {
    let mut desk = Desk::new(&Rules::default());
    for (name, group) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        desk.send_to_group(name, group);
    }
    let head = desk.receive(9);
    desk.nack(&head, 5);
    assert_eq!(desk.receive_all(), ["b1"]);
    assert_eq!(desk.queue.next_due(), Some(crate::rules::time(5)));
    desk.tick = 5;
    let head = desk.receive(9);
    assert_eq!((head.name, head.count), ("a1", 2));
    desk.acknowledge(&head).unwrap();
    assert_eq!(desk.receive_all(), ["a2"]);
}

#[test]
fn an_expired_head_is_delivered_again_before_its_successors() {
    let mut desk = Desk::new(&Rules::default());
    desk.send_to_group("a1", "a");
    desk.send_to_group("a2", "a");
    desk.receive(3);
    desk.tick = 3;
    assert_eq!(desk.receive_all(), ["a1"]);
}

#[test]
fn an_undone_head_is_still_the_head() {
    let mut desk = Desk::new(&Rules::default());
    desk.send_to_group("a1", "a");
    desk.send_to_group("a2", "a");
    desk.send("free");
    let head = desk.receive(3);
    desk.undo(&head);
    assert_eq!(desk.receive_all(), ["a1", "free"]);
}

#[test]
fn a_head_that_dies_makes_way_for_its_successor() {
    let mut desk = Desk::new(&Rules::default());
    desk.send_to_group("a1", "a");
    desk.send_to_group("a2", "a");
    let head = desk.receive(3);
    desk.reject(&head, "bad");
    assert_eq!(desk.receive_all(), ["a2"]);
}

/// The count and the message once said different things of it.
#[test]
fn a_delay_counts_only_at_the_head_of_a_group() {
    let mut desk = Desk::new(&Rules::default());
    desk.send_to_group("a1", "a");
    let delayed = Draft { delay: span(5), group: Some("a".into()), ..desk.draft("a2") };
    desk.send_draft(delayed).unwrap();
    let phases = |desk: &Desk| -> Vec<_> {
        desk.queue.iter_live(desk.now()).map(|view| view.phase).collect()
    };
    let stats = desk.queue.stats(desk.now());
    assert_eq!((stats.ready, stats.delayed), (2, 0));
    assert_eq!(phases(&desk), [Phase::Ready, Phase::Ready]);
    let head = desk.receive(9);
    desk.acknowledge(&head).unwrap();
    assert_eq!(desk.queue.stats(desk.now()).delayed, 1);
    assert_eq!(phases(&desk), [Phase::Delayed]);
    assert!(desk.is_idle());
    desk.tick = 5;
    assert_eq!(desk.receive_all(), ["a2"]);
}

#[test]
fn a_redriven_message_goes_to_the_end_of_its_group_and_starts_at_attempt_one() {
    let mut desk = Desk::new(&Rules::default());
    desk.send_to_group("a1", "a");
    desk.send_to_group("a2", "a");
    let dead = desk.receive(9);
    desk.nack(&dead, 0);
    let dead = desk.receive(9);
    assert_eq!((dead.name, dead.count), ("a1", 2));
    desk.reject(&dead, "bad");
    desk.redrive(&dead).unwrap();
    let head = desk.receive(9);
    assert_eq!(head.name, "a2");
    assert!(desk.is_idle(), "the redriven one waits behind it");
    desk.acknowledge(&head).unwrap();
    let back = desk.receive(9);
    assert_eq!((back.name, back.count), ("a1", 1), "X3");
}

#[test]
fn a_purged_group_can_be_used_again() {
    let mut desk = Desk::new(&Rules::default());
    for _ in 0..3 {
        desk.send_to_group("old", "a");
    }
    desk.receive(9);
    assert_eq!(desk.purge(), 3);
    desk.send_to_group("new", "a");
    assert_eq!(desk.receive_all(), ["new"]);
}

/// A message that waits behind another has no place in the line. Its stamp was once that of the
/// first place ever given: if the slot had been the first message's, whose stale place was still
/// about, that became its own, and it was delivered beside the head of its group.
#[test]
fn a_message_behind_another_does_not_inherit_the_place_of_whoever_had_its_slot() {
    let rules = Rules { ready_count: Some(2), dead_count: Some(0), ..Rules::default() };
    let mut desk = Desk::new(&rules);
    desk.send_delayed("first in its slot", 3);
    desk.send_delayed("due before it", 1);
    desk.send_to_group("a1", "a");
    desk.expire();
    desk.send_to_group("a2", "a");
    assert_eq!(desk.queue.iter_live(desk.now()).last().unwrap().key.slot, 0);
    desk.tick = 5;
    assert_eq!(desk.receive_all(), ["a1", "due before it"]);
}
