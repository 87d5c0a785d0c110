//! Idempotency keys (I).

use std::time::Duration;

use mailbox_core::{Id, Refusal};

use super::{Desk, Sent};
use crate::rules::{Rules, span};

const FIRST: Id = Id(1);

#[test]
fn a_key_gives_the_first_id_within_the_window_and_is_free_after_it() {
    let mut desk = Desk::new(&Rules { window: 10, ..Rules::default() });
    assert_eq!(desk.send_keyed("a", "k", 1), Ok(Sent::New(FIRST)));
    desk.tick = 9;
    assert_eq!(desk.send_keyed("a", "k", 1), Ok(Sent::Duplicate(FIRST)), "I1");
    assert_eq!(desk.send_keyed("b", "k", 2), Err(Refusal::KeyTaken { first: FIRST }), "I2");
    desk.tick = 10;
    assert_eq!(desk.send_keyed("b", "k", 2), Ok(Sent::New(Id(4))), "I2: free again");
    assert_eq!(desk.receive_all(), ["a", "b"]);
}

#[test]
fn a_key_survives_acknowledge_and_purge_and_death() {
    let mut desk = Desk::new(&Rules::default());
    for (name, key) in [("a", "k1"), ("b", "k2"), ("c", "k3")] {
        desk.send_keyed(name, key, 1).unwrap();
    }
    let (a, b) = (desk.receive(9), desk.receive(9));
    desk.acknowledge(&a).unwrap();
    desk.reject(&b, "bad");
    desk.purge();
    for (key, id) in [("k1", 1), ("k2", 2), ("k3", 3)] {
        assert_eq!(desk.send_keyed("again", key, 1), Ok(Sent::Duplicate(Id(id))));
    }
}

#[test]
fn a_duplicate_is_recognised_even_when_the_queue_is_full() {
    let mut desk = Desk::new(&Rules { max_size: Some(1), dedup_capacity: 1, ..Rules::default() });
    desk.send_keyed("a", "k", 1).unwrap();
    assert_eq!(desk.send_keyed("a", "k", 1), Ok(Sent::Duplicate(FIRST)));
    desk.configure(|policy| policy.dedup_capacity = 2);
    assert_eq!(desk.send_keyed("b", "other", 1), Err(Refusal::Full { max_size: 1 }));
    assert_eq!(desk.queue.stats(desk.now()).dedup_entries, 1, "a refused send leaves no key");
}

#[test]
fn a_full_table_says_when_to_come_back_and_forgets_nothing_early() {
    let mut desk = Desk::new(&Rules { window: 10, dedup_capacity: 2, ..Rules::default() });
    desk.send_keyed("a", "k1", 1).unwrap();
    desk.tick = 4;
    desk.send_keyed("b", "k2", 1).unwrap();
    desk.tick = 7;
    let full = Err(Refusal::DedupFull { capacity: 2, retry_after: span(3) });
    assert_eq!(desk.send_keyed("c", "k3", 1), full, "I3");
    assert_eq!(desk.send_keyed("a", "k1", 1), Ok(Sent::Duplicate(FIRST)));
    desk.send("no key needs no place");
    desk.tick = 10;
    assert!(matches!(desk.send_keyed("c", "k3", 1), Ok(Sent::New(_))), "it came back then");
    assert_eq!(desk.send_keyed("b", "k2", 1), Ok(Sent::Duplicate(Id(2))));
}

#[test]
fn a_table_without_places_refuses_for_good() {
    let mut desk = Desk::new(&Rules { dedup_capacity: 0, ..Rules::default() });
    let full = Err(Refusal::DedupFull { capacity: 0, retry_after: Duration::MAX });
    assert_eq!(desk.send_keyed("a", "k", 1), full);
}

#[test]
fn a_longer_window_does_not_change_keys_that_are_there() {
    let mut desk = Desk::new(&Rules { window: 5, ..Rules::default() });
    desk.send_keyed("a", "k1", 1).unwrap();
    desk.configure(|policy| policy.replay_window = span(50));
    desk.send_keyed("b", "k2", 1).unwrap();
    desk.tick = 5;
    assert!(matches!(desk.send_keyed("a", "k1", 1), Ok(Sent::New(_))));
    assert_eq!(desk.send_keyed("b", "k2", 1), Ok(Sent::Duplicate(Id(2))));
}

/// Keys once left in the order in which they came: after the window was made shorter an old key
/// with a long time to go kept the expired ones behind it in the table, and the table full.
#[test]
fn with_a_shorter_window_new_keys_make_room_before_old_ones() {
    let mut desk = Desk::new(&Rules { window: 50, dedup_capacity: 2, ..Rules::default() });
    desk.send_keyed("long", "k1", 1).unwrap();
    desk.configure(|policy| policy.replay_window = span(5));
    desk.send_keyed("short", "k2", 1).unwrap();
    let full = Err(Refusal::DedupFull { capacity: 2, retry_after: span(5) });
    assert_eq!(desk.send_keyed("c", "k3", 1), full);
    desk.tick = 5;
    assert!(matches!(desk.send_keyed("c", "k3", 1), Ok(Sent::New(_))));
    desk.tick = 49;
    assert_eq!(desk.send_keyed("long", "k1", 1), Ok(Sent::Duplicate(FIRST)), "I3: not early");
}

/// One expired key once made room for a new one however far the table was over its new bound.
#[test]
fn a_smaller_table_takes_no_new_key_until_it_has_shrunk() {
    let mut desk = Desk::new(&Rules { window: 10, ..Rules::default() });
    for (tick, key) in ["k0", "k1", "k2", "k3"].into_iter().enumerate() {
        desk.tick = tick as u64;
        desk.send_keyed("a", key, 1).unwrap();
    }
    desk.configure(|policy| policy.dedup_capacity = 2);
    desk.tick = 10;
    let full = Err(Refusal::DedupFull { capacity: 2, retry_after: span(2) });
    assert_eq!(desk.send_keyed("b", "k9", 1), full, "k0 is gone, k1 and k2 have to go");
    desk.tick = 12;
    assert!(matches!(desk.send_keyed("b", "k9", 1), Ok(Sent::New(_))));
    assert_eq!(desk.queue.stats(desk.now()).dedup_entries, 2);
}

#[test]
fn only_keys_that_are_remembered_are_counted() {
    let mut desk = Desk::new(&Rules { window: 10, ..Rules::default() });
    desk.send_keyed("a", "k1", 1).unwrap();
    desk.tick = 3;
    desk.send_keyed("b", "k2", 1).unwrap();
    for (tick, keys) in [(9, 2), (10, 1), (13, 0)] {
        desk.tick = tick;
        assert_eq!(desk.queue.stats(desk.now()).dedup_entries, keys);
    }
}

/// Expired keys leave a few at a time. One that is used again before it has left must not take its
/// new use with it.
#[test]
fn a_key_used_again_is_not_forgotten_with_its_first_use() {
    let mut desk = Desk::new(&Rules { window: 10, ..Rules::default() });
    for key in ["k0", "k1", "k2", "k3", "k4", "k5", "k6"] {
        desk.send_keyed("first", key, 1).unwrap();
    }
    desk.tick = 10;
    let again = desk.send_keyed("again", "k6", 1).unwrap();
    assert_eq!(again, Sent::New(Id(8)));
    desk.send_keyed("other", "k7", 1).unwrap();
    desk.send_keyed("other", "k8", 1).unwrap();
    assert_eq!(desk.send_keyed("again", "k6", 1), Ok(Sent::Duplicate(Id(8))));
}
