//! What is wrong is refused, with an exit code and words that say what to do.

use super::story::{Story, assert_story};
use super::{SCHEMES, mailbox, mailbox_in};

#[test]
fn errors_say_what_to_do() {
    let mut story = Story::new();
    std::fs::write(story.dir().join("note"), "x").unwrap();
    std::fs::create_dir(story.dir().join("full")).unwrap();
    std::fs::write(story.dir().join("full/note"), "x").unwrap();
    for arguments in [
        &["send", "jobs", "x"][..],
        &["send", "user:42:inbox", "x"],
        &["send", "oap:jobs", "x"],
        &["send", "http:127.0.0.1", "x"],
        &["send", "GRPC://127.0.0.1:17600/jobs", "x"],
        &["send", "a b", "x"],
        &["send", "ftp://host/jobs", "x"],
        &["send", "sqs://user:hunter2@region/jobs", "x"],
        &["send", "redis://user:hunter2@127.0.0.1:1/jobs", "x"],
        &["send", "redis://user:hunter2@127.0.0.1:1", "x"],
        &["send", "dir:inbox/a b", "x"],
        &["send", "dir://inbox/jobs", "x"],
        &["send", "dir:inbox/jobs?colour=red", "x"],
        &["send", "dir:note/jobs", "x"],
        &["send", "journal:full/jobs", "x"],
        &["send", "journal:jobs", "x"],
        &["count", "journal:full/jobs"],
        &["send", "dir:inbox/jobs", "x", "--delay", "5x"],
        &["send", "dir:inbox/jobs", "x", "--delay", "13h"],
        &["send", "dir:inbox/jobs", "x", "--attr", "a"],
        &["send", "dir:inbox/jobs", "x", "--file", "note"],
        &["send", "dir:inbox/jobs", "--file", "nowhere"],
        &["send", "dir:inbox/jobs", "--jsn"],
        &["send", "dir:inbox/jobs", "x", "--key", ""],
        &["receive", "dir:inbox/jobs", "--max", "0", "--wait", "1ms"],
        &["receive", "dir:inbox/jobs", "--count", "1"],
        &["ack", "dir:inbox/jobs"],
        &["extend", "dir:inbox/jobs", "handle"],
        &["list", "inbox"],
        &["list", "http://127.0.0.1:1/jobs"],
        &["work", "dir:inbox/jobs"],
        &["work", "dir:inbox/jobs", "-j", "0", "--", "true"],
        &["work", "dir:inbox/jobs", "--visibility", "0", "--", "true"],
        &["work", "dir:inbox/jobs", "--allow-reply", "x", "--", "true"],
        &["move", "dir:inbox/jobs", "dir:inbox/jobs"],
        &["completions", "tcsh"],
        &["cure"],
    ] {
        let ran = story.run(arguments);
        assert!(ran.code != Some(0) && ran.stdout.is_empty(), "{arguments:?}: {ran:?}");
        assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    }
    assert_story!("errors", story);
}

#[test]
fn with_json_errors_are_one_line_of_json() {
    let mut story = Story::new();
    for arguments in [
        &["send", "jobs", "x", "--json"][..],
        &["count", "dir:nowhere/jobs", "--json"],
        &["receive", "dir:nowhere/jobs", "--json"],
        &["purge", "dir:./jobs", "--json"],
        &["move", "dir:./a", "dir:./a", "--json"],
        &["dead", "list", "ftp://h/x", "--json"],
    ] {
        let ran = story.run(arguments);
        let document: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
        assert!(document["error"]["kind"].is_string(), "{ran:?}");
    }
    assert_story!("json_errors", story);
}

#[test]
fn a_payload_that_is_too_large_is_refused_from_everywhere() {
    for scheme in SCHEMES {
        let mut story = Story::new();
        let jobs = format!("{scheme}:inbox/jobs");
        let most = vec![b'x'; 1024 * 1024];
        assert_eq!(story.feed(&["send", &jobs], &most).code, Some(0));
        let more = [&most[..], b"x"].concat();
        std::fs::write(story.dir().join("large"), &more).unwrap();
        for (arguments, input) in [
            (&["send", &jobs][..], &more[..]),
            (&["send", &jobs, "--lines"], &more),
            (&["send", &jobs, "--file", "large"], b""),
        ] {
            let ran = story.feed(arguments, input);
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?} {ran:?}");
            assert!(ran.stderr.contains("1048576 bytes"), "{arguments:?} {ran:?}");
        }
        let two = [b"first\n", &more[..], b"\nlast\n"].concat();
        let ran = story.feed(&["send", &jobs, "--lines"], &two);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert_eq!(ran.stdout.lines().count(), 1, "the line before it is sent: {ran:?}");
        assert!(ran.stderr.contains("line 2 was not sent; 1 before it were"), "{ran:?}");
        assert_eq!(mailbox_in(story.dir(), &["count", &jobs]).stdout, "2\n");
    }
}

/// Those behind it were sent too, but no id was printed for them.
#[test]
fn a_line_that_is_refused_keeps_no_other_from_being_accounted_for() {
    for scheme in SCHEMES {
        let mut story = Story::new();
        let jobs = format!("{scheme}:inbox/jobs");
        let send = ["send", &jobs, "--lines", "--key", "k"];
        let first = story.feed(&send, b"one\ntwo\n");
        assert_eq!(first.code, Some(0), "{first:?}");
        let ran = story.feed(&send, b"one\nother\nthree\nfour\n");
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert_eq!(ran.stdout.lines().count(), 3, "{ran:?}");
        let expected = "line 2 was not sent; all others up to line 4 were, none behind: ";
        assert!(ran.stderr.contains(expected), "{ran:?}");
        assert_eq!(mailbox_in(story.dir(), &["count", &jobs]).stdout, "4\n");
    }
}

#[test]
fn a_journal_that_somebody_has_open_is_busy() {
    let story = Story::new();
    let jobs = "journal:data/jobs";
    let mut follow = super::binary()
        .current_dir(story.dir())
        .args(["receive", jobs, "--follow"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    super::wait_until("the journal is open", || story.dir().join("data/shard-00").exists());
    let mut ran = mailbox_in(story.dir(), &["count", jobs]);
    super::wait_until("it is busy", || {
        ran = mailbox_in(story.dir(), &["count", jobs]);
        ran.code == Some(6)
    });
    assert!(ran.stderr.contains(&format!("process {}", follow.id())), "{ran:?}");
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert_eq!(mailbox_in(story.dir(), &["count", jobs]).stdout, "0\n");
}

#[test]
fn wrong_arguments_are_refused() {
    for arguments in [&["doctor"][..], &["cure"], &["doctor", "x", "--into", "y"]] {
        let ran = mailbox(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("error:"), "{ran:?}");
    }
}
