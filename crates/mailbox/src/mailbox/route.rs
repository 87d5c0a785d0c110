//! The two ways from a typed mailbox to its messages: through a codec to a backend of bytes, or
//! straight to a queue of bodies in this process.

use std::sync::Arc;

use bytes::Bytes;
use mailbox_core::Policy;

use crate::abilities::Abilities;
use crate::backend::{
    Backend, Delivery, Letter, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
use crate::backends::memory::check_peek;
use crate::codec::Codec;
use crate::contents::{Contents, LocalBody, guarded};
use crate::error::{Error, ErrorKind, Result};
use crate::home::keep::InMemory;
use crate::home::room::Room;
use crate::mailbox::{Mailbox, outgoing};
use crate::message::{Message, Peeked};
use crate::name::Name;
use crate::options::{ReceiveOptions, ReplyTo, SendOptions};

pub(crate) enum Route<T, R> {
    Encoded(Encoded<T>),
    Local(Local<T, R>),
}

pub(crate) struct Encoded<T> {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) codec: Arc<dyn Codec<T>>,
    /// The backend was opened for this mailbox alone, and is closed with it.
    pub(crate) owned: bool,
}

pub(crate) struct Local<T, R> {
    pub(crate) room: Arc<Room<InMemory<LocalBody<T, R>>>>,
    pub(crate) abilities: Arc<Abilities>,
}

