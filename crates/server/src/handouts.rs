//! Deliveries that this service has handed out and that are not settled: for settling by message id
//! alone, for the bound on all of them together, and for streams that end.
//!
//! What is in here is a memory of what was said, not the truth: that is the store's. An entry goes
//! when its delivery is settled through this service, or its deadline has passed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mailbox::{Error, ErrorKind, MessageId, Name, Result, Retry};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

/// One delivery that somebody has.
#[derive(Debug)]
pub(crate) struct Handout {
    pub(crate) id: MessageId,
    pub(crate) mailbox: Name,
    pub(crate) delivery_count: u32,
    /// Which capability it was received with.
    pub(crate) token_id: Arc<str>,
    /// When, in milliseconds of wall time.
    pub(crate) received_at: i64,
    pub(crate) deadline: Instant,
    /// The stream it went out on, and its place in that stream's allowance.
    pub(crate) stream: Option<(StreamId, OwnedSemaphorePermit)>,
}

/// Tells streams apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamId(u64);

/// All of them.
#[derive(Debug)]
pub(crate) struct Handouts {
    most: usize,
    most_per_capability: usize,
    state: Mutex<State>,
}

/// Keys are all of the service's making, so that nobody can choose them to collide.
type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

#[derive(Debug, Default)]
struct State {
    by_handle: Map<Arc<str>, Handout>,
    /// The handle of each message's last delivery.
    last: Map<MessageId, Arc<str>>,
    /// Deadlines, also of entries that are gone by now.
    deadlines: BinaryHeap<Reverse<(Instant, Arc<str>)>>,
    /// Places that receives have taken ahead.
    reserved: usize,
    /// Entries and places of each capability.
    per_capability: Map<Arc<str>, usize>,
    next_stream: u64,
}

/// How long to wait when everything is handed out.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Deadlines of entries that are gone, kept before they are cleared away.
const SLACK: usize = 1024;

impl Handouts {
    pub(crate) fn new(most: usize, most_per_capability: usize) -> Self {
        Self { most, most_per_capability, state: Mutex::default() }
    }

    /// Takes places for deliveries ahead of a receive: so many, or as many as there are.
    ///
    /// # Errors
    /// `Saturated` if there is none.
    pub(crate) fn reserve(
        &self,
        token_id: &Arc<str>,
        places: usize,
        now: Instant,
    ) -> Result<Reserved<'_>> {
        let mut state = self.state.lock();
        state.forget_overdue(now);
        let free = self.most.saturating_sub(state.by_handle.len() + state.reserved);
        let own = self.most_per_capability.saturating_sub(state.held_by(token_id));
        if free == 0 {
            return Err(full(self.most, ""));
        }
        if own == 0 {
            return Err(full(self.most_per_capability, " with this capability"));
        }
        let places = places.min(free).min(own);
        state.reserved += places;
        state.add(token_id, places);
        Ok(Reserved { handouts: self, token_id: Arc::clone(token_id), places })
    }

    /// Remembers a delivery by its handle.
    pub(crate) fn note(&self, handle: &str, handout: Handout) {
        let handle: Arc<str> = handle.into();
        let mut state = self.state.lock();
        state.deadlines.push(Reverse((handout.deadline, Arc::clone(&handle))));
        // The delivery before is over, or this one could not have been made.
        let before = state.last.insert(handout.id.clone(), Arc::clone(&handle));
        let before = before.and_then(|handle| state.by_handle.remove(&handle));
        state.add(&handout.token_id, 1);
        let same = state.by_handle.insert(handle, handout);
        for gone in [&before, &same].into_iter().flatten() {
            state.subtract(&gone.token_id, 1);
        }
        state.clear_away();
        drop(state);
        drop((before, same));
    }

    /// What is known of a delivery.
    pub(crate) fn with<T>(&self, handle: &str, look: impl FnOnce(&Handout) -> T) -> Option<T> {
        self.state.lock().by_handle.get(handle).map(look)
    }

    /// The handle of a message's last delivery, and the mailbox it is in.
    pub(crate) fn last_of(&self, id: &MessageId) -> Option<(Name, Arc<str>)> {
        let state = self.state.lock();
        let handle = state.last.get(id)?;
        let handout = state.by_handle.get(handle)?;
        Some((handout.mailbox.clone(), Arc::clone(handle)))
    }

    /// It was settled.
    pub(crate) fn forget(&self, handle: &str) {
        let gone = self.state.lock().remove(handle);
        drop(gone);
    }

    /// The handles of what is handed out of a mailbox.
    pub(crate) fn all_of(&self, mailbox: &Name) -> Vec<Arc<str>> {
        let state = self.state.lock();
        let each = state.by_handle.iter().filter(|(_, it)| it.mailbox == *mailbox);
        each.map(|(handle, _)| Arc::clone(handle)).collect()
    }

    /// These are gone, with the mailbox they were in.
    pub(crate) fn forget_all(&self, handles: &[Arc<str>]) {
        let mut state = self.state.lock();
        let gone: Vec<_> = handles.iter().filter_map(|handle| state.remove(handle)).collect();
        drop(state);
        drop(gone);
    }

    /// Its deadline is another one now.
    pub(crate) fn extend(&self, handle: &str, deadline: Instant) {
        let mut state = self.state.lock();
        let Some((handle, _)) = state.by_handle.get_key_value(handle) else { return };
        let handle = Arc::clone(handle);
        if let Some(handout) = state.by_handle.get_mut(&handle) {
            handout.deadline = deadline;
        }
        state.deadlines.push(Reverse((deadline, handle)));
        state.clear_away();
    }

    /// A new stream.
    pub(crate) fn new_stream(&self) -> StreamId {
        let mut state = self.state.lock();
        state.next_stream += 1;
        StreamId(state.next_stream)
    }

    /// Takes out what a stream has handed out and nobody has settled, of these.
    pub(crate) fn take_of(&self, stream: StreamId, handles: Vec<String>) -> Vec<String> {
        let mut state = self.state.lock();
        let is_of = |it: &Handout| it.stream.as_ref().is_some_and(|(of, _)| *of == stream);
        let taken = handles.into_iter().filter(|handle| {
            state.by_handle.get(handle.as_str()).is_some_and(is_of)
                && state.remove(handle).is_some()
        });
        taken.collect()
    }

    /// Forgets what is overdue, and says how many there are.
    pub(crate) fn count(&self, now: Instant) -> usize {
        let mut state = self.state.lock();
        state.forget_overdue(now);
        state.by_handle.len()
    }
}

