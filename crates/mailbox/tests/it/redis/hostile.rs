//! Keys that are not what they have to be, and values that nobody can have meant: an error that
//! names the key, or a dead letter, and never a good message lost beside it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mailbox::{
    Backend, DeadReason, Delivery, Error, ErrorKind, MessageId, Outgoing, Peek, Policy, Selection,
    Verdict,
};
use redis::Connection;

use super::SOON;
use super::stage::{
    PARTS, Stage, acknowledge, contents, expect, expect_same, key, name, receive, run, send,
    send_this, settle, stats, text,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// Everything that a mailbox can have, so that none of its keys is missing. Gives the delivery that
/// is in flight.
async fn fill(stage: &Stage, mailbox: &str) -> Delivery {
    let backend = &*stage.backend;
    backend.configure(&name(mailbox), Policy::default()).await.unwrap();
    for payload in ["gone", "dead", "held"] {
        send(backend, mailbox, payload).await.unwrap();
    }
    let mut taken = receive(backend, mailbox, Duration::ZERO).await.unwrap();
    acknowledge(backend, mailbox, &taken.remove(0)).await.unwrap();
    let reject = Verdict::Reject { reason: DeadReason::Rejected, error: None };
    settle(backend, mailbox, &taken.remove(0), reject).await.unwrap();
    let mut delayed = Outgoing::new("delayed".into());
    delayed.delay = HOUR;
    let mut keyed = Outgoing::new("keyed".into());
    keyed.idempotency_key = Some("key".to_owned());
    let mut first = Outgoing::new("first of a group".into());
    first.group = Some("group".to_owned());
    let second = Outgoing { payload: "second of a group".into(), ..first.clone() };
    for message in [delayed, keyed, first, second] {
        send_this(backend, mailbox, message).await.unwrap();
    }
    taken.remove(0)
}

/// What every operation says, by its name.
async fn try_all(
    stage: &Stage,
    mailbox: &str,
    held: &Delivery,
) -> Vec<(&'static str, Option<Error>)> {
    let (backend, called) = (&*stage.backend, name(mailbox));
    let mut keyed = Outgoing::new("another".into());
    keyed.idempotency_key = Some("another".to_owned());
    let nack = Verdict::Nack { delay: HOUR, error: None };
    let extend = Verdict::Extend { timeout: HOUR };
    let dead = Peek::Dead { after: None, limit: 10 };
    vec![
        ("send", send(backend, mailbox, "more").await.err()),
        ("send keyed", send_this(backend, mailbox, keyed).await.err()),
        ("receive", receive(backend, mailbox, Duration::ZERO).await.err()),
        ("wait", receive(backend, mailbox, Duration::from_millis(300)).await.err()),
        ("acknowledge", acknowledge(backend, mailbox, held).await.err()),
        ("nack", settle(backend, mailbox, held, nack).await.err()),
        ("extend", settle(backend, mailbox, held, extend).await.err()),
        ("return", settle(backend, mailbox, held, Verdict::Return).await.err()),
        ("redrive", backend.redrive(&called, &Selection::All).await.err()),
        ("delete dead", backend.delete_dead(&called, &Selection::All).await.err()),
        ("stats", backend.stats(&called).await.err()),
        ("peek", backend.peek(&called, &Peek::Live { limit: 10 }).await.err()),
        ("peek dead", backend.peek(&called, &dead).await.err()),
    ]
}

/// Whether everything was refused, by naming the key.
fn check_refused(said: Vec<(&'static str, Option<Error>)>, key: &str, what: &str) {
    for (call, error) in said {
        match error {
            Some(error) => {
                expect(&error, ErrorKind::Internal, key, &[]);
                assert!(error.to_string().len() < 1_000, "{call}: {error}");
            }
            None => panic!("{what}: {call} works"),
        }
    }
}

/// Whether everything that [`fill`] made is there.
async fn check_filled(stage: &Stage, mailbox: &str, held: &Delivery) {
    let backend = &*stage.backend;
    acknowledge(backend, mailbox, held).await.unwrap();
    let mut seen = Vec::new();
    // The second of the group comes when the first is gone.
    for _ in 0..2 {
        for delivery in receive(backend, mailbox, Duration::ZERO).await.unwrap() {
            acknowledge(backend, mailbox, &delivery).await.unwrap();
            seen.push(text(&delivery));
        }
    }
    assert_eq!(seen, ["keyed", "first of a group", "second of a group"], "{mailbox}");
    let stats = stats(backend, mailbox).await;
    assert_eq!((stats.delayed, stats.ready, stats.invisible, stats.dead), (1, 0, 0, 1));
}

#[tokio::test]
async fn a_key_of_the_wrong_type_is_named_and_nothing_is_changed() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    for part in PARTS {
        let mailbox = part.replace('_', "-");
        let held = fill(&stage, &mailbox).await;
        let key = key(&mailbox, part);
        let good: Vec<u8> = run(&mut plain, &["DUMP", &key]);
        let (other, word) = if part == "dead" { ("RPUSH", "list") } else { ("SET", "string") };
        run::<()>(&mut plain, &["DEL", &key]);
        run::<()>(&mut plain, &[other, &key, "hostile"]);
        let before = contents(&mut plain);
        assert!(PARTS.iter().all(|part| before.contains_key(key_of(&mailbox, part).as_slice())));
        let said = try_all(&stage, &mailbox, &held).await;
        expect_same(&mut plain, &before, part);
        assert!(said[0].1.as_ref().is_some_and(|error| error.to_string().contains(word)));
        check_refused(said, &key, part);
        let error = stage.backend.purge(&name(&mailbox)).await.unwrap_err();
        expect(&error, ErrorKind::Internal, &key, &[]);
        expect_same(&mut plain, &before, part);
        redis::cmd("RESTORE").arg(&key).arg(0).arg(&good).arg("REPLACE").exec(&mut plain).unwrap();
        check_filled(&stage, &mailbox, &held).await;
        // Whoever gives up on it can remove it.
        run::<()>(&mut plain, &["SET", &key, "hostile"]);
        assert!(stage.backend.remove(&name(&mailbox)).await.unwrap());
        assert!(contents(&mut plain).is_empty(), "{part}");
    }
}

fn key_of(mailbox: &str, part: &str) -> Vec<u8> {
    key(mailbox, part).into_bytes()
}

#[tokio::test]
async fn rules_that_nobody_can_read_are_named_and_nothing_is_changed() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    let fields = [
        "max_size",
        "max_in_flight",
        "max_attempts",
        "replay_window",
        "dedup_capacity",
        "ready_age",
        "ready_count",
        "in_flight_factor",
        "dead_age",
        "dead_count",
    ];
    let values = ["many", "-1", "1e3", "nan", "inf", "0x10", " 7", "7.5"];
    let needed = ["max_in_flight", "replay_window", "dedup_capacity"];
    let mut cases: Vec<(&str, &str)> = fields.iter().map(|field| (*field, "many")).collect();
    cases.extend(values.iter().map(|value| ("max_in_flight", *value)));
    cases.extend(values.iter().map(|value| ("dead_count", *value)));
    cases.extend(needed.iter().map(|field| (*field, "")));
    for (field, value) in cases {
        let held = fill(&stage, "jobs").await;
        let rules = key("jobs", "rules");
        let good: String = run(&mut plain, &["HGET", &rules, field]);
        run::<()>(&mut plain, &["HSET", &rules, field, value]);
        let before = contents(&mut plain);
        let said = try_all(&stage, "jobs", &held).await;
        expect_same(&mut plain, &before, &format!("{field} {value}"));
        check_refused(said, field, &format!("{field} = {value:?}"));
        let error = stage.backend.policy(&name("jobs")).await.unwrap_err();
        expect(&error, ErrorKind::Internal, field, &[]);
        run::<()>(&mut plain, &["HSET", &rules, field, &good]);
        check_filled(&stage, "jobs", &held).await;
        assert!(stage.backend.remove(&name("jobs")).await.unwrap());
    }
}

