//! How much at once. Invariant: a bound that is reached refuses the newcomer at once, with a time
//! after which to come again; nobody queues.

mod budget;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mailbox::{Error, ErrorKind, Result, Retry};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use budget::{Budget, Room};

use crate::config::Limits;

/// Counts what is going on.
#[derive(Debug)]
pub(crate) struct Admission {
    connections: Arc<Semaphore>,
    requests: Places,
    /// Places that sends do not get: what takes work away goes on for longer than what brings it.
    reserve: Places,
    waiting: Arc<Semaphore>,
    /// Bodies that are coming in, or are worked on.
    pub(crate) incoming: Budget,
    /// Answers that are going out.
    pub(crate) outgoing: Budget,
    per_ip: Mutex<HashMap<IpAddr, usize>>,
    per_capability: Mutex<HashMap<Arc<str>, usize>>,
    most_connections: usize,
    most_per_ip: usize,
    most_per_capability: usize,
}

/// How long to stay away when there is too much of something.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// An answer of this size is possible also if the bound on all answers is low.
const ANSWER: usize = 2 * 1024 * 1024;
/// A request in so many has a place beyond the bound if it sends nothing.
const RESERVE: usize = 4;

/// What a request is about, as far as it matters for when it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It brings messages.
    Sending,
    /// It ends deliveries.
    Settling,
    /// It takes messages, or looks.
    Other,
}

impl Admission {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(limits.connections)),
            requests: Places::new(limits.requests),
            reserve: Places::new((limits.requests / RESERVE).max(1)),
            waiting: Arc::new(Semaphore::new(limits.waiting)),
            incoming: Budget::new(limits.bodies, limits.body),
            outgoing: Budget::new(limits.answers, ANSWER),
            per_ip: Mutex::default(),
            per_capability: Mutex::default(),
            most_connections: limits.connections,
            most_per_ip: limits.connections_per_ip,
            most_per_capability: limits.waiting_per_capability,
        }
    }

    /// A place for a connection from there; none if there are too many.
    pub(crate) fn connection(self: &Arc<Self>, ip: Option<IpAddr>) -> Option<ConnectionPlace> {
        let permit = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        if let Some(ip) = ip {
            let mut per_ip = self.per_ip.lock();
            let count = per_ip.entry(ip).or_default();
            if *count >= self.most_per_ip {
                return None;
            }
            *count += 1;
        }
        Some(ConnectionPlace { admission: Arc::clone(self), ip, _permit: permit })
    }

    /// How many connections there are.
    pub(crate) fn connections(&self) -> usize {
        self.most_connections - self.connections.available_permits()
    }

    /// A place for a request that is worked on.
    pub(crate) fn request(self: &Arc<Self>, purpose: Purpose) -> Result<Place> {
        let is_reserve = if self.requests.take() {
            false
        } else if purpose != Purpose::Sending && self.reserve.take() {
            true
        } else {
            return Err(full("too many requests are being worked on"));
        };
        Ok(Place { admission: Arc::clone(self), is_reserve })
    }

    /// Whether a send would find a place.
    pub(crate) fn has_place_to_send(&self) -> bool {
        self.requests.taken.load(Ordering::Relaxed) < self.requests.most
    }

    /// A place for a receive that waits.
    pub(crate) fn waiting(self: &Arc<Self>, token_id: &Arc<str>) -> Result<WaitingPlace> {
        let permit = Arc::clone(&self.waiting).try_acquire_owned();
        let permit = permit.map_err(|_| full("too many receives are waiting"))?;
        let mut per_capability = self.per_capability.lock();
        let count = per_capability.entry(Arc::clone(token_id)).or_default();
        if *count >= self.most_per_capability {
            return Err(full("too many receives of this capability are waiting"));
        }
        *count += 1;
        drop(per_capability);
        let (admission, token_id) = (Arc::clone(self), Arc::clone(token_id));
        Ok(WaitingPlace { admission, token_id, _permit: permit })
    }
}

pub(crate) fn full(what: &str) -> Error {
    Error::new(ErrorKind::Saturated, what).with_retry(Retry::After(RETRY_AFTER))
}

/// Places that are counted. Nobody waits for one, which a semaphore would have to be ready for.
#[derive(Debug)]
struct Places {
    taken: AtomicUsize,
    most: usize,
}

impl Places {
    fn new(most: usize) -> Self {
        Self { taken: AtomicUsize::new(0), most }
    }

    fn take(&self) -> bool {
        let one_more = |taken: usize| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).is_ok()
    }
}

/// A request is counted as long as this is there.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    is_reserve: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Admission { requests, reserve, .. } = &*self.admission;
        let places = if self.is_reserve { reserve } else { requests };
        places.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection is counted as long as this is there.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    admission: Arc<Admission>,
    ip: Option<IpAddr>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        if let Some(ip) = &self.ip {
            give_back(&mut self.admission.per_ip.lock(), ip);
        }
    }
}

/// A waiting receive is counted as long as this is there.
#[derive(Debug)]
pub(crate) struct WaitingPlace {
    admission: Arc<Admission>,
    token_id: Arc<str>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        give_back(&mut self.admission.per_capability.lock(), &self.token_id);
    }
}

fn give_back<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
