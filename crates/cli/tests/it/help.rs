//! What is said to those who ask.

use super::mailbox;
use super::story::{Story, assert_story};

const COMMANDS: [&str; 24] = [
    "serve",
    "init",
    "send",
    "receive",
    "ack",
    "nack",
    "extend",
    "reject",
    "work",
    "call",
    "peek",
    "count",
    "stats",
    "list",
    "explain",
    "dead",
    "purge",
    "remove",
    "move",
    "cap",
    "config",
    "bench",
    "doctor",
    "completions",
];

#[test]
fn alone_it_shows_what_to_do_first() {
    let ran = mailbox(&[]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("Start here:\n  mailbox serve"), "{ran:?}");
    assert_eq!(ran.stdout, "");
    let mut story = Story::new();
    story.run(&[]);
    assert_story!("alone", story);
}

#[test]
fn every_command_has_help_with_examples() {
    let mut story = Story::new();
    for command in COMMANDS {
        let ran = story.run(&[command, "--help"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(
            ran.stdout.contains(&format!("Examples:\n  mailbox {command}"))
                || ran.stdout.contains("Examples:\n  date"),
            "{command}: {ran:?}"
        );
    }
    for command in ["list", "show", "redrive", "delete"] {
        story.run(&["dead", command, "--help"]);
    }
    for command in ["mint", "attenuate", "inspect", "revoke", "rotate"] {
        story.run(&["cap", command, "--help"]);
    }
    story.run(&["config", "check", "--help"]);
    assert_story!("help", story);
    let listed = mailbox(&["help"]).stdout;
    for command in COMMANDS {
        assert!(listed.contains(&format!("\n  {command} ")), "{command}: {listed}");
    }
}

#[test]
fn completions_are_there_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = mailbox(&["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        for command in COMMANDS {
            assert!(ran.stdout.contains(command), "{shell} knows no {command}");
        }
    }
}
