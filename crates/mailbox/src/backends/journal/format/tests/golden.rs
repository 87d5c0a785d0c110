//! Every layout, byte for byte. The bytes were worked out from the tables in the documentation by
//! another program, so that a mistake made twice the same way is less likely.

use std::time::Duration;

use bytes::Bytes;
use mailbox_core::{
    DeadReason, Event, Fingerprint, Id, Idempotency, Key, LateSettle, Policy, Retention,
};

use super::*;
use crate::backends::journal::format::event::{
    decode_event, decode_kept, encode_event, encode_kept, key_of,
};
use crate::backends::journal::format::fact::{Anchor, Head, Opened, Room, Sealed, Trimmed};
use crate::backends::journal::format::index::{IndexHead, IndexReader, IndexWriter, Item};
use crate::backends::journal::format::letter::{
    EncodedLetter, LetterParts, decode_letter, encode_letter,
};
use crate::backends::journal::format::meta::Meta;
use crate::backends::journal::format::record::{
    Kind, RecordHead, append, append_head, mark_last, read, record_len,
};
use crate::backends::journal::format::segment::SegmentHeader;

const LETTER: &str = "
    404142434445464748494a4b4c4d4e4f 505152535455565758595a5b5c5d5e5f
    7b68e5cf8b010000 05000000 0200 ffff 0100 0200  7265 67
    0100 0100 61 31  0200 0000 6262  68656c6c6f";

