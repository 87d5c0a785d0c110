//! `mailbox move`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use tempfile::tempdir;

use super::story::{Story, assert_story};
use super::{binary, done_in, json_in, mailbox_in, wait_until};

fn fill(dir: &Path, address: &str, count: usize) {
    let lines: String = (1..=count).map(|number| format!("{number}\n")).collect();
    fs::write(dir.join("list"), lines).unwrap();
    let list = fs::File::open(dir.join("list")).unwrap();
    let send = binary().current_dir(dir).args(["send", address, "--lines"]).stdin(list).output();
    assert!(send.unwrap().status.success());
}

#[test]
fn messages_move_between_any_two_mailboxes_with_all_they_have() {
    for (from, to) in [
        ("dir:inbox/jobs", "journal:data/jobs"),
        ("journal:data/jobs", "dir:inbox/jobs"),
        ("dir:inbox/jobs", "dir:inbox/other"),
        ("journal:data/jobs", "journal:data/other"),
    ] {
        let mut story = Story::new();
        let more = ["--attr", "k=v", "--reply-to", "answers", "--key", "mine"];
        done_in(story.dir(), &[&["send", from, "[1]"], &more[..]].concat());
        done_in(story.dir(), &["send", from, "2"]);
        done_in(story.dir(), &["send", from, "later", "--delay", "1h"]);
        story.run(&["move", from, to, "--max", "1"]);
        story.run(&["move", from, to, "--json"]);
        story.run(&["move", from, to]);
        story.run(&["count", from]);
        let moved = json_in(story.dir(), &["receive", to, "--max", "9", "--json"]);
        assert_eq!(moved.len(), 2);
        assert_eq!(
            (moved[0]["body"].to_string(), &moved[0]["attributes"]["k"]),
            ("[1]".to_owned(), &"v".into())
        );
        let reply_to = moved[0]["reply_to"].as_str().unwrap();
        let (scheme, _) = from.split_once(':').unwrap();
        assert!(reply_to.starts_with(&format!("{scheme}:///")), "{reply_to}");
        assert!(reply_to.ends_with("/answers"), "{reply_to}");
        let name = format!("move_{from}_{to}").replace([':', '/'], "_");
        assert_story!(name, story);
    }
}

