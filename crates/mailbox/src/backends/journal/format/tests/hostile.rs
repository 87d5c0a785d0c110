//! Bytes that nobody wrote: cut short, changed, made up. All are refused, none is taken for
//! something else, and none makes the reader panic or ask for memory.

use bytes::Bytes;
use mailbox_core::Event;

use super::*;
use crate::backends::journal::format::event::{
    decode_event, decode_kept, encode_event, encode_kept, key_of,
};
use crate::backends::journal::format::fact::{Anchor, Head, Opened, Room, Sealed, Trimmed};
use crate::backends::journal::format::index::{IndexHead, IndexReader, IndexWriter};
use crate::backends::journal::format::letter::{LetterParts, decode_letter, encode_letter};
use crate::backends::journal::format::meta::Meta;
use crate::backends::journal::format::record::{
    Kind, RecordHead, append, mark_last, read, read_unchecked,
};
use crate::backends::journal::format::segment::SegmentHeader;

const SALT: u32 = 0x5EED_5A17;

/// Every copy of `bytes` with one bit changed.
fn flips(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> + '_ {
    (0..bytes.len() * 8).map(|bit| {
        let mut copy = bytes.to_vec();
        copy[bit / 8] ^= 1 << (bit % 8);
        (bit, copy)
    })
}

/// Every beginning of `bytes` that is shorter.
fn beginnings(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..bytes.len()).map(|len| &bytes[..len])
}

fn record(kind: Kind, fact: &[u8], has_letter: bool, is_last: bool) -> Vec<u8> {
    let letter = has_letter.then(|| encode_letter(&letter(), &hash()));
    let mut bytes = Vec::new();
    let head = RecordHead { salt: SALT, batch: 3, lsn: 17, mailbox: 2 };
    append(&mut bytes, head, kind, fact, letter.as_ref());
    if is_last {
        mark_last(&mut bytes);
    }
    let letter_len = letter.map_or(0, |letter| letter.bytes.len());
    bytes.truncate(40 + fact.len() + letter_len);
    bytes
}

