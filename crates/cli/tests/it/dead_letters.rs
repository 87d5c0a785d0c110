//! `mailbox dead` and `mailbox explain`.

use super::story::{Story, assert_story};
use super::{SCHEMES, done_in, json_in};

/// A mailbox with dead letters `1` to `count`.
fn dead_letters(story: &Story, jobs: &str, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 1..=count {
        ids.push(done_in(story.dir(), &["send", jobs, &number.to_string()]).trim().to_owned());
        let got = json_in(story.dir(), &["receive", jobs, "--json"]);
        let handle = got[0]["receipt_handle"].as_str().unwrap();
        done_in(story.dir(), &["reject", jobs, handle, "--reason", "bad"]);
    }
    ids
}

#[test]
fn dead_letters_are_listed_shown_redriven_and_deleted() {
    for scheme in SCHEMES {
        let (mut story, jobs) = (Story::new(), format!("{scheme}:inbox/jobs"));
        let ids = dead_letters(&story, &jobs, 5);
        story.run(&["dead", "list", &jobs]);
        story.run(&["dead", "list", &jobs, "--max", "1", "--json"]);
        story.run(&["dead", "list", &jobs, "--reason", "expired"]);
        story.run(&["dead", "list", &jobs, "--reason", "tired"]);
        story.run(&["dead", "show", &jobs, &ids[1], &ids[0]]);
        story.run(&["dead", "show", &jobs, &ids[1], "--json"]);
        story.run(&["explain", &jobs, &ids[0]]);
        story.run(&["explain", &jobs, &ids[0], "--json"]);
        story.run(&["dead", "redrive", &jobs, &ids[0]]);
        story.run(&["dead", "redrive", &jobs, &ids[0]]);
        story.run(&["dead", "show", &jobs, &ids[0]]);
        story.run(&["dead", "redrive", &jobs, "--oldest", "1", "--json"]);
        story.run(&["dead", "redrive", &jobs]);
        story.run(&["dead", "redrive", &jobs, "--all", "--oldest", "1"]);
        story.run(&["dead", "delete", &jobs, &ids[2]]);
        story.run(&["dead", "delete", &jobs, "--all"]);
        story.run(&["dead", "delete", &jobs, "--reason", "rejected", "--yes", "--json"]);
        story.run(&["dead", "list", &jobs]);
        story.run(&["count", &jobs]);
        assert_story!(format!("dead_{scheme}"), story);
    }
}

#[test]
fn a_redriven_message_starts_at_delivery_1() {
    for scheme in SCHEMES {
        let (story, jobs) = (Story::new(), format!("{scheme}:inbox/jobs"));
        let ids = dead_letters(&story, &jobs, 1);
        done_in(story.dir(), &["dead", "redrive", &jobs, "--all"]);
        let got = json_in(story.dir(), &["receive", &jobs, "--json"]);
        assert_eq!((&got[0]["id"], &got[0]["delivery_count"]), (&ids[0].clone().into(), &1.into()));
    }
}
