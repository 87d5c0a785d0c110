//! A receive that goes on until the client leaves. Invariant: no more is in flight on a stream than
//! the client said it can take; when it leaves, what it has not settled is given back.

use std::sync::Arc;
use std::time::Duration;

use mailbox::{Settlement, Verdict};
use mailbox_wire::capability::Op;
use mailbox_wire::json::Envelope;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::Handle;
use super::receive::{Asked, HandOver};
use crate::auth::Caller;
use crate::failure::Answer;
use crate::handouts::StreamId;
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
}

/// What comes next on a stream.
#[derive(Debug)]
pub(crate) enum Next {
    /// These; whoever writes them says when that is done.
    Messages(Vec<Envelope>, HandOver),
    /// Nothing for a while: a sign of life.
    Quiet,
    /// The service stops, or the capability is not good any more.
    End,
}

impl Stream {
    pub(crate) fn open(service: &Arc<Service>, caller: Caller, asked: Asked) -> Answer<Self> {
        service.check_open()?;
        caller.may(Op::Receive, Some(&asked.mailbox), 0)?;
        caller.charge(1, 0)?;
        Ok(Self {
            id: service.handouts.new_stream(),
            allowance: Arc::new(Semaphore::new(asked.max_messages as usize)),
            out: Vec::new(),
            service: Arc::clone(service),
            caller,
            asked,
        })
    }

    /// What comes next.
    ///
    /// # Cancel safety
    /// Dropped, it holds nothing.
    pub(crate) async fn next(&mut self) -> Answer<Next> {
        let heartbeat = Instant::now() + self.service.config().timeouts.heartbeat;
        let places = self.places(heartbeat).await;
        if self.is_over() {
            return Ok(Next::End);
        }
        let Some(places) = places else { return Ok(Next::Quiet) };
        let max_messages = u32::try_from(places.len()).unwrap_or(u32::MAX);
        // Not for long at a time: its capability may expire, or be taken back.
        let wait = heartbeat.saturating_duration_since(Instant::now()).min(LOOK);
        let asked = Asked { max_messages, wait, ..self.asked.clone() };
        let taken = match self.service.take(&self.caller, &asked).await {
            Ok(taken) => taken,
            Err(failure) if failure.reason.is_some() => return Ok(Next::End),
            Err(failure) => return Err(failure),
        };
        if taken.deliveries.is_empty() {
            return Ok(if self.is_over() { Next::End } else { Next::Quiet });
        }
        if self.out.len() > REMEMBERED {
            let service = &self.service;
            self.out.retain(|handle| service.handouts.with(handle, |_| ()).is_some());
        }
        let mut places = places.into_iter().map(|place| (self.id, place));
        let envelopes =
            self.service.envelopes(&self.caller, &asked, taken.deliveries, || places.next());
        self.out.extend(envelopes.iter().filter_map(|it| it.receipt_handle.clone()));
        Ok(Next::Messages(envelopes, taken.hand_over))
    }

    /// The service stops, or the capability was taken back or has expired.
    fn is_over(&self) -> bool {
        let Self { service, caller, asked, .. } = self;
        service.draining.is_cancelled()
            || service.auth.check_still(&caller.verified).is_err()
            || caller.may(Op::Receive, Some(&asked.mailbox), 0).is_err()
    }

    /// As many places as are free, at least one; none if there is none until then.
    async fn places(&self, until: Instant) -> Option<Vec<OwnedSemaphorePermit>> {
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
            if Instant::now() >= until || self.is_over() {
                return None;
            }
        };
        let more = std::iter::from_fn(|| Arc::clone(&self.allowance).try_acquire_owned().ok());
        Some(std::iter::once(first).chain(more).collect())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
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
