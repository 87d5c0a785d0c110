//! How long the keys of a mailbox live that go by themselves: whatever was used lives on whole, and
//! nothing of it goes before the rest; also beside others, who have their own idea of it.

use std::collections::BTreeMap;
use std::time::Duration;

use mailbox::backends::redis::RedisConfig;
use mailbox::{
    Backend, DeadReason, Delivery, Outgoing, Policy, ReceiveOptions, Selection, Settlement, Verdict,
};

use super::python::Python;
use super::stage::PARTS;
use super::{Place, jobs, key, millis, nack, seconds};

/// How long these mailboxes live, in seconds.
const TTL: i64 = 100;
/// How long idempotency keys are known, by default.
const WINDOW: i64 = 300;
/// Keys that others know too.
const SHARED: [&str; 4] = ["pending", "invisible", "data", "meta"];
/// Keys that stay in any case.
const STAY: [&str; 5] = ["waiting", "heads", "dead", "graves", "rules"];

async fn living(ttl: Option<u64>) -> Place {
    Place::with(RedisConfig::default().with_ttl(ttl.map(seconds))).await
}

fn outgoing(payload: &str, group: Option<&str>, key: Option<&str>) -> Outgoing {
    let mut message = Outgoing::new(payload.to_owned().into());
    (message.group, message.idempotency_key) = (group.map(Into::into), key.map(Into::into));
    message
}

impl Place {
    /// The lifetimes of all keys that there are, at one moment; -1: for ever.
    fn lifetimes(&self) -> BTreeMap<&'static str, i64> {
        let script = "
            local all = {}
            for at, key in ipairs(KEYS) do all[at] = redis.call('TTL', key) end
            return all";
        let keys = PARTS.map(key);
        let mut words = vec!["EVAL", script, "15"];
        words.extend(keys.iter().map(String::as_str));
        let all: Vec<i64> = self.run(&words);
        PARTS.into_iter().zip(all).filter(|(_, left)| *left != -2).collect()
    }

    /// Lets time go by, for keys.
    fn age(&self, by: Duration) {
        let script = "
            for _, key in ipairs(KEYS) do
              local left = redis.call('PTTL', key)
              if left > 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end
            end";
        let keys = PARTS.map(key);
        let (mut words, by) = (vec!["EVAL", script, "15"], by.as_millis().to_string());
        words.extend(keys.iter().map(String::as_str));
        words.push(&by);
        self.run::<()>(&words);
    }

    /// Whether all has the lifetime that it has to have after it was used. `longest` is for the
    /// keys that others use too.
    #[track_caller]
    fn check_lifetimes(&self, longest: i64, what: &str) {
        let lifetimes = self.lifetimes();
        let is_waiting = lifetimes.contains_key("waiting");
        for (part, left) in &lifetimes {
            let allowed = match *part {
                part if STAY.contains(&part) => -1..=-1,
                "ages" | "state" if is_waiting => -1..=-1,
                "known" | "known_until" => WINDOW - 1..=WINDOW,
                "gone" => 1..=120,
                part if SHARED.contains(&part) => TTL - 1..=longest,
                _ => TTL - 1..=TTL,
            };
            assert!(allowed.contains(left), "{part} has {left}, {what}: {lifetimes:?}");
        }
    }

    async fn receive_some(&self, most: u32, timeout: Duration) -> Vec<Delivery> {
        let options =
            ReceiveOptions::new().with_max_messages(most).with_visibility_timeout(timeout);
        self.backend.receive(&jobs(), &options).await.unwrap()
    }
}

#[tokio::test]
async fn without_a_lifetime_those_of_others_are_taken_away_from_every_key() {
    let place = living(None).await;
    let mut python = Python::at(&place.node);
    let check = |what: &str| {
        for (part, left) in place.lifetimes().into_iter().filter(|(part, _)| *part != "gone") {
            assert_eq!(left, -1, "{part}, {what}");
        }
    };
    python.send("1");
    assert!(place.ttl("data") > 0, "it has a lifetime from others");
    let taken = place.receive(seconds(30)).await.unwrap();
    check("received");
    python.send("2");
    place.settle(&taken, nack(Duration::ZERO)).await.unwrap();
    check("settled");
    python.send("3");
    place.send_message(outgoing("4", Some("g"), Some("k"))).await;
    check("sent");
    // Others take the last of it: of our own messages they leave something in `meta`.
    while let Some(taken) = python.receive(seconds(30)) {
        assert!(python.ack(&taken));
    }
    assert!(!place.parts().contains(&"data".to_owned()));
    assert!(place.ttl("meta") > 0, "with a lifetime");
    place.send("5").await;
    check("sent after all others were gone");
    // A mailbox that somebody else of ours has given a lifetime.
    let other = place.another(RedisConfig::default()).await;
    let options = ReceiveOptions::new().with_visibility_timeout(seconds(30));
    assert_eq!(other.receive(&jobs(), &options).await.unwrap().len(), 1);
    assert!(place.ttl("state") > 0);
    assert!(place.receive(seconds(30)).await.is_none());
    check("received in vain");
}