#[tokio::test]
async fn counters_that_are_no_numbers_lose_nothing() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    let counters = ["sent", "delivered", "acknowledged", "dead_lettered", "purged", "timed_out"];
    for value in ["many", "1.5", "9223372036854775807"] {
        for field in counters.into_iter().chain(["stamp"]) {
            let held = fill(&stage, "jobs").await;
            let state = key("jobs", "state");
            let good: Option<String> = run(&mut plain, &["HGET", &state, field]);
            run::<()>(&mut plain, &["HSET", &state, field, value]);
            let taken = receive(&stage.backend, "jobs", Duration::ZERO).await.unwrap();
            assert_eq!(taken.len(), 2, "{field} {value}");
            for delivery in taken.iter().rev() {
                settle(&stage.backend, "jobs", delivery, Verdict::Return).await.unwrap();
            }
            send(&stage.backend, "jobs", "more").await.unwrap();
            match good {
                Some(good) => run::<()>(&mut plain, &["HSET", &state, field, &good]),
                None => run::<()>(&mut plain, &["HDEL", &state, field]),
            }
            let mut seen: Vec<String> = Vec::new();
            for _ in 0..2 {
                for delivery in receive(&stage.backend, "jobs", Duration::ZERO).await.unwrap() {
                    acknowledge(&stage.backend, "jobs", &delivery).await.unwrap();
                    seen.push(text(&delivery));
                }
            }
            acknowledge(&stage.backend, "jobs", &held).await.unwrap();
            let all = ["keyed", "first of a group", "more", "second of a group"];
            assert_eq!(seen, all, "{field} {value}");
            assert!(stage.backend.remove(&name("jobs")).await.unwrap());
        }
    }
}

