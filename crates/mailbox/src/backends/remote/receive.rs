//! Receiving from a service. Invariant: a receive that is dropped is over, and its messages are
//! given back, before the next call begins.

use std::sync::Arc;
use std::time::Duration;

use mailbox_core::{DeadReason, Verdict};
use mailbox_wire::json;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Inner;
use super::calls::Again;
use super::convert::{self, millis};
use super::local::{Leaving, Local};
use crate::backend::{Delivery, Settlement};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ReceiptHandle;
use crate::name::Name;
use crate::options::ReceiveOptions;

/// How long a service may take to notice that nobody waits any more.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// Deliveries on their way to whoever asked; given back if nobody takes them.
struct Parcel {
    inner: Arc<Inner>,
    mailbox: Name,
    deliveries: Vec<Delivery>,
    /// Its messages can be given back: they are hidden from others.
    is_held: bool,
    /// Where it came. Whoever drops it may do so elsewhere, or nowhere.
    runtime: Handle,
}

impl Parcel {
    fn take(mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        let deliveries = std::mem::take(&mut self.deliveries);
        if deliveries.is_empty() || !self.is_held {
            return;
        }
        // The last one first, so that they are in line as they were.
        let back = deliveries.into_iter().rev().map(|delivery| Settlement {
            receipt_handle: delivery.receipt_handle,
            verdict: Verdict::Return,
        });
        // Where somebody is now; nobody may come back to where it came. Where nothing runs any
        // more, their deadline brings them back.
        let runtime = Handle::try_current();
        let runtime = runtime.as_ref().unwrap_or(&self.runtime);
        self.inner.settle_aside(&self.mailbox, back.collect(), runtime);
    }
}

/// Tells the task that nobody waits for it, when dropped before it is done.
struct Guard {
    local: Arc<Local>,
    stop: CancellationToken,
    leaving: Arc<Mutex<Option<Leaving>>>,
    is_done: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_done {
            *self.leaving.lock() = Some(self.local.leaving());
            self.stop.cancel();
        }
    }
}

impl Inner {
    /// Waits until receives that were dropped on this runtime are over.
    pub(super) async fn settle_down(&self) {
        let local = self.local();
        // Whoever does not answer cannot hold up everything else.
        let _ = tokio::time::timeout(LEAVE_WITHIN, local.all_left()).await;
    }

    /// The same for all receives on all of them, after the end.
    pub(super) async fn settle_down_everywhere(&self) {
        let all = async {
            for local in self.locals.all() {
                local.all_over().await;
            }
        };
        let _ = tokio::time::timeout(LEAVE_WITHIN, all).await;
    }

    /// Settles what nobody else does, while whoever asked goes on. The next call waits for it. If
    /// it fails, their deadline brings the messages back.
    fn settle_aside(
        self: &Arc<Self>,
        mailbox: &Name,
        batch: Vec<Settlement>,
        runtime: &Handle,
    ) -> JoinHandle<()> {
        let (inner, mailbox) = (Arc::clone(self), mailbox.clone());
        let entered = runtime.enter();
        let leaving = self.local().leaving();
        drop(entered);
        runtime.spawn(async move {
            let settled = inner.settle(&mailbox, batch, Again::Yes);
            tokio::pin!(settled);
            if tokio::time::timeout(LEAVE_WITHIN, &mut settled).await.is_err() {
                // Others wait no longer for it; but it goes on.
                drop(leaving);
                let _ = settled.await;
            }
        })
    }

    /// Makes messages that are not what was sent dead letters (I4), all at once.
    pub(super) fn bury(
        self: &Arc<Self>,
        mailbox: &Name,
        damaged: Vec<(ReceiptHandle, Error)>,
        runtime: &Handle,
    ) -> JoinHandle<()> {
        let buried = damaged.into_iter().map(|(receipt_handle, error)| {
            let error = Some(error.message().into());
            let verdict = Verdict::Reject { reason: DeadReason::Integrity, error };
            Settlement { receipt_handle, verdict }
        });
        self.settle_aside(mailbox, buried.collect(), runtime)
    }