#[tokio::test]
async fn idempotency_keys_are_known_for_their_time_also_where_mailboxes_live_shorter() {
    let place = living(Some(10)).await;
    place.send_message(outgoing("1", None, Some("a"))).await;
    for part in ["known", "known_until"] {
        assert!((WINDOW - 1..=WINDOW).contains(&place.ttl(part)), "{part}: {}", place.ttl(part));
    }
    assert!((9..=10).contains(&place.ttl("data")));
    // A mailbox whose own rules say another time.
    for window in [60, 1_000] {
        let policy = Policy { replay_window: seconds(window), ..Policy::default() };
        place.backend.configure(&jobs(), policy).await.unwrap();
        place.send_message(outgoing("1", None, Some(&window.to_string()))).await;
        let window = i64::try_from(window).unwrap();
        let check = |what: &str| {
            for part in ["known", "known_until"] {
                let left = place.ttl(part);
                assert!((window - 1..=window).contains(&left), "{part} has {left}, {what}");
            }
        };
        check("sent");
        let taken = place.receive(seconds(30)).await.unwrap();
        check("received");
        // However long the others would live without.
        place.age(seconds(1));
        place.settle(&taken, nack(Duration::ZERO)).await.unwrap();
        check("settled");
        place.age(seconds(1));
        place.backend.purge(&jobs()).await.unwrap();
        check("purged");
    }
    // As long as the mailbox, where that is longer.
    let longer = place.another(RedisConfig::default().with_ttl(Some(seconds(5_000)))).await;
    super::send(&*longer, outgoing("2", None, Some("b"))).await.unwrap();
    assert!((4_999..=5_000).contains(&place.ttl("known")));
}

#[tokio::test]
async fn a_receive_in_vain_keeps_a_mailbox_alive() {
    let place = living(Some(100)).await;
    let mut delayed = outgoing("1", None, Some("k"));
    delayed.delay = seconds(3_600);
    place.send_message(delayed).await;
    place.check_lifetimes(TTL, "sent");
    for _ in 0..3 {
        place.age(seconds(60));
        assert!(place.ttl("data") <= 40);
        assert!(place.receive(seconds(30)).await.is_none());
        place.check_lifetimes(TTL, "received in vain");
    }
    // One of which only totals are left lives on too.
    place.backend.purge(&jobs()).await.unwrap();
    place.age(seconds(60));
    assert!(place.receive(seconds(30)).await.is_none());
    place.check_lifetimes(TTL, "received in vain from an empty one");
    assert!(place.lifetimes().contains_key("state"));
}

#[tokio::test]
async fn what_tells_the_order_of_a_group_stays_while_somebody_waits_in_it() {
    let place = living(Some(100)).await;
    let waits = || {
        let lifetimes = place.lifetimes();
        (lifetimes.contains_key("waiting"), lifetimes["ages"], lifetimes["state"])
    };
    place.send_message(outgoing("1", Some("g"), None)).await;
    let (is_waiting, ages, state) = waits();
    assert!(!is_waiting && ages > 0 && state > 0);
    for payload in ["2", "3"] {
        place.send_message(outgoing(payload, Some("g"), None)).await;
        assert_eq!(waits(), (true, -1, -1));
        place.check_lifetimes(TTL, "sent");
    }
    // What others share goes when nobody uses it for long: the order is there for those who wait.
    for left in [(true, -1, -1), (false, TTL, TTL)] {
        let taken = place.receive(seconds(30)).await.unwrap();
        place.check_lifetimes(TTL, "received");
        place.settle(&taken, Verdict::Acknowledge).await.unwrap();
        place.check_lifetimes(TTL, "settled");
        assert_eq!(waits(), left);
    }
}

