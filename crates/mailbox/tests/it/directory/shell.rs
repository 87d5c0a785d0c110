//! Plain shells beside the library: what `mv` and `cat` do to an inbox is respected.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use mailbox::backends::directory::DirectoryConfig;
use mailbox::{Backend, DeadReason, Delivery, ErrorKind, Outgoing, Phase, Selection, Verdict};
use serde_json::Value;

use super::{
    PATIENCE, Place, SOON, bash, messages, nack, names, orders, receive, send, text, until,
};

/// How long shells have what they took, in these tests.
const LEASE: Duration = Duration::from_millis(300);
const UUID: &str = "550e8400-e29b-41d4-a716-446655440000";

/// The write flow of the plan, word for word but for the name of the temporary file.
const WRITE: &str = r#"
    TMP=msg-$$-$RANDOM
    echo "$JSON" > incoming/.tmp/$TMP
    mv incoming/.tmp/$TMP incoming/$(date +%s)-${SENDER}-${UUID}.json
"#;

fn written_by_shell(id: &str, content: &str) -> String {
    format!(
        r#"{{"id":"{id}","timestamp":"2025-12-07T19:30:00Z","sender":"agent1","type":"result",
            "content":{content},"attempts":0}}"#
    )
}

async fn with_short_lease() -> Place {
    let place = Place::new().await;
    place.set("shell_lease", "0.3s");
    // Whoever receives reads the settings.
    assert!(place.receive_now().await.is_none());
    place
}

#[tokio::test]
async fn a_file_that_a_shell_moves_into_incoming_is_delivered() {
    for content in [r#""done""#, r#"{"a": [1, 2.50, null]}"#, "17", "null", r#""\u00e4 \"q\"""#] {
        let place = Place::new().await;
        let json = written_by_shell(UUID, content);
        place.bash(&format!("SENDER=agent1 UUID={UUID}\nJSON='{json}'\n{WRITE}"));
        let delivery = place.receive().await;
        assert_eq!(text(&delivery), content);
        assert_eq!(delivery.id.to_string(), UUID);
        assert_eq!(delivery.delivery_count, 1);
        assert_eq!(delivery.letter.attributes["sender"], "agent1");
        assert_eq!(delivery.letter.attributes["type"], "result");
        assert_eq!(delivery.letter.enqueued_at.to_string(), "2025-12-07T19:30:00.000Z");
        place.acknowledge(&delivery).await;
        assert_eq!(messages(&place.at("done")).len(), 1);
        assert_eq!(place.stats().await.live(), 0);
    }
}

#[tokio::test]
async fn an_inbox_that_a_shell_has_made_is_one() {
    let root = tempfile::tempdir().unwrap();
    let json = written_by_shell(UUID, "1");
    bash(root.path(), "umask 022; mkdir -p orders/{incoming/.tmp,processing,done,dead-letter}");
    let script = format!("SENDER=agent1 UUID={UUID}\nJSON='{json}'\n{WRITE}");
    bash(&root.path().join("orders"), &script);
    let backend = mailbox::backends::directory::DirectoryBackend::open(root.path()).await.unwrap();
    assert_eq!(backend.list(None, 10).await.unwrap(), [orders()]);
    let delivery = receive(&*backend, PATIENCE).await.unwrap().unwrap();
    assert_eq!(text(&delivery), "1");
}

#[tokio::test]
async fn what_is_being_written_in_tmp_is_not_delivered() {
    let place = Place::new().await;
    let json = written_by_shell(UUID, "1");
    place.bash(&format!("echo '{json}' > incoming/.tmp/1765135800-agent1-{UUID}.json"));
    place.send("other").await;
    assert_eq!(text(&place.receive().await), "other");
    assert!(place.receive_now().await.is_none());
    assert_eq!(place.stats().await.live(), 1);
    place.bash("mv incoming/.tmp/*.json incoming/");
    assert_eq!(text(&place.receive().await), "1");
}

