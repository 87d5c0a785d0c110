//! libmacaroon and we understand each other, also about macaroons that we would not mint.

use libmacaroon::{Format, Macaroon, MacaroonKey, Verifier};
use mailbox_wire::capability::{Capability, Caveat, MAX_CAVEATS, Refused};
use proptest::prelude::*;

use crate::narrowed::a_caveat;
use crate::pieces::{Pieces, base64url, key, key_bytes, kid, minted, token_id};

const EXP: &str = "exp = 2030-01-01T00:00:00Z";

fn their_key(seed: u8) -> MacaroonKey {
    MacaroonKey::generate(&key_bytes(seed))
}

fn theirs(identifier: &str, caveats: &[&str]) -> Macaroon {
    let mut macaroon = Macaroon::create(Some("mailbox"), &their_key(1), identifier).unwrap();
    for caveat in caveats {
        macaroon.add_first_party_caveat(caveat).unwrap();
    }
    macaroon
}

fn text(macaroon: &Macaroon) -> String {
    macaroon.serialize(Format::V2).unwrap().trim_end_matches('=').to_owned()
}

fn ours(macaroon: &Macaroon) -> Capability {
    Capability::decode(&text(macaroon)).unwrap()
}

fn they_accept(capability: &Capability, seed: u8) -> bool {
    let macaroon = Macaroon::deserialize(capability.encode()).unwrap();
    let mut verifier = Verifier::default();
    verifier.satisfy_general(|_| true);
    verifier.verify(&macaroon, &their_key(seed), &[]).is_ok()
}

proptest! {
    #[test]
    fn both_mint_and_narrow_the_same_bytes(
        first in prop::collection::vec(a_caveat(), 0..5),
        more in prop::collection::vec(a_caveat(), 0..5),
    ) {
        let first: Vec<Caveat> = first.into_iter().chain([EXP.parse().unwrap()]).collect();
        let mut mine =
            Capability::mint(&key(1), &kid("k1"), &token_id("t-1"), &first).unwrap();
        let texts: Vec<_> = first.iter().map(ToString::to_string).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let mut other = theirs("v1 k1 t-1", &texts);
        prop_assert_eq!(mine.encode(), text(&other));

        for caveat in &more {
            mine = mine.attenuate(caveat).unwrap();
            other.add_first_party_caveat(caveat.to_string()).unwrap();
        }
        prop_assert_eq!(mine.encode(), text(&other));
        prop_assert!(they_accept(&mine, 1));
        prop_assert!(!they_accept(&mine, 2));
        prop_assert!(ours(&other).verify(Some(&key(1))).is_ok());
        prop_assert_eq!(ours(&other).verify(Some(&key(2))).unwrap_err(), Refused::BadSignature);
    }
}

#[test]
fn they_narrow_ours() {
    let mut macaroon = Macaroon::deserialize(minted(&["op = send,recv", EXP]).encode()).unwrap();
    macaroon.add_first_party_caveat("op = recv,ack").unwrap();
    let grant = ours(&macaroon).verify(Some(&key(1))).unwrap();
    assert_eq!(grant.ops().to_string(), "recv");
}

#[test]
fn a_caveat_that_is_not_understood_refuses_the_whole() {
    for caveat in [
        "weekday = monday",
        "op = fly",
        "op=send",
        "OP = send",
        "max_bytes = 1k",
        "exp = never",
        "time < 2030-01-01T00:00",
        "",
        "topic = jobs ",
        "topic = a*b",
        "ip = 10.0.0.1/8",
        "é = ü",
    ] {
        let before = ours(&theirs("v1 k1 t-1", &[caveat, "op = send", EXP]));
        assert_eq!(before.verify(Some(&key(1))).unwrap_err(), Refused::Caveat, "{caveat:?}");
        let after = ours(&theirs("v1 k1 t-1", &["op = send", EXP, caveat]));
        assert_eq!(after.verify(Some(&key(1))).unwrap_err(), Refused::Caveat, "{caveat:?}");
        // Whoever has no key learns nothing about caveats.
        assert_eq!(after.verify(Some(&key(2))).unwrap_err(), Refused::BadSignature, "{caveat:?}");
    }
    let mut macaroon = theirs("v1 k1 t-1", &[EXP]);
    macaroon.add_first_party_caveat([0xff, 0xfe]).unwrap();
    assert_eq!(ours(&macaroon).verify(Some(&key(1))).unwrap_err(), Refused::Caveat);
}

