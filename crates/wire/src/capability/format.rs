//! The version 2 binary format of libmacaroons, and where in the bytes each part is. Bytes that are
//! read have exactly one meaning, and a meaning has exactly one spelling: nothing is normalised.
//!
//! ```text
//! 02  [01 location]  02 identifier  00
//!     ([01 location]  02 caveat  [04 verifier]  00)*
//! 00  06 tag
//! ```
//! Each field is its type, its length as a varint, and its bytes; `00` ends a section.

use std::ops::Range;

use super::chain::TAG;
use super::token::MAX_CAVEATS;

const VERSION: u8 = 2;
const END: u8 = 0;
const LOCATION: u8 = 1;
const IDENTIFIER: u8 = 2;
const VERIFIER: u8 = 4;
const SIGNATURE: u8 = 6;

/// What follows the caveats: the end of their list, and the tag as a field.
const TRAILER: usize = 3 + TAG;

/// Where the parts are. The tag is the last [`TAG`] bytes.
#[derive(Clone)]
pub(super) struct Layout {
    pub(super) identifier: Range<usize>,
    pub(super) caveats: Vec<Part>,
}

/// Where one caveat is; one with a verifier is a third party's.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) text: Range<usize>,
    pub(super) verifier: Option<Range<usize>>,
}

/// Finds the parts, or nothing if the bytes are not strictly of the format.
pub(super) fn read(bytes: &[u8]) -> Option<Layout> {
    let mut reader = Reader { bytes, at: 0 };
    reader.expect(VERSION)?;
    reader.optional(LOCATION)?;
    let identifier = reader.field(IDENTIFIER)?;
    reader.expect(END)?;
    let mut caveats = Vec::new();
    while reader.peek()? != END {
        if caveats.len() == MAX_CAVEATS {
            return None;
        }
        let location = reader.optional(LOCATION)?;
        let text = reader.field(IDENTIFIER)?;
        let verifier = reader.optional(VERIFIER)?;
        reader.expect(END)?;
        // Only a third party is somewhere. No tag covers a location, so it must not be a place to
        // hide bytes in.
        if location.is_some() && verifier.is_none() {
            return None;
        }
        caveats.push(Part { text, verifier });
    }
    reader.expect(END)?;
    let tag = reader.field(SIGNATURE)?;
    let is_whole = tag.len() == TAG && reader.at == bytes.len();
    is_whole.then_some(Layout { identifier, caveats })
}

/// Begins a macaroon. Caveats and [`write_trailer`] follow.
pub(super) fn write_head(into: &mut Vec<u8>, location: &str, identifier: &str) {
    into.push(VERSION);
    write_field(into, LOCATION, location.as_bytes());
    write_field(into, IDENTIFIER, identifier.as_bytes());
    into.push(END);
}

/// Adds a caveat.
pub(super) fn write_caveat(into: &mut Vec<u8>, text: &str) {
    write_field(into, IDENTIFIER, text.as_bytes());
    into.push(END);
}

/// Ends a macaroon.
pub(super) fn write_trailer(into: &mut Vec<u8>, tag: &[u8]) {
    into.push(END);
    write_field(into, SIGNATURE, tag);
}

/// A whole macaroon without its end, to write further caveats to.
pub(super) fn without_trailer(macaroon: &[u8]) -> &[u8] {
    &macaroon[..macaroon.len() - TRAILER]
}

/// What a caveat takes up, at most.
pub(super) fn room_for(text: &str) -> usize {
    1 + usize::BITS.div_ceil(7) as usize + text.len() + 1
}

