//! A million tokens that nobody minted: none is accepted, none panics. A forger knows every
//! capability there is, but no key. A location, which no tag covers, is the one thing free to
//! change.

use std::collections::HashSet;

use mailbox_wire::capability::{Capability, Refused, RootKey};

use crate::pieces::{Piece, Pieces, base64url, caveats, key, kid, minted, token_id};

/// Forgeries of each test; there are four.
const EACH: usize = 250_000;

const EXP: &str = "exp = 2030-01-01T00:00:00Z";
const LOCAL: &str = "ip = 127.0.0.0/8,::1/128";

/// What a forger would like to be there.
const WISHES: [&str; 8] = [
    "op = send,recv,ack,nack,admin",
    "topic = *",
    "exp = 9999-12-31T23:59:59Z",
    "tenant = b",
    "max_bytes = 18446744073709551615",
    "ip = 0.0.0.0/0,::/0",
    "x = y",
    "",
];

/// The same sequence every time: SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.roll() as u8).collect()
    }
}

/// Everything that was ever minted or narrowed, and the keys that the service has.
struct World {
    capabilities: Vec<Pieces>,
    known: HashSet<Vec<u8>>,
    keys: [(&'static str, RootKey); 2],
    dice: Dice,
    accepted: usize,
    forged: usize,
    malformed: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let lists: [&[&str]; 6] = [
            &[EXP],
            &["op = send", EXP],
            &["op = send,recv", "topic = jobs", EXP],
            &["topic = jobs:*", EXP, "max_bytes = 1000", "rate = 10/s", "tenant = a"],
            &[LOCAL],
            &[EXP, LOCAL, "quota_ops = 5", "nbf = 2020-01-01T00:00:00Z"],
        ];
        let keys = [("k1", key(1)), ("k2", key(2))];
        let mut all = Vec::new();
        for (name, key) in &keys {
            for (at, list) in lists.iter().enumerate() {
                let id = token_id(&format!("t-{at}"));
                let mut capability =
                    Capability::mint(key, &kid(name), &id, &caveats(list)).unwrap();
                all.push(capability.clone());
                for more in ["op = recv", "topic = jobs:a,jobs", "exp = 2027-01-01T00:00:00Z"] {
                    capability = capability.attenuate(&more.parse().unwrap()).unwrap();
                    all.push(capability.clone());
                }
            }
        }
        let capabilities: Vec<_> = all.iter().map(|one| Pieces::of(one.as_bytes())).collect();
        let known = capabilities.iter().map(without_location).collect();
        let (accepted, forged, malformed) = (0, 0, 0);
        let dice = Dice(seed);
        let mut world = Self { capabilities, known, keys, dice, accepted, forged, malformed };
        for capability in &all {
            world.present(&capability.encode());
        }
        assert_eq!(world.accepted, all.len(), "what was minted is accepted");
        world.accepted = 0;
        world
    }

    fn any(&mut self) -> Pieces {
        self.dice.pick(&self.capabilities).clone()
    }

    /// Does what the service does with a token, and complains if a forgery gets further than the
    /// tag.
    fn present(&mut self, text: &str) {
        let Ok(capability) = Capability::decode(text) else {
            self.malformed += 1;
            return;
        };
        assert_eq!(capability.encode(), text, "a token has one spelling");
        let named = |(name, _): &&(&str, RootKey)| *name == capability.kid().as_str();
        let key = self.keys.iter().find(named).map(|(_, key)| key);
        match capability.verify(key) {
            Err(Refused::BadSignature) => self.forged += 1,
            verdict => {
                let pieces = Pieces::of(capability.as_bytes());
                assert!(
                    self.known.contains(&without_location(&pieces)),
                    "nobody minted it, and the verdict is {verdict:?}: {pieces:?}"
                );
                self.accepted += 1;
            }
        }
    }

    fn present_bytes(&mut self, bytes: &[u8]) {
        let text = base64url(bytes);
        self.present(&text);
    }

    /// Forges so many tokens. Of those, at least so many parts of a hundred have to come as far as
    /// the tag: a test that stops at the first byte tests little.
    fn run(mut self, percent: usize, forge: fn(&mut Self) -> Vec<u8>) {
        for _ in 0..EACH {
            let bytes = forge(&mut self);
            self.present_bytes(&bytes);
        }
        self.finish(percent);
    }

    fn finish(self, percent: usize) {
        let total = self.accepted + self.forged + self.malformed;
        assert!(total >= EACH);
        assert!(self.forged * 100 >= total * percent, "{} of {total} came far", self.forged);
        // A forgery may happen to be a capability again, as two changes can undo each other.
        assert!(self.accepted * 5 < total, "{} of {total} changed nothing", self.accepted);
    }
}

fn without_location(pieces: &Pieces) -> Vec<u8> {
    Pieces { location: None, ..pieces.clone() }.bytes()
}

/// Flips bits, cuts, inserts, repeats, overwrites: knows nothing of the format.
fn mutated(world: &mut World) -> Vec<u8> {
    let pieces = world.any();
    let mut bytes = pieces.bytes();
    let dice = &mut world.dice;
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len());
        match dice.below(8) {
            0..=3 => bytes[at] ^= 1 << dice.below(8),
            4 => bytes[at] = dice.roll() as u8,
            5 => bytes.insert(at, dice.roll() as u8),
            6 if dice.below(4) == 0 => bytes.truncate(at.max(1)),
            _ => {
                let end = at + dice.below((bytes.len() - at).min(40));
                let part: Vec<_> = bytes.drain(at..end).collect();
                for _ in 0..dice.below(3) {
                    let at = dice.below(bytes.len());
                    bytes.splice(at..at, part.iter().copied());
                }
            }
        }
        if bytes.is_empty() {
            bytes = dice.bytes(64);
        }
    }
    bytes
}

