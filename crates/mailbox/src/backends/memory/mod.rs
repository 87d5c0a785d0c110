//! Mailboxes in the memory of this process.
//!
//! * **Model**: one [`core::Queue`](mailbox_core::Queue) per mailbox, payloads as bytes.
//! * **Durability**: none beyond the process; `send` returns when the message is in memory (D2).
//! * **Ordering**: strict, in order of becoming receivable (D7).
//! * **Clock**: monotonic; deadlines are noticed by timers, not by polling.
//! * **Limits**: see [`MemoryConfig`].
//! * **Cancel safety**: a dropped receive holds nothing; no other call awaits.
//! * **Layout**: none; what there is ends with the backend.
//! * **Operations notes**: memory is bounded by `max_mailboxes`, and for each mailbox by `max_size`
//!   and retention of its policy, which have no bound unless you set one.

mod config;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use mailbox_core::{Fingerprint, Policy, limits};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::abilities::Abilities;
use crate::backend::{
    Backend, Delivery, Outgoing, Peek, Record, Selection, Sent, Settlement, Stats,
};
use crate::error::{Error, ErrorKind, Result};
use crate::figure::Figure;
use crate::home::keep::InMemory;
use crate::home::names::{names, nothing_dead};
use crate::home::random;
use crate::home::room::{Fittings, Room};
use crate::mailbox::Mailbox;
use crate::name::Name;
use crate::options::ReceiveOptions;

pub use config::MemoryConfig;

/// Keeps mailboxes in memory. One backend is one namespace: mailboxes of different backends are
/// different, whatever their names. An address with the namespace's place in it leads to it from
/// anywhere in the process; places are random, so only those who were given one have it.
pub struct MemoryBackend {
    /// Its part of addresses: `memory://PLACE/name`. Empty for the one that the process shares.
    place: String,
    config: MemoryConfig,
    abilities: Abilities,
    secret: [u8; 32],
    rooms: RwLock<Rooms>,
    /// What stands in front of it, if anything does: addresses lead there.
    front: OnceLock<Weak<dyn Backend>>,
}

type Bodies = Room<InMemory<bytes::Bytes>>;

struct Rooms {
    by_name: BTreeMap<Name, Arc<Bodies>>,
    next_number: u32,
    closed: bool,
}

/// Backends that addresses can reach. Holds no backend alive; a dropped one takes itself out.
static PLACES: Mutex<BTreeMap<String, Weak<MemoryBackend>>> = Mutex::new(BTreeMap::new());
static SHARED: OnceLock<Arc<MemoryBackend>> = OnceLock::new();

impl MemoryBackend {
    /// A namespace of its own, with default settings.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::build(new_place(), MemoryConfig::default())
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
        Ok(Self::build(new_place(), config))
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

    /// Its mailbox called `name`, with bodies as JSON.
    ///
    /// # Errors
    /// `InvalidParameter` for a bad name.
    pub fn mailbox<T, R, N>(self: &Arc<Self>, name: N) -> Result<Mailbox<T, R>>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
        R: Serialize + DeserializeOwned + Send + Sync + 'static,
        N: TryInto<Name>,
        Error: From<N::Error>,
    {
        Ok(Mailbox::new(self.reached(), name.try_into()?))
    }

    /// Lets addresses lead to `front`, which stands for this backend from now on. The first one
    /// stays.
    pub(crate) fn stand_behind(&self, front: Weak<dyn Backend>) {
        self.front.get_or_init(|| front);
    }

    /// The backend that its addresses lead to: itself, unless something stands in front of it.
    pub(crate) fn reached(self: &Arc<Self>) -> Arc<dyn Backend> {
        match self.front.get().and_then(Weak::upgrade) {
            Some(front) => front,
            None => Arc::<Self>::clone(self),
        }
    }

