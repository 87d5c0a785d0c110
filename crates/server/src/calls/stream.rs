//! A receive that goes on until the client leaves. Invariant: no more is in flight on a stream than
//! the client said it can take; when it leaves, what it has not settled is given back. If it is the
//! service that ends it, also because nothing is taken, what the client has stays with the client
//! until its deadline: it may be at work on it.

use std::sync::Arc;
use std::time::Duration;

use mailbox::{ErrorKind, Settlement, Verdict};
use mailbox_wire::capability::{Op, Refused};
use mailbox_wire::json::Envelope;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::Handle;
use super::receive::{Asked, HandOver};
use crate::admission::WaitingPlace;
use crate::auth::Caller;
use crate::failure::Answer;
use crate::handouts::StreamId;
use crate::listen::Cut;
use crate::service::Service;

/// How often places are looked for that became free because deadlines have passed.
const LOOK: Duration = Duration::from_secs(1);
/// Messages of a stream that are remembered before those that were settled are forgotten.
const REMEMBERED: usize = 1024;

/// A receive that goes on.
#[derive(Debug)]
pub(crate) struct Stream {
    service: Arc<Service>,
    caller: Caller,
    asked: Asked,
    id: StreamId,
    /// One place for each delivery that may be in flight.
    allowance: Arc<Semaphore>,
    /// What went out, and may not be settled.
    out: Vec<String>,
    /// The client has not left, and can settle what it has.
    is_ended: bool,
    /// Nor has it if it is cut off from here.
    cut: Cut,
    /// Its place among receives that wait, as long as it is kept: that bounds how many are.
    _waiting: WaitingPlace,
}

/// What comes next on a stream.
#[derive(Debug)]
pub(crate) enum Next {
    /// These; whoever writes them says when that is done.
    Messages(Vec<Envelope>, HandOver),
    /// Nothing for a while: a sign of life.
    Quiet,
}

impl Stream {
    pub(crate) fn open(service: &Arc<Service>, caller: Caller, asked: Asked) -> Answer<Self> {
        service.check_open()?;
        caller.may(Op::Receive, Some(&asked.mailbox), 0)?;
        let waiting = service.admission.waiting(&caller.verified.token_id)?;
        caller.charge(1, 0)?;
        Ok(Self {
            id: service.handouts.new_stream(),
            allowance: Arc::new(Semaphore::new(asked.max_messages as usize)),
            out: Vec::new(),
            is_ended: false,
            cut: Cut::default(),
            _waiting: waiting,
            service: Arc::clone(service),
            caller,
            asked,
        })
    }

    /// The same, on a connection that can be cut off.
    pub(crate) fn until(mut self, cut: Cut) -> Self {
        self.cut = cut;
        self
    }

    /// What comes next, for one who writes it at once: as many as the client can take.
    ///
    /// # Errors
    /// As [`next_few`](Self::next_few).
    ///
    /// # Cancel safety
    /// Dropped, it holds nothing.
    pub(crate) async fn next(&mut self) -> Answer<Next> {
        self.next_few(usize::MAX).await
    }

    /// What comes next, for one who writes no more than so many at a time: those that would have to
    /// wait stay where others can receive them, and whether they may go out is asked when they do.
    ///
    /// # Errors
    /// Why the stream is over: the service stops, the capability is not good any more or used up,
    /// the store fails.
    ///
    /// # Cancel safety
    /// Dropped, it holds nothing.
    pub(crate) async fn next_few(&mut self, most: usize) -> Answer<Next> {
        let heartbeat = Instant::now() + self.service.settings().timeouts.heartbeat;
        loop {
            let next = match self.some(heartbeat, most).await {
                Ok(None) => {
                    let is_due = Instant::now() >= heartbeat;
                    self.check().map(|()| is_due.then_some(Next::Quiet))
                }
                other => other,
            };
            match next {
                Ok(Some(next)) => return Ok(next),
                Ok(None) => {}
                Err(failure) => {
                    // Whose capability was taken back, or its key, cannot settle anything.
                    let is_gone = [Refused::Revoked, Refused::BadSignature]
                        .iter()
                        .any(|refused| failure.reason == Some(refused.as_str()));
                    self.is_ended = !is_gone;
                    return Err(failure);
                }
            }
        }
    }

