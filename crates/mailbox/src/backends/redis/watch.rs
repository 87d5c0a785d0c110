//! Waiting without asking again and again: one connection per server on which it tells of changes
//! to what was read there, shared by all who wait in this process. Invariant: a mailbox that
//! somebody waits at was read after the last change that was told, or is about to be.
//!
//! What was read is a mailbox's line and its deadlines. So a change by anybody is told, also by one
//! who knows the shared part of the layout only.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Pipeline, PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backends::redis::client::Client;
use crate::backends::redis::keys::{Keys, owner};
use crate::backends::redis::link::connect;
use crate::backends::redis::pace::Pace;
use crate::backends::redis::planted::Bug;
use crate::backends::redis::room::{Room, Sight};
use crate::backends::redis::target::Node;
use crate::backends::redis::trouble::Trouble;
use crate::error::{Error, ErrorKind, Result};
use crate::home::waiters::Ticket;
use crate::name::Name;

/// Deadlines change with every delivery: they are read again after a moment, for many at once.
const A_MOMENT: Duration = Duration::from_millis(20);
/// Everything is read again after so long, told or not.
const ANYWAY: Duration = Duration::from_secs(5);
/// The same where servers do not tell.
const WITHOUT_EVENTS: Duration = Duration::from_millis(200);
/// Before trying again what failed.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// Longest that reading may take.
const READING: Duration = Duration::from_secs(1);
/// Mailboxes that are read together.
const TOGETHER: usize = 64;

/// Everybody in this process who waits.
#[derive(Debug)]
pub(crate) struct Watch {
    rooms: Mutex<Rooms>,
    changed: Notify,
    pace: Pace,
    prefix: String,
    max_waiters: usize,
    /// Servers do not tell: rooms are read again and again.
    is_deaf: AtomicBool,
}

#[derive(Debug, Default)]
struct Rooms {
    /// Those with somebody in them; bounded by the receives that wait.
    by_name: HashMap<Name, Seen>,
    is_running: bool,
    is_closed: bool,
}

/// A room, and when it has to be read again.
#[derive(Debug)]
struct Seen {
    room: Arc<Room>,
    read_at: Instant,
    is_being_read: bool,
}

/// Connections on which servers tell of changes.
type Ears = Arc<Mutex<HashMap<Node, MultiplexedConnection>>>;

impl Watch {
    pub(crate) fn new(pace: Pace, prefix: String, max_waiters: usize, deaf: bool) -> Self {
        let (rooms, changed) = (Mutex::default(), Notify::new());
        Self { rooms, changed, pace, prefix, max_waiters, is_deaf: AtomicBool::new(deaf) }
    }

