//! Whatever is written is read again, however it is cut into pieces; whatever comes, nothing
//! panics, and never is more kept than a frame.

use bytes::{Bytes, BytesMut};
use mailbox_wire::oap::{Decoder, Flags, Frame, HEADER_LEN, Header, MAX_FRAME, Malformed};
use proptest::collection::vec;
use proptest::prelude::*;

fn frames() -> impl Strategy<Value = Frame> {
    let numbers = (0_u16..256, any::<u16>(), any::<u16>(), any::<u128>(), any::<u64>());
    let long = prop_oneof![9 => 0_usize..300, 1 => 0..MAX_FRAME - HEADER_LEN - 300];
    (numbers, vec(any::<u8>(), 0..300), long, any::<u8>()).prop_map(|(numbers, cap, len, byte)| {
        let (bits, code, app, tenant, corr_id) = numbers;
        let flags = Flags::from_bits(bits);
        let cap = if flags.contains(Flags::START) { cap.into() } else { Bytes::new() };
        Frame { flags, code, app, tenant, corr_id, cap, payload: vec![byte; len].into() }
    })
}

/// Reads everything in pieces that end at these places, and checks what holds on the way.
fn read_in_pieces(bytes: &[u8], ends: &[usize]) -> (Vec<Frame>, Option<Malformed>) {
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    let mut start = 0;
    let mut ends: Vec<usize> = ends.iter().map(|end| end % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    for end in ends {
        let wanted = decoder.wanted(&buffer);
        buffer.extend_from_slice(&bytes[start..end]);
        let is_enough = end - start >= wanted;
        start = end;
        loop {
            let (left, is_wanted) = (buffer.len(), decoder.wanted(&buffer) > 0);
            match decoder.decode(&mut buffer) {
                Ok(Some(frame)) => {
                    assert!(is_enough && !is_wanted);
                    let header = frame.header().unwrap();
                    assert_eq!(left - buffer.len(), header.len as usize);
                    frames.push(frame);
                }
                Ok(None) => {
                    assert!(is_wanted && buffer.len() == left && left < MAX_FRAME);
                    break;
                }
                Err(malformed) => {
                    assert!(is_enough && !is_wanted);
                    return (frames, Some(malformed));
                }
            }
        }
    }
    (frames, None)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_written_is_read_however_it_is_cut(
        sent in vec(frames(), 0..5),
        ends in vec(any::<usize>(), 0..20),
    ) {
        let mut bytes = BytesMut::new();
        for frame in &sent {
            frame.encode(&mut bytes).unwrap();
        }
        let (read, malformed) = read_in_pieces(&bytes, &ends);
        prop_assert_eq!(malformed, None);
        prop_assert!(read == sent);
    }

    #[test]
    fn any_bytes_are_read_the_same_however_they_are_cut(
        bytes in vec(any::<u8>(), 0..200),
        ends in vec(any::<usize>(), 0..20),
    ) {
        prop_assert!(read_in_pieces(&bytes, &ends) == read_in_pieces(&bytes, &[]));
    }

    /// Random bytes hardly ever get past the flags: these are frames with a few bytes changed.
    #[test]
    fn damaged_frames_are_read_the_same_however_they_are_cut(
        sent in vec(frames(), 1..4),
        damage in vec((any::<usize>(), any::<u8>()), 1..4),
        ends in vec(any::<usize>(), 0..20),
    ) {
        let mut bytes = BytesMut::new();
        for frame in &sent {
            frame.encode(&mut bytes).unwrap();
        }
        for (at, byte) in damage {
            let at = at % HEADER_LEN;
            bytes[at] = byte;
        }
        prop_assert!(read_in_pieces(&bytes, &ends) == read_in_pieces(&bytes, &[]));
    }

    #[test]
    fn a_header_is_refused_before_its_body_comes(bytes in vec(any::<u8>(), HEADER_LEN)) {
        let mut buffer = BytesMut::from(&bytes[..]);
        let decoded = Decoder::default().decode(&mut buffer);
        let is_long = bytes[..4] > 0x10_0000_u32.to_be_bytes()[..];
        prop_assert!(decoded.is_err() || !is_long);
        prop_assert_eq!(decoded.is_err(), Header::read(&bytes).is_err());
    }
}
