//! The grammar of caveats under random text, and the one law of capabilities: a further caveat
//! never allows more.

use std::net::IpAddr;

use mailbox_wire::capability::{Capability, Caveat, Grant, Op, Refused, Timestamp, Use};
use proptest::prelude::*;
use proptest::sample::select;

use crate::pieces::{key, kid, token_id};

/// Few values for everything, so that uses and caveats often meet.
const TOPICS: [&str; 6] = ["jobs", "jobs:a", "jobs:b", "job", "mail.out", "x"];
const PATTERNS: [&str; 9] =
    ["jobs", "jobs:a", "jobs:*", "jobs*", "job", "mail.*", "*", "x", "mail.out"];
const NETWORKS: [&str; 8] = [
    "10.0.0.0/8",
    "10.1.0.0/16",
    "127.0.0.0/8",
    "::1/128",
    "127.0.0.1",
    "0.0.0.0/0",
    "::/0",
    "2001:db8::/32",
];
const PEERS: [&str; 6] =
    ["10.1.2.3", "10.2.2.3", "127.0.0.1", "::1", "::ffff:10.1.2.3", "2001:db8::7"];
const NOW: i64 = 1_700_000_000_000;

fn a_moment() -> impl Strategy<Value = Timestamp> {
    prop_oneof![NOW - 100_000..NOW + 100_000, -62_167_219_200_000_i64..=253_402_300_799_999]
        .prop_map(|ms: i64| Timestamp::from_unix_ms(ms).unwrap())
}

fn a_list(key: &'static str, of: &'static [&'static str]) -> impl Strategy<Value = Caveat> {
    prop::sample::subsequence(of, 1..=of.len().min(4))
        .prop_map(move |some| format!("{key} = {}", some.join(",")).parse().unwrap())
}

fn a_size() -> impl Strategy<Value = u64> {
    prop_oneof![0..5_u64, any::<u64>()]
}

pub(crate) fn a_caveat() -> impl Strategy<Value = Caveat> {
    prop_oneof![
        a_list("op", &["send", "recv", "ack", "nack", "admin"]),
        a_list("topic", &PATTERNS),
        a_list("ip", &NETWORKS),
        a_moment().prop_map(Caveat::Expires),
        a_moment().prop_map(Caveat::NotBefore),
        a_size().prop_map(Caveat::MaxBytes),
        a_size().prop_map(Caveat::QuotaOps),
        a_size().prop_map(Caveat::QuotaBytes),
        (1..=u32::MAX, select(&["s", "m", "h"][..])).prop_map(|(times, per)| format!(
            "rate = {times}/{per}"
        )
        .parse()
        .unwrap()),
        select(&["a", "b"][..]).prop_map(|name| Caveat::Tenant(name.parse().unwrap())),
    ]
}

#[derive(Clone, Debug)]
struct Wanted {
    op: Op,
    topic: Option<&'static str>,
    now_ms: i64,
    ip: Option<IpAddr>,
    bytes: u64,
    tenant: Option<&'static str>,
}

impl Wanted {
    fn as_use(&self) -> Use<'_> {
        let Self { op, topic, now_ms, ip, bytes, tenant } = *self;
        Use { op, topic, now_ms, ip, bytes, tenant }
    }
}

fn a_use() -> impl Strategy<Value = Wanted> {
    let ip = select(&PEERS[..]).prop_map(|ip| ip.parse().unwrap());
    (
        select(&Op::ALL[..]),
        prop::option::of(select(&TOPICS[..])),
        NOW - 150_000..NOW + 150_000,
        prop::option::of(ip),
        0..6_u64,
        prop::option::of(select(&["a", "b"][..])),
    )
        .prop_map(|(op, topic, now_ms, ip, bytes, tenant)| Wanted {
            op,
            topic,
            now_ms,
            ip,
            bytes,
            tenant,
        })
}

/// What ends a capability, so that it can be minted.
fn an_end() -> impl Strategy<Value = Caveat> {
    prop_oneof![
        a_moment().prop_map(Caveat::Expires),
        Just("ip = 127.0.0.0/8,::1/128".parse().unwrap()),
    ]
}

fn granted(caveats: &[Caveat]) -> Grant {
    let capability = Capability::mint(&key(1), &kid("k"), &token_id("t"), caveats).unwrap();
    capability.verify(Some(&key(1))).unwrap()
}

