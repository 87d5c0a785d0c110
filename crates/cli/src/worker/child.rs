//! A command that runs for one message. Invariant: it has a process group of its own, so Ctrl-C
//! does not reach it, and whatever it starts can be ended with it; what it prints is bounded here.

use std::io::{self, Write};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use mailbox::{Delivery, limits};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{self, Command};
use tokio::time::timeout;

use super::Worker;
use crate::place::seen_from_here;

/// How long pipes may stay open after the command has ended, in the hands of what it left behind.
const LINGERING: Duration = Duration::from_millis(500);
/// What is read at once.
const CHUNK: usize = 16 * 1024;

/// Where stdout of a command goes if nobody wants a reply.
#[derive(Debug, Clone, Copy)]
pub(super) enum Output {
    Stdout,
    Stderr,
}

/// A command that runs.
#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    group: Option<Pid>,
    most: usize,
}

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Exited {
    pub(super) status: ExitStatus,
    /// What it printed, or why that cannot be used.
    pub(super) output: Result<Bytes, String>,
    /// The last line it wrote to stderr.
    pub(super) last_line: Option<String>,
}

impl Child {
    pub(super) fn start(worker: &Worker, delivery: &Delivery) -> io::Result<Self> {
        let (program, arguments) = worker.command.split_first().ok_or(io::ErrorKind::NotFound)?;
        let letter = &delivery.letter;
        let stdout = match (&letter.reply_to, worker.output) {
            (Some(_), _) => Stdio::piped(),
            (None, Output::Stdout) => Stdio::inherit(),
            (None, Output::Stderr) => Stdio::from(io::stderr()),
        };
        let attributes = serde_json::to_string(&letter.attributes).map_err(io::Error::other)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .env("MAILBOX_ID", delivery.id.to_string())
            .env("MAILBOX_ADDRESS", worker.place.known_as())
            .env("MAILBOX_RECEIPT_HANDLE", delivery.receipt_handle.to_string())
            .env("MAILBOX_DELIVERY_COUNT", delivery.delivery_count.to_string())
            .env("MAILBOX_ENQUEUED_AT", letter.enqueued_at.to_string())
            .env("MAILBOX_ATTRIBUTES", attributes);
        match &letter.reply_to {
            // A bare name would mean something else to the command than to the worker.
            Some(reply_to) => {
                command.env("MAILBOX_REPLY_TO", seen_from_here(&worker.place, reply_to))
            }
            // One that a worker around this one has set is not meant.
            None => command.env_remove("MAILBOX_REPLY_TO"),
        };
        let process = command.spawn()?;
        let group = process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { process, group, most: worker.place.backend.abilities().max_payload })
    }

    /// What it can be ended by.
    pub(super) const fn group(&self) -> Option<Pid> {
        self.group
    }

    /// Gives it the payload, and waits for its end.
    pub(super) async fn finish(mut self, payload: &Bytes) -> Result<Exited, String> {
        let (stdin, stdout, stderr) =
            (self.process.stdin.take(), self.process.stdout.take(), self.process.stderr.take());
        let mut printed = Printed { bytes: Vec::new(), most: self.most, is_all: true };
        let mut last_line = LastLine::default();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A command need not read what it is given.
                let _ = stdin.write_all(payload).await;
            }
        };
        let hear = async {
            let _ = tokio::join!(
                pour(stdout, |bytes| printed.add(bytes)),
                pour(stderr, |bytes| {
                    // If nobody listens there is nobody to tell.
                    let _ = io::stderr().lock().write_all(bytes);
                    last_line.add(bytes);
                })
            );
        };
        let status = {
            tokio::pin!(feed, hear);
            let (mut is_fed, mut is_heard) = (false, false);
            let status = loop {
                tokio::select! {
                    status = self.process.wait() => break status,
                    () = &mut feed, if !is_fed => is_fed = true,
                    () = &mut hear, if !is_heard => is_heard = true,
                }
            };
            if !is_heard {
                let _ = timeout(LINGERING, hear).await;
            }
            status.map_err(|error| format!("cannot wait for the command: {error}"))?
        };
        if last_line.is_open() {
            // What is said next begins on a line of its own.
            let _ = io::stderr().lock().write_all(b"\n");
        }
        Ok(Exited { status, output: printed.all(), last_line: last_line.text() })
    }
}

