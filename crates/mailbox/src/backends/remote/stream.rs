//! Messages of a service as they come, over one connection. Invariant: no more are in flight than
//! was asked for; what is not settled when the stream is dropped can be received by others at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use mailbox_wire::json::{Envelope, Problem, ReceiveRequest};

use super::calls::{ANSWER, Again, Call, json};
use super::convert::{self, millis};
use super::link::Link;
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
    /// As long as it is there, the connection is.
    _link: Link,
    body: Incoming,
    unread: BytesMut,
}

/// What a service says on a stream.
enum Line {
    Message(Box<Delivery>),
    SignOfLife,
    /// It ends: nothing is wrong.
    Stopping,
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
        let call = Call::new(Method::POST, "/v1/recv/stream", json(&question)?, Again::No);
        let (link, body) = self.inner.calls.open(&call).await?;
        Ok(RemoteStream {
            inner: Arc::clone(&self.inner),
            mailbox: mailbox.clone(),
            _link: link,
            body,
            unread: BytesMut::new(),
        })
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
            if let Some(line) = self.line() {
                match self.read(&line).await.map_err(|error| error.with_mailbox(&self.mailbox))? {
                    Line::Message(delivery) => return Ok(Some(*delivery)),
                    Line::SignOfLife => continue,
                    Line::Stopping => return Ok(None),
                }
            }
            let closed = self.inner.closed.clone();
            let frame = tokio::select! {
                biased;
                () = closed.cancelled() => return Err(Error::closed(&self.mailbox)),
                frame = tokio::time::timeout(SILENCE, self.body.frame()) => frame,
            };
            let frame = frame.map_err(|_| self.broken("the service is silent"))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|_| self.broken("the stream breaks off"))?;
            if let Ok(bytes) = frame.into_data() {
                self.unread.extend_from_slice(&bytes);
            }
            if self.unread.len() > ANSWER {
                return Err(self.broken("a line of the stream does not end"));
            }
        }
    }

    /// The next whole line, without its end.
    fn line(&mut self) -> Option<BytesMut> {
        let end = self.unread.iter().position(|byte| *byte == b'\n')?;
        let line = self.unread.split_to(end);
        self.unread.advance(1);
        Some(line)
    }

    /// What a line says.
    async fn read(&self, line: &[u8]) -> Result<Line> {
        if line.is_empty() {
            return Ok(Line::SignOfLife);
        }
        if let Ok(envelope) = serde_json::from_slice::<Envelope>(line) {
            return match convert::delivery(envelope) {
                Ok(delivery) => Ok(Line::Message(Box::new(delivery))),
                Err((handle, error)) => {
                    self.inner.bury(&self.mailbox, handle, &error).await;
                    Err(error)
                }
            };
        }
        let problem = serde_json::from_slice::<Problem>(line).map_err(|_| {
            Error::new(ErrorKind::Internal, "the service says something that makes no sense")
        })?;
        match problem.reason.as_deref() {
            Some("stopping") => Ok(Line::Stopping),
            _ => Err(convert::error(problem)),
        }
    }

    fn broken(&self, message: &str) -> Error {
        Error::new(ErrorKind::Connection, message).with_mailbox(&self.mailbox)
    }
}

impl fmt::Debug for RemoteStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStream").field("mailbox", &self.mailbox).finish_non_exhaustive()
    }
}