impl<T, R> Route<T, R>
where
    T: Send + Sync + 'static,
    R: Send + Sync + 'static,
{
    pub(crate) fn abilities(&self) -> &Abilities {
        match self {
            Self::Encoded(encoded) => encoded.backend.abilities(),
            Self::Local(local) => &local.abilities,
        }
    }

    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    pub(crate) async fn send_one(
        &self,
        name: &Name,
        body: T,
        options: SendOptions<R>,
    ) -> Result<Sent> {
        match self {
            Self::Local(local) => local.send(name, body, options),
            Self::Encoded(encoded) => {
                let message = encoded.outgoing(name, &body, options)?;
                only(encoded.backend.send(name, vec![message]).await?, name)
            }
        }
    }

    pub(crate) async fn send_many(
        &self,
        name: &Name,
        batch: Vec<(T, SendOptions<R>)>,
    ) -> Result<Vec<Result<Sent>>> {
        let checked = self.abilities().check_batch("batch", batch.len());
        checked.map_err(|error| error.with_mailbox(name))?;
        match self {
            Self::Local(local) => {
                // As a whole, as a backend would: a batch of nothing has no message to say it.
                local.room.check_open()?;
                let send = |(body, options)| local.send(name, body, options);
                Ok(batch.into_iter().map(send).collect())
            }
            Self::Encoded(encoded) => encoded.send_many(name, batch).await,
        }
    }

    pub(crate) async fn receive(
        &self,
        mailbox: &Mailbox<T, R>,
        options: &ReceiveOptions,
    ) -> Result<Vec<Message<T, R>>> {
        // Nothing may be awaited between getting deliveries and giving them to the caller.
        match self {
            Self::Local(local) => {
                local.check(local.abilities.check_receive(options))?;
                let deliveries = local.room.receive(options).await?;
                let message = |delivery: Delivery<LocalBody<T, R>>| {
                    let Delivery { id, letter, receipt_handle, delivery_count } = delivery;
                    mailbox.message(id, receipt_handle, delivery_count, Contents::Local(letter))
                };
                Ok(deliveries.into_iter().map(message).collect())
            }
            Self::Encoded(encoded) => {
                let deliveries = encoded.backend.receive(mailbox.name(), options).await?;
                let message = |delivery: Delivery| {
                    let Delivery { id, letter, receipt_handle, delivery_count } = delivery;
                    let contents = Contents::decode(letter, &*encoded.codec, mailbox.name());
                    mailbox.message(id, receipt_handle, delivery_count, contents)
                };
                Ok(deliveries.into_iter().map(message).collect())
            }
        }
    }

    pub(crate) async fn settle_one(&self, name: &Name, settlement: Settlement) -> Result<()> {
        match self {
            Self::Local(local) => local.settle(settlement),
            Self::Encoded(encoded) => {
                only(encoded.backend.settle(name, vec![settlement]).await?, name)
            }
        }
    }

    pub(crate) async fn settle(
        &self,
        name: &Name,
        batch: Vec<Settlement>,
    ) -> Result<Vec<Result<()>>> {
        match self {
            Self::Encoded(encoded) => encoded.backend.settle(name, batch).await,
            Self::Local(local) => {
                local.check(local.abilities.check_batch("batch", batch.len()))?;
                local.room.check_open()?;
                Ok(batch.into_iter().map(|settlement| local.settle(settlement)).collect())
            }
        }
    }

    pub(crate) async fn peek(&self, name: &Name, request: &Peek) -> Result<Vec<Peeked<T, R>>> {
        match self {
            Self::Encoded(encoded) => {
                let decode = |letter: &Arc<Letter>| {
                    Contents::decode(Arc::clone(letter), &*encoded.codec, name)
                };
                let records = encoded.backend.peek(name, request).await?;
                Ok(records.into_iter().map(|record| peeked(record, decode)).collect())
            }
            Self::Local(local) => {
                local.check(check_peek(&local.abilities, request))?;
                let records = local.room.peek(request)?;
                let local = |letter: &Arc<_>| Contents::Local(Arc::clone(letter));
                Ok(records.into_iter().map(|record| peeked(record, local)).collect())
            }
        }
    }

    pub(crate) async fn stats(&self, name: &Name) -> Result<Stats> {
        match self {
            Self::Encoded(encoded) => encoded.backend.stats(name).await,
            Self::Local(local) => local.room.stats(),
        }
    }

    pub(crate) async fn purge(&self, name: &Name) -> Result<u64> {
        match self {
            Self::Encoded(encoded) => encoded.backend.purge(name).await,
            Self::Local(local) => local.room.purge().map(|(purged, _)| purged),
        }
    }

    pub(crate) async fn redrive(&self, name: &Name, which: &Selection) -> Result<u64> {
        match self {
            Self::Encoded(encoded) => encoded.backend.redrive(name, which).await,
            Self::Local(local) => local.room.redrive(&mut &*local.room.dead_keys(which)?),
        }
    }

    pub(crate) async fn delete_dead(&self, name: &Name, which: &Selection) -> Result<u64> {
        match self {
            Self::Encoded(encoded) => encoded.backend.delete_dead(name, which).await,
            Self::Local(local) => local.room.delete_dead(&mut &*local.room.dead_keys(which)?),
        }
    }

    pub(crate) async fn configure(&self, name: &Name, policy: Policy) -> Result<()> {
        match self {
            Self::Encoded(encoded) => encoded.backend.configure(name, policy).await,
            Self::Local(local) => {
                local.check(local.abilities.check_policy(&policy))?;
                local.room.configure(policy).map(drop)
            }
        }
    }

    pub(crate) async fn policy(&self, name: &Name) -> Result<Policy> {
        match self {
            Self::Encoded(encoded) => encoded.backend.policy(name).await,
            Self::Local(local) => local.room.policy(),
        }
    }

    pub(crate) async fn close(&self) -> Result<()> {
        match self {
            Self::Encoded(encoded) if encoded.owned => encoded.backend.close().await,
            Self::Encoded(_) => Ok(()),
            Self::Local(local) => {
                local.room.end(ErrorKind::Closed);
                Ok(())
            }
        }
    }
}

