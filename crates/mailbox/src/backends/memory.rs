//! Mailboxes in the memory of this process.
//!
//! * **Model**: one [`core::Queue`](mailbox_core::Queue) per mailbox, payloads as bytes.
//! * **Durability**: none beyond the process; `send` returns when the message is in memory (D2).
//! * **Ordering**: strict, in order of becoming receivable (D7).
//! * **Clock**: monotonic; deadlines are noticed by timers, not by polling.
//! * **Limits**: see [`MemoryConfig`].
//! * **Cancel safety**: a dropped receive holds nothing; no other call awaits.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use mailbox_core::{Fingerprint, Policy, limits};
use parking_lot::{Mutex, RwLock};

use crate::abilities::Abilities;
use crate::backend::{
    Backend, Delivery, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
use crate::error::{Error, ErrorKind, Result};
use crate::home::clock::Clock;
use crate::home::room::{Fittings, Room};
use crate::name::Name;
use crate::options::ReceiveOptions;

/// How a memory backend is set up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// Where time comes from.
    pub clock: Clock,
    /// Rules of mailboxes that were not configured themselves.
    pub policy: Policy,
    /// Most mailboxes; naming one more is refused with `Saturated`.
    pub max_mailboxes: usize,
    /// Most receives that wait at one mailbox; one more is refused with `Saturated`.
    pub max_waiters: usize,
    /// Largest payload; at most 256 MiB.
    pub max_payload: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            policy: Policy::default(),
            max_mailboxes: 1 << 16,
            max_waiters: 1 << 14,
            max_payload: limits::PAYLOAD_LEN,
        }
    }
}

impl MemoryConfig {
    /// Takes time from this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Gives mailboxes these rules to begin with.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Allows this many mailboxes.
    #[must_use]
    pub fn with_max_mailboxes(mut self, max_mailboxes: usize) -> Self {
        self.max_mailboxes = max_mailboxes;
        self
    }

    /// Allows this many waiting receives at one mailbox.
    #[must_use]
    pub fn with_max_waiters(mut self, max_waiters: usize) -> Self {
        self.max_waiters = max_waiters;
        self
    }

    /// Allows payloads of this many bytes.
    #[must_use]
    pub fn with_max_payload(mut self, max_payload: usize) -> Self {
        self.max_payload = max_payload;
        self
    }
}

/// Keeps mailboxes in memory. One backend is one namespace: mailboxes of different backends have
/// nothing to do with each other, whatever their names.
pub struct MemoryBackend {
    /// Its part of addresses: `memory://PLACE/name`. Empty for the one that the process shares.
    place: String,
    config: MemoryConfig,
    abilities: Abilities,
    secret: [u8; 32],
    rooms: RwLock<Rooms>,
}

struct Rooms {
    by_name: BTreeMap<Name, Arc<Room<bytes::Bytes>>>,
    next_number: u32,
    closed: bool,
}

/// Backends that addresses can reach. Holds no backend alive; a dropped one takes itself out.
static PLACES: Mutex<BTreeMap<String, Weak<MemoryBackend>>> = Mutex::new(BTreeMap::new());
static NEXT_PLACE: AtomicU64 = AtomicU64::new(1);
static SHARED: OnceLock<Arc<MemoryBackend>> = OnceLock::new();