#[tokio::test]
async fn a_message_alone_lives_as_long_as_it_has_to_after_each_verdict() {
    let place = living(Some(100)).await;
    let (reason, error) = (DeadReason::Rejected, None);
    for verdict in [
        Verdict::Extend { timeout: seconds(60) },
        nack(Duration::ZERO),
        nack(seconds(60)),
        Verdict::Return,
        Verdict::Reject { reason, error },
        Verdict::Acknowledge,
    ] {
        place.send("1").await;
        place.check_lifetimes(TTL, "sent");
        let taken = place.receive(seconds(30)).await.unwrap();
        place.check_lifetimes(TTL, "received");
        place.settle(&taken, verdict.clone()).await.unwrap();
        place.check_lifetimes(TTL, &format!("{verdict:?}"));
        // Few keys are left that could hide it; the rest has its whole lifetime.
        place.backend.purge(&jobs()).await.unwrap();
        place.check_lifetimes(TTL, "purged");
    }
}

#[tokio::test]
async fn what_others_leave_behind_does_not_go_before_the_rest() {
    let place = living(Some(100)).await;
    let mut python = Python::at(&place.node);
    let leave = |python: &mut Python| {
        let taken = python.receive(seconds(30)).unwrap();
        assert!(python.ack(&taken));
        assert!(place.hash("meta").contains_key(&format!("{}:attrs", taken.id)));
    };
    place.send("1").await;
    leave(&mut python);
    assert_eq!(place.hash("data").len(), 0);
    place.run::<()>(&["EXPIRE", &key("meta"), "50"]);
    place.send("2").await;
    place.check_lifetimes(TTL, "sent");
    // The same when the last of ours ends.
    place.send("3").await;
    leave(&mut python);
    let taken = place.receive(seconds(30)).await.unwrap();
    place.send("4").await;
    leave(&mut python);
    for part in SHARED {
        place.run::<()>(&["EXPIRE", &key(part), "50"]);
    }
    place.settle(&taken, Verdict::Acknowledge).await.unwrap();
    assert_eq!(place.hash("data").len(), 0);
    assert_ne!(place.hash("meta").len(), 0, "what was left behind");
    place.check_lifetimes(TTL, "acknowledged");
}

#[tokio::test]
async fn counting_is_no_use_of_a_mailbox_and_does_not_pass_for_one() {
    let place = living(Some(100)).await;
    let mut delayed = outgoing("1", None, Some("k"));
    delayed.delay = seconds(3_600);
    place.send_message(delayed).await;
    for payload in ["2", "3"] {
        place.send_message(outgoing(payload, Some("g"), None)).await;
    }
    // Others delete what they know: nobody waits any more, and counting finds that out.
    place.age(seconds(40));
    for part in SHARED {
        place.run::<()>(&["DEL", &key(part)]);
    }
    assert_eq!(place.ttl("state"), -1);
    place.backend.stats(&jobs()).await.unwrap();
    let lifetimes = place.lifetimes();
    assert!(!lifetimes.contains_key("waiting"), "{lifetimes:?}");
    assert!((1..=TTL).contains(&lifetimes["state"]), "{lifetimes:?}");
    assert!(lifetimes["known"] <= WINDOW - 40, "counting is no use: {lifetimes:?}");
    assert!(place.receive(seconds(30)).await.is_none());
    place.check_lifetimes(TTL, "received in vain");
}