fn encoded(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

#[test]
fn meta_has_this_layout() {
    let meta =
        Meta { journal: journal_id(), secret: hash(), shards: 3, created_ms: 1_700_000_000_123 };
    let bytes = hex("4d42584d45544100 01000000 0300 0000 101112131415161718191a1b1c1d1e1f
        404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f
        7b68e5cf8b010000 b033595c");
    assert_eq!(meta.encode(), bytes);
    assert_eq!(Meta::decode(&bytes), Ok(meta.clone()));
    let shown = format!("{meta:?}");
    assert!(!shown.contains("secret") && !shown.contains("64, 65, 66"), "{shown}");
}

#[test]
fn the_header_of_a_segment_has_this_layout() {
    let header = SegmentHeader {
        journal: journal_id(),
        shard: 2,
        number: 7,
        salt: 0xA1B2_C3D4,
        len: 0x1_0000,
        created_ms: -2,
    };
    let bytes = hex("4d42584a524e4c00 01000000 956baf2a 101112131415161718191a1b1c1d1e1f
        0200 0000 07000000 d4c3b2a1 00000100 feffffffffffffff 0000000000000000");
    assert_eq!(header.encode().as_slice(), bytes);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
}

#[test]
fn a_file_of_a_later_version_is_reported_as_that_whatever_else_it_is() {
    for magic in [b"MBXMETA\0", b"MBXJRNL\0", b"MBXINDX\0"] {
        let mut bytes = magic.to_vec();
        bytes.extend_from_slice(&2_u32.to_le_bytes());
        let flaws = [
            Meta::decode(&bytes).unwrap_err(),
            SegmentHeader::decode(&bytes).unwrap_err(),
            IndexReader::new(&bytes).unwrap_err(),
        ];
        assert_eq!(flaws.iter().filter(|flaw| **flaw == Flaw::Version(2)).count(), 1);
        assert_eq!(flaws.iter().filter(|flaw| **flaw == Flaw::Magic).count(), 2);
    }
}

#[test]
fn a_record_without_letter_has_this_layout_and_can_be_marked_as_last() {
    let head = RecordHead { salt: 0xA1B2_C3D4, batch: 0x0102, lsn: 0x0304, mailbox: 9 };
    let mut fact = Vec::new();
    let event = Event::<()>::Acknowledged { key: Key { seq: 6, slot: 7 }, at: nanos(8) };
    let kind = encode_event(5, &event, &mut fact);
    let mut buffer = vec![0xEE; 8];
    append(&mut buffer, head, kind, &fact, None);
    let bytes = hex("d4c3b2a1 80c3f75e 0201000000000000 0403000000000000 09000000 12 00 1c00
        00000000 00000000  0500000000000000 0600000000000000 07000000 0800000000000000 00000000");
    assert_eq!(buffer[8..], bytes);
    assert!(!read(&bytes, head.salt).unwrap().last);

    mark_last(&mut buffer[8..]);
    let bytes = hex("d4c3b2a1 fec2097e 0201000000000000 0403000000000000 09000000 12 01 1c00
        00000000 00000000  0500000000000000 0600000000000000 07000000 0800000000000000 00000000");
    assert_eq!(buffer[8..], bytes);
    let record = read(&bytes, head.salt).unwrap();
    assert!(record.last && record.kind == Kind::Acknowledged && record.fact == fact);
    assert_eq!((record.batch, record.lsn, record.mailbox), (0x0102, 0x0304, 9));
    assert_eq!((record.letter, record.letter_crc, record.len), (&[][..], 0, 72));
}

#[test]
fn a_letter_and_a_record_with_one_have_this_layout() {
    let encoded = encode_letter(&letter(), &hash());
    assert_eq!(encoded, EncodedLetter { bytes: hex(LETTER), crc: 0x16cd_9334 });
    assert_eq!(encoded.bytes.capacity(), encoded.bytes.len());
    assert_eq!(decode_letter(Bytes::from(hex(LETTER))), Ok(letter()));

    let event = Event::Sent {
        key: Key { seq: 2, slot: 3 },
        id: Id((0x66 << 64) + 0x55),
        at: nanos(4),
        due: nanos(7),
        group: Some("g".into()),
        idempotency: None,
        payload: (),
    };
    let mut fact = Vec::new();
    assert_eq!(encode_event(1, &event, &mut fact), Kind::Sent);
    let head = RecordHead { salt: 1, batch: 1, lsn: 1, mailbox: 1 };
    let mut buffer = Vec::new();
    append(&mut buffer, head, Kind::Sent, &fact, Some(&encoded));
    let bytes = hex(&format!(
        "01000000 1d03deed 0100000000000000 0100000000000000 01000000 10 00
        3c00 48000000 3493cd16
        0100000000000000 0200000000000000 03000000 0400000000000000
        55000000000000006600000000000000 0700000000000000 0000000000000000 {LETTER} 00000000"
    ));
    assert_eq!(buffer, bytes);
    assert_eq!(buffer.len(), record_len(fact.len(), encoded.bytes.len()));

    let record = read(&bytes, 1).unwrap();
    let parts = LetterParts::parse(record.letter).unwrap();
    let (stamp, read) = decode_event(record.kind, record.fact, Some(&parts), ()).unwrap();
    assert_eq!((stamp, format!("{read:?}")), (1, format!("{event:?}")));

    let mut parts = Vec::new();
    append_head(&mut parts, head, Kind::Sent, &fact, Some(&encoded));
    assert_eq!(parts, bytes[..40 + fact.len()]);
}

#[test]
fn a_payload_is_a_slice_and_not_a_copy_and_is_verified_against_its_hash() {
    let letter = letter();
    let encoded = encode_letter(&letter, blake3::hash(&letter.payload).as_bytes());
    let bytes = Bytes::from(encoded.bytes);
    let decoded = decode_letter(bytes.clone()).unwrap();
    assert_eq!(decoded.payload.as_ptr(), bytes[bytes.len() - 5..].as_ptr());
    assert!(LetterParts::parse(&bytes).unwrap().verify());
    assert!(!LetterParts::parse(&hex(LETTER)).unwrap().verify());
}

#[test]
fn facts_about_the_log_have_these_layouts() {
    let anchor = Anchor { time: nanos(1), boot: journal_id(), at: 2 };
    let anchor_bytes = "0100000000000000 101112131415161718191a1b1c1d1e1f 0200000000000000";
    let opened = Opened { epoch: 6, next_mailbox: 7, synced: true, anchor };
    let head = Head { previous: 3, previous_lsn: 4, first_segment: 5, opened };
    let bytes =
        hex(&format!("03000000 0400000000000000 05000000 06000000 07000000 01 {anchor_bytes}"));
    assert_eq!(encoded(|out| head.encode(out)), bytes);
    assert_eq!(Head::decode(&bytes), Ok(head));

    let opened = Opened { epoch: 8, next_mailbox: 9, synced: false, anchor };
    let bytes = hex(&format!("08000000 09000000 00 {anchor_bytes}"));
    assert_eq!(encoded(|out| opened.encode(out)), bytes);
    assert_eq!(Opened::decode(&bytes), Ok(opened));

    let sealed = Sealed { records: 0x0102 };
    assert_eq!(encoded(|out| sealed.encode(out)), hex("0201000000000000"));
    assert_eq!(Sealed::decode(&hex("0201000000000000")), Ok(sealed));

    let trimmed = Trimmed { first_segment: 10 };
    assert_eq!(encoded(|out| trimmed.encode(out)), hex("0a000000"));
    assert_eq!(Trimmed::decode(&hex("0a000000")), Ok(trimmed));
}

/// Rules with everything set, and their bytes.
fn rules() -> (Policy, &'static str) {
    let policy = Policy {
        max_size: Some(2),
        max_in_flight: 3,
        max_attempts: Some(1),
        replay_window: Duration::from_nanos(4),
        dedup_capacity: 5,
        late_settle: LateSettle::UntilRedelivered,
        retention: Retention {
            ready_age: Some(Duration::from_nanos(6)),
            ready_count: Some(7),
            in_flight_factor: Some(10),
            dead_age: Some(Duration::from_nanos(8)),
            dead_count: Some(9),
        },
    };
    let bytes = "7f00 01 00 01000000 0200000000000000 0300000000000000 0400000000000000
        0500000000000000 0600000000000000 0700000000000000 0800000000000000 0900000000000000
        0a000000";
    (policy, bytes)
}

#[test]
fn a_room_has_this_layout() {
    let (policy, rules) = rules();
    let room = Room { name: "jobs".to_owned(), standing: Standing { policy, ..standing() } };
    let bytes = hex(&format!(
        "0400 6a6f6273 {rules} 0b00000000000000 0c00000000000000
        0000000000010000 0d00000000000000  0100000000000000 0200000000000000 0300000000000000
        0400000000000000 0500000000000000 0600000000000000 0700000000000000 0800000000000000
        0900000000000000"
    ));
    assert_eq!(encoded(|out| room.encode(out)), bytes);
    assert_eq!(Room::decode(&bytes), Ok(room));
}

#[test]
fn every_event_has_this_layout() {
    let (key, at, due) = (Key { seq: 2, slot: 3 }, nanos(4), nanos(5));
    let start = "0100000000000000 0200000000000000 03000000 0400000000000000";
    let (policy, rules) = rules();
    let idempotency =
        Idempotency { key: "k".into(), fingerprint: Fingerprint(hash()), expires: nanos(6) };
    let (lease, hold_until) = (lease((1 << 40) + 6), nanos(7));
    let error = || Some("no".into());
    let reason = DeadReason::Decode;
    let id = Id((1 << 64) + 9);
    let (group, idempotency) = (None, Some(Box::new(idempotency)));
    let cases = [
        (
            Event::Sent { key, id, at, due, group, idempotency, payload: () },
            format!("{start} 09000000000000000100000000000000 0500000000000000 0600000000000000"),
        ),
        (
            Event::Delivered { key, lease, at, due, hold_until },
            format!("{start} 0600000000010000 0500000000000000 0700000000000000"),
        ),
        (Event::Acknowledged { key, at }, start.to_owned()),
        (
            Event::Nacked { key, at, due, error: error() },
            format!("{start} 0500000000000000 0200 6e6f"),
        ),
        (Event::Extended { key, at, due }, format!("{start} 0500000000000000")),
        (Event::Returned { key, at }, start.to_owned()),
        (Event::DeadLettered { key, at, reason, error: None }, format!("{start} 05 ffff")),
        (Event::Redriven { key, at }, start.to_owned()),
        (Event::Discarded { key, at, by_retention: true }, format!("{start} 01")),
        (Event::Purged { at }, "0100000000000000 0400000000000000".to_owned()),
        (
            Event::Configured { at, policy: Box::new(policy) },
            format!("0100000000000000 0400000000000000 {rules}"),
        ),
    ];
    let sender = Letter { idempotency_key: Some("k".to_owned()), group: None, ..letter() };
    let letter_bytes = encode_letter(&sender, &hash()).bytes;
    let parts = LetterParts::parse(&letter_bytes).unwrap();
    for ((event, bytes), number) in cases.iter().zip(16..) {
        let mut fact = Vec::new();
        let kind = encode_event(1, event, &mut fact);
        assert_eq!((kind.number(), &fact), (number, &hex(bytes)), "{event:?}");
        let (stamp, read) = decode_event(kind, &fact, Some(&parts), ()).unwrap();
        assert_eq!((stamp, format!("{read:?}")), (1, format!("{event:?}")));
        let found = event.key().map(|key| (key.seq, key.slot));
        assert_eq!(key_of(kind, &fact).ok(), found);
    }
}

#[test]
fn a_kept_message_and_a_remembered_key_have_these_layouts() {
    let kept = full(());
    let bytes = hex("0600000000000000 0100000000000000 02000000 0700000000000000
        03000000000000000400000000000000 0500000000000000 1400000000000000 1200000000000000
        0f00000000000000 1000000000000000 0e00000000000000 0100000000010000 02000000
        03 1100000000000000 0300 626164");
    assert_eq!(encoded(|out| encode_kept(&kept, Some(nanos(20)), out)), bytes);
    let sender = Letter { idempotency_key: Some("k".to_owned()), ..letter() };
    let letter_bytes = encode_letter(&sender, &hash()).bytes;
    let parts = LetterParts::parse(&letter_bytes).unwrap();
    assert_eq!(decode_kept(&bytes, &parts, ()), Ok((kept, Some(nanos(20)))));
    assert_eq!(key_of(Kind::Kept, &bytes), Ok((1, 2)));

    let bytes = hex("01000000000000000000000000000000 1300000000000000
        404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f 0100 6b");
    assert_eq!(encoded(|out| remembered().encode(out)), bytes);
    assert_eq!(Remembered::decode(&bytes), Ok(remembered()));
}

#[test]
fn an_index_has_this_layout() {
    let head = IndexHead {
        journal: journal_id(),
        shard: 2,
        segment: 7,
        end: 0x2000,
        last_lsn: 99,
        last_batch: 50,
        first_segment: 3,
        rooms: 1,
    };
    let bytes = hex("
        4d4258494e445800 01000000 d3cc1652 101112131415161718191a1b1c1d1e1f
        0200 0000 07000000 00200000 03000000 6300000000000000 3200000000000000 01000000 00000000
        d8010000 ddeb1ab0
        04000000 0100000000000000 0100000000000000 0100000000000000 0200 696e
        0000 00 00 00000000 0000000000000000 0000100000000000 00b864d945000000
        0000100000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000
        00000000 0b00000000000000 0c00000000000000 0000000000010000 0d00000000000000
        0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000
        0600000000000000 0700000000000000 0800000000000000 0900000000000000
        0100000000000000 02000000 00000000 03000000000000000400000000000000 0500000000000000
        0600000000000000 0700000000000000 08000000 09000000 0a000000 00000000
        0100000000000000 02000000 1f000000 03000000000000000400000000000000 0500000000000000
        0600000000000000 0700000000000000 08000000 09000000 0a000000 02000000
        0100000000010000 0e00000000000000 0f00000000000000 1000000000000000
        0100 67  0300 626164  03 1100000000000000  1200000000000000
        01000000000000000000000000000000 1300000000000000
        404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f 0100 6b
        20000000 ee21f6b3
        0100000000000000 0100000000000000 0100000000000000 0100000000000000");
    let mut writer = IndexWriter::new(&head);
    writer.room(4, "in", &standing(), 1, 1, 1);
    writer.message(&fresh(PLACE));
    writer.message(&full(PLACE));
    writer.key(&remembered());
    assert_eq!(writer.finish(), bytes);

    let (mut reader, read_head) = IndexReader::new(&bytes).unwrap();
    assert_eq!(read_head, head);
    let room = Item::Room {
        number: 4,
        name: "in".to_owned(),
        standing: standing(),
        live: 1,
        dead: 1,
        keys: 1,
    };
    let (first, second) = (Item::Message(fresh(PLACE)), Item::Message(full(PLACE)));
    for item in [room, first, second, Item::Key(remembered())] {
        assert_eq!(reader.next(), Ok(Some(item)));
    }
    assert_eq!((reader.next(), reader.next()), (Ok(None), Ok(None)));
}

#[test]
fn every_kind_has_its_number_and_no_other_number_has_a_kind() {
    let known: Vec<u8> =
        (0..=u8::MAX).filter(|number| Kind::from_number(*number).is_some()).collect();
    assert_eq!(known, (1..=7).chain(16..=26).chain(32..=33).collect::<Vec<u8>>());
    assert_eq!(known, Kind::ALL.map(Kind::number));
    for kind in Kind::ALL {
        assert_eq!(Kind::from_number(kind.number()), Some(kind));
    }
    let mut names = Kind::ALL.map(Kind::as_str).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Kind::ALL.len());
}
