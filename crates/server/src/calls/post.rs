//! Messages to send, as the wire has them.

use mailbox::{Error, ErrorKind, Name};
use mailbox_wire::json::{
    BatchMessage, BatchResult, Problem, SendBatchRequest, SendRequest, Sent, SentBatch,
};

use super::answer::Asking;
use super::outgoing;
use crate::auth::Caller;
use crate::failure::{Answer, Failure};
use crate::service::Service;

impl Service {
    /// Sends one message.
    pub(super) async fn send_one(&self, asking: &Asking, message: SendRequest) -> Answer<Sent> {
        let mut sent = self.send_all(asking, None, vec![message.into()]).await?;
        let sent = sent.pop().ok_or_else(no_answer)??;
        if sent.duplicate && asking.facts.is_conflict {
            let failure = Failure::new(ErrorKind::Duplicate, "this message was sent before");
            return Err(Failure { msg_id: Some(sent.msg_id), ..failure });
        }
        Ok(sent)
    }

    /// Sends several.
    pub(super) async fn send_batch(
        &self,
        asking: &Asking,
        batch: SendBatchRequest,
    ) -> Answer<SentBatch> {
        let sent = self.send_all(asking, batch.topic.as_deref(), batch.messages).await?;
        let result = |sent: Answer<Sent>| match sent {
            Ok(sent) => BatchResult::Sent(sent),
            Err(failure) => {
                BatchResult::Refused { error: self.problem_of(&asking.caller, &failure) }
            }
        };
        Ok(SentBatch { results: sent.into_iter().map(result).collect() })
    }

    /// What went wrong with one of many.
    pub(super) fn problem_of(&self, caller: &Caller, failure: &Failure) -> Box<Problem> {
        self.metrics.refused(failure.error.kind());
        Box::new(failure.problem(&caller.corr_id))
    }

    /// Sends what makes sense; one result each, in order.
    async fn send_all(
        &self,
        asking: &Asking,
        topic: Option<&str>,
        messages: Vec<BatchMessage>,
    ) -> Answer<Vec<Answer<Sent>>> {
        let shared = topic.map(Name::parse).transpose()?;
        let mut results: Vec<Option<Answer<Sent>>> = Vec::with_capacity(messages.len());
        let mut good = Vec::with_capacity(messages.len());
        for mut message in messages {
            let named = match (message.topic.take(), &shared) {
                (Some(own), _) => Name::parse(&own),
                (None, Some(shared)) => Ok(shared.clone()),
                (None, None) => {
                    let message = "a message names no topic";
                    Err(Error::new(ErrorKind::InvalidParameter, message).with_field("topic"))
                }
            };
            let prepared = named.and_then(|mailbox| {
                let message = outgoing(message, &asking.facts);
                let message = message.map_err(|error| error.with_mailbox(&mailbox))?;
                Ok((mailbox, message))
            });
            match prepared {
                Ok(prepared) => {
                    good.push(prepared);
                    results.push(None);
                }
                Err(error) => results.push(Some(Err(error.into()))),
            }
        }
        let mut sent = self.send(&asking.caller, good).await?.into_iter();
        let mut next = || match sent.next() {
            Some(Ok(sent)) => Ok(Sent { msg_id: sent.id.to_string(), duplicate: sent.duplicate }),
            Some(Err(error)) => Err(error.into()),
            None => Err(no_answer()),
        };
        Ok(results.into_iter().map(|result| result.unwrap_or_else(&mut next)).collect())
    }
}

fn no_answer() -> Failure {
    Failure::new(ErrorKind::Internal, "the store gave no answer")
}
