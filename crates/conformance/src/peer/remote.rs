//! The other process, from this one: a backend whose calls go over a pipe. Time goes with every
//! line, and whenever it is moved.
//!
//! Invariant: every call has one line of answer, also one that was dropped: it was cancelled, or
//! what it received is given back.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use mailbox::testing::ManualClock;
use mailbox::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::wire::{Ask, Call, Delivery, Gave, Request, Response, Told, Verdict};
use super::{FLAG, Opening, forms};

/// Longest line.
const LINE_LEN: u64 = 1 << 28;
/// Most calls at a time.
const CALLS: usize = 1 << 16;

/// A process that has the same inboxes. It ends with this.
pub(crate) struct Remote {
    line: Arc<Line>,
    child: Mutex<Child>,
    follows: Option<JoinHandle<()>>,
}

/// The pipe, and who waits for what comes out of it.
struct Line {
    input: Mutex<ChildStdin>,
    clock: Option<ManualClock>,
    next: AtomicU64,
    expected: Mutex<HashMap<u64, Expected>>,
    /// Dropped calls whose end is not known yet.
    leaving: watch::Sender<usize>,
}

/// What an answer is for.
enum Expected {
    Caller(oneshot::Sender<Told>),
    /// Whoever called is gone; this was the mailbox.
    Nobody(String),
    /// Something was given back.
    Return,
}

impl Remote {
    /// Starts this program once more, as the other process.
    pub(crate) async fn start(opening: Opening, clock: Option<ManualClock>) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Connection, "the other process cannot be started")
                .with_source(error)
        };
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg(FLAG).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        let line = Arc::new(Line {
            input: Mutex::new(input),
            clock,
            next: AtomicU64::new(1),
            expected: Mutex::default(),
            leaving: watch::Sender::new(0),
        });
        let follows = line.clock.clone().map(|clock| {
            let line = Arc::downgrade(&line);
            tokio::spawn(async move { follow(&clock, &line).await })
        });
        let listener = Arc::downgrade(&line);
        std::thread::spawn(move || listen(output, &listener));
        let remote = Self { line, child: Mutex::new(child), follows };
        match remote.ask(String::new(), Ask::Open(opening)).await? {
            Gave::Done => Ok(remote),
            _ => Err(forms::garbled("something else than that it is open")),
        }
    }

    /// Ends the process as it is.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock();
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Ends when nothing is on its way back that nobody has got.
    pub(crate) async fn quiet(&self) {
        let mut leaving = self.line.leaving.subscribe();
        // It is never dropped before `self`.
        let _ = leaving.wait_for(|count| *count == 0).await;
    }

    pub(super) async fn call(&self, mailbox: &str, call: Call) -> Result<Gave> {
        self.ask(mailbox.to_owned(), Ask::Call(call)).await
    }

    async fn ask(&self, mailbox: String, ask: Ask) -> Result<Gave> {
        let (answer, answered) = oneshot::channel();
        let id = self.line.ask(Expected::Caller(answer), ask)?;
        let mut asking = Asking { line: &self.line, id, mailbox, answered: Some(answered) };
        let told = match &mut asking.answered {
            Some(answered) => answered.await,
            None => unreachable!("it is there until it is answered"),
        };
        asking.answered = None;
        match told {
            Ok(Told::Gave(gave)) => Ok(gave),
            Ok(Told::Failed(fault)) => Err(fault.into()),
            Ok(Told::Cancelled) => Err(forms::garbled("that nobody waits")),
            Err(_) => Err(ended()),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(follows) = &self.follows {
            follows.abort();
        }
        self.kill();
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("process", &self.child.lock().id()).finish_non_exhaustive()
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Connection, "the other process has ended")
}

