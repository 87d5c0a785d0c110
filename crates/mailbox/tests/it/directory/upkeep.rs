//! Changing an inbox while it is in use, having it examined, and messages that are there twice.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use mailbox::backends::directory::{DirectoryConfig, InboxSettings, Prepared};
use mailbox::{DeadReason, ErrorKind, Phase, Policy, Verdict};

use super::{Place, messages, names, orders, text};

fn sharded(sharded: bool) -> InboxSettings {
    InboxSettings { sharded: Some(sharded), ..InboxSettings::default() }
}

fn shell_message(id: &str, content: &str) -> String {
    format!(r#"{{"id":"{id}","sender":"x","type":"signal","content":"{content}","attempts":0}}"#)
}

#[tokio::test]
async fn a_new_inbox_has_the_settings_that_were_asked_for() {
    let place = Place::new().await;
    let name = "letters".parse().unwrap();
    let mut wanted = sharded(true);
    wanted.shell_lease = Some(Duration::from_millis(1500));
    wanted.policy = Some(Policy { max_attempts: Some(7), ..Policy::default() });
    let made = place.backend.prepare(&name, wanted.clone()).await.unwrap();
    assert_eq!(made, Prepared::Made);
    assert_eq!(place.backend.prepare(&name, wanted).await.unwrap(), Prepared::Unchanged);
    let settings = fs::read_to_string(place.at("../letters/inbox.json")).unwrap();
    for part in ["\"shards\": 64", "\"shell_lease\": \"1.5s\"", "\"max_attempts\": 7"] {
        assert!(settings.contains(part), "{settings}");
    }
    let acks = InboxSettings { acks: Some(true), ..InboxSettings::default() };
    assert_eq!(place.backend.prepare(&name, acks).await.unwrap(), Prepared::Changed);
    assert!(fs::read_to_string(place.at("../letters/inbox.json")).unwrap().contains("true"));
}

#[tokio::test]
async fn an_inbox_is_spread_and_gathered_again_while_somebody_has_its_messages() {
    let place = Place::new().await;
    let mut expected = BTreeSet::new();
    for number in 0..50 {
        place.send(&number.to_string()).await;
        expected.insert(number.to_string());
    }
    let held = place.receive().await;
    expected.remove(text(&held));
    let rejected = place.receive().await;
    expected.remove(text(&rejected));
    let reject = Verdict::Reject { reason: DeadReason::Rejected, error: Some("no".into()) };
    place.settle(&rejected, reject).await.unwrap();

    let other = place.another(DirectoryConfig::default()).await;
    assert_eq!(other.prepare(&orders(), sharded(true)).await.unwrap(), Prepared::Changed);
    assert!(messages(&place.at("incoming")).is_empty(), "{:?}", names(&place.at("incoming")));
    assert!(messages(&place.at("processing")).is_empty());
    assert!(messages(&place.at("dead-letter")).is_empty());
    let stats = place.stats().await;
    assert_eq!((stats.ready, stats.invisible, stats.dead), (48, 1, 1));
    // Whoever took one before settles it where it is now.
    place.acknowledge(&held).await;

    assert_eq!(place.backend.prepare(&orders(), sharded(false)).await.unwrap(), Prepared::Changed);
    assert_eq!(messages(&place.at("incoming")).len(), 48);
    assert_eq!(place.dead().await[0].0.last_error.as_deref(), Some("no"));
    while let Some(delivery) = place.receive_now().await {
        assert!(expected.remove(text(&delivery)), "{} came twice", text(&delivery));
        place.acknowledge(&delivery).await;
    }
    assert!(expected.is_empty(), "{expected:?}");
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_if_an_inbox_is_converted_under_load() {
    let place = Place::new().await;
    let total = 300;
    let sender = place.another(DirectoryConfig::default()).await;
    let sending = tokio::spawn(async move {
        for number in 0..total {
            super::send(&*sender, &number.to_string()).await;
        }
    });
    let converter = place.another(DirectoryConfig::default()).await;
    let converting = tokio::spawn(async move {
        for turn in 0..20 {
            converter.prepare(&orders(), sharded(turn % 2 == 0)).await.unwrap();
        }
    });
    let mut found = BTreeSet::new();
    while found.len() < total {
        let delivery = place.receive().await;
        assert_eq!(delivery.delivery_count, 1);
        assert!(found.insert(text(&delivery).to_owned()), "{} came twice", text(&delivery));
        place.acknowledge(&delivery).await;
    }
    sending.await.unwrap();
    converting.await.unwrap();
    assert_eq!(place.stats().await.live(), 0);
}

#[tokio::test]
async fn a_sound_inbox_is_found_sound_and_nothing_in_it_changes() {
    let place = Place::new().await;
    place.send("one").await;
    place.put("incoming/1700000000-x-a.json", shell_message("a", "two"));
    let delivery = place.receive().await;
    place.settle(&delivery, super::nack()).await.unwrap();
    let before = names(&place.at("incoming"));
    for repair in [false, true] {
        let report = place.backend.examine(&orders(), repair).await.unwrap();
        assert!(report.sound && report.problems.is_empty(), "{report:?}");
        assert_eq!((report.incoming, report.repaired), (2, 0));
        assert_eq!(names(&place.at("incoming")), before);
    }
    let error = place.backend.examine(&"other".parse().unwrap(), false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn the_doctor_names_what_is_wrong_and_puts_it_right_if_asked() {
    let place = Place::new().await;
    place.send("good").await;
    place.send("bad").await;
    let damaged = messages(&place.at("incoming")).pop().unwrap();
    let text = fs::read_to_string(place.at("incoming").join(&damaged)).unwrap();
    assert!(text.contains("\"bad\""));
    fs::write(place.at("incoming").join(&damaged), text.replace("\"bad\"", "\"mad\"")).unwrap();
    place.put("incoming/1700000000-x-b.json", "no JSON");
    place.bash("touch -d '1 hour ago' incoming/1700000000-x-b.json");
    place.put("incoming/letter.txt", "hello");
    fs::write(place.at("notes/nobody~e1"), "lost").unwrap();

    let report = place.backend.examine(&orders(), false).await.unwrap();
    assert!(!report.sound);
    assert_eq!((report.incoming, report.foreign, report.repaired), (3, 1, 0));
    let all: Vec<&str> = report.problems.iter().map(|problem| problem.file.as_str()).collect();
    let expected = [
        format!("incoming/{damaged}"),
        "incoming/1700000000-x-b.json".to_owned(),
        "incoming/letter.txt".to_owned(),
        "notes".to_owned(),
    ];
    for file in &expected {
        assert!(all.contains(&file.as_str()), "{file} is not among {all:?}");
    }
    assert_eq!(all.len(), expected.len());
    assert_eq!(place.stats().await.ready, 3);

    let report = place.backend.examine(&orders(), true).await.unwrap();
    assert_eq!(report.repaired, 3);
    let (record, death) = place.dead().await.remove(0);
    assert_eq!((death.reason, record.phase), (DeadReason::Integrity, Phase::Dead));
    assert_eq!(names(&place.at("aside")), ["1700000000-x-b.json"]);
    assert_eq!(fs::read(place.at("incoming/letter.txt")).unwrap(), b"hello");
    assert_eq!(place.receive().await.letter.payload, "good");
}

#[tokio::test]
async fn a_script_that_sends_twice_is_delivered_once() {
    let place = Place::new().await;
    place.put("incoming/1700000000-x-a.json", shell_message("same", "go"));
    place.put("incoming/1700000001-x-b.json", shell_message("same", "go"));
    place.put("incoming/1700000002-x-c.json", shell_message("other", "go"));
    let first = place.receive().await;
    let second = place.receive().await;
    assert_eq!(
        (first.id.to_string(), second.id.to_string()),
        ("1700000000-x-a".to_owned(), "1700000002-x-c".to_owned())
    );
    assert!(place.receive_now().await.is_none());
    assert_eq!(messages(&place.at("done")).len(), 1);
    // What was delivered comes again all the same, if it was not acknowledged.
    place.settle(&first, super::nack()).await.unwrap();
    let again = place.receive().await;
    assert_eq!((again.id.clone(), again.delivery_count), (first.id, 2));
    place.acknowledge(&again).await;
    place.put("incoming/1700000003-x-d.json", shell_message("same", "go"));
    assert!(place.receive_now().await.is_none(), "it was done before");
}

#[tokio::test]
async fn the_same_id_with_another_content_is_a_dead_letter_and_can_be_redriven() {
    let place = Place::new().await;
    place.put("incoming/1700000000-x-a.json", shell_message("same", "go"));
    place.put("incoming/1700000001-x-b.json", shell_message("same", "stop"));
    let first = place.receive().await;
    assert_eq!(first.letter.payload, "\"go\"");
    assert!(place.receive_now().await.is_none());
    let (record, death) = place.dead().await.remove(0);
    assert_eq!(death.reason, DeadReason::Rejected);
    assert!(record.last_error.unwrap().contains("same id"));
    mailbox::Backend::redrive(&*place.backend, &orders(), &mailbox::Selection::All).await.unwrap();
    assert_eq!(place.receive().await.letter.payload, "\"stop\"");
}

#[tokio::test]
async fn a_script_that_puts_a_message_back_under_another_name_has_it_delivered() {
    let place = Place::new().await;
    place.put("incoming/1700000000-x-a.json", shell_message("same", "go"));
    assert_eq!(place.receive().await.letter.payload, "\"go\"");
    place.bash("mv processing/*.json incoming/1700000009-x-again.json");
    let again = place.receive().await;
    assert_eq!(again.id.to_string(), "1700000009-x-again");
}

#[tokio::test]
async fn a_redriven_message_starts_anew_whatever_its_file_says() {
    let place = Place::new().await;
    let tried = r#"{"id":"t","content":"go","attempts":3}"#;
    place.put("incoming/1700000000-x-t.json", tried);
    assert!(place.receive_now().await.is_none(), "it has had its attempts");
    mailbox::Backend::redrive(&*place.backend, &orders(), &mailbox::Selection::All).await.unwrap();
    let delivery = place.receive().await;
    assert_eq!(delivery.delivery_count, 1);
    place.settle(&delivery, super::nack()).await.unwrap();
    assert_eq!(place.receive().await.delivery_count, 2);
    // The same for somebody who moves it back by hand.
    place.put("incoming/1700000001-x-u.json", tried.replace("\"t\"", "\"u\""));
    assert!(place.receive_now().await.is_none());
    place.bash("mv dead-letter/*.json incoming/");
    assert_eq!(place.receive().await.delivery_count, 1);
}

#[tokio::test]
async fn what_a_shell_has_stays_where_it_is_when_an_inbox_is_converted() {
    let place = Place::new().await;
    place.put("incoming/1700000000-x-a.json", shell_message("a", "go"));
    place.bash("mv incoming/1700000000-x-a.json processing/");
    place.send("other").await;
    place.backend.prepare(&orders(), sharded(true)).await.unwrap();
    place.backend.examine(&orders(), true).await.unwrap();
    place.bash("mv processing/1700000000-x-a.json done/");
    assert_eq!(place.stats().await.live(), 1);
}

#[tokio::test]
async fn two_messages_of_one_name_are_two_messages() {
    let place = Place::new().await;
    place.put("incoming/same.json", "1");
    let first = place.receive().await;
    place.put("incoming/same.json", "2");
    assert_eq!(place.stats().await.live(), 2);
    assert_eq!(place.live().await.len(), 2);
    place.settle(&first, super::nack()).await.unwrap();
    let options = mailbox::ReceiveOptions::new().with_max_messages(9);
    let both = mailbox::Backend::receive(&*place.backend, &orders(), &options).await.unwrap();
    let mut payloads: Vec<&str> = both.iter().map(text).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, ["1", "2"]);
}

#[tokio::test]
async fn dead_letters_that_cannot_be_read_hide_no_others() {
    let place = Place::new().await;
    for number in 0..20 {
        place.put(&format!("dead-letter/broken-{number}.json"), "no JSON");
    }
    place.put("incoming/good.json", "1");
    let delivery = place.receive().await;
    let reject = Verdict::Reject { reason: DeadReason::Rejected, error: None };
    place.settle(&delivery, reject).await.unwrap();
    let request = mailbox::Peek::Dead { after: None, limit: 5 };
    let page = mailbox::Backend::peek(&*place.backend, &orders(), &request).await.unwrap();
    assert_eq!(page.len(), 1);
}

#[tokio::test]
async fn a_folder_that_was_renamed_is_another_mailbox() {
    let place = Place::new().await;
    place.send("hello").await;
    super::bash(place.backend.path(), "mv orders letters");
    let letters = "letters".parse().unwrap();
    let options = mailbox::ReceiveOptions::new();
    let found = mailbox::Backend::receive(&*place.backend, &letters, &options).await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(place.receive_now().await.is_none());
}
