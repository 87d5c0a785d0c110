//! Sends that come together, of which some cannot be done or are too many.

use mailbox_wire::call::Request;
use mailbox_wire::json::SendRequest;

use super::{both, codes, compare, good, pair};
use crate::rig::send;

/// Sends that cannot be done, and whatever is wrong with them.
fn bad() -> Vec<(&'static str, SendRequest)> {
    let with = |change: &dyn Fn(&mut SendRequest)| {
        let mut request = send("jobs", "bad");
        change(&mut request);
        request
    };
    vec![
        ("no topic", with(&|it| it.topic.clear())),
        ("a topic that is none", with(&|it| it.topic = "no spaces".to_owned())),
        ("a topic out of scope", with(&|it| it.topic = "forbidden".to_owned())),
        ("a payload that is too large", send("jobs", vec![7; 101])),
        ("a reserved attribute", with(&|it| it.attrs = pair("mailbox.sig", "x"))),
        ("an id that is none", with(&|it| it.corr_id = Some("x".to_owned()))),
        ("a delay that is too long", with(&|it| it.delay_ms = Some(86_400_000))),
        ("a key that is too long", with(&|it| it.idem_key = Some("k".repeat(200)))),
        ("an attribute that is too long", with(&|it| it.attrs = pair(&"k".repeat(300), "x"))),
        ("the same key again", with(&|it| it.idem_key = Some("key".to_owned()))),
    ]
}

const SCOPE: [&str; 3] = ["op = send", "topic = jobs,other,third", "max_bytes = 100"];

/// Some that are good, with one that is not in different places, once or several times.
fn mixed(bad: &SendRequest) -> [Vec<Request>; 4] {
    let bad = || Request::Send(bad.clone());
    [
        vec![bad(), good(1), good(2), good(3)],
        vec![good(1), bad(), good(2), good(3), good(4)],
        vec![good(1), good(2), good(3), bad()],
        vec![good(1), bad(), bad(), good(2), bad(), good(3), good(4), good(5), good(6)],
    ]
}

#[tokio::test]
async fn one_that_cannot_be_done_is_nothing_to_the_others() {
    for (what, bad) in bad() {
        for requests in mixed(&bad) {
            let answers = compare(what, &SCOPE, &requests).await;
            let mut seen = 0;
            for (request, (code, value)) in requests.iter().zip(&answers) {
                let is_bad = *request == Request::Send(bad.clone());
                let is_key = is_bad && bad.idem_key.as_deref() == Some("key");
                let fails = is_bad && !is_key;
                assert_eq!(*code != 200, fails, "{what}: {value}");
                if is_key {
                    assert_eq!(value["duplicate"], seen > 0, "{what}");
                    seen += 1;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_quota_lets_as_many_through_as_if_they_came_one_by_one() {
    let requests: Vec<Request> = (0..10).map(good).collect();
    let quota = [&SCOPE[..], &["quota_ops = 3"]].concat();
    let answers = compare("a quota", &quota, &requests).await;
    assert_eq!(codes(&answers), [[200; 3].as_slice(), &[403; 7]].concat());
    assert!(answers[3..].iter().all(|(_, it)| it["reason"] == "quota"), "{answers:?}");
    // Of bytes, which are used up by a large one and not by those behind it.
    let quota = [&SCOPE[..], &["quota_bytes = 25"]].concat();
    let of = |len: usize| Request::Send(send("jobs", vec![7; len]));
    let requests = [10, 20, 10, 7, 5, 1].map(of);
    let answers = compare("a quota of bytes", &quota, &requests).await;
    assert_eq!(codes(&answers), [200, 403, 200, 403, 200, 403]);
}

#[tokio::test]
async fn a_rate_lets_as_many_through_as_if_they_came_one_by_one() {
    let requests: Vec<Request> = (0..20).map(good).collect();
    let rate = [&SCOPE[..], &["rate = 5/h"]].concat();
    let answers = compare("a rate", &rate, &requests).await;
    assert_eq!(codes(&answers), [[200; 10].as_slice(), &[429; 10]].concat());
    for (_, refused) in &answers[10..] {
        assert_eq!((&refused["code"], &refused["reason"]), (&"E_SATURATED".into(), &"rate".into()));
        assert_eq!(refused["retry_after_ms"], true);
    }
}

/// What did nothing costs nothing of a quota, whoever has refused it, and at once: those behind it
/// have what it was charged.
#[tokio::test]
async fn what_cannot_be_done_leaves_as_much_to_the_others_as_if_they_came_one_by_one() {
    for limit in ["quota_ops = 3", "quota_bytes = 30"] {
        for (what, bad) in bad() {
            for requests in mixed(&bad) {
                let caveats = [&SCOPE[..], &[limit]].concat();
                let [found, expected] = both(what, &caveats, &requests).await;
                let is_bad = |request: &Request| *request == Request::Send(bad.clone());
                for (place, request) in requests.iter().enumerate() {
                    let [found, expected] = [&found[place], &expected[place]];
                    // Of what is bad it does not matter which of two reasons is told.
                    let is_same =
                        found == expected || is_bad(request) && found.0 != 200 && expected.0 != 200;
                    assert!(is_same, "{what}, {limit}: {place}: {found:?}, alone: {expected:?}");
                }
            }
        }
    }
}
