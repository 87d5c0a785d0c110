//! Keeps a lease while its message is worked on (P4). Invariant: every extension is by the full
//! visibility timeout, from now: it can only move the deadline later, never shorten the lease.

use std::time::Duration;

use mailbox_core::Verdict;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::pace::pause;
use crate::error::{Error, ErrorKind, Result};
use crate::message::Message;

/// The lease of one delivery.
pub(crate) struct KeepAlive<'a, T, R> {
    message: &'a Message<T, R>,
    timeout: Duration,
    /// Until when it is surely ours: counted from before the call that gave it.
    held_until: Instant,
    /// Until when it may be ours, so that trying is worth it: a receive may have waited long for
    /// the message, and only the backend knows when the lease began.
    hoped_until: Instant,
}

/// The time in which a delivery was made: somewhere between a receive's call and its return.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) called: Instant,
    pub(crate) returned: Instant,
}

impl<'a, T, R> KeepAlive<'a, T, R>
where
    T: Send + Sync + 'static,
    R: Send + Sync + 'static,
{
    /// The lease of a message that was received for `timeout`.
    pub(crate) fn new(message: &'a Message<T, R>, timeout: Duration, received: Received) -> Self {
        let Received { called, returned } = received;
        Self { message, timeout, held_until: called + timeout, hoped_until: returned + timeout }
    }

    /// Extends the lease each time a third of it is over. Ends only when it is lost; says why.
    ///
    /// # Cancel safety
    /// Safe: calling again goes on where it was.
    pub(crate) async fn run(&mut self) -> Error {
        let mut failures = 0;
        let mut next = self.held_until - self.timeout * 2 / 3;
        loop {
            sleep_until(next).await;
            let now = Instant::now();
            match self.extend(now).await {
                Ok(()) => {
                    failures = 0;
                    next = now + self.timeout / 3;
                }
                Err(error) if is_over(&error) || Instant::now() >= self.hoped_until => {
                    return error;
                }
                Err(error) => {
                    // Perhaps it can be reached again before the lease is over.
                    failures += 1;
                    next = self.hoped_until.min(Instant::now() + self.pause(&error, failures));
                }
            }
        }
    }

    /// Whether the lease is held. Asks, if its time is over by our clock: the loop may have been
    /// kept from extending it, by a handler that blocks its thread for example.
    pub(crate) async fn is_held(&mut self) -> bool {
        let now = Instant::now();
        now < self.held_until || self.extend(now).await.is_ok()
    }

    async fn extend(&mut self, now: Instant) -> Result<()> {
        self.try_once(now, Verdict::Extend { timeout: self.timeout }).await?;
        self.held_until = now + self.timeout;
        self.hoped_until = self.held_until;
        Ok(())
    }

    /// One call that settles. It may take a third of a lease, so that a backend that never answers
    /// keeps nobody, and there is time for another try. Also when it is late: only the backend
    /// knows whether it is too late.
    async fn try_once(&self, now: Instant, verdict: Verdict) -> Result<()> {
        let patience = now + self.timeout / 3;
        let mailbox = self.message.mailbox();
        let settled = mailbox.settle(self.message.receipt_handle(), verdict);
        timeout_at(patience, settled).await.unwrap_or_else(|_| {
            let message = "no answer within a third of the lease";
            Err(Error::new(ErrorKind::Connection, message).with_mailbox(mailbox.name()))
        })
    }

    /// However often it failed, there is another try before the lease is over.
    fn pause(&self, error: &Error, failures: u32) -> Duration {
        pause(error, failures).min(self.timeout / 10)
    }

    /// Settles, trying again while the lease lasts.
    ///
    /// # Errors
    /// The last one, when the delivery is over or the mailbox is closed.
    pub(crate) async fn settle(&self, verdict: Verdict) -> Result<()> {
        let mut failures = 0;
        let mut in_doubt = false;
        loop {
            let error = match self.try_once(Instant::now(), verdict.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let now = Instant::now();
            if error.kind() == ErrorKind::ReceiptHandleExpired && in_doubt && now < self.held_until
            {
                // It cannot have run out yet: the earlier try has settled it.
                return Ok(());
            }
            in_doubt |= may_have_settled(&error);
            failures += 1;
            let next = now + self.pause(&error, failures);
            if is_over(&error) || next >= self.hoped_until {
                return Err(error);
            }
            sleep_until(next).await;
        }
    }
}

/// Whether an error says that the delivery cannot be settled any more.
fn is_over(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ReceiptHandleExpired | ErrorKind::Closed)
}

/// Whether a call that ended with this error may have taken effect. All others are refusals.
fn may_have_settled(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Connection | ErrorKind::Internal)
}
