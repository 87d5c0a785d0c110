//! What is in a server after each operation, to the last key, field and score: the part that others
//! share (`pending`, `invisible`, `data`, four fields of `meta`) and what is our own.

use std::collections::BTreeMap;
use std::time::Duration;

use mailbox::backends::redis::RedisConfig;
use mailbox::{
    Backend, DeadReason, Delivery, ErrorKind, Mailbox, Outgoing, Policy, Selection, SendOptions,
    Timestamp, Verdict,
};

use super::{Place, jobs, key, millis, nack, seconds, until};

/// The lifetime of keys that nobody uses.
const TTL: i64 = 259_200;
/// As far as a deadline may be from what it should be: the time between two commands.
const NEAR: f64 = 5.0;
/// Keys of a mailbox that has one message in line.
const IN_LINE: [&str; 5] = ["ages", "data", "meta", "pending", "state"];
/// Keys of a mailbox that has one message in somebody's hands.
const IN_FLIGHT: [&str; 5] = ["ages", "data", "invisible", "meta", "state"];
/// Keys of a mailbox that has one delayed message.
const DELAYED: [&str; 6] = ["ages", "data", "delayed", "invisible", "meta", "state"];

impl Place {
    /// Which fields are kept in `meta` of a message.
    fn fields(&self, id: &str) -> Vec<String> {
        self.meta(id).into_keys().collect()
    }

    /// The one member of `invisible`, and how long from now it comes back.
    fn comes_back(&self) -> (String, f64) {
        let [(id, due)]: [(String, f64); 1] = self.scores("invisible").try_into().unwrap();
        (id, due - self.now())
    }

    fn count(&self, what: &str) -> Option<u64> {
        self.hash("state").get(what).map(|count| count.parse().unwrap())
    }

    async fn sent_and_received(&self) -> (String, Delivery) {
        let id = self.send("1").await;
        (id, self.receive(seconds(30)).await.unwrap())
    }
}

fn near(found: f64, wanted: f64) {
    assert!((wanted - NEAR..=wanted).contains(&found), "{found}, not {wanted}");
}

fn outgoing(payload: &'static str) -> Outgoing {
    Outgoing::new(payload.as_bytes().into())
}

/// The suffix of a handle, which is shown as `ID:SUFFIX`.
fn suffix(delivery: &Delivery) -> String {
    let handle = delivery.receipt_handle.to_string();
    let suffix = handle.strip_prefix(&format!("{}:", delivery.id));
    suffix.expect("a handle begins with the id").to_owned()
}

