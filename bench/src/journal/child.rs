//! What is done in a process of its own: filling a journal to be killed, and measuring memory that
//! nobody else has used before. The process is this program, called with a first word that no part
//! has.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::journal::ours::Ours;
use crate::journal::runtime;
use crate::memory::resident_bytes;

const CHILD: &str = "journal-child";

/// What a child is to do, with a journal and a number of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Send them and stop in good order.
    FillAndStop,
    /// Send them, say so, and wait for being killed.
    FillAndWait,
    /// Send them and tell by how much memory has grown.
    ResidentAfterSending,
    /// Open a journal that has them and tell by how much memory has grown.
    ResidentAfterOpening,
}

const ERRANDS: [(&str, Errand); 4] = [
    ("fill-and-stop", Errand::FillAndStop),
    ("fill-and-wait", Errand::FillAndWait),
    ("resident-after-sending", Errand::ResidentAfterSending),
    ("resident-after-opening", Errand::ResidentAfterOpening),
];

impl Errand {
    /// Starts a child and waits for its answer; not a number if it failed, and then the row that
    /// needs it counts as missed.
    pub(crate) fn ask(self, journal: &Path, count: u64) -> f64 {
        let output = self.command(journal, count).output().expect("this program starts again");
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(f64::NAN)
    }

    /// Starts a child and kills it as soon as it says a word.
    pub(crate) fn kill_when_done(self, journal: &Path, count: u64) {
        let child = self
            .command(journal, count)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let mut killed = Killed(child);
        let mut word = [0];
        let said = killed.0.stdout.as_mut().map(|stdout| stdout.read_exact(&mut word));
        assert!(matches!(said, Some(Ok(()))), "the child has filled its journal");
    }

    fn command(self, journal: &Path, count: u64) -> Command {
        let program = std::env::current_exe().expect("a running program has a path");
        let (word, _) =
            ERRANDS.iter().find(|(_, errand)| *errand == self).expect("each errand has a word");
        let mut command = Command::new(program);
        command.args([CHILD, word]).arg(journal).arg(count.to_string());
        command
    }
}

/// Killed with SIGKILL, also if the parent panics.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Nothing to be done if it has ended by itself.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What a child was asked for, if this process is one.
pub(crate) fn answer_as_child(words: &[String]) -> Option<u64> {
    let [command, word, journal, count] = words else { return None };
    if command != CHILD {
        return None;
    }
    let (_, errand) = ERRANDS.iter().find(|(known, _)| known == word)?;
    let count = count.parse().expect("a parent passes a number");
    Some(run(*errand, Path::new(journal), count))
}

fn run(errand: Errand, journal: &Path, count: u64) -> u64 {
    let runtime = runtime();
    runtime.block_on(async {
        let mut before = resident_bytes();
        let ours = Ours::open(journal).await;
        if errand != Errand::ResidentAfterOpening {
            // What an empty journal takes is not for its messages.
            before = resident_bytes();
            ours.fill(count).await;
        }
        assert_eq!(ours.live().await, count, "all messages are there");
        let after = resident_bytes();
        if errand == Errand::FillAndWait {
            print!("filled");
            std::io::stdout().flush().expect("the parent listens");
            // Ends when the parent does, should it forget to kill.
            std::io::stdin().read_to_end(&mut Vec::new()).ok();
            std::process::abort();
        }
        ours.close().await;
        after.saturating_sub(before)
    })
}
