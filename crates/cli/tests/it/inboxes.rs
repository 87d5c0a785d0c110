//! Making, changing and examining inboxes.

use std::fs;

use super::done_in;
use super::story::{Story, assert_story};

#[test]
fn an_inbox_is_made_and_changed() {
    let mut story = Story::new();
    story.run(&["init", "dir:inbox/jobs"]);
    story.run(&["init", "dir:inbox/jobs"]);
    story.run(&["init", "dir:inbox/jobs", "--shards", "64", "--attempts", "5", "--json"]);
    story.run(&["send", "dir:inbox/jobs", "hello"]);
    story.run(&["doctor", "dir:inbox/jobs"]);
    story.run(&["init", "dir:inbox/jobs", "--shards", "0", "--acks", "yes"]);
    story.run(&["receive", "dir:inbox/jobs", "--ack"]);
    let acks: Vec<_> = fs::read_dir(story.dir().join("inbox/jobs/acks")).unwrap().collect();
    assert_eq!(acks.len(), 1);
    let settings = fs::read_to_string(story.dir().join("inbox/jobs/inbox.json")).unwrap();
    assert!(settings.contains("\"max_attempts\": 5"), "{settings}");
    story.run(&["init", "dir:inbox/jobs", "--shards", "7"]);
    story.run(&["init", "journal:data/jobs"]);
    story.run(&["init", "dir:inbox/jobs", "--shell-lease", "soon"]);
    assert_story!("init", story);
}

#[test]
fn an_inbox_is_examined_and_repaired() {
    let mut story = Story::new();
    story.run(&["doctor", "dir:inbox/jobs"]);
    story.run(&["init", "dir:inbox/jobs"]);
    story.run(&["send", "dir:inbox/jobs", "hello"]);
    let incoming = story.dir().join("inbox/jobs/incoming");
    let files = fs::read_dir(&incoming).unwrap().map(|entry| entry.unwrap().path());
    let message = files.into_iter().find(|path| path.extension().is_some()).unwrap();
    let text = fs::read_to_string(&message).unwrap().replace("hello", "jello");
    // Under a name that does not differ from run to run.
    fs::remove_file(message).unwrap();
    fs::write(incoming.join("1700000000-x-damaged.json"), text).unwrap();
    fs::write(incoming.join("notes.txt"), "hello").unwrap();
    story.run(&["doctor", "inbox/jobs"]);
    story.run(&["doctor", "dir:inbox/jobs", "--json"]);
    story.run(&["doctor", "dir:inbox/jobs", "--repair", "--into", "elsewhere"]);
    story.run(&["doctor", "dir:inbox/jobs", "--repair"]);
    fs::remove_file(incoming.join("notes.txt")).unwrap();
    story.run(&["doctor", "dir:inbox/jobs"]);
    story.run(&["dead", "list", "dir:inbox/jobs", "--json"]);
    assert_story!("inbox_doctor", story);
}

#[test]
fn who_names_something_else_to_the_doctor_is_told_what_it_takes() {
    let mut story = Story::new();
    story.run(&["init", "dir:desk/jobs"]);
    story.run(&["doctor", "desk"]);
    fs::create_dir(story.dir().join("empty")).unwrap();
    story.run(&["doctor", "empty"]);
    story.run(&["doctor", "memory://x"]);
    story.run(&["doctor", "dir:~/jobs"]);
    story.run(&["send", "dir:~/jobs", "x"]);
    assert!(!story.dir().join("~").exists());
    assert_story!("doctor_elsewhere", story);
}

#[test]
fn the_script_in_the_help_of_init_works() {
    let story = Story::new();
    done_in(story.dir(), &["init", "dir:inbox/jobs"]);
    let help = done_in(story.dir(), &["init", "--help"]);
    let (_, script) = help.split_once("with a shell alone:\n").unwrap();
    // What is said about a line stands far to its right.
    let lines = script.lines().map(|line| line.trim().split("    ").next().unwrap());
    let all: Vec<&str> = lines.collect();
    let (take, make) = all.split_last().unwrap();
    let run = |script: &str| {
        let mut shell = std::process::Command::new("sh");
        let ran = shell.current_dir(story.dir()).args(["-e", "-c", script]).status().unwrap();
        assert!(ran.success(), "{script}");
    };
    run(&make.join("\n"));
    let seen = super::json_in(story.dir(), &["peek", "dir:inbox/jobs", "--json"]);
    assert_eq!((seen.len(), &seen[0]["body"]), (1, &"hello".into()), "{seen:?}");
    let take = take.replace("./job", "grep -q hello");
    run(&format!("cd inbox/jobs; for F in $(ls incoming); do {take}; done"));
    let stats = done_in(story.dir(), &["count", "dir:inbox/jobs"]);
    assert_eq!(stats, "0\n");
    assert_eq!(fs::read_dir(story.dir().join("inbox/jobs/done")).unwrap().count(), 1);
}
