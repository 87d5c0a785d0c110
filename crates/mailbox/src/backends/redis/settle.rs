//! Settling deliveries. A settle that may have taken effect is not tried again: the second one
//! would be refused as expired, and nobody could tell that from a delivery that was lost.

use std::sync::Arc;
use std::time::Duration;

use mailbox_core::{Refusal, Stale, Verdict};

use crate::backend::Settlement;
use crate::backends::redis::Inner;
use crate::backends::redis::answers::Answer;
use crate::backends::redis::planted::Bug;
use crate::backends::redis::receive::integrity;
use crate::backends::redis::scripts::{Argument, Job, Order};
use crate::durability;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// A verdict on a delivery, with its handle in two.
#[derive(Debug, Clone)]
pub(super) struct Settling {
    /// As the server has it: others may have ids that are no text.
    id: Vec<u8>,
    suffix: String,
    verdict: Verdict,
    /// It is not what was sent: a rejection ends it, also if it is too late, unless somebody else
    /// has it.
    is_damaged: bool,
}

impl Settling {
    pub(super) fn damaged(id: Vec<u8>, suffix: String, why: String) -> Self {
        Self { id, suffix, verdict: integrity(why), is_damaged: true }
    }
}

impl From<Settlement> for Settling {
    fn from(Settlement { receipt_handle, verdict }: Settlement) -> Self {
        let handle = receipt_handle.to_string();
        // Without a colon it is no handle of ours: it matches nothing.
        let (id, suffix) = handle.rsplit_once(':').unwrap_or((&handle, ""));
        Self { id: id.as_bytes().to_vec(), suffix: suffix.to_owned(), verdict, is_damaged: false }
    }
}

impl Inner {
    /// Settles a batch, in order.
    pub(super) async fn settle(
        self: &Arc<Self>,
        name: &Name,
        batch: Vec<Settling>,
    ) -> Result<Vec<Result<()>>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let keys = self.keys(name);
        let mut call = self.writing(&keys);
        call.is_repeatable = false;
        if self.config().settle == durability::Settling::Lazy {
            call.confirm = crate::backends::redis::link::Confirm::Nothing;
        }
        let order = |_: Option<Duration>| {
            let mut arguments = self.preamble();
            arguments.reserve(5 * batch.len());
            batch.iter().for_each(|settling| self.put(&mut arguments, settling));
            Order::script(Job::Settle, &keys, arguments)
        };
        let answer = match self.client.call(call, order).await {
            Err(error)
                if error.kind() == ErrorKind::Connection
                    && self.config().planted.has(Bug::DoubtIsDone) =>
            {
                return Ok(batch.iter().map(|_| Ok(())).collect());
            }
            other => other.map_err(|error| error.with_mailbox(name))?,
        };
        let mut answer = Answer::new(answer)?;
        batch.iter().map(|_| Ok(self.read_settled(name, &answer.text()?))).collect()
    }

    fn put(&self, arguments: &mut Vec<Argument>, settling: &Settling) {
        let (word, what, error) = match &settling.verdict {
            Verdict::Acknowledge => ("ack", String::new(), &None),
            Verdict::Nack { delay, error } => ("nack", self.pace.span(*delay).to_string(), error),
            Verdict::Extend { timeout } => ("extend", self.pace.span(*timeout).to_string(), &None),
            Verdict::Reject { reason, error } => {
                let word = if settling.is_damaged { "bury" } else { "reject" };
                (word, reason.as_str().to_owned(), error)
            }
            Verdict::Return => ("return", String::new(), &None),
        };
        let error = error.as_ref().map(|error| format!("={error}")).unwrap_or_default();
        arguments.push(Argument::Bytes(settling.id.clone().into()));
        arguments.push(settling.suffix.as_str().into());
        arguments.push(word.into());
        if !matches!(settling.verdict, Verdict::Acknowledge | Verdict::Return) {
            arguments.push(what.into());
            arguments.push(error.into());
        }
    }

    fn read_settled(&self, name: &Name, answer: &str) -> Result<()> {
        let refusal = match (answer.get(..1), answer.get(1..)) {
            (None, _) => return Ok(()),
            (Some("e"), _) => Refusal::Stale(Stale::Expired),
            (Some("h"), Some(at_most)) => {
                Refusal::HeldTooLong { at_most: self.pace.read(at_most.parse().unwrap_or(0)) }
            }
            _ => Refusal::Stale(Stale::Superseded),
        };
        Err(Error::refused(refusal, name))
    }
}
