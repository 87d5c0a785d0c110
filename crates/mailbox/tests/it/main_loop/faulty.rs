//! A backend that can be told to fail, and writes down what it was asked to settle and send.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mailbox::backends::memory::MemoryBackend;
use mailbox::{
    Abilities, Backend, Delivery, Error, ErrorKind, Figure, Name, Outgoing, Peek, Policy,
    ReceiveOptions, Record, Result, Selection, Sent, Settlement, Stats, Verdict,
};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::{Replies, Requests, on};

/// What can happen to an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// It does nothing and gives this error.
    Fails(ErrorKind),
    /// It is done, and nobody learns of it.
    AnswerLost,
    /// It is never answered.
    Hangs,
}

#[derive(Debug)]
pub(super) struct Faulty {
    inner: Arc<MemoryBackend>,
    pub(super) no_receive: AtomicBool,
    pub(super) no_extend: AtomicBool,
    /// What happens to the next acknowledgements.
    acknowledgements: Mutex<VecDeque<Fault>>,
    /// How long the answer to a receive is on its way.
    pub(super) receive_delay: Mutex<Duration>,
    /// When extensions were asked for.
    pub(super) extensions: Mutex<Vec<Instant>>,
    pub(super) receives: AtomicU64,
    pub(super) log: Mutex<Vec<String>>,
}

impl Faulty {
    pub(super) fn pair() -> (Arc<Self>, Requests, Replies) {
        let backend = Arc::new(Self {
            inner: MemoryBackend::new(),
            no_receive: AtomicBool::new(false),
            no_extend: AtomicBool::new(false),
            acknowledgements: Mutex::default(),
            receive_delay: Mutex::default(),
            extensions: Mutex::default(),
            receives: AtomicU64::new(0),
            log: Mutex::default(),
        });
        let (requests, replies) = (on(&backend, "requests"), on(&backend, "replies"));
        (backend, requests, replies)
    }

    /// The next acknowledgements meet these, those after them nothing.
    pub(super) fn acknowledge_with(&self, faults: impl IntoIterator<Item = Fault>) {
        self.acknowledgements.lock().extend(faults);
    }

    /// How often this was asked of the requests mailbox.
    pub(super) fn asked(&self, verdict: &str) -> usize {
        let asked = |line: &&String| line.starts_with(verdict) && line.ends_with("at requests");
        self.log.lock().iter().filter(asked).count()
    }

    fn fault(&self, verdict: &Verdict) -> Option<Fault> {
        match verdict {
            Verdict::Extend { .. } => {
                self.extensions.lock().push(Instant::now());
                let fails = self.no_extend.load(Ordering::Relaxed);
                fails.then_some(Fault::Fails(ErrorKind::Connection))
            }
            Verdict::Acknowledge => self.acknowledgements.lock().pop_front(),
            _ => None,
        }
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Connection, "unplugged")
}

#[async_trait]
impl Backend for Faulty {
    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    fn address(&self, mailbox: &Name) -> String {
        self.inner.address(mailbox)
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.log.lock().push(format!("send to {mailbox}"));
        self.inner.send(mailbox, batch).await
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        self.receives.fetch_add(1, Ordering::Relaxed);
        if self.no_receive.load(Ordering::Relaxed) {
            return Err(gone());
        }
        let received = self.inner.receive(mailbox, options).await;
        let delay = *self.receive_delay.lock();
        sleep(delay).await;
        received
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        let mut answer_lost = false;
        for settlement in &batch {
            self.log.lock().push(format!("{:?} at {mailbox}", settlement.verdict));
            // Client and loop share this backend; only the loop's acknowledgements are meant.
            let fault =
                if mailbox.as_str() == "requests" { self.fault(&settlement.verdict) } else { None };
            match fault {
                None => (),
                Some(Fault::Fails(kind)) => return Err(Error::new(kind, "unplugged")),
                Some(Fault::AnswerLost) => answer_lost = true,
                Some(Fault::Hangs) => std::future::pending().await,
            }
        }
        let settled = self.inner.settle(mailbox, batch).await;
        if answer_lost { Err(gone()) } else { settled }
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        self.inner.peek(mailbox, request).await
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        self.inner.stats(mailbox).await
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.inner.purge(mailbox).await
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.inner.redrive(mailbox, which).await
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.inner.delete_dead(mailbox, which).await
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.inner.configure(mailbox, policy).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.inner.policy(mailbox).await
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.inner.list(after, limit).await
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.inner.remove(mailbox).await
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
