//! The backend behind every double: a memory backend with a switch that cuts it off, and a choice
//! of what becomes of a send. Invariant: a call that the switch makes fail changes nothing, except
//! that `close` closes.

use std::future::{Future, pending};
use std::sync::Arc;

use async_trait::async_trait;
use mailbox_core::{Id, Policy};
use tokio::sync::watch;
use uuid::Uuid;

use crate::abilities::Abilities;
use crate::backend::{
    Backend, Delivery, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
use crate::backends::memory::{MemoryBackend, MemoryConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::figure::Figure;
use crate::home::clock::Clock;
use crate::id::MessageId;
use crate::name::Name;
use crate::options::ReceiveOptions;
use crate::testing::log::Log;

#[derive(Debug)]
pub(crate) struct StandIn {
    /// The mailbox that the double is.
    pub(crate) name: Name,
    pub(crate) memory: Arc<MemoryBackend>,
    pub(crate) sends: Sends,
    fault: watch::Sender<Option<Error>>,
}

/// What becomes of a message that is sent.
#[derive(Debug)]
pub(crate) enum Sends {
    Delivered,
    Dropped,
    /// Delivered, and noted if it was sent to the double itself.
    Noted(Arc<Log>),
}

impl StandIn {
    pub(crate) fn new(name: Name, clock: Clock, sends: Sends) -> Result<Arc<Self>> {
        let memory = MemoryBackend::with_config(MemoryConfig::default().with_clock(clock))?;
        let fault = watch::Sender::new(None);
        let stand_in = Arc::new(Self { name, memory, sends, fault });
        let front: Arc<dyn Backend> = Arc::<Self>::clone(&stand_in);
        stand_in.memory.stand_behind(Arc::downgrade(&front));
        Ok(stand_in)
    }

    /// Makes every call fail from now on, those that wait included.
    pub(crate) fn set_connection_error(&self, message: String) {
        let error = Error::new(ErrorKind::Connection, message).with_mailbox(&self.name);
        self.fault.send_replace(Some(error));
    }

    pub(crate) fn clear_connection_error(&self) {
        self.fault.send_replace(None);
    }

    /// What lies behind, unless it is cut off.
    fn reach(&self) -> Result<&MemoryBackend> {
        match &*self.fault.borrow() {
            Some(error) => Err(error.clone()),
            None => Ok(&self.memory),
        }
    }

    /// Ends when it is cut off.
    fn cut_off(&self) -> impl Future<Output = Error> + Send {
        let mut fault = self.fault.subscribe();
        async move {
            let error = fault.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
            match error {
                Some(error) => error,
                None => pending().await,
            }
        }
    }

    async fn drop_all(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        let memory = self.reach()?;
        let abilities = memory.abilities();
        abilities.check_batch("batch", batch.len())?;
        // Nothing is refused for the reasons that these would be, and leaves nothing behind.
        memory.send(mailbox, Vec::new()).await?;
        let sent = |message: Outgoing| {
            abilities
                .check_send(&message, message.payload.len())
                .map_err(|error| error.with_mailbox(mailbox))?;
            // As a ULID, the first 48 bits are milliseconds.
            Ok(Sent::new(MessageId::from(Id(Uuid::now_v7().as_u128())), false))
        };
        Ok(batch.into_iter().map(sent).collect())
    }

    async fn note_all(
        &self,
        log: &Log,
        mailbox: &Name,
        batch: Vec<Outgoing>,
    ) -> Result<Vec<Result<Sent>>> {
        let memory = self.reach()?;
        memory.abilities().check_batch("batch", batch.len())?;
        let mut results = Vec::with_capacity(batch.len());
        for message in batch {
            let place = match log.reserve(mailbox) {
                Ok(place) => place,
                Err(full) => {
                    results.push(Err(full));
                    continue;
                }
            };
            let result = memory.send(mailbox, vec![message.clone()]).await?.pop();
            if let Some(Ok(sent)) = &result
                && !sent.duplicate
            {
                place.fill(sent.id.clone(), message);
            }
            results.extend(result);
        }
        Ok(results)
    }
}

#[async_trait]
impl Backend for StandIn {
    fn abilities(&self) -> &Abilities {
        self.memory.abilities()
    }

    fn address(&self, mailbox: &Name) -> String {
        self.memory.address(mailbox)
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        match &self.sends {
            Sends::Dropped => self.drop_all(mailbox, batch).await,
            Sends::Noted(log) if *mailbox == self.name => self.note_all(log, mailbox, batch).await,
            Sends::Noted(_) | Sends::Delivered => self.reach()?.send(mailbox, batch).await,
        }
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        // A receive that has got messages has ended, so none is lost by dropping one that has not.
        tokio::select! {
            biased;
            error = self.cut_off() => Err(error),
            received = self.memory.receive(mailbox, options) => received,
        }
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.reach()?.settle(mailbox, batch).await
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        self.reach()?.peek(mailbox, request).await
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        self.reach()?.stats(mailbox).await
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.reach()?.purge(mailbox).await
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.reach()?.redrive(mailbox, which).await
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.reach()?.delete_dead(mailbox, which).await
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.reach()?.configure(mailbox, policy).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.reach()?.policy(mailbox).await
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.reach()?.list(after, limit).await
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.reach()?.remove(mailbox).await
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        let closed = self.memory.close().await;
        self.reach()?;
        closed
    }
}
