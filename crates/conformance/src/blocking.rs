//! Every call through `mailbox::blocking`, on a thread that may block: shows that the facade
//! promises what the async mailbox does.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use mailbox::blocking::{Mailbox, Message};
use mailbox::{
    Abilities, Backend, Delivery, Error, ErrorKind, Figure, Letter, Name, Outgoing, Peek, Peeked,
    Policy, Raw, ReceiveOptions, Record, ReplyTo, Result, Selection, SendOptions, Sent, Settlement,
    Stats,
};
use tokio::sync::oneshot;

/// A backend that reaches another one through blocking mailboxes. Listing and removing mailboxes,
/// which a mailbox has no method for, go straight through.
#[derive(Debug)]
pub(crate) struct Bridge {
    inner: Arc<dyn Backend>,
}

impl Bridge {
    pub(crate) fn new(inner: Arc<dyn Backend>) -> Self {
        Self { inner }
    }

    fn mailbox(&self, name: &Name) -> Mailbox<Bytes> {
        Mailbox::with_codec(Arc::clone(&self.inner), name.clone(), Raw)
    }

    /// Calls on a thread that may block.
    async fn call<T, F>(&self, name: &Name, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Mailbox<Bytes>) -> Result<T> + Send + 'static,
    {
        let mailbox = self.mailbox(name);
        let called = tokio::task::spawn_blocking(move || call(mailbox));
        called.await.unwrap_or_else(|error| Err(thread_ended(error)))
    }
}

#[async_trait]
impl Backend for Bridge {
    fn abilities(&self) -> &Abilities {
        self.inner.abilities()
    }

    fn address(&self, mailbox: &Name) -> String {
        self.inner.address(mailbox)
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        let batch = batch.into_iter().map(parts).collect();
        self.call(mailbox, move |mailbox| mailbox.send_batch(batch)).await
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        let (mailbox, options) = (self.mailbox(mailbox), options.clone());
        let (answer, answered) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            // The thread cannot be cancelled; whoever waited for it can. Then nobody has got these.
            if let Err(Ok(unwanted)) = answer.send(mailbox.receive_with(options)) {
                for message in unwanted {
                    // If it fails, the deadline brings the message back.
                    let _ = message.undo_delivery();
                }
            }
        });
        let received = answered.await.unwrap_or_else(|error| Err(thread_ended(error)))?;
        Ok(received.into_iter().map(delivery).collect())
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.call(mailbox, move |mailbox| mailbox.settle_batch(batch)).await
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        let request = request.clone();
        let seen = self.call(mailbox, move |mailbox| mailbox.peek(request)).await?;
        Ok(seen.iter().map(record).collect())
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        self.call(mailbox, |mailbox| mailbox.stats()).await
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.call(mailbox, |mailbox| mailbox.purge()).await
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        let which = which.clone();
        self.call(mailbox, move |mailbox| mailbox.redrive(which)).await
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        let which = which.clone();
        self.call(mailbox, move |mailbox| mailbox.delete_dead(which)).await
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.call(mailbox, move |mailbox| mailbox.configure(policy)).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.call(mailbox, |mailbox| mailbox.policy()).await
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.inner.list(after, limit).await
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.inner.remove(mailbox).await
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

fn thread_ended(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Internal, "a blocking call ended without an answer").with_source(error)
}

/// What is sent, as a mailbox takes it.
fn parts(outgoing: Outgoing) -> (Bytes, SendOptions) {
    let mut options = SendOptions::new().with_delay(outgoing.delay);
    options.attributes = outgoing.attributes;
    options.reply_to = outgoing.reply_to.map(ReplyTo::Identifier);
    options.idempotency_key = outgoing.idempotency_key;
    options.group = outgoing.group;
    (outgoing.payload, options)
}

fn delivery(message: Message<Bytes>) -> Delivery {
    Delivery {
        id: message.id().clone(),
        receipt_handle: message.receipt_handle().clone(),
        delivery_count: message.delivery_count(),
        letter: Arc::new(Letter {
            payload: message.payload().cloned().unwrap_or_default(),
            attributes: message.attributes().clone(),
            reply_to: message.reply_to().map(str::to_owned),
            idempotency_key: message.idempotency_key().map(str::to_owned),
            group: message.group().map(str::to_owned),
            enqueued_at: message.enqueued_at(),
        }),
    }
}

fn record(seen: &Peeked<Bytes>) -> Record {
    Record {
        id: seen.id().clone(),
        letter: Arc::new(Letter {
            payload: seen.payload().cloned().unwrap_or_default(),
            attributes: seen.attributes().clone(),
            reply_to: seen.reply_to().map(str::to_owned),
            // A mailbox does not show these to those who only look.
            idempotency_key: None,
            group: None,
            enqueued_at: seen.enqueued_at(),
        }),
        phase: seen.phase(),
        delivery_count: seen.delivery_count(),
        receivable_in: seen.receivable_in(),
        last_error: seen.last_error().map(str::to_owned),
        death: seen.death().copied(),
    }
}