#[tokio::test]
async fn a_shell_that_took_a_message_has_it_for_its_lease() {
    let place = with_short_lease().await;
    place.put("incoming/job.json", written_by_shell("job", "1"));
    let taken = Instant::now();
    place.bash("mv incoming/job.json processing/job.json");
    assert!(place.receive_now().await.is_none());
    let [record] = &place.live().await[..] else { panic!("it is there") };
    assert_eq!((record.phase, record.delivery_count), (Phase::Invisible, 1));
    let delivery = place.receive().await;
    assert!(taken.elapsed() >= LEASE, "after {:?}", taken.elapsed());
    assert!(taken.elapsed() < LEASE + SOON, "after {:?}", taken.elapsed());
    assert_eq!((delivery.id.to_string().as_str(), delivery.delivery_count), ("job", 2));
    // The shell is late: it has nothing any more that it could finish.
    place.bash("! mv processing/job.json done/job.json 2> /dev/null");
    place.acknowledge(&delivery).await;
    assert_eq!(place.stats().await.live(), 0);
}

#[tokio::test]
async fn without_a_shorter_lease_a_shell_has_a_minute() {
    let place = Place::new().await;
    place.put("processing/job.json", written_by_shell("job", "1"));
    let [record] = &place.live().await[..] else { panic!("it is there") };
    assert_eq!(record.phase, Phase::Invisible);
    assert!(record.receivable_in > Duration::from_secs(50), "{:?}", record.receivable_in);
    assert!(record.receivable_in <= Duration::from_secs(60), "{:?}", record.receivable_in);
}

#[tokio::test]
async fn after_three_attempts_of_shells_and_others_a_message_is_a_dead_letter() {
    let place = with_short_lease().await;
    place.put("incoming/job.json", written_by_shell("job", "1"));
    place.bash("mv incoming/job.json processing/job.json");
    let delivery = place.receive().await;
    assert_eq!(delivery.delivery_count, 2);
    place.settle(&delivery, nack()).await.unwrap();
    // A script takes it under the name that it has now.
    place.bash("mv incoming/job~n2~d*.json processing/");
    assert!(place.receive_now().await.is_none());
    until("three attempts are enough", || async {
        assert!(place.receive_now().await.is_none());
        !place.dead().await.is_empty()
    })
    .await;
    let (record, death) = place.dead().await.remove(0);
    assert_eq!((record.id.to_string().as_str(), record.delivery_count), ("job", 3));
    assert_eq!(death.reason, DeadReason::MaxAttempts);
    assert_eq!(place.stats().await.live(), 0);
}

#[tokio::test]
async fn attempts_in_the_file_count_too() {
    let place = Place::new().await;
    for (attempts, count) in [(0, Some(1)), (2, Some(3)), (3, None), (u64::from(u32::MAX), None)] {
        let id = format!("tried-{attempts}");
        let json = format!(r#"{{"id":"{id}","content":1,"attempts":{attempts}}}"#);
        place.put(&format!("incoming/{id}.json"), json);
        let delivery = place.receive_now().await;
        assert_eq!(delivery.map(|delivery| delivery.delivery_count), count, "{attempts}");
    }
    let dead = place.dead().await;
    assert_eq!(dead.len(), 2);
    assert!(dead.iter().all(|(_, death)| death.reason == DeadReason::MaxAttempts));
}

#[tokio::test]
async fn what_a_shell_moves_into_done_is_final() {
    let place = with_short_lease().await;
    for job in ["one", "two"] {
        place.put(&format!("incoming/{job}.json"), written_by_shell(job, "1"));
    }
    place.bash("mv incoming/one.json processing/; mv processing/one.json done/");
    // Without taking it first: then nobody else has it either.
    place.bash("mv incoming/two.json done/");
    let over = Instant::now() + 2 * LEASE;
    while Instant::now() < over {
        assert!(place.receive_within(Duration::from_millis(50)).await.is_none());
    }
    assert_eq!(place.stats().await.live(), 0);
    assert_eq!(messages(&place.at("done")), ["one.json", "two.json"]);
}

#[tokio::test]
async fn what_a_shell_finished_while_the_library_had_it_is_done() {
    let place = Place::new().await;
    place.send("work").await;
    let delivery = place.receive().await;
    place.bash("mv processing/*.json done/");
    let error = place.settle(&delivery, nack()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired);
    assert_eq!(place.stats().await.live(), 0);
    assert!(place.receive_now().await.is_none());
    assert_eq!(messages(&place.at("done")).len(), 1);
}

#[tokio::test]
async fn what_a_shell_puts_back_is_delivered_again_at_once() {
    let place = Place::new().await;
    place.put("incoming/job.json", written_by_shell("job", "1"));
    place.bash("mv incoming/job.json processing/");
    assert!(place.receive_now().await.is_none());
    place.bash("mv processing/job.json incoming/");
    let start = Instant::now();
    let delivery = place.receive().await;
    assert!(start.elapsed() < SOON, "after {:?}", start.elapsed());
    assert_eq!(delivery.id.to_string(), "job");
}

#[tokio::test]
async fn what_a_shell_takes_away_from_the_library_is_delivered_under_another_handle() {
    let place = Place::new().await;
    place.send("work").await;
    let first = place.receive().await;
    place.bash("mv processing/*.json incoming/");
    let second = place.receive().await;
    assert_eq!((second.id.clone(), second.delivery_count), (first.id.clone(), 2));
    assert_ne!(second.receipt_handle, first.receipt_handle);
    let error = place.settle(&first, Verdict::Acknowledge).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired);
    place.acknowledge(&second).await;
    assert_eq!(place.stats().await.live(), 0);
}

