//! On a terminal: colours, progress, questions. In a pipe: none of it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tempfile::tempdir;

use super::{binary, done_in, mailbox_in};

const ESCAPE: &str = "\u{1b}[";

/// A command on a terminal of its own.
struct OnTerminal {
    child: Child,
    keyboard: File,
    screen: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl OnTerminal {
    fn start(dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let theirs: OwnedFd = open(&path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let side = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = binary();
        command.current_dir(dir).args(arguments).env("TERM", "xterm-256color");
        command.envs(variables.iter().copied());
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        // The command keeps its own end: ours must see when it is the last.
        drop(command);
        drop(theirs);
        let mut screen = File::from(ours.try_clone().unwrap());
        let (show, shown) = mpsc::channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A terminal that nobody is on any more gives an error.
            while let Ok(read @ 1..) = screen.read(&mut buffer) {
                if show.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keyboard: File::from(ours), screen: shown, seen: String::new() }
    }

    /// Waits until this is on the screen.
    fn wait_for(&mut self, text: &str) {
        let until = Instant::now() + super::DEADLINE;
        while !self.seen.contains(text) {
            let left = until.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{text:?} was not seen: {:?}", self.seen),
            }
        }
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// All that was on the screen, and the exit code.
    fn end(mut self) -> (String, Option<i32>) {
        let code = self.child.wait().unwrap().code();
        while let Ok(bytes) = self.screen.recv_timeout(Duration::from_secs(5)) {
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
        (self.seen, code)
    }
}

fn on_terminal(
    dir: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (String, Option<i32>) {
    OnTerminal::start(dir, arguments, variables).end()
}

#[test]
fn colours_are_seen_on_a_terminal_and_nowhere_else() {
    let dir = tempdir().unwrap();
    let (jobs, stats) = ("dir:inbox/jobs", ["stats", "dir:inbox/jobs"]);
    done_in(dir.path(), &["send", jobs, "x"]);
    let (screen, code) = on_terminal(dir.path(), &stats, &[]);
    assert_eq!(code, Some(0));
    assert!(screen.contains(ESCAPE), "{screen:?}");
    for (more, variables) in [
        (&["--color", "never"][..], &[][..]),
        (&[], &[("NO_COLOR", "1")]),
        (&[], &[("TERM", "dumb")]),
    ] {
        let (screen, code) = on_terminal(dir.path(), &[&stats, more].concat(), variables);
        assert_eq!(code, Some(0));
        assert!(screen.contains("ready"), "{screen:?}");
        assert!(!screen.contains(ESCAPE), "{more:?} {variables:?}: {screen:?}");
    }
    assert!(!done_in(dir.path(), &stats).contains(ESCAPE));
    let insisted = done_in(dir.path(), &["stats", jobs, "--color", "always"]);
    assert!(insisted.contains(ESCAPE), "{insisted:?}");
}

#[test]
fn errors_are_coloured_on_a_terminal_and_plain_in_a_pipe() {
    let dir = tempdir().unwrap();
    let (screen, code) = on_terminal(dir.path(), &["count", "dir:nowhere/jobs"], &[]);
    assert_eq!(code, Some(3));
    assert!(screen.contains(ESCAPE) && screen.contains("nothing there"), "{screen:?}");
    let ran = mailbox_in(dir.path(), &["count", "dir:nowhere/jobs"]);
    assert!(!ran.stderr.contains(ESCAPE), "{ran:?}");
    assert!(ran.stderr.starts_with("mailbox: dir:nowhere"), "{ran:?}");
}

#[test]
fn a_payload_is_shown_as_it_is_also_with_escapes_in_it() {
    let dir = tempdir().unwrap();
    done_in(dir.path(), &["send", "dir:inbox/jobs", "\u{1b}[31mred"]);
    let peeked = done_in(dir.path(), &["peek", "dir:inbox/jobs", "--color", "always"]);
    assert!(!peeked.contains("\u{1b}[31m"), "a stranger's text controls nothing: {peeked:?}");
    let got = done_in(dir.path(), &["receive", "dir:inbox/jobs", "--ack", "--color", "never"]);
    assert_eq!(got, "\u{1b}[31mred\n");
}

#[test]
fn long_work_shows_its_progress_on_a_terminal_and_not_in_a_pipe() {
    let dir = tempdir().unwrap();
    let bench = ["bench", "dir:inbox/jobs", "--messages", "300"];
    let (screen, code) = on_terminal(dir.path(), &bench, &[]);
    assert_eq!(code, Some(0));
    assert!(screen.contains("sending [") && screen.contains("receiving ["), "{screen:?}");
    assert!(screen.contains("300/300"), "{screen:?}");
    let ran = mailbox_in(dir.path(), &bench);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    done_in(dir.path(), &["send", "dir:inbox/jobs", "x"]);
    let (screen, code) = on_terminal(dir.path(), &["move", "dir:inbox/jobs", "dir:inbox/b"], &[]);
    assert_eq!(code, Some(0));
    assert!(screen.contains("moving [") && screen.contains("1/1"), "{screen:?}");
}

#[test]
fn deleting_is_asked_about_on_a_terminal() {
    let dir = tempdir().unwrap();
    done_in(dir.path(), &["send", "dir:inbox/jobs", "x"]);
    for (answer, code, count) in [("n\n", 130, "1\n"), ("\n", 130, "1\n"), ("y\n", 0, "0\n")] {
        let mut purge = OnTerminal::start(dir.path(), &["purge", "dir:inbox/jobs"], &[]);
        purge.wait_for("[y/N] ");
        purge.type_in(answer);
        let (screen, ended) = purge.end();
        assert!(screen.contains("Delete 1 message of dir:///"), "{screen:?}");
        assert_eq!(ended, Some(code), "{screen:?}");
        assert_eq!(done_in(dir.path(), &["count", "dir:inbox/jobs"]), count);
    }
}

#[test]
fn who_says_nothing_to_send_is_asked_for_it() {
    let dir = tempdir().unwrap();
    let (screen, code) = on_terminal(dir.path(), &["send", "dir:inbox/jobs"], &[]);
    assert_eq!(code, Some(2));
    assert!(screen.contains("what shall be sent?"), "{screen:?}");
    let mut typing = OnTerminal::start(dir.path(), &["send", "dir:inbox/jobs", "-"], &[]);
    typing.type_in("typed\n\u{4}");
    assert_eq!(typing.end().1, Some(0));
    assert_eq!(done_in(dir.path(), &["receive", "dir:inbox/jobs", "--ack"]), "typed\n");
}
