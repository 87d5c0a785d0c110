//! Protobuf that may ask or answer something. To read it takes little more memory than it is long,
//! whatever is in it; and whatever is read is read the same when it was written again.

use bytes::{Bytes, BytesMut};
use mailbox_wire::oap::MAX_FRAME;
use mailbox_wire::proto::{
    Streamed, Unreadable, read_reply, read_request, read_streamed, write_reply, write_request,
    write_sign_of_life, write_streamed,
};

/// Most bytes that one input stands for.
const MOST: usize = 1 << 20;
/// Most entries of a map that are made: it takes longer than anything else.
const MOST_ENTRIES: u32 = 1024;
/// What is longer is only read: all else would take too long.
const WHOLE: usize = 64 * 1024;
/// Messages in messages that are made.
const DEEPEST: usize = 8;
/// What reading may take: so many times the bytes, and what lists and maps take that are as long as
/// they may be.
const TIMES: usize = 2;
const LISTS: usize = 6 << 20;
/// What may be taken at once: lists are put together in buffers that double.
const AT_ONCE: usize = 2 * MAX_FRAME;

/// Checks all that. `allow` is told how much may be allocated at once, and in all.
pub(crate) fn check(input: &[u8], allow: fn(usize, usize)) {
    let bytes = Bytes::from(written(input));
    let bound = TIMES * bytes.len() + LISTS;
    let at_once = AT_ONCE.max(TIMES * bytes.len());
    let bounded = |read: &mut dyn FnMut()| {
        allow(at_once, bound);
        read();
        allow(usize::MAX, usize::MAX);
    };
    bounded(&mut || drop(read_request(bytes.clone())));
    bounded(&mut || drop(read_reply(bytes.clone())));
    let mut buffer = BytesMut::from(&bytes[..]);
    bounded(&mut || drop(read_streamed(&mut buffer, bytes.len())));
    if bytes.len() <= WHOLE {
        check_again(&bytes);
    }
}

/// What was read is written, and read again.
fn check_again(bytes: &Bytes) {
    if let Some(asked) = readable(read_request(bytes.clone())) {
        let again = read_request(write_request(asked.clone()).into());
        assert!(again == Ok(asked), "another question");
    }
    if let Some(reply) = readable(read_reply(bytes.clone())) {
        let mut out = Vec::new();
        write_reply(reply.clone(), &mut out);
        assert!(read_reply(out.into()) == Ok(reply), "another answer");
    }
    let mut buffer = BytesMut::from(&bytes[..]);
    if let Some(Some(streamed)) = readable(read_streamed(&mut buffer, bytes.len())) {
        let mut out = Vec::new();
        match streamed.clone() {
            Streamed::Envelope(envelope) => write_streamed(*envelope, &mut out),
            Streamed::SignOfLife => write_sign_of_life(&mut out),
        }
        let again = read_streamed(&mut BytesMut::from(&out[..]), out.len());
        assert!(again == Ok(Some(streamed)), "another message");
    }
}

/// What could be read; what is wrong with the rest can be said.
fn readable<T>(read: Result<T, Unreadable>) -> Option<T> {
    read.inspect_err(|why| assert!(!why.to_string().is_empty())).ok()
}

/// A message that is being written: its field, its length if that is not true, and what is in it.
type Open = (u8, Option<u16>, Vec<u8>);

/// What an input stands for: bytes as they are; fields, alone or many times; and messages in
/// messages, which nobody would find by chance, since the length of each has to be right.
fn written(mut input: &[u8]) -> Vec<u8> {
    let mut open: Vec<Open> = Vec::new();
    let mut out = Vec::new();
    while let [kind, rest @ ..] = input {
        let may_open = open.len() < DEEPEST;
        let place = open.last_mut().map_or(&mut out, |(.., inside)| inside);
        if place.len() > MOST {
            break;
        }
        input = match (kind & 7, rest) {
            (1, [number, len, rest @ ..]) => {
                let (text, rest) = rest.split_at(rest.len().min(usize::from(*len)));
                field(*number, text.len(), text, place);
                rest
            }
            (2, [number, count, times, rest @ ..]) => {
                // Most lists are short: long ones take time.
                let count = u32::from(*count) << (times & 15);
                many(*number, count, kind & 8 != 0, place);
                rest
            }
            (3 | 4, [number, rest @ ..]) if may_open => {
                open.push((*number, None, Vec::new()));
                rest
            }
            (5, [number, value, rest @ ..]) => {
                place.extend([number << 3, *value]);
                rest
            }
            (6, [number, high, low, rest @ ..]) if may_open => {
                open.push((*number, Some(u16::from_be_bytes([*high, *low])), Vec::new()));
                rest
            }
            (7, rest) => {
                close(&mut open, &mut out);
                rest
            }
            _ => {
                let (raw, rest) = rest.split_at(rest.len().min(usize::from(kind >> 3) + 1));
                place.extend(raw);
                rest
            }
        };
    }
    while !open.is_empty() {
        close(&mut open, &mut out);
    }
    out
}

/// Ends the innermost message.
fn close(open: &mut Vec<Open>, out: &mut Vec<u8>) {
    let Some((number, len, inside)) = open.pop() else { return };
    let place = open.last_mut().map_or(out, |(.., inside)| inside);
    field(number, len.map_or(inside.len(), usize::from), &inside, place);
}

fn field(number: u8, mut len: usize, inside: &[u8], out: &mut Vec<u8>) {
    let mut key = u16::from(number) << 3 | 2;
    while key >= 0x80 {
        out.push(key as u8 | 0x80);
        key >>= 7;
    }
    out.push(key as u8);
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend(inside);
}

/// A list of so many empty elements; or as many entries of a map, each with a key of its own.
fn many(number: u8, count: u32, are_entries: bool, out: &mut Vec<u8>) {
    let mut element = Vec::new();
    if !are_entries {
        field(number, 0, &[], &mut element);
        return out.extend(element.repeat(MOST.min(count as usize)));
    }
    for count in 0..count.min(MOST_ENTRIES) {
        element.clear();
        field(1, 4, &count.to_be_bytes().map(|byte| byte & 0x7F), &mut element);
        field(number, element.len(), &element, out);
    }
}