/// What becomes of a message that somebody else wrote.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Delivered,
    /// A dead letter, because it is not what was sent.
    Dead,
    Dropped,
    /// Out of sight for ever.
    Hidden,
}

/// What somebody else writes: an id, what it has in `data`, fields of `meta`, and when it is due.
struct Foreign {
    what: &'static str,
    id: Vec<u8>,
    data: Option<Vec<u8>>,
    meta: Vec<(&'static str, Vec<u8>)>,
    due: Option<&'static str>,
    fate: Fate,
}

impl Foreign {
    fn new(what: &'static str, fate: Fate) -> Self {
        let (id, data) = (b"foreign".to_vec(), Some(b"{}".to_vec()));
        Self { what, id, data, meta: Vec::new(), due: None, fate }
    }

    fn id(what: &'static str, id: impl Into<Vec<u8>>, fate: Fate) -> Self {
        Self { id: id.into(), ..Self::new(what, fate) }
    }

    fn meta(field: &'static str, value: impl Into<Vec<u8>>, fate: Fate) -> Self {
        Self { meta: vec![(field, value.into())], ..Self::new(field, fate) }
    }

    fn due(due: &'static str, fate: Fate) -> Self {
        Self { due: Some(due), ..Self::new(due, fate) }
    }

    fn write(&self, plain: &mut Connection) {
        if let Some(data) = &self.data {
            put(plain, "HSET", "data", &[&self.id, data]);
        }
        for (field, value) in &self.meta {
            let field = [&self.id, field.as_bytes()].concat();
            put(plain, "HSET", "meta", &[&field, value]);
        }
        match self.due {
            Some(due) => put(plain, "ZADD", "invisible", &[due.as_bytes(), &self.id]),
            None => put(plain, "LPUSH", "pending", &[&self.id]),
        }
    }
}

fn put(plain: &mut Connection, verb: &str, part: &str, words: &[&[u8]]) {
    redis::cmd(verb).arg(key("jobs", part)).arg(words).exec(plain).unwrap();
}

fn foreign() -> Vec<Foreign> {
    use Fate::{Dead, Delivered, Dropped, Hidden};

    let mut all = vec![
        Foreign::id("an id that is no text", b"\xff\xfe\x00\x80", Dead),
        Foreign::id("an id that is half a letter", b"a\xc3", Dead),
        Foreign::id("no id", "", Delivered),
        Foreign::id("an id with colons", "a:b::c:count", Delivered),
        Foreign::id("an id with lines", "a\r\nb\0c", Delivered),
        Foreign::id("a long id", "x".repeat(70_000), Delivered),
        Foreign { data: None, ..Foreign::new("no data", Dropped) },
        Foreign { data: None, ..Foreign::meta(":count", "3", Dropped) },
        Foreign { data: None, ..Foreign::due("0", Dropped) },
        Foreign { data: Some(vec![b'7'; 10 << 20]), ..Foreign::new("10 MiB", Delivered) },
        Foreign { data: Some(b"\xff\x00".to_vec()), ..Foreign::new("no text", Delivered) },
        Foreign { data: Some(Vec::new()), ..Foreign::new("an empty payload", Delivered) },
    ];
    for count in ["abc", "", "-7", "-1e300", "1e300", "inf", "-inf", "nan", "0x7fffffffffffffff"] {
        all.push(Foreign::meta(":count", count, Delivered));
    }
    for attrs in ["{", "17;", "17;[]", "17;{\"attributes\":3}", "\0", "17;\"x\"", "17;{}{}"] {
        all.push(Foreign::meta(":attrs", attrs, Dead));
    }
    all.push(Foreign::meta(":attrs", b"17;{\"attributes\":{\"a\":\"\xff\"}}", Dead));
    all.push(Foreign::meta(":attrs", "17;".to_owned() + &"[".repeat(1 << 20), Dead));
    let hash = "17;{\"hash\":\"00000000000000000000000000000000\"}";
    all.push(Foreign::meta(":attrs", hash, Dead));
    all.push(Foreign::meta(":attrs", "99999999999999999999999999;{}", Delivered));
    for enqueued in ["yesterday", "", "9999-99-99T99:99:99+99:99", "0000-00-00T00:00:00Z", "-1"] {
        all.push(Foreign::meta(":enqueued", enqueued, Delivered));
    }
    all.push(Foreign::meta(":enqueued", b"\xff2025-01-01T00:00:00Z", Delivered));
    all.push(Foreign::meta(":enqueued", "9".repeat(100_000), Delivered));
    for field in [":reply_to", ":handle", ":turn", ":error", ":group", ":due", ":hold"] {
        for value in
            [b"abc".as_slice(), b"", b"-1", b"1e999", b"\xff\x00", b"d", b"d9", b"u", b"u1e9"]
        {
            all.push(Foreign::meta(field, value, Delivered));
        }
    }
    for due in ["-inf", "-1e308", "0", "-0.000001", "1e-300"] {
        all.push(Foreign::due(due, Delivered));
    }
    for due in ["+inf", "1e308", "9e15"] {
        all.push(Foreign::due(due, Hidden));
    }
    all
}

/// Receives and acknowledges until nothing is left; what was received.
async fn drain(stage: &Stage) -> Vec<Delivery> {
    let mut seen = Vec::new();
    loop {
        let taken = receive(&stage.backend, "jobs", Duration::ZERO).await.unwrap();
        if taken.is_empty() {
            return seen;
        }
        for delivery in taken {
            acknowledge(&stage.backend, "jobs", &delivery).await.unwrap();
            seen.push(delivery);
        }
        assert!(seen.len() < 10, "the same again and again: {seen:?}");
    }
}

#[tokio::test]
async fn a_hostile_message_harms_none_of_its_neighbours() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    let backend = &*stage.backend;
    for foreign in foreign() {
        let what = format!(
            "{} {:?}",
            foreign.what,
            foreign.meta.first().map(|(_, value)| {
                String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned()
            })
        );
        let before = send(backend, "jobs", "before").await.unwrap();
        foreign.write(&mut plain);
        let after = send(backend, "jobs", "after").await.unwrap();
        // Looking at it is not touching it.
        stats(backend, "jobs").await;
        backend.peek(&name("jobs"), &Peek::Live { limit: 10 }).await.unwrap();
        // Neither is giving back what was in line before it.
        let first = super::stage::receive_for(backend, "jobs", 1, Duration::ZERO, HOUR).await;
        let first = first.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        for delivery in &first {
            let given_back = settle(backend, "jobs", delivery, Verdict::Return).await;
            given_back.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        }
        let seen = drain(&stage).await;
        for good in [&before, &after] {
            assert_eq!(seen.iter().filter(|one| one.id == *good).count(), 1, "{what}: {seen:?}");
        }
        let id = MessageId::from_text(&String::from_utf8_lossy(&foreign.id));
        let foreigners: Vec<&Delivery> =
            seen.iter().filter(|one| ![&before, &after].contains(&&one.id)).collect();
        let dead = Peek::Dead { after: None, limit: 10 };
        let dead = backend.peek(&name("jobs"), &dead).await.unwrap();
        let live = stats(backend, "jobs").await.live();
        assert_eq!(foreigners.len(), usize::from(foreign.fate == Fate::Delivered), "{what}");
        assert_eq!(dead.len(), usize::from(foreign.fate == Fate::Dead), "{what}: {dead:?}");
        assert_eq!(live, u64::from(foreign.fate == Fate::Hidden), "{what}");
        match foreign.fate {
            Fate::Delivered => {
                assert_eq!(foreigners[0].id, id, "{what}");
                assert_eq!(Some(&foreigners[0].letter.payload[..]), foreign.data.as_deref());
                assert!(foreigners[0].delivery_count >= 1, "{what}: no delivery is the 0th");
            }
            Fate::Dead => {
                assert_eq!(dead[0].id, id, "{what}");
                let death = dead[0].death.as_ref().unwrap();
                assert_eq!(death.reason, DeadReason::Integrity, "{what}");
                assert!(dead[0].last_error.is_some(), "{what}");
                assert_eq!(Some(&dead[0].letter.payload[..]), foreign.data.as_deref());
            }
            Fate::Dropped | Fate::Hidden => {}
        }
        if foreign.fate == Fate::Hidden {
            check_waiting_beside_hidden(&stage, &what).await;
        } else {
            backend.delete_dead(&name("jobs"), &Selection::All).await.unwrap();
            for part in ["pending", "invisible", "data", "meta", "dead", "graves", "ages"] {
                let left: u64 = run(&mut plain, &["EXISTS", &key("jobs", part)]);
                assert_eq!(left, 0, "{what}: {part} is left");
            }
        }
        assert!(stage.backend.remove(&name("jobs")).await.unwrap());
    }
}