impl MemoryBackend {
    /// A namespace of its own, with default settings.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::build(format!("m{}", NEXT_PLACE.fetch_add(1, Ordering::Relaxed)), Default::default())
    }

    /// A namespace of its own.
    ///
    /// # Errors
    /// `InvalidParameter` if `max_payload` is above 256 MiB or the policy makes no sense.
    pub fn with_config(config: MemoryConfig) -> Result<Arc<Self>> {
        if config.max_payload > limits::PAYLOAD_LEN_MAX {
            let bound = format_args!("0..={}", limits::PAYLOAD_LEN_MAX);
            return Err(Error::invalid("max_payload", config.max_payload, bound));
        }
        Abilities::full("memory").check_policy(&config.policy)?;
        let place = format!("m{}", NEXT_PLACE.fetch_add(1, Ordering::Relaxed));
        Ok(Self::build(place, config))
    }

    /// The namespace that everybody in this process shares: where `memory://name` leads.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        Arc::clone(SHARED.get_or_init(|| Self::build(String::new(), MemoryConfig::default())))
    }

    /// The namespace called `place`, if it still exists.
    pub(crate) fn at(place: &str) -> Option<Arc<Self>> {
        if place.is_empty() {
            return Some(Self::shared());
        }
        PLACES.lock().get(place).and_then(Weak::upgrade)
    }

    /// The address of one of its mailboxes.
    #[must_use]
    pub fn address(&self, mailbox: &Name) -> String {
        match self.place.as_str() {
            "" => format!("memory://{mailbox}"),
            place => format!("memory://{place}/{mailbox}"),
        }
    }

    fn build(place: String, config: MemoryConfig) -> Arc<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).expect("the system has randomness: std's maps need it too");
        let abilities = Abilities {
            durable: false,
            max_payload: config.max_payload,
            ..Abilities::full("memory")
        };
        let rooms = Rooms { by_name: BTreeMap::new(), next_number: 0, closed: false };
        let backend = Arc::new(Self {
            place: place.clone(),
            config,
            abilities,
            secret,
            rooms: RwLock::new(rooms),
        });
        if !place.is_empty() {
            PLACES.lock().insert(place, Arc::downgrade(&backend));
        }
        backend
    }

    /// The mailbox, if anybody has used it.
    fn known(&self, mailbox: &Name) -> Result<Option<Arc<Room<bytes::Bytes>>>> {
        let rooms = self.rooms.read();
        if rooms.closed {
            return Err(Error::closed(mailbox));
        }
        Ok(rooms.by_name.get(mailbox).map(Arc::clone))
    }

    /// The mailbox, made if nobody has used it yet.
    fn room(&self, mailbox: &Name) -> Result<Arc<Room<bytes::Bytes>>> {
        if let Some(room) = self.known(mailbox)? {
            return Ok(room);
        }
        let mut rooms = self.rooms.write();
        if rooms.closed {
            return Err(Error::closed(mailbox));
        }
        if let Some(room) = rooms.by_name.get(mailbox) {
            return Ok(Arc::clone(room));
        }
        if rooms.by_name.len() >= self.config.max_mailboxes {
            let most = self.config.max_mailboxes;
            let message = format!("there are {most} mailboxes, the most there may be");
            return Err(Error::new(ErrorKind::Saturated, message).with_mailbox(mailbox));
        }
        let fittings = Fittings {
            clock: self.config.clock.clone(),
            number: rooms.next_number,
            secret: self.secret,
            max_waiters: self.config.max_waiters,
            policy: self.config.policy.clone(),
        };
        rooms.next_number = rooms.next_number.wrapping_add(1);
        let room = Arc::new(Room::new(mailbox.clone(), fittings));
        rooms.by_name.insert(mailbox.clone(), Arc::clone(&room));
        Ok(room)
    }

    fn send_one(&self, room: &Room<bytes::Bytes>, message: Outgoing) -> Result<Sent> {
        self.abilities
            .check_send(&message, message.payload.len())
            .map_err(|error| error.with_mailbox(&room.name))?;
        let fingerprint = message
            .idempotency_key
            .is_some()
            .then(|| Fingerprint(*blake3::hash(&message.payload).as_bytes()));
        room.send(message, fingerprint)
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        PLACES.lock().remove(&self.place);
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").field("place", &self.place).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.abilities.check_batch("batch", batch.len())?;
        let room = self.room(mailbox)?;
        Ok(batch.into_iter().map(|message| self.send_one(&room, message)).collect())
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        self.abilities.check_receive(options).map_err(|error| error.with_mailbox(mailbox))?;
        self.room(mailbox)?.receive(options).await
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.abilities.check_batch("batch", batch.len())?;
        let room = self.known(mailbox)?;
        let settle = |settlement: Settlement| {
            self.abilities
                .check_verdict(&settlement.verdict)
                .map_err(|error| error.with_mailbox(mailbox))?;
            match &room {
                Some(room) => room.settle(settlement),
                None => Err(Error::new(
                    ErrorKind::ReceiptHandleExpired,
                    "receipt handle expired: nothing was ever received here",
                )
                .with_mailbox(mailbox)),
            }
        };
        Ok(batch.into_iter().map(settle).collect())
    }

    async fn peek(&self, mailbox: &Name, request: &Peek) -> Result<Vec<Record>> {
        check_peek(&self.abilities, request)?;
        self.known(mailbox)?.map_or_else(|| Ok(Vec::new()), |room| room.peek(request))
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        self.known(mailbox)?.map_or_else(|| Ok(Stats::default()), |room| room.stats())
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        self.known(mailbox)?.map_or(Ok(0), |room| room.purge())
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.room(mailbox)?.redrive(which)
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        self.room(mailbox)?.delete_dead(which)
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.abilities.check_policy(&policy).map_err(|error| error.with_mailbox(mailbox))?;
        self.room(mailbox)?.configure(policy)
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.known(mailbox)?.map_or_else(|| Ok(self.config.policy.clone()), |room| room.policy())
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let rooms = self.rooms.read();
        if rooms.closed {
            return Err(Error::new(ErrorKind::Closed, "the memory backend is closed"));
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = rooms.by_name.range::<Name, _>((from, Bound::Unbounded));
        Ok(range.take(limit).map(|(name, _)| name.clone()).collect())
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.known(mailbox)?;
        let removed = self.rooms.write().by_name.remove(mailbox);
        if let Some(room) = &removed {
            room.end(ErrorKind::NotFound);
        }
        Ok(removed.is_some())
    }

    async fn close(&self) -> Result<()> {
        let rooms: Vec<_> = {
            let mut rooms = self.rooms.write();
            rooms.closed = true;
            rooms.by_name.values().map(Arc::clone).collect()
        };
        rooms.iter().for_each(|room| room.end(ErrorKind::Closed));
        Ok(())
    }
}

/// Whether what is asked to be shown is within the limits.
pub(crate) fn check_peek(abilities: &Abilities, request: &Peek) -> Result<()> {
    match request {
        Peek::Live { limit } | Peek::Dead { limit, .. } => {
            abilities.check_batch("limit", *limit as usize)
        }
        Peek::These(ids) => abilities.check_batch("ids", ids.len()),
    }
}
