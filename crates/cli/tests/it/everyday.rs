//! Sending, receiving and settling.

use super::story::{Story, assert_story};
use super::{SCHEMES, json_in, mailbox_in};

/// The receipt handle in what `receive --json` printed.
fn handle(printed: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(printed.lines().next().unwrap()).unwrap();
    value["receipt_handle"].as_str().unwrap().to_owned()
}

#[test]
fn messages_go_in_and_out() {
    for scheme in SCHEMES {
        let (mut story, jobs) = (Story::new(), format!("{scheme}:inbox/jobs"));
        story.run(&["send", &jobs, "hello"]);
        story.run(&["send", &jobs, "-5"]);
        story.feed(&["send", &jobs], b"from stdin\n");
        story.feed(&["send", &jobs, "-"], b"[1,\n 2]");
        std::fs::write(story.dir().join("note"), "from a file").unwrap();
        story.run(&["send", &jobs, "--file", "note", "--json"]);
        let more = ["--attr", "a=1", "--attr", "b=x=y", "--reply-to", "answers"];
        story.run(&[&["send", &jobs, "{\"n\": 1.00}"], &more[..]].concat());
        story.run(&["count", &jobs]);
        story.run(&["count", &jobs, "--json"]);
        story.run(&["receive", &jobs, "--ack"]);
        story.run(&["receive", &jobs, "--max", "2", "--ack"]);
        story.run(&["receive", &jobs]);
        story.run(&["receive", &jobs, "--max", "10", "--json"]);
        story.run(&["receive", &jobs]);
        story.run(&["receive", &jobs, "--json"]);
        assert_story!(format!("in_and_out_{scheme}"), story);
    }
}

#[test]
fn deliveries_are_settled_by_their_handles() {
    for scheme in SCHEMES {
        let (mut story, jobs) = (Story::new(), format!("{scheme}:inbox/jobs"));
        story.run(&["send", &jobs, "1"]);
        let first = handle(&story.run(&["receive", &jobs, "--json"]).stdout);
        story.run(&["extend", &jobs, &first, "--visibility", "10m"]);
        story.run(&["nack", &jobs, &first, "--error", "not yet"]);
        story.run(&["nack", &jobs, &first]);
        let second = handle(&story.run(&["receive", &jobs, "--json"]).stdout);
        story.run(&["ack", &jobs, &first, &second, "--json"]);
        story.run(&["ack", &jobs, &second, "nonsense"]);
        story.run(&["count", &jobs]);
        story.feed(&["send", &jobs, "--lines"], b"2\n3\n");
        let both = story.run(&["receive", &jobs, "--max", "2", "--json"]).stdout;
        let handles: Vec<String> = both.lines().map(handle).collect();
        story.feed(&["ack", &jobs, "-"], (handles.join("\n") + "\n\n").as_bytes());
        story.feed(&["ack", &jobs, "-"], b"");
        story.run(&["count", &jobs]);
        assert_story!(format!("settled_{scheme}"), story);
    }
}

#[test]
fn a_rejected_delivery_is_a_dead_letter() {
    for scheme in SCHEMES {
        let (mut story, jobs) = (Story::new(), format!("{scheme}:inbox/jobs"));
        story.run(&["send", &jobs, "1"]);
        let handle = handle(&story.run(&["receive", &jobs, "--json"]).stdout);
        story.run(&["reject", &jobs, &handle, "--reason", "no such customer"]);
        let dead = json_in(story.dir(), &["dead", "list", &jobs, "--json"]);
        assert_eq!(dead[0]["death"]["reason"], "rejected", "{dead:?}");
        assert_eq!(dead[0]["last_error"], "no such customer", "{dead:?}");
        assert_story!(format!("rejected_{scheme}"), story);
    }
}

#[test]
fn a_key_is_recognised_and_refused_for_another_payload() {
    for scheme in SCHEMES {
        let (mut story, jobs) = (Story::new(), format!("{scheme}:inbox/jobs"));
        story.run(&["send", &jobs, "a", "--key", "k"]);
        story.run(&["send", &jobs, "a", "--key", "k"]);
        story.run(&["send", &jobs, "a", "--key", "k", "--json"]);
        story.run(&["send", &jobs, "b", "--key", "k"]);
        story.feed(&["send", &jobs, "--lines", "--key", "l"], b"one\ntwo\n");
        story.feed(&["send", &jobs, "--lines", "--key", "l"], b"one\ntwo\nthree\n");
        story.run(&["count", &jobs]);
        assert_story!(format!("keys_{scheme}"), story);
    }
}

#[test]
fn a_delay_hides_a_message_at_first() {
    for scheme in SCHEMES {
        let story = Story::new();
        let (dir, jobs) = (story.dir(), format!("{scheme}:inbox/jobs"));
        json_in(dir, &["send", &jobs, "later", "--delay", "1h", "--json"]);
        assert_eq!(mailbox_in(dir, &["receive", &jobs]).code, Some(3));
        let seen = json_in(dir, &["peek", &jobs, "--json"]);
        assert_eq!(seen[0]["state"], "delayed");
        let wait = seen[0]["receivable_in_ms"].as_u64().unwrap();
        assert!((3_500_000..=3_600_000).contains(&wait), "{wait}");
        let stats: serde_json::Value =
            serde_json::from_str(&super::done_in(dir, &["stats", &jobs, "--json"])).unwrap();
        assert_eq!((&stats["delayed"], &stats["ready"]), (&1.into(), &0.into()));
    }
}

#[test]
fn a_visibility_of_nothing_hides_nothing() {
    for scheme in SCHEMES {
        let story = Story::new();
        let (dir, jobs) = (story.dir(), format!("{scheme}:inbox/jobs"));
        json_in(dir, &["send", &jobs, "1", "--json"]);
        for count in 1..=3 {
            let got = json_in(dir, &["receive", &jobs, "--visibility", "0", "--json"]);
            assert_eq!(got[0]["delivery_count"], count);
        }
    }
}

#[test]
fn memory_works_and_forgets() {
    let mut story = Story::new();
    story.run(&["send", "memory://jobs", "hello"]);
    story.run(&["count", "memory://jobs"]);
    story.run(&["list", "memory:"]);
    story.run(&["receive", "memory://jobs", "--wait", "10ms"]);
    assert_story!("memory", story);
}
