//! What a grant allows, caveat by caveat.

use mailbox_wire::capability::{Grant, NBF_SKEW_MS, Op, Quotas, Refused, Use};

use crate::pieces::{key, minted};

const EXP: &str = "exp = 2030-01-01T00:00:00Z";
const END_MS: i64 = 1_893_456_000_000;

const FINE: Use<'_> = Use {
    op: Op::Send,
    topic: Some("jobs"),
    now_ms: END_MS - 1_000_000,
    ip: None,
    bytes: 100,
    tenant: None,
};

fn grant(texts: &[&str]) -> Grant {
    minted(texts).verify(Some(&key(1))).unwrap()
}

/// Of a capability that ends in 2030.
fn check(texts: &[&str], wanted: &Use<'_>) -> Result<(), Refused> {
    grant(&[texts, &[EXP]].concat()).check(wanted)
}

#[test]
fn operations() {
    for op in Op::ALL {
        let wanted = Use { op, ..FINE };
        assert_eq!(check(&[], &wanted), Ok(()));
        let is_listed = matches!(op, Op::Receive | Op::Acknowledge);
        let expected = if is_listed { Ok(()) } else { Err(Refused::Op) };
        assert_eq!(check(&["op = recv,ack"], &wanted), expected, "{op}");
        let expected = if op == Op::Acknowledge { Ok(()) } else { Err(Refused::Op) };
        assert_eq!(check(&["op = recv,ack", "op = nack,ack"], &wanted), expected, "{op}");
        assert_eq!(check(&["op = recv", "op = send"], &wanted), Err(Refused::Op), "{op}");
    }
}

#[test]
fn topics() {
    let to = |topic| Use { topic, ..FINE };
    assert_eq!(check(&["topic = jobs"], &FINE), Ok(()));
    assert_eq!(check(&["topic = jobs"], &to(Some("jobs2"))), Err(Refused::Topic));
    assert_eq!(check(&["topic = a:*"], &to(Some("a:b"))), Ok(()));
    assert_eq!(check(&["topic = a:*", "topic = *"], &to(Some("a:b"))), Ok(()));
    assert_eq!(check(&["topic = a:*", "topic = a:c"], &to(Some("a:b"))), Err(Refused::Topic));
    // What concerns every topic needs a capability for every topic.
    assert_eq!(check(&[], &to(None)), Ok(()));
    assert_eq!(check(&["topic = *"], &to(None)), Ok(()));
    assert_eq!(check(&["topic = *", "topic = a:*"], &to(None)), Err(Refused::Topic));
}

#[test]
fn the_end_is_sharp() {
    let at = |now_ms| Use { now_ms, ..FINE };
    assert_eq!(check(&[], &at(END_MS - 1)), Ok(()));
    assert_eq!(check(&[], &at(END_MS)), Err(Refused::Expired));
    assert_eq!(check(&[], &at(i64::MAX)), Err(Refused::Expired));
    let earlier = "exp = 2029-01-01T00:00:00Z";
    for both in [[earlier, EXP], [EXP, earlier]] {
        let grant = grant(&both);
        assert_eq!(grant.expires_at().unwrap().to_string(), "2029-01-01T00:00:00Z");
        assert!(grant.is_expired(END_MS - 1));
    }
}

#[test]
fn what_was_received_can_be_settled_after_the_end_and_nothing_else_is_forgiven() {
    let grant = grant(&["op = ack", "topic = jobs", EXP]);
    let late = Use { op: Op::Acknowledge, now_ms: END_MS + 1, ..FINE };
    assert_eq!(grant.check(&late), Err(Refused::Expired));
    assert_eq!(grant.check_but_expiry(&late), Ok(()));
    let other = Use { topic: Some("other"), ..late };
    assert_eq!(grant.check_but_expiry(&other), Err(Refused::Topic));
    assert_eq!(grant.check_but_expiry(&Use { op: Op::Send, ..late }), Err(Refused::Op));
}

