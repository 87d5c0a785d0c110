//! Keeps a message hidden while its command runs. Invariant: every extension is by the full
//! visibility timeout from now, so it never shortens the lease.

use mailbox::{Error, ErrorKind, ReceiptHandle, Verdict};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Worker;

/// The lease of one delivery.
#[derive(Debug)]
pub(super) struct Lease<'a> {
    worker: &'a Worker,
    handle: ReceiptHandle,
    /// Until when it is ours.
    until: Instant,
}

impl<'a> Lease<'a> {
    /// The lease of what was received just now.
    pub(super) fn new(worker: &'a Worker, handle: ReceiptHandle) -> Self {
        Self { worker, handle, until: Instant::now() + worker.visibility }
    }

    /// Extends the lease each time half of it is over. Ends when it is lost; says why.
    ///
    /// # Cancel safety
    /// Safe: calling again goes on where it was.
    pub(super) async fn keep(&mut self) -> Error {
        let half = self.worker.visibility / 2;
        let mut next = self.until - half;
        loop {
            sleep_until(next).await;
            let now = Instant::now();
            let verdict = Verdict::Extend { timeout: self.worker.visibility };
            // A backend that does not answer in time leaves it open whether it is still ours.
            let call = timeout_at(self.until, self.worker.settle_once(&self.handle, verdict));
            match call.await {
                Ok(Ok(())) => {
                    self.until = now + self.worker.visibility;
                    next = now + half;
                }
                Ok(Err(error)) if is_over(&error) || Instant::now() >= self.until => return error,
                Ok(Err(_)) => next = (Instant::now() + half / 4).min(self.until),
                Err(_) => {
                    let message = "the lease ended while it was being extended";
                    return Error::new(ErrorKind::Connection, message);
                }
            }
        }
    }
}

/// Whether no further try can help.
fn is_over(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ReceiptHandleExpired | ErrorKind::Closed)
}