#[tokio::test]
async fn whoever_has_used_a_mailbox_last_has_said_how_long_all_of_it_lives() {
    let (short, long) = (100, 1_000);
    let place = living(Some(100)).await;
    let other = place.another(RedisConfig::default().with_ttl(Some(seconds(1_000)))).await;
    let mut python = Python::at(&place.node);
    let options = ReceiveOptions::new().with_visibility_timeout(seconds(60));
    let mut delayed = outgoing("later", None, Some("k"));
    delayed.delay = seconds(3_600);
    let (plain, nack_it) = (outgoing("now", None, None), nack(Duration::ZERO));
    for what in ["send", "receive", "acknowledge", "nack"] {
        for (first, last, ttl) in [(&other, &place.backend, short), (&place.backend, &other, long)]
        {
            for is_shared in [false, true] {
                let is_settled = ["acknowledge", "nack"].contains(&what);
                first.purge(&jobs()).await.unwrap();
                let mut messages = vec![plain.clone(), plain.clone()];
                // Whoever receives is the first who makes something invisible.
                messages.extend(is_settled.then(|| delayed.clone()));
                first.send(&jobs(), messages).await.unwrap();
                let mut taken = if is_settled {
                    first.receive(&jobs(), &options).await.unwrap()
                } else {
                    Vec::new()
                };
                if is_shared {
                    // Others let what they know live for three days.
                    python.send("1");
                    assert!(place.ttl("data") > long);
                }
                match what {
                    "send" => drop(last.send(&jobs(), vec![plain.clone()]).await.unwrap()),
                    "receive" => taken = last.receive(&jobs(), &options).await.unwrap(),
                    _ => {
                        let receipt_handle = taken[0].receipt_handle.clone();
                        let verdict =
                            if what == "nack" { nack_it.clone() } else { Verdict::Acknowledge };
                        let batch = vec![Settlement { receipt_handle, verdict }];
                        last.settle(&jobs(), batch).await.unwrap().remove(0).unwrap();
                    }
                }
                let lifetimes = place.lifetimes();
                let told = format!("{what}, {ttl}, {is_shared}: {lifetimes:?}");
                assert_eq!(taken.len(), usize::from(what != "send"), "{told}");
                for part in ["pending", "data", "meta", "ages", "state"] {
                    assert!(lifetimes.contains_key(part), "{part}, {told}");
                }
                for (part, left) in &lifetimes {
                    let whole = match *part {
                        part if STAY.contains(&part) || part == "gone" => continue,
                        "known" | "known_until" => ttl.max(WINDOW),
                        _ => ttl,
                    };
                    assert!((whole - whole / 100..=whole).contains(left), "{part}, {told}");
                }
            }
        }
    }
}

/// Somebody else, who knows four keys, and lets them live as long as it likes.
struct Other<'a> {
    place: &'a Place,
    ttl: String,
    held: Vec<String>,
    sent: u32,
}

impl Other<'_> {
    /// Does something.
    fn act(&mut self, dice: &mut Dice) {
        let place = self.place;
        let [pending, invisible, data, meta] = SHARED.map(key);
        match dice.below(4) {
            0 => {
                self.sent += 1;
                let id = format!("other-{}", self.sent);
                let enqueued = format!("{id}:enqueued");
                place.run::<()>(&["HSET", &data, &id, "1"]);
                place.run::<()>(&["HSET", &meta, &enqueued, "2026-11-15T22:33:30.123+00:00"]);
                place.run::<()>(&["LPUSH", &pending, &id]);
            }
            1 => {
                let taken: Option<String> = place.run(&["RPOP", &pending]);
                let Some(id) = taken else { return };
                place.run::<()>(&["HINCRBY", &meta, &format!("{id}:count"), "1"]);
                place.run::<()>(&["HSET", &meta, &format!("{id}:handle"), "other"]);
                let due = (place.now() + 3_600.0).to_string();
                place.run::<()>(&["ZADD", &invisible, &due, &id]);
                self.held.push(id);
            }
            verdict => {
                if self.held.is_empty() {
                    return;
                }
                let id = self.held.swap_remove(dice.below(self.held.len()));
                let kept: Option<String> = place.run(&["HGET", &meta, &format!("{id}:handle")]);
                if kept.as_deref() != Some("other") {
                    return;
                }
                place.run::<()>(&["ZREM", &invisible, &id]);
                if verdict == 2 {
                    place.run::<()>(&["HDEL", &data, &id]);
                    for field in ["enqueued", "reply_to", "count", "handle"] {
                        place.run::<()>(&["HDEL", &meta, &format!("{id}:{field}")]);
                    }
                } else {
                    place.run::<()>(&["HDEL", &meta, &format!("{id}:handle")]);
                    place.run::<()>(&["LPUSH", &pending, &id]);
                }
            }
        }
        for key in [pending, invisible, data, meta] {
            place.run::<()>(&["EXPIRE", &key, &self.ttl]);
        }
    }
}

/// Numbers that look random, the same for the same beginning.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ mixed >> 31) % bound as u64).unwrap()
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// What was done, and whether that is a use of the mailbox.
struct Step {
    what: String,
    is_use: bool,
}

