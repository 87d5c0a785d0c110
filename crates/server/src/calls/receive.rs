//! Receiving. Invariant: what was taken from the store either reaches the connection or is given
//! back; see [`HandOver`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::{
    Delivery, Error, Name, ReceiptHandle, ReceiveOptions, Result, Settlement, Timestamp, Verdict,
};
use mailbox_wire::capability::Op;
use mailbox_wire::json::Envelope;
use mailbox_wire::reserved::TRACEPARENT;
use tokio::sync::OwnedSemaphorePermit;

use super::{Handle, envelope, weight};
use crate::admission::{Budget, Place, Room, full};
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
    /// When the first of them had been made: none is over before it looks so.
    pub(crate) at: TakenAt,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) hand_over: HandOver,
}

/// A time on both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TakenAt {
    steady: Instant,
    wall: Timestamp,
}

/// Most bytes of payload that one receive may ask for.
const MAX_BYTES: u64 = 1 << 30;
/// Most bytes of attributes of a message, about.
const ATTRIBUTES: u64 = 512 * 1024;
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
        let config = self.settings();
        let mailbox = Name::parse(topic)?;
        let visibility = visibility_ms.map_or(config.visibility_default, Duration::from_millis);
        if !visibility.is_zero() && visibility < config.visibility_min {
            let least = config.visibility_min.as_millis();
            let bound = format_args!("0, or {least}..=43200000 ms");
            let value = format_args!("{} ms", visibility.as_millis());
            return Err(Error::invalid("visibility_timeout", value, bound).with_mailbox(&mailbox));
        }
        let max_messages = max_messages.unwrap_or(1);
        if max_messages > config.max_messages {
            let bound = format_args!("1..={}", config.max_messages);
            return Err(Error::invalid("max_messages", max_messages, bound).with_mailbox(&mailbox));
        }
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
        match self.settings().wait_max {
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
    pub(crate) async fn receive(
        self: &Arc<Self>,
        caller: &Caller,
        asked: &Asked,
        place: Place,
    ) -> Answer<Taken> {
        self.check_open()?;
        caller.may(Op::Receive, Some(&asked.mailbox), 0)?;
        caller.charge(1, 0)?;
        let started = Instant::now();
        // First as one that does not wait: it is worked on, and has a place for that.
        let is_patient = !asked.wait.is_zero();
        let at_once = is_patient.then(|| Asked { wait: Duration::ZERO, ..asked.clone() });
        let taken = match self.take_counted(caller, at_once.as_ref().unwrap_or(asked), 1).await {
            Ok(taken) if taken.deliveries.is_empty() && is_patient => {
                drop(place);
                self.wait_and_take(caller, asked).await
            }
            Ok(taken) => {
                if !taken.deliveries.is_empty() {
                    self.metrics.dequeue.observe(started.elapsed());
                }
                Ok(taken)
            }
            Err(failure) => Err(failure),
        };
        if let Ok(Taken { deliveries, .. }) = &taken {
            let sent = deliveries.iter().map(|it| it.letter.attributes.get(TRACEPARENT));
            let sent = sent.map(|text| text.map(String::as_str));
            caller.trace.received(deliveries.len(), sent);
        }
        // What did nothing costs nothing of a quota.
        taken.inspect_err(|_| caller.give_back(1, 0))
    }

    async fn wait_and_take(self: &Arc<Self>, caller: &Caller, asked: &Asked) -> Answer<Taken> {
        let _waiting = self.admission.waiting(&caller.verified.token_id)?;
        self.take_counted(caller, asked, 1).await
    }

    /// Takes no more than the caller's rate and quota allow, and counts it; so many are already.
    pub(super) async fn take_counted(
        self: &Arc<Self>,
        caller: &Caller,
        asked: &Asked,
        counted: u32,
    ) -> Answer<Taken> {
        let Some(left) = caller.left() else { return self.take(caller, asked).await };
        let ops = u32::try_from(left.ops).unwrap_or(u32::MAX).saturating_add(counted);
        let max_messages = asked.max_messages.min(ops.max(1));
        let max_bytes = asked.max_bytes.min(left.bytes);
        let asked = Asked { max_messages, max_bytes, ..asked.clone() };
        let taken = self.take(caller, &asked).await?;
        let (count, bytes) = (taken.deliveries.len(), taken.bytes());
        let more = count.saturating_sub(counted as usize);
        if !taken.hand_over.is_held {
            // What was handed out with a zero timeout cannot be taken back: the next one waits.
            caller.count(more, bytes);
            return Ok(taken);
        }
        caller.charge(more, bytes).inspect_err(|_| {
            // Not even one fits: it would be taken and given back for ever.
            if count == 1 && caller.left().is_some_and(|left| left.bytes < bytes) {
                caller.use_up();
            }
        })?;
        Ok(taken)
    }

    /// The same for one who may, and was counted.
    async fn take(self: &Arc<Self>, caller: &Caller, asked: &Asked) -> Answer<Taken> {
        // One that waits takes no places ahead: it may wait for nothing.
        let is_patient = !asked.wait.is_zero();
        let token_id = &caller.verified.token_id;
        let ahead = if is_patient { 1 } else { asked.max_messages as usize };
        let places = self.handouts.reserve(token_id, ahead, Instant::now())?;
        let mut most = if is_patient { asked.max_messages } else { places.count() };
        let places = Some(places).filter(|_| !is_patient);
        let ahead = self.room_ahead(asked, token_id, &mut most)?;
        let first = self.receive_some(asked, most, STEP, asked.wait);
        let first = if is_patient {
            tokio::select! {
                biased;
                received = first => received?,
                // Those who wait are sent away with nothing, in order.
                () = self.draining.cancelled() => Vec::new(),
            }
        } else {
            first.await?
        };
        let mut taken = self.taken(asked, first);
        taken.hand_over.room = ahead;
        let bytes = taken.bytes();
        taken.hand_over.room.shrink(bytes);
        if taken.deliveries.is_empty() {
            return Ok(taken);
        }
        let _places = if is_patient {
            // Meanwhile it may have been taken back, or have expired, or others have all places:
            // then what was taken goes back too.
            self.auth.check_still(&caller.verified)?;
            caller.may(Op::Receive, Some(&asked.mailbox), 0)?;
            let wanted = asked.max_messages as usize;
            let places = self.handouts.reserve(token_id, wanted, Instant::now())?;
            most = places.count();
            taken.keep(most as usize);
            Some(places)
        } else {
            places
        };
        self.fill(&mut taken, asked, most, token_id).await?;
        Ok(taken)
    }

    /// Takes as many more as there are and fit, and gives back what does not.
    async fn fill(
        &self,
        taken: &mut Taken,
        asked: &Asked,
        most: u32,
        token_id: &Arc<str>,
    ) -> Answer<()> {
        taken.keep_within(asked.max_bytes);
        let mut has_room = taken.make_room(&self.admission.outgoing, token_id);
        while has_room && taken.bytes() < asked.max_bytes {
            let got = u32::try_from(taken.deliveries.len()).unwrap_or(u32::MAX);
            let rest = most.saturating_sub(got).min(STEP);
            // A zero timeout makes what was just received receivable again.
            if rest == 0 || !got.is_multiple_of(STEP) || asked.visibility.is_zero() {
                break;
            }
            match self.receive_some(asked, most, rest, Duration::ZERO).await {
                Ok(more) if more.is_empty() => break,
                Ok(more) => taken.add(more),
                // What is there already is something.
                Err(_) => break,
            }
            let count = taken.deliveries.len();
            taken.keep_within(asked.max_bytes);
            has_room = taken.make_room(&self.admission.outgoing, token_id);
            if taken.deliveries.len() < count {
                // What does not fit is back in line: to ask again would only get it again.
                break;
            }
        }
        if !has_room {
            let room = taken.hand_over.room.bytes();
            taken.keep_within(room);
            // With a zero timeout nothing can be given back: what was taken is handed out.
            if taken.bytes() > room && taken.hand_over.is_held {
                return Err(full("too many answers are going out").into());
            }
        }
        Ok(())
    }

    /// Room for what cannot be given back once it is taken: with a zero timeout that is all of it.
    /// So there are no more than there is room for, however large they are.
    fn room_ahead(&self, asked: &Asked, token_id: &Arc<str>, most: &mut u32) -> Result<Room> {
        let mut room = Room::default();
        if !asked.visibility.is_zero() {
            return Ok(room);
        }
        if !asked.wait.is_zero() {
            // It may be held for long.
            *most = 1;
        }
        let largest = self.store.abilities().max_payload as u64 + ATTRIBUTES;
        while !room.grow(&self.admission.outgoing, token_id, u64::from(*most) * largest) {
            *most /= 2;
            if *most == 0 {
                return Err(full("too many answers are going out"));
            }
        }
        Ok(room)
    }

    async fn receive_some(
        &self,
        asked: &Asked,
        most: u32,
        step: u32,
        wait: Duration,
    ) -> Result<Vec<Delivery>> {
        // With a zero timeout one receive has to take them all.
        let max_messages = if asked.visibility.is_zero() { most } else { most.min(step) };
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
        let at = TakenAt { steady: Instant::now(), wall: Timestamp::now() };
        let hand_over = HandOver::new(self, mailbox, is_held);
        let mut taken = Taken { at, deliveries: Vec::new(), hand_over };
        taken.add(deliveries);
        taken
    }

    /// Notes deliveries that are about to go out, and puts them in envelopes.
    pub(crate) fn envelopes(
        &self,
        caller: &Caller,
        asked: &Asked,
        (at, deliveries): (TakenAt, Vec<Delivery>),
        mut stream: impl FnMut() -> Option<(StreamId, OwnedSemaphorePermit)>,
    ) -> Vec<Envelope> {
        let shards = self.settings().shards;
        let TakenAt { steady, wall } = at;
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
                    deadline: steady + asked.visibility,
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

    pub(super) fn bytes(&self) -> u64 {
        self.deliveries.iter().map(|it| weight(&it.letter)).sum()
    }

    /// Takes room for what is there by now; false if there is none for all of it.
    fn make_room(&mut self, budget: &Budget, token_id: &Arc<str>) -> bool {
        let bytes = self.bytes();
        let room = &mut self.hand_over.room;
        if room.grow(budget, token_id, bytes) {
            return true;
        }
        // For as many as there is.
        let mut sum = 0;
        let fits = |it: &Delivery| {
            sum += weight(&it.letter);
            room.grow(budget, token_id, sum)
        };
        self.deliveries.iter().all(fits)
    }

    /// Gives back those from which on they are too large together, but never the first.
    fn keep_within(&mut self, max_bytes: u64) {
        let mut sum = 0;
        let fits = self.deliveries.iter().take_while(|it| {
            sum += weight(&it.letter);
            sum <= max_bytes
        });
        let fits = fits.count().max(1);
        self.keep(fits);
    }

    /// Gives back all but so many.
    fn keep(&mut self, count: usize) {
        // With a zero timeout nothing can be given back: what was taken is handed out.
        if count >= self.deliveries.len() || !self.hand_over.is_held {
            return;
        }
        self.deliveries.truncate(count);
        let rest = self.hand_over.held.split_off(count.min(self.hand_over.held.len()));
        drop(self.hand_over.of(rest));
    }
}

/// Holds deliveries until they have reached the connection. Dropped before that, it gives them
/// back as if they had never been made.
#[derive(Debug)]
pub(crate) struct HandOver {
    service: Arc<Service>,
    /// Of those that are held.
    mailbox: Option<Name>,
    /// There is something to give back.
    is_held: bool,
    held: Vec<ReceiptHandle>,
    /// What their answer takes until it is out.
    room: Room,
}

impl HandOver {
    /// An answer that has no deliveries in it, but takes room.
    pub(crate) fn of_nothing(service: &Arc<Service>, room: Room) -> Self {
        let (service, mailbox, held) = (Arc::clone(service), None, Vec::new());
        Self { service, mailbox, is_held: false, held, room }
    }

    fn new(service: &Arc<Service>, mailbox: Name, is_held: bool) -> Self {
        let (service, room) = (Arc::clone(service), Room::default());
        Self { service, mailbox: Some(mailbox), is_held, held: Vec::new(), room }
    }

    /// They have reached the connection: what becomes of them is the receiver's business.
    pub(crate) fn done(mut self) {
        self.held.clear();
    }

    fn of(&self, held: Vec<ReceiptHandle>) -> Self {
        let (service, mailbox) = (Arc::clone(&self.service), self.mailbox.clone());
        Self { service, mailbox, is_held: self.is_held, held, room: Room::default() }
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held);
        let Some(mailbox) = self.mailbox.take().filter(|_| !held.is_empty()) else { return };
        for receipt_handle in &held {
            let (mailbox, receipt_handle) = (mailbox.clone(), receipt_handle.clone());
            self.service.handouts.forget(&Handle { mailbox, receipt_handle }.to_string());
        }
        let store = Arc::clone(&self.service.store);
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
