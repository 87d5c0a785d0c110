//! What another process does: receive the first message of an inbox, or everything that comes. The
//! process is this program, called with a first word that no part has.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::directory::ours::{MAILBOX, Ours};
use crate::journal::runtime;

const CHILD: &str = "directory-child";
const FIRST: &str = "first";
const FOLLOW: &str = "follow";
/// How long a child waits for a message before it looks whether it is still needed.
const WAIT: Duration = Duration::from_secs(20);

/// A child that writes a line for each message. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Receiver {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Receiver {
    /// Receives one message of these inboxes and ends.
    pub(crate) fn first(inboxes: &Path) -> Self {
        Self::start(own(FIRST, inboxes))
    }

    /// Receives everything that comes, by this library.
    pub(crate) fn follow(inboxes: &Path) -> Self {
        Self::start(own(FOLLOW, inboxes))
    }

    /// Receives everything that comes, by the command line beside this program; `None` if it was
    /// not built.
    pub(crate) fn command_line(inboxes: &Path) -> Option<Self> {
        let program = command_line()?;
        let mut command = Command::new(program);
        let address = format!("dir:{}/{MAILBOX}", inboxes.display());
        command.args(["receive", &address, "--follow", "--ack", "--json"]);
        Some(Self::start(command))
    }

    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program that is there starts");
        let lines = BufReader::new(child.stdout.take().expect("it was asked for"));
        Self { child, lines }
    }

    /// Waits for the next line; false if there is none any more.
    pub(crate) fn next_line(&mut self) -> bool {
        self.lines.read_line(&mut String::new()).is_ok_and(|len| len > 0)
    }

    /// Processor time that all its threads have used.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let spent = tasks.flatten().filter_map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Some(Duration::from_nanos(spent.sum()))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Nothing to be done if it has ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn own(word: &str, inboxes: &Path) -> Command {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = Command::new(program);
    command.args([CHILD, word]).arg(inboxes);
    command
}

fn command_line() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name("mailbox");
    program.is_file().then_some(program)
}

/// What a child was asked for, if this process is one.
pub(crate) fn answer_as_child(words: &[String]) -> Option<u64> {
    let [command, word, inboxes] = words else { return None };
    if command != CHILD {
        return None;
    }
    let (runtime, parent) = (runtime(), parent_id());
    runtime.block_on(async {
        let ours = Ours::open(Path::new(inboxes)).await;
        let mut stdout = std::io::stdout();
        // A process whose parent has ended gets another one: then nobody needs it any more.
        while parent_id() == parent {
            let received = ours.receive(1, WAIT).await;
            for _ in &received {
                writeln!(stdout, "received").and_then(|()| stdout.flush()).ok()?;
            }
            if word == FIRST {
                break;
            }
            ours.acknowledge(received).await;
        }
        ours.close().await;
        Some(0)
    })
}