fn full(most: usize, whose: &str) -> Error {
    let message = format!("{most} deliveries are in flight{whose}, the most there may be");
    Error::new(ErrorKind::Saturated, message).with_retry(Retry::After(RETRY_AFTER))
}

impl State {
    fn held_by(&self, token_id: &str) -> usize {
        self.per_capability.get(token_id).copied().unwrap_or(0)
    }

    fn add(&mut self, token_id: &Arc<str>, places: usize) {
        match self.per_capability.get_mut(token_id) {
            Some(count) => *count += places,
            None => drop(self.per_capability.insert(Arc::clone(token_id), places)),
        }
    }

    fn subtract(&mut self, token_id: &str, places: usize) {
        if let Some(count) = self.per_capability.get_mut(token_id) {
            *count -= places;
            if *count == 0 {
                self.per_capability.remove(token_id);
            }
        }
    }

    /// Keeps deadlines of entries that are gone, or have another one by now, from piling up.
    fn clear_away(&mut self) {
        if self.deadlines.len() > 2 * self.by_handle.len() + SLACK {
            let each = self.by_handle.iter();
            let fresh = each.map(|(handle, it)| Reverse((it.deadline, Arc::clone(handle))));
            self.deadlines = fresh.collect();
        }
    }

    fn remove(&mut self, handle: &str) -> Option<Handout> {
        let handout = self.by_handle.remove(handle)?;
        self.subtract(&handout.token_id, 1);
        if self.last.get(&handout.id).is_some_and(|last| **last == *handle) {
            self.last.remove(&handout.id);
        }
        Some(handout)
    }

    fn forget_overdue(&mut self, now: Instant) {
        while let Some(Reverse((deadline, _))) = self.deadlines.peek()
            && *deadline <= now
        {
            let Some(Reverse((deadline, handle))) = self.deadlines.pop() else { return };
            if self.by_handle.get(&handle).is_some_and(|it| it.deadline <= deadline) {
                self.remove(&handle);
            }
        }
    }
}

/// Places taken ahead; given back when the receive is over.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    handouts: &'a Handouts,
    token_id: Arc<str>,
    places: usize,
}

impl Reserved<'_> {
    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.places).unwrap_or(u32::MAX)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut state = self.handouts.state.lock();
        state.reserved -= self.places;
        state.subtract(&self.token_id, self.places);
    }
}
