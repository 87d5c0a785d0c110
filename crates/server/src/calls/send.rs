//! Sending.

use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::future::join_all;
use mailbox::{Error, ErrorKind, Name, Outgoing, Result, Sent};
use mailbox_wire::capability::Op;

use super::several::joined;
use crate::auth::Caller;
use crate::failure::{Answer, Failure};
use crate::service::Service;

impl Service {
    /// Sends messages, those of one mailbox in order. One result each.
    ///
    /// # Cancel safety
    /// A send that was begun may have taken effect.
    pub(crate) async fn send(
        &self,
        caller: &Caller,
        batch: Vec<(Name, Outgoing)>,
    ) -> Answer<Vec<Result<Sent>>> {
        self.check_open()?;
        self.store.abilities().check_batch("messages", batch.len())?;
        let mut bytes = 0;
        for (mailbox, message) in &batch {
            let len = message.payload.len() as u64;
            caller.may(Op::Send, Some(mailbox), len)?;
            bytes += len;
        }
        caller.charge(batch.len(), bytes)?;
        Ok(self.send_charged(caller, batch, 1).await)
    }

    /// Sends messages that came each by itself, of a caller whose use nobody counts: what is wrong
    /// with one is nothing to the others. One result each, in order.
    ///
    /// # Cancel safety
    /// A send that was begun may have taken effect.
    pub(crate) async fn send_side_by_side(
        &self,
        caller: &Caller,
        messages: Vec<(Name, Outgoing)>,
    ) -> Vec<Answer<Sent>> {
        let mut good = Vec::with_capacity(messages.len());
        let let_in = messages.into_iter().map(|(mailbox, message)| {
            let bytes = message.payload.len() as u64;
            self.check_open()?;
            caller.may(Op::Send, Some(&mailbox), bytes)?;
            good.push((mailbox, message));
            Ok(())
        });
        let let_in: Vec<Answer<()>> = let_in.collect();
        let calls = good.len();
        let sent = self.send_charged(caller, good, calls).await;
        joined(let_in, sent.into_iter().map(|sent| Ok(sent?)))
    }

    /// Sends what the caller may send, and has paid for if it has to, in so many calls.
    async fn send_charged(
        &self,
        caller: &Caller,
        batch: Vec<(Name, Outgoing)>,
        calls: usize,
    ) -> Vec<Result<Sent>> {
        let started = Instant::now();
        let sizes: Vec<u64> = batch.iter().map(|(_, it)| it.payload.len() as u64).collect();
        let sent = self.send_each(batch).await;
        self.note_sent(&sent);
        for (sent, bytes) in sent.iter().zip(sizes) {
            // What did nothing costs nothing of a quota; what perhaps did something does.
            if sent.as_ref().is_err_and(|error| !is_in_doubt(error)) {
                caller.give_back(1, bytes);
            }
        }
        let took = started.elapsed();
        self.metrics.enqueue.observe_each(calls, took);
        sent
    }

    async fn send_each(&self, batch: Vec<(Name, Outgoing)>) -> Vec<Result<Sent>> {
        let count = batch.len();
        if let Some((mailbox, _)) = batch.first()
            && batch.iter().all(|(other, _)| other == mailbox)
        {
            let mailbox = mailbox.clone();
            let messages = batch.into_iter().map(|(_, message)| message).collect();
            let sent = self.store.send(&mailbox, messages).await;
            return sent.unwrap_or_else(|error| vec![Err(error); count]);
        }
        let mut by_mailbox: BTreeMap<Name, (Vec<usize>, Vec<Outgoing>)> = BTreeMap::new();
        for (at, (mailbox, message)) in batch.into_iter().enumerate() {
            let (places, messages) = by_mailbox.entry(mailbox).or_default();
            places.push(at);
            messages.push(message);
        }
        let sends = by_mailbox.into_iter().map(|(mailbox, (places, messages))| async move {
            (places, self.store.send(&mailbox, messages).await)
        });
        let mut results: Vec<Option<Result<Sent>>> = (0..count).map(|_| None).collect();
        for (places, sent) in join_all(sends).await {
            match sent {
                Ok(sent) => {
                    for (at, sent) in places.into_iter().zip(sent) {
                        results[at] = Some(sent);
                    }
                }
                // What concerns all of a mailbox's messages concerns each of them.
                Err(error) => places.iter().for_each(|at| results[*at] = Some(Err(error.clone()))),
            }
        }
        let missing = || Err(Failure::no_answer().error);
        results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
    }
}

/// Whether the message may be in the store all the same.
fn is_in_doubt(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Connection | ErrorKind::Internal)
}