#[tokio::test]
async fn a_send_writes_payload_and_time_and_puts_the_id_at_the_left() {
    let place = Place::new().await;
    let first = place.send(r#"{"a":"ä"}"#).await;
    assert_eq!(place.parts(), IN_LINE);
    assert_eq!(place.list("pending"), [first.as_str()]);
    assert_eq!(place.hash("data"), BTreeMap::from([(first.clone(), r#"{"a":"ä"}"#.into())]));
    assert_eq!(place.fields(&first), ["attrs", "enqueued"]);
    // No more fields than these of this message.
    assert_eq!(place.hash("meta").len(), 2);
    assert_eq!(place.scores("ages"), [(first.clone(), 1.0)]);
    let state = [("born", first.as_str()), ("sent", "1"), ("stamp", "1")];
    let state = state.map(|(field, value)| (field.to_owned(), value.to_owned()));
    assert_eq!(place.hash("state"), BTreeMap::from(state));
    let second = place.send("2").await;
    assert_eq!(place.list("pending"), [second.as_str(), first.as_str()], "LPUSH enqueues");
    let taken = place.receive(seconds(30)).await.unwrap();
    assert_eq!(taken.id.to_string(), first, "RPOP takes");
    for (part, kind) in
        [("pending", "list"), ("invisible", "zset"), ("data", "hash"), ("meta", "hash")]
    {
        assert_eq!(place.run::<String>(&["TYPE", &key(part)]), kind, "{part}");
    }
}

#[tokio::test]
async fn the_time_of_sending_is_rfc_3339_with_an_offset_in_digits() {
    let place = Place::new().await;
    let id = place.send("1").await;
    let enqueued = place.meta(&id)["enqueued"].clone();
    // `datetime.fromisoformat` before Python 3.11 knows no `Z`, and 3 or 6 digits of a fraction.
    let shape: String =
        enqueued.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000+00:00", "{enqueued}");
    let sent: Timestamp = enqueued.parse().unwrap();
    near(sent.as_unix_millis() as f64 / 1_000.0 - place.now(), 0.5);
    assert_eq!(place.receive(seconds(30)).await.unwrap().letter.enqueued_at, sent);
}

#[tokio::test]
async fn attributes_key_reply_address_and_group_are_beside_the_payload() {
    let place = Place::new().await;
    let mut message = outgoing("1");
    message.attributes.insert("k".into(), "v".into());
    message.reply_to = Some("answers".into());
    message.idempotency_key = Some("order-7".into());
    message.group = Some("g".into());
    let first = place.send_message(message.clone()).await;
    let wanted = ["ages", "data", "heads", "known", "known_until", "meta", "pending", "state"];
    assert_eq!(place.parts(), wanted);
    assert_eq!(place.fields(&first), ["attrs", "enqueued", "group", "reply_to"]);
    let meta = place.meta(&first);
    assert_eq!((&*meta["reply_to"], &*meta["group"]), ("answers", "g"));
    let (entered, beside) = meta["attrs"].split_once(';').unwrap();
    near(entered.parse::<f64>().unwrap() / 1e6 - place.now(), 0.0);
    let beside: serde_json::Value = serde_json::from_str(beside).unwrap();
    let hash = blake3::hash(b"1").to_hex().to_string();
    let all = serde_json::json!({
        "attributes": {"k": "v"}, "key": "order-7", "group": "g", "hash": hash
    });
    assert_eq!(beside, all);
    assert_eq!(place.hash("heads"), BTreeMap::from([("g".into(), first.clone())]));
    let known = BTreeMap::from([("order-7".into(), format!("{hash}{first}"))]);
    assert_eq!(place.hash("known"), known);
    let [(known, until)]: [(String, f64); 1] = place.scores("known_until").try_into().unwrap();
    assert_eq!(known, "order-7");
    near(until / 1e6 - place.now(), 300.0);
    // The second of the group is in no line that others look at.
    (message.idempotency_key, message.delay) = (None, seconds(60));
    let second = place.send_message(message).await;
    assert_eq!(place.list("pending"), [first.as_str()]);
    assert_eq!(place.scores("invisible"), []);
    let sha1: String = place.run(&["EVAL", "return redis.sha1hex(ARGV[1])", "0", "g"]);
    assert_eq!(place.scores("waiting"), [(format!("{sha1}{:016}{second}", 2), 0.0)]);
    assert_eq!(place.fields(&second), ["attrs", "due", "enqueued", "group", "reply_to"]);
    let taken = place.receive(seconds(30)).await.unwrap();
    place.settle(&taken, Verdict::Acknowledge).await.unwrap();
    assert_eq!(place.hash("heads"), BTreeMap::from([("g".into(), second.clone())]));
    let (moved, after) = place.comes_back();
    assert_eq!(moved, second);
    near(after, 60.0);
}

#[tokio::test]
async fn a_reply_address_on_the_same_backend_is_a_bare_name() {
    let place = Place::new().await;
    let (questions, answers) = (place.jobs::<u32, u32>(), "answers".parse().unwrap());
    let backend = std::sync::Arc::clone(&place.backend) as std::sync::Arc<dyn Backend>;
    let answers: Mailbox<u32> = Mailbox::new(backend, answers);
    let options = SendOptions::new().with_reply_to(&answers);
    let id = questions.send_with(1, options).await.unwrap().id.to_string();
    assert_eq!(place.meta(&id)["reply_to"], "answers");
}

#[tokio::test]
async fn a_delayed_message_is_invisible_without_a_handle() {
    let place = Place::new().await;
    let mut message = outgoing("1");
    message.delay = seconds(60);
    let id = place.send_message(message).await;
    assert_eq!(place.parts(), DELAYED);
    assert_eq!(place.fields(&id), ["attrs", "enqueued", "turn"]);
    let (delayed, after) = place.comes_back();
    assert_eq!(delayed, id);
    near(after, 60.0);
    assert_eq!(place.scores("delayed"), place.scores("invisible"));
}

#[tokio::test]
async fn a_receive_counts_writes_the_suffix_and_sets_the_deadline_by_the_server_s_time() {
    let place = Place::new().await;
    let (id, taken) = place.sent_and_received().await;
    assert_eq!(place.parts(), IN_FLIGHT);
    assert_eq!(place.fields(&id), ["attrs", "count", "enqueued", "handle", "turn"]);
    let meta = place.meta(&id);
    assert_eq!((&*meta["count"], &*meta["turn"]), ("1", "2"));
    assert_eq!(meta["handle"], suffix(&taken));
    let (held, after) = place.comes_back();
    assert_eq!(held, id);
    near(after, 30.0);
    assert_eq!(place.count("delivered"), Some(1));
    assert_eq!(place.hash("data")[&id], "1");
}

#[tokio::test]
async fn an_acknowledgement_leaves_nothing_but_totals() {
    let place = Place::new().await;
    let (id, taken) = place.sent_and_received().await;
    place.settle(&taken, Verdict::Acknowledge).await.unwrap();
    assert_eq!(place.parts(), ["gone", "state"]);
    // For a moment, for a send of it that is tried again late.
    let [(gone, when)]: [(String, f64); 1] = place.scores("gone").try_into().unwrap();
    assert_eq!(gone, id);
    near(when / 1e6 - place.now(), 0.0);
    assert!((1..=120).contains(&place.ttl("gone")));
    let totals = ["sent", "delivered", "acknowledged", "stamp"].map(|what| place.count(what));
    assert_eq!(totals, [Some(1), Some(1), Some(1), Some(2)]);
    assert_eq!(place.hash("state")["born"], id);
    assert!((TTL - 60..=TTL).contains(&place.ttl("state")));
}

#[tokio::test]
async fn a_nack_takes_the_handle_away_and_puts_the_id_back() {
    let place = Place::new().await;
    let (id, taken) = place.sent_and_received().await;
    let other = place.send("2").await;
    let error = Some("no paper".into());
    place.settle(&taken, Verdict::Nack { delay: Duration::ZERO, error }).await.unwrap();
    assert_eq!(place.parts(), IN_LINE);
    assert_eq!(place.list("pending"), [id.as_str(), other.as_str()], "behind those who wait");
    assert_eq!(place.fields(&id), ["attrs", "count", "enqueued", "error"]);
    let meta = place.meta(&id);
    assert_eq!((&*meta["count"], &*meta["error"]), ("1", "no paper"));
}

#[tokio::test]
async fn a_nack_with_a_delay_is_invisible_without_a_handle() {
    let place = Place::new().await;
    let (id, taken) = place.sent_and_received().await;
    place.settle(&taken, nack(seconds(60))).await.unwrap();
    assert_eq!(place.parts(), DELAYED);
    assert_eq!(place.fields(&id), ["attrs", "count", "enqueued", "turn"]);
    let (delayed, after) = place.comes_back();
    assert_eq!(delayed, id);
    near(after, 60.0);
    assert_eq!(place.scores("delayed"), place.scores("invisible"));
}

#[tokio::test]
async fn an_extension_moves_the_deadline_and_keeps_the_handle() {
    let place = Place::new().await;
    let (id, taken) = place.sent_and_received().await;
    place.settle(&taken, Verdict::Extend { timeout: seconds(90) }).await.unwrap();
    assert_eq!(place.parts(), IN_FLIGHT);
    near(place.comes_back().1, 90.0);
    let meta = place.meta(&id);
    assert_eq!((&*meta["count"], &*meta["handle"]), ("1", &*suffix(&taken)));
}

#[tokio::test]
async fn a_rejected_message_is_in_keys_that_others_do_not_know_and_that_stay() {
    let place = Place::new().await;
    let (id, taken) = place.sent_and_received().await;
    let (reason, error) = (DeadReason::Rejected, Some("bad".into()));
    place.settle(&taken, Verdict::Reject { reason, error }).await.unwrap();
    assert_eq!(place.parts(), ["dead", "graves", "state"]);
    let [(dead, order)]: [(String, f64); 1] = place.scores("dead").try_into().unwrap();
    assert_eq!(dead, id);
    near(order / 1e6 - place.now(), 0.0);
    let grave = place.hash("graves");
    let fields: Vec<&str> = grave.keys().map(|field| field.strip_prefix(&id).unwrap()).collect();
    let wanted = ["", ":attrs", ":count", ":died", ":enqueued", ":error", ":reason"];
    assert_eq!(fields, wanted);
    assert_eq!(grave[&id], "1");
    let of = |field: &str| grave[&format!("{id}:{field}")].as_str();
    assert_eq!((of("reason"), of("error"), of("count")), ("rejected", "bad", "1"));
    assert_eq!((place.ttl("dead"), place.ttl("graves")), (-1, -1), "no dead letter is lost");
}

#[tokio::test]
async fn a_redrive_begins_again_with_the_time_of_sending_as_it_was() {
    let place = Place::new().await;
    let (id, taken) = place.sent_and_received().await;
    let before = place.meta(&id);
    let (reason, error) = (DeadReason::Rejected, None);
    place.settle(&taken, Verdict::Reject { reason, error }).await.unwrap();
    assert_eq!(place.backend.redrive(&jobs(), &Selection::All).await.unwrap(), 1);
    assert_eq!(place.parts(), IN_LINE);
    assert_eq!(place.list("pending"), [id.as_str()]);
    assert_eq!(place.hash("data")[&id], "1");
    assert_eq!(place.fields(&id), ["attrs", "enqueued"], "no count: from the first attempt on");
    let after = place.meta(&id);
    assert_eq!(after["enqueued"], before["enqueued"]);
    let entered = |attrs: &str| attrs.split(';').next().unwrap().parse::<u64>().unwrap();
    assert!(entered(&after["attrs"]) > entered(&before["attrs"]));
}

#[tokio::test]
async fn an_expired_delivery_goes_back_in_line_and_loses_its_handle() {
    let place = Place::new().await;
    let id = place.send("1").await;
    let taken = place.receive(millis(50)).await.unwrap();
    place.until_all_due().await;
    // Any call that writes brings back what is due.
    let other = place.send("2").await;
    assert_eq!(place.parts(), IN_LINE);
    assert_eq!(place.list("pending"), [other.as_str(), id.as_str()]);
    assert_eq!(place.fields(&id), ["attrs", "count", "enqueued", "turn"]);
    let late = place.settle(&taken, Verdict::Acknowledge).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::ReceiptHandleExpired);
    let again = place.receive(seconds(30)).await.unwrap();
    assert_eq!((again.id.to_string(), again.delivery_count), (id.clone(), 2));
    assert_ne!(suffix(&again), suffix(&taken));
    assert_eq!(place.meta(&id)["handle"], suffix(&again));
}

#[tokio::test]
async fn a_purge_leaves_dead_letters_keys_rules_and_totals() {
    let place = Place::new().await;
    let (_, taken) = place.sent_and_received().await;
    let (reason, error) = (DeadReason::Rejected, None);
    place.settle(&taken, Verdict::Reject { reason, error }).await.unwrap();
    place.backend.configure(&jobs(), Policy::default()).await.unwrap();
    let mut message = outgoing("2");
    message.group = Some("g".into());
    place.send_message(message.clone()).await;
    place.send_message(message.clone()).await;
    message.idempotency_key = Some("k".into());
    message.delay = seconds(60);
    message.group = None;
    place.send_message(message).await;
    assert_eq!(place.backend.purge(&jobs()).await.unwrap(), 3);
    let left = ["dead", "graves", "known", "known_until", "rules", "state"];
    assert_eq!(place.parts(), left);
    assert_eq!(place.count("purged"), Some(3));
}

#[tokio::test]
async fn rules_are_fields_of_a_hash_that_stays() {
    let place = Place::new().await;
    let mut policy = Policy { max_size: Some(9), max_attempts: Some(3), ..Policy::default() };
    policy.retention.dead_age = Some(seconds(1));
    place.backend.configure(&jobs(), policy).await.unwrap();
    assert_eq!(place.parts(), ["rules"]);
    assert_eq!(place.ttl("rules"), -1);
    let rules = place.hash("rules");
    let set: Vec<(&str, &str)> = rules.iter().map(|(rule, value)| (&**rule, &**value)).collect();
    let wanted = [
        ("dead_age", "1000000000"),
        ("dead_count", ""),
        ("dedup_capacity", "1048576"),
        ("in_flight_factor", ""),
        ("late_settle", "refuse"),
        ("max_attempts", "3"),
        ("max_in_flight", "1048576"),
        ("max_size", "9"),
        ("ready_age", ""),
        ("ready_count", ""),
        ("replay_window", "300000000000"),
    ];
    assert_eq!(set, wanted);
}

#[tokio::test]
async fn a_removal_leaves_no_key() {
    let place = Place::new().await;
    let mut message = outgoing("1");
    message.idempotency_key = Some("k".into());
    message.group = Some("g".into());
    place.send_message(message).await;
    let (_, taken) = place.sent_and_received().await;
    let (reason, error) = (DeadReason::Rejected, None);
    place.settle(&taken, Verdict::Reject { reason, error }).await.unwrap();
    place.backend.configure(&jobs(), Policy::default()).await.unwrap();
    assert!(place.backend.remove(&jobs()).await.unwrap());
    assert_eq!(place.parts(), [""; 0]);
    assert!(!place.backend.remove(&jobs()).await.unwrap());
}

#[tokio::test]
async fn every_key_lives_three_days_but_what_must_stay_and_activity_begins_them_again() {
    let place = Place::new().await;
    let mut message = outgoing("1");
    message.idempotency_key = Some("k".into());
    place.send_message(message).await;
    place.send("2").await;
    let taken = place.receive(seconds(30)).await.unwrap();
    let parts = place.parts();
    assert_eq!(parts.len(), 8, "{parts:?}");
    for part in &parts {
        assert!((TTL - 60..=TTL).contains(&place.ttl(part)), "{part}: {}", place.ttl(part));
        let _: i64 = place.run(&["EXPIRE", &key(part), "100"]);
    }
    place.settle(&taken, nack(Duration::ZERO)).await.unwrap();
    for part in place.parts() {
        assert!((TTL - 60..=TTL).contains(&place.ttl(&part)), "{part}: {}", place.ttl(&part));
    }
}

#[tokio::test]
async fn without_a_ttl_no_key_has_one() {
    let place = Place::with(RedisConfig::default().with_ttl(None)).await;
    let mut message = outgoing("1");
    message.idempotency_key = Some("k".into());
    place.send_message(message).await;
    place.send("2").await;
    let taken = place.receive(seconds(30)).await.unwrap();
    place.settle(&taken, nack(Duration::ZERO)).await.unwrap();
    for part in place.parts() {
        assert_eq!(place.ttl(&part), -1, "{part}");
    }
}

#[tokio::test]
async fn a_prefix_is_inside_the_hash_tag() {
    let place = Place::with(RedisConfig::default().with_prefix("tenant-a:")).await;
    place.send("1").await;
    let mut keys: Vec<String> = place.run(&["KEYS", "*"]);
    keys.sort_unstable();
    let wanted = IN_LINE.map(|part| format!("{{tenant-a:queue:jobs}}:{part}"));
    assert_eq!(keys, wanted);
    until("the other tenant sees nothing", || async {
        let other = place.another(RedisConfig::default().with_prefix("tenant-b:")).await;
        other.list(None, 10).await.unwrap().is_empty()
    })
    .await;
}