#[test]
fn a_third_partys_caveat_refuses_the_whole_but_keeps_the_chain() {
    let mut macaroon = theirs("v1 k1 t-1", &["op = send", EXP]);
    // It reads like one of ours, but it is not for us to say whether it holds.
    macaroon.add_third_party_caveat("https://id.example", &their_key(3), "op = recv").unwrap();
    macaroon.add_first_party_caveat("topic = jobs").unwrap();
    let capability = ours(&macaroon);
    assert_eq!(capability.verify(Some(&key(1))).unwrap_err(), Refused::Caveat);
    assert_eq!(capability.verify(Some(&key(2))).unwrap_err(), Refused::BadSignature);
    let texts: Vec<_> = capability.caveat_texts().collect();
    assert_eq!(texts, ["op = send", EXP, "(third party) op = recv", "topic = jobs"]);
}

#[test]
fn what_never_ends_is_refused_unless_it_stays_here() {
    for (caveats, is_fine) in [
        (&[][..], false),
        (&["op = send"], false),
        (&["nbf = 2020-01-01T00:00:00Z", "ip = 10.0.0.0/8"], false),
        (&["ip = 127.0.0.0/8,10.0.0.1"], false),
        (&["ip = 0.0.0.0/0"], false),
        (&["ip = 127.0.0.0/8,::1/128"], true),
        (&["ip = 127.0.0.1"], true),
        (&["op = admin", "ip = ::1"], true),
        (&["ip = 0.0.0.0/0", "ip = 127.0.0.0/8"], true),
        (&[EXP], true),
    ] {
        let verified = ours(&theirs("v1 k1 t-1", caveats)).verify(Some(&key(1)));
        assert_eq!(verified.is_ok(), is_fine, "{caveats:?}");
        assert!(verified.is_ok() || verified.is_err_and(|why| why == Refused::Caveat));
    }
}

#[test]
fn the_location_is_not_looked_at() {
    for location in [None, Some(""), Some("https://elsewhere.example")] {
        let mut macaroon = Macaroon::create(location, &their_key(1), "v1 k1 t-1").unwrap();
        macaroon.add_first_party_caveat(EXP).unwrap();
        assert!(ours(&macaroon).verify(Some(&key(1))).is_ok());
    }
}

#[test]
fn an_identifier_of_another_shape_is_malformed() {
    let long = format!("v1 {} t", "k".repeat(33));
    for identifier in [
        "",
        "v1",
        "v1 k1",
        "v1 k1 ",
        "v1  t",
        "v1 k1 t ",
        "v1 k1  t",
        " v1 k1 t",
        "v2 k1 t",
        "v1 k1 t x",
        "v1 k/1 t",
        "v1\tk1\tt",
        "v1 k1 t\n",
        "k1 t-1",
        &long,
    ] {
        let mut pieces = Pieces::of(minted(&[EXP]).as_bytes());
        pieces.identifier = identifier.into();
        let read = Capability::decode(&base64url(&pieces.bytes()));
        assert_eq!(read.unwrap_err(), Refused::Malformed, "{identifier:?}");
    }
    let read = ours(&theirs("v1 k_1-A t_2-B", &[EXP]));
    assert_eq!((read.kid().as_str(), read.token_id().as_str()), ("k_1-A", "t_2-B"));
}

#[test]
fn more_caveats_than_allowed_are_malformed() {
    let mut macaroon = theirs("v1 k1 t-1", &[EXP; MAX_CAVEATS]);
    assert!(ours(&macaroon).verify(Some(&key(1))).is_ok());
    macaroon.add_first_party_caveat(EXP).unwrap();
    assert_eq!(Capability::decode(&text(&macaroon)).unwrap_err(), Refused::Malformed);
}
