//! Messages as lines of JSON, over one connection.

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use mailbox_wire::json::{Envelope, Problem};

use super::super::calls::ANSWER;
use super::super::door::{Coming, Event};
use super::link::Link;
use crate::error::{Error, ErrorKind, Result};

/// What is left of an answer that goes on.
pub(super) struct Lines {
    /// As long as it is there, the connection is.
    pub(super) _link: Link,
    pub(super) body: Incoming,
    pub(super) unread: BytesMut,
}

#[async_trait]
impl Coming for Lines {
    async fn next(&mut self) -> Result<Event> {
        if let Some(line) = self.line() {
            return event(&line);
        }
        let Some(frame) = self.body.frame().await else { return Ok(Event::Ended(None)) };
        let frame = frame.map_err(|_| broken("the stream breaks off"))?;
        if let Ok(bytes) = frame.into_data() {
            self.unread.extend_from_slice(&bytes);
        }
        if self.unread.len() > ANSWER {
            return Err(broken("a line of the stream does not end"));
        }
        match self.line() {
            Some(line) => event(&line),
            None => Ok(Event::SignOfLife),
        }
    }
}

impl Lines {
    /// The next whole line, without its end.
    fn line(&mut self) -> Option<BytesMut> {
        let end = self.unread.iter().position(|byte| *byte == b'\n')?;
        let line = self.unread.split_to(end);
        self.unread.advance(1);
        Some(line)
    }
}

/// What a line says.
fn event(line: &[u8]) -> Result<Event> {
    if line.is_empty() {
        return Ok(Event::SignOfLife);
    }
    if let Ok(envelope) = serde_json::from_slice::<Envelope>(line) {
        return Ok(Event::Message(Box::new(envelope)));
    }
    let problem = serde_json::from_slice::<Problem>(line).map_err(|_| {
        Error::new(ErrorKind::Internal, "the service says something that makes no sense")
    })?;
    Ok(Event::Ended(Some(problem)))
}

fn broken(message: &str) -> Error {
    Error::new(ErrorKind::Connection, message)
}
