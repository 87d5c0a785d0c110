//! A backend that is two: calls are spread over two processes, so that what one has sent the other
//! receives, and what one has received the other settles.

use std::sync::Arc;

use async_trait::async_trait;
use mailbox::backends::directory::DirectoryBackend;
use mailbox::testing::ManualClock;
use mailbox::{
    Abilities, Backend, Delivery, Figure, Name, Outgoing, Peek, Policy, ReceiveOptions, Record,
    Result, Selection, Sent, Settlement, Stats,
};
use parking_lot::Mutex;

use super::remote::Remote;
use super::wire::{Call, Gave};
use super::{Opening, forms};
use crate::fault::Dice;

/// Two processes on the same inboxes.
#[derive(Debug)]
pub(crate) struct Pair {
    here: Arc<DirectoryBackend>,
    there: Remote,
    route: Mutex<Route>,
}

/// Who does the next one of each operation: turn by turn, and now and then out of turn.
#[derive(Debug)]
struct Route {
    turns: [u64; OPERATIONS],
    dice: Dice,
}

const OPERATIONS: usize = 12;

impl Route {
    /// With seed 0 the first receive is not where the first send was, nor the first verdict where
    /// that receive was, nor a removal where somebody waits. Other seeds have other beginnings.
    fn new(seed: u64) -> Self {
        let turns = std::array::from_fn(|operation| operation as u64 + (seed >> operation & 1));
        Self { turns, dice: Dice(seed) }
    }

    /// Whether this process does the next one.
    fn is_here(&mut self, operation: Operation) -> bool {
        let turn = &mut self.turns[operation as usize];
        *turn += 1;
        turn.is_multiple_of(2) != (self.dice.roll(4) == 0)
    }
}

/// What can be done. Neighbours begin in different processes.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Send,
    Receive,
    Settle,
    Peek,
    Stats,
    Purge,
    Redrive,
    DeleteDead,
    Configure,
    Remove,
    Policy,
    List,
}

impl Pair {
    /// Opens the inboxes in both processes.
    pub(crate) async fn open(opening: Opening, clock: Option<ManualClock>) -> Result<Self> {
        let config = opening.config(clock.as_ref());
        let here = DirectoryBackend::open_with(&opening.path, config).await?;
        let there = Remote::start(opening, clock).await?;
        let route = Mutex::new(Route::new(crate::subject::seed()));
        Ok(Self { here, there, route })
    }

    /// This process's half.
    pub(crate) fn here(&self) -> &DirectoryBackend {
        &self.here
    }

    /// The other process's half.
    pub(crate) const fn there(&self) -> &Remote {
        &self.there
    }

    /// Ends it as a crash would, as far as that is possible for this process.
    pub(crate) async fn crash(&self) {
        self.there.kill();
        // Closing writes nothing.
        let _ = self.here.close().await;
    }

    /// Who is to do it, when everything that was dropped is over: the sooner it is seen that
    /// something is left behind.
    async fn who(&self, operation: Operation) -> &dyn Backend {
        self.there.quiet().await;
        if self.route.lock().is_here(operation) { &*self.here } else { &self.there }
    }
}

#[async_trait]
impl Backend for Pair {
    fn abilities(&self) -> &Abilities {
        self.here.abilities()
    }

    fn address(&self, mailbox: &Name) -> String {
        self.here.address(mailbox)
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.who(Operation::Send).await.send(mailbox, batch).await
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        self.who(Operation::Receive).await.receive(mailbox, options).await
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.who(Operation::Settle).await.settle(mailbox, batch).await
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        self.who(Operation::Peek).await.peek(mailbox, request).await
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        let mut stats = self.who(Operation::Stats).await.stats(mailbox).await?;
        // Each process counts its own.
        let waiters = self.here.stats(mailbox).await?.waiters;
        stats.waiters = waiters + self.there.stats(mailbox).await?.waiters;
        Ok(stats)
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.who(Operation::Purge).await.purge(mailbox).await
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.who(Operation::Redrive).await.redrive(mailbox, which).await
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.who(Operation::DeleteDead).await.delete_dead(mailbox, which).await
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.who(Operation::Configure).await.configure(mailbox, policy).await
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.who(Operation::Policy).await.policy(mailbox).await
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        self.who(Operation::List).await.list(after, limit).await
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.who(Operation::Remove).await.remove(mailbox).await
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        self.there.close().await?;
        self.here.close().await
    }
}

/// The answer, if it is one to this call.
macro_rules! expect {
    ($gave:expr, $form:ident) => {
        match $gave? {
            Gave::$form(it) => Ok(it),
            _ => Err(forms::garbled("something else than was asked")),
        }
    };
}

#[async_trait]
impl Backend for Remote {
    fn abilities(&self) -> &Abilities {
        unreachable!("those of the pair are asked for")
    }

    fn address(&self, mailbox: &Name) -> String {
        mailbox.to_string()
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        let batch = batch.into_iter().map(Into::into).collect();
        let sent = self.call(mailbox.as_str(), Call::Send(mailbox.to_string(), batch)).await;
        let sent = expect!(sent, Sent)?;
        let each = |sent: Result<_, _>| match sent {
            Ok(sent) => Ok(forms::sent_back(&sent)),
            Err(fault) => Err(super::wire::Fault::into(fault)),
        };
        Ok(sent.into_iter().map(each).collect())
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        let ReceiveOptions { max_messages, visibility_timeout, wait, .. } = *options;
        let name = mailbox.to_string();
        let call = Call::Receive { mailbox: name, max_messages, visibility_timeout, wait };
        let deliveries = expect!(self.call(mailbox.as_str(), call).await, Deliveries)?;
        deliveries.into_iter().map(Delivery::try_from).collect()
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        let batch = batch.into_iter().map(forms::settlement).collect();
        let settled = self.call(mailbox.as_str(), Call::Settle(mailbox.to_string(), batch)).await;
        let settled = expect!(settled, Settled)?;
        Ok(settled.into_iter().map(|it| it.map_err(Into::into)).collect())
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        let call = Call::Peek(mailbox.to_string(), forms::peek(request));
        let records = expect!(self.call(mailbox.as_str(), call).await, Records)?;
        records.into_iter().map(Record::try_from).collect()
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        let stats = self.call(mailbox.as_str(), Call::Stats(mailbox.to_string())).await;
        Stats::try_from(*expect!(stats, Stats)?)
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        expect!(self.call(mailbox.as_str(), Call::Purge(mailbox.to_string())).await, Count)
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        let call = Call::Redrive(mailbox.to_string(), forms::selection(which));
        expect!(self.call(mailbox.as_str(), call).await, Count)
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        let call = Call::DeleteDead(mailbox.to_string(), forms::selection(which));
        expect!(self.call(mailbox.as_str(), call).await, Count)
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        let call = Call::Configure(mailbox.to_string(), policy);
        self.call(mailbox.as_str(), call).await.map(drop)
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        expect!(self.call(mailbox.as_str(), Call::Policy(mailbox.to_string())).await, Policy)
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let call = Call::List(after.map(Name::to_string), limit);
        let names = expect!(self.call("", call).await, Names)?;
        names.iter().map(|name| Name::parse(name)).collect()
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        expect!(self.call(mailbox.as_str(), Call::Remove(mailbox.to_string())).await, Yes)
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    async fn close(&self) -> Result<()> {
        self.call("", Call::Close).await.map(drop)
    }
}
