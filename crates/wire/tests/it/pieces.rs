//! The parts of a macaroon, taken apart and put together without the code under test, so that a
//! test can put together what nobody should.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mailbox_wire::capability::{Capability, Caveat, KeyId, RootKey, TokenId};

pub(crate) fn key(seed: u8) -> RootKey {
    RootKey::from_bytes(key_bytes(seed))
}

pub(crate) fn key_bytes(seed: u8) -> [u8; 32] {
    std::array::from_fn(|at| seed.wrapping_add(at as u8))
}

pub(crate) fn kid(text: &str) -> KeyId {
    text.parse().unwrap()
}

pub(crate) fn token_id(text: &str) -> TokenId {
    text.parse().unwrap()
}

pub(crate) fn caveats(texts: &[&str]) -> Vec<Caveat> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Minted with `key(1)` under the name `k1`.
pub(crate) fn minted(texts: &[&str]) -> Capability {
    Capability::mint(&key(1), &kid("k1"), &token_id("t-1"), &caveats(texts)).unwrap()
}

pub(crate) fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    pub(crate) location: Option<Vec<u8>>,
    pub(crate) identifier: Vec<u8>,
    pub(crate) caveats: Vec<Piece>,
    pub(crate) tag: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) text: Vec<u8>,
    pub(crate) verifier: Option<Vec<u8>>,
}

impl Piece {
    pub(crate) fn new(text: impl Into<Vec<u8>>) -> Self {
        Self { text: text.into(), verifier: None }
    }
}

impl Pieces {
    /// Of a macaroon that is in order.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut fields = fields(bytes).into_iter().peekable();
        let location = fields.next_if(|(kind, _)| *kind == 1).map(|(_, value)| value);
        let (_, identifier) = fields.next().unwrap();
        fields.next();
        let mut caveats = Vec::new();
        while fields.peek().unwrap().0 != 0 {
            fields.next_if(|(kind, _)| *kind == 1);
            let mut piece = Piece::new(fields.next().unwrap().1);
            piece.verifier = fields.next_if(|(kind, _)| *kind == 4).map(|(_, value)| value);
            fields.next();
            caveats.push(piece);
        }
        let (_, tag) = fields.last().unwrap();
        Self { location, identifier, caveats, tag }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes_padding(usize::MAX, 0)
    }

    /// With a longer spelling of the length of field `which`, by so many bytes.
    pub(crate) fn bytes_padding(&self, which: usize, padding: usize) -> Vec<u8> {
        let mut bytes = vec![2];
        let mut count = 0;
        let mut write = |bytes: &mut Vec<u8>, kind: u8, value: &[u8]| {
            bytes.push(kind);
            let padding = if count == which { padding } else { 0 };
            count += 1;
            let (low, high) = (value.len() & 127, value.len() >> 7);
            bytes.push(low as u8 | if high + padding > 0 { 128 } else { 0 });
            if high > 0 {
                bytes.push(high as u8 | if padding > 0 { 128 } else { 0 });
            }
            bytes.extend((1..=padding).map(|at| if at < padding { 128 } else { 0 }));
            bytes.extend(value);
        };
        if let Some(location) = &self.location {
            write(&mut bytes, 1, location);
        }
        write(&mut bytes, 2, &self.identifier);
        bytes.push(0);
        for caveat in &self.caveats {
            if caveat.verifier.is_some() {
                write(&mut bytes, 1, b"elsewhere");
            }
            write(&mut bytes, 2, &caveat.text);
            if let Some(verifier) = &caveat.verifier {
                write(&mut bytes, 4, verifier);
            }
            bytes.push(0);
        }
        bytes.push(0);
        write(&mut bytes, 6, &self.tag);
        bytes
    }
}

/// Type and value of each field; the end of a section has type 0.
fn fields(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut fields = Vec::new();
    let mut rest = &bytes[1..];
    while let [kind, after @ ..] = rest {
        if *kind == 0 {
            fields.push((0, Vec::new()));
            rest = after;
            continue;
        }
        let (length, after) = match after {
            [low, after @ ..] if *low < 128 => (usize::from(*low), after),
            [low, high, after @ ..] => (usize::from(low & 127) | usize::from(*high) << 7, after),
            _ => panic!("no length"),
        };
        let (value, after) = after.split_at(length);
        fields.push((*kind, value.to_vec()));
        rest = after;
    }
    fields
}

#[test]
fn taking_apart_and_putting_together_changes_nothing() {
    let long = format!("topic = {}", ["a".repeat(80), "b".repeat(80)].join(","));
    let capability = minted(&["op = send", &long, "exp = 2030-01-01T00:00:00Z"]);
    let pieces = Pieces::of(capability.as_bytes());
    assert_eq!(pieces.location.as_deref(), Some(&b"mailbox"[..]));
    assert_eq!(pieces.identifier, b"v1 k1 t-1");
    assert_eq!(pieces.caveats[1], Piece::new(long));
    assert_eq!(pieces.bytes(), capability.as_bytes());
    assert_eq!(pieces.bytes_padding(0, 1).len(), pieces.bytes().len() + 1);
}
