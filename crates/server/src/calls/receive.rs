//! Receiving. Invariant: what was taken from the store either reaches the connection or is given
//! back; see [`HandOver`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::{
    Delivery, Error, Name, ReceiptHandle, ReceiveOptions, Result, Settlement, Timestamp, Verdict,
};
use mailbox_wire::capability::Op;
use mailbox_wire::json::Envelope;
use tokio::sync::OwnedSemaphorePermit;

use super::{Handle, envelope};
use crate::auth::Caller;
use crate::failure::Answer;
use crate::handouts::{Handout, StreamId};
use crate::service::Service;

/// What a receiver asked for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) mailbox: Name,
    pub(crate) visibility: Duration,
    pub(crate) max_messages: u32,
    pub(crate) max_bytes: u64,
    pub(crate) wait: Duration,
}

/// Deliveries that the store has made.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) hand_over: HandOver,
}

/// Most bytes of payload that one receive may ask for.
const MAX_BYTES: u64 = 1 << 30;
/// Most messages taken at a time while it is not known how large they are.
const STEP: u32 = 16;

impl Service {
    /// Checks what a receiver asks for.
    pub(crate) fn asked(
        &self,
        topic: &str,
        visibility_ms: Option<u64>,
        max_messages: Option<u32>,
        max_bytes: Option<u64>,
    ) -> Result<Asked> {
        let config = self.config();
        let mailbox = Name::parse(topic)?;
        let visibility = visibility_ms.map_or(config.visibility_default, Duration::from_millis);
        if !visibility.is_zero() && visibility < config.visibility_min {
            let least = config.visibility_min.as_millis();
            let bound = format_args!("0, or {least}..=43200000 ms");
            let value = format_args!("{} ms", visibility.as_millis());
            return Err(Error::invalid("visibility_timeout", value, bound).with_mailbox(&mailbox));
        }
        let max_messages = max_messages.unwrap_or(1);
        let max_bytes = max_bytes.unwrap_or(config.max_bytes);
        if max_bytes > MAX_BYTES {
            let error = Error::invalid("max_bytes", max_bytes, format_args!("0..={MAX_BYTES}"));
            return Err(error.with_mailbox(&mailbox));
        }
        let options = ReceiveOptions::new()
            .with_max_messages(max_messages)
            .with_visibility_timeout(visibility);
        let checked = self.store.abilities().check_receive(&options);
        checked.map_err(|error| error.with_mailbox(&mailbox))?;
        Ok(Asked { mailbox, visibility, max_messages, max_bytes, wait: Duration::ZERO })
    }

    /// Checks how long a receiver wants to wait.
    pub(crate) fn patience(&self, wait: Duration) -> Result<Duration> {
        match self.config().wait_max {
            Some(most) if wait > most => {
                let bound = format_args!("0..={} ms", most.as_millis());
                Err(Error::invalid("wait_ms", format_args!("{} ms", wait.as_millis()), bound))
            }
            _ => Ok(wait),
        }
    }

    /// Receives, waiting for the first message.
    ///
    /// # Cancel safety
    /// Dropped, it holds nothing.
    pub(crate) async fn receive(self: &Arc<Self>, caller: &Caller, asked: &Asked) -> Answer<Taken> {
        self.check_open()?;
        caller.may(Op::Receive, Some(&asked.mailbox), 0)?;
        caller.charge(1, 0)?;
        self.take(caller, asked).await
    }

    /// The same for one who may, and was counted.
    pub(crate) async fn take(self: &Arc<Self>, caller: &Caller, asked: &Asked) -> Answer<Taken> {
        let started = Instant::now();
        // One that waits takes no places ahead: it may wait for nothing.
        let is_patient = !asked.wait.is_zero();
        let ahead = if is_patient { 1 } else { asked.max_messages as usize };
        let places = self.handouts.reserve(ahead, started)?;
        let waiting = if is_patient {
            drop(places);
            (None, Some(self.admission.waiting(&caller.verified.token_id)?))
        } else {
            (Some(places), None)
        };
        let first = self.receive_some(asked, asked.max_messages.min(STEP), asked.wait);
        let first = tokio::select! {
            biased;
            received = first => received?,
            // Those who wait are sent away with nothing, in order.
            () = self.draining.cancelled() => Vec::new(),
        };
        let mut taken = self.taken(asked, first);
        let _places = if is_patient {
            // Meanwhile it may have been taken back, or have expired, or others have all places:
            // then what was taken goes back too.
            self.auth.check_still(&caller.verified)?;
            caller.may(Op::Receive, Some(&asked.mailbox), 0)?;
            Some(self.handouts.reserve(asked.max_messages as usize, Instant::now())?)
        } else {
            None
        };
        drop(waiting.1);
        let mut bytes = taken.bytes();
        while !taken.deliveries.is_empty() && bytes < asked.max_bytes {
            let got = u32::try_from(taken.deliveries.len()).unwrap_or(u32::MAX);
            let rest = asked.max_messages.saturating_sub(got).min(STEP);
            // A zero timeout makes what was just received receivable again.
            if rest == 0 || !got.is_multiple_of(STEP) || asked.visibility.is_zero() {
                break;
            }
            match self.receive_some(asked, rest, Duration::ZERO).await {
                Ok(more) if more.is_empty() => break,
                Ok(more) => taken.add(more),
                // What is there already is something.
                Err(_) => break,
            }
            bytes = taken.bytes();
        }
        taken.keep_within(asked.max_bytes);
        if asked.wait.is_zero() && !taken.deliveries.is_empty() {
            self.metrics.dequeue.observe(started.elapsed());
        }
        Ok(taken)
    }

