//! Names that no message has, and some that are unusual.

use super::odd_files::{Case, Fate, MOMENTS, SHELVES, Thing, check, place};

/// Called like messages, with characters or marks that none has.
const ODD_NAMES: [&[u8]; 54] = [
    b"a b.json",
    b" .json",
    b"a\nb.json",
    b"\n.json",
    b"a\tb.json",
    b"a\x1b[31mb.json",
    b"a\x7fb.json",
    b"-rf.json",
    b"--help.json",
    b"\xc3\xbcber.json",
    b"\xe6\x97\xa5\xe6\x9c\xac.json",
    b"\xff\xfe.json",
    b"a\xc3.json",
    b"\xe2\x80\xae.json",
    b"$(id).json",
    b"`id`.json",
    b"a;b.json",
    b"a|b.json",
    b"a&b.json",
    b"a>b.json",
    b"*.json",
    b"?.json",
    b"[a].json",
    b"{a}.json",
    b"a\\b.json",
    b"a'b.json",
    b"a\"b.json",
    b"a%2Fb.json",
    b"#a.json",
    b"!a.json",
    b"~.json",
    b"~n1.json",
    b"x~.json",
    b"x~q1.json",
    b"x~n.json",
    b"x~n0.json",
    b"x~n01.json",
    b"x~n-1.json",
    b"x~n+1.json",
    b"x~n1~n2.json",
    b"x~n1~.json",
    b"x~N1.json",
    b"x~n4294967296.json",
    b"x~r1~n1.json",
    b"x~d1.json",
    b"x~d1.1.1.json",
    b"x~d01.1.json",
    b"x~da.1.json",
    b"x~dZZZZZZZZZZZZZZ.1.json",
    b"x~c1.json",
    b"x~u1.1~t1~o1.json",
    b"x~xwhim~a1.json",
    b"x~a1.json",
    b"x~xrejected.json.json",
];

/// Hidden, or called something else: not ours to touch.
const STRANGE_NAMES: [&[u8]; 14] = [
    b".hidden.json",
    b"..json",
    b"...json",
    b".json",
    b"readme.txt",
    b"x.JSON",
    b"x.Json",
    b"x.json~",
    b"x.json.tmp",
    b"x.json ",
    b"x",
    b"json",
    b"\xff.txt",
    b"3f",
];

/// Names of messages, also of such as are somewhere else usually.
const NAMES: [&[u8]; 9] = [
    b"x.json",
    b"X.json",
    b"_x.json",
    b"x.y.json",
    b"x.json.json",
    b"a+b=c,d@e:f.json",
    b"1~n1.json",
    b"2~f1.json",
    b"3~xrejected~a1.json",
];

#[tokio::test]
async fn files_with_odd_names_stop_nobody() {
    let longest = format!("{}.json", "x".repeat(250));
    let too_long = format!("{}.json", "x".repeat(97));
    let just_fits = format!("{}.json", "x".repeat(96));
    let message = Thing::Bytes(b"1".to_vec());
    for moment in MOMENTS {
        for shelf in SHELVES {
            let (place, canary) = place().await;
            let case = |name: &[u8], fate| Case::new(shelf, name, message.clone(), fate);
            let mut cases: Vec<Case> =
                ODD_NAMES.iter().map(|name| case(name, Fate::Aside)).collect();
            cases.extend(STRANGE_NAMES.iter().map(|name| case(name, Fate::Stays)));
            cases.extend(NAMES.iter().map(|name| case(name, Fate::Delivered)));
            cases.push(case(longest.as_bytes(), Fate::Aside));
            cases.push(case(too_long.as_bytes(), Fate::Aside));
            cases.push(case(just_fits.as_bytes(), Fate::Delivered));
            cases.push(case(b"4~n3.json", Fate::Buried));
            cases.push(case(b"5~n4294967295.json", Fate::Buried));
            check(moment, &cases, place, &canary).await;
        }
    }
}
