//! A service for tests: `mailbox serve` on a free port, with a home directory of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Ran, binary, output_of, tell, wait_until};

/// A home directory, and what services there are called with.
pub(crate) struct Home {
    dir: TempDir,
    /// What services say; not in the home directory, where there may be nothing.
    said: TempDir,
}

/// A service that runs. Dropped, it is killed.
pub(crate) struct Server {
    child: Child,
    said: PathBuf,
    pub(crate) url: String,
    /// How long it took until it was ready.
    pub(crate) took: Duration,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), said: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join(".local/share/mailbox")
    }

    /// The binary in this home: bare names are mailboxes of the service here.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = binary();
        command.current_dir(self.path()).env("HOME", self.path()).args(arguments);
        command.env_remove("XDG_DATA_HOME").env_remove("MAILBOX_URL").stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        output_of(piped(&mut self.command(arguments)))
    }

    /// Runs a command that must end well. Gives what it printed, without the end of the line.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {ran:?}");
        ran.stdout.trim_end().to_owned()
    }

    /// The same with a capability.
    pub(crate) fn with(&self, capability: &str, arguments: &[&str]) -> Ran {
        output_of(piped(self.command(arguments).env("MAILBOX_CAP", capability)))
    }

    /// Starts a service on a free port, and waits until it is ready.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let free = "127.0.0.1:0";
        self.serve_by(self.command(&["serve", "--listen", free, "--oap", free]).args(arguments))
    }

    pub(crate) fn serve_by(&self, command: &mut Command) -> Server {
        let number = fs::read_dir(self.said.path()).unwrap().count();
        let said = self.said.path().join(number.to_string());
        let began = Instant::now();
        let mut child =
            command.stdout(Stdio::null()).stderr(File::create(&said).unwrap()).spawn().unwrap();
        let mut url = None;
        wait_until("the service is ready", || {
            let text = fs::read_to_string(&said).unwrap();
            let ready = text.split_once("ready at ").and_then(|(_, rest)| rest.split_once('\n'));
            url = ready.map(|(url, _)| url.to_owned());
            assert!(url.is_some() || child.try_wait().unwrap().is_none(), "it ended: {text}");
            url.is_some()
        });
        Server { child, said, url: url.unwrap(), took: began.elapsed() }
    }
}

fn piped(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

impl Server {
    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Where it is by OAP/1.
    pub(crate) fn oap(&self) -> String {
        let said = self.said();
        let line = said.lines().find_map(|line| line.trim().strip_prefix("oap "));
        line.expect("it says where").trim().to_owned()
    }

    pub(crate) fn tell(&self, signal: Signal) {
        tell(&self.child, signal);
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn wait_for(&self, words: &str) {
        wait_until(words, || self.said().contains(words));
    }

    /// Tells it to end, and waits until it has.
    pub(crate) fn end(mut self) -> ExitStatus {
        self.tell(Signal::TERM);
        let mut status = None;
        wait_until("it has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