/// A message that never comes must not keep others from being waited for.
async fn check_waiting_beside_hidden(stage: &Stage, what: &str) {
    let other = stage.another().await;
    let start = Instant::now();
    let (taken, sent) = tokio::join!(receive(&stage.backend, "jobs", SOON * 2), async {
        super::until("it waits", || async { stats(&stage.backend, "jobs").await.waiters == 1 })
            .await;
        send(&other, "jobs", "meanwhile").await.unwrap()
    });
    assert_eq!(taken.unwrap()[0].id, sent, "{what}");
    assert!(start.elapsed() < SOON, "{what}: {:?}", start.elapsed());
}

#[tokio::test]
async fn an_id_that_is_in_line_twice_is_delivered_once() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    let backend = &*stage.backend;
    let sent = send(backend, "jobs", "once").await.unwrap().to_string();
    let good = send(backend, "jobs", "good").await.unwrap();
    // In line twice, as after a retry of others.
    put(&mut plain, "LPUSH", "pending", &[sent.as_bytes()]);
    let taken = receive(backend, "jobs", Duration::ZERO).await.unwrap();
    let ids: Vec<String> = taken.iter().map(|one| one.id.to_string()).collect();
    assert_eq!(ids, [sent.clone(), good.to_string()]);
    // And once more, while it is held.
    put(&mut plain, "LPUSH", "pending", &[sent.as_bytes()]);
    assert!(receive(backend, "jobs", Duration::ZERO).await.unwrap().is_empty());
    for delivery in &taken {
        acknowledge(backend, "jobs", delivery).await.unwrap();
    }
    assert!(drain(&stage).await.is_empty());
    assert_eq!(stats(backend, "jobs").await.live(), 0);
}