    fn build(place: String, config: MemoryConfig) -> Arc<Self> {
        let secret = random();
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
            front: OnceLock::new(),
        });
        if !place.is_empty() {
            PLACES.lock().insert(place, Arc::downgrade(&backend));
        }
        backend
    }

    /// The mailbox, if anybody has used it.
    fn known(&self, mailbox: &Name) -> Result<Option<Arc<Bodies>>> {
        let rooms = self.rooms.read();
        if rooms.closed {
            return Err(Error::closed(mailbox));
        }
        Ok(rooms.by_name.get(mailbox).map(Arc::clone))
    }

    /// The mailbox, made if nobody has used it yet.
    pub(crate) fn room(&self, mailbox: &Name) -> Result<Arc<Bodies>> {
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
        };
        rooms.next_number = rooms.next_number.wrapping_add(1);
        let policy = self.config.policy.clone();
        let room = Arc::new(Room::new(mailbox.clone(), fittings, InMemory::new(), policy));
        rooms.by_name.insert(mailbox.clone(), Arc::clone(&room));
        Ok(room)
    }

    fn check_batch(&self, mailbox: &Name, size: usize) -> Result<()> {
        let checked = self.abilities.check_batch("batch", size);
        checked.map_err(|error| error.with_mailbox(mailbox))
    }

    fn send_one(&self, room: &Bodies, message: Outgoing) -> Result<Sent> {
        self.abilities
            .check_send(&message, message.payload.len())
            .map_err(|error| error.with_mailbox(&room.name))?;
        let fingerprint = message
            .idempotency_key
            .is_some()
            .then(|| Fingerprint(*blake3::hash(&message.payload).as_bytes()));
        let packed = room.pack(message, fingerprint)?;
        room.send(&packed, packed.at()).map(|(sent, _)| sent)
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

    fn address(&self, mailbox: &Name) -> String {
        match self.place.as_str() {
            "" => format!("memory://{mailbox}"),
            place => format!("memory://{place}/{mailbox}"),
        }
    }

    async fn send(&self, mailbox: &Name, batch: Vec<Outgoing>) -> Result<Vec<Result<Sent>>> {
        self.check_batch(mailbox, batch.len())?;
        let room = self.room(mailbox)?;
        Ok(batch.into_iter().map(|message| self.send_one(&room, message)).collect())
    }

    async fn receive(&self, mailbox: &Name, options: &ReceiveOptions) -> Result<Vec<Delivery>> {
        self.abilities.check_receive(options).map_err(|error| error.with_mailbox(mailbox))?;
        self.room(mailbox)?.receive(options).await
    }

    async fn settle(&self, mailbox: &Name, batch: Vec<Settlement>) -> Result<Vec<Result<()>>> {
        self.check_batch(mailbox, batch.len())?;
        let room = self.known(mailbox)?;
        let settle = |settlement: Settlement| {
            self.abilities
                .check_verdict(&settlement.verdict)
                .map_err(|error| error.with_mailbox(mailbox))?;
            match &room {
                Some(room) => room.settle(settlement).map(drop),
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
        check_peek(&self.abilities, request).map_err(|error| error.with_mailbox(mailbox))?;
        self.known(mailbox)?.map_or_else(|| Ok(Vec::new()), |room| room.peek(request))
    }

    async fn stats(&self, mailbox: &Name) -> Result<Stats> {
        self.known(mailbox)?.map_or_else(|| Ok(Stats::default()), |room| room.stats())
    }

    async fn purge(&self, mailbox: &Name) -> Result<u64> {
        let room = self.known(mailbox)?;
        room.map_or(Ok(0), |room| room.purge().map(|(purged, _)| purged))
    }

    async fn redrive(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        match self.known(mailbox)? {
            Some(room) => room.redrive(&mut &*room.dead_keys(which)?),
            None => nothing_dead(mailbox, which),
        }
    }

    async fn delete_dead(&self, mailbox: &Name, which: &Selection) -> Result<u64> {
        match self.known(mailbox)? {
            Some(room) => room.delete_dead(&mut &*room.dead_keys(which)?),
            None => nothing_dead(mailbox, which),
        }
    }

    async fn configure(&self, mailbox: &Name, policy: Policy) -> Result<()> {
        self.abilities.check_policy(&policy).map_err(|error| error.with_mailbox(mailbox))?;
        self.room(mailbox)?.configure(policy).map(drop)
    }

    async fn policy(&self, mailbox: &Name) -> Result<Policy> {
        self.known(mailbox)?.map_or_else(|| Ok(self.config.policy.clone()), |room| room.policy())
    }

    async fn list(&self, after: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let rooms = self.rooms.read();
        if rooms.closed {
            return Err(Error::new(ErrorKind::Closed, "the memory backend is closed"));
        }
        Ok(names(&rooms.by_name, after, limit))
    }

    async fn remove(&self, mailbox: &Name) -> Result<bool> {
        self.known(mailbox)?;
        let removed = self.rooms.write().by_name.remove(mailbox);
        if let Some(room) = &removed {
            room.end(ErrorKind::NotFound);
        }
        Ok(removed.is_some())
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
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

/// A place that nobody can guess: an address with it is as good as having been given it.
fn new_place() -> String {
    let random: [u8; 8] = random();
    format!("m{:016x}", u64::from_le_bytes(random))
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