    async fn receive_some(
        &self,
        asked: &Asked,
        max_messages: u32,
        wait: Duration,
    ) -> Result<Vec<Delivery>> {
        // With a zero timeout one receive has to take them all.
        let max_messages =
            if asked.visibility.is_zero() { asked.max_messages } else { max_messages };
        let options = ReceiveOptions::new()
            .with_max_messages(max_messages)
            .with_visibility_timeout(asked.visibility)
            .with_wait(wait);
        self.store.receive(&asked.mailbox, &options).await
    }

    fn taken(self: &Arc<Self>, asked: &Asked, deliveries: Vec<Delivery>) -> Taken {
        let mailbox = asked.mailbox.clone();
        // A delivery with a zero timeout is over: there is nothing to give back.
        let is_held = !asked.visibility.is_zero();
        let mut taken = Taken {
            deliveries: Vec::new(),
            hand_over: HandOver { service: Arc::clone(self), mailbox, is_held, held: Vec::new() },
        };
        taken.add(deliveries);
        taken
    }

    /// Notes deliveries that are about to go out, and puts them in envelopes.
    pub(crate) fn envelopes(
        &self,
        caller: &Caller,
        asked: &Asked,
        deliveries: Vec<Delivery>,
        mut stream: impl FnMut() -> Option<(StreamId, OwnedSemaphorePermit)>,
    ) -> Vec<Envelope> {
        let shards = self.config().shards;
        let (now, wall) = (Instant::now(), Timestamp::now());
        let visible_until_ms = Some(wall.after(asked.visibility).as_unix_millis());
        let pack = |delivery: Delivery| {
            let Delivery { id, letter, receipt_handle, delivery_count } = delivery;
            let mailbox = asked.mailbox.clone();
            let out = envelope(&mailbox, &id, &letter, delivery_count, shards);
            if delivery_count == 1 {
                self.metrics.reorder.note(out.shard, &mailbox, letter.enqueued_at);
            }
            let handle = Handle { mailbox: mailbox.clone(), receipt_handle }.to_string();
            if !asked.visibility.is_zero() {
                let handout = Handout {
                    id,
                    mailbox,
                    delivery_count,
                    token_id: Arc::clone(&caller.verified.token_id),
                    received_at: wall.as_unix_millis(),
                    deadline: now + asked.visibility,
                    stream: stream(),
                };
                self.handouts.note(&handle, handout);
            }
            Envelope { receipt_handle: Some(handle), visible_until_ms, ..out }
        };
        deliveries.into_iter().map(pack).collect()
    }
}

impl Taken {
    fn add(&mut self, more: Vec<Delivery>) {
        if self.hand_over.is_held {
            let held = |it: &Delivery| it.receipt_handle.clone();
            self.hand_over.held.extend(more.iter().map(held));
        }
        self.deliveries.extend(more);
    }

    fn bytes(&self) -> u64 {
        self.deliveries.iter().map(|it| it.letter.payload.len() as u64).sum()
    }

    /// Gives back those from which on payloads are too large together, but never the first.
    fn keep_within(&mut self, max_bytes: u64) {
        let mut sum = 0;
        let fits = self.deliveries.iter().take_while(|it| {
            sum += it.letter.payload.len() as u64;
            sum <= max_bytes
        });
        let fits = fits.count().max(1);
        // With a zero timeout nothing can be given back: what was taken is handed out.
        if fits >= self.deliveries.len() || !self.hand_over.is_held {
            return;
        }
        self.deliveries.truncate(fits);
        let rest = self.hand_over.held.split_off(fits.min(self.hand_over.held.len()));
        drop(self.hand_over.of(rest));
    }
}

/// Holds deliveries until they have reached the connection. Dropped before that, it gives them
/// back as if they had never been made.
#[derive(Debug)]
pub(crate) struct HandOver {
    service: Arc<Service>,
    mailbox: Name,
    /// There is something to give back.
    is_held: bool,
    held: Vec<ReceiptHandle>,
}

impl HandOver {
    /// They have reached the connection: what becomes of them is the receiver's business.
    pub(crate) fn done(mut self) {
        self.held.clear();
    }

    fn of(&self, held: Vec<ReceiptHandle>) -> Self {
        let (service, mailbox) = (Arc::clone(&self.service), self.mailbox.clone());
        Self { service, mailbox, is_held: self.is_held, held }
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return;
        }
        for receipt_handle in &held {
            let (mailbox, receipt_handle) = (self.mailbox.clone(), receipt_handle.clone());
            self.service.handouts.forget(&Handle { mailbox, receipt_handle }.to_string());
        }
        let (store, mailbox) = (Arc::clone(&self.service.store), self.mailbox.clone());
        let give_back = async move {
            // The last one first, so that they are in line as they were.
            let back = held
                .into_iter()
                .rev()
                .map(|receipt_handle| Settlement { receipt_handle, verdict: Verdict::Return });
            // If this fails, their deadline brings them back.
            if let Err(error) = store.settle(&mailbox, back.collect()).await {
                tracing::warn!(%mailbox, %error, "cannot give deliveries back");
            }
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.service.tasks.spawn_on(give_back, &runtime);
        }
    }
}
