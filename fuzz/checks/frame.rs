//! Frames out of any bytes that come in any pieces. What the decoder finds is compared with a
//! second, plain reading of all the bytes at once; what it found is written again; what is
//! compressed is inflated, and compared with what another way of inflating says.

use std::io::Read as _;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use mailbox_wire::oap::{
    Decoder, Fault, Flags, Frame, MAX_FRAME, MAX_INFLATED, Malformed, deflate, inflate,
    most_inflated,
};

/// Most bytes that one input stands for.
const MOST: usize = 3 << 20;
/// What a reader asks for at least.
const READ: usize = 4096;

/// Checks all that. `allow` is told how much may be allocated at once, and in all.
pub(crate) fn check(input: &[u8], allow: fn(usize, usize)) {
    allow(usize::MAX, usize::MAX);
    let pieces = pieces(input);
    let all = pieces.concat();
    let (expected, wrong) = plain_reading(&all);

    allow(MAX_FRAME, usize::MAX);
    let (frames, malformed) = read(&pieces);
    allow(usize::MAX, usize::MAX);

    assert_eq!(frames.len(), expected.len());
    for (frame, expected) in frames.iter().zip(&expected) {
        compare(frame, expected, &all);
        check_payload(frame, allow);
    }
    let malformed = malformed.map(|malformed| {
        assert!(malformed.closes() && !malformed.to_string().is_empty());
        (malformed.code(), malformed.corr_id())
    });
    assert_eq!(malformed, wrong);
}

/// What an input stands for: bytes as they are, many times the same one, or a header with most
/// things right, which nobody finds by chance.
fn pieces(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut total = 0;
    while let [kind, rest @ ..] = input {
        let (piece, rest) = match (kind % 4, rest) {
            (2, [byte, high, low, rest @ ..]) => {
                let count = usize::from(u16::from_be_bytes([*high, *low])) * 16;
                (vec![*byte; count], rest)
            }
            (3, [flags, cap_len, high, low, rest @ ..]) => {
                let payload_len = u32::from(u16::from_be_bytes([*high, *low])) * 16;
                (header(*kind, *flags, *cap_len, payload_len), rest)
            }
            _ => {
                let (piece, rest) = rest.split_at(rest.len().min(usize::from(kind / 4) + 1));
                (piece.to_vec(), rest)
            }
        };
        total += piece.len();
        if total > MOST {
            break;
        }
        pieces.push(piece);
        input = rest;
    }
    pieces
}

fn header(kind: u8, flags: u8, cap_len: u8, payload_len: u32) -> Vec<u8> {
    let cap_len = if flags & 8 == 0 { 0 } else { cap_len };
    let mut header = (38 + u32::from(cap_len) + payload_len).to_be_bytes().to_vec();
    header.extend([0, 1, 0, flags, 0, 0, 2, 1]);
    header.extend([kind; 16]);
    header.extend([0, cap_len, 1, 2, 3, 4, 5, 6, 7, kind]);
    header
}

/// Reads as from a connection: as much as there is room for.
fn read(pieces: &[Vec<u8>]) -> (Vec<Frame>, Option<Malformed>) {
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for piece in pieces {
        let mut piece = &piece[..];
        while !piece.is_empty() {
            if buffer.len() == buffer.capacity() {
                buffer.reserve(READ);
            }
            let count = piece.len().min(buffer.capacity() - buffer.len());
            let wanted = decoder.wanted(&buffer);
            buffer.extend_from_slice(&piece[..count]);
            piece = &piece[count..];
            let before = frames.len();
            loop {
                match decoder.decode(&mut buffer) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(malformed) => return (frames, Some(malformed)),
                }
            }
            assert!(frames.len() == before || count >= wanted, "less was wanted than was needed");
            assert!(decoder.wanted(&buffer) > 0 && buffer.len() < MAX_FRAME);
        }
    }
    (frames, None)
}

/// Where things are, as the table of the protocol has them.
struct Plain {
    whole: Range<usize>,
    flags: u16,
    cap_len: usize,
    corr_id: u64,
}

