//! Requests and replies: `mailbox call`, with a `mailbox work` in the background.

use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;

use super::story::{Story, assert_story};
use super::{binary, done_in, json_in, mailbox_in, tell, wait_until};

/// A child that is killed when the test is over.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        // Not waited for yet, so its number is nobody else's.
        tell(&self.0, Signal::TERM);
        let _ = self.0.wait();
    }
}

fn worker(dir: &std::path::Path, arguments: &[&str], command: &[&str]) -> Background {
    let child = binary()
        .current_dir(dir)
        .args(["work", "dir:inbox/jobs"])
        .args(arguments)
        .arg("--")
        .args(command)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Background(child.unwrap())
}

#[test]
fn a_call_gets_the_output_of_the_command_that_was_run_for_it() {
    let mut story = Story::new();
    let _worker = worker(story.dir(), &["-j", "2"], &["tr", "a-z", "A-Z"]);
    story.run(&["call", "dir:inbox/jobs", "hello"]);
    story.feed(&["call", "dir:inbox/jobs", "-"], b"[\"from\", \"stdin\"]\n");
    story.feed(&["call", "dir:inbox/jobs", "--json"], b"{\"A\": 1}");
    assert_story!("calls", story);
    assert_eq!(done_in(story.dir(), &["list", "dir:inbox"]), "jobs\n");
    assert_eq!(done_in(story.dir(), &["count", "dir:inbox/jobs"]), "0\n");
}

#[test]
fn without_a_reply_in_time_it_ends_with_6_and_tidies_up() {
    let dir = tempdir().unwrap();
    let arguments = ["call", "dir:inbox/jobs", "hello", "--timeout", "200ms"];
    let ran = mailbox_in(dir.path(), &arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(6), ""), "{ran:?}");
    assert!(ran.stderr.contains("within 0.2 s"), "{ran:?}");
    assert_eq!(done_in(dir.path(), &["list", "dir:inbox"]), "jobs\n");
}

#[test]
fn interrupted_it_tidies_up() {
    let dir = tempdir().unwrap();
    let child = binary()
        .current_dir(dir.path())
        .args(["call", "dir:inbox/jobs", "hello"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_there = || done_in(dir.path(), &["list", "dir:inbox"]).contains("reply-");
    wait_until("it waits for the reply", || dir.path().join("inbox").exists() && is_there());
    tell(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(130), &b""[..]));
    assert_eq!(done_in(dir.path(), &["list", "dir:inbox"]), "jobs\n");
}

#[test]
fn a_reply_says_what_it_answers_and_goes_only_where_it_may() {
    let dir = tempdir().unwrap();
    let jobs = "dir:inbox/jobs";
    let id = done_in(dir.path(), &["send", jobs, "a", "--reply-to", "answers"]);
    let elsewhere = format!("dir:{}/other/answers", dir.path().display());
    let one = ["--max-messages", "1", "--", "echo", "yes"];
    done_in(dir.path(), &[&["work", jobs], &one[..]].concat());
    let answer = json_in(dir.path(), &["receive", "dir:inbox/answers", "--json"]);
    assert_eq!(answer[0]["attributes"]["in_reply_to"], id.trim());
    assert_eq!(answer[0]["payload_b64"], "eWVzCg==");
    // Another place is opened only if that is allowed.
    done_in(dir.path(), &["send", jobs, "b", "--reply-to", &elsewhere]);
    let ran = mailbox_in(dir.path(), &[&["work", jobs, "--backoff", "0"], &one[..]].concat());
    assert!(
        ran.stderr.contains("cannot reply: ") && ran.stderr.contains("0 done, 1 failed"),
        "{ran:?}"
    );
    assert!(!dir.path().join("other").exists());
    let allow = format!("dir:{}/other", dir.path().display());
    let ran =
        mailbox_in(dir.path(), &[&["work", jobs, "--allow-reply", &allow], &one[..]].concat());
    assert_eq!(ran.stderr, "1 done, 0 failed\n");
    assert_eq!(json_in(dir.path(), &["peek", &elsewhere, "--json"]).len(), 1);
}

#[test]
fn an_output_that_is_too_large_is_no_reply() {
    let dir = tempdir().unwrap();
    done_in(dir.path(), &["send", "dir:inbox/jobs", "a", "--reply-to", "answers"]);
    let script = "head -c 1048577 /dev/zero";
    let one = ["work", "dir:inbox/jobs", "--max-messages", "1", "--json", "--", "sh", "-c", script];
    let told: Vec<Value> = json_in(dir.path(), &one);
    assert_eq!(told[0]["outcome"], "failed");
    let error = told[0]["error"].as_str().unwrap();
    assert!(error.contains("printed more than 1048576 bytes"), "{error}");
    assert_eq!(done_in(dir.path(), &["count", "dir:inbox/answers"]), "0\n");
}

#[test]
fn a_caller_is_told_that_the_request_is_dead_and_how_replies_are_allowed() {
    let dir = tempdir().unwrap();
    done_in(dir.path(), &["init", "dir:inbox/jobs", "--attempts", "1"]);
    let elsewhere = format!("dir:{}/other/answers", dir.path().display());
    done_in(dir.path(), &["send", "dir:inbox/jobs", "x", "--reply-to", &elsewhere]);
    let first = worker(dir.path(), &["--backoff", "1ms"], &["cat"]);
    let dead = || json_in(dir.path(), &["dead", "list", "dir:inbox/jobs", "--json"]);
    wait_until("it is dead", || !dead().is_empty());
    let error = dead()[0]["last_error"].as_str().unwrap().to_owned();
    let rule = format!("`--allow-reply dir:{}/other` would allow it", dir.path().display());
    assert!(error.ends_with(&rule), "{error}");
    drop(first);
    let _worker = worker(dir.path(), &["--backoff", "1ms"], &["sh", "-c", "echo no >&2; exit 1"]);
    let ran = mailbox_in(dir.path(), &["call", "dir:inbox/jobs", "y", "--timeout", "2s"]);
    assert_eq!(ran.code, Some(6), "{ran:?}");
    let expected = "is a dead letter already (exit status: 1: no): see `mailbox explain dir:///";
    assert!(ran.stderr.contains(expected), "{ran:?}");
}
