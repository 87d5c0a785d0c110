//! Minting, narrowing and reading: limits, and what is never shown.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE};
use mailbox_wire::capability::{
    CannotMint, Capability, Caveat, MAX_BYTES, MAX_CAVEATS, Ops, Refused, RootKey,
};

use crate::pieces::{base64url, caveats, key, kid, minted, token_id};

const EXP: &str = "exp = 2030-01-01T00:00:00Z";

fn mint(caveats: &[Caveat]) -> Result<Capability, CannotMint> {
    Capability::mint(&key(1), &kid("k1"), &token_id("t-1"), caveats)
}

/// A caveat of exactly so many bytes.
fn long_caveat(length: usize) -> Caveat {
    let mut text = "topic = a".to_owned();
    while text.len() + 82 <= length {
        text.push(',');
        text.push_str(&"b".repeat(80));
    }
    let rest = length - text.len();
    if rest >= 2 {
        text.push(',');
        text.push_str(&"c".repeat(rest - 1));
    }
    let caveat: Caveat = text.parse().unwrap();
    assert_eq!(caveat.to_string().len(), length);
    caveat
}

#[test]
fn what_would_be_refused_everywhere_is_not_minted() {
    for texts in [&[][..], &["op = send"], &["ip = 10.0.0.0/8"], &["topic = a", "tenant = b"]] {
        assert_eq!(mint(&caveats(texts)).unwrap_err(), CannotMint::Useless, "{texts:?}");
    }
    let nothing = "send".parse::<Ops>().unwrap().intersection("recv".parse().unwrap());
    let unreadable = [Caveat::Ops(nothing), EXP.parse().unwrap()];
    assert_eq!(mint(&unreadable).unwrap_err(), CannotMint::Useless);
    assert!(mint(&caveats(&[EXP])).is_ok());
    assert!(mint(&caveats(&["ip = 127.0.0.0/8,::1/128"])).is_ok());
}

#[test]
fn size_is_bounded_to_the_byte() {
    let small = minted(&[EXP]);
    // Type, length in two bytes and end.
    let room = MAX_BYTES - small.as_bytes().len() - 4;
    let largest = small.attenuate(&long_caveat(room)).unwrap();
    assert_eq!(largest.as_bytes().len(), MAX_BYTES);
    assert!(Capability::decode(&largest.encode()).unwrap().verify(Some(&key(1))).is_ok());
    assert!(Capability::from_bytes(largest.as_bytes()).is_ok());
    assert_eq!(small.attenuate(&long_caveat(room + 2)).unwrap_err(), CannotMint::TooLong);

    let exp: Caveat = EXP.parse().unwrap();
    assert!(mint(&[exp.clone(), long_caveat(room)]).is_ok());
    for beyond in [room + 2, room + 40, 3 * MAX_BYTES] {
        let minted = mint(&[exp.clone(), long_caveat(beyond)]);
        assert_eq!(minted.unwrap_err(), CannotMint::TooLong, "{beyond}");
    }
}

#[test]
fn the_number_of_caveats_is_bounded() {
    let exp: Caveat = EXP.parse().unwrap();
    let most = mint(&vec![exp.clone(); MAX_CAVEATS]).unwrap();
    assert!(Capability::decode(&most.encode()).unwrap().verify(Some(&key(1))).is_ok());
    assert_eq!(most.attenuate(&exp).unwrap_err(), CannotMint::TooManyCaveats);
    let more = mint(&vec![exp; MAX_CAVEATS + 1]);
    assert_eq!(more.unwrap_err(), CannotMint::TooManyCaveats);
}

#[test]
fn larger_than_allowed_is_malformed_however_it_is_made() {
    let mut bytes = minted(&[EXP]).as_bytes().to_vec();
    bytes.resize(MAX_BYTES + 1, 0);
    assert_eq!(Capability::from_bytes(&bytes).unwrap_err(), Refused::Malformed);
    assert_eq!(Capability::decode(&base64url(&bytes)).unwrap_err(), Refused::Malformed);
    assert_eq!(Capability::decode(&"A".repeat(1 << 20)).unwrap_err(), Refused::Malformed);
}

#[test]
fn text_has_one_spelling() {
    // Of a length that base64 has to pad.
    let capability = minted(&["op = ack", EXP]);
    let text = capability.encode();
    let bytes = capability.as_bytes();
    assert_eq!(bytes.len() % 3, 1, "choose other caveats");
    let spellings = [
        String::new(),
        URL_SAFE.encode(bytes),
        format!(" {text}"),
        format!("{text} "),
        format!("{text}\n"),
        format!("{text}="),
        format!("{text}A"),
        format!("{}\n{}", &text[..8], &text[8..]),
        text.replace('A', "\u{410}"),
    ];
    for other in spellings {
        assert_eq!(Capability::decode(&other).unwrap_err(), Refused::Malformed, "{other:?}");
    }
    let standard = STANDARD_NO_PAD.encode(bytes);
    assert_eq!(Capability::decode(&standard).is_ok(), standard == text);
    // Two of the six bits of the last character count, so four characters are canonical.
    let (all_but_last, _) = text.split_at(text.len() - 1);
    let is_read = |last: &char| Capability::decode(&format!("{all_but_last}{last}")).is_ok();
    assert_eq!(('\0'..='\u{ff}').filter(is_read).collect::<String>(), "AQgw");
}

#[test]
fn an_unknown_key_is_refused_like_a_forgery_even_if_it_is_guessed() {
    // Who is asked without a key works with one of zeros. It must not open anything.
    let zeros = RootKey::from_bytes([0; RootKey::LEN]);
    let guessed =
        Capability::mint(&zeros, &kid("gone"), &token_id("t-1"), &caveats(&[EXP])).unwrap();
    assert!(guessed.verify(Some(&zeros)).is_ok());
    assert_eq!(guessed.verify(None).unwrap_err(), Refused::BadSignature);
}

#[test]
fn nothing_shows_a_secret() {
    let capability = minted(&["op = send", EXP]);
    assert_eq!(format!("{capability:?}"), r#"Capability { kid: "k1", token_id: "t-1", .. }"#);
    assert_eq!(format!("{:?}", key(1)), "RootKey");
    assert_eq!(format!("{:#?}", key(1)), "RootKey");
}

#[test]
fn narrowing_leaves_the_original_as_it_was() {
    let capability = minted(&["op = send,recv", EXP]);
    let before = capability.encode();
    let narrowed = capability.attenuate(&"op = send".parse().unwrap()).unwrap();
    assert_eq!(capability.encode(), before);
    assert_eq!(capability.verify(Some(&key(1))).unwrap().ops().to_string(), "send,recv");
    assert_eq!(narrowed.verify(Some(&key(1))).unwrap().ops().to_string(), "send");
    assert_eq!(narrowed.token_id(), capability.token_id());
}