#[test]
fn a_move_to_itself_is_refused_however_it_is_written() {
    let dir = tempdir().unwrap();
    fill(dir.path(), "dir:inbox/jobs", 1);
    for to in ["dir:inbox/jobs", "dir:./inbox/jobs", "dir:inbox/../inbox/jobs"] {
        let ran = mailbox_in(dir.path(), &["move", "dir:inbox/jobs", to]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
    assert_eq!(done_in(dir.path(), &["count", "dir:inbox/jobs"]), "1\n");
}

#[test]
fn dead_letters_are_moved_to_be_received() {
    let dir = tempdir().unwrap();
    fill(dir.path(), "dir:inbox/jobs", 3);
    for delivery in json_in(dir.path(), &["receive", "dir:inbox/jobs", "--max", "2", "--json"]) {
        let handle = delivery["receipt_handle"].as_str().unwrap();
        done_in(dir.path(), &["reject", "dir:inbox/jobs", handle]);
    }
    let moved = ["move", "dir:inbox/jobs", "journal:data/again", "--dead"];
    assert_eq!(done_in(dir.path(), &moved), "2\n");
    assert_eq!(done_in(dir.path(), &["dead", "list", "dir:inbox/jobs"]), "");
    assert_eq!(done_in(dir.path(), &["count", "dir:inbox/jobs"]), "1\n");
    let got = json_in(dir.path(), &["receive", "journal:data/again", "--max", "9", "--json"]);
    assert_eq!(got.iter().map(|it| it["body"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_move_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing() {
    let dir = tempdir().unwrap();
    let (from, to) = ("dir:inbox/jobs", "journal:data/jobs");
    let count = 600;
    fill(dir.path(), from, count);
    let arguments = ["move", from, to, "--visibility", "4s"];
    for round in 1..=6 {
        let mut moving =
            binary().current_dir(dir.path()).args(arguments).stdout(Stdio::null()).spawn().unwrap();
        // Somewhere in the middle, each time somewhere else.
        sleep(Duration::from_millis(20 * round));
        let _ = moving.kill();
        moving.wait().unwrap();
    }
    finish(dir.path(), &arguments, count);
}

/// Moves the rest, and looks whether each of `1..=count` is there, and none twice.
fn finish(dir: &Path, arguments: &[&str], count: usize) {
    let [_, from, to, ..] = arguments else { panic!("no move: {arguments:?}") };
    // What the killed ones had taken becomes receivable again.
    wait_until("all have moved", || {
        done_in(dir, arguments);
        done_in(dir, &["count", from]) == "0\n"
    });
    let mut got = Vec::new();
    while got.len() < count + 10 {
        let ran = mailbox_in(dir, &["receive", to, "--max", "200", "--json"]);
        let lines: Vec<serde_json::Value> =
            ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        if lines.is_empty() {
            break;
        }
        got.extend(lines.iter().map(|it| it["body"].as_u64().unwrap()));
    }
    let distinct: BTreeSet<u64> = got.iter().copied().collect();
    assert_eq!(distinct.len(), count, "some are lost");
    assert_eq!(got.len(), count, "some are there twice");
}

#[test]
fn a_move_that_is_killed_between_send_and_acknowledge_doubles_nothing() {
    let dir = tempdir().unwrap();
    let arguments = ["move", "dir:inbox/jobs", "dir:inbox/other", "--visibility", "4s"];
    let count = 200;
    fill(dir.path(), arguments[1], count);
    let incoming = dir.path().join("inbox/other/incoming");
    let arrived = || {
        let files = fs::read_dir(&incoming).map(|it| it.flatten().collect()).unwrap_or_default();
        let files: Vec<fs::DirEntry> = files;
        files.iter().filter(|it| it.path().extension().is_some_and(|it| it == "json")).count()
    };
    for _ in 0..2 {
        let before = arrived();
        let mut moving =
            binary().current_dir(dir.path()).args(arguments).stdout(Stdio::null()).spawn().unwrap();
        // The first goes alone. The batch behind it is acknowledged only when all of it is there:
        // some of it is, so none was.
        while arrived() < before + 2 && moving.try_wait().unwrap().is_none() {}
        let _ = moving.kill();
        moving.wait().unwrap();
    }
    assert!((1..count).contains(&arrived()), "it was killed too early or too late");
    finish(dir.path(), &arguments, count);
}

#[test]
fn a_lease_that_is_too_short_is_said_to_be_that_and_doubles_nothing() {
    let dir = tempdir().unwrap();
    fill(dir.path(), "dir:inbox/jobs", 2);
    let arguments = ["move", "dir:inbox/jobs", "journal:data/jobs"];
    let ran = mailbox_in(dir.path(), &[&arguments[..], &["--visibility", "0"]].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "0\n"), "{ran:?}");
    assert!(ran.stderr.contains("a longer --visibility helps"), "{ran:?}");
    finish(dir.path(), &arguments, 2);
}

#[test]
fn nothing_is_moved_to_where_nothing_would_be_left() {
    let dir = tempdir().unwrap();
    done_in(dir.path(), &["send", "dir:inbox/jobs", "precious"]);
    for more in [&[][..], &["--dead"]] {
        let arguments = [&["move", "dir:inbox/jobs", "memory://x"], more].concat();
        let ran = mailbox_in(dir.path(), &arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("memory: ends with this command"), "{ran:?}");
    }
    assert_eq!(done_in(dir.path(), &["receive", "dir:inbox/jobs", "--ack"]), "precious\n");
}
