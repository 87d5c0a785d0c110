//! Time for homes. Invariant: queue time never goes back and has nothing to do with wall time (V6).

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mailbox_core::Time;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::timestamp::Timestamp;

/// Where a backend takes its time from: the system, or a test that moves it by hand.
#[derive(Clone)]
pub struct Clock {
    source: Source,
    /// How far queue time is ahead of the source: what had passed before, in another life.
    ahead: Duration,
    /// How far it is behind: what had passed here before, in no life of the queue.
    behind: Duration,
}

/// A point in time that another process on this machine can name too, until the next boot.
#[cfg(any(feature = "journal", feature = "directory"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Which boot of which machine; zeros if that is not known, which no other mark equals.
    pub(crate) boot: [u8; 16],
    /// Nanoseconds since then, also while the machine sleeps.
    pub(crate) at: u64,
}

#[derive(Clone)]
enum Source {
    /// Tokio's clock, which is the system's monotonic one unless a test has paused it.
    System {
        origin: Instant,
        wall: Arc<WallOffset>,
    },
    Manual(Arc<Manual>),
}

impl Clock {
    /// The system's monotonic clock. Waiting needs a tokio runtime with its timer enabled.
    #[must_use]
    pub fn system() -> Self {
        Source::System { origin: Instant::now(), wall: Arc::default() }.into()
    }

    /// The present in queue time.
    pub(crate) fn now(&self) -> Time {
        self.queue_time(self.elapsed())
    }

    /// Whether a test moves it by hand.
    #[cfg(feature = "redis")]
    pub(crate) const fn is_manual(&self) -> bool {
        matches!(self.source, Source::Manual(_))
    }

    /// How long the source has been running.
    fn elapsed(&self) -> Duration {
        match &self.source {
            Source::System { origin, .. } => origin.elapsed(),
            Source::Manual(manual) => manual.state.lock().elapsed,
        }
    }

    /// The queue time when the source has been running this long.
    const fn queue_time(&self, elapsed: Duration) -> Time {
        Time::ZERO.after(elapsed.saturating_sub(self.behind)).after(self.ahead)
    }

    /// How long the source has been running at this queue time.
    const fn source_time(&self, time: Time) -> Duration {
        time.since(Time::ZERO).saturating_sub(self.ahead).saturating_add(self.behind)
    }

    /// This clock, set so that it shows `now` at this moment.
    #[cfg(feature = "journal")]
    pub(crate) fn set_to(&self, now: Time) -> Self {
        let (now, elapsed) = (now.since(Time::ZERO), self.elapsed());
        let (ahead, behind) = (now.saturating_sub(elapsed), elapsed.saturating_sub(now));
        Self { source: self.source.clone(), ahead, behind }
    }

    /// This moment, for another process to compare with.
    #[cfg(any(feature = "journal", feature = "directory"))]
    pub(crate) fn mark(&self) -> Mark {
        match &self.source {
            Source::System { .. } => boot::mark(),
            Source::Manual(manual) => {
                let state = manual.state.lock();
                let at = u64::try_from(state.elapsed.as_nanos()).unwrap_or(u64::MAX);
                Mark { boot: state.boot, at }
            }
        }
    }

    /// The wall time at `now`, which must be the present.
    pub(crate) fn wall_at(&self, now: Time) -> Timestamp {
        match &self.source {
            Source::System { wall, .. } => wall.at(Time::ZERO.after(self.source_time(now))),
            Source::Manual(manual) => {
                let state = manual.state.lock();
                state.wall_origin.after(state.elapsed)
            }
        }
    }

    /// Ends at `deadline`.
    pub(crate) async fn sleep_until(&self, deadline: Time) {
        let after_start = self.source_time(deadline);
        match &self.source {
            Source::System { origin, .. } => {
                // Far beyond any deadline a caller can ask for; an `Instant` cannot hold more.
                const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
                let after_origin = after_start.min(origin.elapsed() + FAR);
                tokio::time::sleep_until(*origin + after_origin).await;
            }
            Source::Manual(manual) => {
                let deadline = Time::ZERO.after(after_start);
                Sleep { manual, deadline, ticket: None }.await;
            }
        }
    }
}

impl From<Source> for Clock {
    fn from(source: Source) -> Self {
        Self { source, ahead: Duration::ZERO, behind: Duration::ZERO }
    }
}

/// What tells boots of machines apart.
#[cfg(any(feature = "journal", feature = "directory"))]
mod boot {
    use std::sync::OnceLock;

    use super::Mark;

    /// Which boot this is, by the kernel's own word for it.
    #[cfg(target_os = "linux")]
    pub(super) fn mark() -> Mark {
        static BOOT: OnceLock<[u8; 16]> = OnceLock::new();
        let boot = *BOOT.get_or_init(|| {
            let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
            let digits: String =
                text.unwrap_or_default().chars().filter(char::is_ascii_hexdigit).collect();
            u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
        });
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let at = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
        Mark { boot, at: at.saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0)) }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn mark() -> Mark {
        Mark { boot: [0; 16], at: 0 }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            Source::System { .. } => "Clock(system)",
            Source::Manual(_) => "Clock(manual)",
        })
    }
}

/// How far wall time is ahead of queue time, read from the system once a second: a message's
/// `enqueued_at` costs no second reading of a clock, and follows a stepped wall clock soon enough.
#[derive(Debug, Default)]
struct WallOffset {
    millis: AtomicI64,
    /// Queue time in milliseconds from which it has to be read again.
    valid_until: AtomicI64,
}

