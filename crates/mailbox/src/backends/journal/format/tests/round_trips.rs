//! Whatever is written is read again, for random values.

use bytes::Bytes;
use mailbox_core::{Event, Fingerprint, Idempotency};
use proptest::collection::vec;

use super::*;
use crate::backends::journal::format::cursor::Cursor;
use crate::backends::journal::format::entry::{put_message, take_message};
use crate::backends::journal::format::event::{
    decode_event, decode_kept, encode_event, encode_kept,
};
use crate::backends::journal::format::fact::Room;
use crate::backends::journal::format::index::{IndexHead, IndexReader, IndexWriter, Item};
use crate::backends::journal::format::letter::{
    LetterParts, decode_letter, encode_letter, encoded_len,
};
use crate::backends::journal::format::record::{
    Kind, RecordHead, append, mark_last, read, record_len,
};

/// An event of each kind, for the same message.
fn events() -> impl Strategy<Value = Vec<Event<()>>> {
    let numbers = (any::<u64>(), any::<u32>(), any::<u128>(), any::<bool>());
    let when = (times(), times(), times());
    let rest = (leases(), option::of(texts()), reasons(), policies());
    (numbers, when, rest).prop_map(|((seq, slot, id, by_retention), when, rest)| {
        let (key, (at, due, hold_until)) = (Key { seq, slot }, when);
        let (lease, error, reason, policy) = rest;
        let error: Option<Box<str>> = error.map(Into::into);
        let (group, idempotency) = (None, None);
        vec![
            Event::Sent { key, id: Id(id), at, due, group, idempotency, payload: () },
            Event::Delivered { key, lease, at, due, hold_until },
            Event::Acknowledged { key, at },
            Event::Nacked { key, at, due, error: error.clone() },
            Event::Extended { key, at, due },
            Event::Returned { key, at },
            Event::DeadLettered { key, at, reason, error },
            Event::Redriven { key, at },
            Event::Discarded { key, at, by_retention },
            Event::Purged { at },
            Event::Configured { at, policy: Box::new(policy) },
        ]
    })
}

proptest! {
    #[test]
    fn letters_are_read_as_they_were_written(letter in letters()) {
        let hash = blake3::hash(&letter.payload);
        let encoded = encode_letter(&letter, hash.as_bytes());
        prop_assert_eq!(encoded.bytes.len(), encoded_len(&letter));
        let parts = LetterParts::parse(&encoded.bytes).unwrap();
        prop_assert!(parts.verify());
        prop_assert_eq!(parts.to_letter(), Ok(letter.clone()));
        prop_assert_eq!(decode_letter(Bytes::from(encoded.bytes)), Ok(letter));
    }

    #[test]
    fn records_are_read_as_they_were_written(
        letter in option::of(letters()),
        fact in any::<Vec<u8>>(),
        (salt, batch, lsn, mailbox) in any::<(u32, u64, u64, u32)>(),
        kind in 0..Kind::ALL.len(),
        last in any::<bool>(),
        behind in any::<Vec<u8>>(),
    ) {
        let letter = letter.map(|letter| encode_letter(&letter, &hash()));
        let mut buffer = Vec::new();
        let head = RecordHead { salt, batch, lsn, mailbox };
        append(&mut buffer, head, Kind::ALL[kind], &fact, letter.as_ref());
        if last {
            mark_last(&mut buffer);
        }
        let letter = letter.map(|letter| letter.bytes).unwrap_or_default();
        prop_assert_eq!(buffer.len(), record_len(fact.len(), letter.len()));
        let len = buffer.len();
        buffer.extend(behind);
        let record = read(&buffer, salt).unwrap();
        prop_assert_eq!((record.batch, record.lsn, record.mailbox), (batch, lsn, mailbox));
        prop_assert_eq!((record.kind, record.last, record.len), (Kind::ALL[kind], last, len));
        prop_assert_eq!((record.fact, record.letter), (&fact[..], &letter[..]));
    }

    #[test]
    fn events_are_read_as_they_were_written(
        stamp in any::<u64>(),
        events in events(),
        sender in letters(),
        expires in 1..u64::MAX,
    ) {
        let letter_bytes = encode_letter(&sender, &hash()).bytes;
        let parts = LetterParts::parse(&letter_bytes).unwrap();
        for mut event in events {
            if let Event::Sent { group, idempotency, .. } = &mut event {
                *group = sender.group.as_deref().map(Into::into);
                let key = sender.idempotency_key.as_deref();
                *idempotency = key.map(|key| Box::new(Idempotency {
                    key: key.into(),
                    fingerprint: Fingerprint(hash()),
                    expires: nanos(expires),
                }));
            }
            let mut fact = Vec::new();
            let kind = encode_event(stamp, &event, &mut fact);
            let letter = (kind == Kind::Sent).then_some(&parts);
            let (read_stamp, read) = decode_event(kind, &fact, letter, ()).unwrap();
            prop_assert_eq!((read_stamp, format!("{read:?}")), (stamp, format!("{event:?}")));
        }
    }

    #[test]
    fn kept_messages_and_keys_are_read_as_they_were_written(
        keepsake in keepsakes(),
        sender in letters(),
        expires in 1..u64::MAX,
        remembered in remembereds(),
    ) {
        let keepsake = Keepsake { group: sender.group.as_deref().map(Into::into), ..keepsake };
        let letter_bytes = encode_letter(&sender, &hash()).bytes;
        let parts = LetterParts::parse(&letter_bytes).unwrap();
        let expires = sender.idempotency_key.is_some().then_some(nanos(expires));
        let mut fact = Vec::new();
        encode_kept(&keepsake, expires, &mut fact);
        let place = keepsake.payload;
        prop_assert_eq!(decode_kept(&fact, &parts, place), Ok((keepsake, expires)));
        fact.clear();
        remembered.encode(&mut fact);
        prop_assert_eq!(Remembered::decode(&fact), Ok(remembered));
    }

    #[test]
    fn rooms_are_read_as_they_were_written(name in ".{0,60}", standing in standings()) {
        let room = Room { name, standing };
        let mut fact = Vec::new();
        room.encode(&mut fact);
        prop_assert_eq!(Room::decode(&fact), Ok(room));
    }

    #[test]
    fn an_index_is_read_as_it_was_written_and_comes_in_blocks(
        standing in standings(),
        messages in vec(keepsakes(), 0..60),
        keys in vec(remembereds(), 0..10),
        rooms in 0..4_u32,
    ) {
        let dead = messages.iter().filter(|message| message.death.is_some()).count() as u64;
        let (live, keys_len) = (messages.len() as u64 - dead, keys.len() as u64);
        let head = IndexHead {
            journal: journal_id(),
            shard: 1,
            segment: 2,
            end: 3,
            last_lsn: 4,
            last_batch: 5,
            first_segment: 6,
            rooms,
        };
        let mut writer = IndexWriter::new(&head);
        let (mut file, mut expected) = (Vec::new(), Vec::new());
        for number in 0..rooms {
            let name = format!("room-{number}");
            writer.room(number, &name, &standing, live, dead, keys_len);
            let standing = standing.clone();
            expected.push(Item::Room { number, name, standing, live, dead, keys: keys_len });
            for message in &messages {
                writer.message(message);
                expected.push(Item::Message(message.clone()));
                file.extend(writer.take_ready().unwrap_or_default());
            }
            for key in &keys {
                writer.key(key);
                expected.push(Item::Key(key.clone()));
            }
        }
        file.extend(writer.finish());
        let (mut reader, read_head) = IndexReader::new(&file).unwrap();
        prop_assert_eq!(read_head, head);
        for item in expected {
            prop_assert_eq!(reader.next(), Ok(Some(item)));
        }
        prop_assert_eq!(reader.next(), Ok(None));
    }
}