#[tokio::test]
async fn indexes_that_lead_nowhere_harm_nobody() {
    let stage = Stage::new().await;
    let mut plain = stage.connect();
    let backend = &*stage.backend;
    let sent = send(backend, "jobs", "good").await.unwrap();
    let junk = b"\xff\x00nobody".as_slice();
    let groups: BTreeMap<&str, &[u8]> = BTreeMap::from([("group", junk), ("other", b"")]);
    put(&mut plain, "ZADD", "waiting", &[b"0", junk, b"0", b"", b"0", b"nobody"]);
    for part in ["delayed", "ages", "dead", "known_until", "gone"] {
        put(&mut plain, "ZADD", part, &[b"-7e300", junk, b"0", b"", b"+inf", b"nobody"]);
    }
    for (group, id) in groups {
        put(&mut plain, "HSET", "heads", &[group.as_bytes(), id]);
    }
    put(&mut plain, "HSET", "known", &[b"key", b"short"]);
    put(&mut plain, "HSET", "graves", &[b"nobody", b"{}", b"nobody:reason", b"boredom"]);
    put(&mut plain, "HSET", "graves", &[b"nobody:died", b"abc", b"nobody:count", b"-1"]);
    let dead = Peek::Dead { after: None, limit: 10 };
    backend.peek(&name("jobs"), &dead).await.unwrap();
    backend.peek(&name("jobs"), &Peek::Live { limit: 10 }).await.unwrap();
    stats(backend, "jobs").await;
    let mut grouped = Outgoing::new("grouped".into());
    grouped.group = Some("group".to_owned());
    grouped.idempotency_key = Some("key".to_owned());
    let grouped = send_this(backend, "jobs", grouped).await.unwrap().remove(0);
    // The sweep finds that the first of the group is nobody.
    stats(backend, "jobs").await;
    let seen: Vec<MessageId> = drain(&stage).await.into_iter().map(|one| one.id).collect();
    assert_eq!(seen, [sent, grouped]);
    backend.delete_dead(&name("jobs"), &Selection::All).await.unwrap();
    assert_eq!(stats(backend, "jobs").await.dead, 0);
}
