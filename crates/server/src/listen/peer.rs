//! The other end of a connection: where it is, what the connection is doing, and the deliveries
//! that are on their way to it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::auth::Memo;
use crate::calls::HandOver;

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Nothing over a Unix socket.
    pub(crate) ip: Option<IpAddr>,
    start: Instant,
    doing: AtomicU8,
    /// Since when, in milliseconds after the start.
    since: AtomicU64,
    on_its_way: Mutex<Vec<HandOver>>,
    /// The capability that came last.
    pub(crate) memo: Memo,
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing: it is between requests.
    Idle = 0,
    /// The head of a request is coming, or the first one is waited for.
    Head = 1,
    /// A request is worked on.
    Work = 2,
    /// Its answer is being written.
    Answer = 3,
}

impl Peer {
    pub(crate) fn new(ip: Option<IpAddr>) -> Self {
        Self {
            ip,
            start: Instant::now(),
            // Whoever connects has something to say.
            doing: AtomicU8::new(Doing::Head as u8),
            since: AtomicU64::new(0),
            on_its_way: Mutex::default(),
            memo: Memo::default(),
        }
    }

    pub(crate) fn doing(&self) -> Doing {
        match self.doing.load(Ordering::Relaxed) {
            1 => Doing::Head,
            2 => Doing::Work,
            3 => Doing::Answer,
            _ => Doing::Idle,
        }
    }

    pub(crate) fn set(&self, doing: Doing) {
        self.doing.store(doing as u8, Ordering::Relaxed);
        self.touch();
    }

    /// Something has happened.
    pub(crate) fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.since.store(now, Ordering::Relaxed);
    }

    /// For how long it has been doing that, or since something has happened.
    pub(crate) fn so_far(&self) -> Duration {
        let since = Duration::from_millis(self.since.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(since)
    }

    /// Deliveries that are in what is written next.
    pub(crate) fn on_its_way(&self, hand_over: HandOver) {
        self.on_its_way.lock().push(hand_over);
    }

    /// Everything that was to be written has been.
    pub(crate) fn written(&self) {
        let arrived = std::mem::take(&mut *self.on_its_way.lock());
        arrived.into_iter().for_each(HandOver::done);
    }

    /// The connection is over: what did not get out is given back.
    pub(crate) fn gone(&self) {
        drop(std::mem::take(&mut *self.on_its_way.lock()));
    }
}
