//! Sending to a service. Invariant: no request is larger than what gets through, but for a message
//! that is that large by itself.

use mailbox_wire::call::Request;
use mailbox_wire::json::{BatchMessage, SendBatchRequest, SentBatch};

use super::Inner;
use super::calls::{Again, Calls};
use super::convert;
use super::door::Failed;
use super::gather::{Gathering, Together, doubted, is_of_all, miscounted, not_tried};
use super::local::Local;
use crate::backend::{Outgoing, Sent};
use crate::error::Result;
use crate::name::Name;

/// Room that a request needs beside its messages.
const FRAME: usize = 4096;
/// Room that a message needs beside what is in it.
const ENVELOPE: usize = 128;

/// Whether messages can be sent again: with a key it changes nothing.
pub(super) fn again<'a>(messages: impl IntoIterator<Item = &'a Outgoing>) -> Again {
    let is_keyed = messages.into_iter().all(|message| message.idempotency_key.is_some());
    if is_keyed { Again::Yes } else { Again::No }
}

impl Inner {
    pub(super) async fn send(
        &self,
        mailbox: &Name,
        batch: Vec<Outgoing>,
    ) -> Result<Vec<Result<Sent>>> {
        let mut results = Vec::with_capacity(batch.len());
        let mut rest = batch.into_iter().peekable();
        while rest.peek().is_some() || results.is_empty() {
            let (mut some, mut len) = (Vec::new(), FRAME);
            while let Some(next) = rest.peek() {
                len += convert::wire_len(next);
                if !some.is_empty() && len > self.most {
                    break;
                }
                some.extend(rest.next());
            }
            let count = some.len();
            match self.send_some(mailbox, some).await {
                Ok(sent) => results.extend(sent),
                Err(error) if results.is_empty() && rest.peek().is_none() => return Err(error),
                // Of some it is known what became of them: so it must be said of each.
                Err(error) => {
                    results.extend((0..count).map(|_| Err(error.clone())));
                    if is_of_all(&error) {
                        // They would end so too, each part after a wait of its own; or overtake
                        // those that have to be sent again.
                        results.extend(rest.by_ref().map(|_| Err(not_tried(&error))));
                    }
                }
            }
            if count == 0 {
                break;
            }
        }
        Ok(results)
    }

    async fn send_some(&self, mailbox: &Name, some: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        let (again, count) = (again(&some), some.len());
        let messages = some.into_iter().map(convert::message).collect();
        let request = BatchMessage::request(mailbox, messages);
        let asked = BatchMessage::ask(&self.calls, &request, again, count).await;
        asked.map_err(|failed| failed.error)
    }
}

impl Together for BatchMessage {
    type Answer = Sent;

    fn gathering(local: &Local) -> &Gathering<Self> {
        &local.sends
    }

    fn wire_len(&self) -> usize {
        let attributes: usize =
            self.attrs.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
        let texts = [&self.idem_key, &self.reply_to, &self.partition, &self.group, &self.sig];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        self.payload_b64.0.len() + attributes + texts + ENVELOPE
    }

    fn request(mailbox: &Name, messages: Vec<Self>) -> Request {
        Request::SendBatch(SendBatchRequest { topic: Some(mailbox.to_string()), messages })
    }

    fn take_back(request: Request) -> Vec<Self> {
        match request {
            Request::SendBatch(it) => it.messages,
            _ => Vec::new(),
        }
    }

    async fn ask(
        calls: &Calls,
        request: &Request,
        again: Again,
        count: usize,
    ) -> Result<Vec<Result<Sent>>, Failed> {
        let (sent, is_in_doubt): (SentBatch, _) = calls.try_ask(request, again).await?;
        if sent.results.len() != count {
            return Err(miscounted());
        }
        Ok(doubted(sent.results.into_iter().map(convert::sent), is_in_doubt))
    }
}
