//! Workers as their parent sees them: processes that use one home, and a ledger of what they said.
//! Invariant: no process outlives the value, and the ledger is complete once all were stopped.

use std::fmt;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::event::Event;
use crate::ledger::Ledger;

/// How long anything may take that should take milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The workers of one home.
#[derive(Debug)]
pub(crate) struct Crew {
    workers: Vec<Worker>,
    shared: Arc<Shared>,
    /// How many were started, ever.
    started: u32,
}

/// A running worker.
#[derive(Debug)]
struct Worker {
    child: Child,
    // A worker ends when its standard input does. Not left to `Child`, which closes it to wait.
    input: Option<ChildStdin>,
    reader: JoinHandle<io::Result<()>>,
    progress: watch::Receiver<Progress>,
}

#[derive(Debug)]
struct Shared {
    // Held for one line at a time, and when the power goes: what was read before counts.
    said: Mutex<Said>,
}

/// All that the workers have said.
#[derive(Debug)]
pub(crate) struct Said {
    /// What they tried and what was answered.
    pub(crate) ledger: Ledger,
    /// Failures that they reported while answers still counted, and after.
    pub(crate) failures: Vec<Failure>,
    /// Their lines, for a look.
    pub(crate) lines: String,
    certain: bool,
}

/// A failure that a worker reported.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// It came before the power was cut.
    pub(crate) certain: bool,
    /// Which call.
    pub(crate) call: String,
    /// The kind of error.
    pub(crate) kind: String,
    /// What it said.
    pub(crate) text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.call, self.kind, self.text)
    }
}

/// How far a worker has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Started,
    Acked,
    Ended,
}

/// Most failures that are kept; more tell nothing new.
const FAILURES: usize = 1000;
/// Most bytes of lines that are kept.
const LINES_LEN: usize = 4 << 20;

impl Crew {
    /// Nobody yet; those who come continue `ledger`.
    pub(crate) fn new(ledger: Ledger) -> Self {
        let said =
            Mutex::new(Said { ledger, failures: Vec::new(), lines: String::new(), certain: true });
        Self { workers: Vec::new(), shared: Arc::new(Shared { said }), started: 0 }
    }

    /// Starts a worker.
    pub(crate) fn start(&mut self, mut command: Command) -> io::Result<()> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("standard output is a pipe");
        let (sender, progress) = watch::channel(Progress::Started);
        self.started += 1;
        let reader = tokio::spawn(read(output, Arc::clone(&self.shared), sender, self.started));
        self.workers.push(Worker { child, input, reader, progress });
        Ok(())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Waits until each has had an answer to a send or a deletion; false if one ended before that,
    /// or took too long.
    pub(crate) async fn first_acks(&mut self) -> bool {
        for worker in &mut self.workers {
            let acked = worker.progress.wait_for(|progress| *progress != Progress::Started);
            match tokio::time::timeout(PATIENCE, acked).await {
                Ok(Ok(progress)) if *progress == Progress::Acked => {}
                _ => return false,
            }
        }
        true
    }

    /// From now on no answer counts: the power is about to go.
    pub(crate) fn doubt(&self) {
        self.shared.said().certain = false;
    }

    /// Kills one (SIGKILL); the others go on.
    pub(crate) async fn kill_one(&mut self, index: usize) -> io::Result<()> {
        let mut worker = self.workers.swap_remove(index);
        worker.start_kill();
        worker.end().await
    }

    /// Kills all (SIGKILL) and returns what they said.
    pub(crate) async fn kill(mut self) -> io::Result<Said> {
        for worker in &mut self.workers {
            worker.start_kill();
        }
        self.end().await
    }

    /// Waits until all end by themselves, at most for `limit` each; false if one had to be stopped.
    /// Works also if they are children of a tracer.
    pub(crate) async fn finish(mut self, limit: Duration) -> io::Result<(Said, bool)> {
        let mut in_time = true;
        for worker in &mut self.workers {
            in_time &= tokio::time::timeout(limit, worker.child.wait()).await.is_ok();
            drop(worker.input.take());
        }
        Ok((self.end().await?, in_time))
    }

    async fn end(self) -> io::Result<Said> {
        for worker in self.workers {
            worker.end().await?;
        }
        let shared = Arc::into_inner(self.shared).expect("every reader has ended");
        Ok(shared.said.into_inner().expect("nobody panics while noting"))
    }
}

impl Worker {
    fn start_kill(&mut self) {
        // An error means that it has ended by itself, which is as good.
        let _ = self.child.start_kill();
    }

    async fn end(mut self) -> io::Result<()> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.map_err(|_| io::Error::other("the worker does not end"))??;
        let read = tokio::time::timeout(PATIENCE, &mut self.reader).await;
        read.map_err(|_| io::Error::other("the worker's output does not end"))?
            .map_err(io::Error::other)?
    }
}

impl Shared {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().expect("nobody panics while noting")
    }
}

/// Notes line by line; a last line that was cut off in the middle was not said.
async fn read(
    output: ChildStdout,
    shared: Arc<Shared>,
    progress: watch::Sender<Progress>,
    worker: u32,
) -> io::Result<()> {
    let mut output = BufReader::with_capacity(1 << 16, output);
    let mut line = String::new();
    loop {
        line.clear();
        if output.read_line(&mut line).await? == 0 || !line.ends_with('\n') {
            break;
        }
        let Some(event) = Event::parse(line.trim_end()) else {
            return Err(io::Error::other(format!("a worker said {line:?}")));
        };
        let is_ack = matches!(event, Event::Sent(_) | Event::Deleted(_));
        shared.said().note(event, worker, &line);
        if is_ack && *progress.borrow() == Progress::Started {
            progress.send_replace(Progress::Acked);
        }
    }
    progress.send_replace(Progress::Ended);
    Ok(())
}

impl Said {
    fn note(&mut self, event: Event, worker: u32, line: &str) {
        if self.lines.len() < LINES_LEN {
            let cut = if self.certain { "" } else { "after the cut: " };
            self.lines.push_str(&format!("{worker}: {cut}{line}"));
        }
        self.ledger.note(&event, self.certain);
        if let Event::Failed { call, kind, text } = event
            && self.failures.len() < FAILURES
        {
            self.failures.push(Failure { certain: self.certain, call, kind, text });
        }
    }
}
