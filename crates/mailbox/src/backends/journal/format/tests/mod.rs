//! Tests of the format: bytes that were worked out by hand, random round trips, hostile bytes, and
//! segments that end in every way.

mod golden;
mod hostile;
mod round_trips;
mod scanning;

use std::time::Duration;

use bytes::Bytes;
use mailbox_core::{
    DeadReason, Fingerprint, Id, Keepsake, Key, LateSettle, LeaseId, Policy, Retention, Standing,
    Time, Totals,
};
use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;

use super::event::Remembered;
use super::{Flaw, Place};
use crate::backend::Letter;
use crate::timestamp::Timestamp;

/// Bytes from hexadecimal digits; white space does not count.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|letter| !letter.is_whitespace())
        .map(|letter| letter.to_digit(16).unwrap() as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2));
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn journal_id() -> [u8; 16] {
    std::array::from_fn(|index| 0x10 + index as u8)
}

fn hash() -> [u8; 32] {
    std::array::from_fn(|index| 0x40 + index as u8)
}

fn nanos(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn lease(bits: u64) -> LeaseId {
    LeaseId::from_bits(bits).unwrap()
}

fn letter() -> Letter<Bytes> {
    let attributes = [("a", "1"), ("bb", "")];
    Letter {
        payload: Bytes::from_static(b"hello"),
        attributes: attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        reply_to: Some("re".to_owned()),
        idempotency_key: None,
        group: Some("g".to_owned()),
        enqueued_at: Timestamp::from_unix_millis(1_700_000_000_123),
    }
}

fn standing() -> Standing {
    Standing {
        policy: Policy::default(),
        next_seq: 11,
        next_stamp: 12,
        next_lease: LeaseId::first_of(0),
        latest: nanos(13),
        totals: Totals {
            sent: 1,
            delivered: 2,
            redelivered: 3,
            timed_out: 4,
            acknowledged: 5,
            dead_lettered: 6,
            redriven: 7,
            purged: 8,
            retention_dropped: 9,
        },
    }
}

/// A message that was never delivered.
fn fresh<P>(payload: P) -> Keepsake<P> {
    Keepsake {
        key: Key { seq: 1, slot: 2 },
        id: Id((4 << 64) + 3),
        payload,
        due: nanos(5),
        stamp: 6,
        turn: (nanos(5), 0),
        entered: nanos(7),
        order: 6,
        hold_until: Time::MAX,
        lease: None,
        attempts: 0,
        group: None,
        last_error: None,
        death: None,
    }
}

/// A dead letter that has everything a message can have.
fn full<P>(payload: P) -> Keepsake<P> {
    Keepsake {
        turn: (nanos(15), 16),
        order: 18,
        hold_until: nanos(14),
        lease: Some(lease((1 << 40) + 1)),
        attempts: 2,
        group: Some("g".into()),
        last_error: Some("bad".into()),
        death: Some((DeadReason::Rejected, nanos(17))),
        ..fresh(payload)
    }
}

const PLACE: Place = Place { segment: 8, offset: 9, len: 10 };

fn remembered() -> Remembered {
    Remembered { id: Id(1), key: "k".into(), fingerprint: Fingerprint(hash()), expires: nanos(19) }
}

fn times() -> impl Strategy<Value = Time> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>()].prop_map(nanos)
}

fn durations() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_nanos)
}

fn leases() -> impl Strategy<Value = LeaseId> {
    (1_u64 << 40..).prop_map(lease)
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![".{0,12}", Just("ß".repeat(4096)), Just(String::new())]
}

fn reasons() -> impl Strategy<Value = DeadReason> {
    (0..DeadReason::ALL.len()).prop_map(|index| DeadReason::ALL[index])
}

fn letters() -> impl Strategy<Value = Letter<Bytes>> {
    let attributes = btree_map(".{0,8}", ".{0,8}", 0..5);
    let text = || option::of(".{0,8}");
    let payload = any::<Vec<u8>>();
    (payload, attributes, text(), text(), text(), any::<i64>()).prop_map(
        |(payload, attributes, reply_to, idempotency_key, group, millis)| Letter {
            payload: payload.into(),
            attributes,
            reply_to,
            idempotency_key,
            group,
            enqueued_at: Timestamp::from_unix_millis(millis),
        },
    )
}