#[test]
fn the_beginning_allows_for_clocks_that_differ() {
    let begin = END_MS - 500_000;
    let nbf = "nbf = 2029-12-31T23:51:40Z";
    let at = |now_ms| Use { now_ms, ..FINE };
    assert_eq!(grant(&[nbf, EXP]).begins_at().unwrap().unix_ms(), begin);
    assert_eq!(check(&[nbf], &at(begin - NBF_SKEW_MS)), Ok(()));
    assert_eq!(check(&[nbf], &at(begin - NBF_SKEW_MS - 1)), Err(Refused::NotYet));
    assert_eq!(check(&[nbf], &at(i64::MIN)), Err(Refused::NotYet));
    let earlier = "nbf = 2020-01-01T00:00:00Z";
    for both in [[earlier, nbf], [nbf, earlier]] {
        assert_eq!(check(&both, &at(begin - NBF_SKEW_MS - 1)), Err(Refused::NotYet));
    }
}

#[test]
fn sizes() {
    let of = |bytes| Use { bytes, ..FINE };
    assert_eq!(check(&["max_bytes = 100"], &of(100)), Ok(()));
    assert_eq!(check(&["max_bytes = 100"], &of(101)), Err(Refused::Bytes));
    assert_eq!(check(&["max_bytes = 9", "max_bytes = 100"], &of(10)), Err(Refused::Bytes));
    assert_eq!(check(&["max_bytes = 100", "max_bytes = 9"], &of(10)), Err(Refused::Bytes));
    assert_eq!(check(&[], &of(u64::MAX)), Ok(()));
}

#[test]
fn addresses() {
    let from = |ip: &str| Use { ip: Some(ip.parse().unwrap()), ..FINE };
    assert_eq!(check(&["ip = 10.0.0.0/8,::1"], &from("10.1.2.3")), Ok(()));
    assert_eq!(check(&["ip = 10.0.0.0/8,::1"], &from("::ffff:10.1.2.3")), Ok(()));
    assert_eq!(check(&["ip = 10.0.0.0/8,::1"], &from("::2")), Err(Refused::Ip));
    let both = &["ip = 10.0.0.0/8", "ip = 10.1.0.0/16"];
    assert_eq!(check(both, &from("10.1.2.3")), Ok(()));
    assert_eq!(check(both, &from("10.2.2.3")), Err(Refused::Ip));
}

#[test]
fn a_peer_without_an_address_is_on_this_machine() {
    assert_eq!(check(&["ip = 127.0.0.0/8,::1/128"], &FINE), Ok(()));
    assert_eq!(check(&["ip = ::1"], &FINE), Ok(()));
    assert_eq!(check(&["ip = 0.0.0.0/0"], &FINE), Ok(()));
    assert_eq!(check(&["ip = 10.0.0.0/8"], &FINE), Err(Refused::Ip));
    // It has one address, not one for each caveat.
    assert_eq!(check(&["ip = ::1", "ip = 127.0.0.1"], &FINE), Err(Refused::Ip));
}

#[test]
fn tenants() {
    let of = |tenant| Use { tenant, ..FINE };
    assert_eq!(check(&["tenant = a"], &of(Some("a"))), Ok(()));
    assert_eq!(check(&["tenant = a"], &of(Some("b"))), Err(Refused::Tenant));
    assert_eq!(check(&["tenant = a"], &of(None)), Err(Refused::Tenant));
    assert_eq!(check(&["tenant = a", "tenant = a"], &of(Some("a"))), Ok(()));
    for tenant in [None, Some("a"), Some("b")] {
        assert_eq!(check(&["tenant = a", "tenant = b"], &of(tenant)), Err(Refused::Tenant));
    }
    assert_eq!(check(&[], &of(Some("a"))), Ok(()));
}

#[test]
fn limits_for_those_who_count() {
    let grant = grant(&[
        "rate = 100/s",
        "rate = 1000/h",
        "rate = 100/s",
        "quota_ops = 7",
        "quota_ops = 9",
        "quota_bytes = 50",
        "quota_bytes = 5",
        EXP,
    ]);
    let rates: Vec<_> = grant.rates().iter().map(ToString::to_string).collect();
    assert_eq!(rates, ["100/s", "1000/h"]);
    assert_eq!(grant.quotas(), Quotas { ops: Some(7), bytes: Some(5) });
}
