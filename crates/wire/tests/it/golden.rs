//! Capabilities whose bytes are fixed. They were made by pymacaroons 0.13.0, so they change only if
//! the format or the chain does, and then every capability in use is lost.

use mailbox_wire::capability::{Capability, Caveat, Refused};

use crate::pieces::{caveats, key, kid, token_id};

struct Golden {
    kid: &'static str,
    token_id: &'static str,
    seed: u8,
    caveats: &'static [&'static str],
    text: &'static str,
}

const GOLDEN: [Golden; 3] = [
    Golden {
        kid: "k1",
        token_id: "t-1",
        seed: 1,
        caveats: &["exp = 2030-01-01T00:00:00Z"],
        text: "AgEHbWFpbGJveAIJdjEgazEgdC0xAAIaZXhwID0gMjAzMC0wMS0wMVQwMDowMDowMFoAAAYg4vgjihLl\
               pCfdl8Ob8SShfDl3lolNOdiWD2ROU-JO2cs",
    },
    Golden {
        kid: "operator",
        token_id: "01J0000000000000000000000A",
        seed: 7,
        caveats: &["op = send,recv,ack,nack,admin", "ip = 127.0.0.0/8,::1/128"],
        text: "AgEHbWFpbGJveAImdjEgb3BlcmF0b3IgMDFKMDAwMDAwMDAwMDAwMDAwMDAwMDAwMEEAAh1vcCA9IHNl\
               bmQscmVjdixhY2ssbmFjayxhZG1pbgACGGlwID0gMTI3LjAuMC4wLzgsOjoxLzEyOAAABiCnGYesHsC2\
               r-M7sYbUxtixoZuzA5YjITDHOnyCrW2aFQ",
    },
    Golden {
        kid: "2026-10",
        token_id: "worker_9",
        seed: 200,
        caveats: &[
            "op = recv,ack,nack",
            "topic = jobs,tenant-a:*",
            "nbf = 2025-01-01T00:00:00.500Z",
            "exp = 2030-01-01T00:00:00Z",
            "max_bytes = 65536",
            "rate = 100/s",
            "quota_ops = 1000000",
            "quota_bytes = 18446744073709551615",
            "ip = 10.0.0.0/8,2001:db8::/32",
            "tenant = a",
        ],
        text: "AgEHbWFpbGJveAITdjEgMjAyNi0xMCB3b3JrZXJfOQACEm9wID0gcmVjdixhY2ssbmFjawACF3RvcGlj\
               ID0gam9icyx0ZW5hbnQtYToqAAIebmJmID0gMjAyNS0wMS0wMVQwMDowMDowMC41MDBaAAIaZXhwID0g\
               MjAzMC0wMS0wMVQwMDowMDowMFoAAhFtYXhfYnl0ZXMgPSA2NTUzNgACDHJhdGUgPSAxMDAvcwACE3F1\
               b3RhX29wcyA9IDEwMDAwMDAAAiJxdW90YV9ieXRlcyA9IDE4NDQ2NzQ0MDczNzA5NTUxNjE1AAIdaXAg\
               PSAxMC4wLjAuMC84LDIwMDE6ZGI4OjovMzIAAgp0ZW5hbnQgPSBhAAAGIAKBcZSHYqnS2x5UxaKkHm6U\
               XoWGg0lPQjM0ubXZrWBL",
    },
];

#[test]
fn minting_gives_the_fixed_bytes() {
    for golden in &GOLDEN {
        let minted = Capability::mint(
            &key(golden.seed),
            &kid(golden.kid),
            &token_id(golden.token_id),
            &caveats(golden.caveats),
        );
        assert_eq!(minted.unwrap().encode(), golden.text, "{}", golden.kid);
    }
}

#[test]
fn narrowing_one_by_one_gives_the_fixed_bytes() {
    for golden in &GOLDEN {
        // From the shortest that can be minted: the caveats up to the one that ends it.
        let ends = |caveat: &Caveat| matches!(caveat, Caveat::Expires(_) | Caveat::Networks(_));
        let all = caveats(golden.caveats);
        let start = all.iter().position(ends).unwrap() + 1;
        let (kid, token_id) = (kid(golden.kid), token_id(golden.token_id));
        let minted = Capability::mint(&key(golden.seed), &kid, &token_id, &all[..start]).unwrap();
        let narrowed = all[start..]
            .iter()
            .fold(minted, |capability, caveat| capability.attenuate(caveat).unwrap());
        assert_eq!(narrowed.encode(), golden.text, "{}", golden.kid);
    }
}

#[test]
fn the_fixed_bytes_are_read_and_verified() {
    for golden in &GOLDEN {
        let capability = Capability::decode(golden.text).unwrap();
        assert_eq!(capability.kid().as_str(), golden.kid);
        assert_eq!(capability.token_id().as_str(), golden.token_id);
        assert!(capability.caveat_texts().eq(golden.caveats.iter().copied()));
        assert_eq!(capability.encode(), golden.text);
        assert!(capability.verify(Some(&key(golden.seed))).is_ok());
        let other = capability.verify(Some(&key(golden.seed.wrapping_add(1))));
        assert_eq!(other.unwrap_err(), Refused::BadSignature);
        assert_eq!(capability.verify(None).unwrap_err(), Refused::BadSignature);
    }
}
