//! The binary, as a script sees it: what it prints where, and how it ends.
#![expect(clippy::unwrap_used, reason = "all of it is tests; clippy looks for #[test] only")]

mod doctor;

use std::process::{Command, Output};

/// Runs the binary with these arguments.
fn mailbox(arguments: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_mailbox")).args(arguments).output().unwrap();
    output.into()
}

/// How a run ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

#[test]
fn alone_it_shows_what_to_do_first() {
    let ran = mailbox(&[]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("Start here:\n  mailbox doctor PATH"), "{ran:?}");
    assert_eq!(ran.stdout, "");
}

#[test]
fn help_has_examples_and_exit_codes() {
    let ran = mailbox(&["doctor", "--help"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.contains("mailbox doctor data/journal --repair"), "{ran:?}");
    assert!(ran.stdout.contains("Exit codes: 0 sound"), "{ran:?}");
}

#[test]
fn wrong_arguments_are_refused() {
    for arguments in [&["doctor"][..], &["cure"], &["doctor", "x", "--into", "y"]] {
        let ran = mailbox(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains("error:"), "{ran:?}");
    }
}
