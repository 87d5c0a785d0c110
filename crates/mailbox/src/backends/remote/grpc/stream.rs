//! Messages as they come, over a connection of their own.

use async_trait::async_trait;
use mailbox_wire::json::{Envelope, ReceiveRequest};
use mailbox_wire::proto::Detach;
use mailbox_wire::proto::v1::{RecvRequest, RecvStreamResponse};
use parking_lot::Mutex;
use tonic::Streaming;

use super::super::door::{Coming, Event, Failed};
use super::super::pool::Opener as _;
use super::heard::Said;
use super::link::{Link, Opener};
use super::method::not_understood;
use super::refusal::{error, failed, problem};
use crate::error::Result;

/// What is left of an answer that goes on.
struct Messages {
    /// As long as it is there, the connection is.
    _link: Link,
    /// Never locked but by one who may change it: shared it cannot be otherwise.
    messages: Mutex<Streaming<RecvStreamResponse>>,
    said: Said,
}

/// Opens a stream.
pub(super) async fn open(
    opener: &Opener,
    request: ReceiveRequest,
) -> Result<Box<dyn Coming>, Failed> {
    let link = opener.open().await?;
    let (mut client, said) = link.client();
    let opened = client.recv_stream(RecvRequest::from(request)).await;
    let messages = Mutex::new(opened.map_err(|status| failed(&status, &said))?.into_inner());
    Ok(Box::new(Messages { _link: link, messages, said }))
}

#[async_trait]
impl Coming for Messages {
    async fn next(&mut self) -> Result<Event> {
        match self.messages.get_mut().message().await {
            Ok(Some(mut message)) => {
                message.detach();
                let envelope = Option::<Envelope>::try_from(message)
                    .map_err(|error| not_understood().with_source(error))?;
                Ok(envelope.map_or(Event::SignOfLife, |it| Event::Message(Box::new(it))))
            }
            Ok(None) => Ok(Event::Ended(None)),
            Err(status) => match problem(&status) {
                Some(problem) => Ok(Event::Ended(Some(problem))),
                None => Err(error(&status, &self.said)),
            },
        }
    }
}