#[test]
fn a_record_that_was_cut_or_changed_anywhere_is_refused() {
    for (has_letter, is_last) in [(false, false), (false, true), (true, false), (true, true)] {
        let bytes = record(Kind::Sent, &[7; 61], has_letter, is_last);
        assert!(read(&bytes, SALT).is_ok());
        assert_eq!(read(&bytes, SALT + 1), Err(Flaw::Salt));
        for beginning in beginnings(&bytes) {
            assert!(read(beginning, SALT).is_err(), "{} bytes", beginning.len());
            assert!(read_unchecked(beginning, SALT).is_err(), "{} bytes", beginning.len());
        }
        for (bit, mut flipped) in flips(&bytes) {
            assert!(read(&flipped, SALT).is_err(), "bit {bit}");
            // More bytes behind it must not help a length that has grown.
            flipped.resize(flipped.len() + 100_000, 0);
            assert!(read(&flipped, SALT).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn padding_does_not_matter() {
    let mut bytes = record(Kind::Sent, &[7; 61], true, true);
    bytes.extend_from_slice(&[0xFF; 8]);
    assert_eq!(read(&bytes, SALT).unwrap().len % 8, 0);
}

#[test]
fn a_damaged_record_can_be_looked_at_on_request() {
    let bytes = record(Kind::Sent, &[7; 61], true, true);
    for (bit, flipped) in flips(&bytes).skip(40 * 8) {
        let looked_at = read_unchecked(&flipped, SALT).unwrap();
        assert_eq!((looked_at.lsn, looked_at.kind), (17, Kind::Sent), "bit {bit}");
    }
}

#[test]
fn flags_and_kinds_of_the_future_are_refused_though_the_checksum_is_right() {
    for (at, value, flaw) in [(28, 99, Flaw::Kind(99)), (29, 2, Flaw::Field("flags"))] {
        let mut bytes = record(Kind::Closed, &[], false, false);
        bytes[at] = value;
        mark_last(&mut bytes);
        assert_eq!(read(&bytes, SALT), Err(flaw));
    }
}

#[test]
fn lengths_beyond_the_bytes_are_refused_before_anything_is_read_or_allocated() {
    let mut bytes = record(Kind::Sent, &[], true, false);
    bytes[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    mark_last(&mut bytes);
    assert_eq!(read(&bytes, SALT), Err(Flaw::Length));
    bytes[30..32].copy_from_slice(&u16::MAX.to_le_bytes());
    assert_eq!(read(&bytes, SALT), Err(Flaw::Length));

    let letter = encode_letter(&letter(), &hash()).bytes;
    // Lengths of the payload and of the three texts, and the number of attributes.
    for (at, width) in [(40, 4), (44, 2), (46, 2), (48, 2), (50, 2)] {
        for value in [0xFF, 0xFE, 0x7F, 0x03] {
            let mut bytes = letter.clone();
            bytes[at..at + width].fill(value);
            let is_none = width == 2 && value == 0xFF && at < 50;
            let refused = LetterParts::parse(&bytes).is_err();
            // That the text is not there is believed only if what follows still fits.
            assert!(refused || is_none && at == 46, "{value:#x} at {at}");
        }
    }
    // Too small is as wrong: something would be left between the parts.
    for at in [40, 50] {
        let mut bytes = letter.clone();
        bytes[at] -= 1;
        assert_eq!(LetterParts::parse(&bytes).unwrap_err(), Flaw::Length, "at {at}");
    }
}

#[test]
fn meta_and_segment_headers_that_were_cut_or_changed_are_refused() {
    let meta = Meta { journal: journal_id(), secret: hash(), shards: 1, created_ms: 5 }.encode();
    let header = SegmentHeader {
        journal: journal_id(),
        shard: 0,
        number: 1,
        salt: SALT,
        len: 65_536,
        created_ms: 5,
    };
    let bytes = header.encode();
    assert!(beginnings(&meta).all(|bytes| Meta::decode(bytes).is_err()));
    assert!(flips(&meta).all(|(_, bytes)| Meta::decode(&bytes).is_err()));
    assert!(beginnings(&bytes).all(|bytes| SegmentHeader::decode(bytes).is_err()));
    assert!(flips(&bytes).all(|(_, bytes)| SegmentHeader::decode(&bytes).is_err()));

    let longer = [&meta[..], &[0]].concat();
    assert_eq!(Meta::decode(&longer), Err(Flaw::Length));
    let without = Meta { journal: journal_id(), secret: hash(), shards: 0, created_ms: 5 };
    assert_eq!(Meta::decode(&without.encode()), Err(Flaw::Field("shards")));
    let numberless = SegmentHeader { number: 0, ..header.clone() };
    let flaw = Flaw::Field("segment number");
    assert_eq!(SegmentHeader::decode(&numberless.encode()), Err(flaw));
    let tiny = SegmentHeader { len: 4095, ..header };
    assert_eq!(SegmentHeader::decode(&tiny.encode()), Err(Flaw::Field("segment length")));
}

/// Reads a fact of any kind; true if that went well.
fn is_readable(kind: Kind, fact: &[u8]) -> bool {
    let sender = Letter { idempotency_key: Some("k".to_owned()), ..letter() };
    let letter = encode_letter(&sender, &hash()).bytes;
    let parts = LetterParts::parse(&letter).unwrap();
    let _ = key_of(kind, fact);
    match kind {
        Kind::Head => Head::decode(fact).is_ok(),
        Kind::Opened | Kind::Closed => Opened::decode(fact).is_ok(),
        Kind::Sealed => Sealed::decode(fact).is_ok(),
        Kind::Trimmed => Trimmed::decode(fact).is_ok(),
        Kind::Removed => fact.is_empty(),
        Kind::Room => Room::decode(fact).is_ok(),
        Kind::Kept => decode_kept(fact, &parts, ()).is_ok(),
        Kind::Remembered => Remembered::decode(fact).is_ok(),
        _ => decode_event(kind, fact, Some(&parts), ()).is_ok(),
    }
}

/// A fact of each kind that has one.
fn facts() -> Vec<(Kind, Vec<u8>)> {
    let mut facts = Vec::new();
    let mut add = |kind: Kind, encode: &dyn Fn(&mut Vec<u8>)| {
        let mut fact = Vec::new();
        encode(&mut fact);
        facts.push((kind, fact));
    };
    let anchor = Anchor { time: nanos(1), boot: journal_id(), at: 2 };
    let opened = Opened { epoch: 1, next_mailbox: 1, synced: true, anchor };
    let head = Head { previous: 0, previous_lsn: 0, first_segment: 1, opened };
    add(Kind::Head, &|out| head.encode(out));
    add(Kind::Opened, &|out| opened.encode(out));
    add(Kind::Closed, &|out| opened.encode(out));
    add(Kind::Sealed, &|out| Sealed { records: 1 }.encode(out));
    add(Kind::Trimmed, &|out| Trimmed { first_segment: 1 }.encode(out));
    let room = Room { name: "jobs".to_owned(), standing: standing() };
    add(Kind::Room, &|out| room.encode(out));
    add(Kind::Kept, &|out| encode_kept(&full(()), None, out));
    add(Kind::Remembered, &|out| remembered().encode(out));
    let (key, at, error) = (Key { seq: 1, slot: 1 }, nanos(1), || Some("no".into()));
    let (lease, reason) = (lease(1 << 40), DeadReason::Expired);
    let (id, group, idempotency) = (Id(1), None, None);
    let events = [
        Event::Sent { key, id, at, due: at, group, idempotency, payload: () },
        Event::Delivered { key, lease, at, due: at, hold_until: at },
        Event::Acknowledged { key, at },
        Event::Nacked { key, at, due: at, error: error() },
        Event::Extended { key, at, due: at },
        Event::Returned { key, at },
        Event::DeadLettered { key, at, reason, error: error() },
        Event::Redriven { key, at },
        Event::Discarded { key, at, by_retention: false },
        Event::Purged { at },
        Event::Configured { at, policy: Box::default() },
    ];
    for event in events {
        let kind = encode_event(1, &event, &mut Vec::new());
        add(kind, &|out| {
            encode_event(1, &event, out);
        });
    }
    facts
}

#[test]
fn a_fact_that_is_too_short_or_too_long_is_refused() {
    let facts = facts();
    assert_eq!(facts.len() + 1, Kind::ALL.len(), "all but `Removed` have bytes");
    for (kind, fact) in facts {
        assert!(is_readable(kind, &fact), "{kind}");
        for beginning in beginnings(&fact) {
            // What nothing has happened to since it was sent is told as briefly as that was.
            let untouched = kind == Kind::Kept && beginning.len() == 60;
            assert_eq!(
                is_readable(kind, beginning),
                untouched,
                "{kind}: {} bytes",
                beginning.len()
            );
        }
        assert!(!is_readable(kind, &[&fact[..], &[0]].concat()), "{kind}: a byte more");
    }
}

#[test]
fn values_that_a_field_cannot_have_are_refused() {
    let refused: [(Kind, usize, &[u8]); 10] = [
        (Kind::Head, 24, &[2]),
        (Kind::Opened, 8, &[2]),
        (Kind::Room, 0, &[0, 1]),
        (Kind::Room, 2, &[0xFF]),
        (Kind::Room, 7, &[0x80]),
        (Kind::Room, 8, &[2]),
        (Kind::Delivered, 28, &[0; 8]),
        (Kind::DeadLettered, 28, &[0]),
        (Kind::DeadLettered, 28, &[6]),
        (Kind::Discarded, 28, &[2]),
    ];
    let facts = facts();
    for (kind, at, value) in refused {
        let (_, fact) = facts.iter().find(|(known, _)| *known == kind).unwrap();
        let mut fact = fact.clone();
        fact[at..at + value.len()].copy_from_slice(value);
        assert!(!is_readable(kind, &fact), "{kind}: {value:?} at {at}");
    }
    let (_, sent) = facts.iter().find(|(kind, _)| *kind == Kind::Sent).unwrap();
    assert!(decode_event(Kind::Sent, sent, None, ()).is_err(), "without its letter");
    let mut keyed = sent.clone();
    keyed[52] = 1;
    let letter = encode_letter(&letter(), &hash()).bytes;
    let parts = LetterParts::parse(&letter).unwrap();
    let flaw = decode_event(Kind::Sent, &keyed, Some(&parts), ()).unwrap_err();
    assert_eq!(flaw, Flaw::Field("idempotency key"), "the letter has none");
}

#[test]
fn attributes_that_are_twice_or_out_of_order_or_no_text_are_refused() {
    let good = encode_letter(&letter(), &hash()).bytes;
    let at = good.windows(2).position(|pair| pair == b"bb").unwrap();
    for (index, value) in [(at, b'A'), (at, 0xFF)] {
        let mut bytes = good.clone();
        bytes[index] = value;
        let parts = LetterParts::parse(&bytes).unwrap();
        assert_eq!(parts.to_letter(), Err(Flaw::Field("attributes")));
        assert_eq!(decode_letter(Bytes::from(bytes)), Err(Flaw::Field("attributes")));
    }
}

const HEAD: IndexHead = IndexHead {
    journal: [1; 16],
    shard: 0,
    segment: 1,
    end: 4096,
    last_lsn: 1,
    last_batch: 1,
    first_segment: 1,
    rooms: 1,
};

/// Reads an index to its end.
fn read_index(bytes: &[u8]) -> Result<usize, Flaw> {
    let (mut reader, _) = IndexReader::new(bytes)?;
    let mut items = 0;
    while reader.next()?.is_some() {
        items += 1;
    }
    Ok(items)
}

#[test]
fn an_index_that_was_cut_or_changed_anywhere_is_refused() {
    let mut writer = IndexWriter::new(&HEAD);
    writer.room(1, "in", &standing(), 1, 1, 1);
    writer.message(&fresh(PLACE));
    writer.message(&full(PLACE));
    writer.key(&remembered());
    let bytes = writer.finish();
    assert_eq!(read_index(&bytes), Ok(4));
    assert!(beginnings(&bytes).all(|bytes| read_index(bytes).is_err()));
    assert!(flips(&bytes).all(|(_, bytes)| read_index(&bytes).is_err()));
    assert_eq!(read_index(&[&bytes[..], &[0]].concat()), Err(Flaw::Length));
}

#[test]
fn blocks_of_an_index_cannot_be_left_out_or_change_places() {
    let mut writer = IndexWriter::new(&HEAD);
    writer.room(1, "in", &standing(), 6000, 0, 0);
    let mut blocks = vec![writer.take_ready().unwrap()];
    for seq in 0..6000 {
        writer.message(&Keepsake { key: Key { seq, slot: 1 }, ..fresh(PLACE) });
        blocks.extend(writer.take_ready());
    }
    blocks.push(writer.finish());
    assert!(blocks.len() > 4);
    assert_eq!(read_index(&blocks.concat()), Ok(6001));
    let mut swapped = blocks.clone();
    swapped.swap(2, 3);
    assert_eq!(read_index(&swapped.concat()), Err(Flaw::Checksum));
    blocks.remove(2);
    assert!(read_index(&blocks.concat()).is_err());
}

#[test]
fn an_index_that_announces_something_else_than_it_holds_is_refused() {
    let index = |live, dead, keys| {
        let mut writer = IndexWriter::new(&HEAD);
        writer.room(1, "in", &standing(), live, dead, keys);
        writer.message(&fresh(PLACE));
        writer.finish()
    };
    assert_eq!(read_index(&index(1, 0, 0)), Ok(2));
    for (live, dead, keys) in [(2, 0, 0), (0, 1, 0), (1, 0, 1)] {
        assert!(read_index(&index(live, dead, keys)).is_err(), "{live} {dead} {keys}");
    }
    assert_eq!(read_index(&index(0, 0, 0)), Err(Flaw::Field("totals")));
    // Nobody gets to see a count that he might make room for.
    for (live, dead, keys) in [(u64::MAX, 2, 0), (3, 0, 0), (1, 0, u64::MAX / 2), (0, 0, 4)] {
        let bytes = index(live, dead, keys);
        let (mut reader, _) = IndexReader::new(&bytes).unwrap();
        assert_eq!(reader.next(), Err(Flaw::Field("counts")), "{live} {dead} {keys}");
    }
    let writer = IndexWriter::new(&HEAD);
    assert!(read_index(&writer.finish()).is_err(), "a room is missing");
}

#[test]
fn an_index_with_a_byte_behind_its_totals_is_refused_though_the_checksum_is_right() {
    let mut bytes = IndexWriter::new(&IndexHead { rooms: 0, ..HEAD }).finish();
    assert_eq!((read_index(&bytes), bytes.len()), (Ok(0), 72 + 8 + 32));
    bytes.push(0);
    bytes[72] += 1;
    let head = u32::from_le_bytes(*bytes[12..].first_chunk().unwrap());
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(head, &bytes[72..76]), &bytes[80..]);
    bytes[76..80].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(read_index(&bytes), Err(Flaw::Length));
}

proptest! {
    #[test]
    fn random_bytes_never_make_a_reader_panic(bytes in any::<Vec<u8>>(), kind in 0..20_usize) {
        let _ = is_readable(Kind::ALL[kind], &bytes);
        let _ = LetterParts::parse(&bytes).map(|parts| parts.to_letter());
        let salted = [&SALT.to_le_bytes()[..], &bytes].concat();
        let _ = read(&salted, SALT);
        let _ = read_unchecked(&salted, SALT);
        let index = [&b"MBXINDX\0\x01\0\0\0"[..], &bytes].concat();
        prop_assert!(read_index(&index).is_err());
        let meta = [&b"MBXMETA\0\x01\0\0\0"[..], &bytes].concat();
        prop_assert!(Meta::decode(&meta).is_err());
    }

    #[test]
    fn changed_letters_and_facts_never_make_a_reader_panic(
        letter in letters(),
        changes in proptest::collection::vec(any::<(proptest::sample::Index, u8)>(), 1..4),
    ) {
        let mut bytes = encode_letter(&letter, &hash()).bytes;
        for (at, value) in &changes {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        let _ = LetterParts::parse(&bytes).map(|parts| parts.to_letter());
        for (kind, mut fact) in facts() {
            for (at, value) in &changes {
                let at = at.index(fact.len());
                fact[at] = *value;
            }
            let _ = is_readable(kind, &fact);
        }
    }
}
