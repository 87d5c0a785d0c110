//! Sending. Every message has its id before it is first sent, and a server that has seen the id
//! does nothing again: so a send whose answer is lost is tried again without sending twice.

use std::sync::Arc;
use std::time::Duration;

use mailbox_core::{Id, Refusal};
use redis::Value;

use crate::backend::{Outgoing, Sent};
use crate::backends::redis::Inner;
use crate::backends::redis::answers::{Answer, unexpected};
use crate::backends::redis::letter;
use crate::backends::redis::planted::Bug;
use crate::backends::redis::scripts::{Argument, Job, Order};
use crate::error::{Error, Result};
use crate::home::random;
use crate::id::MessageId;
use crate::name::Name;

impl Inner {
    /// Sends a batch, in order; those that were refused before keep their place.
    pub(super) async fn send(
        self: &Arc<Self>,
        name: &Name,
        batch: Vec<Result<Outgoing>>,
    ) -> Result<Vec<Result<Sent>>> {
        self.check_room(name).await?;
        let wall = self.wall();
        let mut messages = Vec::with_capacity(batch.len());
        let drafted: Vec<Result<MessageId>> = batch
            .into_iter()
            .map(|message| {
                let message = message?;
                let millis = u64::try_from(wall.as_unix_millis()).unwrap_or(0);
                let id = new_id(millis);
                messages.push((id.clone(), message));
                Ok(id)
            })
            .collect();
        if messages.is_empty() {
            return Ok(drafted.into_iter().map(|one| one.map(|id| Sent::new(id, false))).collect());
        }
        let keys = self.keys(name);
        // With an offset in digits: older readers of Python know no `Z`.
        let enqueued = wall.to_string().replace('Z', "+00:00");
        let (count, capacity) = (messages.len().to_string(), 2 + 4 * messages.len());
        let is_forgetful = self.config().planted.has(Bug::NewIdOnRetry);
        let order = |tried: Option<Duration>| {
            let mut arguments = self.preamble();
            arguments.reserve(capacity);
            arguments.push(enqueued.as_str().into());
            arguments.push(count.as_str().into());
            for (id, message) in &messages {
                let id = match tried {
                    Some(_) if is_forgetful => new_id(0).to_string(),
                    _ => id.to_string(),
                };
                self.put_message(&mut arguments, id, message);
            }
            Order::script(Job::Send, &keys, arguments)
        };
        let answer = self.client.call(self.writing(&keys), order).await;
        let answer = Answer::new(answer.map_err(|error| error.with_mailbox(name))?)?;
        self.read_sent(name, drafted, answer)
    }

    fn put_message(&self, arguments: &mut Vec<Argument>, id: String, message: &Outgoing) {
        arguments.push(id.into());
        arguments.push(message.payload.clone().into());
        arguments.push(letter::beside(message).into());
        // What follows; few messages have any of it.
        let (at, mut word) = (arguments.len(), String::new());
        arguments.push("".into());
        if let Some(reply_to) = &message.reply_to {
            word.push('r');
            arguments.push(reply_to.as_str().into());
        }
        if !message.delay.is_zero() {
            word.push('d');
            arguments.push(self.pace.span(message.delay).to_string().into());
        }
        if let Some(key) = message.idempotency_key.as_deref().filter(|key| !key.is_empty()) {
            word.push('k');
            arguments.push(key.into());
            arguments.push(letter::hash(&message.payload).into());
        }
        if let Some(group) = message.group.as_deref().filter(|group| !group.is_empty()) {
            word.push('g');
            arguments.push(group.into());
        }
        arguments[at] = word.into();
    }

    fn read_sent(
        &self,
        name: &Name,
        drafted: Vec<Result<MessageId>>,
        mut answer: Answer,
    ) -> Result<Vec<Result<Sent>>> {
        let mut results = Vec::with_capacity(drafted.len());
        for draft in drafted {
            let result = match draft {
                Err(error) => Err(error),
                Ok(id) => self.read_one(name, id, &answer.text()?)?,
            };
            results.push(result);
        }
        Ok(results)
    }

    fn read_one(&self, name: &Name, id: MessageId, answer: &str) -> Result<Result<Sent>> {
        let refusal = match (answer.get(..1), answer.get(1..)) {
            (None, _) => return Ok(Ok(Sent::new(id, false))),
            (Some("d"), Some(first)) => {
                return Ok(Ok(Sent::new(MessageId::from_text(first), true)));
            }
            (Some("t"), _) => Refusal::KeyTaken { first: Id(0) },
            (Some("f"), Some(most)) => Refusal::Full { max_size: most.parse().unwrap_or(0) },
            (Some("k"), Some(rest)) => {
                let (capacity, after) = rest.split_once(' ').unwrap_or((rest, "0"));
                Refusal::DedupFull {
                    capacity: capacity.parse().unwrap_or(0),
                    retry_after: self.pace.read(after.parse().unwrap_or(0)),
                }
            }
            _ => return Err(unexpected("a word that scripts do not have")),
        };
        Ok(Err(Error::refused(refusal, name)))
    }
}

/// An id that no other message has: 80 random bits behind the time.
fn new_id(millis: u64) -> MessageId {
    let mut bytes = [0; 16];
    bytes[6..].copy_from_slice(&random::<10>());
    let random = u128::from_be_bytes(bytes);
    MessageId::from(Id(u128::from(millis & ((1 << 48) - 1)) << 80 | random))
}

/// Whether an answer says that something was done.
pub(super) fn is_true(value: &Value) -> bool {
    matches!(value, Value::Int(count) if *count > 0)
}