/// Does anything at all.
async fn step(place: &Place, dice: &mut Dice, held: &mut Vec<Delivery>, number: usize) -> Step {
    let (mut what, mut is_use) = (String::new(), true);
    match dice.below(20) {
        0..6 => {
            let group = dice.of(&[None, None, Some("g"), Some("h")]);
            let key = format!("{number}");
            let key = dice.of(&[None, None, Some(key.as_str())]);
            let mut message = outgoing("1", group, key);
            message.delay = dice.of(&[Duration::ZERO, Duration::ZERO, millis(1), seconds(600)]);
            what = format!("send {group:?} {key:?} {:?}", message.delay);
            place.send_message(message).await;
        }
        6..11 => {
            let timeout = dice.of(&[Duration::ZERO, millis(1), seconds(600), seconds(600)]);
            let most = dice.of(&[1, 2, 256]);
            let taken = place.receive_some(most, timeout).await;
            what = format!("receive {most} for {timeout:?}: {}", taken.len());
            held.extend(taken);
        }
        11..16 => {
            let mut batch = Vec::new();
            for _ in 0..=dice.below(4) {
                if held.is_empty() {
                    break;
                }
                let at = dice.below(held.len());
                let receipt_handle = held[at].receipt_handle.clone();
                let (reason, error) = (DeadReason::Rejected, None);
                let verdict = dice.of(&[
                    Verdict::Acknowledge,
                    Verdict::Acknowledge,
                    Verdict::Acknowledge,
                    nack(Duration::ZERO),
                    nack(seconds(600)),
                    Verdict::Extend { timeout: millis(1) },
                    Verdict::Extend { timeout: seconds(700) },
                    Verdict::Reject { reason, error },
                    Verdict::Return,
                ]);
                if !matches!(verdict, Verdict::Extend { .. }) {
                    held.swap_remove(at);
                }
                what += &format!("{verdict:?} ");
                batch.push(Settlement { receipt_handle, verdict });
            }
            is_use = !batch.is_empty();
            // Some of them are late; that is a use too.
            place.backend.settle(&jobs(), batch).await.unwrap();
        }
        16 => {
            let count = place.backend.redrive(&jobs(), &Selection::All).await.unwrap();
            (what, is_use) = (format!("redrive: {count}"), count > 0);
        }
        17 | 18 => {
            place.backend.stats(&jobs()).await.unwrap();
            (what, is_use) = ("stats".to_owned(), false);
        }
        _ if dice.below(10) == 0 => {
            place.backend.purge(&jobs()).await.unwrap();
            what = "purge".to_owned();
        }
        _ => {
            // Nobody has used it for a while.
            place.age(seconds(40));
            (what, is_use) = ("age".to_owned(), false);
        }
    }
    Step { what, is_use }
}

/// Whether every key lives as long as it has to, after each of many steps, beside somebody else who
/// lets keys live for `others` seconds.
async fn run_steps(others: Option<i64>, steps: usize) {
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let seed = u64::from_be_bytes(random);
    let place = living(Some(100)).await;
    let (mut dice, mut held) = (Dice(seed), Vec::new());
    let ttl = others.unwrap_or(TTL).to_string();
    let mut other = Other { place: &place, ttl, held: Vec::new(), sent: 0 };
    let mut last: Vec<String> = Vec::new();
    for number in 0..steps {
        if others.is_some() && dice.below(3) == 0 {
            other.act(&mut dice);
            last.push("somebody else".to_owned());
        }
        let Step { what, is_use } = step(&place, &mut dice, &mut held, number).await;
        last.push(what);
        let told = last[last.len().saturating_sub(8)..].join(", ");
        let told = format!("seed {seed}, step {number}, after {told}");
        if is_use {
            place.check_lifetimes(others.unwrap_or(TTL).max(TTL), &told);
            continue;
        }
        let lifetimes = place.lifetimes();
        let is_waiting = lifetimes.contains_key("waiting");
        for (part, left) in &lifetimes {
            let stays = STAY.contains(part) || is_waiting && ["ages", "state"].contains(part);
            assert_eq!(*left == -1, stays, "{part} has {left}, {told}: {lifetimes:?}");
        }
    }
}

#[tokio::test]
async fn after_each_of_many_calls_every_key_has_its_whole_lifetime() {
    run_steps(None, 1_200).await;
}

#[tokio::test]
async fn beside_others_who_let_keys_live_shorter_every_key_has_its_whole_lifetime() {
    run_steps(Some(50), 1_000).await;
}

#[tokio::test]
async fn beside_others_who_let_keys_live_longer_every_key_has_its_whole_lifetime() {
    run_steps(Some(200), 1_000).await;
}