#[tokio::test]
async fn what_a_shell_moves_into_dead_letter_is_rejected() {
    let place = Place::new().await;
    for job in ["one", "two"] {
        place.put(&format!("incoming/{job}.json"), written_by_shell(job, "1"));
    }
    place.bash("mv incoming/one.json processing/; mv processing/one.json dead-letter/");
    place.bash("mv incoming/two.json dead-letter/");
    assert!(place.receive_now().await.is_none());
    let dead = place.dead().await;
    assert_eq!(dead.len(), 2);
    assert!(dead.iter().all(|(_, death)| death.reason == DeadReason::Rejected));
    let rejected = Selection::Reason(DeadReason::Rejected);
    assert_eq!(place.backend.redrive(&orders(), &rejected).await.unwrap(), 2);
    let again = [place.receive().await, place.receive().await];
    let ids: BTreeSet<String> = again.iter().map(|delivery| delivery.id.to_string()).collect();
    assert_eq!(ids, BTreeSet::from(["one".to_owned(), "two".to_owned()]));
}

#[tokio::test]
async fn dead_letters_of_shells_are_seen_page_by_page() {
    let place = Place::new().await;
    for job in 0..5 {
        let json = written_by_shell(&job.to_string(), "1");
        place.put(&format!("dead-letter/job-{job}.json"), json);
    }
    let (mut after, mut seen) = (None, BTreeSet::new());
    for _ in 0..10 {
        let request = mailbox::Peek::Dead { after, limit: 2 };
        let page = place.backend.peek(&orders(), &request).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.death.map(|death| death.order);
        seen.extend(page.into_iter().map(|record| record.id.to_string()));
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

#[tokio::test]
async fn retention_keeps_a_dead_letter_of_a_shell_as_long_as_others() {
    let place = Place::new().await;
    let mut policy = place.backend.policy(&orders()).await.unwrap();
    policy.retention.dead_age = Some(Duration::from_secs(14 * 86_400));
    place.backend.configure(&orders(), policy).await.unwrap();
    place.put("incoming/job.json", written_by_shell("job", "1"));
    place.bash("mv incoming/job.json dead-letter/");
    assert_eq!(place.stats().await.dead, 1);
    assert_eq!(place.stats().await.totals.retention_dropped, 0);
}

#[tokio::test]
async fn a_script_can_take_a_message_under_the_name_that_we_gave_it() {
    let place = with_short_lease().await;
    let id = place.send("work").await;
    let first = place.receive().await;
    place.settle(&first, nack()).await.unwrap();
    let name = messages(&place.at("incoming")).remove(0);
    assert!(name.contains("~n1~d"), "{name}");
    place.bash("for f in incoming/*.json; do mv \"$f\" processing/; done");
    assert!(place.receive_now().await.is_none());
    let second = place.receive().await;
    assert_eq!((second.id.clone(), second.delivery_count), (id, 3));
    let error = place.settle(&first, Verdict::Acknowledge).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReceiptHandleExpired);
}

#[tokio::test]
async fn a_script_reads_what_the_library_sends() {
    let place = Place::new().await;
    for (payload, content) in [
        (&br#"{"a": 1}"#[..], serde_json::json!({"a": 1})),
        (b"plain text", serde_json::json!("plain text")),
        (b"\xff\x00", serde_json::json!("/wA=")),
    ] {
        let mut outgoing = Outgoing::new(payload.to_vec().into());
        outgoing.attributes.insert("type".to_owned(), "result".to_owned());
        let sent = place.backend.send(&orders(), vec![outgoing]).await.unwrap();
        let id = sent.into_iter().next().unwrap().unwrap().id;
        let json: Value = serde_json::from_str(&place.bash("cat incoming/*.json")).unwrap();
        assert_eq!(json["content"], content);
        assert_eq!(json["id"], id.to_string());
        assert_eq!((&json["type"], &json["attempts"]), (&"result".into(), &0.into()));
        assert!(json["timestamp"].is_string() && json["sender"].is_string(), "{json}");
        let delivery = place.receive().await;
        assert_eq!(delivery.letter.payload, payload);
        place.acknowledge(&delivery).await;
    }
}

#[tokio::test]
async fn a_waiting_receive_is_woken_by_a_shell() {
    let place = Place::new().await;
    let mut took = Vec::new();
    for round in 0..9 {
        place.bash(&format!("echo '{{\"content\":{round}}}' > incoming/.tmp/next"));
        let backend = std::sync::Arc::clone(&place.backend);
        let waiting = tokio::spawn(async move { receive(&*backend, PATIENCE).await });
        until("somebody waits", || async { place.stats().await.waiters == 1 }).await;
        place.bash(&format!("mv incoming/.tmp/next incoming/round-{round}.json"));
        let moved = Instant::now();
        let delivery = waiting.await.unwrap().unwrap().unwrap();
        took.push(moved.elapsed());
        assert_eq!(text(&delivery), round.to_string());
        assert!(moved.elapsed() < SOON, "{took:?}");
        place.acknowledge(&delivery).await;
    }
    took.sort_unstable();
    assert!(took[took.len() / 2] < Duration::from_millis(50), "{took:?}");
}

#[tokio::test]
async fn shells_use_a_sharded_inbox_as_if_it_were_not() {
    let mut config = DirectoryConfig::default();
    config.sharded = true;
    let place = Place::with(config).await;
    place.set("shell_lease", "0.3s");
    place.put("incoming/job.json", written_by_shell("job", "1"));
    let delivery = place.receive().await;
    assert_eq!((delivery.id.to_string().as_str(), text(&delivery)), ("job", "1"));
    place.settle(&delivery, nack()).await.unwrap();
    // It is in a bucket now; the script takes it from there to where it finds easily.
    place.bash("mv incoming/??/job~n1*.json processing/");
    assert!(place.receive_now().await.is_none());
    let delivery = place.receive().await;
    assert_eq!(delivery.delivery_count, 3);
    place.acknowledge(&delivery).await;
    assert_eq!(place.bash("ls done/*/*.json | wc -l").trim(), "1");
    place.send("ours").await;
    place.bash("mv incoming/??/*.json done/");
    assert!(place.receive_now().await.is_none());
    assert_eq!(place.stats().await.live(), 0);
}

#[tokio::test]
async fn a_second_file_with_the_same_id_is_not_delivered() {
    let place = Place::new().await;
    place.put("incoming/first.json", written_by_shell(UUID, "1"));
    let first = place.receive().await;
    place.put("incoming/second.json", written_by_shell(UUID, "1"));
    assert!(place.receive_now().await.is_none());
    assert_eq!(place.stats().await.live(), 1);
    assert_eq!(messages(&place.at("done")).len(), 1);
    place.acknowledge(&first).await;
    place.put("incoming/third.json", written_by_shell(UUID, "1"));
    assert!(place.receive_now().await.is_none());
    assert_eq!(messages(&place.at("done")).len(), 3);
    assert!(place.dead().await.is_empty());
}

#[tokio::test]
async fn a_second_file_with_the_same_id_and_other_content_is_rejected() {
    let place = Place::new().await;
    place.put("incoming/first.json", written_by_shell(UUID, "1"));
    let first = place.receive().await;
    place.put("incoming/second.json", written_by_shell(UUID, "2"));
    assert!(place.receive_now().await.is_none());
    let [(record, death)] = &place.dead().await[..] else { panic!("it is rejected") };
    assert_eq!((record.letter.payload.as_ref(), death.reason), (&b"2"[..], DeadReason::Rejected));
    assert!(record.last_error.is_some());
    place.acknowledge(&first).await;
}

#[tokio::test]
async fn a_message_that_was_put_back_is_no_second_one() {
    let place = Place::new().await;
    place.put("incoming/job.json", written_by_shell(UUID, "1"));
    for count in 1..=3 {
        let delivery = place.receive().await;
        assert_eq!((text(&delivery), delivery.delivery_count), ("1", count));
        place.settle(&delivery, nack()).await.unwrap();
    }
    assert!(place.receive_now().await.is_none());
    assert_eq!(place.backend.redrive(&orders(), &Selection::All).await.unwrap(), 1);
    assert_eq!(text(&place.receive().await), "1");
}

#[tokio::test]
async fn shells_and_the_library_never_have_the_same_message() {
    const COUNT: usize = 300;
    let place = Place::new().await;
    for number in 0..COUNT {
        place.put(&format!("incoming/job-{number}.json"), format!("{{\"content\":{number}}}"));
    }
    // Two scripts that take whatever they see, until there is nothing.
    let script = r#"
        shopt -s nullglob
        while true; do
            files=(incoming/*.json); (( ${#files[@]} )) || break
            f=${files[RANDOM % ${#files[@]}]}
            mv "$f" "mine-$1-${f##*/}" 2> /dev/null || true
        done
    "#;
    let folder = place.at("");
    let scripts: Vec<_> = ["a", "b"]
        .map(|who| {
            let mut command = std::process::Command::new("bash");
            command.args(["-c", script, "bash", who]).current_dir(&folder).spawn().unwrap()
        })
        .into();
    let mut got: Vec<Delivery> = Vec::new();
    let start = Instant::now();
    while start.elapsed() < PATIENCE && got.len() < COUNT {
        let Some(delivery) = place.receive_within(Duration::from_millis(100)).await else { break };
        place.acknowledge(&delivery).await;
        got.push(delivery);
    }
    for mut script in scripts {
        assert!(script.wait().unwrap().success());
    }
    let mut all: Vec<String> = got.iter().map(|delivery| text(delivery).to_owned()).collect();
    for file in names(&folder).into_iter().filter(|name| name.starts_with("mine-")) {
        let json: Value = serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap();
        all.push(json["content"].to_string());
    }
    let different: BTreeSet<&String> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (COUNT, COUNT));
}

#[tokio::test]
async fn a_small_number_in_a_name_is_no_time() {
    let place = Place::new().await;
    let mut policy = place.backend.policy(&orders()).await.unwrap();
    policy.retention.ready_age = Some(Duration::from_secs(7 * 86_400));
    place.backend.configure(&orders(), policy).await.unwrap();
    place.send("first").await;
    // Files of a script that counts, or writes the date.
    for name in ["1", "42-agent", "20251207-agent"] {
        place.put(&format!("incoming/{name}.json"), "1");
    }
    assert_eq!(text(&place.receive().await), "first");
    for _ in 0..3 {
        assert!(place.receive_now().await.is_some(), "expired: {}", place.dead().await.len());
    }
}

#[tokio::test]
async fn two_shells_and_two_processes_see_the_same_line() {
    let place = Place::new().await;
    let other = place.another(DirectoryConfig::default()).await;
    send(&*other, "1").await;
    place.put("incoming/second.json", "2");
    let first = receive(&*other, PATIENCE).await.unwrap().unwrap();
    let second = place.receive().await;
    assert_eq!((text(&first), text(&second)), ("1", "2"));
    assert!(receive(&*other, Duration::ZERO).await.unwrap().is_none());
    // Whoever knows the handle settles, whichever process it is.
    place.acknowledge(&first).await;
    super::settle(&*other, &second, Verdict::Acknowledge).await.unwrap();
    assert_eq!(place.stats().await.live(), 0);
}
