//! Which connection a request takes, where one has many at a time. Invariant: there are no more
//! than were allowed for, and one that is being made is waited for only by those who have no place
//! on another.
//!
//! Receives that wait have connections beside those of everything else, so that a send never waits
//! for a place that a receive has which waits for that very message. Each runtime has its own: one
//! that nobody drives reads no answers.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use super::door::Failed;
use super::places::{Place, Places};
use super::runtimes::{Local, PerRuntime};
use crate::error::{Error, ErrorKind};

/// So many requests on one connection are no reason to make another.
const FEW: usize = 8;
/// How long nobody tries to make a further connection where that has failed.
const BACK_OFF: Duration = Duration::from_secs(5);
/// How often a connection may end before there was a place on it.
const ATTEMPTS: usize = 4;
/// Most connections that receives wait on.
const MOST_WAITING: usize = 64;

/// Makes connections.
pub(super) trait Opener: Send + Sync + 'static {
    type Link: Linked;

    fn open(&self) -> impl Future<Output = Result<Self::Link, Failed>> + Send;
}

/// A connection. It is closed when it is dropped.
pub(super) trait Linked: Send + Sync + 'static {
    fn places(&self) -> &Places;
}

/// Connections.
pub(super) struct Pool<O: Opener> {
    opener: Arc<O>,
    connections: usize,
    lanes: PerRuntime<Lanes<O>>,
}

/// Those of a runtime.
struct Lanes<O: Opener> {
    opener: Arc<O>,
    /// For everything that is answered at once.
    lanes: Vec<Lane<O>>,
    /// For receives that wait: more of them when all places are taken.
    waiting: Mutex<Vec<Arc<Lane<O>>>>,
}

/// Where a connection is, or can be.
struct Lane<O: Opener>(Mutex<State<O>>);

enum State<O: Opener> {
    Closed,
    Opening(Opened<O>),
    Open(Arc<O::Link>),
    /// None could be made, the last time.
    Failed(Instant),
}

/// What comes of opening a connection; if nothing does, why not, and since when.
type Made<O> = Result<Arc<<O as Opener>::Link>, (Error, Instant)>;

/// The same, once it is known.
type Opened<O> = watch::Receiver<Option<Made<O>>>;

/// A place on a connection.
pub(super) type Placed<O> = (Arc<<O as Opener>::Link>, Place);

impl<O: Opener> Pool<O> {
    pub(super) fn new(opener: O, connections: usize) -> Self {
        let connections = connections.max(1);
        Self { opener: Arc::new(opener), connections, lanes: PerRuntime::default() }
    }

    pub(super) fn opener(&self) -> &O {
        &self.opener
    }

    fn here(&self) -> Arc<Lanes<O>> {
        self.lanes.here(|| Lanes {
            opener: Arc::clone(&self.opener),
            lanes: (0..self.connections).map(|_| Lane::new()).collect(),
            waiting: Mutex::default(),
        })
    }

    /// Nothing new is asked on the connections that there are; what is on them goes on.
    pub(super) fn retire(&self) {
        self.lanes.clear();
    }

    /// A place for a request that is answered at once: on the connection with the fewest, in turn
    /// if all are full. How long that may take is said by the caller.
    pub(super) async fn place(&self) -> Result<Placed<O>, Failed> {
        self.here().place().await
    }

    /// A place for a receive that waits: it must not have to wait for others that do.
    pub(super) async fn waiting_place(&self) -> Result<Placed<O>, Failed> {
        self.here().waiting_place().await
    }
}

impl<O: Opener> Local for Lanes<O> {
    fn is_idle(&self) -> bool {
        let is_over = |lane: &Lane<O>| !lane.is_opening() && lane.open().is_none();
        self.lanes.iter().all(is_over) && self.waiting.lock().iter().all(|lane| is_over(lane))
    }
}

impl<O: Opener> Lanes<O> {
    async fn place(&self) -> Result<Placed<O>, Failed> {
        // Each time something has ended, or come about.
        for _ in 0..ATTEMPTS + self.lanes.len() {
            let open = self.lanes.iter().filter_map(Lane::open);
            let Some(link) = open.min_by_key(|link| link.places().taken()) else {
                // One is enough.
                let lane = self.lanes.iter().find(|lane| lane.is_opening());
                let lane = lane.or(self.lanes.first());
                lane.ok_or_else(|| nobody("there are no connections"))?.link(&self.opener).await?;
                continue;
            };
            let many = link.places().taken() > FEW;
            let further = if many { self.further() } else { None };
            if let Some(place) = link.places().try_take() {
                return Ok((link, place));
            }
            let taken = match further {
                None => self.next_free().await,
                // Whichever is there first. If it does not come about, the other does.
                Some(further) => tokio::select! {
                    biased;
                    taken = self.next_free() => taken,
                    _ = further.link(&self.opener) => None,
                },
            };
            if let Some(placed) = taken {
                return Ok(placed);
            }
        }
        Err(nobody("connections to the service end as soon as they are made"))
    }

    /// A place on whichever connection has one first: one of them may have stopped answering.
    /// Nothing if one ends before, or there are none.
    async fn next_free(&self) -> Option<Placed<O>> {
        let open = self.lanes.iter().filter_map(Lane::open);
        let wait =
            |link: Arc<O::Link>| async move { link.places().take().await.map(|it| (link, it)) };
        let mut waits: Vec<_> = open.map(|link| Box::pin(wait(link))).collect();
        poll_fn(|context| {
            let mut all = waits.iter_mut().map(|wait| wait.as_mut().poll(context));
            let first = all.find(Poll::is_ready);
            first.unwrap_or(if waits.is_empty() { Poll::Ready(None) } else { Poll::Pending })
        })
        .await
    }