impl<T: 'static> Encoded<T> {
    fn outgoing<R>(
        &self,
        name: &Name,
        body: &T,
        mut options: SendOptions<R>,
    ) -> Result<Outgoing<Bytes>> {
        let payload = guarded("encoding", || self.codec.encode(body));
        let payload = payload.map_err(|error| error.with_mailbox(name))?;
        if let Some(ReplyTo::Mailbox(replies)) = &options.reply_to
            && !replies.inner.addressable
        {
            let message = "a local mailbox has no address that could be written as reply_to: \
                           use one on a backend, or give it one with with_identifier and the \
                           receiver a resolver that knows it";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_mailbox(name)
                .with_field("reply_to"));
        }
        let mut message = outgoing(payload, &mut options);
        // On the same backend the name alone is enough, and others may read nothing but names.
        if let Some(ReplyTo::Mailbox(replies)) = &options.reply_to
            && let Route::Encoded(other) = &replies.inner.route
            && Arc::ptr_eq(&other.backend, &self.backend)
            && replies.inner.identifier == self.backend.address(&replies.inner.name)
        {
            message.reply_to = Some(replies.inner.name.to_string());
        }
        Ok(message)
    }

    async fn send_many<R>(
        &self,
        name: &Name,
        batch: Vec<(T, SendOptions<R>)>,
    ) -> Result<Vec<Result<Sent>>>
    where
        T: Send + Sync + 'static,
        R: Send + Sync + 'static,
    {
        let encoded: Vec<_> =
            batch.into_iter().map(|(body, options)| self.outgoing(name, &body, options)).collect();
        let good = encoded.iter().filter_map(|message| message.as_ref().ok().cloned()).collect();
        let mut results = self.backend.send(name, good).await?.into_iter();
        let outcome = |message: Result<_>| match message {
            Ok(_) => results.next().unwrap_or_else(|| Err(no_result(name))),
            Err(error) => Err(error),
        };
        Ok(encoded.into_iter().map(outcome).collect())
    }
}

impl<T, R> Local<T, R>
where
    T: Send + Sync + 'static,
    R: Send + Sync + 'static,
{
    fn send(&self, name: &Name, body: T, mut options: SendOptions<R>) -> Result<Sent> {
        // A mailbox goes along itself; only an identifier is written down.
        let reply_to = match options.reply_to.take() {
            Some(ReplyTo::Mailbox(mailbox)) => Some(mailbox),
            identifier => {
                options.reply_to = identifier;
                None
            }
        };
        let message = outgoing(LocalBody { body, reply_to }, &mut options);
        self.abilities.check_send(&message, 0).map_err(|error| error.with_mailbox(name))?;
        let packed = self.room.pack(message, None)?;
        self.room.send(&packed, packed.at()).map(|(sent, _)| sent)
    }

    fn settle(&self, settlement: Settlement) -> Result<()> {
        self.check(self.abilities.check_verdict(&settlement.verdict))?;
        self.room.settle(settlement).map(drop)
    }

    fn check(&self, checked: Result<()>) -> Result<()> {
        checked.map_err(|error| error.with_mailbox(&self.room.name))
    }
}

impl<T, R> Clone for Route<T, R> {
    fn clone(&self) -> Self {
        match self {
            Self::Encoded(encoded) => Self::Encoded(Encoded {
                backend: Arc::clone(&encoded.backend),
                codec: Arc::clone(&encoded.codec),
                owned: encoded.owned,
            }),
            Self::Local(local) => Self::Local(Local {
                room: Arc::clone(&local.room),
                abilities: Arc::clone(&local.abilities),
            }),
        }
    }
}

fn peeked<B, T, R>(
    record: Record<B>,
    contents: impl Fn(&Arc<Letter<B>>) -> Contents<T, R>,
) -> Peeked<T, R> {
    Peeked {
        contents: contents(&record.letter),
        id: record.id,
        phase: record.phase,
        delivery_count: record.delivery_count,
        receivable_in: record.receivable_in,
        last_error: record.last_error,
        death: record.death,
    }
}

fn only<A>(results: Vec<Result<A>>, name: &Name) -> Result<A> {
    results.into_iter().next().unwrap_or_else(|| Err(no_result(name)))
}

fn no_result(name: &Name) -> Error {
    let message = "the backend gave fewer results than it was given items";
    Error::new(ErrorKind::Internal, message).with_mailbox(name)
}