fn policies() -> impl Strategy<Value = Policy> {
    let counts = (any::<[u64; 2]>(), any::<bool>(), durations(), option::of(any::<u64>()));
    let retention = (
        option::of(durations()),
        option::of(any::<u64>()),
        option::of(any::<u32>()),
        option::of(durations()),
        option::of(any::<u64>()),
    );
    (counts, option::of(any::<u32>()), retention).prop_map(|(counts, max_attempts, kept)| {
        let ([max_in_flight, dedup_capacity], late, replay_window, max_size) = counts;
        let (ready_age, ready_count, in_flight_factor, dead_age, dead_count) = kept;
        Policy {
            max_size,
            max_in_flight,
            max_attempts,
            replay_window,
            dedup_capacity: dedup_capacity as usize,
            late_settle: if late { LateSettle::UntilRedelivered } else { LateSettle::Refuse },
            retention: Retention { ready_age, ready_count, in_flight_factor, dead_age, dead_count },
        }
    })
}

fn standings() -> impl Strategy<Value = Standing> {
    (policies(), any::<[u64; 11]>(), leases(), times()).prop_map(
        |(policy, numbers, next_lease, latest)| {
            let [next_seq, next_stamp, sent, delivered, redelivered, ..] = numbers;
            let [.., timed_out, acknowledged, dead_lettered, redriven, purged, dropped] = numbers;
            let totals = Totals {
                sent,
                delivered,
                redelivered,
                timed_out,
                acknowledged,
                dead_lettered,
                redriven,
                purged,
                retention_dropped: dropped,
            };
            Standing { policy, next_seq, next_stamp, next_lease, latest, totals }
        },
    )
}

fn keepsakes() -> impl Strategy<Value = Keepsake<Place>> {
    let numbers = (any::<[u64; 4]>(), any::<[u32; 5]>(), any::<u128>());
    let when = (times(), times(), times(), times());
    let rest = (option::of(leases()), option::of(texts()), option::of((reasons(), times())));
    (numbers, when, rest, option::of(".{0,8}"), any::<bool>()).prop_map(
        |(([seq, stamp, turn, order], small, id), when, rest, group, is_fresh)| {
            let [slot, segment, offset, len, attempts] = small;
            let (due, entered, hold_until, turn_due) = when;
            let (lease, last_error, death) = rest;
            let keepsake = Keepsake {
                key: Key { seq, slot },
                id: Id(id),
                payload: Place { segment, offset, len },
                due,
                stamp,
                turn: (turn_due, turn),
                entered,
                order,
                hold_until,
                lease,
                attempts,
                group: group.map(Into::into),
                last_error: last_error.map(Into::into),
                death,
            };
            if is_fresh {
                let turn = (due, 0);
                Keepsake { turn, order: stamp, hold_until: Time::MAX, lease: None, ..keepsake }
            } else {
                keepsake
            }
        },
    )
}

fn remembereds() -> impl Strategy<Value = Remembered> {
    (any::<u128>(), ".{0,20}", any::<[u8; 32]>(), times()).prop_map(
        |(id, key, fingerprint, expires)| Remembered {
            id: Id(id),
            key: key.into(),
            fingerprint: Fingerprint(fingerprint),
            expires,
        },
    )
}

#[test]
fn a_flaw_reads_well_behind_a_file_and_an_offset() {
    let shown = |flaw: Flaw| format!("FILE at 4096: {flaw}");
    assert_eq!(
        shown(Flaw::Version(7)),
        "FILE at 4096: format version 7, of which only 1 is understood"
    );
    assert_eq!(shown(Flaw::Kind(99)), "FILE at 4096: a record of the unknown kind 99");
    assert_eq!(shown(Flaw::Field("lease")), "FILE at 4096: an impossible value as lease");
}

#[test]
fn debug_output_shows_no_payload() {
    let encoded = super::letter::encode_letter(&letter(), &hash());
    let parts = super::letter::LetterParts::parse(&encoded.bytes).unwrap();
    let shown = format!("{encoded:?} {parts:?}");
    let hidden = format!("{:?}", b"hello");
    assert!(!shown.contains("hello") && !shown.contains(hidden.trim_matches(['[', ']'])));
}
