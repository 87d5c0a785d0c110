//! How much at once. Invariant: a bound that is reached refuses the newcomer, with a time after
//! which to come again; nobody waits but a request for a place, and not for long.

mod budget;
mod guests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use mailbox::{Error, ErrorKind, Result, Retry};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

pub(crate) use budget::{Budget, Room};
pub(crate) use guests::{Asks, Guest, Guests};

use crate::config::Limits;

/// Counts what is going on.
#[derive(Debug)]
pub(crate) struct Admission {
    connections: Arc<Semaphore>,
    requests: Semaphore,
    /// Places that sends do not get: what takes work away goes on for longer than what brings it.
    reserve: Semaphore,
    waiting: Arc<Semaphore>,
    /// Turns at looking, and those who wait for one.
    turns: Arc<Semaphore>,
    lookers: Arc<Semaphore>,
    looking: Mutex<HashMap<Arc<str>, usize>>,
    /// Bodies that are coming in, or are worked on.
    pub(crate) incoming: Budget,
    /// Answers that are going out.
    pub(crate) outgoing: Budget,
    /// What is said of settlements, where there is no room for other answers.
    pub(crate) settled: Budget,
    /// Those without a capability.
    pub(crate) guests: Guests,
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
/// What is said of settlements has this part of it beside, or as much as a few answers need.
const SETTLED: usize = 16;
/// Reads of many messages only to look at them, at a time.
const LOOKING: usize = 4;
/// Of those who look, how many there are together with the ones that wait for their turn.
const LOOKERS: usize = 64;
/// Of those, one capability has no more.
const LOOKERS_EACH: usize = 16;
/// How long one waits for its turn.
const LOOKING_PATIENCE: Duration = Duration::from_secs(10);
/// A request in so many has a place beyond the bound if it sends nothing.
const RESERVE: usize = 4;

/// What a request is about, as far as it matters for when it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It brings messages.
    Sending,
    /// It ends deliveries.
    Settling,
    /// It looks at messages that are not handed out by that.
    Looking,
    /// It takes messages, or has to do with mailboxes and capabilities.
    Other,
}

impl Admission {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(limits.connections)),
            requests: Semaphore::new(limits.requests),
            reserve: Semaphore::new((limits.requests / RESERVE).max(1)),
            waiting: Arc::new(Semaphore::new(limits.waiting)),
            turns: Arc::new(Semaphore::new(LOOKING)),
            lookers: Arc::new(Semaphore::new(LOOKERS)),
            looking: Mutex::default(),
            incoming: Budget::new(limits.bodies, limits.body),
            outgoing: Budget::new(limits.answers, ANSWER),
            settled: Budget::new((limits.answers / SETTLED).max(4 * ANSWER), ANSWER),
            guests: Guests::default(),
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

    /// A place for a request that is worked on: at once, or as soon as one gets free within
    /// `patience`. Whoever has waited longest gets it: to send a client away that comes again at
    /// once costs nearly as much as what it came for.
    ///
    /// # Cancel safety
    /// Dropped, it has no place.
    pub(crate) async fn request(
        self: &Arc<Self>,
        purpose: Purpose,
        patience: Duration,
    ) -> Result<Place> {
        let place = |permit: SemaphorePermit<'_>, is_reserve| {
            // It is given back when the place is dropped.
            permit.forget();
            Place { admission: Arc::clone(self), is_reserve, turn: None }
        };
        if let Ok(permit) = self.requests.try_acquire() {
            return Ok(place(permit, false));
        }
        if matches!(purpose, Purpose::Settling | Purpose::Other)
            && let Ok(permit) = self.reserve.try_acquire()
        {
            return Ok(place(permit, true));
        }
        match tokio::time::timeout(patience, self.requests.acquire()).await {
            Ok(Ok(permit)) => Ok(place(permit, false)),
            _ => Err(full("too many requests are being worked on")),
        }
    }

    /// A turn at looking, which can take long and much memory. Before there is a place: whoever
    /// waits for a turn is in nobody's way but other lookers', and not in all of theirs.
    ///
    /// # Cancel safety
    /// Dropped, it has no turn.
    pub(crate) async fn turn(self: &Arc<Self>, token_id: &Arc<str>) -> Result<Turn> {
        let looker = self.looker(token_id)?;
        let turn = Arc::clone(&self.turns).acquire_owned();
        match tokio::time::timeout(LOOKING_PATIENCE, turn).await {
            Ok(Ok(turn)) => Ok(Turn { _looker: looker, _turn: turn }),
            _ => Err(crowded()),
        }
    }

    fn looker(self: &Arc<Self>, token_id: &Arc<str>) -> Result<Looker> {
        let permit = Arc::clone(&self.lookers).try_acquire_owned().map_err(|_| crowded())?;
        let mut per_capability = self.looking.lock();
        let count = per_capability.entry(Arc::clone(token_id)).or_default();
        if *count >= LOOKERS_EACH {
            return Err(crowded());
        }
        *count += 1;
        drop(per_capability);
        let (admission, token_id) = (Arc::clone(self), Arc::clone(token_id));
        Ok(Looker { admission, token_id, _permit: permit })
    }

    /// Whether a send would find a place at once.
    pub(crate) fn has_place_to_send(&self) -> bool {
        self.requests.available_permits() > 0
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

fn crowded() -> Error {
    full("too many are looking at messages")
}

pub(crate) fn full(what: &str) -> Error {
    Error::new(ErrorKind::Saturated, what).with_retry(Retry::After(RETRY_AFTER))
}

/// A request is counted as long as this is there.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    is_reserve: bool,
    /// Of one that looks.
    turn: Option<Turn>,
}

