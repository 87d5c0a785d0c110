//! Messages to send, as the wire has them.

use std::sync::Arc;

use mailbox::{Error, ErrorKind, Name, Outgoing};
use mailbox_wire::call::Reply;
use mailbox_wire::capability::Op;
use mailbox_wire::json::{
    BatchMessage, BatchResult, Problem, SendBatchRequest, SendRequest, Sent, SentBatch,
};

use super::answer::{Answered, Asking, results_take};
use super::several::joined;
use super::{Facts, HandOver, outgoing};
use crate::auth::Caller;
use crate::failure::{Answer, Failure};
use crate::service::Service;

impl Service {
    /// Sends one message.
    pub(super) async fn send_one(&self, asking: &Asking, message: SendRequest) -> Answer<Sent> {
        let mut sent = self.send_all(asking, None, vec![message.into()]).await?;
        let sent = sent.pop().ok_or_else(Failure::no_answer)??;
        if sent.duplicate && asking.facts.is_conflict {
            let failure = Failure::new(ErrorKind::Duplicate, "this message was sent before");
            return Err(Failure { msg_id: Some(sent.msg_id), ..failure });
        }
        Ok(sent)
    }

    /// Sends several.
    pub(super) async fn send_batch(
        self: &Arc<Self>,
        asking: &Asking,
        batch: SendBatchRequest,
    ) -> Answer<Answered> {
        // Also those that make no sense are work, and are answered.
        self.store.abilities().check_batch("messages", batch.messages.len())?;
        let mut room = self.room_for_results(&asking.caller, batch.messages.len())?;
        let sent = self.send_all(asking, batch.topic.as_deref(), batch.messages).await?;
        room.shrink(results_take(&sent));
        let result = |sent: Answer<Sent>| match sent {
            Ok(sent) => BatchResult::Sent(sent),
            Err(failure) => {
                BatchResult::Refused { error: self.problem_of(&asking.caller, &failure) }
            }
        };
        let reply = Reply::SentBatch(SentBatch { results: sent.into_iter().map(result).collect() });
        Ok(Answered::Messages(reply, HandOver::of_nothing(self, room)))
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
        // Before they are looked at, or repeated in an error.
        asking.caller.may_some(Op::Send)?;
        let shared = topic.map(Name::parse).transpose()?;
        let (good, made_sense) = prepared(messages, shared.as_ref(), &asking.facts);
        let senseless = made_sense.iter().filter(|it| it.is_err()).count();
        let results = self.send(&asking.caller, good).await?;
        if senseless > 0 {
            // Of a rate they take what others take, once the others have got through; of a quota
            // nothing, as nothing was sent.
            asking.caller.count(senseless, 0);
            asking.caller.give_back(senseless, 0);
        }
        Ok(joined(made_sense, results.into_iter().map(|result| Ok(sent(result?)))))
    }

    /// Sends what came each by itself. One answer each, in order.
    pub(super) async fn send_alike(
        &self,
        caller: &Caller,
        messages: Vec<SendRequest>,
    ) -> Vec<Answer<Sent>> {
        if let Err(failure) = caller.may_some(Op::Send) {
            return vec![Err(failure); messages.len()];
        }
        let messages = messages.into_iter().map(BatchMessage::from).collect();
        let (good, made_sense) = prepared(messages, None, &Facts::default());
        let results = self.send_side_by_side(caller, good).await;
        joined(made_sense, results.into_iter().map(|result| result.map(sent)))
    }
}

/// The messages that make sense, and for each of all whether it is among them.
fn prepared(
    messages: Vec<BatchMessage>,
    shared: Option<&Name>,
    facts: &Facts,
) -> (Vec<(Name, Outgoing)>, Vec<Answer<()>>) {
    let mut good = Vec::with_capacity(messages.len());
    let prepare = |mut message: BatchMessage| -> Result<(Name, Outgoing), Error> {
        let mailbox = match (message.topic.take(), shared) {
            (Some(own), _) => Name::parse(&own)?,
            (None, Some(shared)) => shared.clone(),
            (None, None) => {
                let message = "a message names no topic";
                let error = Error::new(ErrorKind::InvalidParameter, message);
                return Err(error.with_field("topic"));
            }
        };
        let message = outgoing(message, facts).map_err(|error| error.with_mailbox(&mailbox))?;
        Ok((mailbox, message))
    };
    let read = messages.into_iter().map(|message| Ok(prepare(message).map(|it| good.push(it))?));
    let made_sense = read.collect();
    (good, made_sense)
}

fn sent(sent: mailbox::Sent) -> Sent {
    Sent { msg_id: sent.id.to_string(), duplicate: sent.duplicate }
}