    pub(crate) fn waiters(&self, name: &Name) -> u64 {
        let rooms = self.rooms.lock();
        let count = rooms.by_name.get(name).map_or(0, |seen| seen.room.waiters());
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// A place among those who wait at a mailbox.
    pub(crate) fn enter(
        self: &Arc<Self>,
        client: &Arc<Client>,
        name: &Name,
        keys: &Keys,
    ) -> Result<(Arc<Room>, Ticket)> {
        let mut rooms = self.rooms.lock();
        if rooms.is_closed {
            return Err(Error::closed(name));
        }
        let seen = rooms.by_name.entry(name.clone()).or_insert_with(|| {
            let room = Room::new(name.clone(), keys.clone(), self.pace.clock.clone());
            Seen { room: Arc::new(room), read_at: Instant::now(), is_being_read: false }
        });
        let room = Arc::clone(&seen.room);
        let waiting = room.waiters();
        if waiting >= self.max_waiters {
            let message = format!("{waiting} receives are waiting, the most there may be");
            return Err(Error::new(ErrorKind::Saturated, message).with_mailbox(name));
        }
        if waiting == 0 {
            // Nobody has listened: what happened meanwhile is not known.
            seen.read_at = Instant::now();
            self.changed.notify_one();
        }
        let ticket = room.enter();
        drop(rooms);
        self.listen(client);
        Ok((room, ticket))
    }

    /// Sees to it that somebody listens.
    pub(crate) fn listen(self: &Arc<Self>, client: &Arc<Client>) {
        let mut rooms = self.rooms.lock();
        if !rooms.is_closed && !std::mem::replace(&mut rooms.is_running, true) {
            tokio::spawn(listen(Arc::downgrade(self), Arc::downgrade(client)));
        }
    }

    /// Ends the waiting at a mailbox that was removed.
    pub(crate) fn end(&self, name: &Name) {
        let removed = self.rooms.lock().by_name.remove(name);
        if let Some(seen) = removed {
            seen.room.end(ErrorKind::NotFound);
        }
    }

    /// Ends the waiting in this room, which belongs to a mailbox that was removed; not in a new one
    /// of the same name.
    fn end_room(&self, room: &Arc<Room>) {
        let mut rooms = self.rooms.lock();
        if rooms.by_name.get(&room.name).is_some_and(|seen| Arc::ptr_eq(&seen.room, room)) {
            rooms.by_name.remove(&room.name);
        }
        drop(rooms);
        room.end(ErrorKind::NotFound);
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        let rooms: Vec<Seen> = {
            let mut rooms = self.rooms.lock();
            rooms.is_closed = true;
            rooms.by_name.drain().map(|(_, seen)| seen).collect()
        };
        rooms.iter().for_each(|seen| seen.room.end(ErrorKind::Closed));
        self.changed.notify_one();
    }

    /// What to read now, and when to look next.
    fn due(&self) -> (Vec<Arc<Room>>, Instant) {
        let now = Instant::now();
        let mut rooms = self.rooms.lock();
        rooms.by_name.retain(|_, seen| seen.room.waiters() > 0);
        let mut next = now + ANYWAY;
        let mut due = Vec::new();
        for seen in rooms.by_name.values_mut().filter(|seen| !seen.is_being_read) {
            if seen.read_at <= now && due.len() < TOGETHER {
                seen.is_being_read = true;
                // Before it is read, so that a change that is told meanwhile is not forgotten.
                seen.read_at = now
                    + if self.is_deaf.load(Ordering::Relaxed) { WITHOUT_EVENTS } else { ANYWAY };
                due.push(Arc::clone(&seen.room));
            }
            next = next.min(seen.read_at);
        }
        (due, next)
    }

    fn was_read(&self, room: &Arc<Room>, is_read: bool) {
        let mut rooms = self.rooms.lock();
        if let Some(seen) = rooms.by_name.get_mut(&room.name)
            && Arc::ptr_eq(&seen.room, room)
        {
            seen.is_being_read = false;
            if !is_read {
                seen.read_at = seen.read_at.min(Instant::now() + AFTER_FAILURE);
            }
        }
        drop(rooms);
        self.changed.notify_one();
    }

    /// A server told something.
    fn told(&self, news: &PushInfo) {
        match news.kind {
            PushKind::Invalidate => match news.data.first() {
                Some(Value::Array(keys)) => keys.iter().for_each(|key| self.told_of(key)),
                _ => self.told_of_all(),
            },
            PushKind::Disconnection => self.told_of_all(),
            _ => {}
        }
    }

    fn told_of(&self, key: &Value) {
        let Value::BulkString(key) = key else { return };
        let Some(name) = owner(&self.prefix, key) else { return };
        let mut rooms = self.rooms.lock();
        let Some(seen) = rooms.by_name.get_mut(&name) else { return };
        let is_line = seen.room.keys.pending().as_bytes() == key;
        let read_at = Instant::now() + if is_line { Duration::ZERO } else { A_MOMENT };
        seen.read_at = seen.read_at.min(read_at);
        drop(rooms);
        self.changed.notify_one();
    }

    fn told_of_all(&self) {
        self.read_all_after(Duration::ZERO);
    }

    fn read_all_after(&self, pause: Duration) {
        let at = Instant::now() + pause;
        let mut rooms = self.rooms.lock();
        rooms.by_name.values_mut().for_each(|seen| seen.read_at = seen.read_at.min(at));
        drop(rooms);
        self.changed.notify_one();
    }
}

/// Says that nobody listens any more, however that came about: the runtime of the one who began may
/// have ended, while others wait on theirs.
struct Running(Weak<Watch>);

impl Drop for Running {
    fn drop(&mut self) {
        let Some(watch) = self.0.upgrade() else { return };
        let mut rooms = watch.rooms.lock();
        rooms.is_running = false;
        let now = Instant::now();
        for seen in rooms.by_name.values_mut() {
            (seen.is_being_read, seen.read_at) = (false, now);
        }
    }
}

/// Reads what has to be read, until nobody is left who could wait.
async fn listen(watch: Weak<Watch>, client: Weak<Client>) {
    let ears = Ears::default();
    let _running = Running(Weak::clone(&watch));
    loop {
        let (Some(watch), Some(client)) = (watch.upgrade(), client.upgrade()) else { return };
        if client.closed.is_cancelled() {
            return;
        }
        let (due, next) = watch.due();
        let mut by_node: HashMap<Option<Node>, Vec<Arc<Room>>> = HashMap::new();
        for room in due {
            let node = client.owner(room.keys.slot).map(|owner| owner.node);
            by_node.entry(node).or_default().push(room);
        }
        for (node, rooms) in by_node {
            let (watch, client, ears) =
                (Arc::clone(&watch), Arc::clone(&client), Arc::clone(&ears));
            // Each server by itself: one that is silent must not keep the others waiting.
            tokio::spawn(async move { read_all(&watch, &client, &ears, node, rooms).await });
        }
        tokio::select! {
            () = watch.changed.notified() => {}
            () = tokio::time::sleep_until(next) => {}
            () = client.moved.notified() => watch.told_of_all(),
            () = client.closed.cancelled() => return,
        }
    }
}

async fn read_all(
    watch: &Arc<Watch>,
    client: &Client,
    ears: &Ears,
    node: Option<Node>,
    rooms: Vec<Arc<Room>>,
) {
    let started = Instant::now();
    let read = match &node {
        Some(node) => read_from(watch, client, ears, node, &rooms).await,
        None => Ok(Vec::new()),
    };
    let sights = read.unwrap_or_else(|trouble| {
        tracing::debug!(?trouble, "redis: nothing is told");
        if let Some(node) = &node
            && ears.lock().remove(node).is_some()
        {
            // What others have read on it is not told of any more.
            watch.read_all_after(AFTER_FAILURE);
        }
        Vec::new()
    });
    let is_complete = sights.len() == rooms.len() && sights.iter().all(Option::is_some);
    let (mut sights, mut removed) = (sights.into_iter(), Vec::new());
    for room in &rooms {
        match sights.next().flatten().map(|sight| room.learn(sight)) {
            Some(false) => removed.push(room),
            learned => watch.was_read(room, learned.is_some()),
        }
    }
    if !removed.is_empty() {
        // One that was master before may come back empty: only who still is one is believed.
        let is_sure = client.look_around().await.is_ok();
        for room in removed {
            let owner = client.owner(room.keys.slot).map(|owner| owner.node);
            let is_read = is_sure && owner == node;
            if is_read {
                watch.end_room(room);
            }
            watch.was_read(room, is_read);
        }
    }
    if !is_complete {
        client.survey(started).await;
    }
}

/// Reads rooms, in a way that the server tells when what was read changes.
async fn read_from(
    watch: &Arc<Watch>,
    client: &Client,
    ears: &Ears,
    node: &Node,
    rooms: &[Arc<Room>],
) -> Result<Vec<Option<Sight>>, Trouble> {
    let mut ear = ear(watch, client, ears, node).await?;
    let mut pipeline = Pipeline::with_capacity(1 + 4 * rooms.len());
    pipeline.cmd("TIME");
    for room in rooms {
        pipeline.cmd("LLEN").arg(room.keys.pending());
        pipeline.cmd("ZRANGE").arg(room.keys.invisible()).arg(0).arg(0).arg("WITHSCORES");
        pipeline.cmd("HGET").arg(room.keys.state()).arg("born");
        pipeline.cmd("TTL").arg(room.keys.state());
    }
    let answers = ear.send_packed_commands(&pipeline, 0, pipeline.len());
    let answers = tokio::time::timeout(READING, answers).await;
    let answers = answers.map_err(|_| Trouble::silent(node))?;
    let mut answers = answers.map_err(|error| Trouble::broken(node, error))?.into_iter();
    let present = present(&watch.pace, answers.next());
    let mut sights = Vec::with_capacity(rooms.len());
    for _ in rooms {
        let sight = [answers.next(), answers.next(), answers.next(), answers.next()];
        sights.push(sight_of(&watch.pace, node, present, sight));
    }
    Ok(sights)
}

async fn ear(
    watch: &Arc<Watch>,
    client: &Client,
    ears: &Ears,
    node: &Node,
) -> Result<MultiplexedConnection, Trouble> {
    if let Some(ear) = ears.lock().get(node) {
        return Ok(ear.clone());
    }
    let opened = client.target.client(node, &client.config).map_err(Trouble::Refused)?;
    let watch_weak = Arc::downgrade(watch);
    let is_deaf = client.config.planted.has(Bug::Deaf);
    let hear = move |news: PushInfo| {
        if let Some(watch) = watch_weak.upgrade().filter(|_| !is_deaf) {
            watch.told(&news);
        }
        Ok::<(), std::convert::Infallible>(())
    };
    let config = AsyncConnectionConfig::new().set_push_sender(hear);
    let mut ear = connect(node, &opened, config).await?;
    if !watch.is_deaf.load(Ordering::Relaxed) {
        let mut tell = redis::cmd("CLIENT");
        tell.arg("TRACKING").arg("ON");
        let told = tokio::time::timeout(READING, ear.send_packed_command(&tell)).await;
        let told = told.map_err(|_| Trouble::silent(node))?;
        if let Value::ServerError(error) = told.map_err(|error| Trouble::broken(node, error))? {
            // Without it rooms are read several times a second, which is late but not never.
            watch.is_deaf.store(true, Ordering::Relaxed);
            watch.read_all_after(WITHOUT_EVENTS);
            let (code, why) = (error.code(), error.details().unwrap_or_default());
            tracing::warn!(%node, code, why, "redis: it does not tell of changes; events=no");
        }
    }
    let mut ears = ears.lock();
    // Two at once: what was read on a connection that nobody keeps is not told of.
    if let Some(first) = ears.get(node) {
        return Ok(first.clone());
    }
    // Servers that are no masters any more have no rooms: nobody would notice that they are gone.
    let owners = client.owners();
    ears.retain(|known, _| owners.contains(known));
    ears.insert(node.clone(), ear.clone());
    Ok(ear)
}

fn present(pace: &Pace, time: Option<Value>) -> u64 {
    if pace.clock.is_manual() {
        return pace.clock.now().as_nanos();
    }
    let Some(Value::Array(parts)) = time else { return 0 };
    let mut parts = parts.into_iter().map(|part| match part {
        Value::BulkString(text) => std::str::from_utf8(&text).ok().and_then(|t| t.parse().ok()),
        _ => None,
    });
    let (seconds, micros): (Option<u64>, Option<u64>) =
        (parts.next().flatten(), parts.next().flatten());
    seconds.unwrap_or(0).saturating_mul(1_000_000).saturating_add(micros.unwrap_or(0))
}

/// What was read of one room; none if the server did not say.
fn sight_of(pace: &Pace, node: &Node, present: u64, read: [Option<Value>; 4]) -> Option<Sight> {
    let [Some(Value::Int(ready)), Some(Value::Array(first)), Some(born), Some(Value::Int(ttl))] =
        read
    else {
        return None;
    };
    let born = match born {
        Value::BulkString(born) => Some(born),
        Value::Nil => None,
        _ => return None,
    };
    // With the newer protocol a member and its score are a pair of their own.
    let score = first.into_iter().next_back().and_then(|last| match last {
        Value::Array(pair) => pair.into_iter().next_back(),
        other => Some(other),
    });
    let score = match score {
        Some(Value::Double(score)) => Some(score),
        Some(Value::BulkString(text)) => std::str::from_utf8(&text).ok()?.parse().ok(),
        _ => None,
    };
    let next_due = score.map(|score| pace.local(pace.read_score(score), present));
    // Negative: it does not go by itself.
    let expires = u64::try_from(ttl).ok().map(|ttl| Instant::now() + Duration::from_secs(ttl));
    let (ready, born) = (u64::try_from(ready).unwrap_or(0), (node.clone(), born));
    Some(Sight { ready, next_due, born, expires })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::clock::Clock;

    #[test]
    fn a_room_that_is_new_is_not_ended_for_an_old_one_of_its_name() {
        let clock = Clock::system();
        let name: Name = "jobs".parse().expect("a name");
        let room = || Arc::new(Room::new(name.clone(), Keys::of("", &name), clock.clone()));
        let (old, new) = (room(), room());
        let watch = Watch::new(Pace { clock: clock.clone() }, String::new(), 8, false);
        let seen = Seen { room: Arc::clone(&new), read_at: Instant::now(), is_being_read: false };
        watch.rooms.lock().by_name.insert(name.clone(), seen);
        let (first, last) = (old.enter(), new.enter());
        let sleep = |room: &Room, ticket| room.sleep(ticket, clock.now(), None, room.learned());
        watch.end_room(&old);
        let ended = sleep(&old, first).expect_err("its mailbox was removed");
        assert_eq!(ended.kind(), ErrorKind::NotFound);
        assert!(sleep(&new, last).is_ok() && watch.waiters(&name) == 1);
        watch.end_room(&new);
        assert!(sleep(&new, last).is_err() && watch.waiters(&name) == 0);
    }
}
