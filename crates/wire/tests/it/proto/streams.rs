//! Streamed receives.

use bytes::BytesMut;
use mailbox_wire::json::Envelope;
use mailbox_wire::payload::Payload;
use mailbox_wire::proto::{
    Streamed, Unreadable, read_streamed, write_sign_of_life, write_streamed,
};

use super::answers::envelope;

const MAX_LEN: usize = 10_000;

fn large() -> Envelope {
    Envelope { payload_b64: Payload(vec![b'p'; 300].into()), ..envelope() }
}

fn stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_streamed(envelope(), &mut bytes);
    write_sign_of_life(&mut bytes);
    write_streamed(large(), &mut bytes);
    write_sign_of_life(&mut bytes);
    bytes
}

#[test]
fn a_stream_is_read_however_it_is_cut() {
    let expected = [
        Streamed::Envelope(Box::new(envelope())),
        Streamed::SignOfLife,
        Streamed::Envelope(Box::new(large())),
        Streamed::SignOfLife,
    ];
    let bytes = stream();
    for piece in [1, 2, 7, 100, bytes.len()] {
        let mut buffer = BytesMut::new();
        let mut read = Vec::new();
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            while let Some(it) = read_streamed(&mut buffer, MAX_LEN).unwrap() {
                read.push(it);
            }
        }
        assert!(buffer.is_empty());
        assert_eq!(read, expected, "in pieces of {piece}");
    }
}

#[test]
fn a_length_is_refused_before_anybody_waits_for_it() {
    let mut buffer = BytesMut::from(&stream()[..2]);
    assert_eq!(read_streamed(&mut buffer, 100), Err(Unreadable::TooLong));
    // More than 32 bits.
    for len in [&[0xFF; 5][..], &[0xFF; 11]] {
        let read = read_streamed(&mut BytesMut::from(len), MAX_LEN);
        assert_eq!(read, Err(Unreadable::TooLong));
    }
    assert_eq!(read_streamed(&mut BytesMut::from(&[0xFF; 4][..]), MAX_LEN), Ok(None));
    // A length that fits, and no envelope.
    let read = read_streamed(&mut BytesMut::from(&[1, 7][..]), MAX_LEN);
    assert!(matches!(read, Err(Unreadable::NoProtobuf(_))), "{read:?}");
}