/// A call that waits for its answer. If it is dropped before, the other process drops it too.
struct Asking<'a> {
    line: &'a Arc<Line>,
    id: u64,
    mailbox: String,
    answered: Option<oneshot::Receiver<Told>>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(mut answered) = self.answered.take() else { return };
        let mailbox = std::mem::take(&mut self.mailbox);
        {
            let mut expected = self.line.expected.lock();
            if let Some(waiting) = expected.get_mut(&self.id) {
                *waiting = Expected::Nobody(mailbox);
                drop(expected);
                self.line.leaving.send_modify(|count| *count += 1);
                // If it has ended nothing is left to cancel.
                let _ = self.line.write(self.id, Ask::Cancel);
                return;
            }
        }
        // It was answered, and nobody has seen it.
        if let Ok(Told::Gave(Gave::Deliveries(unseen))) = answered.try_recv()
            && !unseen.is_empty()
        {
            self.line.leaving.send_modify(|count| *count += 1);
            self.line.give_back(mailbox, &unseen);
        }
    }
}

impl Line {
    fn ask(&self, who: Expected, ask: Ask) -> Result<u64> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut expected = self.expected.lock();
            if expected.len() >= CALLS {
                return Err(Error::new(ErrorKind::Saturated, "too many calls at a time"));
            }
            expected.insert(id, who);
        }
        self.write(id, ask).inspect_err(|_| {
            self.expected.lock().remove(&id);
        })?;
        Ok(id)
    }

    /// Writes a line, with the time it is.
    fn write(&self, id: u64, ask: Ask) -> Result<()> {
        let mut input = self.input.lock();
        let face = self.clock.as_ref().map(ManualClock::face);
        let mut line = serde_json::to_vec(&Request { face, id, ask }).expect("plain data");
        line.push(b'\n');
        input.write_all(&line).map_err(|_| ended())
    }

    /// Gives back what nobody has got; one that is leaving is gone when that is done.
    fn give_back(&self, mailbox: String, unseen: &[Delivery]) {
        let handles = unseen.iter().rev().map(|it| (it.receipt_handle.clone(), Verdict::Return));
        let call = Call::Settle(mailbox, handles.collect());
        if self.ask(Expected::Return, Ask::Call(call)).is_err() {
            self.gone();
        }
    }

    fn gone(&self) {
        self.leaving.send_modify(|count| *count = count.saturating_sub(1));
    }

    fn hear(&self, Response { id, told }: Response) {
        let mut expected = self.expected.lock();
        match expected.remove(&id) {
            Some(Expected::Caller(caller)) => {
                // Under the lock: whoever drops its call finds the answer, or that there is none.
                let _ = caller.send(told);
            }
            Some(Expected::Nobody(mailbox)) => {
                drop(expected);
                match told {
                    Told::Gave(Gave::Deliveries(unseen)) if !unseen.is_empty() => {
                        self.give_back(mailbox, &unseen);
                    }
                    _ => self.gone(),
                }
            }
            Some(Expected::Return) => self.gone(),
            None => {}
        }
    }
}

/// The thread that reads the answers.
fn listen(output: ChildStdout, line: &Weak<Line>) {
    let mut output = BufReader::new(output);
    loop {
        let mut text = Vec::new();
        let read = output.by_ref().take(LINE_LEN).read_until(b'\n', &mut text);
        let Some(line) = line.upgrade() else { return };
        let response = serde_json::from_slice(&text);
        match (read, response) {
            (Ok(1..), Ok(response)) => line.hear(response),
            _ => {
                // It has ended, or says what nobody understands: there are no more answers.
                line.expected.lock().clear();
                line.leaving.send_modify(|count| *count = 0);
                return;
            }
        }
    }
}

/// Tells the other process the time whenever it is moved.
async fn follow(clock: &ManualClock, line: &Weak<Line>) {
    let mut seen = clock.elapsed();
    loop {
        clock.moved_beyond(seen).await;
        seen = clock.elapsed();
        let Some(line) = line.upgrade() else { return };
        if line.write(0, Ask::Nothing).is_err() {
            return;
        }
    }
}
