//! Places for requests on a connection that has many at a time, and whether it can still be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a connection is kept that nobody uses: less than a service keeps it.
const KEEP: Duration = Duration::from_secs(30);

/// A place. It is free again when nobody has it any more.
pub(super) type Place = Arc<OwnedSemaphorePermit>;

/// The places of a connection.
pub(super) struct Places {
    free: Arc<Semaphore>,
    most: AtomicUsize,
    /// The connection is over, or nobody needs it any more.
    closed: CancellationToken,
    begun: Instant,
    is_retired: AtomicBool,
    /// When it was last used: milliseconds since it has begun.
    used: AtomicU64,
}

impl Places {
    /// On a connection, until it is closed. There are none until it is known how many.
    pub(super) fn new(closed: CancellationToken) -> Self {
        Self {
            free: Arc::new(Semaphore::new(0)),
            most: AtomicUsize::new(0),
            closed,
            begun: Instant::now(),
            is_retired: AtomicBool::new(false),
            used: AtomicU64::new(0),
        }
    }

    /// There are so many; to be said once.
    pub(super) fn allow(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
        self.free.add_permits(most);
    }

    /// Time since the connection has begun, in milliseconds.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// It was used just now.
    pub(super) fn touch(&self) {
        self.used.store(self.now(), Ordering::Relaxed);
    }

    /// Nothing new is asked on it; what is on it goes on.
    #[cfg(feature = "oap")]
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    fn is_usable(&self) -> bool {
        !self.closed.is_cancelled() && !self.is_retired.load(Ordering::Relaxed)
    }

    /// Whether something can be asked.
    pub(super) fn is_open(&self) -> bool {
        if !self.is_usable() {
            return false;
        }
        let idle = self.now().saturating_sub(self.used.load(Ordering::Relaxed));
        self.taken() > 0 || u128::from(idle) < KEEP.as_millis()
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.most.load(Ordering::Relaxed).saturating_sub(self.free.available_permits())
    }

    /// Whether one is free.
    pub(super) fn has_free(&self) -> bool {
        self.free.available_permits() > 0
    }

    /// A place, if one is free.
    pub(super) fn try_take(&self) -> Option<Place> {
        // One of a connection that is over is good for nothing.
        let free = self.is_usable().then(|| Arc::clone(&self.free))?;
        free.try_acquire_owned().ok().map(Arc::new)
    }

    /// A place, in turn; nothing if the connection ends before.
    pub(super) async fn take(&self) -> Option<Place> {
        let place = Arc::clone(&self.free).acquire_owned();
        self.closed.run_until_cancelled(place).await?.ok().map(Arc::new)
    }
}