    /// A further connection that is being made; from now on, if there can be one.
    fn further(&self) -> Option<&Lane<O>> {
        let opening = self.lanes.iter().find(|lane| lane.is_opening());
        opening.or_else(|| {
            let lane = self.lanes.iter().find(|lane| lane.may_be_made())?;
            let _ = lane.begin(&self.opener);
            Some(lane)
        })
    }

    async fn waiting_place(&self) -> Result<Placed<O>, Failed> {
        for _ in 0..ATTEMPTS + MOST_WAITING {
            let (lane, is_last) = self.waiting_lane();
            let link = lane.link(&self.opener).await?;
            let place = if is_last { link.places().take().await } else { link.places().try_take() };
            if let Some(place) = place {
                return Ok((link, place));
            }
        }
        Err(nobody("there is no place for another receive that waits"))
    }

    /// A connection that has places, or is being made, or is new; if there are too many, the one
    /// with the fewest who wait.
    fn waiting_lane(&self) -> (Arc<Lane<O>>, bool) {
        let mut lanes = self.waiting.lock();
        lanes.retain(|lane| !lane.is_closed());
        let free = lanes.iter().find(|lane| lane.has_place());
        if let Some(lane) = free.or_else(|| lanes.iter().find(|lane| lane.is_opening())) {
            return (Arc::clone(lane), false);
        }
        if lanes.len() >= MOST_WAITING
            && let Some(lane) = lanes.iter().min_by_key(|lane| lane.load())
        {
            return (Arc::clone(lane), true);
        }
        let lane = Arc::new(Lane::new());
        // So that others find it being made.
        let _ = lane.begin(&self.opener);
        lanes.push(Arc::clone(&lane));
        (lane, false)
    }
}

impl<O: Opener> Lane<O> {
    const fn new() -> Self {
        Self(Mutex::new(State::Closed))
    }

    /// How it is now.
    fn state(&self) -> MutexGuard<'_, State<O>> {
        let mut state = self.0.lock();
        let next = match &*state {
            State::Opening(opened) => match &*opened.borrow() {
                Some(Ok(link)) => Some(State::Open(Arc::clone(link))),
                Some(Err((_, since))) => Some(State::Failed(*since)),
                // Whoever was to make it is gone.
                None if opened.has_changed().is_err() => Some(State::Closed),
                None => None,
            },
            State::Closed | State::Open(_) | State::Failed(_) => None,
        };
        if let Some(next) = next {
            *state = next;
        }
        state
    }

    /// How many are on it.
    fn load(&self) -> usize {
        self.open().map_or(0, |link| link.places().taken())
    }

    fn is_opening(&self) -> bool {
        matches!(&*self.state(), State::Opening(_))
    }

    fn is_closed(&self) -> bool {
        match &*self.state() {
            State::Closed | State::Failed(_) => true,
            State::Opening(_) => false,
            State::Open(link) => !link.places().is_open(),
        }
    }

    /// Whether there is no connection, and it is worth while to make one.
    fn may_be_made(&self) -> bool {
        match &*self.state() {
            State::Closed => true,
            State::Failed(since) => since.elapsed() >= BACK_OFF,
            State::Opening(_) => false,
            State::Open(link) => !link.places().is_open(),
        }
    }

    /// The connection, if it is there.
    fn open(&self) -> Option<Arc<O::Link>> {
        match &*self.state() {
            State::Open(link) if link.places().is_open() => Some(Arc::clone(link)),
            _ => None,
        }
    }

    fn has_place(&self) -> bool {
        self.open().is_some_and(|link| link.places().has_free())
    }

    /// The connection; a new one if there is none.
    async fn link(&self, opener: &Arc<O>) -> Result<Arc<O::Link>, Failed> {
        let mut opened = match self.begin(opener) {
            Ok(link) => return Ok(link),
            Err(opened) => opened,
        };
        let made = match opened.wait_for(Option::is_some).await {
            Ok(made) => made.clone(),
            Err(_) => None,
        };
        match made {
            Some(Ok(link)) => Ok(link),
            Some(Err((error, _))) => Err(Failed::void(error)),
            None => Err(nobody("a connection was not finished")),
        }
    }

    /// The connection, or that it is being made. It is made even if nobody waits for it any more.
    fn begin(&self, opener: &Arc<O>) -> Result<Arc<O::Link>, Opened<O>> {
        let mut state = self.state();
        match &*state {
            State::Open(link) if link.places().is_open() => return Ok(Arc::clone(link)),
            State::Opening(opened) => return Err(opened.clone()),
            State::Open(_) | State::Closed | State::Failed(_) => {}
        }
        let (tell, opened) = watch::channel(None);
        *state = State::Opening(opened.clone());
        let opener = Arc::clone(opener);
        tokio::spawn(async move {
            let made = opener.open().await;
            let made = made.map(Arc::new).map_err(|failed| (failed.error, Instant::now()));
            let _ = tell.send(Some(made));
        });
        Err(opened)
    }
}

fn nobody(message: &str) -> Failed {
    Failed::void(Error::new(ErrorKind::Connection, message))
}
