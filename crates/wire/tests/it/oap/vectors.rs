//! Frames whose bytes are fixed by the protocol.

use bytes::{Bytes, BytesMut};
use mailbox_wire::oap::{APP_HELLO, Decoder, Flags, Frame, Hello};

/// A frame, and how it goes over the wire.
fn vectors() -> [(Frame, &'static str); 3] {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    [
        (
            Frame {
                flags: Flags::REQ,
                code: 0,
                app: APP_HELLO,
                tenant: 0xAA,
                corr_id: 42,
                cap: Bytes::new(),
                payload: bytes(r#"{"ua":"sdk/0.1"}"#),
            },
            "000000360001000100000000000000000000000000000000000000aa0000000000000000002a7b22756122\
             3a2273646b2f302e31227d",
        ),
        (
            Frame {
                flags: Flags::START | Flags::REQ,
                code: 0,
                app: 100,
                tenant: 0xCC,
                corr_id: 99,
                cap: bytes("macaroon:scope=read:ttl=60s"),
                payload: Bytes::new(),
            },
            "000000410001000900000064000000000000000000000000000000cc001b00000000000000636d61636172\
             6f6f6e3a73636f70653d726561643a74746c3d363073",
        ),
        (
            Frame {
                flags: Flags::RESP,
                code: 200,
                app: 200,
                tenant: 0xDD,
                corr_id: 123,
                cap: Bytes::new(),
                payload: bytes("hello world"),
            },
            "000000310001000200c800c8000000000000000000000000000000dd0000000000000000007b68656c6c6f\
             20776f726c64",
        ),
    ]
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn the_fixed_bytes_are_written() {
    for (frame, hex) in vectors() {
        let mut out = BytesMut::new();
        frame.encode(&mut out).unwrap();
        assert_eq!(out, from_hex(hex), "{frame:?}");
    }
}

#[test]
fn the_fixed_bytes_are_read() {
    let all: Vec<u8> = vectors().iter().flat_map(|(_, hex)| from_hex(hex)).collect();
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::from(&all[..]);
    for (frame, _) in vectors() {
        let read = decoder.decode(&mut buffer).unwrap().unwrap();
        assert_eq!(read, frame);
        assert_eq!((read.cap, read.payload), (frame.cap, frame.payload));
    }
    assert_eq!(decoder.decode(&mut buffer), Ok(None));
    assert!(buffer.is_empty());
}

#[test]
fn the_fixed_hello_says_who_it_is() {
    let [(hello, _), ..] = vectors();
    let hello: Hello = serde_json::from_slice(&hello.payload).unwrap();
    assert_eq!(hello.ua, "sdk/0.1");
}