fn write_field(into: &mut Vec<u8>, kind: u8, value: &[u8]) {
    into.push(kind);
    let mut length = value.len();
    while length >= 0x80 {
        into.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    into.push(length as u8);
    into.extend_from_slice(value);
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.byte()? == wanted).then_some(())
    }

    /// The field, nothing if another is next, or an error.
    fn optional(&mut self, kind: u8) -> Option<Option<Range<usize>>> {
        if self.peek()? == kind { self.field(kind).map(Some) } else { Some(None) }
    }

    fn field(&mut self, kind: u8) -> Option<Range<usize>> {
        self.expect(kind)?;
        let length = self.length()?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
        let range = self.at..end;
        self.at = end;
        Some(range)
    }

    /// A varint of at most two bytes, which is more than a whole capability, in its shortest form.
    fn length(&mut self) -> Option<usize> {
        let low = self.byte()?;
        if low & 0x80 == 0 {
            return Some(usize::from(low));
        }
        let high = self.byte()?;
        let is_shortest_and_last = high != 0 && high & 0x80 == 0;
        is_shortest_and_last.then(|| usize::from(high) << 7 | usize::from(low & 0x7f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Location `l`, identifier `id`, caveats `a` and `b`.
    fn macaroon() -> Vec<u8> {
        let mut bytes = Vec::new();
        write_head(&mut bytes, "l", "id");
        write_caveat(&mut bytes, "a");
        write_caveat(&mut bytes, "b");
        write_trailer(&mut bytes, &[7; TAG]);
        bytes
    }

    fn with(head: &[u8]) -> Vec<u8> {
        let mut bytes = head.to_vec();
        write_trailer(&mut bytes, &[7; TAG]);
        bytes
    }

    #[test]
    fn the_parts_are_where_they_were_written() {
        let bytes = macaroon();
        let layout = read(&bytes).unwrap();
        assert_eq!(&bytes[layout.identifier], b"id");
        let texts: Vec<_> = layout.caveats.iter().map(|part| &bytes[part.text.clone()]).collect();
        assert_eq!(texts, [b"a", b"b"]);
        assert!(layout.caveats.iter().all(|part| part.verifier.is_none()));
        assert_eq!(without_trailer(&bytes), &bytes[..bytes.len() - 35]);
    }

    #[test]
    fn no_prefix_is_a_macaroon_and_nothing_may_follow_one() {
        let mut bytes = macaroon();
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_none(), "{end}");
        }
        bytes.push(0);
        assert!(read(&bytes).is_none());
    }

    #[test]
    fn a_length_has_one_spelling() {
        assert!(read(&with(&[2, 2, 1, b'i', 0])).is_some());
        for head in [
            &[2, 2, 0x81, 0, b'i', 0][..],
            &[2, 2, 0x81, 0x80, 0, b'i', 0],
            &[2, 2, 0xff, 0xff, 0xff, 0xff, 0x0f, b'i', 0],
            &[2, 0x82, 0, 1, b'i', 0],
        ] {
            assert!(read(&with(head)).is_none(), "{head:?}");
        }
        let long = "x".repeat(200);
        let mut bytes = Vec::new();
        write_head(&mut bytes, "", &long);
        assert_eq!(bytes[3..6], [IDENTIFIER, 0xc8, 1]);
        write_trailer(&mut bytes, &[7; TAG]);
        assert_eq!(read(&bytes).unwrap().identifier.len(), 200);
    }

    #[test]
    fn fields_come_in_order_and_once() {
        for head in [
            &[1, 2, 1, b'i', 0][..],                        // another version
            &[2, 0],                                        // no identifier
            &[2, 1, 1, b'l', 0],                            // no identifier
            &[2, 2, 1, b'i', 2, 1, b'i', 0],                // two identifiers
            &[2, 2, 1, b'i', 1, 1, b'l', 0],                // location late
            &[2, 1, 1, b'l', 1, 1, b'l', 2, 1, b'i', 0],    // two locations
            &[2, 2, 1, b'i', 4, 1, b'v', 0],                // a verifier in the head
            &[2, 2, 1, b'i', 3, 1, b'v', 0],                // an unknown field
            &[2, 2, 1, b'i', 0, 4, 1, b'v', 2, 1, b'c', 0], // verifier early
            &[2, 2, 1, b'i', 0, 2, 1, b'c', 4, 1, b'v', 4, 1, b'v', 0],
            &[2, 2, 1, b'i', 0, 1, 1, b'l', 2, 1, b'c', 0], // a first party's location
            &[2, 2, 1, b'i', 0, 1, 1, b'l', 0],             // a caveat without text
        ] {
            assert!(read(&with(head)).is_none(), "{head:?}");
        }
        let third = with(&[2, 2, 1, b'i', 0, 1, 1, b'l', 2, 1, b'c', 4, 1, b'v', 0]);
        assert!(read(&third).unwrap().caveats[0].verifier.is_some());
    }

    #[test]
    fn a_tag_is_neither_shorter_nor_longer() {
        for length in [0, 31, 33] {
            let mut bytes = vec![2, 2, 1, b'i', 0];
            write_trailer(&mut bytes, &vec![7; length]);
            assert!(read(&bytes).is_none(), "{length}");
        }
    }
}