/// Takes caveats away, changes their order, or wishes for others; the tag stays, or is another
/// capability's.
fn rearranged(world: &mut World) -> Vec<u8> {
    let mut pieces = world.any();
    let other = world.any();
    let dice = &mut world.dice;
    let at = dice.below(pieces.caveats.len());
    match dice.below(6) {
        0 => pieces.caveats.truncate(at),
        1 => drop(pieces.caveats.remove(at)),
        2 => {
            let with = dice.below(pieces.caveats.len());
            pieces.caveats.swap(at, with);
        }
        3 => pieces.caveats[at] = Piece::new(*dice.pick(&WISHES)),
        4 => pieces.caveats.insert(at, Piece::new(*dice.pick(&WISHES))),
        _ => pieces.caveats.reverse(),
    }
    match dice.below(4) {
        0 => pieces.tag = other.tag,
        1 => pieces.tag = dice.bytes(32),
        _ => {}
    }
    pieces.bytes()
}

/// Puts parts of two capabilities together.
fn spliced(world: &mut World) -> Vec<u8> {
    let (mut pieces, other) = (world.any(), world.any());
    let dice = &mut world.dice;
    match dice.below(6) {
        0 => pieces.tag = other.tag,
        1 => pieces.caveats = other.caveats,
        2 => pieces.identifier = other.identifier,
        3 => pieces.caveats.extend(other.caveats),
        4 => {
            let keep = dice.below(pieces.caveats.len());
            pieces.caveats.splice(keep.., other.caveats);
            pieces.tag = other.tag;
        }
        _ => {
            let both = dice.below(32);
            pieces.tag[both..].copy_from_slice(&other.tag[both..]);
        }
    }
    if dice.below(4) == 0 {
        pieces.location = None;
    }
    pieces.bytes()
}

