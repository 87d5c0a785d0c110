//! Messages as they come, over a connection of their own.

use async_trait::async_trait;
use bytes::BytesMut;
use mailbox_wire::call::Request;
use mailbox_wire::json::ReceiveRequest;
use mailbox_wire::proto::{Streamed, read_streamed};
use tokio::sync::mpsc;

use super::super::calls::ANSWER;
use super::super::door::{Coming, Event, Failed};
use super::super::pool::{Linked, Opener as _};
use super::answered::not_understood;
use super::flight::Streaming;
use super::link::{Link, Opener};
use crate::error::{Error, ErrorKind, Result};

/// What is left of an answer that goes on.
struct Pieces {
    /// As long as it is there, the connection is.
    _link: Link,
    pieces: mpsc::Receiver<Streaming>,
    unread: BytesMut,
}

/// Opens a stream.
pub(super) async fn open(
    opener: &Opener,
    request: ReceiveRequest,
) -> Result<Box<dyn Coming>, Failed> {
    let link = opener.open().await?;
    let place = link.places().take().await.ok_or_else(broken).map_err(Failed::void)?;
    let mut pieces = link.ask_stream(Request::ReceiveStream(request).into(), place).await?;
    match pieces.recv().await {
        Some(Streaming::Begin) => {
            Ok(Box::new(Pieces { _link: link, pieces, unread: BytesMut::new() }))
        }
        Some(Streaming::End(answered)) => match answered.payload() {
            Err(failed) => Err(failed),
            Ok(_) => Err(Failed::unusable(not_understood())),
        },
        Some(Streaming::Part(_)) => Err(Failed::unusable(not_understood())),
        None => Err(Failed::in_doubt(broken())),
    }
}

#[async_trait]
impl Coming for Pieces {
    async fn next(&mut self) -> Result<Event> {
        if let Some(event) = self.event()? {
            return Ok(event);
        }
        match self.pieces.recv().await.ok_or_else(broken)? {
            Streaming::Begin => Err(not_understood()),
            Streaming::Part(part) => {
                self.unread.extend_from_slice(&part);
                Ok(self.event()?.unwrap_or(Event::SignOfLife))
            }
            Streaming::End(answered) => match answered.problem().transpose() {
                Ok(problem) => Ok(Event::Ended(problem)),
                Err(failed) => Err(failed.error),
            },
        }
    }
}

impl Pieces {
    /// The next thing that is all there.
    fn event(&mut self) -> Result<Option<Event>> {
        let streamed = read_streamed(&mut self.unread, ANSWER)
            .map_err(|error| not_understood().with_source(error))?;
        Ok(streamed.map(|streamed| match streamed {
            Streamed::Envelope(envelope) => Event::Message(envelope),
            Streamed::SignOfLife => Event::SignOfLife,
        }))
    }
}

fn broken() -> Error {
    Error::new(ErrorKind::Connection, "the stream breaks off")
}