/// Asks a command, and what it has started, to end.
pub(super) fn tell_to_end(group: Option<Pid>) {
    signal(group, Signal::TERM);
}

/// Ends a command, and what it has started.
pub(super) fn kill(group: Option<Pid>) {
    signal(group, Signal::KILL);
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // One that is gone needs no signal.
        let _ = kill_process_group(group, signal);
    }
}

/// Hands over what comes, until there is no more.
async fn pour(from: Option<impl AsyncRead + Unpin>, mut to: impl FnMut(&[u8])) -> io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer).await? {
            0 => return Ok(()),
            read => to(&buffer[..read]),
        }
    }
}

/// What a command prints, up to what a message can hold.
#[derive(Debug)]
struct Printed {
    bytes: Vec<u8>,
    most: usize,
    is_all: bool,
}

impl Printed {
    fn add(&mut self, bytes: &[u8]) {
        let room = self.most - self.bytes.len();
        self.is_all &= bytes.len() <= room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn all(self) -> Result<Bytes, String> {
        if self.is_all {
            return Ok(self.bytes.into());
        }
        Err(format!("the command printed more than {} bytes: too much for a reply", self.most))
    }
}

/// Remembers the last line that is not empty.
#[derive(Debug, Default)]
struct LastLine {
    open: Vec<u8>,
    closed: Vec<u8>,
}

impl LastLine {
    fn add(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = limits::ERROR_TEXT_LEN - self.open.len();
            self.open.extend_from_slice(&text[..text.len().min(room)]);
            if part.ends_with(b"\n") && !self.open.trim_ascii().is_empty() {
                self.closed = std::mem::take(&mut self.open);
            } else if part.ends_with(b"\n") {
                self.open.clear();
            }
        }
    }

    /// Whether what came last has no newline at its end.
    const fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    fn text(self) -> Option<String> {
        let open = self.open.trim_ascii();
        let line = if open.is_empty() { self.closed.trim_ascii() } else { open };
        let text = String::from_utf8_lossy(line);
        (!text.is_empty()).then(|| text.chars().filter(|letter| !letter.is_control()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_line(parts: &[&str]) -> Option<String> {
        let mut last = LastLine::default();
        parts.iter().for_each(|part| last.add(part.as_bytes()));
        last.text()
    }

    #[test]
    fn the_last_line_that_is_not_empty_is_remembered() {
        assert_eq!(last_line(&[]), None);
        assert_eq!(last_line(&["\n", " \n"]), None);
        assert_eq!(last_line(&["one\ntwo\n"]), Some("two".to_owned()));
        assert_eq!(last_line(&["one\nt", "wo\n", "\n  \n"]), Some("two".to_owned()));
        assert_eq!(last_line(&["one\n", "tw", "o"]), Some("two".to_owned()));
        assert_eq!(last_line(&["\u{1b}[31mred\n"]), Some("[31mred".to_owned()));
        let long = "x".repeat(limits::ERROR_TEXT_LEN);
        assert_eq!(last_line(&[&long, "y", &long]), Some(long));
    }

    #[test]
    fn what_does_not_fit_into_a_message_is_no_reply() {
        let mut printed = Printed { bytes: Vec::new(), most: 4, is_all: true };
        printed.add(b"ab");
        printed.add(b"cd");
        assert_eq!(Printed { bytes: b"abcd".to_vec(), ..printed }.all(), Ok("abcd".into()));
        let mut printed = Printed { bytes: Vec::new(), most: 4, is_all: true };
        printed.add(b"abcde");
        printed.add(b"f");
        assert!(printed.all().is_err());
    }
}
