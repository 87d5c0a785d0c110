//! The other end of a connection: where it is, what the connection is doing, and the deliveries
//! that are on their way to it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::cut::Cut;
use super::untaken::{AnswerId, Untaken};
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
    /// Requests that are worked on, where there can be several.
    many: AtomicUsize,
    /// There can be several: what comes in then need not be the head of one.
    is_shared: AtomicBool,
    /// It is to be told that nothing more is answered, because it asks nothing.
    is_to_leave: AtomicBool,
    answers: AtomicU64,
    /// What of its answers waits to be taken, where there can be several.
    pub(crate) untaken: Untaken,
    /// Whether it was cut off from here.
    pub(crate) cut: Cut,
    /// Calls without a capability that are open.
    pub(crate) guests: AtomicUsize,
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

/// A request of a connection that can have several, until its answer is made.
#[derive(Debug)]
pub(crate) struct AtWork(Arc<Peer>);

impl Drop for AtWork {
    fn drop(&mut self) {
        if self.0.many.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.set(Doing::Idle);
        }
    }
}

impl Peer {
    /// What it does not take in this time is late.
    pub(crate) fn new(ip: Option<IpAddr>, patience: Duration) -> Self {
        Self {
            ip,
            start: Instant::now(),
            // Whoever connects has something to say.
            doing: AtomicU8::new(Doing::Head as u8),
            since: AtomicU64::new(0),
            on_its_way: Mutex::default(),
            many: AtomicUsize::new(0),
            is_shared: AtomicBool::new(false),
            is_to_leave: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            untaken: Untaken::new(patience),
            cut: Cut::default(),
            guests: AtomicUsize::new(0),
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

    /// Whether several requests can be worked on at a time.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Whether its client is to be told that it is too late to ask more.
    pub(crate) fn is_to_leave(&self) -> bool {
        self.is_to_leave.load(Ordering::Relaxed)
    }

    /// Its client is to be told; whether that is new.
    pub(crate) fn let_leave(&self) -> bool {
        self.touch();
        !self.is_to_leave.swap(true, Ordering::Relaxed)
    }

    /// Whether one of several requests is worked on, or its answer on its way: the truth, where
    /// what it is doing is a hint.
    pub(crate) fn is_busy(&self) -> bool {
        self.many.load(Ordering::Acquire) > 0 || !self.untaken.is_empty()
    }

    /// One more answer, where there can be several.
    pub(crate) fn new_answer(&self) -> AnswerId {
        AnswerId(self.answers.fetch_add(1, Ordering::Relaxed))
    }

    /// One of several requests is worked on, until what this gives is dropped.
    pub(crate) fn at_work(self: &Arc<Self>) -> AtWork {
        self.is_shared.store(true, Ordering::Relaxed);
        if self.many.fetch_add(1, Ordering::AcqRel) == 0 {
            self.set(Doing::Work);
        }
        AtWork(Arc::clone(self))
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