/// Whether `narrow` lets through no more than `wide` of what the service counts.
fn counts_no_less(wide: &Grant, narrow: &Grant) -> bool {
    let at_most = |narrow: Option<u64>, wide: Option<u64>| {
        narrow.unwrap_or(u64::MAX) <= wide.unwrap_or(u64::MAX)
    };
    at_most(narrow.quotas().ops, wide.quotas().ops)
        && at_most(narrow.quotas().bytes, wide.quotas().bytes)
        && wide.rates().iter().all(|rate| narrow.rates().contains(rate))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_written_is_read_back(caveat in a_caveat()) {
        let text = caveat.to_string();
        prop_assert_eq!(text.parse::<Caveat>(), Ok(caveat));
    }

    #[test]
    fn arbitrary_text_is_read_or_refused_and_what_is_read_can_be_written(
        text in prop_oneof![
            any::<String>(),
            "(op|topic|exp|nbf|max_bytes|rate|quota_ops|quota_bytes|ip|tenant) = .{0,40}",
            "(op|topic|exp|nbf|max_bytes|rate|ip|tenant) = [-0-9a-zA-Z.:,/*TZ+ ]{0,40}",
            "(exp|nbf) = [0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]\
             (\\.[0-9]{1,12})?(Z|[+-][0-2][0-9]:[0-6][0-9])",
            "ip = [0-9a-f:]{1,20}/[0-9]{1,3}",
            "ip = [0-9]{1,3}\\.0\\.0\\.0/[0-9]{1,2}",
        ],
    ) {
        if let Ok(caveat) = text.parse::<Caveat>() {
            prop_assert!(text.is_ascii());
            prop_assert_eq!(caveat.to_string().parse::<Caveat>(), Ok(caveat));
        }
    }

    #[test]
    fn one_changed_character_is_refused_or_another_caveat(
        caveat in a_caveat(), at in any::<prop::sample::Index>(), to in "[ -~]"
    ) {
        let text = caveat.to_string();
        let at = at.index(text.len());
        let other = format!("{}{to}{}", &text[..at], &text[at + 1..]);
        // Hexadecimal digits of an address are the only letters without a case.
        let is_same_address = text.starts_with("ip = ") && other.eq_ignore_ascii_case(&text);
        if other != text && !is_same_address {
            prop_assert_ne!(other.parse::<Caveat>(), Ok(caveat), "{}", other);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn a_further_caveat_never_allows_more(
        end in an_end(),
        first in prop::collection::vec(a_caveat(), 0..3),
        more in prop::collection::vec(a_caveat(), 0..3),
        uses in prop::collection::vec(a_use(), 32),
    ) {
        let first = [vec![end], first].concat();
        let all = [first.clone(), more].concat();
        let (wide, narrow) = (granted(&first), granted(&all));
        for wanted in &uses {
            let wanted = wanted.as_use();
            if narrow.check(&wanted).is_ok() {
                prop_assert_eq!(wide.check(&wanted), Ok(()), "{:?}", wanted);
            }
            if narrow.check_but_expiry(&wanted).is_ok() {
                prop_assert_eq!(wide.check_but_expiry(&wanted), Ok(()), "{:?}", wanted);
            }
        }
        prop_assert!(counts_no_less(&wide, &narrow));
    }

    #[test]
    fn the_order_of_caveats_does_not_matter(
        end in an_end(),
        caveats in prop::collection::vec(a_caveat(), 1..5),
        uses in prop::collection::vec(a_use(), 16),
    ) {
        let forwards = [vec![end], caveats].concat();
        let backwards: Vec<_> = forwards.iter().rev().cloned().collect();
        let (one, other) = (granted(&forwards), granted(&backwards));
        for wanted in &uses {
            prop_assert_eq!(one.check(&wanted.as_use()), other.check(&wanted.as_use()));
        }
    }
}

#[test]
fn the_uses_that_are_tried_are_often_allowed() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let both = (an_end(), prop::collection::vec(a_caveat(), 0..3), a_use());
    let mut allowed = 0;
    for _ in 0..2_000 {
        let (end, caveats, wanted) = both.new_tree(&mut runner).unwrap().current();
        let grant = granted(&[vec![end], caveats].concat());
        match grant.check(&wanted.as_use()) {
            Ok(()) => allowed += 1,
            Err(why) => assert_ne!(why, Refused::BadSignature),
        }
    }
    assert!((200..1_800).contains(&allowed), "{allowed} of 2000");
}