    /// Messages, if some come soon.
    async fn some(&mut self, until: Instant, most: usize) -> Answer<Option<Next>> {
        let Some(places) = self.places(until, most).await else { return Ok(None) };
        self.check()?;
        // Not for long at a time: its capability may expire, or be taken back.
        let wait = until.saturating_duration_since(Instant::now()).min(LOOK);
        if let Some(time) = self.caller.held_for() {
            tokio::time::sleep(time.min(wait)).await;
            return Ok(None);
        }
        let max_messages = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let asked = Asked { max_messages, wait, ..self.asked.clone() };
        let taken = match self.service.take_counted(&self.caller, &asked, 0).await {
            Ok(taken) => taken,
            // Others have all there is of something: that passes.
            Err(failure) if failure.error.kind() == ErrorKind::Saturated => {
                tokio::time::sleep(wait).await;
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        if taken.deliveries.is_empty() {
            return Ok(None);
        }
        if self.out.len() > REMEMBERED {
            let service = &self.service;
            self.out.retain(|handle| service.handouts.with(handle, |_| ()).is_some());
        }
        let mut places = places.into_iter().map(|place| (self.id, place));
        let made = (taken.at, taken.deliveries);
        let envelopes = self.service.envelopes(&self.caller, &asked, made, || places.next());
        self.out.extend(envelopes.iter().filter_map(|it| it.receipt_handle.clone()));
        Ok(Some(Next::Messages(envelopes, taken.hand_over)))
    }

    /// Whether it may go on: the service may be stopping, the capability taken back or expired.
    fn check(&self) -> Answer<()> {
        let Self { service, caller, asked, .. } = self;
        service.check_open()?;
        service.auth.check_still(&caller.verified)?;
        caller.may(Op::Receive, Some(&asked.mailbox), 0)
    }

    /// As many places as are free and wanted, at least one; none if there is none until then.
    async fn places(&self, until: Instant, most: usize) -> Option<Vec<OwnedSemaphorePermit>> {
        let first = loop {
            let place = Arc::clone(&self.allowance).acquire_owned();
            let look_at = until.min(Instant::now() + LOOK);
            tokio::select! {
                biased;
                place = place => break place.ok()?,
                () = self.service.draining.cancelled() => return None,
                () = tokio::time::sleep_until(look_at) => {}
            }
            // Deliveries whose deadline has passed are not the client's any more.
            self.service.handouts.count(std::time::Instant::now());
            if Instant::now() >= until || self.check().is_err() {
                return None;
            }
        };
        let more = std::iter::from_fn(|| Arc::clone(&self.allowance).try_acquire_owned().ok());
        Some(std::iter::once(first).chain(more.take(most.saturating_sub(1))).collect())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.is_ended || self.cut.is_marked() {
            return;
        }
        let out = std::mem::take(&mut self.out);
        let left = self.service.handouts.take_of(self.id, out);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if left.is_empty() {
            return;
        }
        let (store, mailbox) = (Arc::clone(&self.service.store), self.asked.mailbox.clone());
        let give_back = async move {
            // It may have been at work on them: the delivery counts.
            let error = Some(Box::from("the client of the stream has left"));
            let verdict = Verdict::Nack { delay: Duration::ZERO, error };
            let handles = left.iter().filter_map(|text| Handle::parse(text));
            let back = handles.map(|it| Settlement {
                receipt_handle: it.receipt_handle,
                verdict: verdict.clone(),
            });
            if let Err(error) = store.settle(&mailbox, back.collect()).await {
                tracing::warn!(%mailbox, %error, "cannot give deliveries back");
            }
        };
        self.service.tasks.spawn_on(give_back, &runtime);
    }
}
