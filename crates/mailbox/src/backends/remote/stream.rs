//! Messages of a service as they come, over one connection. Invariant: no more are in flight than
//! was asked for; what is not settled when the stream is dropped can be received by others at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mailbox_wire::json::{Envelope, ReceiveRequest};
use tokio::runtime::Handle;

use super::convert::{self, millis};
use super::door::{Coming, Event};
use super::{Inner, RemoteBackend};
use crate::backend::Delivery;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::options::ReceiveOptions;

/// How long a service may say nothing at all: it gives a sign of life four times as often.
const SILENCE: Duration = Duration::from_secs(60);

/// Messages as they come. Settle them through the backend while the stream is open: when it is
/// dropped, what is not settled is nacked. If it is the service that ends it, what has come stays
/// yours until its deadline.
pub struct RemoteStream {
    inner: Arc<Inner>,
    mailbox: Name,
    coming: Box<dyn Coming>,
}

impl RemoteBackend {
    /// Receives until the stream is dropped. No more than `max_messages` are in flight at a time:
    /// the next ones come as these are settled. `wait` means nothing here.
    ///
    /// # Errors
    /// As [`receive`](crate::Backend::receive).
    ///
    /// # Cancel safety
    /// Safe: what the service has handed out is given back.
    pub async fn stream(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<RemoteStream> {
        self.inner.begin(mailbox).await?;
        let checked = self.inner.abilities.check_receive(options);
        checked.map_err(|error| error.with_mailbox(mailbox))?;
        let question = ReceiveRequest {
            topic: mailbox.to_string(),
            visibility_ms: Some(millis(options.visibility_timeout)),
            max_messages: Some(options.max_messages),
            max_bytes: None,
            wait_ms: None,
        };
        let coming = self.inner.calls.stream(&question).await?;
        Ok(RemoteStream { inner: Arc::clone(&self.inner), mailbox: mailbox.clone(), coming })
    }
}

impl RemoteStream {
    /// The next message; none if the service has ended the stream because it stops.
    ///
    /// # Errors
    /// `Connection` if the connection breaks, or nothing is heard for a minute; `Integrity` for a
    /// message that is not what was sent, after which the stream goes on; `Unauthorized` or
    /// `Forbidden` if the capability is not good any more, or used up; `Closed`.
    ///
    /// # Cancel safety
    /// Safe: what was read stays in the stream.
    pub async fn next(&mut self) -> Result<Option<Delivery>> {
        loop {
            let closed = self.inner.closed.clone();
            let event = tokio::select! {
                biased;
                () = closed.cancelled() => return Err(Error::closed(&self.mailbox)),
                event = tokio::time::timeout(SILENCE, self.coming.next()) => event,
            };
            let event = event.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Connection, "the service is silent"))
            });
            match event.map_err(|error| error.with_mailbox(&self.mailbox))? {
                Event::Message(envelope) => return self.open(*envelope).await.map(Some),
                Event::SignOfLife => {}
                Event::Ended(None) => return Ok(None),
                Event::Ended(Some(problem)) => {
                    return match problem.reason.as_deref() {
                        // Nothing is wrong.
                        Some("stopping") => Ok(None),
                        _ => Err(convert::error(problem).with_mailbox(&self.mailbox)),
                    };
                }
            }
        }
    }

    /// What is in an envelope.
    async fn open(&self, envelope: Envelope) -> Result<Delivery> {
        match convert::delivery(&self.mailbox, envelope) {
            Ok(delivery) => Ok(delivery),
            Err((handle, error)) => {
                if let Some(handle) = handle {
                    let damaged = vec![(handle, error.clone())];
                    // Whoever closes the stream then does not take it back before that is done.
                    let _ = self.inner.bury(&self.mailbox, damaged, &Handle::current()).await;
                }
                Err(error.with_mailbox(&self.mailbox))
            }
        }
    }
}

impl fmt::Debug for RemoteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStream").field("mailbox", &self.mailbox).finish_non_exhaustive()
    }
}