#[test]
fn an_error_text_that_is_too_long_loses_its_end_and_can_still_be_read() {
    let text: Box<str> = format!("x{}", "é".repeat(5000)).into();
    let (key, at) = (Key { seq: 1, slot: 1 }, nanos(1));
    let event = Event::<()>::Nacked { key, at, due: at, error: Some(text.clone()) };
    let mut fact = Vec::new();
    let kind = encode_event(1, &event, &mut fact);
    let Ok((_, Event::Nacked { error: Some(read), .. })) = decode_event(kind, &fact, None, ())
    else {
        panic!("it cannot be read")
    };
    assert_eq!(read.len(), 8191, "8192 would be in the middle of a letter");
    assert!(text.starts_with(&*read));
}

#[test]
fn an_index_of_many_messages_is_handed_over_in_pieces_of_bounded_size() {
    let head = IndexHead {
        journal: journal_id(),
        shard: 0,
        segment: 1,
        end: 4096,
        last_lsn: 1,
        last_batch: 1,
        first_segment: 1,
        rooms: 1,
    };
    let mut writer = IndexWriter::new(&head);
    writer.room(1, "many", &standing(), 20_000, 0, 0);
    let (mut file, mut pieces) = (Vec::new(), 0);
    for _ in 0..20_000 {
        writer.message(&fresh(PLACE));
        if let Some(piece) = writer.take_ready() {
            assert!(piece.len() <= 256 * 1024);
            file.extend(piece);
            pieces += 1;
        }
    }
    file.extend(writer.finish());
    assert!(pieces >= 10, "{pieces}");
    let (mut reader, _) = IndexReader::new(&file).unwrap();
    let mut items = 0;
    while reader.next().unwrap().is_some() {
        items += 1;
    }
    assert_eq!(items, 20_001);
}

#[test]
fn a_message_that_is_unusual_in_one_way_only_is_indexed_as_it_is() {
    let ordinary = fresh(PLACE);
    let everything = full(PLACE);
    let messages = [
        Keepsake { turn: everything.turn, ..ordinary.clone() },
        Keepsake { turn: (ordinary.due, 1), ..ordinary.clone() },
        Keepsake { order: everything.order, ..ordinary.clone() },
        Keepsake { hold_until: everything.hold_until, ..ordinary.clone() },
        Keepsake { lease: everything.lease, ..ordinary.clone() },
        Keepsake { attempts: everything.attempts, ..ordinary.clone() },
        Keepsake { group: everything.group.clone(), ..ordinary.clone() },
        Keepsake { last_error: everything.last_error.clone(), ..ordinary.clone() },
        Keepsake { death: everything.death, ..ordinary },
    ];
    for message in messages {
        let mut bytes = Vec::new();
        put_message(&message, &mut bytes);
        let mut cursor = Cursor::new(&bytes);
        assert_eq!(take_message(&mut cursor), Ok(message));
        assert!(cursor.is_empty());
    }
}