impl WallOffset {
    fn at(&self, now: Time) -> Timestamp {
        let now = i64::try_from(now.as_nanos() / 1_000_000).unwrap_or(i64::MAX);
        if now < self.valid_until.load(Ordering::Acquire) {
            let wall = now.saturating_add(self.millis.load(Ordering::Relaxed));
            return Timestamp::from_unix_millis(wall);
        }
        let wall = Timestamp::now();
        // Two threads may do this at once: both store the same, to the millisecond.
        self.millis.store(wall.as_unix_millis() - now, Ordering::Relaxed);
        self.valid_until.store(now + 1_000, Ordering::Release);
        wall
    }
}

/// A clock that stands still until a test moves it: hours of redelivery in milliseconds.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> mailbox::Result<()> {
/// use std::time::Duration;
/// use mailbox::{Mailbox, testing::ManualClock};
///
/// let clock = ManualClock::new();
/// let jobs: Mailbox<String> = Mailbox::memory_with_clock("jobs", &clock)?;
/// jobs.send("tidy up".to_owned()).await?;
///
/// let first = jobs.receive().await?; // invisible for 30 s now
/// assert!(jobs.receive().await?.is_empty());
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(jobs.receive().await?[0].delivery_count(), 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ManualClock(Arc<Manual>);

struct Manual {
    state: Mutex<ManualState>,
}

struct ManualState {
    elapsed: Duration,
    wall_origin: Timestamp,
    /// Tells it from every other clock, as a boot id does.
    #[cfg(any(feature = "journal", feature = "directory"))]
    boot: [u8; 16],
    sleepers: BTreeMap<(Time, u64), Waker>,
    next_ticket: u64,
}

impl ManualClock {
    /// A clock that stands at 2025-01-01T00:00:00Z.
    #[must_use]
    pub fn new() -> Self {
        let state = ManualState {
            elapsed: Duration::ZERO,
            wall_origin: Timestamp::from_unix_millis(1_735_689_600_000),
            #[cfg(any(feature = "journal", feature = "directory"))]
            boot: crate::home::random(),
            sleepers: BTreeMap::new(),
            next_ticket: 0,
        };
        Self(Arc::new(Manual { state: Mutex::new(state) }))
    }

    /// For whoever takes a [`Clock`].
    #[must_use]
    pub fn clock(&self) -> Clock {
        Source::Manual(Arc::clone(&self.0)).into()
    }

    /// Moves time on, and wakes everybody whose time has come.
    pub fn advance(&self, by: Duration) {
        let woken: Vec<Waker> = {
            let mut state = self.0.state.lock();
            state.elapsed = state.elapsed.saturating_add(by);
            let now = Time::ZERO.after(state.elapsed);
            let later = state.sleepers.split_off(&(now.after(Duration::from_nanos(1)), 0));
            std::mem::replace(&mut state.sleepers, later).into_values().collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Moves wall time alone, as an operator or a time server would: no deadline may notice (V6).
    pub fn step_wall(&self, to: Timestamp) {
        let mut state = self.0.state.lock();
        state.wall_origin = to.before(state.elapsed);
    }

    /// How long it has been moved altogether.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.state.lock().elapsed
    }

    /// What it shows: how long it has been moved, the wall time, and what tells it from others.
    #[cfg(feature = "directory")]
    #[doc(hidden)]
    #[must_use]
    pub fn face(&self) -> (Duration, Timestamp, u128) {
        let state = self.0.state.lock();
        let wall = state.wall_origin.after(state.elapsed);
        (state.elapsed, wall, u128::from_be_bytes(state.boot))
    }

    /// Shows what the clock of another process does. Time does not go back for that.
    #[cfg(feature = "directory")]
    #[doc(hidden)]
    pub fn show(&self, (elapsed, wall, boot): (Duration, Timestamp, u128)) {
        {
            let mut state = self.0.state.lock();
            (state.wall_origin, state.boot) = (wall.before(elapsed), boot.to_be_bytes());
        }
        self.advance(elapsed.saturating_sub(self.elapsed()));
    }

    /// Ends when it has been moved further than `elapsed`.
    #[cfg(feature = "directory")]
    #[doc(hidden)]
    pub async fn moved_beyond(&self, elapsed: Duration) {
        let deadline = Time::ZERO.after(elapsed).after(Duration::from_nanos(1));
        Sleep { manual: &self.0, deadline, ticket: None }.await;
    }
}

impl From<&ManualClock> for Clock {
    fn from(manual: &ManualClock) -> Self {
        manual.clock()
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.elapsed()).finish()
    }
}

struct Sleep<'a> {
    manual: &'a Manual,
    deadline: Time,
    ticket: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.manual.state.lock();
        if Time::ZERO.after(state.elapsed) >= self.deadline {
            return Poll::Ready(());
        }
        let ticket = self.ticket.unwrap_or(state.next_ticket);
        state.next_ticket = state.next_ticket.max(ticket + 1);
        let old_waker = state.sleepers.insert((self.deadline, ticket), context.waker().clone());
        // A waker may run anything when it is dropped: not under the lock.
        drop(state);
        drop(old_waker);
        self.ticket = Some(ticket);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let waker = self.manual.state.lock().sleepers.remove(&(self.deadline, ticket));
            drop(waker);
        }
    }
}