impl Place {
    /// The same for one that looks, until it has looked.
    pub(crate) fn with_turn(mut self, turn: Turn) -> Self {
        self.turn = Some(turn);
        self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Admission { requests, reserve, .. } = &*self.admission;
        let places = if self.is_reserve { reserve } else { requests };
        places.add_permits(1);
    }
}

/// Somebody looks as long as this is there.
#[derive(Debug)]
pub(crate) struct Turn {
    _looker: Looker,
    _turn: OwnedSemaphorePermit,
}

/// Somebody looks, or waits for a turn, as long as this is there.
#[derive(Debug)]
struct Looker {
    admission: Arc<Admission>,
    token_id: Arc<str>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Looker {
    fn drop(&mut self) {
        give_back(&mut self.admission.looking.lock(), &self.token_id);
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_request_gets_the_next_place_that_is_free_or_is_sent_away() {
        let limits = Limits { requests: 1, ..Limits::default() };
        let admission = Arc::new(Admission::new(&limits));
        let patience = Duration::from_millis(10);
        let send = || admission.request(Purpose::Sending, patience);
        let first = send().await.unwrap();
        assert!(!admission.has_place_to_send());
        let began = Instant::now();
        let refused = send().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Saturated);
        assert!(began.elapsed() >= patience, "it has waited");
        // What sends nothing has a place of its own.
        let other = admission.request(Purpose::Settling, patience).await.unwrap();
        // They are asked in this order, so that two wait when the place gets free.
        let long = || admission.request(Purpose::Sending, Duration::from_secs(60));
        let leave = async { drop((first, other)) };
        let (second, third, ()) = tokio::join!(long(), send(), leave);
        assert!(second.is_ok() && third.is_err(), "the one that came first has it");
        drop(second);
        assert!(admission.has_place_to_send());
        let _reserve = admission.request(Purpose::Other, patience).await.unwrap();
    }

    /// A few hundred who looked had every place there was, those for settling too.
    #[tokio::test(start_paused = true)]
    async fn whoever_looks_is_in_nobodys_way_and_not_for_ever_in_the_way_of_others_that_look() {
        let admission = Arc::new(Admission::new(&Limits { requests: 8, ..Limits::default() }));
        let request = |purpose| admission.request(purpose, Duration::ZERO);
        let [one, other]: [Arc<str>; 2] = ["one", "other"].map(Into::into);
        let mut looking = Vec::new();
        for _ in 0..LOOKING {
            let turn = admission.turn(&one).await.unwrap();
            looking.push(request(Purpose::Looking).await.unwrap().with_turn(turn));
        }
        let waiting = futures_util::future::join_all((0..100).map(|_| admission.turn(&one)));
        let others = async {
            for _ in LOOKING..8 {
                looking.push(request(Purpose::Sending).await.unwrap());
            }
            assert!(request(Purpose::Looking).await.is_err(), "the reserve is for others");
            // Two places are kept for those who take work away.
            let settling = [request(Purpose::Settling).await, request(Purpose::Other).await];
            assert!(settling.into_iter().all(|place| place.is_ok()));
            let until = LOOKING_PATIENCE / 2;
            assert!(tokio::time::timeout(until, admission.turn(&other)).await.is_err(), "it waits");
        };
        let began = tokio::time::Instant::now();
        let (waited, ()) = tokio::join!(waiting, others);
        assert!(waited.iter().all(Result::is_err));
        assert_eq!(began.elapsed(), LOOKING_PATIENCE, "some have waited, and not for ever");
        // Those of one capability have all turns, but do not keep others from waiting for theirs.
        let look = async || admission.turn(&one).await.map(drop);
        let crowd = futures_util::future::join_all((0..100).map(|_| look()));
        let next = async {
            let turn = admission.turn(&other);
            let leave = async { looking.clear() };
            tokio::join!(turn, leave).0
        };
        let (crowd, next) = tokio::join!(crowd, next);
        let looked = crowd.iter().filter(|looked| looked.is_ok()).count();
        assert_eq!(looked, LOOKERS_EACH - LOOKING);
        assert!(next.is_ok());
        drop((crowd, next));
        assert!(admission.looking.lock().is_empty());
    }
}
