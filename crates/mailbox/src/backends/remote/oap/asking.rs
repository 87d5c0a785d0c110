//! A request in flight, for whoever waits for its answer. If nobody does any more it stays in
//! flight; a receive is cancelled, and what it gets all the same is given back.

use std::sync::Arc;
use std::time::Duration;

use mailbox_core::Verdict;
use mailbox_wire::call::{Reply, Request};
use mailbox_wire::json::{Received, SettleBatchRequest};
use mailbox_wire::proto::Asked;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::convert;
use super::super::door::Failed;
use super::super::places::Place;
use super::super::settle::is_own;
use super::answered::Answered;
use super::link::{Link, cut_short};
use crate::backend::Settlement;
use crate::id::ReceiptHandle;
use crate::name::Name;

/// A service that says nothing for this long, although something was asked, may not be there.
const SILENCE: Duration = Duration::from_secs(5);
/// For how long the messages of a receive that nobody waits for are given back. Later than that
/// their deadline brings them back.
const LATE: Duration = Duration::from_secs(60);

/// A request in flight.
pub(super) struct Asking {
    /// Nobody closes it meanwhile.
    link: Arc<Link>,
    id: u64,
    /// Nothing once it is answered, or never will be.
    answer: Option<Waited>,
    asked_at: u64,
    receive: Option<Held>,
    is_cancelled: bool,
}

/// What an answer is waited for with.
type Waited = oneshot::Receiver<Result<Answered, Failed>>;

/// What a receive can get.
pub(super) struct Held {
    /// Of which mailbox; none if its messages are not hidden from others meanwhile.
    mailbox: Option<Name>,
}

impl Held {
    /// If it is a receive.
    pub(super) fn by(asked: &Asked) -> Option<Self> {
        let Asked::Call(Request::Receive(it)) = asked else { return None };
        let mailbox = Name::parse(&it.topic).ok();
        Some(Self { mailbox: mailbox.filter(|_| it.visibility_ms != Some(0)) })
    }
}

impl Asking {
    pub(super) fn new(link: &Arc<Link>, id: u64, answer: Waited, receive: Option<Held>) -> Self {
        let (link, asked_at) = (Arc::clone(link), link.shared.places.now());
        Self { link, id, answer: Some(answer), asked_at, receive, is_cancelled: false }
    }

    /// The answer. To be waited for until it is there.
    pub(super) async fn answer(&mut self) -> Result<Answered, Failed> {
        let Some(waited) = &mut self.answer else { return Err(cut_short()) };
        let answered = waited.await;
        self.answer = None;
        answered.unwrap_or_else(|_| Err(Failed::in_doubt(cut_short().error)))
    }

    /// Asks the service to answer at once.
    pub(super) fn cancel(&mut self) {
        // Once is enough.
        if self.receive.is_some() && !std::mem::replace(&mut self.is_cancelled, true) {
            self.link.shared.flight.lock().cancel(self.id);
            self.link.shared.filled.notify_one();
        }
    }

    /// Nothing new is asked on its connection.
    pub(super) fn retire(&self) {
        self.link.shared.places.retire();
    }

    /// Goes on waiting, for the messages of a receive. If they are there already, their place may
    /// be somebody else's: then also for one to give them back.
    fn wait_on(&mut self, place: Option<Place>, waited: Waited) -> Option<()> {
        let mailbox = self.receive.take()?.mailbox?;
        let runtime = Handle::try_current().ok()?;
        let (link, id) = (Arc::clone(&self.link), self.id);
        runtime.spawn(async move {
            let late = give_back(&link, waited, &mailbox, place);
            if timeout(LATE, late).await.is_err() {
                link.shared.flight.lock().forget(id);
            }
        });
        Some(())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(waited) = self.answer.take() else { return };
        self.cancel();
        let place = self.link.shared.flight.lock().place(self.id);
        let was_in_flight = place.is_some();
        if self.wait_on(place, waited).is_none() {
            self.link.shared.flight.lock().forget(self.id);
        }
        let waited = self.link.shared.places.now().saturating_sub(self.asked_at);
        let is_silent = !self.link.shared.was_heard_after(self.asked_at);
        // Others need not find out for themselves; those who are on it have their own patience.
        if was_in_flight && is_silent && u128::from(waited) >= SILENCE.as_millis() {
            self.retire();
        }
    }
}

/// Gives back the messages of a receive that nobody waits for, on the same connection and in its
/// place. If this fails, their deadline brings them back.
async fn give_back(link: &Arc<Link>, waited: Waited, mailbox: &Name, place: Option<Place>) {
    let Ok(Ok(answered)) = waited.await else { return };
    let Ok(Reply::Received(Received { messages })) = answered.reply() else { return };
    // The last one first, so that they are in line as they were.
    let handles = messages.into_iter().rev().filter_map(|message| message.receipt_handle);
    let back = handles.map(|handle| Settlement {
        receipt_handle: ReceiptHandle::from_text(&handle),
        verdict: Verdict::Return,
    });
    let items: Vec<_> = back.filter(|it| is_own(mailbox, it)).map(convert::settlement).collect();
    if items.is_empty() {
        return;
    }
    let place = match place {
        Some(place) => Some(place),
        None => link.shared.places.take().await,
    };
    let Some(place) = place else { return };
    let request = Request::SettleBatch(SettleBatchRequest { items });
    if let Ok(mut asking) = link.ask(request.into(), place).await {
        let _ = asking.answer().await;
    }
}