/// Moves the borders between the parts, makes a caveat a third party's, or takes a key that can be
/// guessed.
fn disguised(world: &mut World) -> Vec<u8> {
    let mut pieces = world.any();
    let dice = &mut world.dice;
    let at = dice.below(pieces.caveats.len());
    match dice.below(5) {
        0 => {
            let verifier = dice.below(40);
            pieces.caveats[at].verifier = Some(dice.bytes(verifier));
        }
        1 => {
            // The text of a caveat as its verifier, so that the same bytes enter the chain.
            let text = std::mem::take(&mut pieces.caveats[at].text);
            pieces.caveats[at].verifier = Some(text);
        }
        2 => {
            let moved = pieces.caveats.remove(at);
            match pieces.caveats.get_mut(at) {
                Some(next) => next.text.splice(..0, moved.text).for_each(drop),
                None => pieces.tag = dice.bytes(32),
            }
        }
        3 => {
            let cut = dice.below(pieces.caveats[at].text.len());
            let rest = pieces.caveats[at].text.split_off(cut);
            pieces.caveats.insert(at + 1, Piece::new(rest));
        }
        _ => {
            let guess = *dice.pick(&[[0; 32], [0xff; 32], *b"macaroons-key-generator........."]);
            let name = *dice.pick(&["k1", "k2", "k3", "none"]);
            let (name, id) = (kid(name), token_id("t-1"));
            let caveats = caveats(&["op = admin", EXP]);
            let guess = RootKey::from_bytes(guess);
            return Capability::mint(&guess, &name, &id, &caveats).unwrap().as_bytes().to_vec();
        }
    }
    pieces.bytes()
}

#[test]
fn a_mutated_capability_is_refused() {
    World::new(1).run(20, mutated);
}

#[test]
fn a_capability_with_caveats_stripped_swapped_or_replaced_is_refused() {
    World::new(2).run(75, rearranged);
}

#[test]
fn a_capability_put_together_from_others_is_refused() {
    World::new(3).run(75, spliced);
}

#[test]
fn a_capability_with_moved_borders_or_a_guessed_key_is_refused() {
    World::new(4).run(75, disguised);
}

#[test]
fn another_spelling_of_a_capability_is_refused() {
    let mut world = World::new(5);
    for at in 0..world.capabilities.len() {
        let pieces = world.capabilities[at].clone();
        let fields = 3 + pieces.caveats.len();
        for (field, padding) in (0..fields).flat_map(|field| (1..9).map(move |by| (field, by))) {
            let bytes = pieces.bytes_padding(field, padding);
            assert_ne!(bytes, pieces.bytes());
            assert_eq!(Capability::from_bytes(&bytes).unwrap_err(), Refused::Malformed);
        }
        // Any character anywhere, and a further one.
        let text = base64url(&pieces.bytes());
        for at in 0..text.len() {
            for character in ['=', '+', '/', ' ', '\n', '.', '\0', 'é'] {
                let (before, after) = (&text[..at], &text[at + 1..]);
                world.present(&format!("{before}{character}{after}"));
                world.present(&format!("{before}{character}{}", &text[at..]));
            }
        }
    }
    assert_eq!(world.accepted, 0);
    assert!(world.malformed > 10_000);
}

#[test]
fn only_noise_is_refused() {
    let mut world = World::new(6);
    for _ in 0..100_000 {
        let length = world.dice.below(200);
        let mut bytes = world.dice.bytes(length);
        if let [first, ..] = bytes.as_mut_slice() {
            *first = 2;
        }
        world.present_bytes(&bytes);
    }
    assert_eq!(world.accepted, 0);
}

#[test]
fn every_single_bit_and_every_prefix_counts() {
    let capability = minted(&["op = send", "topic = jobs", EXP]);
    let mut world = World::new(7);
    // Under either name, and nothing is known: whatever is accepted is a finding.
    world.keys = [("k1", key(1)), ("k2", key(1))];
    world.known.clear();
    let bytes = capability.as_bytes();
    let location = 3..10;
    for bit in (0..bytes.len() * 8).filter(|bit| !location.contains(&(bit / 8))) {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        world.present_bytes(&flipped);
    }
    for end in 0..bytes.len() {
        world.present_bytes(&bytes[..end]);
    }
    assert_eq!(world.accepted, 0);
    assert_eq!(world.malformed + world.forged, (bytes.len() - 7) * 8 + bytes.len());
}
