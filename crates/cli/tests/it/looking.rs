//! Commands that look, and those that tidy up.

use mailbox::backends::journal::{JournalBackend, JournalConfig};
use mailbox::{Backend, Durability, Name, Outgoing};

use super::story::{Story, assert_story};
use super::{SCHEMES, done_in, json_in, mailbox_in};

#[test]
fn mailboxes_are_looked_at_without_being_changed() {
    for scheme in SCHEMES {
        let (mut story, jobs) = (Story::new(), format!("{scheme}:inbox/jobs"));
        story.run(&["send", &jobs, "hello", "--attr", "from=me", "--reply-to", "answers"]);
        story.feed(&["send", &jobs], b"\x00\xFF");
        let id = story.run(&["send", &jobs, "\u{1b}[31mred\nline"]).stdout;
        story.run(&["send", &format!("{scheme}:inbox/more"), "1"]);
        story.run(&["peek", &jobs]);
        story.run(&["peek", &jobs, "--max", "1", "--json"]);
        story.run(&["peek", &jobs, "--id", id.trim(), "--json"]);
        story.run(&["peek", &jobs, "--id", "nobody"]);
        story.run(&["stats", &jobs]);
        story.run(&["stats", &jobs, "--json"]);
        story.run(&["list", &format!("{scheme}:inbox")]);
        story.run(&["list", &format!("{scheme}:inbox/"), "--json"]);
        story.run(&["explain", &jobs, id.trim()]);
        story.run(&["explain", &jobs, "nobody"]);
        story.run(&["peek", &format!("{scheme}:inbox/never-used")]);
        story.run(&["count", &format!("{scheme}:inbox/never-used")]);
        assert_story!(format!("looking_{scheme}"), story);
    }
}

#[test]
fn looking_at_a_misspelt_path_makes_nothing() {
    for scheme in SCHEMES {
        let story = Story::new();
        let jobs = format!("{scheme}:inbxo/jobs");
        let place = format!("{scheme}:inbxo");
        for arguments in [
            &["count", &jobs][..],
            &["peek", &jobs],
            &["stats", &jobs],
            &["list", &place],
            &["receive", &jobs],
            &["ack", &jobs, "handle"],
            &["purge", &jobs, "--yes"],
            &["explain", &jobs, "id"],
            &["dead", "list", &jobs],
            &["move", &jobs, "dir:elsewhere/x"],
        ] {
            let ran = mailbox_in(story.dir(), arguments);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{arguments:?} {ran:?}");
            assert!(ran.stderr.contains("nothing there"), "{arguments:?} {ran:?}");
        }
        assert_eq!(std::fs::read_dir(story.dir()).unwrap().count(), 0);
    }
}

#[test]
fn purge_and_remove_need_a_yes() {
    for scheme in SCHEMES {
        let (mut story, jobs) = (Story::new(), format!("{scheme}:inbox/jobs"));
        story.feed(&["send", &jobs, "--lines"], b"1\n2\n3\n");
        story.run(&["purge", &jobs]);
        story.run(&["remove", &jobs]);
        story.run(&["count", &jobs]);
        story.run(&["purge", &jobs, "--yes"]);
        story.run(&["purge", &jobs, "--yes", "--json"]);
        story.run(&["remove", &jobs, "--yes"]);
        story.run(&["remove", &jobs, "--yes", "--json"]);
        story.run(&["list", &format!("{scheme}:inbox")]);
        assert_story!(format!("purged_{scheme}"), story);
    }
}

#[tokio::test]
async fn a_long_list_is_listed_to_its_end() {
    let story = Story::new();
    let config = JournalConfig::default().with_durability(Durability::OsBuffered);
    let journal = JournalBackend::open_with(story.dir().join("data"), config).await.unwrap();
    for number in 0..1_005 {
        let name = Name::parse(&format!("box-{number:04}")).unwrap();
        let sent = journal.send(&name, vec![Outgoing::new("x".into())]).await.unwrap();
        assert!(sent[0].is_ok());
    }
    journal.close().await.unwrap();
    let names = json_in(story.dir(), &["list", "journal:data", "--json"]);
    assert_eq!(names.len(), 1_005);
    assert_eq!(names[1_004]["name"], "box-1004");
}

#[test]
fn a_measurement_leaves_nothing_behind() {
    for scheme in SCHEMES {
        let story = Story::new();
        let jobs = format!("{scheme}:inbox/jobs");
        let few = ["bench", &jobs, "--messages", "50", "--batch", "5", "--producers", "2"];
        let ran = mailbox_in(story.dir(), &few);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(ran.stdout.contains("50 messages of 256 bytes, 2 at a time, 5 in a call"));
        assert!(ran.stdout.contains("receive + ack"), "{ran:?}");
        let ran = mailbox_in(story.dir(), &[&few[..], &["--json", "--size", "9"]].concat());
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert!(document["send"]["messages_per_second"].as_f64().unwrap() > 0.0, "{document}");
        assert!(document["receive"]["p99_ms"].as_f64().unwrap() > 0.0, "{document}");
        assert_eq!(done_in(story.dir(), &["list", &format!("{scheme}:inbox")]), "");
        let large = mailbox_in(story.dir(), &["bench", &jobs, "--size", "99999999"]);
        assert_eq!(large.code, Some(2), "{large:?}");
    }
}

#[test]
fn a_message_whose_attempts_are_used_up_is_said_to_become_a_dead_letter() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = "dir:inbox/jobs";
    done_in(dir.path(), &["init", jobs, "--attempts", "1"]);
    let id = done_in(dir.path(), &["send", jobs, "x"]);
    let explained = || done_in(dir.path(), &["explain", jobs, id.trim()]);
    assert!(!explained().contains("attempts used up"), "{}", explained());
    let got = json_in(dir.path(), &["receive", jobs, "--json"]);
    let told = explained();
    assert!(told.contains("more; attempts used up\n"), "{told}");
    assert!(told.contains("in time, it becomes a dead letter\n"), "{told}");
    assert!(told.contains("; or mv it to done/, if a script has it\n"), "{told}");
    let handle = got[0]["receipt_handle"].as_str().unwrap();
    done_in(dir.path(), &["nack", jobs, handle, "--delay", "1h"]);
    let told = explained();
    assert!(told.contains("delayed: its turn is in 59 min"), "{told}");
    assert!(told.contains("at its next turn it becomes a dead letter"), "{told}");
}
