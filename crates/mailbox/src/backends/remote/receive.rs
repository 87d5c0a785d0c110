//! Receiving from a service. Invariant: a receive that is dropped is over, and its messages are
//! given back, before the next call begins.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use mailbox_core::{DeadReason, Verdict};
use mailbox_wire::json;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Inner;
use super::calls::{Again, Call, json};
use super::convert::{self, millis};
use super::link::Leaver;
use crate::backend::{Delivery, Settlement};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ReceiptHandle;
use crate::name::Name;
use crate::options::ReceiveOptions;

/// How long a service may take to notice that nobody waits any more.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// Deliveries on their way to whoever asked; given back if nobody takes them.
struct Parcel {
    inner: Arc<Inner>,
    mailbox: Name,
    deliveries: Vec<Delivery>,
    /// Its messages can be given back: they are hidden from others.
    is_held: bool,
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
        // Without a runtime nothing can be sent: their deadline brings them back.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (inner, mailbox) = (Arc::clone(&self.inner), self.mailbox.clone());
        let leaving = Leaving::new(&inner);
        runtime.spawn(async move {
            let _leaving = leaving;
            // The last one first, so that they are in line as they were.
            let back = deliveries.into_iter().rev().map(|delivery| Settlement {
                receipt_handle: delivery.receipt_handle,
                verdict: Verdict::Return,
            });
            // If this fails, their deadline brings them back.
            let _ = inner.settle(&mailbox, back.collect(), Again::Yes).await;
        });
    }
}

/// Something goes on that the next call has to wait for.
struct Leaving(Arc<Inner>);

impl Leaving {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.leaving.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(inner))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leaving.fetch_sub(1, Ordering::AcqRel);
        self.0.left.notify_waiters();
    }
}

/// Tells the task that nobody waits for it, when dropped before it is done.
struct Guard {
    inner: Arc<Inner>,
    stop: CancellationToken,
    leaving: Arc<Mutex<Option<Leaving>>>,
    is_done: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_done {
            *self.leaving.lock() = Some(Leaving::new(&self.inner));
            self.stop.cancel();
        }
    }
}

impl Inner {
    /// Waits until receives that were dropped are over.
    pub(super) async fn settle_down(&self) {
        let settled = async {
            loop {
                let left = self.left.notified();
                if self.leaving.load(Ordering::Acquire) == 0 {
                    return;
                }
                left.await;
            }
        };
        // Whoever does not answer cannot hold up everything else.
        let _ = tokio::time::timeout(LEAVE_WITHIN, settled).await;
    }

    /// Makes a message that is not what was sent a dead letter (I4).
    pub(super) async fn bury(&self, mailbox: &Name, handle: Option<String>, error: &Error) {
        let Some(handle) = handle.filter(|_| error.kind() == ErrorKind::Integrity) else { return };
        let verdict =
            Verdict::Reject { reason: DeadReason::Integrity, error: Some(error.message().into()) };
        let receipt_handle = ReceiptHandle::from_text(&handle);
        let settlement = Settlement { receipt_handle, verdict };
        // If this fails, its deadline brings it back, and then it is tried again.
        let _ = self.settle(mailbox, vec![settlement], Again::Yes).await;
    }

    pub(super) async fn receive(
        self: &Arc<Self>,
        mailbox: &Name,
        options: &ReceiveOptions,
    ) -> Result<Vec<Delivery>> {
        let (given, got) = oneshot::channel();
        let (stop, leaving) = (CancellationToken::new(), Arc::default());
        let task = Task {
            inner: Arc::clone(self),
            mailbox: mailbox.clone(),
            options: options.clone(),
            stop: stop.clone(),
        };
        let inner = Arc::clone(self);
        let mut guard = Guard { inner, stop, leaving: Arc::clone(&leaving), is_done: false };
        tokio::spawn(async move {
            let _ = given.send(task.run().await);
            // What was given and not taken is given back before this says that it is over.
            drop(leaving.lock().take());
        });
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(Error::closed(mailbox)),
            got = got => {
                guard.is_done = true;
                got.map_err(|_| Error::new(ErrorKind::Internal, "a receive was cut short"))?
                    .map(Parcel::take)
            }
        }
    }
}

/// A receive that goes on although nobody polls it.
struct Task {
    inner: Arc<Inner>,
    mailbox: Name,
    options: ReceiveOptions,
    stop: CancellationToken,
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
        let mut call = Call::new(Method::POST, "/v1/recv", json(&question)?, Again::No);
        call.wait = self.options.wait;
        let leaver: Mutex<Option<Leaver>> = Mutex::default();
        let calls = &self.inner.calls;
        let made = calls.make_leaving(call, |link| {
            *leaver.lock() = Some(link);
            !self.stop.is_cancelled()
        });
        tokio::pin!(made);
        let received: json::Received = tokio::select! {
            biased;
            received = &mut made => received?,
            () = self.stop.cancelled() => {
                // The service learns that nobody waits; what it has sent by then still comes.
                let leaver = leaver.lock().take().ok_or_else(given_up)?;
                leaver.leave();
                let rest = tokio::time::timeout(LEAVE_WITHIN, made).await;
                rest.map_err(|_| given_up())??
            }
        };
        self.unpack(received).await
    }

    async fn unpack(&self, received: json::Received) -> Result<Parcel> {
        let is_held = !self.options.visibility_timeout.is_zero();
        let (mailbox, inner) = (self.mailbox.clone(), Arc::clone(&self.inner));
        let mut parcel = Parcel { inner, mailbox, deliveries: Vec::new(), is_held };
        let mut damaged = None;
        for envelope in received.messages {
            match convert::delivery(envelope) {
                Ok(delivery) => parcel.deliveries.push(delivery),
                Err((handle, error)) => {
                    self.inner.bury(&self.mailbox, handle, &error).await;
                    damaged = Some(error.with_mailbox(&self.mailbox));
                }
            }
        }
        match damaged {
            Some(error) if parcel.deliveries.is_empty() => Err(error),
            _ => Ok(parcel),
        }
    }
}

fn given_up() -> Error {
    Error::new(ErrorKind::Connection, "the receive was given up")
}