    pub(super) async fn receive(
        self: &Arc<Self>,
        mailbox: &Name,
        options: &ReceiveOptions,
    ) -> Result<Vec<Delivery>> {
        let (given, got) = oneshot::channel();
        let stop = CancellationToken::new();
        let leaving: Arc<Mutex<Option<Leaving>>> = Arc::default();
        let task = Task {
            inner: Arc::clone(self),
            mailbox: mailbox.clone(),
            options: options.clone(),
            runtime: Handle::current(),
            stop: stop.clone(),
            leaving: Arc::clone(&leaving),
        };
        let local = self.local();
        let receiving = Arc::new(local.receiving());
        let mut guard = Guard { local, stop, leaving: Arc::clone(&leaving), is_done: false };
        tokio::spawn(async move {
            let received = task.run().await;
            // Whoever asked may never look again.
            if task.inner.closed.is_cancelled() {
                drop(received);
            } else {
                // It is over when its messages are taken, or given back.
                let is_full = received.as_ref().is_ok_and(|it| !it.deliveries.is_empty());
                let kept = is_full.then(|| Arc::clone(&receiving));
                let _ = given.send((received, kept));
            }
            // What was given and not taken is given back before this says that it is over.
            drop(leaving.lock().take());
            drop(receiving);
        });
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(Error::closed(mailbox)),
            got = got => {
                guard.is_done = true;
                let (received, _kept) = got.map_err(|_| cut_short(mailbox))?;
                received.map(Parcel::take)
            }
        }
    }
}

/// A receive that goes on although nobody polls it.
struct Task {
    inner: Arc<Inner>,
    mailbox: Name,
    options: ReceiveOptions,
    runtime: Handle,
    stop: CancellationToken,
    leaving: Arc<Mutex<Option<Leaving>>>,
}

impl Task {
    async fn run(&self) -> Result<Parcel> {
        let question = json::ReceiveRequest {
            topic: self.mailbox.to_string(),
            visibility_ms: Some(millis(self.options.visibility_timeout)),
            max_messages: Some(self.options.max_messages),
            max_bytes: None,
            wait_ms: Some(millis(self.options.wait)),
        };
        let made = self.inner.calls.receive(&question, self.options.wait, &self.stop);
        tokio::pin!(made);
        let received = tokio::select! {
            biased;
            received = &mut made => received?,
            () = self.given_up() => {
                // The service learns that nobody waits; what it has sent by then still comes.
                match tokio::time::timeout(LEAVE_WITHIN, &mut made).await {
                    Ok(rest) => rest?,
                    Err(_) => {
                        // Others wait no longer for that; but what comes then still goes back.
                        drop(self.leaving.lock().take());
                        let rest = tokio::time::timeout(self.inner.calls.timeout(), made);
                        rest.await.map_err(|_| cut_short(&self.mailbox))??
                    }
                }
            }
        };
        self.unpack(received)
    }

    /// Nobody waits any more, or nobody is to be told.
    async fn given_up(&self) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.inner.closed.cancelled() => self.stop.cancel(),
        }
    }

    /// What was received. A message that is not what was sent, or of another mailbox, is never
    /// handed over, and holds up none of those that came with it.
    fn unpack(&self, received: json::Received) -> Result<Parcel> {
        let is_held = !self.options.visibility_timeout.is_zero();
        let (mailbox, inner) = (self.mailbox.clone(), Arc::clone(&self.inner));
        let runtime = self.runtime.clone();
        let mut parcel = Parcel { inner, mailbox, deliveries: Vec::new(), is_held, runtime };
        let (mut damaged, mut fault) = (Vec::new(), None);
        for envelope in received.messages {
            match convert::delivery(&self.mailbox, envelope) {
                Ok(delivery) => parcel.deliveries.push(delivery),
                Err((handle, error)) => {
                    // As other homes do: who gets the rest does not learn it otherwise.
                    tracing::error!(mailbox = %self.mailbox, %error, "integrity");
                    damaged.extend(handle.map(|handle| (handle, error.clone())));
                    fault = Some(error.with_mailbox(&self.mailbox));
                }
            }
        }
        // D6: nobody gets more than they asked for, whatever a service says.
        let most = self.options.max_messages as usize;
        if parcel.deliveries.len() > most {
            let deliveries = parcel.deliveries.split_off(most);
            let message = "the service gives more messages than it was asked for: given back";
            tracing::warn!(mailbox = %self.mailbox, excess = deliveries.len(), "{message}");
            drop(Parcel {
                inner: Arc::clone(&self.inner),
                mailbox: self.mailbox.clone(),
                deliveries,
                is_held,
                runtime: self.runtime.clone(),
            });
        }
        if !damaged.is_empty() {
            self.inner.bury(&self.mailbox, damaged, &self.runtime);
        }
        match fault {
            Some(error) if parcel.deliveries.is_empty() => Err(error),
            _ => Ok(parcel),
        }
    }
}

/// Nobody learns what became of a receive: its runtime has ended, or the service does not answer.
fn cut_short(mailbox: &Name) -> Error {
    Error::new(ErrorKind::Connection, "a receive was cut short").with_mailbox(mailbox)
}
