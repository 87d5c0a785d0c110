//! The binary, as a script sees it: what it prints where, and how it ends.
#![expect(clippy::unwrap_used, reason = "all of it is tests; clippy looks for #[test] only")]

mod calls;
mod capabilities;
mod dead_letters;
mod doctor;
mod doubt;
mod errors;
mod everyday;
mod help;
mod inboxes;
mod killed;
mod looking;
mod micronode;
mod moving;
mod pipes;
mod protocols;
mod redis;
mod reloading;
mod server;
mod service;
mod settings;
mod story;
mod terminal;
mod work;

use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Where a mailbox can be that outlives a command.
const SCHEMES: [&str; 2] = ["dir", "journal"];
/// Nothing here takes this long.
const DEADLINE: Duration = Duration::from_secs(30);

/// The binary, about to be run. What is set around the tests plays no part.
fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mailbox"));
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI", "COLUMNS"] {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MAILBOX_") {
            command.env_remove(name);
        }
    }
    // Whatever service this machine has, it is not meant: nobody listens there.
    command.env("MAILBOX_URL", "http://127.0.0.1:1");
    command
}

/// Runs the binary with these arguments.
fn mailbox(arguments: &[&str]) -> Ran {
    binary().args(arguments).output().unwrap().into()
}

/// Runs the binary in a directory.
fn mailbox_in(dir: &Path, arguments: &[&str]) -> Ran {
    binary().current_dir(dir).args(arguments).output().unwrap().into()
}

/// Runs the binary in a directory; it must end well. Gives what it printed.
fn done_in(dir: &Path, arguments: &[&str]) -> String {
    let ran = mailbox_in(dir, arguments);
    assert_eq!(ran.code, Some(0), "{arguments:?}: {ran:?}");
    ran.stdout
}

/// The JSON objects that it printed, one a line.
fn json_in(dir: &Path, arguments: &[&str]) -> Vec<Value> {
    let printed = done_in(dir, arguments);
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Looks again and again until it is so.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// What a process says until it ends. One that does not end is killed, and that is a failure.
fn output_of(mut command: Child) -> Ran {
    let id = Pid::from_raw(i32::try_from(command.id()).unwrap()).unwrap();
    drop(command.stdin.take());
    let (tell, told) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        let output = command.wait_with_output().unwrap();
        let _ = tell.send(());
        output
    });
    let is_over = told.recv_timeout(DEADLINE).is_ok();
    if !is_over {
        kill_process(id, Signal::KILL).unwrap();
    }
    let ran: Ran = reading.join().unwrap().into();
    assert!(is_over, "it did not end: {ran:?}");
    ran
}

/// Sends a process a signal.
fn tell(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
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
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