/// All the bytes at once, and the checks in their order; a wrong one gives code and `corr_id`.
fn plain_reading(all: &[u8]) -> (Vec<Plain>, Option<(u16, u64)>) {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let Some(len) = number(all, at, 4, all.len()) else { return (found, None) };
        let end = at.saturating_add(len as usize);
        if all.len() < end.min(at + 38) {
            return (found, None);
        }
        let within = |offset, size| number(all, at + offset, size, end.min(at + 38));
        let corr_id = within(30, 8).unwrap_or(0);
        let (flags, cap_len) = (within(6, 2), within(28, 2));
        let code = match () {
            () if flags.is_some_and(|flags| flags > 0xFF) => 400,
            () if within(4, 2).is_some_and(|version| version != 1) => 400,
            () if len == 0 => 400,
            () if len > 1_048_576 => 413,
            () if cap_len.is_some_and(|len| len > 0) && flags.is_some_and(|it| it & 8 == 0) => 400,
            () if len < 38 => 400,
            () if cap_len.is_some_and(|cap_len| 38 + cap_len > len) => 400,
            () => 0,
        };
        if code != 0 {
            return (found, Some((code, corr_id)));
        }
        if all.len() < end {
            return (found, None);
        }
        let (flags, cap_len) = (flags.unwrap_or(0) as u16, cap_len.unwrap_or(0) as usize);
        found.push(Plain { whole: at..end, flags, cap_len, corr_id });
        at = end;
    }
}

/// A number of so many bytes, if it ends where it may.
fn number(all: &[u8], at: usize, size: usize, end: usize) -> Option<u64> {
    let bytes = all.get(at..at + size).filter(|_| at + size <= end)?;
    Some(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn compare(frame: &Frame, expected: &Plain, all: &[u8]) {
    let whole = &all[expected.whole.clone()];
    assert_eq!(frame.flags.bits(), expected.flags);
    assert_eq!(frame.corr_id, expected.corr_id);
    assert_eq!(frame.cap, &whole[38..38 + expected.cap_len]);
    assert_eq!(frame.payload.len(), whole.len() - 38 - expected.cap_len);
    let mut written = BytesMut::new();
    frame.encode(&mut written).expect("it was a frame");
    assert!(written == whole, "what was read is not what is written");
}

fn check_payload(frame: &Frame, allow: fn(usize, usize)) {
    if frame.flags.contains(Flags::COMP) {
        allow(MAX_INFLATED, usize::MAX);
        let inflated = frame.plain_payload();
        allow(usize::MAX, usize::MAX);
        check_inflated(frame, inflated);
    } else if frame.payload.len() < READ {
        let Some(deflated) = deflate(&frame.payload) else { return };
        assert!(deflated.len() < frame.payload.len());
        let again = inflate(&deflated, frame.payload.len()).expect("it was deflated here");
        assert_eq!(again, frame.payload);
    }
}

fn check_inflated(frame: &Frame, inflated: Result<Bytes, Malformed>) {
    let inflated = match inflated {
        Ok(inflated) => inflated,
        Err(malformed) => {
            match malformed.fault {
                Fault::NotZstd | Fault::Inflates(MAX_INFLATED) => {}
                Fault::Ratio(most) => {
                    assert!(most == most_inflated(frame.payload.len()) && most < MAX_INFLATED);
                }
                other => panic!("nothing to do with what is compressed: {other:?}"),
            }
            assert!(!malformed.closes() && malformed.corr_id() == frame.corr_id);
            return;
        }
    };
    assert!(inflated.len() <= MAX_INFLATED.min(most_inflated(frame.payload.len())));
    let mut other = Vec::new();
    let mut decoder = zstd::Decoder::with_buffer(&frame.payload[..]).expect("a decoder is made");
    decoder.window_log_max(23).expect("a window of 8 MiB is allowed");
    let read = decoder.single_frame().take(MAX_INFLATED as u64 + 1).read_to_end(&mut other);
    // It is stricter in one thing: a block that is one byte many times may be too long for it.
    assert!(read.is_err() || inflated == other, "zstd says something else");
}
